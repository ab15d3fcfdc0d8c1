"""Which setting of a study's part is best, by how much, and whether the difference is more than noise.

Everything is judged on logarithms. First: do any two points differ at all (the range of all of them, after Tukey)? If
so, whose estimates are too far below the best for noise: multiple comparisons with the best (J. C. Hsu, Annals of
Statistics 9, 1981; Multiple Comparisons, 1996, section 4.1), with critical values drawn from the design as it is.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis import effects, replicates, scaling
from dlio_hpc.analysis.effects import Ranking
from dlio_hpc.analysis.measured import Measured
from dlio_hpc.analysis.replicates import SURE, Draws, Fit
from dlio_hpc.analysis.scaling import Scaling
from dlio_hpc.results import Summary
from dlio_hpc.study import Metric, Part, Point, Study

# Of these less is better.
COSTS: frozenset[Metric] = frozenset({"wall_s", "io_time_s"})
# That anything differs at all must be surer: so that 2 % in the midst of 5 % of noise are no finding, 19 times of 20.
_SURER = 0.975
Verdict = Literal["best", "same as best", "slower", "unknown"]


class Spread(Struct, frozen=True):
    """Of a figure over a point's repeats."""

    median: float
    min: float
    max: float


class PointFigures(Struct, frozen=True):
    """A point over its n repeats; None where none of them has the figure. from_storage: share of the bytes read
    that came from storage, in the repeat and epoch that had least; None where nobody knows.
    """

    point: int
    labels: dict[str, str]
    nodes: int
    ranks_per_node: int
    n: int
    wall_s: Spread | None
    read_MBps: Spread | None
    samples_per_s: Spread | None
    io_time_s: Spread | None
    au: Spread | None
    from_storage: float | None


class Judged(Struct, frozen=True):
    """A point among others. to_best: how good it is, as a share of the best of the others (1.1: better by a tenth;
    times are turned round), low and high: within which that is, jointly for all points; None: noise is unknown.
    to_reference: likewise against the reference; None where that was not measured.
    """

    point: int
    to_best: float
    low: float | None
    high: float | None
    to_reference: float | None
    verdict: Verdict


class Noise(Struct, frozen=True):
    """sd: of a single measurement, relative; None where it is unknown. df: its degrees of freedom. are_rounds_apart:
    was what a round's measurements have in common told from it? drift: between the best round and the worst.
    """

    sd: float | None
    df: int
    are_rounds_apart: bool
    drift: float


class Gain(Struct, frozen=True):
    """Of the best over the reference, as a ratio; low, high: an interval of 95 % that allows for its having been chosen
    as the best of all. confidence: share of draws in which noise alone does less. None: noise is unknown.
    """

    ratio: float
    low: float | None
    high: float | None
    confidence: float | None
    is_beyond_noise: bool


class Comparison(Struct, frozen=True):
    """Points that differ in their settings only. nodes, ranks_per_node: that all of them have; None where these vary
    (and nothing else). recommended: the simplest of those that cannot be told from the best; None where nothing can be
    told. reference, gain: None where the reference was not measured.
    """

    nodes: int | None
    ranks_per_node: int | None
    points: tuple[Judged, ...]
    noise: Noise
    best: int
    reference: int | None
    gain: Gain | None
    recommended: int | None
    ranking: Ranking | None

    def of(self, point: int) -> Judged | None:
        return next((judged for judged in self.points if judged.point == point), None)


class Finding(Struct, frozen=True):
    """Of a part. points: all of its that were measured. unusable: why its metric cannot be compared."""

    part: str
    title: str
    metric: Metric
    points: tuple[PointFigures, ...]
    comparisons: tuple[Comparison, ...]
    scalings: tuple[Scaling, ...]
    unusable: str | None = None


def findings(study: Study, measured: Sequence[Measured], metric: Metric | None = None) -> tuple[Finding, ...]:
    """Of each part; by its own metric, unless told. Nothing measured yet: nothing compared."""
    return tuple(_finding(study, part, measured, metric or part.metric) for part in study.parts)


def value(summary: Summary, metric: Metric) -> float | None:
    found: float | None = getattr(summary, metric)
    return found


