"""Two file systems measured in turns: what the second one is to the first, from pairs that were measured side by side.

What drifts meanwhile reaches both of a pair, and pairs go A, B and then B, A: neither is favoured by being first.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.robust import t_quantile
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.plan.study import Point, Study

# Pairs that agree to the last digit tell as little of the noise as one.
_NO_NOISE = 1e-9


class Effect(Struct, frozen=True):
    """Of one setting on so many ranks; setting is empty for all of them together. a, b: medians of the metric, None of
    all together. ratios: B over A of each pair, above 1 where B is better, of times too; of each setting where all are
    together. ratio: by the mean of their logarithms. low, high: its 95 % interval, None where noise is unknown.
    better: beyond noise.
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


def effects(study: Study, measured: Sequence[Measured], metric: MetricName | None = None) -> tuple[Effect, ...]:
    """One for each pair of points that has a pair of measurements, and one for all where there are several; nothing
    where no file systems are compared.
    """
    if not study.is_ab:
        return ()
    found = {(each.point, each.repeat): each for each in measured}
    told: list[tuple[Effect, list[float]]] = []
    for a, b in zip(study.points[::2], study.points[1::2], strict=True):
        judged = metric or study.part(a.part).metric
        pairs = list(_pairs(found, a, b, study.repeat, judged))
        if pairs:
            told.append((_effect(_setting(study, a), judged, pairs), [_log(pair, judged) for pair in pairs]))
    listed = [effect for effect, _ in told]
    if len(told) > 1 and len({effect.metric for effect in listed}) == 1:
        listed.append(_together(listed[0].metric, [logs for _, logs in told]))
    return tuple(listed)


def _setting(study: Study, point: Point) -> str:
    """What else varies."""
    key = next(axis.key for axis in study.part(point.part).axes if axis.is_data)
    told = [f"{name}={label}" for name, label in study.labels(point).items() if name != key]
    return ": ".join(filter(None, (point.part, ", ".join(told)))) or point.workload.name


Pair = tuple[float, float]


def _pairs(found: Any, a: Point, b: Point, repeats: int, metric: MetricName) -> Iterator[Pair]:
    for repeat in range(repeats):
        sides = [found.get((point.number, repeat)) for point in (a, b)]
        values = [None if side is None else METRICS[metric].value(side.summary) for side in sides]
        if values[0] and values[1] and len({side.job for side in sides if side is not None}) == 1:
            yield values[0], values[1]


def _log(pair: Pair, metric: MetricName) -> float:
    return float(np.log(pair[1] / pair[0])) * METRICS[metric].sign


def _effect(setting: str, metric: MetricName, pairs: list[Pair]) -> Effect:
    a, b = np.median(np.array(pairs), axis=0).tolist()
    return _judged(setting, metric, a, b, [[_log(pair, metric) for pair in pairs]])


def _together(metric: MetricName, groups: list[list[float]]) -> Effect:
    """Each setting counts alike, however many pairs it has."""
    return _judged("", metric, None, None, groups)


def _judged(setting: str, metric: MetricName, a: float | None, b: float | None, groups: list[list[float]]) -> Effect:
    """groups: logarithms of each setting's pairs; their noise is taken together."""
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
    return Effect(setting, metric, sum(counts), a, b, ratios, float(np.exp(middle)), low, high, better)


def students(df: int) -> float:
    """Half the width of a 95 % interval in standard errors."""
    return t_quantile(df, 0.975)
