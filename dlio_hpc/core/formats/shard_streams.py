"""Webdataset shards that are read from front to back by tarfile in its stream mode. The number of its requests and
their bytes are taken from the kernel's I/O counters of the thread.
"""

import io
import tarfile
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
from dlio_hpc.dataset.member_layout import MemberLayout, SampleMembers
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
        darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps, which would be counted for a reader thread

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        before, begun = procfs.thread_io(), tally.bytes_read + tally.overhead_bytes
        for place, (row,), spans in zip(places, buffer.views, self._members.of(places).by_sample(), strict=False):
            started = now()
            if self._is_whole:
                row[: place.size] = self._of_whole(place, tally).data
            else:
                self._next(place, spans, row, tally)
            tally.timed(started)
        for number in dict.fromkeys(places.file.tolist()):
            if number in self._open:
                self._open[number].count(tally)
        after = procfs.thread_io()
        fetched = tally.bytes_read + tally.overhead_bytes - begun
        tally.requests += len(places) if before is None or after is None else _requests(fetched, after.since(before))

    def _of_whole(self, place: Place, tally: Tally) -> Rows:
        """Return a sample of a shard that is read as a whole."""
        kept = self._kept.get(place.file, {})
        if place.within not in kept:
            places = self._places.in_file(place.file)
            kept = {one.within: np.empty(one.size, np.uint8) for one in places}
            with closing(self._opened(place.file, 0, tally)) as shard:
                for sample, spans in zip(kept.values(), self._members.of(places).by_sample(), strict=True):
                    shard.take(spans, sample.data)
                shard.finish(tally)
            self._kept[place.file] = kept
        sample = kept.pop(place.within)
        if not kept:
            del self._kept[place.file]
        return sample

    def _next(self, place: Place, spans: Spans, row: memoryview, tally: Tally) -> None:
        """Read a sample into `row`. If it is not the next one of its shard, open the shard again at the sample."""
        shard = self._open.pop(place.file, None)
        if shard is not None and shard.next != place.within:
            shard.count(tally)
            shard.close()
            shard = None
        if shard is None:
            shard = self._opened(place.file, place.within, tally)
        try:
            shard.take(spans, row)
            if shard.next == self._places.count(place.file):
                shard.finish(tally)
                return
        except BaseException:
            shard.close()
            raise
        self._open[place.file] = shard

    def _opened(self, number: int, within: int, tally: Tally) -> "_Shard":
        members = self._members.of(self._places.in_file(number))
        # Headers of pax and GNU tar may precede that of a member, so a shard is read from the end of the last member.
        last = int(members.counts[:within].sum()) - 1
        begin = -(-int(members.offsets[last] + members.sizes[last]) // TAR_BLOCK) * TAR_BLOCK if within else 0
        return _Shard(self._paths(number), begin, within, self._buffer, members, tally)

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


def _requests(fetched: int, counted: procfs.IO) -> int:
    """Return how many requests read the shards. fetched: bytes that were read from shards. counted: reads of the
    thread, as the kernel counts them. They include those of the C library, which reads a byte of
    /proc/sys/vm/overcommit_memory when it first gives back memory of a thread (shrink_heap() in glibc's arena.c).
    """
    return counted.calls - (counted.requested - fetched)


class _Shard:
    """A shard that is read by tarfile from byte `begin` on, where the header of a member is. members: all members of
    the shard. next: index of the next sample.
    """

    def __init__(
        self, path: str, begin: int, within: int, buffer: int | None, members: SampleMembers, tally: Tally
    ) -> None:
        self.next = within
        self._path = path
        self._members = members
        self._sums = np.cumsum(members.sizes)
        self._begin = self._counted = begin
        try:
            self._file = _UncountedFile(path, tally)
        except OSError as fault:
            raise _explained(path, fault) from fault
        self._through = buffered(self._file, buffer)
        try:
            self._file.seek(begin)
            self._tar = tarfile.open(fileobj=self._through, mode="r|*")  # noqa: SIM115 - it ends with the file
        except _FAULTS as fault:
            self.close()
            raise _explained(path, fault) from fault

    def take(self, spans: Spans, row: memoryview) -> None:
        """Read the members of the next sample into `row`."""
        first = 0
        try:
            for offset, size in spans:
                row[first : first + size] = self._member(offset, size)
                first += size
        except _FAULTS as fault:
            raise _explained(self._path, fault) from fault
        self.next += 1

    def finish(self, tally: Tally) -> None:
        """Read up to the end of the archive, and close the shard."""
        try:
            while self._tar.next() is not None:
                pass
        except _FAULTS as fault:
            raise _explained(self._path, fault) from fault
        self.count(tally)
        self._file.tally = tally
        self.close()

    def count(self, tally: Tally) -> None:
        """Count the bytes that were read since the last call: those of samples, and the others as overhead."""
        before, self._counted = self._counted, self._file.tell()
        fetched = self._counted - before
        tally.bytes_read += fetched
        tally.move_to_overhead(fetched - self._samples_up_to(self._counted) + self._samples_up_to(before))

    def _samples_up_to(self, offset: int) -> int:
        """Return the number of bytes of samples before byte `offset` of the shard."""
        begun = int(np.searchsorted(self._members.offsets, offset))
        if not begun:
            return 0
        end = int(self._members.offsets[begun - 1] + self._members.sizes[begun - 1])
        return int(self._sums[begun - 1]) - max(0, end - offset)

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
        try:
            self._through.close()
        except OSError as fault:
            raise unopened(self._path, fault) from fault


def _explained(path: str, fault: Exception) -> DlioError:
    """Return the error for a shard that cannot be read, for an error of tarfile or of the system."""
    return unopened(path, fault) if isinstance(fault, OSError) else damaged(path, fault)
