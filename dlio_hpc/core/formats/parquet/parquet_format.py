"""Parquet: samples are rows, and the values of each column are stored together. A row group holds `row_group` samples.
The bytes of a sample, divided among the columns in order, are the same as in a file of another format.

Mode `framework` reads one row group at a time with pyarrow. A thread keeps the columns of a row group until the thread
needs another row group. Mode `posix` reads the footer of a file, and then only the values that a batch needs. For
samples that follow each other in a row group, it makes one request per column.

Files that exist already are read by `existing`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, darshan_fd_gate, file_comparison
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Rows
from dlio_hpc.core.files import write_file
from dlio_hpc.core.formats import arrays
from dlio_hpc.core.formats.format import Paths, SampleReader
from dlio_hpc.core.formats.parquet import existing, layout
from dlio_hpc.core.formats.parquet.layout import MAGIC, ColumnChunk, RowGroup
from dlio_hpc.core.formats.parquet.library import RowGroups
from dlio_hpc.core.formats.parquet.values import ValuesReader
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.sample_layout import SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Bytes of a row group up to which it is generated as a whole. A larger one is generated column by column.
_SMALL = 256 << 20
# Bytes of a sample from which its columns are generated apart.
_LARGE_SAMPLE = 64 << 10


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    write_file(descriptor, written_early(descriptor, _pieces(dataset, number)))


def _pieces(dataset: Dataset, number: int) -> Iterator[memoryview]:
    """Yield all bytes of file `number` in pieces. A piece is valid only until the next piece is requested."""
    files = layout.of(dataset)
    yield memoryview(MAGIC)
    for index in range(files.groups):
        group = files.group(index)
        if dataset.sample.size <= _LARGE_SAMPLE and group.size <= _SMALL:
            yield _whole_group(dataset, number, group).data
        else:
            for chunk_number, chunk in enumerate(group.chunks):
                yield memoryview(chunk.head)
                yield from _column(dataset, number, group, chunk_number)
                yield memoryview(chunk.tail)
    yield memoryview(files.footer)


def _whole_group(dataset: Dataset, number: int, group: RowGroup) -> Rows:
    """Return the bytes of a row group of file `number`."""
    samples = np.empty((group.samples, dataset.sample.size), np.uint8)
    position = SampleLayout(dataset).position(number) + group.first * dataset.sample.size
    content.fill(samples.reshape(-1), position, compressibility(dataset))
    whole = np.empty(group.size, np.uint8)
    for chunk in group.chunks:
        whole[chunk.offset : chunk.values_at] = np.frombuffer(chunk.head, np.uint8)
        end = chunk.values_at + chunk.values
        whole[end : end + len(chunk.tail)] = np.frombuffer(chunk.tail, np.uint8)
        layout.copy(values_of(whole, chunk), samples[:, chunk.first : chunk.first + chunk.width])
    return whole


def values_of(group: Rows, chunk: ColumnChunk) -> Rows:
    """Return the part of a row group's bytes that holds the values of a column chunk, shape (samples, bytes of the
    column).
    """
    return group[chunk.values_at : chunk.values_at + chunk.values].reshape(-1, chunk.width)


def _column(dataset: Dataset, number: int, group: RowGroup, index: int) -> Iterator[memoryview]:
    """Yield the values of a column of a row group of file `number`. index: position of the column."""
    chunk = group.chunks[index]
    part = arrays.SamplePart(index, dataset.column_names[index], chunk.first, chunk.width)
    for slab in arrays.slabs(dataset, number, part, range(group.first, group.first + group.samples)):
        yield slab.reshape(-1).data


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    files = layout.of(dataset)
    expected = None if quick else _pieces(dataset, number)
    return file_comparison.of_file(path, files.file_size, expected, lambda at: files.holder(number, at))


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    is_existing = workload.dataset.existing is not None
    if workload.reader.mode == "posix":
        return existing.ChunkReader(workload, paths) if is_existing else ValuesReader(workload, paths)
    try:
        import pyarrow.parquet  # noqa: F401 - imported here, so that its reads are not counted for a reader thread
    except ImportError as missing:
        raise ConfigError(
            "dataset.format=parquet with reader.mode=framework needs pyarrow, which is not installed; run pip "
            "install pyarrow, or set reader.mode=posix"
        ) from missing
    darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps
    return existing.TableReader(workload, paths) if is_existing else RowGroups(workload, paths)
