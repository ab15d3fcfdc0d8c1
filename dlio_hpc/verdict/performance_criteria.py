"""Criteria on metrics: limits on the level over nights or on each run, on the spread of samples/s, and on scaling
efficiency.
"""

import functools
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import structs

from dlio_hpc.analysis import normal_range, quantiles
from dlio_hpc.analysis.quantiles import Floats
from dlio_hpc.analysis.study import job_spread
from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import counted
from dlio_hpc.config.workload import Workload
from dlio_hpc.plan import metric_owners, mix
from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.results.metrics import METRICS, MetricName, Unit, format_value, of_phase
from dlio_hpc.results.phases import PHASES
from dlio_hpc.verdict import history_entry, night_intervals, site_spread, variation
from dlio_hpc.verdict.criteria_file import METRIC_LIMITS, Criterion
from dlio_hpc.verdict.criterion_result import Check, CriterionGroup, Evidence, Ran
from dlio_hpc.verdict.night_intervals import LimitScale
from dlio_hpc.verdict.site_spread import NightPrior
from dlio_hpc.verdict.variation import NightSpread, SampledLevel

# Limits on the slowdown of a load of a mix. For each YAML key: the name and the label of the slowdown, and groups of
# metrics from which it is computed. The first group of which the runs have a metric is used, and of this group the
# metric with the largest slowdown.
_SLOWDOWNS: dict[str, tuple[str, str, tuple[tuple[MetricName, ...], ...]]] = {
    "max_slowdown": (
        "slowdown",
        "slowdown by other loads",
        (("common_samples_per_s",), ("checkpoint_write_MBps",), tuple(map(of_phase, PHASES)), ("kv_read_MBps",)),
    ),
    "max_p99_slowdown": (
        "p99_slowdown",
        "slowdown of the p99 of a read by other loads",
        (("read_p99_s",), ("kv_read_p99_s", "ttft_p99_s")),
    ),
}
# Number of requests in a run without which a quantile of the time to the first token is not known to meet a limit.
_REQUESTS: dict[MetricName, int] = {"ttft_p95_s": 20, "ttft_p99_s": 100}
# Limits on shares that are computed from several runs. For each YAML key: the metric, its label, and whether the limit
# is a minimum.
_SPECIAL = {
    "max_spread": ("spread", "spread of samples/s", False),
    "min_scaling_efficiency": ("scaling_efficiency", "scaling efficiency", True),
}
LIMITS = (*METRIC_LIMITS, *_SPECIAL, *_SLOWDOWNS)
# The metric from which the value of each limit is computed.
_METRICS: dict[str, MetricName] = {**METRIC_LIMITS, **dict.fromkeys(_SPECIAL, "samples_per_s")}
# Number of runs whose range max_spread limits, and the error level of the statement that a range is larger.
_SPREAD_RUNS, _SPREAD_ERROR = 5, 0.025


class Estimate(NamedTuple):
    """Value to which a limit applies, in the unit of the limit. low, high: ends of its interval; None if the noise is
    unknown, for example for a single run.
    """

    value: float
    low: float | None
    high: float | None


