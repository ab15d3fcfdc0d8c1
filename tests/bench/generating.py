"""Generating by one rank, compared with a bare loop that writes as many bytes in aligned blocks. Both write new files
and sync each of them to storage. In memory (/dev/shm) only their CPU time counts.
"""

import mmap
import os
import random
import zlib
from functools import partial
from pathlib import Path

import numpy as np

from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import LEVEL, Dataset, Documents, Sample
from dlio_hpc.core import content
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.dataset import stored_parts
from tests.bench.table import ROUNDS, compare

_BLOCK, _GOAL = 1 << 20, ">= 0.9"
_BYTES = Sample(bytes=Size(1 << 20))
_DATASETS = (
    (Dataset("raw", 8, 16, _BYTES), _GOAL),
    (Dataset("npz", 8, 16, _BYTES), _GOAL),
    (Dataset("npy", 8, 16, _BYTES), _GOAL),
    (Dataset("jpeg", 128, 1, _BYTES), ">= 0.85"),
    (Dataset("png", 128, 1, _BYTES), ">= 0.85"),
    (Dataset("hdf5", 8, 16, _BYTES), _GOAL),
    (Dataset("tfrecord", 8, 16, _BYTES), _GOAL),
    (Dataset("tfrecord", 2, 16, _BYTES, compression="gzip", random_bits=4), ">= 0.85"),
    (Dataset("tar", 8, 16, _BYTES), _GOAL),
    (Dataset("indexed", 8, 16, Sample(shape=(1 << 18,), dtype="int32"), documents=Documents(1000, 400)), _GOAL),
    (Dataset("zarr", 8, 16, _BYTES), ">= 0.85"),
    (Dataset("csv", 8, 16, Sample(shape=(100_000,))), ">= 200 MB/s"),
)


def bench(folder: Path, rounds: int = ROUNDS) -> None:
    block = memoryview(mmap.mmap(-1, _BLOCK))
    block[:] = random.Random(1).randbytes(_BLOCK)
    for dataset, goal in _DATASETS:
        here = folder / f"generated-{dataset.format}-{dataset.compression}"
        here.mkdir()
        _generate(here, dataset)
        sizes = [_path(here, number).stat().st_size for number in range(stored_parts.total(dataset))]
        is_packed, packed = dataset.is_packed, f" {dataset.compression}" if dataset.is_packed else ""
        compare(
            f"generate {dataset.format}{packed} / {'compress and ' if is_packed else ''}write as many bytes",
            partial(_generate, here, dataset),
            partial(_compress, here, dataset) if is_packed else partial(_write, here, sizes, block),
            sum(sizes),
            goal,
            rounds,
            between=partial(_remove, here),
        )
        _remove(here)


def _path(folder: Path, number: int) -> Path:
    return folder / f"{number}.data"


def _generate(folder: Path, dataset: Dataset) -> None:
    for number in range(stored_parts.total(dataset)):
        descriptor = os.open(_path(folder, number), os.O_RDWR | os.O_CREAT)
        FORMATS[dataset.format].write(descriptor, dataset, number)
        os.fsync(descriptor)
        os.close(descriptor)


def _write(folder: Path, sizes: list[int], block: memoryview) -> None:
    for number, size in enumerate(sizes):
        descriptor = os.open(_path(folder, number), os.O_RDWR | os.O_CREAT)
        for done in range(0, size, _BLOCK):
            os.write(descriptor, block[: size - done])
        os.fsync(descriptor)
        os.close(descriptor)


def _compress(folder: Path, dataset: Dataset) -> None:
    """Compress the same block as often as a file has samples, and write the result."""
    block = np.empty(_BLOCK, np.uint8)
    content.fill(block, 0, compressibility(dataset))
    for number in range(dataset.files):
        descriptor = os.open(_path(folder, number), os.O_RDWR | os.O_CREAT)
        deflate = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
        for _ in range(dataset.samples_per_file):
            os.write(descriptor, deflate.compress(block.data))
        os.write(descriptor, deflate.flush())
        os.fsync(descriptor)
        os.close(descriptor)


def _remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
