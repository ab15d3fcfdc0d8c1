"""Simulated series of nights. Many series are judged at the same time, by the rules that change_detection applies to a
single series.

The thresholds, the variation between nights and the rules for a regression are the same as in `compare`. Three rules
are left out, because nights with normal noise and a single drop rarely need them: limits for far nights, usual nights,
and levels that return.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis import students_t
from dlio_hpc.analysis.quantiles import Floats
from dlio_hpc.verdict import change_detection, level_estimates, regression, variation
from dlio_hpc.verdict.change_detection import BEFORE, THRESHOLDS, WITHDRAWN
from dlio_hpc.verdict.variation import NightSpread

_Indices = npt.NDArray[np.int64]
# Smallest sum of squares that is divided by.
_TINY = 1e-18


class _Sums(NamedTuple):
    """Sums over the first nights of each series, shape (series, nights + 1): sums of the values, of their squares, and
    of the products of consecutive values.
    """

    values: Floats
    first: Floats
    squares: Floats
    products: Floats


class _Spreads(NamedTuple):
    """Mean of the first nights of each series, and their variation: variance with its degrees of freedom, and
    correlation of consecutive nights.
    """

    mean: Floats
    variance: Floats
    df: float
    correlation: Floats

    def error(self, count: int) -> Floats:
        """Return the variance of the mean of `count` consecutive nights."""
        return np.asarray(self.variance * level_estimates.error_share(self.correlation, count))


class _Alarms(NamedTuple):
    """Newest alarm of each series. is_on: whether the level has changed. at: index of the first night of the new level.
    excess: amount by which the alarm exceeded its threshold.
    """

    is_on: npt.NDArray[np.bool_]
    at: _Indices
    excess: Floats


def evidence(values: Floats, first: int, prior: NightSpread, tolerance: float) -> Iterator[Floats]:
    """Yield the evidence of a regression for each night, shape (series,): the amount by which the normal deviate
    exceeds its threshold. It is -inf for series in which `compare` reports no regression on this night. values:
    logarithms, of shape (series, nights). first: index of the first night that is judged; the nights before it are at
    the level of the baseline. prior: prior knowledge about the variation between nights, including the variation
    between runs.
    """
    sums = _sums(values)
    count = len(values)
    alarms = _Alarms(np.zeros(count, np.bool_), np.ones(count, np.int64), np.zeros(count))
    for night in range(first, values.shape[1]):
        _, _, z = _differences(sums, alarms.at, night + 1, prior)
        alarms = alarms._replace(is_on=alarms.is_on & (np.abs(z) >= WITHDRAWN))
        alarms = _with_new(alarms, sums, night + 1, prior)
        difference, high, z = _differences(sums, alarms.at, night + 1, prior)
        is_regression = alarms.is_on & (high < 0) & (difference < math.log1p(-tolerance))
        yield np.where(is_regression, np.maximum(alarms.excess, np.abs(z) - max(THRESHOLDS.values())), -np.inf)


def _sums(values: Floats) -> _Sums:
    products = values[:, 1:] * values[:, :-1]
    return _Sums(values, *(np.pad(np.cumsum(part, axis=1), ((0, 0), (1, 0)))
                           for part in (values, values**2, products)))  # fmt: skip


def _combined(squares: Floats, own: int, prior: NightSpread) -> tuple[Floats, float]:
    """Return variances and their degrees of freedom, computed as in variation.combined(). squares: sums of squares.
    own: degrees of freedom of `squares`.
    """
    weight = variation.combined(NightSpread(0.0, own), prior).df - own
    df = own + weight
    return (np.maximum(squares, _TINY) + weight * prior.sd**2) / df, df


def _spreads(sums: _Sums, count: int, prior: NightSpread) -> _Spreads:
    """Return the variation between the first `count` nights of each series, computed as in
    level_estimates.spread_of().
    """
    total, squares = sums.first[:, count], sums.squares[:, count]
    mean = total / count
    around = np.maximum(squares - total * mean, _TINY)
    variance, df = _combined(around, count - 1, prior)
    if count < 4:
        return _Spreads(mean, variance, df, np.zeros(len(mean)))
    ends = sums.values[:, 0] + sums.values[:, count - 1]
    products = sums.products[:, count - 1] - mean * (2 * total - ends) + (count - 1) * mean**2
    correlation = np.clip((products / around + 1 / count) * count / (count - 3), 0, 0.8)
    return _Spreads(mean, variance, df, correlation)


def _differences(sums: _Sums, at: _Indices, count: int, prior: NightSpread) -> tuple[Floats, Floats, Floats]:
    """Compare two levels in the first `count` nights of each series: the level since the night `at`, and the level
    before this night. Return the differences of the levels, the upper ends of the intervals of the differences, and
    their normal deviates.
    """
    series = np.arange(len(at))
    before, total = sums.first[series, at], sums.first[:, count]
    newest = count - at
    around = sums.squares[:, count] - before**2 / at - (total - before) ** 2 / newest
    variance, df = _combined(around, count - 2, prior)
    error = np.sqrt(variance * (1 / newest + 1 / at))
    difference = (total - before) / newest - before / at
    high = difference + students_t.quantile(1 - regression.TAIL, df) * error
    return difference, high, change_detection.deviates(difference / error, df)


def _with_new(alarms: _Alarms, sums: _Sums, count: int, prior: NightSpread) -> _Alarms:
    """Return the alarms after night `count`. A series whose level has changed gets no further alarm."""
    excess, best = np.full(len(alarms.at), -change_detection.eased(count)), np.zeros(len(alarms.at), np.int64)
    for newest, threshold in THRESHOLDS.items():
        if count - newest < (1 if newest == 1 else BEFORE):
            break
        more = np.abs(_deviates_of_newest(sums, count, newest, prior)) - threshold
        best = np.where(more > excess, newest, best)
        excess = np.maximum(more, excess)
    best = np.where(alarms.is_on, 0, best)
    at = alarms.at.copy()
    for newest in set(best.tolist()) - {0}:
        chosen = np.flatnonzero(best == newest)
        at[chosen] = _first_nights(sums.first[chosen], count, newest)
    return _Alarms(alarms.is_on | (best > 0), at, np.where(best > 0, excess, alarms.excess))


def _deviates_of_newest(sums: _Sums, count: int, newest: int, prior: NightSpread) -> Floats:
    """Return the normal deviates of the differences between the newest nights and the nights before them."""
    spreads = _spreads(sums, count - newest, prior)
    difference = (sums.first[:, count] - sums.first[:, count - newest]) / newest - spreads.mean
    error = np.sqrt(spreads.error(newest) + spreads.error(count - newest))
    return change_detection.deviates(difference / error, spreads.df)


def _first_nights(sums: Floats, count: int, newest: int) -> _Indices:
    """Return the indices of the first nights of levels that the newest nights show, as in change_detection."""
    if newest == 1:
        return np.full(len(sums), count - 1)
    splits = np.arange(max(1, count - 2 * newest), count)
    after = count - splits
    differences = (sums[:, count, None] - sums[:, splits]) / after - sums[:, splits] / splits
    return np.asarray(splits[np.argmax(differences**2 * splits * after, axis=1)])
