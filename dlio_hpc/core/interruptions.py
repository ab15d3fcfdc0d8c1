"""Interruptions of a run: periods in which ranks were stopped, or in which the emulated computation took far longer
than requested. The recorded times of steps include the interruptions.
"""

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType, TracebackType
from typing import NamedTuple

import numpy as np

from dlio_hpc.core import clock, merge
from dlio_hpc.core.distributions import ASKED, STARTED, SYNCED
from dlio_hpc.core.merge import Merged
from dlio_hpc.results.run_result import Interruption

# A step counts as interrupted if it takes this many seconds longer than expected, and its computation if it also takes
# this multiple of what was asked.
_LONGER_S, _MULTIPLE = 0.5, 5.0
# Seconds between two beats of the thread that notices stops, and the shares of a late beat in which a process that was
# stopped may have used a processor, or may have waited for one: a bit before and after the stop.
_BEAT_S, _USED, _WAITED = 0.05, 0.2, 0.5
# A beat that is later than this is a stop, if the kernel says how long the thread waited for a processor. Otherwise a
# stop is as long as a step that takes longer.
_LATE_S = 0.1
# Number of interruptions that are listed, the longest first.
_MOST = 20


class Stops(NamedTuple):
    """Signs of interruptions on a rank. continued: timestamps at which the rank received SIGCONT. suspended_s: seconds
    for which the node of the rank was suspended. gaps: end and length, in seconds, of each period in which no thread of
    the rank ran.
    """

    continued: list[float]
    suspended_s: float
    gaps: Sequence[tuple[float, float]] = ()


class StopWatch:
    """Context manager that records the signs of interruptions. SIGCONT ends a stop by SIGSTOP or SIGTSTP, which batch
    systems send to suspended jobs. CLOCK_BOOTTIME counts the time in which a node is suspended; CLOCK_MONOTONIC does
    not. Processes in a frozen control group get no signal. To detect a freeze, a thread sleeps for 50 ms repeatedly,
    and looks for sleeps that took far longer while the process neither used a processor nor waited for one.
    has_heartbeat: whether there is such a thread. A library that holds Python's lock while it waits for storage has the
    same effect as a freeze. The thread is therefore useful only if no library does this.
    """

    def __init__(self, has_heartbeat: bool = False) -> None:
        self._continued: list[float] = []
        self._gaps: list[tuple[float, float]] = []
        self._ended = threading.Event()
        self._heartbeat = threading.Thread(target=self._beat, daemon=True) if has_heartbeat else None
        self._before = 0.0
        self._handler: object = None

    def __enter__(self) -> "StopWatch":
        self._before = _suspended()
        if threading.current_thread() is threading.main_thread():
            self._handler = signal.signal(signal.SIGCONT, self._note)
            signal.siginterrupt(signal.SIGCONT, False)
        if self._heartbeat is not None:
            self._heartbeat.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCONT, self._handler)  # type: ignore[arg-type]

    def _beat(self) -> None:
        before, used_before, waited_before = clock.now(), time.process_time(), _waited()
        while not self._ended.wait(_BEAT_S):
            now, used, waited = clock.now(), time.process_time(), _waited()
            late = now - before - _BEAT_S
            if waited is None or waited_before is None:
                is_stop = late > _LONGER_S
            else:
                is_stop = late > _LATE_S and waited - waited_before < _WAITED * late
            if is_stop and used - used_before < _USED * late:
                self._gaps.append((now, late))
            before, used_before, waited_before = now, used, waited

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self._continued.append(clock.now())

    def stops(self) -> Stops:
        """Return the signs of interruptions that have been recorded so far."""
        return Stops(list(self._continued), _suspended() - self._before, list(self._gaps))