class Limit(NamedTuple):
    """Limit of a metric. name: name of the criterion. key: YAML key of the limit. is_least: whether the limit is a
    minimum. all_runs: whether every run must meet the limit. For a spread, it means that the range of all runs must
    meet the limit, regardless of their number.
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
        scope = f", {'range of all runs' if self.key == 'max_spread' else 'every run'}" if self.all_runs else ""
        return f"{self.label} {'>=' if self.is_least else '<='} {format_value(self.value, self.unit)}{scope}"

    def is_met(self, value: float) -> bool:
        """Return whether a value meets the limit."""
        if math.isclose(value, self.value, rel_tol=1e-9):  # rounding errors are tolerated
            return True
        return value > self.value if self.is_least else value < self.value


def checks(
    name: str,
    criterion: Criterion,
    group: CriterionGroup,
    all_groups: Sequence[CriterionGroup],
    prior: NightPrior = site_spread.assumed,
) -> Iterator[Check]:
    """Yield a check for each limit on a metric that the criterion sets. name: name of the criterion. Scaling efficiency
    compares the group with the groups that made the same measurement on the fewest ranks. It is not checked for the
    groups on the fewest ranks. The check fails if the workload ran on fewer ranks, but only with other settings. prior:
    known variation between nights.
    """
    asked = {key: metric for key, metric in _METRICS.items() if getattr(criterion, key) is not None}
    impossible = {key: text for key, metric in asked.items() if (text := _never(group, metric))}
    for key, text in impossible.items():
        yield _impossible(limit(name, key, criterion), group, criterion, text)
    for key, metric in METRIC_LIMITS.items():
        if key in asked and key not in impossible:
            yield _metric(limit(name, key, criterion), group, metric, prior(group.key, metric))
    if criterion.max_spread is not None and "max_spread" not in impossible:
        yield _spread(limit(name, "max_spread", criterion), group)
    for key in _SLOWDOWNS if mix.alone(group.key.mix) is not None and not _has_fixed_rate(group) else ():
        if getattr(criterion, key) is not None:
            yield _slowdown(limit(name, key, criterion), group, all_groups, prior)
    if criterion.min_scaling_efficiency is not None and "min_scaling_efficiency" not in impossible:
        required = limit(name, "min_scaling_efficiency", criterion)
        if (base := fewest(group, all_groups)) is not None:
            yield _scaling(required, group, base, prior(group.key, "samples_per_s"))
        elif (unlike := _smaller(group, all_groups)) is not None:
            yield _check(required, group, "fail", _incomparable(group, unlike), None, ())


def _has_fixed_rate(group: CriterionGroup) -> bool:
    """Return whether the runs are of a background load (compute.interval)."""
    recorded = group.runs[0].workload if group.runs else None
    computing = recorded.get("compute") if isinstance(recorded, dict) else None
    return isinstance(computing, dict) and computing.get("interval") is not None


def _never(group: CriterionGroup, metric: MetricName) -> str:
    """Return a sentence if the workload of a group can never have a metric. Return "" if the workload can have the
    metric, or is not known.
    """
    recorded = group.runs[0].workload if group.runs else None
    if recorded is None or group.values(metric):
        return ""
    try:
        return metric_owners.never(serialization.convert(recorded, Workload, group.label), metric)
    except ConfigError:  # an older version recorded it
        return ""


def _impossible(required: Limit, group: CriterionGroup, criterion: Criterion, text: str) -> Check:
    """Return the check of a limit on a metric that the workload can never have: the criteria must change."""
    if criterion.optional:
        return _check(required, group, "skipped", text, None, ())
    advice = "name these workloads in the key workload of the criterion, or leave the limit out"
    return _check(required, group, "not_comparable", f"{text}; {advice}", None, ())


def fewest(group: CriterionGroup, groups: Sequence[CriterionGroup]) -> list[CriterionGroup] | None:
    """Return the groups that made the same measurement on the fewest ranks, and among these on the fewest nodes. The
    report of a study compares with the same groups. Return None if the group itself is one of them.
    """
    same = [candidate for candidate in groups if _unscaled(candidate) == _unscaled(group)]
    least = min(map(_scale, same))
    return None if least == _scale(group) else [candidate for candidate in same if _scale(candidate) == least]


def _smaller(group: CriterionGroup, groups: Sequence[CriterionGroup]) -> CriterionGroup | None:
    """Return a group that ran the same workload on fewer ranks, but made another measurement. Return None if there is
    none.
    """
    key = group.key
    alike = (other for other in groups if (other.key.workload, other.key.site) == (key.workload, key.site))
    return next((other for other in alike if other.ranks < group.ranks), None)


def _incomparable(group: CriterionGroup, smaller: CriterionGroup) -> str:
    """Return a sentence with the reason why the scaling efficiency relative to a smaller group is unknown."""
    unscaled = structs.replace(smaller.key, nodes=group.key.nodes, ranks_per_node=group.key.ranks_per_node)
    data = [f"dataset in: {smaller.data} / {group.data}"] if smaller.data != group.data else []
    differences = [*history_entry.differences(unscaled, group.key), *data]
    return f"not comparable with fewer ranks: {smaller.label} differs in {'; '.join(differences)}"


def _scale(group: CriterionGroup) -> tuple[int, int]:
    return group.ranks, group.key.nodes


def _unscaled(group: CriterionGroup) -> tuple[str, ...]:
    """Return the measurement key without the numbers of nodes and ranks, together with the dataset. Groups for which
    the result is equal made the same measurement at different scales.
    """
    key = group.key
    of_place = key.site, key.file_system, key.outputs, key.layout, key.mix, group.data
    return *of_place, key.workload, key.settings, key.version


def limit(name: str, key: str, criterion: Criterion) -> Limit:
    """Return the limit that a criterion sets. name: name of the criterion. key: YAML key of the limit."""
    title, value = criterion.title or name, getattr(criterion, key)
    if (special := _SPECIAL.get(key)) is not None:
        metric, label, is_least = special
        all_runs = criterion.all_runs and key == "max_spread"
        return Limit(name, key, title, metric, label, value, "share", is_least, all_runs)
    if (slowdown := _SLOWDOWNS.get(key)) is not None:
        metric, label, _ = slowdown
        return Limit(name, key, title, metric, label, value, "x", False, criterion.all_runs)
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


def _metric(required: Limit, group: CriterionGroup, metric: MetricName, prior: NightSpread) -> Check:
    check = _values(required, group, metric, group.values(metric), prior)
    needed = _REQUESTS.get(metric, 0)
    fewest = min((run.run.requests for run in group.runs if run.run.requests is not None), default=needed)
    if check.outcome != "pass" or fewest >= needed:
        return check
    text = f"a run has {counted(fewest, 'request')}, and this quantile needs {needed}; set a longer inference.time"
    return structs.replace(check, outcome="inconclusive", text=text)


def _slowdown(required: Limit, group: CriterionGroup, groups: Sequence[CriterionGroup], prior: NightPrior) -> Check:
    """Check the slowdown of a load by other loads: each run, compared with the run of the load alone in the same repeat
    of the same job. If the load has several metrics, such as the rates of phases, the largest slowdown counts.
    """
    key = structs.replace(group.key, mix=mix.alone(group.key.mix))
    bases = [other for other in groups if (other.key, other.data) == (key, group.data)]
    alternatives = _SLOWDOWNS[required.key][-1]
    metrics = next((names for names in alternatives if any(map(group.values, names))), alternatives[0])
    known = [name for name in metrics if any(one.values(name) for one in (group, *bases))] or metrics[:1]
    slowdowns = {name: _slowdowns(name, group, bases) for name in known}
    metric = max(slowdowns, key=lambda name: _severity([value for _, value in slowdowns[name]], len(group.runs)))
    if len(slowdowns) > 1:
        required = required._replace(label=f"{required.label} ({METRICS[metric].noun}, the most slowed)")
    return _values(required, group, "slowest_rank_ratio", slowdowns[metric], prior(group.key, metric))


def _severity(slowdowns: Sequence[float], runs: int) -> float:
    """Return how severe the slowdowns of a metric are: their median, or infinity if a run lacks the metric, for example
    because its requests were not served. runs: number of runs.
    """
    return math.inf if len(slowdowns) < runs else statistics.median(slowdowns)


def _slowdowns(metric: MetricName, group: CriterionGroup, bases: Sequence[CriterionGroup]) -> list[tuple[Ran, float]]:
    """Return the slowdown of each run whose load was measured alone in the same repeat. bases: runs alone."""
    alone = {(run.job, run.run.repeat): value for base in bases for run, value in base.values(metric)}
    pairs = [(run, alone.get((run.job, run.run.repeat)), value) for run, value in group.values(metric)]
    return [(run, (base / value) ** METRICS[metric].sign) for run, base, value in pairs if base and value]


def _values(
    required: Limit, group: CriterionGroup, metric: MetricName, measured: Sequence[tuple[Ran, float]],
    prior: NightSpread,
) -> Check:  # fmt: skip
    """Return the check of a limit on values of runs. metric: metric whose scale the values have."""
    evidence = [_evidence(required, run, value) for run, value in measured]
    if len(measured) < len(group.runs) or not measured:
        lacking = counted(len(group.runs) - len(measured), "run")
        absent = METRICS[metric].absent
        reason = f" (reason: {absent})" if absent else ""
        message = (
            f"not measured: this metric is missing in {lacking} of {len(group.runs)}{reason}; restrict the criterion "
            "to runs that have this metric (keys workload and nodes)"
        )
        return _check(required, group, "fail", message, None, evidence)
    if required.all_runs or required.value == 0:  # a value has no ratio to a limit of 0
        return _every_run(required, group, [value for _, value in measured], evidence)
    scale = LimitScale(metric, required.value, min(value for _, value in measured) <= 0)
    logs = [scale.places(values) for values in _by_night(measured)]
    level = night_intervals.level(logs, prior)
    estimate = _estimate(required, scale, level)
    is_assumed = night_intervals.are_runs_assumed(logs, prior)
    verdict = _judged(
        required,
        estimate,
        runs=_runs_of_nights(len(measured), len(logs)),
        about=night_intervals.about_nights(level.spread, level.nights, prior, is_assumed),
        settled_by=functools.partial(_settled_by, level, len(measured), night_intervals.of_levels(logs, prior)),
    )
    return _check(required, group, *verdict, estimate, evidence)


def _by_night(measured: Sequence[tuple[Ran, float]]) -> list[list[float]]:
    """Return the values of each night, in the order of the nights."""
    nights: dict[str, list[float]] = {}
    for ran, value in measured:
        nights.setdefault(ran.night, []).append(value)
    return [values for _, values in sorted(nights.items())]


def _estimate(required: Limit, scale: LimitScale, level: SampledLevel) -> Estimate:
    """Return the estimate in the unit of the metric. A share is at most 100 %."""
    value, *ends = (scale.value(place) for place in (level.value, level.low, level.high))
    if math.isinf(level.high):
        return Estimate(value, None, None)
    return Estimate(value, min(ends), min(max(ends), max(1.0, value)) if required.unit == "share" else max(ends))


def _runs_of_nights(runs: int, nights: int) -> str:
    return f"{counted(runs, 'run')} {'of one night' if nights == 1 else f'of {nights} nights'}"


def _settled_by(level: SampledLevel, runs: int, prior: NightSpread) -> str:
    """Return a sentence on the measurements that are needed to decide whether a limit is met. The limit has position 0.
    prior: known variation between the levels of nights.
    """
    if prior.sd == 0:
        return _repeats_words(night_intervals.runs_needed(level.spread, runs, abs(level.value)))
    needed = night_intervals.nights_needed(level.spread, level.nights, prior, abs(level.value))
    return _nights_words(needed, level.nights)


def _nights_words(needed: int | None, nights: int) -> str:
    """Return a sentence on the nights that are needed to decide whether a limit is met. needed: number of these nights,
    including the present ones; None if there would be too many. nights: number of the present nights.
    """
    if needed is None:
        return f"the value is so close to the limit that {night_intervals.MOST} nights would not give a decision"
    more = needed - nights
    return (
        f"{more} more night{'s' if more > 1 else ''} would give a decision: dlio-submit ... --nights {more}, "
        "accepted together with these runs"
    )


def _repeats_words(runs: int | None) -> str:
    if runs is None:
        return f"the value is so close to the limit that {night_intervals.MOST} runs would not give a decision"
    return f"{runs} runs would give a decision: dlio-submit ... --repeat {runs}"


def _evidence(required: Limit, run: Ran, value: float) -> Evidence:
    text = format_value(value, required.unit)
    return Evidence(run.job, run.run.run, value, text, required.is_met(value), run.night)


def _every_run(required: Limit, group: CriterionGroup, values: list[float], evidence: list[Evidence]) -> Check:
    worst = min(values) if required.is_least else max(values)
    missed = sum(not run_evidence.is_met for run_evidence in evidence)
    result = f"{missed} of {counted(len(values), 'run')} fail" if missed else f"all {len(values)} pass"
    message = f"worst run {format_value(worst, required.unit)}, {result}"
    return _check(required, group, "fail" if missed else "pass", message, Estimate(worst, None, None), evidence)


def _judged(
    required: Limit, estimate: Estimate, runs: str, about: str, settled_by: Callable[[], str]
) -> tuple[Outcome, str]:
    """Return the outcome of a limit, and a description of the result. estimate: estimate of the value to which the
    limit applies. runs: phrase for the runs from which the estimate is computed. about: phrase for the variation
    between nights. settled_by: function that returns a sentence on the measurements that are needed for a decision.
    """
    value = f"{format_value(estimate.value, required.unit)} in {runs}"
    if estimate.low is None or estimate.high is None:
        return "inconclusive", f"{value}; {about}; the noise of runs is unknown; repeat the measurement (--repeat)"
    low, high = (format_value(end, required.unit) for end in (estimate.low, estimate.high))
    message = f"{value}, 96 % interval {low} to {high}"
    ends = required.is_met(estimate.low), required.is_met(estimate.high)
    if any(ends) and not all(ends):
        return "inconclusive", f"{message}: the limit is within the interval; {about}; {settled_by()}"
    return "pass" if all(ends) else "fail", f"{message}; {about}"


def _spread(required: Limit, group: CriterionGroup) -> Check:
    measured = group.values("samples_per_s")
    values = [value for _, value in measured]
    median = quantiles.median(np.array(values)) if values else 0.0
    evidence = [
        Evidence(
            run.job, run.run.run, value / median - 1 if median else None, format_value(value, "1/s"), night=run.night
        )
        for run, value in measured
    ]
    if len(values) < 2 or not median:
        message = f"the spread of {counted(len(values), 'run')} is unknown; repeat the measurement (--repeat)"
        return _check(required, group, "inconclusive", message, None, evidence)
    spread = (max(values) - min(values)) / median
    message = (
        f"{format_value(min(values), '1/s')} to {format_value(max(values), '1/s')} in {counted(len(values), 'run')}"
    )
    if required.all_runs:
        verdict: Outcome = "pass" if required.is_met(spread) else "fail"
        return _check(required, group, verdict, message, Estimate(spread, None, None), evidence)
    of_five = spread * normal_range.mean(_SPREAD_RUNS) / normal_range.mean(len(values))
    if len(values) != _SPREAD_RUNS:
        measured_range, scaled = (format_value(value, "share") for value in (spread, of_five))
        message += f", a range of {measured_range}, which corresponds to {scaled} in {_SPREAD_RUNS} runs"
    verdict, more = _spread_outcome(required, of_five, len(values))
    return _check(required, group, verdict, message + more, Estimate(of_five, None, None), evidence)


def _spread_outcome(required: Limit, of_five: float, runs: int) -> tuple[Outcome, str]:
    """Return the outcome of a spread, and a sentence on what is needed for a decision. of_five: measured range, scaled
    to five runs. The outcome is `fail` if such a range would be unlikely even if the true range were equal to the
    limit.
    """
    if required.is_met(of_five):
        return "pass", ""
    ratio = of_five / required.value if required.value else math.inf

    def is_beyond_chance(count: int) -> bool:
        return normal_range.is_exceeded(ratio * normal_range.mean(count), count) < _SPREAD_ERROR

    if is_beyond_chance(runs):
        return "fail", ""
    needed = next((count for count in range(runs + 1, night_intervals.MOST + 1) if is_beyond_chance(count)), None)
    return "inconclusive", f": above the limit, but not by more than chance; {_repeats_words(needed)}"


class _JobRates(NamedTuple):
    """Rates of a job. logs: logarithms of samples/s per rank, one per run. level: logarithm of the median rate."""

    logs: Floats
    level: float


class _Scales(NamedTuple):
    """Rates of the jobs of two scales. base: jobs with the fewest ranks."""

    jobs: list[_JobRates]
    base: list[_JobRates]

    @property
    def base_level(self) -> float:
        """Logarithm of samples/s per rank on the fewest ranks."""
        return float(np.mean([job.level for job in self.base]))

    @property
    def efficiency(self) -> float:
        """Logarithm of the scaling efficiency."""
        return float(np.mean([job.level for job in self.jobs])) - self.base_level

    @property
    def fewest(self) -> int:
        """Number of jobs at the scale that has fewer jobs."""
        return min(len(self.jobs), len(self.base))

    @property
    def logs(self) -> list[Floats]:
        """Runs of the jobs of both scales."""
        return [job.logs for job in (*self.jobs, *self.base)]


def _scaling(required: Limit, group: CriterionGroup, base: Sequence[CriterionGroup], prior: NightSpread) -> Check:
    """Check scaling efficiency: samples/s per rank in the group, divided by samples/s per rank in the groups `base`.
    base: the groups with the fewest ranks. As in the report of a study, the unit of the analysis is the job.
    """
    measured = group.values("samples_per_s")
    base_values = [value for part in base for _, value in part.values("samples_per_s")]
    if not measured or not base_values or min([*base_values, *(value for _, value in measured)]) <= 0:
        return _check(required, group, "fail", "no samples/s to compare", None, ())
    scales = _Scales(_by_job([group]), _by_job(base))
    spread, share = _of_difference(scales, prior)
    estimate = _efficiency(scales, spread, share)
    ranks = f"{base[0].ranks} rank{'s' if base[0].ranks > 1 else ''}"
    is_assumed = night_intervals.are_runs_assumed(scales.logs, prior)
    against = _runs_of_jobs(len(base_values), len(scales.base))
    verdict = _judged(
        required,
        estimate,
        runs=f"{_runs_of_jobs(len(measured), len(scales.jobs))}, against {against} on {ranks}",
        about=night_intervals.about_nights(spread, scales.fewest, prior, is_assumed),
        settled_by=functools.partial(_scaling_settled_by, required, scales, spread, prior),
    )
    evidence = [_evidence(required, run, rate / group.ranks / math.exp(scales.base_level)) for run, rate in measured]
    return _check(required, group, *verdict, estimate, evidence)


def _efficiency(scales: _Scales, spread: NightSpread, share: float) -> Estimate:
    """Return the scaling efficiency. spread, share: as returned by _of_difference()."""
    value = math.exp(scales.efficiency)
    half = night_intervals.half_width(spread, share) if spread.df > 0 else math.inf
    if math.isinf(half):
        return Estimate(value, None, None)
    return Estimate(value, value * math.exp(-half), value * math.exp(half))


def _scaling_settled_by(required: Limit, scales: _Scales, spread: NightSpread, prior: NightSpread) -> str:
    """Return a sentence on the measurements that are needed to decide on a scaling efficiency."""
    if prior.sd == 0:
        return "more runs would give a decision (--repeat)"
    margin = abs(scales.efficiency - math.log(required.value)) if required.value else math.inf
    known = night_intervals.of_levels(scales.logs, prior)
    needed = night_intervals.nights_needed(spread, scales.fewest, known, margin, sides=2)
    return _nights_words(needed, scales.fewest)


def _by_job(groups: Sequence[CriterionGroup]) -> list[_JobRates]:
    rates: dict[str, list[float]] = {}
    for part in groups:
        for ran, value in part.values("samples_per_s"):
            rates.setdefault(ran.job, []).append(value / part.ranks)
    return [_JobRates(np.log(values), float(np.log(np.median(values)))) for values in rates.values()]


def _runs_of_jobs(runs: int, jobs: int) -> str:
    return f"{counted(runs, 'run')} of {counted(jobs, 'job')}"


def _of_difference(scales: _Scales, prior: NightSpread) -> tuple[NightSpread, float]:
    """Return the variation on which the difference between the levels of two scales depends. Also return the variance
    of the difference, divided by the variance of this variation.
    """
    sides = (scales.jobs, scales.base)
    if prior.sd == 0:
        return _of_runs([np.concatenate([job.logs for job in side]) for side in sides]), 1.0
    own_df = sum(map(len, sides)) - 2
    squares = sum(float(np.var([job.level for job in side])) * len(side) for side in sides)
    own = NightSpread(math.sqrt(squares / own_df) if own_df else 0.0, own_df)
    known = night_intervals.of_levels(scales.logs, prior)
    return variation.combined(own, known), sum(1 / len(side) for side in sides)


def _of_runs(sides: Sequence[Floats]) -> NightSpread:
    """Return the variation of the difference between the means of two samples of runs."""
    if min(map(len, sides)) < 2:
        return NightSpread(0.0, 0, "runs")
    variances = [float(logs.var(ddof=1)) / len(logs) for logs in sides]
    if not any(variances):
        return NightSpread(0.0, sum(map(len, sides)) - 2, "runs")
    variance, df = job_spread.combined(variances, [len(logs) - 1 for logs in sides])
    return NightSpread(math.sqrt(variance), df, "runs")
