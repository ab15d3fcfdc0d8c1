"""Bytes that the processes of a rank read. The kernel counts these bytes, and a recording has the counts at some
times.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from dlio_hpc.programs.recordings.recorded_program import Pass, RankRecording, parts
from dlio_hpc.programs.recordings.recording_files import ProcessRecording


class ReadCounts(NamedTuple):
    """Counts of a process. begun: time of its start. work_begins: times at which a worker of a loader was ready to read
    the samples of a pass; a persistent worker serves several passes. None for other processes. times: times of the
    counts; empty if the kernel did not count. bytes: total bytes read at each of these times.
    """

    begun: float
    work_begins: list[float] | None
    times: list[float]
    bytes: list[int]

    def between(self, begin: float, end: float) -> int:
        """Return the bytes that were read between two times. If the process is a worker, return the bytes that it read
        for the passes that it began between these times. The modules that it loaded before are not included.
        """
        if self.work_begins is None:
            return self._nearest(end) - (0 if self.begun >= begin else self._nearest(begin))
        marks = [self._after(time) for time in self.work_begins] + [self.bytes[-1]]
        spans = zip(self.work_begins, marks, marks[1:], strict=False)
        return sum(last - first for time, first, last in spans if begin <= time <= end)

    def most_between(self, begin: float, end: float) -> int:
        """Return an upper bound of the bytes that a process read between two times."""
        before = bisect_right(self.times, begin) - 1
        after = min(bisect_left(self.times, end), len(self.times) - 1)
        return self.bytes[after] - (self.bytes[before] if before >= 0 else 0)

    def _after(self, time: float) -> int:
        """Return the first count at or after a time, or the last count."""
        return self.bytes[min(bisect_left(self.times, time), len(self.bytes) - 1)]

    def _nearest(self, time: float) -> int:
        """Return the count that is nearest to a time. If two are equally near, return the earlier one."""
        after = bisect_left(self.times, time)
        near = [place for place in (after - 1, after) if 0 <= place < len(self.times)]
        return self.bytes[min(near, key=lambda place: abs(self.times[place] - time))]


def of(rank: RankRecording) -> list[ReadCounts]:
    """Return the counts of a rank, or an empty list if the kernel did not count. If the rank has workers, return only
    the counts of the workers, because the kernel adds them to the counts of the rank's own process when the workers
    end.
    """
    counts = [of_process(process) for process in rank.processes]
    workers = [one for one in counts if one.work_begins is not None]
    return [one for one in workers or counts if one.times]


def of_process(process: ProcessRecording) -> ReadCounts:
    """Return the counts of a process. They are empty if the kernel did not count."""
    moved = [(event.time, int(event.values[0])) for event in process.events if event.kind == "moved"]
    times, sizes = [time for time, _ in moved], [size for _, size in moved]
    return ReadCounts(process.process.begun, _work_begins(process), times, sizes)


def _work_begins(process: ProcessRecording) -> list[float] | None:
    """Return the times at which a worker created a fetcher, one for each pass. Before that, PyTorch loads about 300 KB
    of its modules. Earlier versions of the recorder did not write this event. For their recordings, return the time at
    which the worker began.
    """
    begins: dict[str, list[float]] = {"worker": [], "fetcher": []}
    for event in process.events:
        if event.kind in begins:
            begins[event.kind].append(event.time)
    return (begins["fetcher"] or begins["worker"][:1]) if begins["worker"] else None


def of_passes(
    ranks: Sequence[RankRecording], passes: Sequence[Sequence[Pass]], first: int = 0,
    others: Sequence[Sequence[Pass]] | None = None,
) -> tuple[int, int] | None:  # fmt: skip
    """Return the bytes that the ranks read in their passes from pass `first` on, and the number of steps in these
    passes. others: passes of each rank that are not included, such as evaluations in the middle of a pass. Return None
    if there is no such pass, or if the kernel did not count.
    """
    size = steps = 0
    for rank, mine, apart in zip(ranks, passes, others or [()] * len(ranks), strict=True):
        counts = of(rank)
        for one in mine[first:] if counts else ():
            if one.batches:
                size += sum(count.between(*part) for part in parts(one, apart) for count in counts)
                steps += len(one.batches)
    return (size, steps) if steps else None
