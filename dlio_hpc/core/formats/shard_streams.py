"""Webdataset shards that are read from front to back by tarfile in its stream mode. The number of its requests and
their bytes are taken from the kernel's I/O counters of the thread.
"""

import io
import tarfile
import threading
from contextlib import closing

import numpy as np

from dlio_hpc.base.errors import DlioError
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
from dlio_hpc.dataset.sample_layout import Place, Places, SampleLayout

Spans = list[tuple[int, int]]
# Errors of tarfile for a corrupted file, and of reads.
_FAULTS = (tarfile.TarError, ValueError, EOFError, OverflowError, OSError)


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
        amounts, before = _Amounts(), procfs.thread_io()
        for place, (row,), spans in zip(places, buffer.views, self._members.of(places).by_sample(), strict=False):
            started = now()
            if self._is_whole:
                row[: place.size] = self._of_whole(place, amounts, tally).data
            else:
                self._next(place, spans, row, amounts, tally)
            tally.timed(started)
        after = procfs.thread_io()
        tally.bytes_read += amounts.fetched
        tally.requests += len(places) if before is None or after is None else _requests(amounts, after.since(before))
        self._count_as_overhead(amounts.overhead, tally)

    def _of_whole(self, place: Place, amounts: "_Amounts", tally: Tally) -> Rows:
        """Return a sample of a shard that is read as a whole."""
        kept = self._kept.get(place.file, {})
        if place.within not in kept:
            places = self._places.in_file(place.file)
            kept = {one.within: np.empty(one.size, np.uint8) for one in places}
            with closing(_Shard(self._paths(place.file), 0, 0, self._buffer, tally)) as shard:
                for sample, spans in zip(kept.values(), self._members.of(places).by_sample(), strict=True):
                    shard.take(spans, sample.data, amounts)
                shard.finish(amounts)
            self._kept[place.file] = kept
        sample = kept.pop(place.within)
        if not kept:
            del self._kept[place.file]
        return sample

    def _next(self, place: Place, spans: Spans, row: memoryview, amounts: "_Amounts", tally: Tally) -> None:
        """Read a sample into `row`. If it is not the next one of its shard, open the shard again at the sample."""
        shard = self._open.pop(place.file, None)
        if shard is not None and shard.next != place.within:
            shard.close()
            shard = None
        if shard is None:
            begin = spans[0][0] - TAR_BLOCK if place.within else 0
            shard = _Shard(self._paths(place.file), begin, place.within, self._buffer, tally)
        shard.file.tally = tally
        try:
            shard.take(spans, row, amounts)
            if shard.next == self._places.count(place.file):
                shard.finish(amounts)
                return
        except BaseException:
            shard.close()
            raise
        self._open[place.file] = shard

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


class _Amounts:
    """Bytes that were read from shards. fetched: all of them. overhead: those before, between and after samples, up to
    the last sample that was taken.
    """

    def __init__(self) -> None:
        self.fetched = self.overhead = 0


def _requests(amounts: _Amounts, counted: procfs.IO) -> int:
    """Return how many requests read the shards. counted: reads of the thread, as the kernel counts them. They include
    those of the C library, which reads a byte of /proc/sys/vm/overcommit_memory when it first gives back memory of a
    thread (shrink_heap() in glibc's arena.c).
    """
    return counted.calls - (counted.requested - amounts.fetched)


class _Shard:
    """A shard that is read by tarfile from byte `begin` on, where the header of a member is. next: index of the next
    sample. file: the open file, whose tally changes from batch to batch.
    """

    def __init__(self, path: str, begin: int, within: int, buffer: int | None, tally: Tally) -> None:
        self.next = within
        self._path = path
        self._begin = self._end = self._fetched = begin
        try:
            self.file = _UncountedFile(path, tally)
        except OSError as fault:
            raise _explained(path, fault) from fault
        self._through = buffered(self.file, buffer)
        try:
            self.file.seek(begin)
            self._tar = tarfile.open(fileobj=self._through, mode="r|")  # noqa: SIM115 - it ends with the file
        except _FAULTS as fault:
            self.close()
            raise _explained(path, fault) from fault

    def take(self, spans: Spans, row: memoryview, amounts: _Amounts) -> None:
        """Read the members of the next sample into `row`, and add the bytes that were read to `amounts`."""
        begin, first = self._end, 0
        try:
            for offset, size in spans:
                row[first : first + size] = self._member(offset, size)
                first += size
        except _FAULTS as fault:
            raise _explained(self._path, fault) from fault
        self._end = offset + size + -size % TAR_BLOCK
        self.next += 1
        amounts.overhead += self._end - begin - first
        amounts.fetched += self._since_last()

    def finish(self, amounts: _Amounts) -> None:
        """Read up to the end of the archive, and close the shard. Add the bytes that were read to `amounts`."""
        try:
            while self._tar.next() is not None:
                pass
        except _FAULTS as fault:
            raise _explained(self._path, fault) from fault
        amounts.fetched += self._since_last()
        amounts.overhead += self._fetched - self._end
        self.close()

    def _since_last(self) -> int:
        """Return the number of bytes that were read from the file since the last call."""
        before, self._fetched = self._fetched, self.file.tell()
        return self._fetched - before

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

    def close(self) -> None:
        self._through.close()


def _explained(path: str, fault: Exception) -> DlioError:
    """Return the error for a shard that cannot be read, for an error of tarfile or of the system."""
    return unopened(path, fault) if isinstance(fault, OSError) else damaged(path, fault)