def _waited() -> float | None:
    """Return the seconds for which this thread was ready to run and had no processor: the second number of its file
    schedstat (Documentation/scheduler/sched-stats.rst of Linux). None if the kernel does not count them.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return None


def _suspended() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def of_run(merged: Merged, per_epoch: int, stops: list[Stops]) -> list[Interruption]:
    """Return the interruptions of a run, the longest first. A long computation is not reported if a stop in the same
    step explains it. stops: signs of interruptions on each rank. per_epoch: number of steps in an epoch. If there are
    too many to list, the last one has the time of all other stops.
    """
    if not merged.steps.size:
        return []
    listed = [*_overrun(merged, per_epoch), *_continued(merged, per_epoch, stops), *_gaps(merged, per_epoch, stops)]
    by_step: dict[tuple[int, int], Interruption] = {}
    for interruption in sorted(listed, key=lambda interruption: (interruption.kind == "stopped", interruption.seconds)):
        by_step[interruption.epoch, interruption.step] = interruption
    suspended = max(stop.suspended_s for stop in stops)
    whole = [Interruption("suspended", 0, 0, suspended, len(stops))] if suspended > _LONGER_S else []
    made = sorted([*whole, *by_step.values()], key=lambda interruption: -interruption.seconds)
    rest = [one for one in made[_MOST - 1 :] if one.kind == "stopped"]
    if len(made) <= _MOST or not rest:
        return made[:_MOST]
    return [
        *made[: _MOST - 1],
        Interruption("stopped", 0, 0, sum(one.seconds for one in rest), max(one.ranks for one in rest)),
    ]


def _overrun(merged: Merged, per_epoch: int) -> Iterator[Interruption]:
    """Yield an interruption for each step in which the computation took far longer than requested. If the computation
    took too long on all ranks in the same step, the ranks were stopped, because a sleeping process does not take longer
    by itself.
    """
    computed, asked = merge.phase(merged.steps, merge.COMPUTE), merged.steps[..., ASKED]
    over = computed - asked
    is_over = (over > _LONGER_S) & (computed > _MULTIPLE * asked)
    ranks = is_over.sum(axis=0)
    for step in np.flatnonzero(ranks).tolist():
        is_of_all = ranks[step] == len(computed) > 1
        seconds = float(over[is_over[:, step], step].min() if is_of_all else over[:, step].max())
        epoch, number = divmod(step, per_epoch)
        longest = float(asked[is_over[:, step], step].max())
        kind = "stopped" if is_of_all else "compute"
        yield Interruption(kind, epoch + 1, number + 1, seconds, int(ranks[step]), longest)  # type: ignore[arg-type]


def _continued(merged: Merged, per_epoch: int, stops: list[Stops]) -> Iterator[Interruption]:
    """Yield an interruption for each step in which ranks continued after a stop, if the step took longer than the
    median step.
    """
    begins = merged.steps[..., STARTED]
    ends = np.concatenate([begins[:, 1:], merged.steps[:, -1:, SYNCED]], axis=1)
    longer = (ends - begins) - np.median(ends - begins)
    seconds = np.zeros(longer.shape)
    for rank, stop in enumerate(stops):
        for moment in stop.continued:
            step = int(np.searchsorted(begins[rank], moment + merged.offsets[rank, 0])) - 1
            if step >= 0:
                seconds[rank, step] = longer[rank, step]
    for step in np.flatnonzero((seconds > _LONGER_S).any(axis=0)).tolist():
        epoch, number = divmod(step, per_epoch)
        ranks = int((seconds[:, step] > _LONGER_S).sum())
        yield Interruption("stopped", epoch + 1, number + 1, float(seconds[:, step].max()), ranks)


def _gaps(merged: Merged, per_epoch: int, stops: list[Stops]) -> Iterator[Interruption]:
    """Yield an interruption for each step with a period in which no thread of a rank ran. Also yield one for the sum of
    such periods between and after steps, for example in checkpoints. Periods before the first step are not measured.
    """
    begins, ends = merged.steps[..., STARTED], merged.steps[..., SYNCED]
    inside: dict[int, dict[int, float]] = {}
    outside: list[float] = []
    for rank, stop in enumerate(stops):
        apart = 0.0
        for end, length in stop.gaps:
            moment = end - length / 2 + merged.offsets[rank, 0]
            step = int(np.searchsorted(begins[rank], moment)) - 1
            if step >= 0 and moment < ends[rank, step]:
                of_ranks = inside.setdefault(step, {})
                of_ranks[rank] = of_ranks.get(rank, 0.0) + length
            elif step >= 0:
                apart += length
        outside.append(apart)
    for step, of_ranks in inside.items():
        epoch, number = divmod(step, per_epoch)
        yield Interruption("stopped", epoch + 1, number + 1, max(of_ranks.values()), len(of_ranks))
    if max(outside) > 0:
        yield Interruption("stopped", 0, 0, max(outside), sum(seconds > 0 for seconds in outside))
