"""Comparison of the settings in a part of a study: the best setting, its lead, and whether the lead exceeds the noise.

The logarithms of metrics are compared. Verdicts depend only on the intervals of study.ratios. Numbers of ranks are
compared in study.scaling, and two file systems in study.file_system_pairs; neither is a setting here.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.quantiles import median
from dlio_hpc.analysis.study import main_effects, ratios, replicates, scaling
from dlio_hpc.analysis.study.job_spread import ASSUMED, JobSpread
from dlio_hpc.analysis.study.main_effects import Ranking, RecommendedChange
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.ratios import Estimates, Noise
from dlio_hpc.analysis.study.replicates import Fit, Floats, Ints
from dlio_hpc.analysis.study.scaling import Scaling
from dlio_hpc.base.units import counted, format_seconds
from dlio_hpc.plan.study import Part, Point, Study
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.results.run_result import Summary

Verdict = Literal["best", "same as best", "slower", "unknown"]
# Key whose values are loads, and not settings to choose from.
_USERS = "inference.users"


class Spread(Struct, frozen=True):
    """Median and range of a metric over the repeats of a point."""

    median: float
    min: float
    max: float


class PointMetrics(Struct, frozen=True):
    """Metrics of a point over its repeats. point: number of the point. labels: values of the study's parameters at the
    point, by key. n: number of repeats. metrics: median and range of each metric, by name, without metrics that no
    repeat has. from_storage: share of the bytes read that came from storage; it is the smallest share over all repeats
    and epochs, or None if it is unknown.
    """

    point: int
    labels: dict[str, str]
    nodes: int
    ranks_per_node: int
    n: int
    metrics: dict[MetricName, Spread]
    from_storage: float | None


class JudgedPoint(Struct, frozen=True):
    """Comparison of a point with the other points. point: number of the point. to_best: metric of the point, divided by
    the metric of the best of the other points; above 1 if the point is better (1.1: better by a tenth; ratios of times
    are inverted). low, high: 95 % interval of to_best. to_reference: metric of the point, divided by the metric of the
    reference point; None if the reference point was not measured. reference_low, reference_high: 95 % interval of
    to_reference. The intervals are simultaneous: with 95 % confidence, all intervals of the part contain the true
    ratio. Ends of intervals are None if the noise is unknown, or if a point is compared with itself.
    """

    point: int
    to_best: float
    low: float | None
    high: float | None
    to_reference: float | None
    reference_low: float | None
    reference_high: float | None
    verdict: Verdict


class Gain(Struct, frozen=True):
    """Ratio of the best point to the reference point. low, high: interval of the ratio; None if the noise is unknown.
    confidence: share of noise-only simulations in which the largest difference between any two points, in standard
    errors, is smaller than the difference between the best point and the reference point; None if the noise is unknown,
    or if the reference point is the best. is_beyond_noise: whether the interval excludes 1.
    """

    ratio: float
    low: float | None
    high: float | None
    confidence: float | None
    is_beyond_noise: bool


class Comparison(Struct, frozen=True):
    """Comparison of points that differ only in their settings. nodes, ranks_per_node: numbers of nodes and of ranks per
    node, the same for all these points. data: folder of the datasets of these points if the study compares two file
    systems; None otherwise. best: number of the best point. reference: number of the reference point; None if it was
    not measured. gain: ratio of the best point to the reference point; None if the reference point was not measured.
    recommended: number of the recommended point; None if the noise is unknown. It is the reference with the recommended
    change, if there is one, otherwise the simplest point that cannot be distinguished from the best. ranking:
    parameters, ranked by their effect; None if no parameter varies. change: change of the reference that the effects of
    parameters recommend; None if they recommend none. Effects are computed from all measurements, so they can show
    differences that are too small for a comparison of single points.
    """

    nodes: int
    ranks_per_node: int
    points: tuple[JudgedPoint, ...]
    noise: Noise
    best: int
    reference: int | None
    gain: Gain | None
    recommended: int | None
    ranking: Ranking | None
    data: str | None = None
    change: RecommendedChange | None = None

    def of(self, point: int) -> JudgedPoint | None:
        """Return the comparison of the point with this number, or None if it was not compared."""
        return next((judged for judged in self.points if judged.point == point), None)


class Finding(Struct, frozen=True):
    """Results of a part of a study. points: the measured points of the part. comparisons: comparisons of points with
    the same number of ranks; empty if the part varies no settings. scalings: scaling of each setting; empty if the
    number of ranks does not vary. unusable: reason why some measurements cannot be compared by the metric; None if all
    can be compared. confounded: reason why the comparison of settings shows something else than how fast data are read;
    None if there is none.
    """

    part: str
    title: str
    metric: MetricName
    points: tuple[PointMetrics, ...]
    comparisons: tuple[Comparison, ...]
    scalings: tuple[Scaling, ...]
    unusable: str | None = None
    confounded: str | None = None


def findings(
    study: Study, measured: Sequence[Measured], metric: MetricName | None = None, assumed: JobSpread = ASSUMED
) -> tuple[Finding, ...]:
    """Return the results of each part of a study. metric: metric by which points are compared; None for the metric of
    each part. assumed: variation between jobs that is assumed if the measurements do not show this variation. A part
    without measurements has no comparisons.
    """
    return tuple(_finding(study, part, measured, metric or part.metric, assumed) for part in study.parts)


def _finding(study: Study, part: Part, measured: Sequence[Measured], metric: MetricName, assumed: JobSpread) -> Finding:
    points = {point.number: point for point in study.points if point.part == part.name}
    mine = [measurement for measurement in measured if measurement.point in points]
    by_point: dict[int, list[Measured]] = {}
    for measurement in mine:
        by_point.setdefault(measurement.point, []).append(measurement)
    usable = [measurement for measurement in mine if (METRICS[metric].value(measurement.summary) or 0) > 0]
    groups = [group for group in _groups(part, points.values()) if len(group) > 1]
    fits = {place: fitted for place, group in enumerate(groups) if (fitted := _fit(group, usable, metric)) is not None}
    families = max(1, bool(fits) + part.is_scaling)
    estimates = ratios.of_pairs([fitted for _, fitted in fits.values()], families, assumed)
    pairs = zip(fits.items(), estimates, strict=True)
    effects_families = families * max(1, len(fits))
    comparisons = [
        _compare(study, part, groups[place], numbers, fitted, effects_families)
        for (place, (numbers, _)), fitted in pairs
    ]
    return Finding(
        part=part.name,
        title=part.title,
        metric=metric,
        points=tuple(_metrics(study, points[number], by_point[number]) for number in sorted(by_point)),
        comparisons=tuple(comparisons),
        scalings=scaling.scalings(study, part, mine, families, assumed) if part.is_scaling else (),
        unusable=_unusable(metric, len(mine) - len(usable)),
        confounded=_confounded(part, list(points.values())),
    )


def _unusable(metric: MetricName, count: int) -> str | None:
    if not count:
        return None
    absent = METRICS[metric].absent
    reason = f" (absent or 0: {absent})" if absent else ""
    return f"{metric} is unknown or 0 in {counted(count, 'measurement')}, which are not compared{reason}"


def _confounded(part: Part, points: Sequence[Point]) -> str | None:
    """Return the reason why settings of a part cannot be compared: steps of several batch sizes compute equally long,
    so that the computation per sample differs. Return None if there is no such reason.
    """
    of_times: dict[float, set[int]] = {}
    for point in points:
        of_times.setdefault(float(point.workload.compute.time.mean), set()).add(point.workload.reader.batch_size)
    concerned = {time_s: sizes for time_s, sizes in of_times.items() if time_s and len(sizes) > 1}
    if "reader.batch_size" not in {axis.key for axis in part.settings} or not concerned:
        return None
    seconds, sizes = next((time_s, sorted(known)) for time_s, known in concerned.items())
    few, many = (format_seconds(seconds / size) for size in (sizes[0], sizes[-1]))
    return (
        f"compute.time is {format_seconds(seconds)} a step for several batch sizes, so a sample takes {few} of "
        f"computation with batch_size={sizes[0]} and {many} with batch_size={sizes[-1]}; to compare how batches are "
        "read, set compute.time=0"
    )


def _groups(part: Part, points: Iterable[Point]) -> list[list[Point]]:
    """Return the groups of points that are compared with each other. The points of a group have the same number of
    nodes and ranks, the same file system, and the same number of users of a language model, because these are the load
    and not a choice. The group with the most ranks is last. Return an empty list if the part varies no other settings.
    """
    if not {axis.key for axis in part.settings} - {_USERS}:
        return []
    groups: dict[tuple[int, int, str, int], list[Point]] = {}
    for point in points:
        users = 0 if point.workload.inference is None else point.workload.inference.users
        groups.setdefault((point.nodes, point.ranks_per_node, point.data or "", users), []).append(point)
    return [groups[place] for place in sorted(groups, key=lambda place: (place[0] * place[1], place))]


def _metrics(study: Study, point: Point, measured: Sequence[Measured]) -> PointMetrics:
    mine = [measurement.summary for measurement in measured]
    return PointMetrics(
        point=point.number,
        labels=study.labels(point),
        nodes=point.nodes,
        ranks_per_node=point.ranks_per_node,
        n=len(mine),
        metrics={name: spread for name in METRICS if (spread := _spread(mine, name)) is not None},
        from_storage=_from_storage(measured),
    )


def _from_storage(measured: Sequence[Measured]) -> float | None:
    """Return the share of the bytes of a point that came from storage. It is the smallest share over all repeats and
    epochs. Return None if the share is unknown for at least one repeat.
    """
    cached = [measurement.cached for measurement in measured if measurement.cached is not None]
    return 1 - max(cached) if cached and len(cached) == len(measured) else None


def _spread(summaries: Sequence[Summary], metric: MetricName) -> Spread | None:
    known = [value for summary in summaries if (value := METRICS[metric].value(summary)) is not None]
    return Spread(median(np.array(known)), min(known), max(known)) if known else None


def _fit(group: Sequence[Point], measured: Sequence[Measured], metric: MetricName) -> tuple[list[int], Fit] | None:
    """Return the point numbers of the measured points of a group, and a fit to their measurements. Return None if fewer
    than two points were measured.
    """
    known = {measurement.point for measurement in measured}
    places = {number: place for place, number in enumerate(point.number for point in group if point.number in known)}
    if len(places) < 2:
        return None
    mine = [measurement for measurement in measured if measurement.point in places]
    sign = METRICS[metric].sign
    levels = np.array([METRICS[metric].value(measurement.summary) or 1.0 for measurement in mine])
    points = np.array([places[measurement.point] for measurement in mine])
    jobs = np.unique([measurement.job for measurement in mine], return_inverse=True)[1]
    repeats = np.array([measurement.repeat for measurement in mine])
    fit = _fit_of_jobs(points, jobs, repeats, sign * np.log(levels))
    return list(places), fit._replace(medians=sign * replicates.log_medians(points, levels))


def _fit_of_jobs(points: Ints, jobs: Ints, repeats: Ints, values: Floats) -> Fit:
    """Return a fit of points and rounds. A round is one repeat in one job, so that differences between jobs are removed
    from the results. If the effects of these rounds cannot be estimated, jobs are the rounds. If the effects of jobs
    cannot be estimated either, because jobs have no points in common, the variation between jobs is assumed and widens
    the intervals.
    """
    if not jobs.any():
        return replicates.fit(points, repeats, values)
    for rounds in (jobs * (int(repeats.max()) + 1) + repeats, jobs):
        fit = replicates.fit(points, rounds, values)
        if fit.spread.size:
            return fit
    table = np.zeros((int(points.max()) + 1, int(jobs.max()) + 1))
    np.add.at(table, (points, jobs), 1)
    return fit._replace(runs_of_job=int(table.max()))


def _compare(
    study: Study, part: Part, group: Sequence[Point], numbers: Sequence[int], estimates: Estimates, families: int
) -> Comparison:
    wanted = _reference(study, part, group)
    reference = numbers.index(wanted) if wanted in numbers else None
    best = int(np.argmax(estimates.fit.levels))
    points = _judged(numbers, estimates, best, reference)
    analysis = main_effects.analysis(part, [study.points[number] for number in numbers], estimates.fit, families)
    recommended = _recommended(study, points, numbers[best], wanted)
    change = None
    if analysis is not None and wanted is not None:
        change = analysis.change(study.points[wanted].labels(part.settings))
        changed = _changed(part, group, study.points[wanted], change)
        if changed is None or any(judged.point == changed and judged.verdict == "slower" for judged in points):
            change = None
        else:
            recommended = changed
    return Comparison(
        nodes=group[0].nodes,
        ranks_per_node=group[0].ranks_per_node,
        data=group[0].data,
        points=points,
        noise=estimates.noise,
        best=numbers[best],
        reference=None if reference is None else numbers[reference],
        gain=None if reference is None else _gain(estimates, best, reference),
        recommended=recommended,
        ranking=None if analysis is None else analysis.ranking,
        change=change,
    )


def _changed(part: Part, group: Sequence[Point], reference: Point, change: RecommendedChange | None) -> int | None:
    """Return the number of the point that has the reference's settings with a change applied. Return None if there is
    no change or no such point. The point need not have been measured.
    """
    if change is None:
        return None
    wanted = reference.labels(part.settings) | change.settings
    return next((point.number for point in group if point.labels(part.settings) == wanted), None)


def _judged(numbers: Sequence[int], estimates: Estimates, best: int, reference: int | None) -> tuple[JudgedPoint, ...]:
    values = estimates.fit.levels
    second = int(np.argmax(np.where(np.arange(len(values)) == best, -np.inf, values)))
    judged = []
    for place, number in enumerate(numbers):
        to_best = estimates.ratio(place, second if place == best else best)
        verdict: Verdict = "unknown"
        if estimates.critical is not None:
            verdict = "best" if place == best else "slower" if to_best.is_apart() else "same as best"
        value, low, high = (None, None, None) if reference is None else estimates.ratio(place, reference)
        judged.append(JudgedPoint(number, *to_best, value, low, high, verdict))
    return tuple(judged)


def _gain(estimates: Estimates, best: int, reference: int) -> Gain:
    ratio = estimates.ratio(best, reference)
    return Gain(*ratio, estimates.confidence(best, reference), ratio.is_apart())


def _reference(study: Study, part: Part, group: Sequence[Point]) -> int | None:
    """Return the number of the reference point of a group of points. If the reference point of the part is in the
    group, return the number of that point. Otherwise, return the number of the point in the group that has the same
    settings as the reference point of the part, but another number of ranks or another file system. Return None if the
    group has no such point.
    """
    usual = study.points[part.reference].places
    keys = [axis.key for axis in part.settings]
    own = [point.number for point in group if point.number == part.reference]
    alike = [point.number for point in group if all(point.places[key] == usual[key] for key in keys)]
    return next(iter(own or alike), None)


def _recommended(study: Study, points: Sequence[JudgedPoint], best: int, reference: int | None) -> int | None:
    """Return the number of the recommended point, or None if the noise is unknown. If there is no reference point, this
    is the best point. If the reference point cannot be distinguished from the best point, it is the reference point.
    Otherwise, it is one of the points that cannot be distinguished from the best point and are better than the
    reference point by more than the noise. Among these points, the one that is nearest to the reference point is
    recommended: first by the number of keys that differ, then by the distance of the values in the lists of values.
    Among equally near points, the best is recommended.
    """
    good = {judged.point: judged for judged in points if judged.verdict in ("best", "same as best")}
    if not good:
        return None
    if reference is None:
        return best
    if reference in good:
        return reference
    usual = study.points[reference].places

    def effort(judged: JudgedPoint) -> tuple[int, int, float]:
        places = study.points[judged.point].places
        steps = [abs(places[key] - usual[key]) for key in usual]
        return sum(step > 0 for step in steps), sum(steps), -(judged.to_reference or 0.0)

    better = [judged for judged in good.values() if judged.reference_low is None or judged.reference_low > 1]
    return min(better, key=effort).point