def _finding(study: Study, part: Part, measured: Sequence[Measured], metric: Metric) -> Finding:
    points = {point.number: point for point in study.points if point.part == part.name}
    mine = [each for each in measured if each.point in points]
    by_point: dict[int, list[Measured]] = {}
    for each in mine:
        by_point.setdefault(each.point, []).append(each)
    usable = [each for each in mine if (value(each.summary, metric) or 0) > 0]
    groups = [group for group in _groups(part, points.values()) if len(group) > 1]
    fits = {place: fitted for place, group in enumerate(groups) if (fitted := _fit(group, usable, metric)) is not None}
    pooled = replicates.pooled([fitted for _, fitted in fits.values()])
    pairs = zip(fits.items(), pooled, strict=True)
    found = [_compare(study, part, groups[place], numbers, fitted) for (place, (numbers, _)), fitted in pairs]
    return Finding(
        part=part.name,
        title=part.title,
        metric=metric,
        points=tuple(_figures(study, points[number], by_point[number]) for number in sorted(by_point)),
        comparisons=tuple(found),
        scalings=scaling.scalings(study, part, mine) if part.is_scaling else (),
        unusable=_unusable(metric, len(mine) - len(usable)),
    )


def _unusable(metric: Metric, count: int) -> str | None:
    if not count:
        return None
    why = {"io_time_s": " (TensorFlow does not tell when it reads)", "read_MBps": " (format null reads nothing)"}
    return f"{metric} is unknown or 0 in {count} measurement(s), which are not compared{why.get(metric, '')}"


def _groups(part: Part, points: Any) -> list[list[Point]]:
    """Points to be compared: those on the same nodes and ranks, the most ranks last; all of them, where nothing else
    varies.
    """
    if not part.axes:
        return [list(points)]
    groups: dict[tuple[int, int], list[Point]] = {}
    for point in points:
        groups.setdefault((point.nodes, point.ranks_per_node), []).append(point)
    return [groups[scale] for scale in sorted(groups, key=lambda scale: (scale[0] * scale[1], scale))]


def _figures(study: Study, point: Point, measured: Sequence[Measured]) -> PointFigures:
    mine = [one.summary for one in measured]
    return PointFigures(
        point=point.number,
        labels=study.labels(point),
        nodes=point.nodes,
        ranks_per_node=point.ranks_per_node,
        n=len(mine),
        wall_s=_spread(mine, "wall_s"),
        read_MBps=_spread(mine, "read_MBps"),
        samples_per_s=_spread(mine, "samples_per_s"),
        io_time_s=_spread(mine, "io_time_s"),
        au=_spread(mine, "au"),
        from_storage=_from_storage(measured),
    )


def _from_storage(measured: Sequence[Measured]) -> float | None:
    """Of the repeat and epoch that had least from there."""
    cached = [one.cached for one in measured if one.cached is not None]
    return 1 - max(cached) if cached and len(cached) == len(measured) else None


def _spread(summaries: Sequence[Summary], metric: Metric) -> Spread | None:
    known = [found for summary in summaries if (found := value(summary, metric)) is not None]
    return Spread(float(np.median(known)), min(known), max(known)) if known else None


def _fit(group: Sequence[Point], measured: Sequence[Measured], metric: Metric) -> tuple[list[int], Fit] | None:
    """The points that were measured, by their numbers, and what was; None where they are fewer than two."""
    known = {each.point for each in measured}
    places = {number: place for place, number in enumerate(point.number for point in group if point.number in known)}
    if len(places) < 2:
        return None
    mine = [each for each in measured if each.point in places]
    sign = -1.0 if metric in COSTS else 1.0
    logs = np.array([sign * np.log(value(each.summary, metric) or 1.0) for each in mine])
    points, rounds = np.array([places[each.point] for each in mine]), np.array([each.repeat for each in mine])
    return list(places), replicates.fit(points, rounds, logs)


def _compare(study: Study, part: Part, group: Sequence[Point], numbers: Sequence[int], found: Fit) -> Comparison:
    draws = replicates.draw(found) if found.is_noise_known else None
    told = _judge(found, draws)
    wanted = _reference(study, part, group)
    reference = numbers.index(wanted) if wanted in numbers else None
    scales = {(point.nodes, point.ranks_per_node) for point in group}
    nodes, ranks_per_node = scales.pop() if len(scales) == 1 else (None, None)
    return Comparison(
        nodes=nodes,
        ranks_per_node=ranks_per_node,
        points=_judged(numbers, found, told, reference),
        noise=_noise(found),
        best=numbers[told.best],
        reference=None if reference is None else numbers[reference],
        gain=None if reference is None else _gain(found, draws, told, reference),
        recommended=_recommended(study, numbers, found, told, wanted) if draws is not None else None,
        ranking=effects.ranking(part, [study.points[number] for number in numbers], found),
    )


