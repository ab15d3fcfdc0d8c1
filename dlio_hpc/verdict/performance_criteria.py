"""Criteria on metrics: limits on the median or on each run, on the spread of samples/s, and on scaling efficiency."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.analysis import robust
from dlio_hpc.analysis.robust import Estimate
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.results.metrics import METRICS, Unit, format_value
from dlio_hpc.verdict.criteria_file import METRIC_LIMITS, Criterion
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence, Ran, runs_in_words

# Limits on shares that are computed from several runs. For each YAML key: the metric, its label, and whether the limit
# is a minimum.
_SPECIAL = {
    "max_spread": ("spread", "spread of samples/s", False),
    "min_scaling_efficiency": ("scaling_efficiency", "scaling efficiency", True),
}
LIMITS = (*METRIC_LIMITS, *_SPECIAL)


class Limit(NamedTuple):
    """Limit of a metric. name: name of the criterion. key: YAML key of the limit. is_least: whether the limit is a
    minimum. all_runs: whether every run must meet the limit, not only the median.
    """

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
    def text(self) -> str:
        """The limit as text, such as "samples/s >= 1300, every run"."""
        scope = ", every run" if self.all_runs else ""
        return f"{self.label} {'>=' if self.is_least else '<='} {format_value(self.value, self.unit)}{scope}"

    def is_met(self, value: float) -> bool:
        """Return whether a value meets the limit."""
        if math.isclose(value, self.value, rel_tol=1e-9):  # rounding errors are tolerated
            return True
        return value > self.value if self.is_least else value < self.value


def checks(
    name: str, criterion: Criterion, group: CriterionGroup, all_groups: Sequence[CriterionGroup]
) -> Iterator[Check]:
    """Yield a check for each limit on a metric that the criterion sets. name: name of the criterion. Scaling efficiency
    compares the group with the groups that made the same measurement on the fewest ranks. It is not checked for these
    groups themselves.
    """
    for key in METRIC_LIMITS:
        if getattr(criterion, key) is not None:
            yield _metric(limit(name, key, criterion), group)
    if criterion.max_spread is not None:
        yield _spread(limit(name, "max_spread", criterion), group)
    base = fewest(group, all_groups)
    if criterion.min_scaling_efficiency is not None and base is not None:
        yield _scaling(limit(name, "min_scaling_efficiency", criterion), group, base)


def fewest(group: CriterionGroup, groups: Sequence[CriterionGroup]) -> list[CriterionGroup] | None:
    """Return the groups that made the same measurement on the fewest ranks, and among these on the fewest nodes, as
    scaling in the report of a study does. Return None if the group itself is one of them.
    """
    same = [candidate for candidate in groups if _unscaled(candidate) == _unscaled(group)]
    least = min(map(_scale, same))
    return None if least == _scale(group) else [candidate for candidate in same if _scale(candidate) == least]


def _scale(group: CriterionGroup) -> tuple[int, int]:
    return group.ranks, group.key.nodes


def _unscaled(group: CriterionGroup) -> tuple[str, ...]:
    """Return the measurement key without the numbers of nodes and ranks, together with the dataset. Groups for which
    the result is equal made the same measurement at different scales.
    """
    key = group.key
    return key.site, key.file_system, key.outputs, key.layout, key.workload, key.settings, key.version, group.data


def limit(name: str, key: str, criterion: Criterion) -> Limit:
    """Return the limit that a criterion sets. name: name of the criterion. key: YAML key of the limit."""
    title, value = criterion.title or name, getattr(criterion, key)
    if (special := _SPECIAL.get(key)) is not None:
        metric, label, is_least = special
        return Limit(name, key, title, metric, label, value, "share", is_least, all_runs=False)
    metric = METRIC_LIMITS[key]
    known = METRICS[metric]
    return Limit(name, key, title, metric, known.noun, value, known.unit, known.is_higher_better, criterion.all_runs)


def _check(
    required: Limit,
    group: CriterionGroup,
    verdict: Outcome,
    text: str,
    estimate: Estimate | None,
    evidence: Sequence[Evidence],
) -> Check:
    value, low, high = estimate or (None, None, None)
    return Check(
        required.name, required.key, required.title, group.label, required.text, verdict, text, tuple(evidence),
        value, low, high, required.value, required.unit, required.metric, required.is_least,
    )  # fmt: skip


def _metric(required: Limit, group: CriterionGroup) -> Check:
    measured = group.values(required.metric)
    evidence = [_evidence(required, run, value) for run, value in measured]
    if len(measured) < len(group.runs) or not measured:
        lacking = runs_in_words(len(group.runs) - len(measured))
        message = (
            f"this metric is missing in {lacking} of {len(group.runs)}; restrict the criterion to runs that have this "
            "metric (keys workload and nodes)"
        )
        return _check(required, group, "fail", message, None, evidence)
    values = [value for _, value in measured]
    if required.all_runs:
        return _every_run(required, group, values, evidence)
    estimate = robust.estimate(values)
    return _check(required, group, *_judged(required, estimate, len(values)), estimate, evidence)


def _evidence(required: Limit, run: Ran, value: float) -> Evidence:
    return Evidence(run.job, run.run.run, value, format_value(value, required.unit), required.is_met(value))


def _every_run(required: Limit, group: CriterionGroup, values: list[float], evidence: list[Evidence]) -> Check:
    worst = min(values) if required.is_least else max(values)
    missed = sum(not run_evidence.is_met for run_evidence in evidence)
    result = f"{missed} of {runs_in_words(len(values))} fail" if missed else f"all {len(values)} pass"
    message = f"worst run {format_value(worst, required.unit)}, {result}"
    return _check(required, group, "fail" if missed else "pass", message, Estimate(worst, None, None), evidence)


def _judged(required: Limit, estimate: Estimate, count: int) -> tuple[Outcome, str]:
    """Return the outcome of a limit, and a description of the result. estimate: estimate of the value to which the
    limit applies. count: number of runs from which the estimate is computed.
    """
    if estimate.low is None or estimate.high is None:
        verdict: Outcome = "pass" if required.is_met(estimate.value) else "fail"
        return verdict, f"{format_value(estimate.value, required.unit)} in one run; noise is unknown"
    value, low, high = (format_value(value, required.unit) for value in (estimate.value, estimate.low, estimate.high))
    message = f"median {value} of {runs_in_words(count)}, 90 % interval {low} to {high}"
    ends = required.is_met(estimate.low), required.is_met(estimate.high)
    if all(ends):
        return "pass", message
    if any(ends):
        return "inconclusive", f"{message}: the limit lies within the interval; more repeats are needed"
    return "fail", message


def _spread(required: Limit, group: CriterionGroup) -> Check:
    measured = group.values("samples_per_s")
    values = [value for _, value in measured]
    median = robust.estimate(values).value if values else 0.0
    evidence = [
        Evidence(run.job, run.run.run, value / median - 1 if median else None, format_value(value, "1/s"))
        for run, value in measured
    ]
    if len(values) < 2 or not median:
        message = f"the spread of {runs_in_words(len(values))} is unknown; repeat the measurement (--repeat)"
        return _check(required, group, "inconclusive", message, None, evidence)
    spread = (max(values) - min(values)) / median
    message = (
        f"{format_value(min(values), '1/s')} to {format_value(max(values), '1/s')} in {runs_in_words(len(values))}"
    )
    verdict: Outcome = "pass" if required.is_met(spread) else "fail"
    return _check(required, group, verdict, message, Estimate(spread, None, None), evidence)


def _scaling(required: Limit, group: CriterionGroup, base: Sequence[CriterionGroup]) -> Check:
    """Check scaling efficiency: samples/s per rank in the group, divided by samples/s per rank in the groups `base`.
    base: the groups with the fewest ranks. Their runs are pooled.
    """
    base_values = [value / part.ranks for part in base for _, value in part.values("samples_per_s")]
    measured = group.values("samples_per_s")
    values = [value / group.ranks for _, value in measured]
    if not values or not base_values or min(base_values) <= 0:
        return _check(required, group, "fail", "no samples/s to compare", None, ())
    estimate = robust.ratio(values, base_values)
    reference = robust.estimate(base_values).value
    evidence = [_evidence(required, run, value / group.ranks / reference) for run, value in measured]
    verdict, message = _judged(required, estimate, min(len(values), len(base_values)))
    ranks = base[0].ranks
    reference_words = f"against {runs_in_words(len(base_values))} on {ranks} rank{'s' if ranks > 1 else ''}"
    return _check(required, group, verdict, f"{message}; {reference_words}", estimate, evidence)
