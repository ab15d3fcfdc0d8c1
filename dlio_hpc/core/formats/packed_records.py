"""TFRecord files with `dataset.compression: gzip` or `zlib`: the whole file is one compressed stream of records, as
TensorFlow's TFRecordWriter and Apache Beam write it. No record can be found without decompressing all records before
it.

Mode `framework` decompresses a file from its beginning as far as needed, in requests of `transfer_size` bytes, like
TFRecordDataset with compression_type. Mode `posix` reads whole files and then decompresses them.
"""

import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from dlio_hpc.config.dataset_keys import LEVEL, TFRECORD_FRAME, Dataset
from dlio_hpc.config.reader_keys import by_streams, loads_files
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import file_comparison
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import FOREIGN, damaged
from dlio_hpc.core.files import OpenFile, open_file
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.inflate import Damaged, Inflate
from dlio_hpc.dataset.sample_layout import Place, Places, SampleLayout

# Function that checks a record. Arguments: path, place, offset of the sample, the sample, and the bytes around it.
Verify = Callable[[str, Place, int, Rows, Rows], None]
_HEAD = 12
# Number of files above which a reader closes files that it has not read to their end.
_MOST_OPEN = 64
# Bytes that a check of a file reads at a time.
_BLOCK = 1 << 20


class _Container(NamedTuple):
    """What surrounds the deflated data in a file. head: first bytes, as TensorFlow writes them. checksum: function that
    updates a checksum, and its first value. tail: function that returns the last bytes. Its arguments are the checksum
    and the size of the records.
    """

    head: bytes
    checksum: Callable[[bytes | memoryview, int], int]
    start: int
    tail: Callable[[int, int], bytes]


# RFC 1952 and RFC 1950. The zlib stream states the default level for every level, which no reader uses.
_CONTAINERS = {
    "gzip": _Container(
        bytes.fromhex("1f8b0800000000000003"), zlib.crc32, 0, lambda crc, size: struct.pack("<II", crc, size % 2**32)
    ),
    "zlib": _Container(b"\x78\x9c", zlib.adler32, 1, lambda checksum, _: struct.pack(">I", checksum)),
}


def packed(dataset: Dataset, pieces: Iterable[memoryview]) -> Iterator[bytes]:
    """Yield the bytes of a compressed file in pieces. pieces: its records, with their frames."""
    container = _CONTAINERS[dataset.compression]
    level = LEVEL if dataset.level is None else dataset.level
    deflate = zlib.compressobj(level, zlib.DEFLATED, -zlib.MAX_WBITS)
    checksum, size = container.start, 0
    yield container.head
    for piece in pieces:
        checksum = container.checksum(piece, checksum)
        size += len(piece)
        if part := deflate.compress(piece):
            yield part
    yield deflate.flush() + container.tail(checksum, size)


def fault(path: str, dataset: Dataset, number: int, pieces: Iterator[memoryview], quick: bool) -> str | None:
    """Return the fault of a file, or None if it has no fault. The records are compared with `pieces`. The compressed
    bytes are not compared, because they may differ between versions of zlib; bits that no decompressor reads are not
    checked. quick: check only the first and the last bytes.
    """
    container, places = _CONTAINERS[dataset.compression], SampleLayout(dataset)
    size = places.file_size(number) + places.count(number) * TFRECORD_FRAME
    with open(path, "rb") as file:
        if file.read(len(container.head)) != container.head:
            return f"{FOREIGN}: it does not begin with the header of a {dataset.compression} stream"
        if quick:
            return _tail_fault(file.read(), size) if dataset.compression == "gzip" else None
        file.seek(0)
        contents = _Contents(Inflate(dataset.compression, lambda: file.read(_BLOCK)))
        try:
            at = file_comparison.first_difference(contents, pieces)  # type: ignore[arg-type]
            is_longer = at is None and (contents.read(1) or contents.inflate.members > 1)
        except Damaged as damage:
            return f"{FOREIGN}: {damage}"
    if at is not None:
        holder = places.holder(number, min(at, size - 1), TFRECORD_FRAME)
        return file_comparison.message(f"byte {at} of its decompressed records", holder)
    return f"holds more than {size} bytes of records" if is_longer else None


