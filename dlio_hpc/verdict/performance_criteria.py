"""Criteria on metrics: on each run or on the median, on the spread of samples/s, and on scaling efficiency."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.analysis import robust
from dlio_hpc.analysis.robust import Estimate
from dlio_hpc.metrics import METRICS, Unit, format_value
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict.criteria_file import METRIC_LIMITS, Criterion
from dlio_hpc.verdict.criterion_result import Check, Evidence, Group, Ran, runs_in_words

# Limits of several runs: metric, label, and whether higher is better; all are shares.
_SPECIAL = {
    "max_spread": ("spread", "spread of samples/s", False),
    "min_scaling_efficiency": ("scaling_efficiency", "scaling efficiency", True),
}
LIMITS = (*METRIC_LIMITS, *_SPECIAL)


class Limit(NamedTuple):
    """What is asked of a figure. least: more is better."""

    name: str
    key: str
    title: str
    metric: str
    label: str
    value: float
    unit: Unit
    is_least: bool
    all_runs: bool

    @property
    def words(self) -> str:
        of = ", every run" if self.all_runs else ""
        return f"{self.label} {'>=' if self.is_least else '<='} {format_value(self.value, self.unit)}{of}"

    def is_met(self, value: float) -> bool:
        if math.isclose(value, self.value, rel_tol=1e-9):  # what rounding adds is no miss
            return True
        return value > self.value if self.is_least else value < self.value


def checks(name: str, criterion: Criterion, group: Group, all_groups: Sequence[Group]) -> Iterator[Check]:
    """Of each limit of a figure that applies to the group; what was measured on the fewest ranks is what scaling is
    measured by.
    """
    for key in METRIC_LIMITS:
        if getattr(criterion, key) is not None:
            yield _figure(limit(name, key, criterion), group)
    if criterion.max_spread is not None:
        yield _spread(limit(name, "max_spread", criterion), group)
    base = fewest(group, all_groups)
    if criterion.min_scaling_efficiency is not None and base is not None:
        yield _scaling(limit(name, "min_scaling_efficiency", criterion), group, base)


def fewest(group: Group, others: Sequence[Group]) -> list[Group] | None:
    """What measured the same on the fewest ranks; None where that is the group itself."""
    same = [other for other in others if _unscaled(other) == _unscaled(group)]
    least = min(other.ranks for other in same)
    return None if least == group.ranks else [other for other in same if other.ranks == least]


def _unscaled(group: Group) -> tuple[str, ...]:
    """All that is the same on any number of ranks."""
    key = group.key
    return key.site, key.file_system, key.layout, key.workload, key.settings, key.version, group.data


def limit(name: str, key: str, criterion: Criterion) -> Limit:
    """What the criterion asks under that key."""
    title, value = criterion.title or name, getattr(criterion, key)
    if (special := _SPECIAL.get(key)) is not None:
        metric, label, is_least = special
        return Limit(name, key, title, metric, label, value, "share", is_least, all_runs=False)
    metric = METRIC_LIMITS[key]
    known = METRICS[metric]
    return Limit(name, key, title, metric, known.noun, value, known.unit, known.is_higher_better, criterion.all_runs)


def _check(
    asked: Limit, group: Group, verdict: Outcome, words: str, found: Estimate | None, evidence: Sequence[Evidence]
) -> Check:
    value, low, high = found or (None, None, None)
    return Check(
        asked.name, asked.key, asked.title, group.label, asked.words, verdict, words, tuple(evidence), value, low, high,
        asked.value, asked.unit, asked.metric, asked.is_least,
    )  # fmt: skip


def _figure(asked: Limit, group: Group) -> Check:
    found = group.values(asked.metric)
    evidence = [_evidence(asked, each, value) for each, value in found]
    if len(found) < len(group.runs) or not found:
        lacking = runs_in_words(len(group.runs) - len(found))
        words = f"{lacking} of {len(group.runs)} without this figure; narrow the criterion (workload, nodes)"
        return _check(asked, group, "fail", words, None, evidence)
    values = [value for _, value in found]
    if asked.all_runs:
        return _each(asked, group, values, evidence)
    estimate = robust.estimate(values)
    return _check(asked, group, *_judged(asked, estimate, len(values)), estimate, evidence)


def _evidence(asked: Limit, each: Ran, value: float) -> Evidence:
    return Evidence(each.job, each.run.run, value, format_value(value, asked.unit), asked.is_met(value))


def _each(asked: Limit, group: Group, values: list[float], evidence: list[Evidence]) -> Check:
    worst = min(values) if asked.is_least else max(values)
    missed = sum(not each.is_met for each in evidence)
    told = f"{missed} of {runs_in_words(len(values))} miss it" if missed else f"all {len(values)} meet it"
    words = f"worst run {format_value(worst, asked.unit)}, {told}"
    return _check(asked, group, "fail" if missed else "pass", words, Estimate(worst, None, None), evidence)


def _judged(asked: Limit, found: Estimate, count: int) -> tuple[Outcome, str]:
    """Outcome and words."""
    if found.low is None or found.high is None:
        verdict: Outcome = "pass" if asked.is_met(found.value) else "fail"
        return verdict, f"{format_value(found.value, asked.unit)} in one run; its noise is unknown"
    value, low, high = (format_value(value, asked.unit) for value in (found.value, found.low, found.high))
    words = f"median {value} of {runs_in_words(count)}, 90 % interval {low} to {high}"
    good = asked.is_met(found.low), asked.is_met(found.high)
    if all(good):
        return "pass", words
    return ("inconclusive", f"{words}: the limit lies within; repeat it more often") if any(good) else ("fail", words)


def _spread(asked: Limit, group: Group) -> Check:
    found = group.values("samples_per_s")
    values = [value for _, value in found]
    middle = robust.estimate(values).value if values else 0.0
    evidence = [
        Evidence(each.job, each.run.run, value / middle - 1 if middle else None, format_value(value, "1/s"))
        for each, value in found
    ]
    if len(values) < 2 or not middle:
        words = f"{runs_in_words(len(values))} has no spread; repeat it (--repeat)"
        return _check(asked, group, "inconclusive", words, None, evidence)
    spread = (max(values) - min(values)) / middle
    words = f"{format_value(min(values), '1/s')} to {format_value(max(values), '1/s')} in {runs_in_words(len(values))}"
    verdict: Outcome = "pass" if asked.is_met(spread) else "fail"
    return _check(asked, group, verdict, words, Estimate(spread, None, None), evidence)


def _scaling(asked: Limit, group: Group, base: Sequence[Group]) -> Check:
    """base: groups on the fewest ranks, whose runs are taken together."""
    by = [value / each.ranks for each in base for _, value in each.values("samples_per_s")]
    found = group.values("samples_per_s")
    values = [value / group.ranks for _, value in found]
    if not values or not by or min(by) <= 0:
        return _check(asked, group, "fail", "no samples/s to compare", None, ())
    estimate = robust.ratio(values, by)
    reference = robust.estimate(by).value
    evidence = [_evidence(asked, each, value / group.ranks / reference) for each, value in found]
    verdict, words = _judged(asked, estimate, min(len(values), len(by)))
    ranks = base[0].ranks
    told = f"against {runs_in_words(len(by))} on {ranks} rank{'s' if ranks > 1 else ''}"
    return _check(asked, group, verdict, f"{words}; {told}", estimate, evidence)
