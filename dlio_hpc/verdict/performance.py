"""Criteria of figures: of each run or of the median, of their spread, and of how they scale."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.analysis import median
from dlio_hpc.analysis.median import Estimate
from dlio_hpc.verdict.check import Check, Evidence, Group, Ran, Unit, Verdict, runs_in_words, show
from dlio_hpc.verdict.criteria import FIGURES, Criterion
from dlio_hpc.verdict.metrics import METRICS

SPREAD, SCALING = "spread", "scaling_efficiency"
_UNITS: dict[str, Unit] = {"MB/s": "MB/s", "1/s": "1/s", "s": "s", "": "x"}


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
    each_run: bool

    @property
    def words(self) -> str:
        of = ", every run" if self.each_run else ""
        return f"{self.label} {'>=' if self.is_least else '<='} {show(self.value, self.unit)}{of}"

    def is_met(self, value: float) -> bool:
        if math.isclose(value, self.value, rel_tol=1e-9):  # what rounding adds is no miss
            return True
        return value > self.value if self.is_least else value < self.value


def checks(name: str, criterion: Criterion, group: Group, all_groups: Sequence[Group]) -> Iterator[Check]:
    """Of each limit of a figure that applies to the group; what was measured on the fewest ranks is what scaling is
    measured by.
    """
    for key in FIGURES:
        if (value := getattr(criterion, key)) is not None:
            yield _figure(_limit(name, key, criterion, value), group)
    title = criterion.title or name
    if (spread := criterion.largest_spread) is not None:
        label = "spread of samples/s"
        yield _spread(Limit(name, "largest_spread", title, SPREAD, label, spread, "share", False, False), group)
    efficiency, base = criterion.least_scaling_efficiency, fewest(group, all_groups)
    if efficiency is not None and base is not None:
        key, label = "least_scaling_efficiency", "scaling efficiency"
        yield _scaling(Limit(name, key, title, SCALING, label, efficiency, "share", True, False), group, base)


def fewest(group: Group, others: Sequence[Group]) -> list[Group] | None:
    """What measured the same on the fewest ranks; None where that is the group itself."""
    same = [other for other in others if _unscaled(other) == _unscaled(group)]
    least = min(other.ranks for other in same)
    return None if least == group.ranks else [other for other in same if other.ranks == least]


def _unscaled(group: Group) -> tuple[str, ...]:
    """All that is the same on any number of ranks."""
    key = group.key
    return key.site, key.file_system, key.layout, key.workload, key.settings, key.version, group.data


def _limit(name: str, key: str, criterion: Criterion, value: float) -> Limit:
    metric = FIGURES[key]
    known, title = METRICS[metric], criterion.title or name
    unit: Unit = "share" if known.is_share else _UNITS[known.unit]
    return Limit(name, key, title, metric, known.label, value, unit, known.higher, criterion.each_run)


def _check(
    limit: Limit, group: Group, verdict: Verdict, words: str, found: Estimate | None, evidence: Sequence[Evidence]
) -> Check:
    value, low, high = found or (None, None, None)
    return Check(
        limit.name, limit.key, limit.title, group.label, limit.words, verdict, words, tuple(evidence), value, low, high,
        limit.value, limit.unit, limit.metric, limit.is_least,
    )  # fmt: skip


def _figure(limit: Limit, group: Group) -> Check:
    found = group.figures(limit.metric)
    evidence = [_evidence(limit, each, value) for each, value in found]
    if len(found) < len(group.runs) or not found:
        lacking = runs_in_words(len(group.runs) - len(found))
        words = f"{lacking} of {len(group.runs)} without this figure; narrow the criterion (workload, nodes)"
        return _check(limit, group, "not met", words, None, evidence)
    values = [value for _, value in found]
    if limit.each_run:
        return _each(limit, group, values, evidence)
    estimate = median.of(values)
    return _check(limit, group, *_judged(limit, estimate, len(values)), estimate, evidence)


def _evidence(limit: Limit, each: Ran, value: float) -> Evidence:
    return Evidence(each.job, each.run.run, value, show(value, limit.unit), limit.is_met(value))


def _each(limit: Limit, group: Group, values: list[float], evidence: list[Evidence]) -> Check:
    worst = min(values) if limit.is_least else max(values)
    missed = sum(not each.is_met for each in evidence)
    told = f"{missed} of {runs_in_words(len(values))} miss it" if missed else f"all {len(values)} meet it"
    words = f"worst run {show(worst, limit.unit)}, {told}"
    return _check(limit, group, "not met" if missed else "met", words, Estimate(worst, None, None), evidence)


def _judged(limit: Limit, found: Estimate, count: int) -> tuple[Verdict, str]:
    """Verdict and words."""
    if found.low is None or found.high is None:
        verdict: Verdict = "met" if limit.is_met(found.value) else "not met"
        return verdict, f"{show(found.value, limit.unit)} in one run; its noise is unknown"
    ends = show(found.low, limit.unit), show(found.high, limit.unit)
    how = "90 % interval" if count >= median.FEWEST else "range of too few runs to know their noise"
    words = f"median {show(found.value, limit.unit)} of {runs_in_words(count)}, {how} {ends[0]} to {ends[1]}"
    good = limit.is_met(found.low), limit.is_met(found.high)
    if all(good):
        return "met", words
    return ("noisy", f"{words}: the limit lies within; repeat it more often") if any(good) else ("not met", words)


def _spread(limit: Limit, group: Group) -> Check:
    found = group.figures("samples_per_s")
    values = [value for _, value in found]
    middle = median.of(values).value if values else 0.0
    evidence = [
        Evidence(each.job, each.run.run, value / middle - 1 if middle else None, show(value, "1/s"))
        for each, value in found
    ]
    if len(values) < 2 or not middle:
        words = f"{runs_in_words(len(values))} has no spread; repeat it (--repeat)"
        return _check(limit, group, "noisy", words, None, evidence)
    spread = (max(values) - min(values)) / middle
    words = f"{show(min(values), '1/s')} to {show(max(values), '1/s')} in {runs_in_words(len(values))}"
    verdict: Verdict = "met" if limit.is_met(spread) else "not met"
    return _check(limit, group, verdict, words, Estimate(spread, None, None), evidence)


def _scaling(limit: Limit, group: Group, base: Sequence[Group]) -> Check:
    """base: groups on the fewest ranks, whose runs are taken together."""
    by = [value / each.ranks for each in base for _, value in each.figures("samples_per_s")]
    found = group.figures("samples_per_s")
    values = [value / group.ranks for _, value in found]
    if not values or not by or min(by) <= 0:
        return _check(limit, group, "not met", "no samples/s to compare", None, ())
    estimate = median.ratio(values, by)
    reference = median.of(by).value
    evidence = [_evidence(limit, each, value / group.ranks / reference) for each, value in found]
    verdict, words = _judged(limit, estimate, min(len(values), len(by)))
    ranks = base[0].ranks
    told = f"against {runs_in_words(len(by))} on {ranks} rank{'s' if ranks > 1 else ''}"
    return _check(limit, group, verdict, f"{words}; {told}", estimate, evidence)
