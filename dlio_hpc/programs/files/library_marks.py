"""Marks of a library. A mark is a request that is not for a sample: the library makes it when it opens a file, reads
through a buffer or reaches the end of a file. The marks of each library are predicted and compared with those in a log.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.workload import TENSORFLOW_BUFFER
from dlio_hpc.programs.files.extents import usual

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Layout = tuple[str, str]
Pieces = list[tuple[int, int]]

# Size in bytes of the requests of pandas.read_csv, and of the buffer of a Python file.
PANDAS_BUFFER, PYTHON_BUFFER = 256 << 10, 4096
# Sizes in bytes of the end record of a ZIP archive, which zipfile reads first, of this record with the one before it,
# and of the signature at the beginning of an HDF5 file.
_ZIP_END, _ZIP_ENDS, _SIGNATURE = 22, 42, 8
# Bytes of an entry of a ZIP directory with a name of nine characters, such as arr_0.npy.
_ENTRY = 55
# Requests with which HDF5 opens a file with one dataset: superblock, object headers, symbol table and heap.
_HDF5_HEADERS = [(0, 8), (0, 48), (48, 48), (96, 512), (680, 512), (136, 544), (1072, 328), (800, 512)]
# Offset in bytes of the first sample of a file, in formats with a header.
_FIRST = {"hdf5": 2048, "npz": 4096, "tfrecord": 12}
# Number of requests at each end of a file that are predicted.
_MANY = 32
# Phrases for the marks.
PHRASES = {
    "zip_ends": f"files in which the {_ZIP_END} bytes at the end of a ZIP archive are read first, as by numpy.load",
    "signatures": f"files in which the {_SIGNATURE} bytes of the signature are read first, as by HDF5's library",
    "whole": "files read in one request, followed by a request at the end of the file, as by Python's read()",
    "streamed": f"files read in requests of {TENSORFLOW_BUFFER:,} B, followed by a request at the end of the file",
    "blocks": f"files read in blocks of {TENSORFLOW_BUFFER:,} B only",
    "headed": "files read in a request of a fixed size and one for the rest, as by a library that looks at the head",
}


class LibraryMarks(NamedTuple):
    """Share of the files that show a mark, for each mark. PHRASES describes the marks. A request at the end of a file
    returns no bytes. head: size in bytes of the first request to the files that have the mark `headed`.
    """

    zip_ends: float
    signatures: float
    whole: float
    streamed: float
    blocks: float
    headed: float
    head: int


class LayoutFit(NamedTuple):
    """A format with a mode, and how well its predicted marks agree with those in the log. agreement: from 0 to 1."""

    format: str
    mode: str
    predicted: LibraryMarks
    agreement: float


def of(file: Integers, offset: Integers, length: Integers, sizes: Integers) -> LibraryMarks:
    """Return the marks of read requests. file, offset, length: columns of the requests. sizes: size of each file in
    bytes.
    """
    at_end = (offset + length >= sizes[file]) & (length == _ZIP_END)
    signed = (offset == 0) & (length == _SIGNATURE)
    count = max(len(np.unique(file)), 1)
    ended = np.isin(file, np.unique(file[(length == 0) & (offset >= sizes[file])]))
    whole = ended & (offset == 0) & (length == sizes[file])
    is_block = (offset % TENSORFLOW_BUFFER == 0) & (length <= TENSORFLOW_BUFFER)
    rest = (offset > 0) & is_block & (offset + length == sizes[file])
    streamed = ended & rest & np.isin(file, np.unique(file[(offset == 0) & (length == TENSORFLOW_BUFFER)]))
    head = usual(length[(offset == 0) & (length < sizes[file])])
    begun = np.isin(file, np.unique(file[(offset == 0) & (length == head)]))
    headed = ended & begun & (offset == head) & (offset + length == sizes[file]) & (head > 0)
    others = (length > 0) & ~_is_block(offset, length, sizes[file])
    zip_ends, signatures, whole_files, streams, with_others, heads = (
        len(np.unique(file[marked])) / count for marked in (at_end, signed, whole, streamed, others, headed)
    )
    return LibraryMarks(zip_ends, signatures, whole_files, streams, 1 - with_others, heads, head)


def _is_block(offset: Integers, length: Integers, size: Integers) -> Mask:
    """Return a mask of the requests for a complete block of TensorFlow's buffer, or for the last block of a file."""
    is_last = offset + length == size
    mask: Mask = (offset % TENSORFLOW_BUFFER == 0) & ((length == TENSORFLOW_BUFFER) | is_last)
    return mask & (length <= TENSORFLOW_BUFFER)


