"""NumPy archives (npz): a file holds an array `x` of shape (samples, *sample shape), as numpy.savez writes it. Samples
of varying size follow each other in one array of bytes. Without compression the data start at byte 4096. With gzip the
data are deflated.

Mode `posix` reads uncompressed samples at their offsets, and a deflated file as a whole. Mode `framework` is
numpy.load, which always reads the whole array. The size of its buffer is `transfer_size` or, if that is not set, the
size that Python's open() chooses.
"""

import io
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING

import numpy as np

from dlio_hpc.config.dataset_keys import LEVEL, Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.formats.format import FOREIGN, Paths, SampleReader, damaged
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.whole_file import Array, CountedFile, WholeFileReader, buffered
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import SampleLayout
from dlio_hpc.core.write_back import written_early

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_NAME = "x"
_MEMBER = f"{_NAME}.npy"
# ZIP's local header (30 bytes), the member's name and the ZIP64 field. The .npy header is padded so that the data begin
# on a page boundary, for direct I/O and stripe boundaries.
_LOCAL_HEADER = 30 + len(_MEMBER) + 20
DATA_OFFSET = 4096
# _ENDS: bytes that may follow the directory of an archive: one record, or three records in a large archive.
# _MOST_BEHIND: limit of all bytes after the member.
_ENDS, _MOST_BEHIND = (22, 56 + 20 + 22), 1024
# Errors of numpy.load and zipfile for a corrupted file.
_DAMAGE = (
    RuntimeError, ValueError, KeyError, EOFError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error,
    struct.error, NotImplementedError,
)  # fmt: skip


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    """Write file `number` of the dataset to the open file `descriptor`. The file may already hold the same contents,
    which other jobs are reading. In that case no byte changes its value at any time, so those jobs are not disturbed.
    """
    places = SampleLayout(dataset)
    with os.fdopen(descriptor, "r+b", closefd=False) as file:
        member = zipfile.ZipInfo(_MEMBER)
        if dataset.compression == "gzip":
            member.compress_type = zipfile.ZIP_DEFLATED
        level = LEVEL if dataset.level is None else dataset.level
        with zipfile.ZipFile(file, "w", compresslevel=level) as archive:
            member._compresslevel = level  # type: ignore[attr-defined]
            with archive.open(member, "w", force_zip64=True) as target:
                for piece in written_early(descriptor, _member(dataset, places, number)):
                    target.write(piece)
        file.truncate()


def _member(dataset: Dataset, places: SampleLayout, number: int) -> Iterator[bytes | memoryview]:
    """Yield all bytes of the array file in the archive, in pieces. A piece is valid only until the next piece is
    requested.
    """
    yield _npy_header(dataset, places.array_shape(number))
    yield from content.pieces(places.position(number), places.file_size(number), compressibility(dataset))


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    """Return the fault of a file, or None if it has none. The content of the array is compared with the generated
    content. The ZIP structures are only checked for consistency, because their bytes may differ between versions of
    Python and zlib. quick: check only the ZIP structures and the size.
    """
    places = SampleLayout(dataset)
    header = DATA_OFFSET - _LOCAL_HEADER
    stored = dataset.compression == "none"
    try:
        with buffered(CountedFile(path, Tally())) as file, _opened(file) as archive:
            (member,) = archive.infolist()
            if member.filename != _MEMBER or member.file_size != header + places.file_size(number):
                expected = header + places.file_size(number)
                return f"holds {member.filename} of {member.file_size} bytes, expected {_MEMBER} of {expected} bytes"
            if frame_fault := _frame_fault(file, archive.start_dir, member, stored):
                return frame_fault
            if quick:
                return None
            checksum = file_comparison.Checksum(_member(dataset, places, number))
            with archive.open(member) as stream:
                stream._expected_crc = None  # type: ignore[attr-defined]  # the first difference says more
                at = file_comparison.first_difference(stream, checksum)
    except _DAMAGE as fault:
        return f"{FOREIGN}: {fault}"
    if at is None:
        return None if checksum.value == member.CRC else f"the checksum of {_MEMBER} is wrong"
    where = f"byte {at + _LOCAL_HEADER}" if stored else f"byte {at} of {_MEMBER}"
    return file_comparison.message(where, places.holder(number, at - header) if at >= header else None)


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


