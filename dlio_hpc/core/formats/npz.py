"""NumPy archives (npz): a file holds an array `x` of shape (samples, *sample shape), as numpy.savez writes it. Samples
of varying size follow each other in one array of bytes. Without compression the data start at byte 4096. With gzip the
data are deflated. With `dataset.arrays`, a file holds the arrays `x0`, `x1`, ... at the same offsets as in a file of
numpy.savez.

Mode `posix` reads uncompressed samples at their offsets, and a deflated file as a whole. Mode `framework` is
numpy.load, which always reads whole arrays. The size of its buffer is `transfer_size` or, if that is not set, the size
that Python's open() chooses.
"""

import io
import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, NamedTuple

import numpy as np

from dlio_hpc.base.units import counted
from dlio_hpc.config.dataset_keys import LEVEL, Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.dataset_faults import FOREIGN, damaged
from dlio_hpc.core.formats import arrays, npy
from dlio_hpc.core.formats.format import Paths, SampleReader
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.whole_file import Array, CountedFile, WholeFileReader, buffered
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.sample_layout import SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_ARRAY, _MEMBER = "x", "x.npy"
# Bytes of ZIP's local header without the member's name and the ZIP64 field; of this field; and of an entry of the
# directory without its fields of variable length.
_LOCAL_HEADER, _ZIP64_FIELD, _ENTRY = 30, 20, 46
# The .npy header of a single array is padded so that the data begin on a page boundary, for direct I/O and stripe
# boundaries. In files with several arrays, it has the size that numpy.savez gives it.
DATA_OFFSET = 4096
_NUMPYS_HEADER = 128
# _ENDS: bytes that may follow the directory of an archive: one record, or three records in a large archive.
# _MOST_BEHIND: limit of all bytes after the members, for each member.
_ENDS, _MOST_BEHIND = (22, 56 + 20 + 22), 1024
# Errors of numpy.load and zipfile for a corrupted file.
_DAMAGE = (
    RuntimeError, ValueError, KeyError, EOFError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
    struct.error, NotImplementedError,
)  # fmt: skip


class _Member(NamedTuple):
    """Array file in the archive. name: name of the array file. start: offset of its ZIP header in an uncompressed
    archive. header: header in NumPy's format, before the array. size: size of the array in bytes. pieces: function that
    returns the bytes of the array in pieces. A piece is valid only until the next piece is requested.
    """

    name: str
    start: int
    header: bytes
    size: int
    pieces: Callable[[], Iterator[memoryview]]

    @property
    def data_at(self) -> int:
        """Offset of the array in an uncompressed archive."""
        return self.start + _local_header(self.name) + len(self.header)

    @property
    def end(self) -> int:
        """Offset of the first byte after the member in an uncompressed archive."""
        return self.data_at + self.size

    @property
    def file_size(self) -> int:
        """Bytes of the array file."""
        return len(self.header) + self.size

    def contents(self) -> Iterator[bytes | memoryview]:
        """Yield all bytes of the array file, in pieces."""
        yield self.header
        yield from self.pieces()


def _local_header(name: str) -> int:
    """Return the size in bytes of the ZIP header before a member of the archive."""
    return _LOCAL_HEADER + len(name) + _ZIP64_FIELD


def _members(dataset: Dataset, number: int) -> list[_Member]:
    """Return the members of the archive that is file `number`."""
    places = SampleLayout(dataset)
    if dataset.arrays is None:
        size = places.file_size(number)
        header = _npy_header(dataset, places.array_shape(number), DATA_OFFSET - _local_header(_MEMBER))

        def whole() -> Iterator[memoryview]:
            return content.pieces(places.position(number), size, compressibility(dataset))

        return [_Member(_MEMBER, 0, header, size, whole)]
    members: list[_Member] = []
    for part in arrays.parts(dataset):
        shape = (dataset.samples_per_file, part.size)
        members.append(
            _Member(
                f"{part.name}.npy",
                members[-1].end if members else 0,
                _npy_header(dataset, shape, _NUMPYS_HEADER),
                math.prod(shape),
                partial(_rows, dataset, number, part),
            )
        )
    return members


