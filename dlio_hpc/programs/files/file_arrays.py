"""Sizes of the arrays of a file that a library loads as a whole, such as an image, its mask and its label. The sizes
are derived from the requests of the library.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue
from dlio_hpc.programs.files.extents import Integers, Reads, is_index_read

# Sizes in bytes of the end record of a ZIP archive, and of this record with the one before it that zipfile reads.
_ZIP_END, _ZIP_ENDS = 22, 42
# Bytes of an entry of a ZIP directory, without its name; of the header of a member, without its name; and of the header
# of an array, as numpy.savez writes them.
_ENTRY, _MEMBER, _NPY = 46, 50, 128
# Shortest and longest mean length of the names of members, and the length of those that numpy.savez chooses: arr_0.npy.
_SHORT, _LONG, _USUAL = 5, 30, 9
# Bytes of the signature that HDF5 reads when it opens a file.
_SIGNATURE = 8
# A read that is smaller than this fraction of the usual size reads no array.
_SMALL = 1 / 16
# Share of the visits to files that show the same arrays, and share of a file's bytes that the arrays take.
_NEARLY_ALL = 0.9
# Arrays of equal size of which each step reads the same rows: smallest number of requests and of rows that show them,
# largest number of requests between two partners, largest number of arrays, and share by which their distances may
# differ.
_MANY, _ROWS, _STEP, _EQUAL, _SLACK = 32, 4, 256, 8, 0.05
# Largest number of arrays of a file, and of visits that are looked at.
_MOST, _VISITS = 64, 5000

T = TypeVar("T")
Mask = npt.NDArray[np.bool_]
Pieces = list[tuple[int, int]]


class _Visit(NamedTuple):
    """Requests of a reader to a file between two opens of the file, as offset and length. size: size of the file in
    bytes.
    """

    size: int
    requests: Pieces


class _Archive(NamedTuple):
    """An archive of arrays, as the requests of a visit show it. start: offset of the directory. directory: bytes of the
    directory. read: known offsets at which members begin, in the order in which they are read. Some offsets are known
    only with a precision of half a page.
    """

    start: int
    directory: int
    read: tuple[int, ...]

    @property
    def members(self) -> tuple[int, ...]:
        """Offsets at which members begin, ascending."""
        return tuple(sorted(self.read))

    @property
    def arrays(self) -> int:
        """Number of members that gives the most plausible mean length of their names; 1 if no number gives a plausible
        length.
        """
        counts = range(1, self.directory // (_ENTRY + _SHORT) + 1)
        plausible = [count for count in counts if self.directory / count - _ENTRY <= _LONG]
        return min(plausible, key=lambda count: abs(self.directory / count - _ENTRY - _USUAL), default=1)


class FileArrays(NamedTuple):
    """Arrays of a file. sizes: bytes of each array, in the order of the file. order: positions of the arrays in the
    order in which they are read; None if that is the order of the file. by_array: True if a step reads all its rows of
    one array before the rows of the next array, otherwise None.
    """

    sizes: DerivedValue
    order: DerivedValue | None
    by_array: DerivedValue | None = None


def of_archives(reads: Reads) -> FileArrays | None:
    """Return the arrays in npz files that numpy.load read through the buffer of a Python file. Return None if the files
    have one array, if they differ, or if requests do not show the sizes. reads: all reads of the files.
    """
    if np.ptp(reads.sizes):
        return None
    buffer = _first_request(reads)
    shown = [archive for visit in _visits(reads, _opens_archive) if (archive := _archive(visit, buffer)) is not None]
    archive = _prevailing(shown)
    if archive is None or not 2 <= archive.arrays <= _MOST or archive.members[:1] != (0,):
        return None
    if len(archive.members) > archive.arrays:
        return None
    sizes = _sizes(archive)
    if min(sizes) < 1:
        return None
    hidden = archive.arrays - len(archive.members)
    evidence = (
        f"the directory of an archive has {archive.directory:,} B, as with {archive.arrays} arrays; requests show "
        f"where {len(archive.members)} of them begin"
    )
    level: Confidence = "low" if hidden else "medium"
    value = DerivedValue(sizes, level, f"{evidence}, the others are small" if hidden else evidence)
    return FileArrays(value, None if hidden else _order(archive.read, "members of an archive"))


def _order(offsets: Sequence[int], pieces: str) -> DerivedValue | None:
    """Return the order in which pieces of a file are read, as positions in the file. Return None if it is the order of
    the file. offsets: offset of each piece, in the order of reading. pieces: their name in messages.
    """
    in_file = sorted(offsets)
    if list(offsets) == in_file:
        return None
    evidence = f"{pieces} are read at offsets {', '.join(f'{offset:,}' for offset in offsets)}, in this order"
    return DerivedValue([in_file.index(offset) for offset in offsets], "medium", evidence)


def _first_request(reads: Reads) -> int:
    """Return the most frequent size of the first request to a file. It is the size of the buffer."""
    values, counts = np.unique(reads.length[reads.offset == 0], return_counts=True)
    return int(values[np.argmax(counts)]) if len(values) else 0


def _sizes(archive: _Archive) -> list[int]:
    """Return the sizes of the arrays of an archive. Members whose beginning is unknown are assumed to follow the
    others, in the rest of the last block that is read through the buffer.
    """
    count = archive.arrays
    head = _MEMBER + _NPY + (archive.directory - count * _ENTRY) // count
    edges = np.array([*archive.members, archive.start])
    sizes: list[int] = (np.diff(edges) - head).tolist()
    if hidden := count - len(archive.members):
        rest = max(1, (archive.start % 4096 - hidden * head) // (hidden + 1))
        sizes[-1] -= hidden * (head + rest)
        sizes += [rest] * hidden
    total = archive.start - count * (_MEMBER + _NPY) - (archive.directory - count * _ENTRY)
    largest = sizes.index(max(sizes))
    sizes[largest] += total - sum(sizes)  # the bytes of all arrays are known exactly
    return sizes


def _archive(visit: _Visit, buffer: int) -> _Archive | None:
    """Return the archive of an npz file, as far as a visit to the file shows it. Return None if the visit does not show
    the directory, or if no array is larger than the buffer.
    """
    ends = [offset for offset, length in visit.requests if offset + length == visit.size]
    lengths = [visit.size - offset for offset in ends]
    if lengths[:2] != [_ZIP_END, _ZIP_ENDS] or len(lengths) < 3 or buffer < _ZIP_ENDS:
        return None
    start = ends[2]
    after = visit.requests[visit.requests.index((start, visit.size - start)) + 1 :]
    if not any(length > buffer for _, length in after):
        return None
    return _Archive(start, visit.size - start - _ZIP_END, tuple(dict.fromkeys(_members(after, start, buffer))))


def _members(requests: Pieces, end: int, buffer: int) -> Iterator[int]:
    """Yield offsets at which members of an archive begin. A request that does not continue the previous one begins at a
    member. The large part of an array is read directly, and its end is read through the buffer. Another request through
    the buffer reads the header of the next member. end: offset of the directory.
    """
    reach, is_read = -1, False
    through: list[int] = []
    for offset, length in requests:
        if offset >= end:
            break
        if offset != reach:
            yield offset
            through, is_read = [], False
        if length > buffer:
            if is_read and len(through) > 1:
                yield through[0] + buffer // 2
            through, is_read = [], True
        else:
            through.append(offset)
        reach = offset + length
    if is_read and len(through) > 1:
        yield through[0] + buffer // 2


def of_hdf5(reads: Reads) -> FileArrays | None:
    """Return the contiguous arrays in HDF5 files. HDF5 reads the header of each array before its data, so a read of a
    header separates the reads of two arrays. Return None if files have one array, if they differ, or if a program does
    not read whole files. reads: all reads of the files.
    """
    arrays = _prevailing([_pieces(visit, reads.usual) for visit in _visits(reads, _opens_hdf5)])
    if arrays is None or not 2 <= len(arrays) <= _MOST:
        return None
    evidence = f"{len(arrays)} arrays of a file are read one after the other, each after a header of its own"
    sizes = DerivedValue([size for _, size in sorted(arrays)], "medium", evidence)
    return FileArrays(sizes, _order([offset for offset, _ in arrays], "arrays of a file"))


def _pieces(visit: _Visit, usual: int) -> tuple[tuple[int, int], ...]:
    """Return the offset and the size of each array that a visit to an HDF5 file reads. Return an empty tuple if the
    visit does not read the whole file, if it reads an array twice, or if reads of headers do not separate the arrays.
    """
    is_array = [length >= _SMALL * usual for _, length in visit.requests]
    arrays = [request for request, is_large in zip(visit.requests, is_array, strict=True) if is_large]
    follows = any(first and second for first, second in pairwise(is_array))
    offsets, sizes = {offset for offset, _ in arrays}, [length for _, length in arrays]
    if follows or len(offsets) < len(arrays) or sum(sizes) < _NEARLY_ALL * visit.size:
        return ()
    return () if is_index_read(np.array(sizes, np.int64)).any() else tuple(arrays)


def of_steps(reads: Reads, size: int) -> FileArrays | None:
    """Return the arrays of HDF5 files from which each step reads the same rows, such as inputs and targets of equal
    size. Each request then has a partner in each other array, at a fixed distance. Return None if there are no such
    arrays. reads: reads of samples. size: bytes of a row.
    """
    shown = [_distance(reads.offset[mine], size) for mine in _by_file(reads)]
    distances = [distance for distance in shown if distance is not None]
    if not distances or len(distances) < _NEARLY_ALL * len(shown):
        return None
    apart, count, later = Counter(distances).most_common(1)[0][0]
    evidence = f"requests of a step come in groups of {count}, at distances of {apart:,} B in a file"
    by_array = None
    if later > 1:
        reason = f"a row of an array is read {later} requests after the same row of another array"
        by_array = DerivedValue(True, "medium", reason)
    return FileArrays(DerivedValue([size] * count, "medium", evidence), None, by_array)


def _by_file(reads: Reads) -> Iterator[Integers]:
    """Yield the indices of the reads of each reader in each file. Files with few reads are left out."""
    for mine in reads.readers:
        order = mine[np.argsort(reads.file[mine], kind="stable")]
        for part in np.split(order, np.flatnonzero(np.diff(reads.file[order])) + 1):
            if len(part) >= _MANY:
                yield part[:_VISITS]


def _distance(offset: Integers, size: int) -> tuple[int, int, int] | None:
    """Return three values: the distance in bytes between the arrays of a file, the number of arrays, and the usual
    number of requests between a row of an array and the same row of the next array. Return None unless nearly all
    requests have a partner at this distance among the requests shortly before or after them.
    """
    extent = int(np.ptp(offset)) + size
    lags = range(1, min(_STEP, len(offset) - 1))
    apart = np.concatenate([np.abs(offset[lag:] - offset[:-lag]) for lag in lags])
    values, counts = np.unique(apart[apart >= extent // (2 * _EQUAL)], return_counts=True)
    if not len(values):
        return None
    best = int(values[np.argmax(counts)])
    count = round(extent / best)
    if not 2 <= count <= _EQUAL or abs(extent / best - count) > _SLACK * count:
        return None
    if len(np.unique(offset)) < _ROWS * count:  # a file with as many samples, read in order, looks the same
        return None
    paired = np.zeros(len(offset), bool)
    partners: Counter[int] = Counter()
    for lag in lags:
        at = np.flatnonzero(np.abs(offset[lag:] - offset[:-lag]) == best)
        paired[at] = paired[at + lag] = True
        partners[lag] = len(at)
    return (best, count, partners.most_common(1)[0][0]) if paired.mean() >= _NEARLY_ALL else None


def _visits(reads: Reads, opens: Callable[[Integers, Integers, int], Mask]) -> Iterator[_Visit]:
    """Yield the visits of readers to files. opens: function that returns a mask of the requests with which a visit
    begins. Its arguments are the offsets and lengths of the requests of a reader to a file, and the size of the file.
    """
    count = 0
    for mine in reads.readers:
        order = mine[np.argsort(reads.file[mine], kind="stable")]
        for part in np.split(order, np.flatnonzero(np.diff(reads.file[order])) + 1):
            size, offset, length = int(reads.sizes[reads.file[part[0]]]), reads.offset[part], reads.length[part]
            begins = np.flatnonzero(opens(offset, length, size)).tolist()
            requests = list(zip(offset.tolist(), length.tolist(), strict=True))
            for first, last in pairwise([*begins, len(requests)]):
                yield _Visit(size, requests[first:last])
            count += len(begins)
            if count > _VISITS:
                return


def _opens_archive(offset: Integers, length: Integers, size: int) -> Mask:
    """Return a mask of the requests at the beginning of an archive that precede the request for its end."""
    is_end: Mask = (length[1:] == _ZIP_END) & (offset[1:] + length[1:] == size)
    return np.append((offset[:-1] == 0) & is_end, False)


def _opens_hdf5(offset: Integers, length: Integers, _: int) -> Mask:
    mask: Mask = (offset == 0) & (length == _SIGNATURE)
    return mask


def _prevailing(shown: Sequence[T]) -> T | None:
    """Return the value of nearly all elements, or None if there is no such value."""
    if not shown:
        return None
    ((most, times),) = Counter(shown).most_common(1)
    return most if times >= _NEARLY_ALL * len(shown) else None
