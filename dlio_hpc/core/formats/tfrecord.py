"""TFRecord: one record per sample. A record has the sample's length, a checksum of the length, the sample, and a
checksum of the sample, as TensorFlow's TFRecordWriter writes it (tensorflow/core/lib/io/record_writer.h).

Mode `posix` reads samples at their offsets, or whole records if `reader.verify` is set. Mode `framework` reads like
TFRecordDataset: from the start of the file, in requests of exactly `transfer_size` bytes, and verifies checksums. In
two cases it reads records at their offsets instead, in the same way as programs with an index: if samples are shuffled
across all files, or if PyTorch's workers read. PyTorch's workers request whole batches.

Compressed files are written and read by packed_records.
"""

import struct
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.config.dataset_keys import TFRECORD_FRAME, Dataset
from dlio_hpc.config.reader_keys import by_streams
from dlio_hpc.config.workload import TENSORFLOW_BUFFER, Workload
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.files import ReadRequests, write_file
from dlio_hpc.core.formats import packed_records
from dlio_hpc.core.formats.format import Paths, SampleReader
from dlio_hpc.core.formats.packed_records import PackedRecords
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.stream import Streams
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.sample_layout import Place, Places, SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

HEAD, FOOT = 12, 4
FRAME = TFRECORD_FRAME
# Number of bytes that are collected before they are written; they fit into the cache of a core.
_BUFFER = 1 << 20


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    pieces = _pieces(dataset, number)
    contents = packed_records.packed(dataset, pieces) if dataset.is_packed else pieces
    write_file(descriptor, written_early(descriptor, contents))


def _pieces(dataset: Dataset, number: int) -> Iterator[memoryview]:
    """Yield all bytes of file `number` in pieces. A piece is valid only until the next piece is requested."""
    # The heads have 12 bytes: samples whose size is a multiple of 8 are aligned, and computed faster.
    buffer = np.empty(4 + _BUFFER + dataset.sample.largest + FRAME, np.uint8)[4:]
    used, dataset_compressibility = 0, compressibility(dataset)
    for place in SampleLayout(dataset).in_file(number):
        record = buffer[used : used + place.size + FRAME]
        payload = record[HEAD:-FOOT]
        content.fill(payload, place.position, dataset_compressibility)
        record[:HEAD] = memoryview(head(place.size))
        record[-FOOT:] = memoryview(struct.pack("<I", masked_crc(payload)))
        used += len(record)
        if used >= _BUFFER:
            yield buffer[:used].data
            used = 0
    yield buffer[:used].data


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    if dataset.is_packed:
        return packed_records.fault(path, dataset, number, _pieces(dataset, number), quick)
    places = SampleLayout(dataset)
    size = places.file_size(number) + dataset.samples_per_file * FRAME
    return file_comparison.of_file(
        path, size, None if quick else _pieces(dataset, number), lambda at: places.holder(number, at, FRAME)
    )


def head(size: int) -> bytes:
    """Return the head of a record whose sample has `size` bytes: the length and its checksum."""
    length = struct.pack("<Q", size)
    return length + struct.pack("<I", masked_crc(length))


def masked_crc(data: bytes | Rows) -> int:
    """Return the masked checksum that TFRecord stores: CRC-32C of the data, rotated by 15 bits, plus a constant."""
    import google_crc32c

    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.dataset.is_packed:
        return PackedRecords(workload, paths, verify if workload.reader.verifies else None)
    if by_streams(workload.dataset, workload.reader):
        return Stream(workload, paths)
    return PosixTFRecord(workload, paths, comm)


class PosixTFRecord(FlatReader):
    """Reader that reads records at their offsets. It reads whole records if checksums are verified or requests span
    several samples; otherwise it reads only the sample.
    """

    def __init__(self, workload: Workload, paths: Paths, comm: "Intracomm | None") -> None:
        super().__init__(workload, paths, comm, lambda *_: HEAD, FRAME)
        self._verifies = workload.reader.verifies

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        if not len(places) or not (self._verifies or self.merges):
            super().read(places, buffer, tally)
            return
        frames = np.empty((len(places), FRAME), np.uint8)
        begins = self.begins(places, tally)
        sizes = places.size.tolist()
        views = [
            [frame[:HEAD].data, row[:size], frame[HEAD:].data]
            for frame, (row,), size in zip(frames, buffer.views, sizes, strict=False)
        ]
        records = [size + FRAME for size in sizes]
        self.bring(ReadRequests(places.file.tolist(), (begins - HEAD).tolist(), records, views), tally)
        tally.move_to_overhead(frames.size)
        if self._verifies:
            for place, begin, row, frame in zip(places, begins.tolist(), buffer.rows, frames, strict=False):
                verify(self._paths(place.file), place, begin, row[: place.size], frame)


class Stream:
    """Reader that takes records from file streams, which are read in blocks of `transfer_size` bytes. Threads that read
    at the same time must read different files.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._places = SampleLayout(workload.dataset)
        self._paths = paths
        self._verifies = workload.reader.verifies
        self._lock = threading.Lock()
        self._frames = 0
        block_size = workload.request_size or TENSORFLOW_BUFFER
        self._streams = Streams(
            paths,
            lambda number: self._places.file_size(number) + self._places.count(number) * FRAME,
            block_size,
            whole=workload.reader.shuffle.samples,
        )

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        frame = np.empty(FRAME, np.uint8)
        for place, row in zip(places, buffer.rows, strict=False):
            begin = place.within * FRAME + place.offset
            record = row[: place.size]
            self._streams.read(place.file, begin, [frame[:HEAD].data, record.data, frame[HEAD:].data], tally)
            if self._verifies:
                verify(self._paths(place.file), place, begin + HEAD, record, frame)
        self._count_as_overhead(len(places) * FRAME, tally)

    def _count_as_overhead(self, frames: int, tally: Tally) -> None:
        """Move the bytes of record heads and checksums from samples to overhead in `tally`. frames: number of bytes of
        heads and checksums in a batch. An earlier batch may already have read blocks that this batch needs; `tally` may
        then have counted fewer than `frames` bytes. Bytes that cannot be moved now are moved in the tally of a later
        batch.
        """
        with self._lock:
            self._frames += frames
            now_apart = min(self._frames, tally.bytes_read)
            self._frames -= now_apart
        tally.move_to_overhead(now_apart)

    def close(self) -> None:
        self._streams.close()


def verify(path: str, place: Place, begin: int, payload: Rows, frame: Rows) -> None:
    """Raise InvalidRun if the length or a checksum of a record is wrong. begin: offset of the sample in the file.
    payload: bytes of the sample. frame: bytes of the record before the sample and after it.
    """
    actual, expected = frame.tobytes(), head(place.size) + struct.pack("<I", masked_crc(payload))
    if actual[:HEAD] != expected[:HEAD]:
        raise damaged(
            path, f"the record of sample {place.sample} at byte {begin - HEAD} has the head {actual[:HEAD].hex()}, "
            f"but should have {expected[:HEAD].hex()}"
        )  # fmt: skip
    if actual != expected:
        raise damaged(
            path, f"the stored checksum of sample {place.sample} at byte {begin} is {actual[HEAD:].hex()}, but its "
            f"{place.size} bytes have the checksum {expected[HEAD:].hex()}"
        )  # fmt: skip