def _rows(dataset: Dataset, number: int, part: arrays.SamplePart) -> Iterator[memoryview]:
    for slab in arrays.slabs(dataset, number, part):
        yield slab.reshape(-1).data


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    """Write file `number` of the dataset to the open file `descriptor`. The file may already hold the same contents,
    and other jobs may be reading them. These jobs are not disturbed, because every byte keeps its value at all times.
    """
    level = LEVEL if dataset.level is None else dataset.level
    with os.fdopen(descriptor, "r+b", closefd=False) as file:
        with zipfile.ZipFile(file, "w", compresslevel=level) as archive:
            for member in _members(dataset, number):
                entry = zipfile.ZipInfo(member.name)
                if dataset.compression == "gzip":
                    entry.compress_type = zipfile.ZIP_DEFLATED
                entry._compresslevel = level  # type: ignore[attr-defined]
                with archive.open(entry, "w", force_zip64=True) as target:
                    for piece in written_early(descriptor, member.contents()):
                        target.write(piece)
        file.truncate()


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    """Return the fault of a file, or None if the file has no fault. The content of the arrays is compared with the
    generated content. The ZIP structures are only checked for consistency, because their bytes may differ between
    versions of Python and zlib. quick: check only the ZIP structures and the size.
    """
    stored = dataset.compression == "none"
    members = _members(dataset, number)
    try:
        with buffered(CountedFile(path, Tally())) as file, _opened(file) as archive:
            entries = archive.infolist()
            frame_fault = _listing_fault(entries, members) or _frame_fault(file, archive.start_dir, entries, stored)
            if frame_fault or quick:
                return frame_fault
            faults = (_content_fault(archive, dataset, number, *member) for member in enumerate(members))
            return next((fault for fault in faults if fault), None)
    except _DAMAGE as fault:
        return f"{FOREIGN}: {fault}"


def _listing_fault(entries: list[zipfile.ZipInfo], members: list[_Member]) -> str | None:
    """Compare the directory of the archive with the expected members. Return the fault of the directory, or None if it
    has no fault.
    """
    if len(entries) != len(members):
        return f"holds {counted(len(entries), 'array')}, expected {len(members)}"
    for entry, member in zip(entries, members, strict=True):
        if (entry.filename, entry.file_size) != (member.name, member.file_size):
            return (
                f"holds {entry.filename} of {entry.file_size} bytes, expected {member.name} of {member.file_size} bytes"
            )
    return None


def _content_fault(archive: zipfile.ZipFile, dataset: Dataset, number: int, index: int, member: _Member) -> str | None:
    """Compare a member of the archive with the generated content. Return the fault of the member, or None if it has no
    fault. number: number of the file. index: index of the member in the archive.
    """
    entry = archive.infolist()[index]
    checksum = file_comparison.Checksum(member.contents())
    with archive.open(entry) as stream:
        stream._expected_crc = None  # type: ignore[attr-defined]  # the first difference says more
        at = file_comparison.first_difference(stream, checksum)
    if at is None:
        return None if checksum.value == entry.CRC else f"the checksum of {member.name} is wrong"
    is_stored, in_array = dataset.compression == "none", at - len(member.header)
    where = f"byte {member.start + _local_header(member.name) + at}" if is_stored else f"byte {at} of {member.name}"
    sample = arrays.holder(dataset, SampleLayout(dataset), number, index, in_array) if in_array >= 0 else None
    return file_comparison.message(where, sample)


def _opened(file: io.BufferedReader) -> zipfile.ZipFile:
    """Open a file as a ZIP archive. If a read fails, raise the OSError of this read. Without this function, zipfile
    would report a corrupted file.
    """
    raw = file.raw
    assert isinstance(raw, CountedFile)
    try:
        return zipfile.ZipFile(file)
    except zipfile.BadZipFile:
        if raw.fault is not None:
            raise raw.fault from None
        raise


def _frame_fault(file: IO[bytes], directory: int, entries: list[zipfile.ZipInfo], stored: bool) -> str | None:
    """Return the fault of the ZIP structures around the array files `entries`, or None if they are correct. They are
    correct if three conditions hold. The members follow each other from the beginning of the archive. Their local
    headers agree with the directory of the archive. There are no other bytes between members and directory, or after
    the directory. directory: offset of the directory.
    """
    file.seek(directory)
    rest = file.read(_MOST_BEHIND * len(entries) + 1)
    begin = 0
    for entry in entries:
        if entry.compress_type != (zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED):
            return f"is {'compressed' if stored else 'not compressed'}"
        header = _local_header(entry.filename)
        file.seek(begin)
        local = file.read(header)
        begin += header + entry.compress_size
        sizes = struct.pack("<HHQQ", 1, 16, entry.file_size, entry.compress_size)
        if local[4:18] != rest[6:20] or local[-_ZIP64_FIELD:] != sizes:
            return "its header and its directory differ"
        rest = rest[_ENTRY + sum(struct.unpack("<3H", rest[28:34])) :]
    if directory != begin or len(rest) not in _ENDS:
        return "its parts do not add up to its size"
    if rest[-2:] != b"\0\0":
        return "its header and its directory differ"
    return None


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    dataset = workload.dataset
    if workload.reader.mode == "framework":
        return WholeFileReader(workload, paths, partial(_load, workload.reader.transfer_size, _names(workload)))
    if dataset.compression == "gzip":
        return WholeFileReader(workload, paths, _Inflate(workload))
    if dataset.arrays is not None:
        starts = [member.data_at for member in _members(dataset, 0)]
        return arrays.PartsReader(workload, paths, comm, lambda *_: starts)
    return FlatReader(workload, paths, comm, lambda *_: DATA_OFFSET)


