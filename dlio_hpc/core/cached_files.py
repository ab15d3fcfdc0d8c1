"""Files of a dataset whose pages may be in the page cache."""

import itertools
import os
from collections.abc import Iterable, Iterator

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.dataset import chunk_grid, dataset_folder, sample_index, stored_parts, zarr_store
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.sample_layout import SampleLayout, Samples

# Number of files of chunks that are taken for each sample in a store, and number of files of an existing store among
# which some are taken.
_OF_A_SAMPLE, _LISTED = 4, 4096


def of_containers(stored: StoredDataset, containers: Iterable[int]) -> Iterator[str]:
    """Yield the paths of all files of some containers. The folders of existing stores are listed, because chunks may be
    missing. Links are not followed.
    """
    path, is_listed = dataset_folder.paths(stored), _is_listed(stored.descriptor)
    for number in stored_parts.of_containers(stored.descriptor, containers):
        if is_listed:
            yield from _in_store(os.path.dirname(path(number)))
        else:
            yield path(number)


def _is_listed(dataset: Dataset) -> bool:
    """Return whether only the folders of the dataset's stores tell which files they have."""
    return dataset.facts.is_store and dataset.existing is not None


def _in_store(folder: str) -> Iterator[str]:
    for inner, _, names in os.walk(folder):
        yield from (os.path.join(inner, name) for name in names)


def of_samples(stored: StoredDataset, samples: list[int]) -> list[str]:
    """Return the paths of files that hold some samples: all files of their containers, or if these are stores, some of
    the files of chunks. For an existing store, these are any of its files. No file is read.
    """
    dataset, path, numbers = stored.descriptor, dataset_folder.paths(stored), np.array(samples, np.uint64)
    containers = dict.fromkeys(sample_index.file_numbers(dataset, numbers).tolist())
    if _is_listed(dataset):
        return [file for number in containers for file in _some_of(os.path.dirname(path(number)))]
    if dataset.facts.is_store:
        return list(dict.fromkeys(_of_chunks(stored, numbers)))
    return [path(number) for number in stored_parts.of_containers(dataset, containers)]


def _some_of(folder: str) -> list[str]:
    files = list(itertools.islice(_in_store(folder), _LISTED))
    return files[:: max(1, len(files) // _OF_A_SAMPLE)]


def _of_chunks(stored: StoredDataset, samples: Samples) -> Iterator[str]:
    """Yield the paths of some files of chunks for each sample in generated stores."""
    dataset, path = stored.descriptor, dataset_folder.paths(stored)
    parts, shape = stored_parts.of(dataset), dataset.array_shape
    for place in SampleLayout(dataset).of(samples):
        region = [(place.within, place.within + 1), *((0, extent) for extent in shape[1:])]
        overlaps = chunk_grid.overlaps(region, zarr_store.stored_shape(dataset))
        for overlap in itertools.islice(overlaps, _OF_A_SAMPLE):
            yield path(place.file * parts.number + zarr_store.part_names(dataset).part(overlap.at))
