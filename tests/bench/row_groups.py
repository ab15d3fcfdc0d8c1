"""Reading existing Parquet files by one rank, compared with bare loops over the same row groups."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset import parquet_footer, sample_index
from dlio_hpc.dataset.sample_order import Order
from tests.bench.table import ROUNDS, compare
from tests.support import existing

# Row groups of each file, and rows of a row group, which have 3 MiB.
_GROUPS, _ROWS = (8,) * 4, 4000


def bench(folder: Path, rounds: int = ROUNDS, shrink: int = 1) -> None:
    """Print a row for each mode. shrink: factor by which there are fewer files."""
    data = folder / "row-groups"
    existing.tables(data, _GROUPS[: max(1, len(_GROUPS) // shrink)], _ROWS)
    for mode, bare, goal in (("framework", _pyarrow, ">= 0.9"), ("posix", _chunks, ">= 0.85")):
        made = existing.scanned(data, folder, existing.unscanned("parquet", "*", mode=mode, batch_size=4, prefetch=0))
        what = f"read existing parquet, {mode} / {'pyarrow' if mode == 'framework' else 'preadv'}"
        compare(what, _ours(data, made), bare(data, made.dataset.largest), made.dataset.size, goal, rounds)


def _ours(data: Path, made: Workload) -> Callable[[], None]:
    dataset = made.dataset
    assert dataset.scan is not None
    paths = partial(_path, data, sample_index.opened(dataset.scan.index))
    steps = -(-dataset.samples // made.reader.batch_size)
    loader = NativeLoader(made, FORMATS["parquet"].reader(made, paths, None), steps)
    order = Order(dataset, made.reader, 0)

    def epoch() -> None:
        read = sum(len(batch.rows) for batch in loader.epoch(order, 0, dataset.samples, steps))
        assert read == dataset.samples

    return epoch


def _path(data: Path, index: sample_index.SampleIndex, number: int) -> str:
    return str(data / index.name(number))


def _pyarrow(data: Path, width: int) -> Callable[[], None]:
    """Decode row groups, and copy the values of their columns to a batch."""
    import pyarrow.parquet as pq

    batch = np.empty((4, width), np.uint8)

    def loop() -> None:
        for path in sorted(data.iterdir()):
            file = pq.ParquetFile(path)
            for group in range(file.num_row_groups):
                row, begin = batch[group % 4], 0
                for column in file.read_row_group(group).columns:
                    for memory in filter(None, column.chunk(0).buffers()):
                        part = np.frombuffer(memory, np.uint8)[: width - begin]
                        row[begin : begin + len(part)] = part
                        begin += len(part)

    return loop


def _chunks(data: Path, width: int) -> Callable[[], None]:
    """Read the footer of each file, and the column chunks of its row groups."""
    batch = [memoryview(bytearray(width)) for _ in range(4)]

    def loop() -> None:
        for path in sorted(data.iterdir()):
            descriptor = os.open(path, os.O_RDONLY)
            begin, footer = parquet_footer.located(descriptor, path.stat().st_size)
            for number, group in enumerate(parquet_footer.parsed(footer, begin)):
                view, at = batch[number % 4], 0
                for chunk in group.chunks:
                    os.preadv(descriptor, [view[at : at + chunk.size]], chunk.offset)
                    at += chunk.size
            os.close(descriptor)

    return loop
