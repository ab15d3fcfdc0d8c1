"""Result of checking a criterion: its outcome, and the evidence of each run."""

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from msgspec import Struct

from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.results.metrics import Unit, format_value
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement


class Ran(NamedTuple):
    """A run with the name of its job. night: night on which the job ended, such as 2026-11-27. results_on: file system
    of the job directory. workload: the workload with its defaults filled in, as decoded from JSON.
    """

    job: str
    run: Measurement
    night: str
    results_on: str
    workload: Any

    @staticmethod
    def of(entry: Entry, run: Measurement, night: date) -> "Ran":
        return Ran(entry.job, run, str(night), entry.results_on, entry.workloads.get(run.key.settings))


class CriterionGroup(NamedTuple):
    """Repeats of one measurement, which are judged together. data: directory of the dataset. runs: the good measured
    runs. sequence: these runs and their warm-up runs, in the order of execution.
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
        """Return the runs that have this metric, each with its value."""
        return [(run, run.run.metrics[metric]) for run in self.runs if metric in run.run.metrics]


class Evidence(Struct, frozen=True):
    """Evidence from one run for a check. value: number in the unit of the check; None if there is no number. is_met:
    whether this run alone meets the criterion; None if the criterion cannot be applied to a single run. night: night on
    which the job of the run ended, such as 2026-11-27; empty if the night does not matter for the check.
    """

    job: str
    run: str
    value: float | None
    text: str
    is_met: bool | None = None
    night: str = ""


class Check(Struct, frozen=True):
    """A criterion checked on a group. key: YAML key of the limit or rule, such as min_au; empty for checks that are
    always made. group: label of the group; empty for a check of all jobs together. asked: the requirement as text.
    text: the result as text. value: the result in `unit`; None if the result is not a number. low, high: confidence
    interval of `value`; None if `value` has no interval. limit: the limit in `unit`; None if the check has no limit.
    metric: a name in metrics.METRICS, or spread, or scaling_efficiency; empty if the check is not on a metric.
    is_least: whether the limit is a minimum. advice: how the criterion could be met.
    """

    criterion: str
    key: str
    title: str
    group: str
    asked: str
    outcome: Outcome
    text: str
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
    def is_met(self) -> bool:
        """Whether the criterion is met or was skipped."""
        return self.outcome in ("pass", "skipped")

    @property
    def measured(self) -> str:
        """The value with its confidence interval, or the result as text if there is no value."""
        if self.value is None or self.key == "gaps":
            return self.text
        if self.low is None or self.high is None:
            return format_value(self.value, self.unit)
        value, low, high = (format_value(value, self.unit) for value in (self.value, self.low, self.high))
        return f"{value} ({low} to {high})"

    @property
    def runs(self) -> int:
        """Number of runs in the evidence."""
        return sum(bool(evidence.run) for evidence in self.evidence)

    @property
    def nights(self) -> list[str]:
        """Nights of the evidence, oldest first."""
        return sorted({evidence.night for evidence in self.evidence if evidence.night})


def evidence_lines(check: Check) -> list[str]:
    """Return one line of evidence per run: job, run, result. If there are several nights, a line with the date precedes
    the lines of a night.
    """
    if len(check.nights) < 2:
        return [_line(evidence) for evidence in check.evidence]
    lines = []
    for night in check.nights:
        of_night = [evidence for evidence in check.evidence if evidence.night == night]
        lines += [f"night {night}", *(f"  {_line(evidence)}" for evidence in of_night)]
    return lines


def _line(evidence: Evidence) -> str:
    return "  ".join(filter(None, (evidence.job, evidence.run, evidence.text)))


def advice_lines(check: Check) -> list[str]:
    lead = "would defeat the cache" if check.outcome == "cached" else "would help"
    return [f"{lead}: {line}" for line in check.advice]


def listed(items: Sequence[str], most: int = 3) -> str:
    """Return the first `most` items in one line. If there are more, the number of the remaining items is appended."""
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return "; ".join(items[:most]) + more