def _frame_fault(file: IO[bytes], directory: int, member: zipfile.ZipInfo, stored: bool) -> str | None:
    """Return the fault of the ZIP structures around the array file `member`, or None if they are correct. They are
    correct if three conditions hold. The member comes first in the archive. Its local header agrees with the directory
    of the archive. No other bytes lie between member and directory, or after the directory. directory: offset of the
    directory.
    """
    file.seek(0)
    local = file.read(_LOCAL_HEADER)
    file.seek(directory)
    end = file.read(_MOST_BEHIND + 1)
    names = sum(struct.unpack("<3H", end[28:34]))
    sizes = struct.pack("<HHQQ", 1, 16, member.file_size, member.compress_size)
    if member.compress_type != (zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED):
        return f"is {'compressed' if stored else 'not compressed'}"
    if directory != _LOCAL_HEADER + member.compress_size or len(end) - 46 - names not in _ENDS:
        return "its parts do not add up to its size"
    if local[4:18] != end[6:20] or local[-20:] != sizes or end[-2:] != b"\0\0":
        return "its header and its directory differ"
    return None


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "framework":
        existing = workload.dataset.existing
        name = _NAME if existing is None else existing.array
        return WholeFileReader(workload, paths, partial(_load, workload.reader.transfer_size, name))
    if workload.dataset.compression == "gzip":
        return WholeFileReader(workload, paths, _Inflate(workload))
    return FlatReader(workload, paths, comm, lambda *_: DATA_OFFSET)


def _load(buffer: int | None, name: str | None, path: str, tally: Tally) -> Array:
    """Load the array `name` of a file, or its only array if `name` is None, like numpy.load(path), through a buffer of
    `buffer` bytes. If `buffer` is None, open() chooses the size of the buffer, according to the file system's
    recommendation (st_blksize). This is a page on most file systems and 4 MiB on Lustre. On Lustre, the buffer
    therefore reads more bytes than NumPy requests.
    """
    before = tally.bytes_read
    try:
        try:
            array, member = _loaded(buffer, name, path, tally)
        except SystemError:
            # NumPy parses the header with ast.literal_eval(). Before Python 3.11.8 this function may fail for a correct
            # header if another thread parses at the same time (gh-106905). The bytes of the second read count as
            # overhead.
            array, member = _loaded(buffer, name, path, tally)
    except _DAMAGE as fault:
        raise damaged(path, fault) from fault
    payload = array.nbytes if member.compress_type == zipfile.ZIP_STORED else member.compress_size
    tally.move_to_overhead(tally.bytes_read - before - payload)
    return array


def _loaded(buffer: int | None, name: str | None, path: str, tally: Tally) -> tuple[Array, zipfile.ZipInfo]:
    """Return two values: the array of a file, and the entry of this array in the directory of the archive."""
    counted = CountedFile(path, tally)
    try:
        with buffered(counted, buffer) as file, np.load(file) as archive:
            (stored,) = archive.files if name is None else (name,)
            array: Array = archive[stored]
            (member,) = (info for info in archive.zip.infolist() if info.filename == f"{stored}.npy")
    except zipfile.BadZipFile:
        if counted.fault is not None:
            raise counted.fault from None
        raise
    return array, member


class _Inflate:
    """Callable that loads a deflated file. It reads the file from its start in requests of `transfer_size` bytes,
    without using the directory of the archive.
    """

    def __init__(self, workload: Workload) -> None:
        self._dataset = workload.dataset
        self._transfer_size = workload.request_size or content.BLOCK

    def __call__(self, path: str, tally: Tally) -> Array:
        header = DATA_OFFSET - _LOCAL_HEADER
        unpacked = bytearray()
        inflate = zlib.decompressobj(-zlib.MAX_WBITS)
        packed = memoryview(bytearray(self._transfer_size))
        skip = _LOCAL_HEADER
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
        tally.move_to_overhead(_LOCAL_HEADER + len(inflate.unused_data))
        return array


def _npy_header(dataset: Dataset, shape: tuple[int, ...]) -> bytes:
    """Return the header of the array in numpy.lib.format version 1.0. The header is padded, so that the array starts at
    byte 4096 of an uncompressed file.
    """
    descr = np.dtype(dataset.sample.array_dtype).str
    text = repr({"descr": descr, "fortran_order": False, "shape": shape})
    prefix = b"\x93NUMPY\x01\x00"
    length = DATA_OFFSET - _LOCAL_HEADER - len(prefix) - 2
    return prefix + length.to_bytes(2, "little") + text.encode().ljust(length - 1) + b"\n"
