"""Files of datasets in folders of tests."""

import os
from pathlib import Path

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.dataset import stored_parts


def write_all(folder: Path, dataset: Dataset) -> None:
    """Write all files of a dataset to a folder. The name of a file is its number among the stored files."""
    for number in range(stored_parts.total(dataset)):
        write(folder / str(number), dataset, number)


def first_part(dataset: Dataset, container: int) -> int:
    """Return the number among the stored files of the first file of a container."""
    return container * stored_parts.of(dataset).number


def write(path: str | Path, dataset: Dataset, number: int) -> None:
    """Write file `number` of a dataset to a path. A file of a store is in a folder of its own."""
    if dataset.facts.is_store:
        Path(path).parent.mkdir(exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        FORMATS[dataset.format].write(descriptor, dataset, number)
    finally:
        os.close(descriptor)
