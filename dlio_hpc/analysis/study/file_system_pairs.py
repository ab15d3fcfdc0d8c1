"""Comparison of two file systems, A and B, by pairs of measurements. A pair has one measurement on each file system.

The two measurements of a pair are made directly one after the other, so that a slow drift of the machine affects both.
Pairs alternate between the orders A B and B A, so that neither file system is favoured.

The intervals of a study are simultaneous: with 95 % confidence, all of them contain the true ratio. The error
probability of 5 % is divided. One half is for the interval of all settings together. The other half is divided evenly
among the intervals of the settings.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis import students_t
from dlio_hpc.analysis.study import job_spread
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.replicates import NO_NOISE, SURE, Floats
from dlio_hpc.plan.study import Point, Study
from dlio_hpc.results.metrics import METRICS, MetricName

# Settings are assumed to share their noise unless their noises differ more than in 3 of 4 studies in which they do. A
# smaller share would leave differences by a factor of five unnoticed with four pairs, and name the noisy setting.
_PLAUSIBLE = 0.25
_DRAWS, _SEED = 20_000, 20_261_125
# Largest half of an interval of logarithms. It is limited, because JSON has no infinity.
_WIDEST = 600.0


class PairedEffect(Struct, frozen=True):
    """Ratio of file system B to file system A, either for one setting and number of ranks, or for all settings
    together. A ratio above 1 always means that B is better; ratios of times are inverted. setting: empty for all
    settings together. pairs: number of pairs of measurements. a, b: medians of the metric on A and on B; None for all
    settings together. ratios: ratio of each pair; for all settings together, each setting's mean ratio. ratio:
    geometric mean of `ratios`. low, high: 95 % interval of `ratio`, simultaneous for all effects of the study; None if
    the noise is unknown. better: file system that is better by more than the noise; None if neither is. noise: relative
    standard deviation of the ratio of a single pair; None if it is unknown, or if the effect is for all settings
    together and the settings have different noise. is_noise_shared: whether the noise was computed from the pairs of
    several settings.
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
    noise: float | None = None
    is_noise_shared: bool = False


def effects(study: Study, measured: Sequence[Measured], metric: MetricName | None = None) -> tuple[PairedEffect, ...]:
    """Return the effect of the file system for each setting that has a pair of measurements, followed by the effect for
    all settings together if there are several. Return an empty tuple if the study does not compare file systems.
    """
    if not study.is_ab:
        return ()
    by_unit = {(measurement.point, measurement.repeat): measurement for measurement in measured}
    groups: list[MeasuredPairs] = []
    for a, b in zip(study.points[::2], study.points[1::2], strict=True):
        judged = metric or study.part(a.part).metric
        if pairs := list(_pairs(by_unit, a, b, study.repeat, judged)):
            groups.append(MeasuredPairs(_setting(study, a), judged, pairs))
    has_whole = len(groups) > 1 and len({group.metric for group in groups}) == 1
    risk = (1 - SURE) / (2 if has_whole else 1)
    listed = compared(groups, risk)
    return tuple([*listed, _together(groups, _noise(groups), risk)] if has_whole else listed)


def compared(groups: "Sequence[MeasuredPairs]", risk: float) -> list[PairedEffect]:
    """Return the effect for each group of pairs. The intervals are simultaneous. risk: probability that any interval
    does not contain the true ratio.
    """
    metrics = {group.metric for group in groups}
    noises = {judged: _noise([group for group in groups if group.metric == judged]) for judged in metrics}
    return [_effect(group, noises[group.metric], risk / len(groups)) for group in groups]


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


class MeasuredPairs(NamedTuple):
    """Pairs of a setting."""

    setting: str
    metric: MetricName
    pairs: list[Pair]

    @property
    def logs(self) -> Floats:
        """Logarithm of the ratio of each pair, above 0 if B is better."""
        pairs = np.array(self.pairs)
        return np.asarray(np.log(pairs[:, 1] / pairs[:, 0]) * METRICS[self.metric].sign, np.float64)

    @property
    def df(self) -> int:
        """Degrees of freedom of the noise of this setting alone."""
        return len(self.pairs) - 1

    @property
    def variance(self) -> float:
        """Variance of the logarithm of the ratio of a pair, from this setting alone; 0 for a single pair."""
        return float(self.logs.var(ddof=1)) if self.df else 0.0


class _Noise(NamedTuple):
    """Noise over all settings. variance: variance of the logarithm of the ratio of a pair. df: its degrees of freedom.
    is_shared: whether it is plausible that the settings share this noise.
    """

    variance: float
    df: int
    is_shared: bool


