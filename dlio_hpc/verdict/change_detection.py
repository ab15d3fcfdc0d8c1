"""Detection of steps, drifts and single outliers in a series of values. The series has one value per night. A night
stands for one job. In this module, a rank is the statistical rank of a value, not an MPI rank. A segment is a range of
consecutive nights.

Three tests on the ranks of the values detect changes. Step: a scan over all positions at which the series can be split
in two. Its statistic is that of Pettitt (Applied Statistics 28, 1979), with two differences. It is standardised at each
position, so that recent changes are detected too. Its distribution is simulated rather than asymptotic. Drift: the test
of Mann and Kendall. Spell: a segment of the series that differs from the nights before and after it. In addition,
Student's t detects large steps. It needs fewer nights than the tests on ranks. Whether a change is reported as a step
or as a drift depends on which model fits better: the medians before and after the step, or the line of Theil and Sen.
"""

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dlio_hpc.analysis.robust import Floats, RepeatNoise, mad, median

Kind = Literal["step", "drift"]

# Significance level. The series is tested again every night; at this level, a change is falsely reported in about 1 of
# 50 series of 60 nights.
LEVEL = 0.001
# Minimum number of nights on either side of a step. Minimum number of nights of a series for a change to be detected.
_SIDE, FEWEST = 3, 8
# A night is an outlier if it deviates by more than this number of standard deviations. Minimum number of nights for
# outliers to be detected.
_OUT, _FEWEST_FOR_OUTLIERS = 4.5, 6
# Number of simulated series, and the seed of the simulation.
_SIMULATED, _SEED = 20_000, 20_261_121
# No simulation is made if the probability for a single place is above this.
_NOT_RARE = 0.002


class Change(Struct, frozen=True):
    """A change in the series. at: index of the first night after a step, or of the first night of a drift. until: index
    of the last night of a drift; equal to `at` for a step. size: logarithm of (new level / old level). For a drift, the
    old level is the level at its start, and the new level is the level at its end. p: probability that such a change
    appears by chance.
    """

    kind: Kind
    at: int
    until: int
    size: float
    p: float


class Changes(NamedTuple):
    """Changes in order of time. outliers: indices of the nights that are outliers. levels: level of each night
    according to the changes. noise: night-to-night noise around these levels; None if there are too few nights.
    """

    changes: tuple[Change, ...]
    outliers: tuple[int, ...]
    levels: Floats
    noise: RepeatNoise | None


class _Model(NamedTuple):
    """A model of a series: its changes, and the level of each night. parameters: number of parameters that determine
    `levels`.
    """

    changes: tuple[Change, ...]
    levels: Floats
    parameters: int


def find(values: Floats, level: float = LEVEL) -> Changes:
    """Detect the changes in a series. values: logarithms of a metric, one per night, oldest first. level: significance
    level.
    """
    model = _model(values, 0, level)
    residuals = values - model.levels
    outliers = _outliers(residuals)
    return Changes(model.changes, outliers, model.levels, _noise(residuals, outliers, model.parameters))


def _model(values: Floats, first: int, level: float) -> _Model:
    """Return the model that fits a segment of the series best. values: the values of the segment. first: index of its
    first night in the series. level: significance level.
    """
    flat = _Model((), np.full(len(values), median(values) if len(values) else 0.0), 1)
    if len(values) < FEWEST:
        return flat
    place, p_step = _split(values)
    slope, p_drift = _trend(values)
    if min(p_step, p_drift) >= level:
        first_in, first_after, p = _spell(values)
        return _steps(values, first, level, [first_in, first_after], p) if p < level / 2 else flat
    if p_step >= level:
        return _line(values, first, slope, p_drift)
    step = _steps(values, first, level, [place], p_step)
    if p_drift >= level:
        return step
    return min(step, _line(values, first, slope, p_drift), key=lambda model: _cost(values, model))


def _steps(values: Floats, first: int, level: float, places: list[int], p: float) -> _Model:
    """Return a model with steps at the positions `places`. Each step is first shifted to the position where it fits
    best. The steps divide `values` into segments. A segment may contain further changes, so a model is fitted to each
    segment. first: index of the first night of `values` in the whole series. p: probability that the steps appear by
    chance.
    """
    ends = _refined(values, [0, *places, len(values)])
    parts = [_model(values[begin:end], first + begin, level) for begin, end in itertools.pairwise(ends)]
    changes: list[Change] = list(parts[0].changes)
    for place, (before, after) in zip(ends[1:], itertools.pairwise(parts), strict=False):
        size = float(after.levels[0] - before.levels[-1])
        changes += [Change("step", first + place, first + place, size, p), *after.changes]
    levels = np.concatenate([part.levels for part in parts])
    return _Model(tuple(changes), levels, sum(part.parameters for part in parts) + len(places))


