"""Slowdown of the loads of a mix: each load together with others, compared with the same load alone.

A load is measured alone and together with others in each repeat of a job. The two measurements of a repeat are a pair,
so that a slow drift of the machine affects both. The intervals of a study are simultaneous for each metric: with 95 %
confidence, all of them contain the true slowdown. They are those of file_system_pairs, which compares pairs, too.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.quantiles import median
from dlio_hpc.analysis.study import file_system_pairs
from dlio_hpc.analysis.study.file_system_pairs import MeasuredPairs, PairedEffect
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.replicates import SURE
from dlio_hpc.base import serialization
from dlio_hpc.plan.mix import OVERLAP
from dlio_hpc.plan.study import Part, Point, Study
from dlio_hpc.results.metrics import METRICS, MetricName

# Smallest slowdown that counts, as a share. Smaller ones do not matter, although many repeats can show them.
RELEVANT = 0.02
# Metrics of a load whose slowdown is computed in addition to its own metric.
_FURTHER: tuple[MetricName, ...] = (
    "au", "read_p99_s", "open_p99_s", "wait_p99_s", "checkpoint_safe_s", "kv_read_p99_s", "ttft_p99_s",
)  # fmt: skip
Verdict = Literal["slower", "faster", "same", "unknown"]
# Measurements by the number of the point and the repeat.
_ByUnit = Mapping[tuple[int, int], Measured]


class Slowdown(Struct, frozen=True):
    """Effect of other loads on a load of a mix. mix, load, others: names. metric: metric that is compared. is_main:
    whether this is the metric by which the load is judged. pairs: number of repeats in which both were measured. alone,
    together: medians of the metric. slowdown: metric alone / metric together if higher values are better, otherwise
    together / alone: above 1 if the other loads slow this one down. It is the geometric mean over the pairs. low, high:
    95 % interval; None if the noise is unknown. overlap: least share of the time of this load in which the others ran.
    verdict: slower or faster if the interval excludes 1 and the difference is at least RELEVANT, otherwise same;
    unknown if the noise is unknown, or the loads did not overlap enough.
    """

    mix: str
    load: str
    others: tuple[str, ...]
    metric: MetricName
    is_main: bool
    pairs: int
    alone: float
    together: float
    slowdown: float
    low: float | None
    high: float | None
    overlap: float
    verdict: Verdict

    @property
    def excludes(self) -> float:
        """Largest slowdown that the interval does not exclude; infinite if the noise is unknown."""
        return math.inf if self.high is None else self.high


class Fairness(Struct, frozen=True):
    """How evenly loads with the same workload and the same settings share the storage. loads: their names. index:
    Jain's fairness index of their rates together, each divided by the rate alone, median over repeats: 1 if all are
    slowed down alike, and 1 / (number of loads) if only one load makes progress.
    """

    mix: str
    loads: tuple[str, ...]
    index: float


def of_study(study: Study, measured: Sequence[Measured]) -> tuple[Slowdown, ...]:
    """Return the slowdowns of all loads: first those of the metrics by which the loads are judged. Loads with a fixed
    rate have none.
    """
    if not study.is_mixed:
        return ()
    by_unit = {(one.point, one.repeat): one for one in measured}
    parts = [part for part in study.parts if part.is_load]
    listed: dict[MetricName, list[tuple[Part, Point, MeasuredPairs]]] = {}
    for part in parts:
        alone, *together = _points(study, part)
        if alone.workload.compute.interval is not None:
            continue  # its rate is fixed
        computes = alone.workload.compute.time.mean > 0
        metrics = [name for name in (part.metric, *_FURTHER) if name != "au" or computes]
        for metric, point in itertools.product(dict.fromkeys(metrics), together):
            made = (_pair(by_unit, (alone, point), repeat, metric) for repeat in range(study.repeat))
            if pairs := [pair for pair in made if pair is not None]:
                listed.setdefault(metric, []).append((part, point, MeasuredPairs(study.title(point), metric, pairs)))
    slowdowns = [
        _slowdown(part, point, effect, by_unit)
        for groups in listed.values()
        for part, point, effect in _effects(groups)
    ]
    return tuple(sorted(slowdowns, key=lambda one: not one.is_main))


def _effects(groups: Sequence[tuple[Part, Point, MeasuredPairs]]) -> Iterator[tuple[Part, Point, PairedEffect]]:
    effects = file_system_pairs.compared([group for *_, group in groups], 1 - SURE)
    for (part, point, _), effect in zip(groups, effects, strict=True):
        yield part, point, effect


def _pair(by_unit: _ByUnit, points: Sequence[Point], repeat: int, metric: MetricName) -> tuple[float, float] | None:
    """Return the metric of a load alone and together in a repeat. points: the two points. Return None if one of them
    was not measured, does not have the metric, or was measured in another job.
    """
    made = [one for point in points if (one := by_unit.get((point.number, repeat))) is not None]
    values = [METRICS[metric].value(one.summary) for one in made]
    if len(made) < len(points) or len({one.job for one in made}) > 1 or not (values[0] and values[1]):
        return None
    return values[0], values[1]


def _slowdown(part: Part, point: Point, effect: PairedEffect, by_unit: _ByUnit) -> Slowdown:
    load = point.load
    assert load is not None
    mixes = [one.summary.mix for (number, _), one in by_unit.items() if number == point.number]
    overlap = min(mix.overlap if mix is not None else 0.0 for mix in mixes)
    verdict: Verdict = "same"
    if effect.low is None or overlap < OVERLAP:
        verdict = "unknown"
    elif effect.better is not None and max(effect.ratio, 1 / effect.ratio) >= 1 + RELEVANT:
        verdict = "slower" if effect.better == "A" else "faster"
    return Slowdown(
        mix=load.mix,
        load=load.name,
        others=load.others,
        metric=effect.metric,
        is_main=effect.metric == part.metric,
        pairs=effect.pairs,
        alone=effect.a or 0.0,
        together=effect.b or 0.0,
        slowdown=1 / effect.ratio,
        low=None if effect.high is None else 1 / effect.high,
        high=None if effect.low is None else 1 / effect.low,
        overlap=overlap,
        verdict=verdict,
    )


def fairness(study: Study, measured: Sequence[Measured]) -> tuple[Fairness, ...]:
    """Return the fairness among the loads of each mix that have the same workload and as many ranks."""
    equal: dict[tuple[str, bytes], list[Part]] = {}
    first = {point.part: point for point in reversed(study.points)}
    for part in study.parts:
        point = first.get(part.name)
        if point is not None and point.load is not None and point.workload.compute.interval is None:
            same = serialization.encode((point.workload, point.ranks))
            equal.setdefault((point.load.mix, same), []).append(part)
    by_unit = {(one.point, one.repeat): one for one in measured}
    made = []
    for (mix, _), parts in equal.items():
        indexes = list(_indexes(study, parts, by_unit)) if len(parts) > 1 else []
        if indexes:
            made.append(Fairness(mix, tuple(part.name for part in parts), median(np.array(indexes))))
    return tuple(made)


def _indexes(study: Study, parts: Sequence[Part], by_unit: _ByUnit) -> Iterator[float]:
    """Yield Jain's index of these loads for each repeat in which all of them were measured, alone and together."""
    ends = {part.name: (points[0], points[-1]) for part in parts if (points := _points(study, part))}
    for repeat in range(study.repeat):
        pairs = [_pair(by_unit, ends[part.name], repeat, part.metric) for part in parts]
        rates = [(pair[1] / pair[0]) ** METRICS[parts[0].metric].sign for pair in pairs if pair is not None]
        if len(rates) == len(parts):
            yield math.fsum(rates) ** 2 / (len(rates) * math.fsum(rate * rate for rate in rates))


def _points(study: Study, part: Part) -> list[Point]:
    """Return the points of a load: alone first, with all other loads last."""
    return [point for point in study.points if point.part == part.name]
