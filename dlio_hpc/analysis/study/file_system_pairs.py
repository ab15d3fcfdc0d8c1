"""Comparison of two file systems, A and B, by pairs of measurements. A pair has one measurement on each file system.

The two measurements of a pair are made directly one after the other, so that a slow drift of the machine affects both.
Pairs alternate between the orders A B and B A, so that neither file system is favoured.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.robust import t_quantile
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.plan.study import Point, Study
from dlio_hpc.results.metrics import METRICS, MetricName

# Noise below this limit counts as unknown, because pairs that agree to the last digit do not show the noise.
_NO_NOISE = 1e-9


class PairedEffect(Struct, frozen=True):
    """Ratio of file system B to file system A, either for one setting and number of ranks, or for all settings
    together. A ratio above 1 always means that B is better; ratios of times are inverted. setting: empty for all
    settings together. pairs: number of pairs of measurements. a, b: medians of the metric on A and on B; None for all
    settings together. ratios: ratio of each pair; for all settings together, each setting's mean ratio. ratio:
    geometric mean of `ratios`. low, high: 95 % interval of `ratio`; None if the noise is unknown. better: file system
    that is better by more than the noise; None if neither is.
    """

    setting: str
    metric: MetricName
    pairs: int
    a: float | None
    b: float | None
    ratios: tuple[float, ...]
    ratio: float
    low: float | None
    high: float | None
    better: Literal["A", "B"] | None


def effects(study: Study, measured: Sequence[Measured], metric: MetricName | None = None) -> tuple[PairedEffect, ...]:
    """Return the effect of the file system for each setting that has a pair of measurements, followed by the effect for
    all settings together if there are several. Return an empty tuple if the study does not compare file systems.
    """
    if not study.is_ab:
        return ()
    by_unit = {(measurement.point, measurement.repeat): measurement for measurement in measured}
    judgements: list[tuple[PairedEffect, list[float]]] = []
    for a, b in zip(study.points[::2], study.points[1::2], strict=True):
        judged = metric or study.part(a.part).metric
        pairs = list(_pairs(by_unit, a, b, study.repeat, judged))
        if pairs:
            judgements.append((_effect(_setting(study, a), judged, pairs), [_log(pair, judged) for pair in pairs]))
    listed = [effect for effect, _ in judgements]
    if len(judgements) > 1 and len({effect.metric for effect in listed}) == 1:
        listed.append(_together(listed[0].metric, [logs for _, logs in judgements]))
    return tuple(listed)


def _setting(study: Study, point: Point) -> str:
    """Return the setting of a point as text, without its file system."""
    key = next(axis.key for axis in study.part(point.part).axes if axis.is_data)
    labels = [f"{name}={label}" for name, label in study.labels(point).items() if name != key]
    return ": ".join(filter(None, (point.part, ", ".join(labels)))) or point.workload.name


Pair = tuple[float, float]


def _pairs(by_unit: Any, a: Point, b: Point, repeats: int, metric: MetricName) -> Iterator[Pair]:
    for repeat in range(repeats):
        sides = [by_unit.get((point.number, repeat)) for point in (a, b)]
        values = [None if side is None else METRICS[metric].value(side.summary) for side in sides]
        if values[0] and values[1] and len({side.job for side in sides if side is not None}) == 1:
            yield values[0], values[1]


def _log(pair: Pair, metric: MetricName) -> float:
    return float(np.log(pair[1] / pair[0])) * METRICS[metric].sign


def _effect(setting: str, metric: MetricName, pairs: list[Pair]) -> PairedEffect:
    a, b = np.median(np.array(pairs), axis=0).tolist()
    return _judged(setting, metric, a, b, [[_log(pair, metric) for pair in pairs]])


def _together(metric: MetricName, groups: list[list[float]]) -> PairedEffect:
    """Return the effect over all settings. Each setting has the same weight, whatever its number of pairs."""
    return _judged("", metric, None, None, groups)


def _judged(
    setting: str, metric: MetricName, a: float | None, b: float | None, groups: list[list[float]]
) -> PairedEffect:
    """Return the effect for one or several settings. groups: for each setting, the logarithms of the ratios of its
    pairs. The noise of the settings is pooled.
    """
    counts = [len(logs) for logs in groups]
    middle = float(np.mean([np.mean(logs) for logs in groups]))
    df = sum(counts) - len(groups)
    low = high = None
    better: Literal["A", "B"] | None = None
    squares = sum(float(((np.array(logs) - np.mean(logs)) ** 2).sum()) for logs in groups)
    if df > 0 and squares > _NO_NOISE**2:
        error = np.sqrt(squares / df * sum(1 / count for count in counts)) / len(groups)
        half = students(df) * error
        low, high = middle - half, middle + half
        better = "B" if low > 0 else "A" if high < 0 else None
        low, high = float(np.exp(low)), float(np.exp(high))
    shown = groups[0] if len(groups) == 1 else [float(np.mean(logs)) for logs in groups]
    ratios = tuple(np.exp(shown).tolist())
    return PairedEffect(setting, metric, sum(counts), a, b, ratios, float(np.exp(middle)), low, high, better)


def students(df: int) -> float:
    """Return the half-width of a 95 % interval of Student's t distribution, in units of the standard error. df: degrees
    of freedom.
    """
    return t_quantile(df, 0.975)