def _tail_fault(rest: bytes, size: int) -> str | None:
    """Compare the size in the last bytes of a gzip file with the size of its records."""
    actual = int.from_bytes(rest[-4:], "little")
    return None if actual == size % 2**32 else f"holds {actual} bytes of records, expected {size % 2**32}"


class _Contents:
    """Decompressed bytes as a file."""

    def __init__(self, inflate: Inflate) -> None:
        self.inflate = inflate
        self._ready = b""

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer bytes at the end of the file."""
        parts = [self._ready]
        left = size - len(self._ready)
        while left > 0 and (piece := self.inflate.piece()):
            parts.append(piece)
            left -= len(piece)
        whole = b"".join(parts)
        self._ready = whole[size:]
        return whole[:size]


class InflatedFile:
    """File that is open and decompressed from its beginning. block: size of a request. at: number of decompressed bytes
    that were delivered.
    """

    def __init__(self, path: str, compression: str, block: int, tally: Tally) -> None:
        started = now()
        self._file: OpenFile = open_file(path)
        tally.open(started)
        self.at = 0
        self._path = path
        self._block = memoryview(bytearray(block))
        self._tally = tally
        self._inflate = Inflate(compression, self._fetch)
        self._ready = memoryview(b"")

    def _fetch(self) -> memoryview:
        count = self._file.ask([self._block], self._inflate.fetched, self._tally)
        return self._block[:count]

    def read(self, views: tuple[memoryview, ...], tally: Tally) -> None:
        """Fill `views` with the next decompressed bytes. Raise InvalidRun if the file is damaged, or ends before."""
        self._tally = tally
        for view in views:
            done = 0
            while done < len(view):
                part = self._next(len(view) - done)
                view[done : done + len(part)] = part
                done += len(part)
            self.at += done

    def skip(self, count: int, tally: Tally) -> None:
        """Decompress the next `count` bytes without delivering them."""
        self._tally = tally
        left = count
        while left > 0:
            left -= len(self._next(left))
        self.at += count

    def _next(self, most: int) -> memoryview:
        """Return at most `most` of the next decompressed bytes, at least one."""
        if not len(self._ready):
            self._ready = memoryview(self._piece())
            if not len(self._ready):
                raise damaged(self._path, f"its records end at byte {self.at} of the decompressed data")
        part = self._ready[:most]
        self._ready = self._ready[most:]
        return part

    def _piece(self) -> bytes:
        try:
            return self._inflate.piece()
        except Damaged as fault:
            raise damaged(self._path, fault) from fault

    def finish(self, tally: Tally) -> None:
        """Read the file to its end, which verifies its checksum, and close it. Raise InvalidRun if it holds more."""
        self._tally = tally
        if len(self._ready) or self._piece():
            raise damaged(self._path, f"it holds more than {self.at} bytes of records")
        self.close(tally)

    def close(self, tally: Tally) -> None:
        started = now()
        self._file.close()
        tally.close(started)


class PackedRecords:
    """Reader of compressed files, which takes the bytes of records from `source`. verify: function that checks a
    record, or None.
    """

    def __init__(self, workload: Workload, paths: Paths, verify: Verify | None) -> None:
        self._paths = paths
        self._verify = verify
        self._source: _Streams | _WholeFiles
        if loads_files(workload.dataset, workload.reader):
            self._source = _WholeFiles(workload, paths)
        else:
            self._source = _Streams(workload, paths)

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        frame = np.empty(TFRECORD_FRAME, np.uint8)
        for place, row in zip(places, buffer.rows, strict=False):
            begin = place.within * TFRECORD_FRAME + place.offset
            sample = row[: place.size]
            self._source.read(place.file, begin, (frame[:_HEAD].data, sample.data, frame[_HEAD:].data), tally)
            if self._verify is not None:
                self._verify(self._paths(place.file), place, begin + _HEAD, sample, frame)

    def close(self) -> None:
        self._source.close()


class _Files:
    """Files of a workload, which are decompressed in requests of its size."""

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._paths = paths
        self._compression = workload.dataset.compression
        self._block = int(workload.request_size or _BLOCK)
        self._places = SampleLayout(workload.dataset)

    def opened(self, number: int, tally: Tally) -> InflatedFile:
        return InflatedFile(self._paths(number), self._compression, self._block, tally)

    def size(self, number: int) -> int:
        """Return the size of all records of a file in bytes, with their frames."""
        return self._places.file_size(number) + self._places.count(number) * TFRECORD_FRAME

    def whole(self, number: int, tally: Tally) -> Rows:
        """Return the records of a file."""
        records = np.empty(self.size(number), np.uint8)
        file = self.opened(number, tally)
        try:
            file.read((records.data,), tally)
            file.finish(tally)
        except BaseException:
            file.close(tally)
            raise
        return records


class _WholeFiles(_Files):
    """Source that decompresses a whole file. Each thread keeps the records of the file that it read last."""

    def __init__(self, workload: Workload, paths: Paths) -> None:
        super().__init__(workload, paths)
        self._last = threading.local()

    def read(self, number: int, begin: int, views: tuple[memoryview, ...], tally: Tally) -> None:
        if getattr(self._last, "file", None) != number:
            self._last.file = self._last.records = None  # frees the old records before the next are loaded
            self._last.records = self.whole(number, tally)
            self._last.file = number
        _copy(self._last.records, begin, views)

    def close(self) -> None:
        self._last = threading.local()


class _Streams(_Files):
    """Source that decompresses files as far as needed. Threads that read at the same time must read different files. If
    samples are shuffled, a file is decompressed as a whole, and its records are kept until all of them were delivered.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        super().__init__(workload, paths)
        self._is_shuffled = workload.reader.shuffle.samples
        self._has_threads = by_streams(workload.dataset, workload.reader)
        self._open: dict[int, InflatedFile] = {}
        self._kept: dict[int, tuple[Rows, int]] = {}

    def read(self, number: int, begin: int, views: tuple[memoryview, ...], tally: Tally) -> None:
        """Read the bytes of file `number` from byte `begin` of its records on."""
        if self._is_shuffled:
            _copy(self._keep(number, tally), begin, views)
            return
        file = self._at(number, begin, tally)
        try:
            file.skip(begin - file.at, tally)
            file.read(views, tally)
            if file.at == self.size(number):
                file.finish(tally)
            else:
                self._open[number] = file
        except BaseException:
            file.close(tally)
            raise

    def _keep(self, number: int, tally: Tally) -> Rows:
        """Return all records of a file, and keep them if more of them will be read."""
        if number in self._kept:
            records, left = self._kept.pop(number)
        else:
            records, left = self.whole(number, tally), self._places.count(number)
        if left > 1:
            self._kept[number] = records, left - 1
        return records

    def _at(self, number: int, begin: int, tally: Tally) -> InflatedFile:
        """Return an open file that has not delivered byte `begin` of its records yet."""
        file = self._open.pop(number, None)
        if file is not None and file.at > begin:
            file.close(tally)
            file = None
        if file is None and not self._has_threads and len(self._open) >= _MOST_OPEN:
            self._open.pop(next(iter(self._open))).close(tally)
        return file or self.opened(number, tally)

    def close(self) -> None:
        for file in self._open.values():
            file.close(Tally())
        self._open.clear()
        self._kept.clear()


def _copy(records: Rows, begin: int, views: tuple[memoryview, ...]) -> None:
    """Fill `views` with the records of a file from byte `begin` on."""
    for view in views:
        view[:] = records[begin : begin + len(view)].data
        begin += len(view)
