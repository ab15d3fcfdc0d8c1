"""What a criterion came to: its evidence, and the verdict."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import Struct

from dlio_hpc.metrics import Unit, format_value
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement


class Ran(NamedTuple):
    """A run, and the job that made it. results_on: as an entry has it. workload: resolved, as JSON has it."""

    job: str
    run: Measurement
    results_on: str
    workload: Any

    @staticmethod
    def of(entry: Entry, run: Measurement) -> "Ran":
        return Ran(entry.job, run, entry.results_on, entry.workloads.get(run.key.settings))


class Group(NamedTuple):
    """What is judged together: repeats of one measurement. runs: good and measured. sequence: these and their warm-ups,
    in the order in which they were made.
    """

    label: str
    key: Key
    data: str
    runs: tuple[Ran, ...]
    sequence: tuple[Ran, ...]

    @property
    def ranks(self) -> int:
        return self.key.nodes * self.key.ranks_per_node

    def values(self, metric: str) -> list[tuple[Ran, float]]:
        """Return the runs that have the metric, with its values."""
        return [(run, run.run.metrics[metric]) for run in self.runs if metric in run.run.metrics]


class Evidence(Struct, frozen=True):
    """One run's part in a verdict. value: in the check's unit; None where it has none. is_met: by itself."""

    job: str
    run: str
    value: float | None
    words: str
    is_met: bool | None = None


class Check(Struct, frozen=True):
    """A criterion of a group; group is empty where it is about everything. key: in the criteria file, such as min_au;
    empty of what is always asked. asked: the limit in words. words: what was found. limit, value, low, high: in `unit`;
    None where there is none. metric: the figure's name in metrics.METRICS, or spread, or scaling_efficiency; empty
    where it is about none. advice: what would help.
    """

    criterion: str
    key: str
    title: str
    group: str
    asked: str
    outcome: Outcome
    words: str
    evidence: tuple[Evidence, ...] = ()
    value: float | None = None
    low: float | None = None
    high: float | None = None
    limit: float | None = None
    unit: Unit = ""
    metric: str = ""
    is_least: bool = True
    advice: tuple[str, ...] = ()

    @property
    def found(self) -> str:
        """The value with its interval, in the fewest words; all words where it is no figure."""
        if self.value is None or self.key == "gaps":
            return self.words
        if self.low is None or self.high is None:
            return format_value(self.value, self.unit)
        value, low, high = (format_value(value, self.unit) for value in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"

    @property
    def runs(self) -> int:
        return sum(bool(each.run) for each in self.evidence)


def runs_in_words(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def evidence_lines(check: Check) -> list[str]:
    """A line for each run: job, run, what it came to."""
    return ["  ".join(filter(None, (each.job, each.run, each.words))) for each in check.evidence]


def advice_lines(check: Check) -> list[str]:
    lead = "would defeat the cache" if check.outcome == "cached" else "would help"
    return [f"{lead}: {line}" for line in check.advice]


def listed(words: Sequence[str], most: int = 3) -> str:
    """As many as fit a line."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return "; ".join(words[:most]) + more