def _refined(values: Floats, ends: list[int]) -> list[int]:
    """Shift each step by a few nights at most, because the tests on ranks locate a step only approximately. The new
    position is that at which the deviations from the medians before and after the step are smallest. ends: 0, the
    positions of the steps, and the length of the series. Return `ends` with the new positions of the steps; the first
    and the last item are unchanged.
    """
    refined = list(ends)
    for number in range(1, len(ends) - 1):
        begin, place, end = refined[number - 1], ends[number], ends[number + 1]
        near = range(max(begin + 1, place - _SIDE), min(end - 1, place + _SIDE) + 1)
        refined[number] = min(near, key=lambda at: _residual(values[begin:at]) + _residual(values[at:end]))
    return refined


def _residual(values: Floats) -> float:
    """Return the sum of absolute deviations from the median."""
    return float(np.abs(values - median(values)).sum())


def _cost(values: Floats, model: _Model) -> float:
    """Return Schwarz's criterion of a model, for residuals with heavy tails. A lower value is better."""
    count = len(values)
    residual = max(float(np.abs(values - model.levels).mean()), 1e-12)
    return 2 * count * math.log(residual) + model.parameters * math.log(count)


def _line(values: Floats, first: int, slope: float, p: float) -> _Model:
    """Return the model of a drift: a line with `slope` per night. p: probability that the drift appears by chance."""
    nights = np.arange(len(values), dtype=np.float64)
    levels = slope * nights + median(values - slope * nights)
    last = first + len(values) - 1
    return _Model((Change("drift", first, last, slope * (len(values) - 1), p),), levels, 2)


def _split(values: Floats) -> tuple[int, float]:
    """Find the position at which the series splits best into two levels. Return the index of the first night after the
    split, and the probability that such a split appears by chance.
    """
    scan = _scan(_ranks(values)[np.newaxis])[0]
    best = int(np.argmax(scan))
    by_ranks = best + _SIDE, _p(float(scan[best]), len(values), _simulated_splits)
    place, p = _gap(values)
    return min(by_ranks, (place, 2 * p), key=lambda candidate: candidate[1])


def _gap(values: Floats) -> tuple[int, float]:
    """Find the split at which the means before and after it differ most, relative to the residuals. Return the index of
    the first night after the split, and an upper bound on the probability that such a difference appears by chance
    anywhere in the series. A single outlier enlarges the residuals and is therefore not reported as a step.
    """
    count = len(values)
    places = np.arange(_SIDE, count - _SIDE + 1)
    sums, squares = np.cumsum(values)[places - 1], float(((values - values.mean()) ** 2).sum())
    difference = sums / places - (values.sum() - sums) / (count - places)
    between = difference**2 * places * (count - places) / count
    residual = np.maximum(squares - between, 1e-18)
    best = int(np.argmax(between / residual))
    # Student's t converted to a normal deviate; D. L. Wallace, Annals of Mathematical Statistics 30, 1959.
    df = count - 2
    deviate = math.sqrt(df * math.log1p(float(between[best] / residual[best]))) * (1 - 3 / (4 * df))
    return int(places[best]), min(1.0, 2 * len(places) * NormalDist().cdf(-deviate))


def _spell(values: Floats) -> tuple[int, int, float]:
    """Find the inner segment of the series that differs most from the nights before and after it. A single split does
    not detect such a segment. Return three values: the index of its first night, the index of the first night after it,
    and the probability that such a segment appears by chance.
    """
    count = len(values)
    if count < 3 * _SIDE:
        return 0, 0, 1.0
    sums = np.cumsum(_ranks(values) - (count + 1) / 2)[_SIDE - 1 : count - _SIDE]
    scan = np.abs(sums - sums[:, np.newaxis]) / _deviations(count)
    begin, end = (int(place) for place in np.unravel_index(int(scan.argmax()), scan.shape))
    return begin + _SIDE, end + _SIDE, _p(float(scan[begin, end]), count, _simulated_spells)


@functools.cache
def _deviations(count: int) -> Floats:
    """Return a matrix with the standard deviation of the rank sum of each segment of a series of `count` nights. Let s
    be the minimum number of nights on either side of a step. The item (i, j) belongs to the segment whose first night
    has index s + i and that ends before the night with index s + j. It is infinite if the segment is shorter than s.
    """
    places = np.arange(_SIDE, count - _SIDE + 1)
    lengths = places - places[:, np.newaxis]
    variances = lengths * (count - lengths) * (count + 1) / 12
    return np.sqrt(np.where(lengths >= _SIDE, variances, np.inf))