def _noise(groups: Sequence[MeasuredPairs]) -> _Noise:
    """Return the noise over all settings. Bartlett's statistic, which shows whether the settings have the same noise,
    is compared with simulations, because its approximation by a chi-square distribution is poor for few pairs.
    """
    repeated = [group for group in groups if group.df]
    if not repeated:
        return _Noise(0.0, 0, False)
    dfs = np.array([group.df for group in repeated])
    variances = np.array([group.variance for group in repeated])
    shared = _Noise(float((dfs * variances).sum() / dfs.sum()), int(dfs.sum()), True)
    if len(repeated) == 1 or variances.max() <= NO_NOISE**2:
        return shared
    if variances.min() <= NO_NOISE**2:
        return shared._replace(is_shared=False)
    statistic = float(_bartlett(dfs, variances[np.newaxis])[0])
    return shared._replace(is_shared=statistic < _limit(tuple(sorted(dfs.tolist()))))


def _bartlett(dfs: Any, variances: Floats) -> Floats:
    """Return Bartlett's statistic for each row of `variances`. It is larger if the variances of the row differ more."""
    shared = (dfs * variances).sum(axis=1) / dfs.sum()
    return np.asarray(dfs.sum() * np.log(shared) - (dfs * np.log(variances)).sum(axis=1), np.float64)


@functools.cache
def _limit(dfs: tuple[int, ...]) -> float:
    """Return the value that Bartlett's statistic exceeds with the probability _PLAUSIBLE if the variances are equal."""
    random: Any = np.random.default_rng(_SEED)
    free = np.array(dfs)
    return float(np.quantile(_bartlett(free, random.chisquare(free, (_DRAWS, len(free))) / free), 1 - _PLAUSIBLE))


def _effect(group: MeasuredPairs, noise: _Noise, risk: float) -> PairedEffect:
    """Return the effect for one setting. noise: noise over all settings. risk: probability that the interval does not
    contain the true ratio.

    If the settings have different noise, two intervals are computed: one from the noise of this setting, and one from
    the noise over all settings. The wider of the two is used. The first alone would too often report a difference for a
    setting that has little noise by chance.
    """
    a, b = np.median(np.array(group.pairs), axis=0).tolist()
    half = _half(noise.variance / len(group.pairs), noise.df, risk)
    variance = noise.variance
    if not noise.is_shared:
        own, variance = _half(group.variance / len(group.pairs), group.df, risk), group.variance
        half = None if own is None or half is None else max(own, half)
    is_shared = noise.is_shared and noise.df > group.df
    return PairedEffect(
        group.setting, group.metric, len(group.pairs), a, b, *_judged(group.logs, half), _relative(variance), is_shared
    )


def overall(effects: Sequence[PairedEffect]) -> Sequence[PairedEffect]:
    """Return the effects on which a verdict is based. This is the effect over all settings. If the settings have
    different metrics, there is no such effect. In this case, return the effect of each setting.
    """
    return effects[-1:] if effects and not effects[-1].setting else effects


def _together(groups: Sequence[MeasuredPairs], noise: _Noise, risk: float) -> PairedEffect:
    """Return the effect over all settings. Each setting has the same weight, whatever its number of pairs."""
    means = np.array([group.logs.mean() for group in groups])
    weights = [1 / len(group.pairs) / len(groups) ** 2 for group in groups]
    half = _half(noise.variance * sum(weights), noise.df, risk)
    if not noise.is_shared:
        parts = [group.variance * weight for group, weight in zip(groups, weights, strict=True)]
        is_known = all(group.df for group in groups) and sum(parts) > NO_NOISE**2
        half = _half(*job_spread.combined(parts, [group.df for group in groups]), risk) if is_known else None
    pairs = sum(len(group.pairs) for group in groups)
    return PairedEffect(
        "", groups[0].metric, pairs, None, None, *_judged(means, half),
        _relative(noise.variance) if noise.is_shared else None, noise.is_shared,
    )  # fmt: skip


def _half(variance: float, df: float, risk: float) -> float | None:
    """Return half of the width of an interval of logarithms, or None if the noise is unknown. variance: variance of the
    mean. df: degrees of freedom of the variance.
    """
    if not df > 0 or variance <= NO_NOISE**2:
        return None
    return min(students_t.quantile(1 - risk / 2, df) * float(np.sqrt(variance)), _WIDEST)


_Judged = tuple[tuple[float, ...], float, float | None, float | None, Literal["A", "B"] | None]


def _judged(logs: Floats, half: float | None) -> _Judged:
    """Return the ratios, their mean, the interval of the mean, and the better file system. logs: logarithms of the
    ratios. half: half of the width of the interval.
    """
    mean, ratios = float(logs.mean()), tuple(np.exp(logs).tolist())
    if half is None:
        return ratios, float(np.exp(mean)), None, None, None
    low, high = mean - half, mean + half
    better: Literal["A", "B"] | None = "B" if low > 0 else "A" if high < 0 else None
    return ratios, float(np.exp(mean)), float(np.exp(low)), float(np.exp(high)), better


def _relative(variance: float) -> float | None:
    """Return the relative standard deviation for a variance of logarithms. Return None if the variance is practically
    0.
    """
    return float(np.expm1(np.sqrt(variance))) if variance > NO_NOISE**2 else None
