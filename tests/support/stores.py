"""Zarr stores in folders of tests."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import Chunk, Dataset, Sample, ZarrKeys
from dlio_hpc.config.reader_keys import Reader as ReaderKeys
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers
from dlio_hpc.core.formats.format import SampleReader
from dlio_hpc.core.formats.format_table import FORMATS, reader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset import dataset_folder, stored_parts
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.sample_layout import SampleLayout

FILES, PER_FILE = 2, 5
SAMPLE = Sample(shape=(30, 7), dtype="int16")


def dataset(
    chunk: tuple[int, ...] | None = None,
    shard: tuple[int, ...] | None = None,
    version: Any = 3,
    sample: Sample = SAMPLE,
    **keys: Any,
) -> Dataset:
    """Return a dataset of two stores of five samples. chunk, shard: their shapes. version: of the format."""
    shape = None if chunk is None else Chunk(shape=chunk)
    return Dataset(
        "zarr",
        FILES,
        PER_FILE,
        sample,
        chunk=shape,
        zarr=ZarrKeys(version=version, shard=shard),
        **keys,
    )


def write(folder: Path, made: Dataset) -> None:
    """Write all files of a dataset."""
    path = dataset_folder.paths(StoredDataset(str(folder), made, ""))
    for number in range(stored_parts.total(made)):
        Path(path(number)).parent.mkdir(exist_ok=True)
        descriptor = os.open(path(number), os.O_RDWR | os.O_CREAT, 0o644)
        FORMATS["zarr"].write(descriptor, made, number)
        os.close(descriptor)


def fault(folder: Path, made: Dataset, number: int, quick: bool = False) -> str | None:
    """Return the fault of a stored file."""
    path = dataset_folder.paths(StoredDataset(str(folder), made, ""))(number)
    return FORMATS["zarr"].fault(path, made, number, quick)


def opened(folder: Path, made: Dataset, mode: str, transfer_size: int | None = None) -> SampleReader:
    """Return a reader of a dataset."""
    size = None if transfer_size is None else Size(transfer_size)
    keys = ReaderKeys(mode=mode, transfer_size=size)  # type: ignore[arg-type]
    return reader(Workload("w", made, reader=keys), dataset_folder.paths(StoredDataset(str(folder), made, "")), None)


def read(source: SampleReader, made: Dataset, samples: list[int]) -> tuple[list[bytes], Tally]:
    """Return the bytes of samples, and what was counted."""
    rows, tally = np.zeros((len(samples), made.largest_in_memory), np.uint8), Tally()
    places = SampleLayout(made).of(np.array(samples, np.uint64))
    source.read(places, buffers.over(rows), tally)
    return [row[: place.size].tobytes() for row, place in zip(rows, places, strict=True)], tally