def _p(most: float, count: int, simulated: Callable[[int], Floats]) -> float:
    """Return the p-value of a statistic: the probability that the largest statistic in a series of `count` nights
    without a change is at least `most`. If `most` is not rare even at a single position, no series are simulated, and
    the probability for a single position is returned. simulated: function that simulates series of `count` nights and
    returns the largest statistic of each series, in ascending order.
    """
    at_least = 2 * NormalDist().cdf(-most)
    if at_least > _NOT_RARE:
        return at_least
    maxima = simulated(count)
    beyond = len(maxima) - int(np.searchsorted(maxima, most - 1e-6))
    return (1 + beyond) / (1 + len(maxima))


def _scan(ranks: Floats) -> Floats:
    """Return a statistic for each split of each series: by how many standard deviations the sum of the ranks before the
    split deviates from its expectation. Let s be the minimum number of nights on either side of a split. ranks:
    statistical rank of each night in its series, shape (series, nights). The result has the shape (series, splits);
    column i belongs to the split with s + i nights before it.
    """
    count = ranks.shape[1]
    places = np.arange(_SIDE, count - _SIDE + 1)
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, places - 1]
    deviations: Floats = np.abs(sums) / np.sqrt(places * (count - places) * (count + 1) / 12)
    return deviations


def _spells(ranks: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield pairs: a length of a segment, and the statistics of all segments of this length. Each segment has at least
    s nights before it and after it; s is the minimum number of nights on either side of a step. The statistics are an
    array of shape (series, positions). Column i holds the absolute z-score of the rank sum (Wilcoxon) of the segment
    whose first night has index s + i. ranks: statistical rank of each night in its series, shape (series, nights).
    """
    count = ranks.shape[1]
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, _SIDE - 1 : count - _SIDE]
    for length in range(_SIDE, count - 2 * _SIDE + 1):
        deviation = math.sqrt(length * (count - length) * (count + 1) / 12)
        yield length, np.abs(sums[:, length:] - sums[:, :-length]) / deviation


@functools.cache
def _simulated_splits(count: int) -> Floats:
    """Simulate series without a change. Return the largest statistic of _scan() in each series, in ascending order."""
    return np.sort(_scan(_simulated_ranks(count)).max(axis=1))


@functools.cache
def _simulated_spells(count: int) -> Floats:
    """Simulate series without a change. Return the largest statistic of _spells() in each series, in ascending
    order.
    """
    most = np.zeros(_SIMULATED)
    for _, scan in _spells(_simulated_ranks(count)):
        np.maximum(most, scan.max(axis=1), out=most)
    return np.sort(most)


def _simulated_ranks(count: int) -> Floats:
    """Return random permutations of the ranks 1 to `count`, as an array of shape (series, nights)."""
    random = np.random.default_rng([_SEED, count])
    return np.argsort(random.random((_SIMULATED, count)), axis=1).astype(np.float64) + 1


def _ranks(values: Floats) -> Floats:
    """Return the statistical ranks of the values, starting at 1. Equal values get the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Floats = (ends - (counts - 1) / 2)[places.reshape(-1)]
    return shared


def _trend(values: Floats) -> tuple[float, float]:
    """Return two values. The first is the median slope per night over all pairs of nights. The second is the
    probability that, in a series without a trend, the numbers of rising and falling pairs differ by at least as much as
    in `values`.
    """
    count = len(values)
    rows, columns = _pairs(count)
    rises = values[columns] - values[rows]
    agree = float(np.sign(rises).sum())
    deviation = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    p = 2 * NormalDist().cdf(-max(abs(agree) - 1, 0) / deviation)
    return median(rises / (columns - rows)), p


@functools.cache
def _pairs(count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    rows, columns = np.triu_indices(count, 1)
    return rows, columns


def _outliers(residuals: Floats) -> tuple[int, ...]:
    """Return the indices of the nights whose residual is an outlier."""
    scale = mad(residuals)
    if len(residuals) < _FEWEST_FOR_OUTLIERS or scale <= 0:
        return ()
    return tuple(int(place) for place in np.flatnonzero(np.abs(residuals) > _OUT * scale))


def _noise(residuals: Floats, outliers: tuple[int, ...], parameters: int) -> RepeatNoise | None:
    """Return the night-to-night noise of the history, or None if there are too few nights. Outliers are left out.
    residuals: deviations of the nights from a model. parameters: number of parameters of this model.
    """
    kept = np.delete(residuals, outliers)
    df = len(kept) - parameters
    if len(kept) < 5 or df < 3:
        return None
    return RepeatNoise(math.sqrt(float((kept**2).sum()) / df), df)
