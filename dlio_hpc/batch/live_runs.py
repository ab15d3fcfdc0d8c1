"""The run of a job that goes on, from the states that its ranks leave in the job's directory."""

from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import DlioError
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan as plans
from dlio_hpc.results import live_state
from dlio_hpc.results.live_state import Phase, RankState

# Seconds over which the present rate is taken, number of rates that are kept, and seconds without a new state after
# which a rate is not shown.
_WINDOW_S, _RATES, _OLD_S = 5.0, 40, 20.0
# Least share of the steps for which the others wait for a rank that is called the slowest.
_WAITED_FOR = 0.01
# Least seconds of a run from which the time left is estimated.
_SOONEST_S = 2.0


class Slowest(NamedTuple):
    """The rank for which others wait. share: part of the steps that the other ranks wait for it in the mean, or, for a
    run that generates, part of its files that it has written.
    """

    rank: int
    host: str
    share: float


class LiveRun(NamedTuple):
    """A run that goes on. name: name of its folder. number, runs: place in the plan, from 1, and number of runs; 0 if
    the plan cannot be read. ranks: number of ranks that have left a state. done, total: steps that all ranks have done,
    or files of all ranks. wait, compute, sync: shares of the steps, which add up to 1; None without steps.
    from_storage: share of the bytes of the epochs that have ended; None if it is not known. newest: time of the newest
    state, seconds since 1970 of a node's clock. The other values are as RankState defines them, for all ranks.
    """

    name: str
    number: int
    runs: int
    ranks: int
    phase: Phase
    done: int
    total: int
    unit: str
    epoch: int
    epochs: int
    elapsed_s: float
    bytes: int
    wait: float | None
    compute: float | None
    sync: float | None
    slowest: Slowest | None
    from_storage: float | None
    newest: float

    @property
    def mean_rate(self) -> float | None:
        """Bytes a second since the first step or file; None if none are known."""
        return self.bytes / self.elapsed_s if self.elapsed_s > 0 and self.bytes else None

    @property
    def left_s(self) -> float | None:
        """Seconds until the end of the run at the speed so far; None if it has only begun."""
        if not self.done or self.elapsed_s < _SOONEST_S:
            return None
        return self.elapsed_s * (self.total - self.done) / self.done


def of(job: Path) -> LiveRun | None:
    """Return the run of a job that goes on; None if no rank has left a state."""
    folders = sorted(job.glob(f"{rundir.RUNS}/*/{rundir.LIVE}"), key=lambda folder: int(folder.parent.name[:2] or 0))
    for folder in reversed(folders):
        if states := live_state.read(folder):
            return _run(folder.parent.name, _names(job), states)
    return None


@lru_cache(maxsize=64)
def _names(job: Path) -> tuple[str, ...]:
    """Return the names of the runs of a job; no name if its plan cannot be read."""
    try:
        plan, _ = plans.load(job / rundir.PLAN)
    except (OSError, DlioError):
        return ()
    return tuple(rundir.run_name(run.number, run.name) for run in plan.runs)


def _run(name: str, names: Sequence[str], states: list[RankState]) -> LiveRun:
    has_steps = any(state.epochs for state in states)
    done = min(state.done for state in states) if has_steps else sum(state.done for state in states)
    total = max(state.total for state in states) if has_steps else sum(state.total for state in states)
    spent = [sum(getattr(state, part) for state in states) for part in ("wait_s", "compute_s", "sync_s")]
    wait, compute, sync = [part / sum(spent) for part in spent] if sum(spent) else [None] * 3
    arrived, asked = [state.arrived for state in states], sum(state.asked for state in states)
    known = [count for count in arrived if count is not None]
    return LiveRun(
        name, names.index(name) + 1 if name in names else 0, len(names), len(states),
        Counter(state.phase for state in states).most_common(1)[0][0], done, total, states[0].unit,
        min(state.epoch for state in states), states[0].epochs, max(state.elapsed_s for state in states),
        sum(state.bytes for state in states), wait, compute, sync, _slowest(states, has_steps),
        sum(known) / asked if asked and len(known) == len(arrived) else None, max(state.time for state in states),
    )  # fmt: skip


def _slowest(states: list[RankState], has_steps: bool) -> Slowest | None:
    """Return the rank for which the others wait: in steps, the one that itself waits least for others."""
    if len(states) < 2:
        return None
    if not has_steps:
        last = min(states, key=lambda state: state.done / max(state.total, 1))
        return Slowest(last.rank, last.host, last.done / max(last.total, 1)) if last.total else None
    last = min(states, key=lambda state: state.sync_s)
    others = [state for state in states if state is not last]
    waited = sum(state.sync_s - last.sync_s for state in others)
    share = waited / max(sum(state.wait_s + state.compute_s + state.sync_s for state in others), 1e-9)
    return Slowest(last.rank, last.host, share) if share >= _WAITED_FOR else None


class RunRates:
    """RunRates of a run, from looks at it. Each is taken over some seconds, because each rank leaves a state at another
    time.
    """

    def __init__(self) -> None:
        self._run = ""
        self._looks: deque[tuple[float, int]] = deque()
        self.history: deque[float] = deque(maxlen=_RATES)

    def add(self, run: LiveRun) -> None:
        """Add a look. Only looks with a new state count. Another run begins with no rates."""
        if run.name != self._run:
            self._run = run.name
            self._looks.clear()
            self.history.clear()
        if self._looks and run.newest < self._looks[-1][0] + 1:
            return
        self._looks.append((run.newest, run.bytes))
        while len(self._looks) > 2 and run.newest - self._looks[1][0] >= _WINDOW_S:
            self._looks.popleft()
        (begin, before), (end, after) = self._looks[0], self._looks[-1]
        if end > begin:
            self.history.append(max(0, after - before) / (end - begin))

    @property
    def now(self) -> float | None:
        """Bytes a second over the last seconds; None if there were not two looks."""
        return self.history[-1] if self.history else None
