"""NumPy arrays (npy): a file holds an array of shape (samples, *sample shape), as numpy.save writes it. Samples of
varying size follow each other in one array of bytes.

Mode `posix` reads samples at their offsets. Mode `framework` is numpy.load, which always reads the whole array. NumPy
reads the header through Python's buffer, and the array through a buffer of the C library, which reads the header again.
The number of these requests and their bytes are taken from the kernel's I/O counters of the thread.

With reader.mapped, numpy.load maps the array into memory (mmap_mode="r"). Calls read only the header, twice. Page
faults bring the data while samples are copied.
"""

import tokenize
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, darshan_fd_gate, file_comparison, procfs
from dlio_hpc.core.clock import now
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.files import write_file
from dlio_hpc.core.formats.format import Paths, SampleReader
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.whole_file import Array, CountedFile, WholeFileReader, buffered
from dlio_hpc.core.io_counters import Tally, looking_up
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.sample_layout import Place, SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_MAGIC = b"\x93NUMPY\x01\x00"
# Alignment of the data, and number of digits of the first axis for which numpy.save leaves space (numpy.lib.format).
_ALIGNMENT, _DIGITS = 64, 21
# How often numpy.load opens a file that it maps: to find its kind, to read the header, and to map it.
_OPENS_OF_MAP = 3
# Errors of numpy.load for a corrupted file.
_DAMAGE = (ValueError, EOFError, SyntaxError, MemoryError, OverflowError, RuntimeError, tokenize.TokenError)


def _written_header(dataset: Dataset, number: int) -> bytes:
    """Return the header of file `number` as numpy.save writes it. It has the same size in all files of a dataset,
    because it has space for every length of the first axis.
    """
    shape = SampleLayout(dataset).array_shape(number)
    descr = np.dtype(dataset.sample.array_dtype).str
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}" + " " * (_DIGITS - len(str(shape[0])))
    return framed(text, -(-(len(_MAGIC) + 2 + len(text) + 1) // _ALIGNMENT) * _ALIGNMENT)


def framed(text: str, size: int) -> bytes:
    """Return a header of numpy.lib.format version 1.0. text: description of the array. size: size of the header in
    bytes, to which it is padded.
    """
    length = size - len(_MAGIC) - 2
    return _MAGIC + length.to_bytes(2, "little") + text.encode().ljust(length - 1) + b"\n"


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    write_file(descriptor, written_early(descriptor, _pieces(dataset, number)))


def _pieces(dataset: Dataset, number: int) -> Iterator[bytes | memoryview]:
    """Yield all bytes of file `number` in pieces. A piece is valid only until the next piece is requested."""
    places = SampleLayout(dataset)
    data = content.pieces(places.position(number), places.file_size(number), compressibility(dataset))
    return chain((_written_header(dataset, number),), data)


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    places, header = SampleLayout(dataset), len(_written_header(dataset, number))
    pieces = None if quick else _pieces(dataset, number)

    def holder(at: int) -> int | None:
        return places.holder(number, at - header) if at >= header else None

    return file_comparison.of_file(path, header + places.file_size(number), pieces, holder)


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "framework":
        darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps, which would be counted for a reader thread
        existing = workload.dataset.existing
        is_sample = existing is not None and not existing.rows
        if workload.reader.mapped:
            return _MappedReader(workload, paths, partial(_map, is_sample))
        return WholeFileReader(workload, paths, partial(_load, is_sample))
    return FlatReader(workload, paths, comm, lambda *_: len(_written_header(workload.dataset, 0)))


def _load(is_sample: bool, path: str, tally: Tally) -> list[Array]:
    """Load the array of a file, as numpy.load(path) does. is_sample: whether the array is one sample; otherwise its
    first axis counts samples.
    """
    of_python, before = Tally(), procfs.thread_io()
    try:
        with buffered(CountedFile(path, of_python)) as file:
            started = now()
            array: Array = np.load(file)
            tally.timed(started)
    except _DAMAGE as reason:
        raise damaged(path, reason) from reason
    after = procfs.thread_io()
    tally.opens += of_python.opens
    tally.opened += of_python.opened
    tally.closed += of_python.closed
    if before is None or after is None:
        tally.bytes_read += array.nbytes
        tally.overhead_bytes += of_python.bytes_read
        tally.requests += of_python.requests + 1
    else:
        difference = after.since(before)
        tally.bytes_read += difference.requested
        tally.requests += difference.calls
        tally.move_to_overhead(difference.requested - array.nbytes)
    return [_of_samples(array, is_sample)]


def _of_samples(array: Array, is_sample: bool) -> Array:
    """Return an array whose first axis counts samples. is_sample: whether the array is one sample; its values stay in
    the order of the file, which may be Fortran's.
    """
    return array.ravel(order="K").reshape(1, *(array.shape or (1,))) if is_sample else array


class _MappedReader(WholeFileReader):
    """Reader of arrays that are mapped into memory. Each thread keeps the file mapped that it read last."""

    def _copy(self, place: Place, row: Rows, tally: Tally) -> None:
        before = procfs.page_faults()
        tally.starts.append(now())
        super()._copy(place, row, tally)
        tally.ends.append(now())
        tally.map([place.size], before)


def _map(is_sample: bool, path: str, tally: Tally) -> list[Array]:
    """Map the array of a file, as numpy.load(path, mmap_mode="r") does."""
    try:
        with darshan_fd_gate.opening(), looking_up(tally):
            array: Array = np.load(path, mmap_mode="r")
    except _DAMAGE as reason:
        raise damaged(path, reason) from reason
    tally.opens += _OPENS_OF_MAP
    return [_of_samples(array, is_sample)]