def visit(layout: Layout, size: int, request: int, head: int = 0) -> Pieces:
    """Return the requests of a reader that reads a file from its beginning to its end, as offset and length. layout:
    format and mode. size: size of the file in bytes. request: size of the requests for samples; ignored if the library
    chooses the size. head: size of the first request of a library that inspects the beginning of a file.
    """
    read = _LIBRARIES.get(layout)
    if read is not None:
        return read(size)
    if layout == ("raw", "framework"):
        return _whole(size, head)
    return _pieces(_FIRST.get(layout[0], 0), size, request)


def _pieces(begin: int, end: int, request: int) -> Pieces:
    """Return the requests from `begin` to `end`. If there are many, return only the first and the last ones, which
    suffice to show marks.
    """
    starts = range(begin, end, max(request, 1))
    kept = starts if len(starts) <= 2 * _MANY else [*starts[:_MANY], *starts[-_MANY:]]
    return [(at, min(request, end - at)) for at in kept]


def _stream(size: int) -> Pieces:
    return [*_pieces(0, size, TENSORFLOW_BUFFER), (size, 0)]


def _whole(size: int, head: int) -> Pieces:
    parts = [(0, head), (head, size - head)] if 0 < head < size else [(0, size)]
    return [*parts, (size, 0)]


def _archive(size: int) -> Pieces:
    """Return the requests that numpy.load makes to read an archive of one array through a buffered Python file. numpy
    reads 256 KiB at a time. Of each read, Python fetches whole blocks directly, and the rest through its buffer.
    """
    directory = max(size - _ZIP_END - _ENTRY, 0)
    opening = [(0, PYTHON_BUFFER), (size - _ZIP_END, _ZIP_END), (size, 0), (size - _ZIP_ENDS, _ZIP_ENDS)]
    parts = [(directory, size - directory), (0, PYTHON_BUFFER), (PYTHON_BUFFER, PYTHON_BUFFER)]
    for at in range(0, min(size, _MANY * PANDAS_BUFFER), PANDAS_BUFFER):
        begin = max(at + PYTHON_BUFFER, 2 * PYTHON_BUFFER)
        end = min(at + PANDAS_BUFFER, size) // PYTHON_BUFFER * PYTHON_BUFFER
        parts += [(begin, end - begin)] if end > begin else []
        parts += [(end, min(PYTHON_BUFFER, size - end))] if end < size else []
    return opening + parts


def _hdf5(size: int) -> Pieces:
    return [*_HDF5_HEADERS, (min(2048, size), max(size - 2048, 0))]


_LIBRARIES: dict[Layout, Callable[[int], Pieces]] = {
    ("hdf5", "framework"): _hdf5,
    ("npz", "framework"): _archive,
    ("tfrecord", "framework"): _stream,
    ("csv", "framework"): _stream,
}


def ranked(layouts: Sequence[Layout], logged: LibraryMarks, size: int, reach: int, request: int) -> list[LayoutFit]:
    """Return the layouts, sorted by the agreement of their predicted marks with those in the log, best first. Layouts
    that agree equally keep their order. size: usual size of a file in bytes. reach: bytes up to the last byte that is
    read. request: usual size of a request.
    """
    fits = [_fit(layout, logged, size, reach, request) for layout in layouts]
    return sorted(fits, key=lambda fit: -fit.agreement)


def _fit(layout: Layout, logged: LibraryMarks, size: int, reach: int, request: int) -> LayoutFit:
    heads = (0, logged.head) if layout == ("raw", "framework") else (0,)
    fits = [_compared(layout, visit(layout, size, request, head), logged, size, reach) for head in heads]
    return max(fits, key=lambda fit: fit.agreement)


def _compared(layout: Layout, requests: Pieces, logged: LibraryMarks, size: int, reach: int) -> LayoutFit:
    kept = [(offset, length) for offset, length in requests if offset + length <= reach]
    offset, length = np.array(kept, np.int64).reshape(-1, 2).T
    predicted = of(np.zeros(len(kept), np.int64), offset, length, np.array([size], np.int64))
    apart = [abs(getattr(predicted, name) - getattr(logged, name)) for name in PHRASES]
    return LayoutFit(*layout, predicted, 1 - sum(apart) / len(apart))
