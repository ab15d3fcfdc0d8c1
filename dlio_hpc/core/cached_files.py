"""Files of a dataset whose pages may be in the page cache."""

import os
from collections.abc import Iterable, Iterator

import numpy as np

from dlio_hpc.dataset import dataset_folder, sample_index, stored_parts, zarr_scan
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.sample_layout import SampleLayout

# Number of files of chunks that are taken for each sample in a store.
_OF_A_SAMPLE = 4


def of_containers(stored: StoredDataset, containers: Iterable[int]) -> Iterator[str]:
    """Yield the paths of all files of some containers. The folders of existing stores are listed, because chunks may be
    missing. Links are not followed.
    """
    path = dataset_folder.paths(stored)
    is_listed = stored.descriptor.facts.is_store and stored.descriptor.existing is not None
    for number in stored_parts.of_containers(stored.descriptor, containers):
        if is_listed:
            for folder, _, names in os.walk(os.path.dirname(path(number))):
                yield from (os.path.join(folder, name) for name in names)
        else:
            yield path(number)


def of_samples(stored: StoredDataset, samples: list[int]) -> list[str]:
    """Return the paths of files that hold some samples: all files of their containers, or if these are stores, some of
    the files of chunks. Files of chunks may be missing.
    """
    numbers = np.array(samples, np.uint64)
    path = dataset_folder.paths(stored)
    if not stored.descriptor.facts.is_store:
        containers = dict.fromkeys(sample_index.file_numbers(stored.descriptor, numbers).tolist())
        return [path(number) for number in stored_parts.of_containers(stored.descriptor, containers)]
    parts, files = stored_parts.of(stored.descriptor).number, []
    for place in SampleLayout(stored.descriptor).of(numbers):
        files += zarr_scan.chunk_files(path(place.file * parts), place.within, _OF_A_SAMPLE)
    return list(dict.fromkeys(files))
