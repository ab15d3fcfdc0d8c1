"""Webdataset shards that are read from front to back by tarfile in its stream mode. The number of its requests and
their bytes are taken from the kernel's I/O counters of the thread.
"""

import io
import tarfile
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import numpy as np

from dlio_hpc.config.dataset_keys import TAR_BLOCK
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import darshan_fd_gate, procfs
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged, unopened
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.whole_file import CountedFile, buffered
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.member_layout import MemberLayout
from dlio_hpc.dataset.sample_layout import Places, SampleLayout

Spans = list[tuple[int, int]]
# Errors of tarfile for a corrupted file.
_DAMAGE = (tarfile.TarError, ValueError, EOFError, OverflowError, AttributeError)


class ShardStreams:
    """Reader that takes samples from shards, each of which is open until its last sample has been read. Threads that
    read at the same time must read different shards. If samples are shuffled, a shard is read as a whole before any of
    its samples is delivered. Otherwise it is read from the first requested sample on, as far as needed.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        dataset = workload.dataset
        self._places = SampleLayout(dataset)
        self._members = MemberLayout(dataset)
        self._paths = paths
        self._buffer = workload.reader.transfer_size
        self._is_whole = workload.reader.shuffle.samples
        self._open: dict[int, _Shard] = {}
        self._kept: dict[int, dict[int, Rows]] = {}
        self._lock = threading.Lock()
        self._overhead = 0
        darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps, which would be counted for a reader thread

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        overhead, before = 0, procfs.thread_io()
        for place, (row,), spans in zip(places, buffer.views, self._members.of(places).by_sample(), strict=False):
            started = now()
            if self._is_whole:
                sample, extra = self._of_whole(place.file, place.within, tally)
                row[: len(sample)] = sample.data
            else:
                extra = self._next(place.file, place.within, spans, row, tally)
            overhead += extra
            tally.timed(started)
        after = procfs.thread_io()
        if before is None or after is None:
            tally.requests += len(places)
            tally.bytes_read += overhead + int(places.size.sum())
        else:
            difference = after.since(before)
            tally.requests += difference.calls
            tally.bytes_read += difference.requested
        self._count_as_overhead(overhead, tally)

    def _of_whole(self, number: int, within: int, tally: Tally) -> tuple[Rows, int]:
        """Return a sample of a shard that is read as a whole, and the number of bytes that were not of samples."""
        kept, overhead = self._kept.get(number, {}), 0
        if within not in kept:
            places = self._places.in_file(number)
            kept = {place.within: np.empty(place.size, np.uint8) for place in places}
            with closing(_Shard(self._paths(number), 0, 0, self._buffer, tally)) as shard:
                for sample, spans in zip(kept.values(), self._members.of(places).by_sample(), strict=True):
                    overhead += shard.take(spans, sample.data)
                overhead += shard.finish()
            self._kept[number] = kept
        sample = kept.pop(within)
        if not kept:
            del self._kept[number]
        return sample, overhead

    def _next(self, number: int, within: int, spans: Spans, row: memoryview, tally: Tally) -> int:
        """Read a sample into `row`. Return the number of bytes that were not of samples."""
        shard = self._open.pop(number, None)
        if shard is not None and shard.next != within:
            shard.close()
            shard = None
        if shard is None:
            begin = spans[0][0] - TAR_BLOCK if within else 0
            shard = _Shard(self._paths(number), begin, within, self._buffer, tally)
        shard.file.tally = tally
        try:
            overhead = shard.take(spans, row)
            if shard.next == self._places.count(number):
                return overhead + shard.finish()
        except BaseException:
            shard.close()
            raise
        self._open[number] = shard
        return overhead

    def _count_as_overhead(self, overhead: int, tally: Tally) -> None:
        """Move bytes that are not of samples to overhead in `tally`. An earlier batch may already have read them; bytes
        that cannot be moved now are moved in the tally of a later batch.
        """
        with self._lock:
            self._overhead += overhead
            now_apart = min(self._overhead, tally.bytes_read)
            self._overhead -= now_apart
        tally.move_to_overhead(now_apart)

    def close(self) -> None:
        """Discard all samples and close all shards."""
        for shard in self._open.values():
            shard.close()
        self._open.clear()
        self._kept.clear()


class _UncountedFile(CountedFile):
    """File whose openings and closings are counted, but not its requests. tarfile makes many small requests, and to
    count one in Python takes as long as the request. The kernel counts them.
    """

    readinto = io.FileIO.readinto  # type: ignore[assignment]  # of buffers only


class _Shard:
    """A shard that is read by tarfile from byte `begin` on, where the header of a member is. next: index of the next
    sample. file: the open file, whose tally changes from batch to batch.
    """

    def __init__(self, path: str, begin: int, within: int, buffer: int | None, tally: Tally) -> None:
        self.next = within
        self._path = path
        self._begin = self._end = begin
        with _explained(path):
            self.file = _UncountedFile(path, tally)
            self._through = buffered(self.file, buffer)
            try:
                self.file.seek(begin)
                self._tar = tarfile.open(fileobj=self._through, mode="r|")  # noqa: SIM115 - it ends with the file
            except BaseException:
                self.close()
                raise

    def take(self, spans: Spans, row: memoryview) -> int:
        """Read the members of the next sample into `row`. Return the number of bytes before, between and after them, up
        to the next header.
        """
        begin, first = self._end, 0
        with _explained(self._path):
            for offset, size in spans:
                row[first : first + size] = self._member(offset, size)
                first += size
                self._end = offset + size + -size % TAR_BLOCK
        self.next += 1
        return self._end - begin - first

    def _member(self, offset: int, size: int) -> bytes:
        """Return the data of the member at `offset`. Other members before it are passed over."""
        at = offset - self._begin
        while (member := self._tar.next()) is not None and member.offset_data < at:
            pass
        self._tar.members = []  # type: ignore[attr-defined]  # as webdataset does, because tarfile keeps all members
        stream = None if member is None else self._tar.extractfile(member)
        if member is None or stream is None or member.offset_data != at:
            raise damaged(self._path, f"there is no header of a file at byte {offset - TAR_BLOCK}")
        if member.size != size:
            raise damaged(
                self._path,
                f"the member at byte {offset - TAR_BLOCK} has {member.size} bytes, expected {size}",
            )
        return stream.read()

    def finish(self) -> int:
        """Read up to the end of the archive, and close the shard. Return the number of bytes after the last sample."""
        with _explained(self._path):
            while self._tar.next() is not None:
                pass
            rest = self.file.tell() - self._end
        self.close()
        return rest

    def close(self) -> None:
        self._through.close()


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Raise the error for a shard that cannot be read in place of that of tarfile or of the system."""
    try:
        yield
    except _DAMAGE as fault:
        raise damaged(path, fault) from fault
    except OSError as fault:
        raise unopened(path, fault) from fault