class _Told(NamedTuple):
    """differ: do any two points? critical: (P) by how many standard errors a point must be below another one, not to be
    the best. is_good: (P) it may be the best. low, high: (P) the logarithm of its ratio to the best of the others.
    """

    best: int
    differ: bool
    critical: Any
    is_good: Any
    low: Any
    high: Any


def _judge(found: Fit, draws: Draws | None) -> _Told:
    count = len(found.values)
    best = int(np.argmax(found.values))
    if draws is None:
        return _Told(best, False, None, np.ones(count, bool), None, None)
    of_pattern = [float(np.quantile(each, 1 - (1 - SURE) / 2)) for each in draws.against]
    critical = np.array([of_pattern[pattern] for pattern in replicates.patterns(found)])
    apart = float(np.quantile(draws.apart, _SURER))
    errors = found.errors
    differences = found.values[:, None] - found.values[None, :]
    differ = bool((differences > apart * errors)[~np.eye(count, dtype=bool)].any())
    if not differ:  # then no two points are told apart, whichever way they are looked at
        critical = np.maximum(critical, apart)
    np.fill_diagonal(differences, np.inf)
    most = (differences + critical[:, None] * errors).min(axis=1)
    good = most > 0
    least = np.where(good[None, :], differences - critical[None, :] * errors, np.inf)
    np.fill_diagonal(least, np.inf)
    low = np.minimum(least.min(axis=1), 0.0)
    return _Told(best, differ, critical, good, low, np.maximum(most, 0.0))


def _judged(numbers: Sequence[int], found: Fit, told: _Told, reference: int | None) -> tuple[Judged, ...]:
    judged = []
    for place, number in enumerate(numbers):
        others = np.delete(found.values, place)
        verdict: Verdict = "unknown"
        if told.low is not None:
            verdict = "best" if place == told.best else "same as best" if told.is_good[place] else "slower"
        judged.append(
            Judged(
                point=number,
                to_best=_ratio(found.values[place] - others.max()),
                low=None if told.low is None else _ratio(told.low[place]),
                high=None if told.high is None else _ratio(told.high[place]),
                to_reference=None if reference is None else _ratio(found.values[place] - found.values[reference]),
                verdict=verdict,
            )
        )
    return tuple(judged)


def _ratio(logarithm: float) -> float:
    return float(np.exp(min(logarithm, 700.0)))  # JSON knows no infinity


def _noise(found: Fit) -> Noise:
    known = found.is_noise_known
    drift = float(np.expm1(found.drift))
    return Noise(float(np.expm1(found.sd)) if known else None, found.df, bool(found.spread.size), drift)


def _gain(found: Fit, draws: Draws | None, told: _Told, reference: int) -> Gain:
    gain = float(found.values[told.best] - found.values[reference])
    if draws is None or told.best == reference:
        return Gain(_ratio(gain), None, None, None, False)
    error = found.sd * found.difference_sd(told.best, reference)
    room = float(told.critical[reference]) * error
    less = float((draws.against[replicates.patterns(found)[reference]] < gain / error).mean())
    if not told.differ:
        less = min(less, float((draws.apart < gain / error).mean()))
    beyond = not told.is_good[reference]
    return Gain(_ratio(gain), _ratio(gain - room), _ratio(gain + room), less, beyond)


def _reference(study: Study, part: Part, group: Sequence[Point]) -> int | None:
    """The part's, or the point with the same settings on these nodes."""
    wanted = study.points[part.reference]
    found = [point.number for point in group if point.number == part.reference]
    return next(iter(found or [point.number for point in group if point.places == wanted.places]), None)


def _recommended(study: Study, numbers: Sequence[int], found: Fit, told: _Told, reference: int | None) -> int:
    """Of those that may be the best: the reference, or what differs from it in the fewest keys, then in the smallest
    steps; the better one of equals.
    """
    good = [place for place in range(len(numbers)) if told.is_good[place]]
    if reference is None:
        return numbers[told.best]
    usual = study.points[reference].places

    def effort(place: int) -> tuple[bool, int, int, float]:
        places = study.points[numbers[place]].places
        steps = [abs(places[key] - usual[key]) for key in usual]
        return numbers[place] != reference, sum(step > 0 for step in steps), sum(steps), -float(found.values[place])

    return numbers[min(good, key=effort)]
