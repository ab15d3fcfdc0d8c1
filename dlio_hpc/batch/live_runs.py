"""The current run of a job, determined from the states that its ranks write to the job's directory."""

from collections import Counter, deque
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct, structs

from dlio_hpc.base.errors import DlioError
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan as plans
from dlio_hpc.results import live_state
from dlio_hpc.results.live_state import Phase, RankState

# Seconds over which the present rate is taken, and number of rates that are kept.
_WINDOW_S, _RATES = 5.0, 40
# Least share of the steps for which the others wait for a rank that is called the slowest.
_WAITED_FOR = 0.01
# Least seconds of a run whose rate is shown.
_LEAST_S = 1e-6
# Least seconds of a run from which the time left is estimated.
_SOONEST_S = 2.0


class Slowest(NamedTuple):
    """The rank that the others wait for. share: fraction of the step time of the other ranks in which they wait for
    this rank. For a run that generates a dataset: fraction of its own files that this rank has written.
    """

    rank: int
    host: str
    share: float


class RunProgress(Struct, frozen=True):
    """Progress of a run that has not ended, from the state that its ranks wrote last."""

    name: str
    """Name of the run, such as 01-measure."""
    number: int
    """Place of the run in the plan, counted from 1; 0 if the plan cannot be read."""
    runs: int
    """Number of runs of the job."""
    ranks: int
    """Number of ranks that have written their state."""
    phase: Phase
    """Activity of most ranks."""
    done: int
    """Steps that all ranks have done, or files that the ranks have generated."""
    total: int
    """Steps of a rank in the run, or files of the dataset; 0 if the run may start again until the other loads of its
    mix end.
    """
    unit: str
    """Unit of `done` and `total`: steps or files."""
    epoch: int
    """Number of the current epoch, counted from 1; 0 if the run has no epochs."""
    epochs: int
    """Number of epochs of the run; 0 if it has none; 1 if the run may start again until other loads end."""
    elapsed_s: float
    """Seconds since the first step, or since the first file."""
    bytes: int
    """Bytes of samples that all ranks have read, or bytes of files that they have written."""
    wait: float | None
    """Fraction of the step time in which ranks wait for samples; null if no step is done."""
    compute: float | None
    """Fraction of the step time in which ranks compute; null if no step is done."""
    sync: float | None
    """Fraction of the step time in which ranks wait for other ranks; null if no step is done."""
    from_storage: float | None
    """Bytes that came from storage, divided by bytes of samples, in the epochs that have ended; null if unknown."""
    newest: float
    """Time of the newest state, in seconds since 1970, by the clock of a node."""


class LiveRun(RunProgress, frozen=True):
    """A run in progress. slowest: the rank that the others wait for; None if there is none."""

    slowest: Slowest | None

    @property
    def mean_rate(self) -> float | None:
        """Bytes per second since the first step or file; None if no bytes are known."""
        return self.bytes / self.elapsed_s if self.elapsed_s > _LEAST_S and self.bytes else None

    @property
    def left_s(self) -> float | None:
        """Estimated seconds until the end of the run, from the mean speed so far; None if the run has just begun."""
        if not self.done or not self.total or self.elapsed_s < _SOONEST_S:
            return None
        return self.elapsed_s * (self.total - self.done) / self.done


def of(job: Path) -> LiveRun | None:
    """Return the current run of a job; None if no rank has written a state."""
    folders = sorted(job.glob(f"{rundir.RUNS}/*/{rundir.LIVE}"), key=lambda folder: _number(folder.parent.name))
    for folder in reversed(folders):
        if states := live_state.read(folder):
            planned = _planned(job)
            run = _run(folder.parent.name, list(planned), states)
            return structs.replace(run, total=0, epochs=1) if planned.get(run.name) else run
    return None


def _number(name: str) -> int:
    """Return the number with which the name of a run begins; -1 for a folder that does not belong to a run."""
    return int(name.partition("-")[0]) if name.partition("-")[0].isdecimal() else -1


def place(job: Path, name: str) -> str:
    """Return the name of a run with its place in the plan of its job, such as "run 2 of 3: 01-measure"."""
    names = list(_planned(job))
    return placed(names.index(name) + 1 if name in names else 0, len(names), name)


def placed(number: int, runs: int, name: str) -> str:
    """Return the name of a run with its place among `runs` runs. number: from 1; 0 if it is not known."""
    return f"run {number} of {runs}: {name}" if number else name


@lru_cache(maxsize=64)
def _planned(job: Path) -> dict[str, bool]:
    """Return the names of the runs of a job, in their order, and for each whether it may start again until the other
    loads of its mix end. Return no name if the plan of the job cannot be read.
    """
    try:
        plan, _ = plans.load(job / rundir.PLAN)
    except (OSError, DlioError):
        return {}
    return {
        rundir.run_name(run.number, run.name): run.load is not None and run.load.until != "first" for run in plan.runs
    }


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
        sum(state.bytes for state in states), wait, compute, sync,
        sum(known) / asked if asked and len(known) == len(arrived) else None, max(state.time for state in states),
        _slowest(states, has_steps),
    )  # fmt: skip


def _slowest(states: list[RankState], has_steps: bool) -> Slowest | None:
    """Return the rank that the others wait for. During steps, it is the rank that waits least for others."""
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
    """Rates of a run, computed from repeated readings of its state. Each rate is an average over several seconds,
    because ranks write their states at different times.
    """

    def __init__(self) -> None:
        self._run = ""
        self._looks: deque[tuple[float, int]] = deque()
        self.history: deque[float] = deque(maxlen=_RATES)

    def add(self, run: LiveRun) -> None:
        """Add a reading. Readings without a new state are ignored. Rates start again with each run."""
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
        """Bytes per second over the last seconds; None until there are two readings."""
        return self.history[-1] if self.history else None