def _names(workload: Workload) -> list[str] | None:
    """Return the names of the arrays in the order in which they are read, or None for the only array of a file."""
    dataset = workload.dataset
    if dataset.existing is None:
        return [part.name for part in arrays.in_reading_order(workload)] or [_ARRAY]
    return None if dataset.existing.array is None else [dataset.existing.array]


def _load(buffer: int | None, names: list[str] | None, path: str, tally: Tally) -> list[Array]:
    """Load arrays of a file one after the other, as numpy.load(path) does. names: names of the arrays; None for the
    only array of the file. buffer: size in bytes of the buffer through which the file is read. If it is None, open()
    chooses the size that the file system recommends (st_blksize). This is a page on most file systems and 4 MiB on
    Lustre. On Lustre, the buffer therefore reads more bytes than NumPy requests.
    """
    before = tally.bytes_read
    try:
        try:
            loaded, payload = _loaded(buffer, names, path, tally)
        except SystemError:
            # NumPy parses the header with ast.literal_eval(). Before Python 3.11.8 this function may fail for a correct
            # header if another thread parses at the same time (gh-106905). The bytes of the second read count as
            # overhead.
            loaded, payload = _loaded(buffer, names, path, tally)
    except _DAMAGE as fault:
        raise damaged(path, fault) from fault
    tally.move_to_overhead(tally.bytes_read - before - payload)
    return loaded


def _loaded(buffer: int | None, names: list[str] | None, path: str, tally: Tally) -> tuple[list[Array], int]:
    """Return two values: the arrays of a file, and the number of bytes that these arrays occupy in the file."""
    counted = CountedFile(path, tally)
    try:
        with buffered(counted, buffer) as file, np.load(file) as archive:
            if names is None:
                (only,) = archive.files
                names = [only]
            loaded: list[Array] = [archive[name] for name in names]
            entries = [archive.zip.getinfo(f"{name}.npy") for name in names]
    except zipfile.BadZipFile:
        if counted.fault is not None:
            raise counted.fault from None
        raise
    payload = sum(
        array.nbytes if entry.compress_type == zipfile.ZIP_STORED else entry.compress_size
        for array, entry in zip(loaded, entries, strict=True)
    )
    return loaded, payload


class _Inflate:
    """Callable that loads a deflated file. The file is read from start to end in requests of `transfer_size` bytes. The
    directory of the archive is not used.
    """

    def __init__(self, workload: Workload) -> None:
        self._dataset = workload.dataset
        self._transfer_size = workload.request_size or content.BLOCK

    def __call__(self, path: str, tally: Tally) -> list[Array]:
        local = _local_header(_MEMBER)
        header = DATA_OFFSET - local
        unpacked = bytearray()
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        packed = memoryview(bytearray(self._transfer_size))
        skip = local
        try:
            with CountedFile(path, tally) as file:
                while not inflate.eof:
                    count = file.readinto(packed)
                    if not count:
                        raise EOFError(f"it ends at byte {file.tell()}, before the end of the samples")
                    unpacked += inflate.decompress(packed[skip:count])
                    skip = max(0, skip - count)
            array = np.frombuffer(unpacked, self._dataset.sample.array_dtype, offset=header)
            if self._dataset.sample.stdev is None:
                array = array.reshape(self._dataset.array_shape)
        except _DAMAGE as fault:
            raise damaged(path, fault) from fault
        tally.move_to_overhead(local + len(inflate.unused_data))
        return [array]


def _npy_header(dataset: Dataset, shape: tuple[int, ...], size: int) -> bytes:
    """Return the header of an array in numpy.lib.format version 1.0, padded to `size` bytes."""
    descr = np.dtype(dataset.sample.array_dtype).str
    return npy.framed(repr({"descr": descr, "fortran_order": False, "shape": shape}), size)
