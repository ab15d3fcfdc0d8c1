"""Detection of changes in a series of nights: steps, drifts, and outliers of a single night.

A change is detected in the ranks of the values by one of three tests. A step: a scan over all places that split the
series in two (Pettitt's statistic, Applied Statistics 28, 1979, standardised at each place, so that recent changes are
detected too; its distribution is simulated, not asymptotic). A drift: the test of Mann and Kendall. A spell: a part of
the series that differs from both ends. A large step is also detected by Student's t, in fewer nights than ranks need.
Whether a change is reported as a step or as a drift depends on which model fits better: medians before and after, or
the line of Theil and Sen.
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

# The series is tested every night: at this level about 1 in 50 series of 60 unchanged nights reports a change.
LEVEL = 0.001
# Fewest nights on either side of a step, and fewest nights of a series in which a change can be detected.
_SIDE, FEWEST = 3, 8
# Standard deviations beyond which a night is an outlier, and fewest nights that this needs.
_OUT, _FEWEST_FOR_OUTLIERS = 4.5, 6
_DRAWS, _SEED = 20_000, 20_261_121
_NO_RARITY = 0.002


class Change(Struct, frozen=True):
    """A change. at: the first night after a step, or the first of a drift. until: the last night of a drift, else `at`.
    size: a logarithm, of the level after over the level before, or of a drift's end over its start. p: probability by
    chance.
    """

    kind: Kind
    at: int
    until: int
    size: float
    p: float


class Changes(NamedTuple):
    """Changes in their order. outliers: numbers of single nights out of line. levels: (n) level of each night by the
    changes. noise: residual noise between nights; None where there are too few nights.
    """

    changes: tuple[Change, ...]
    outliers: tuple[int, ...]
    levels: Floats
    noise: RepeatNoise | None


class _Model(NamedTuple):
    """Changes and levels of a series. parameters: number of parameters that determine `levels`."""

    changes: tuple[Change, ...]
    levels: Floats
    parameters: int


def find(values: Floats, level: float = LEVEL) -> Changes:
    """Detect the changes in logarithms of a metric, one per night, oldest first."""
    model = _model(values, 0, level)
    residuals = values - model.levels
    outliers = _outliers(residuals)
    return Changes(model.changes, outliers, model.levels, _noise(residuals, outliers, model.parameters))


def _model(values: Floats, first: int, level: float) -> _Model:
    """Fit a part of the series that begins at night number `first`."""
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
    """Fit parts that begin at these places, each with the changes within it."""
    ends = _refined(values, [0, *places, len(values)])
    parts = [_model(values[begin:end], first + begin, level) for begin, end in itertools.pairwise(ends)]
    changes: list[Change] = list(parts[0].changes)
    for place, (before, after) in zip(ends[1:], itertools.pairwise(parts), strict=False):
        size = float(after.levels[0] - before.levels[-1])
        changes += [Change("step", first + place, first + place, size, p), *after.changes]
    levels = np.concatenate([part.levels for part in parts])
    return _Model(tuple(changes), levels, sum(part.parameters for part in parts) + len(places))


def _refined(values: Floats, ends: list[int]) -> list[int]:
    """Move each place, by up to _SIDE nights, to where the medians on both sides leave the smallest residuals. Ranks
    locate a step only approximately.
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
    """Return Schwarz's criterion for residuals with heavy tails."""
    count = len(values)
    residual = max(float(np.abs(values - model.levels).mean()), 1e-12)
    return 2 * count * math.log(residual) + model.parameters * math.log(count)


def _line(values: Floats, first: int, slope: float, p: float) -> _Model:
    """Return the model of a drift."""
    nights = np.arange(len(values), dtype=np.float64)
    levels = slope * nights + median(values - slope * nights)
    last = first + len(values) - 1
    return _Model((Change("drift", first, last, slope * (len(values) - 1), p),), levels, 2)


def _split(values: Floats) -> tuple[int, float]:
    """Return where the series is split in two, and the probability of such a split by chance."""
    scan = _scan(_ranks(values)[np.newaxis])[0]
    best = int(np.argmax(scan))
    by_ranks = best + _SIDE, _p(float(scan[best]), len(values), _drawn)
    place, p = _gap(values)
    return min(by_ranks, (place, 2 * p), key=lambda candidate: candidate[1])


def _gap(values: Floats) -> tuple[int, float]:
    """Return where the means of both parts differ most relative to the residuals, and an upper bound of the probability
    by chance at any place. A single outlier enlarges the residuals, so that it is not reported as a step.
    """
    count = len(values)
    places = np.arange(_SIDE, count - _SIDE + 1)
    sums, squares = np.cumsum(values)[places - 1], float(((values - values.mean()) ** 2).sum())
    difference = sums / places - (values.sum() - sums) / (count - places)
    between = difference**2 * places * (count - places) / count
    residual = np.maximum(squares - between, 1e-18)
    best = int(np.argmax(between / residual))
    # Student's t as a normal deviate; D. L. Wallace, Annals of Mathematical Statistics 30, 1959.
    df = count - 2
    deviate = math.sqrt(df * math.log1p(float(between[best] / residual[best]))) * (1 - 3 / (4 * df))
    return int(places[best]), min(1.0, 2 * len(places) * NormalDist().cdf(-deviate))


def _spell(values: Floats) -> tuple[int, int, float]:
    """Return the first night of a part that differs from both ends, the first night after it, and the probability by
    chance. One split does not detect such a part.
    """
    count = len(values)
    if count < 3 * _SIDE:
        return 0, 0, 1.0
    sums = np.cumsum(_ranks(values) - (count + 1) / 2)[_SIDE - 1 : count - _SIDE]
    scan = np.abs(sums - sums[:, np.newaxis]) / _deviations(count)
    begin, end = (int(place) for place in np.unravel_index(int(scan.argmax()), scan.shape))
    return begin + _SIDE, end + _SIDE, _p(float(scan[begin, end]), count, _drawn_spells)


@functools.cache
def _deviations(count: int) -> Floats:
    """Return (begin, end): standard deviation of the sum of ranks of each part, from place _SIDE on; infinite for parts
    that are too short.
    """
    places = np.arange(_SIDE, count - _SIDE + 1)
    lengths = places - places[:, np.newaxis]
    variances = lengths * (count - lengths) * (count + 1) / 12
    return np.sqrt(np.where(lengths >= _SIDE, variances, np.inf))


def _p(most: float, count: int, drawn: Callable[[int], Floats]) -> float:
    """Return the probability that a series without change has a statistic of at least `most`. The distribution is
    simulated only where a single place would be rare.
    """
    at_least = 2 * NormalDist().cdf(-most)
    if at_least > _NO_RARITY:
        return at_least
    maxima = drawn(count)
    beyond = len(maxima) - int(np.searchsorted(maxima, most - 1e-6))
    return (1 + beyond) / (1 + len(maxima))


def _scan(ranks: Floats) -> Floats:
    """Return (series, places): deviation of the sum of the first ranks from its expectation, in standard deviations."""
    count = ranks.shape[1]
    places = np.arange(_SIDE, count - _SIDE + 1)
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, places - 1]
    deviations: Floats = np.abs(sums) / np.sqrt(places * (count - places) * (count + 1) / 12)
    return deviations


def _spells(ranks: Floats) -> Iterator[tuple[int, Floats]]:
    """Yield the length of inner parts, and (series, places): deviation of their sum of ranks, in standard deviations.
    Places count from _SIDE on.
    """
    count = ranks.shape[1]
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, _SIDE - 1 : count - _SIDE]
    for length in range(_SIDE, count - 2 * _SIDE + 1):
        deviation = math.sqrt(length * (count - length) * (count + 1) / 12)
        yield length, np.abs(sums[:, length:] - sums[:, :-length]) / deviation


@functools.cache
def _drawn(count: int) -> Floats:
    """Return the largest deviation of each simulated series without change, sorted."""
    return np.sort(_scan(_drawn_ranks(count)).max(axis=1))


@functools.cache
def _drawn_spells(count: int) -> Floats:
    """Return the largest deviation of inner parts of each simulated series without change, sorted."""
    most = np.zeros(_DRAWS)
    for _, scan in _spells(_drawn_ranks(count)):
        np.maximum(most, scan.max(axis=1), out=most)
    return np.sort(most)


def _drawn_ranks(count: int) -> Floats:
    """Return (series, nights): random permutations of the ranks."""
    random = np.random.default_rng([_SEED, count])
    return np.argsort(random.random((_DRAWS, count)), axis=1).astype(np.float64) + 1


def _ranks(values: Floats) -> Floats:
    """Return ranks from 1; equal values share the mean of their ranks."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Floats = (ends - (counts - 1) / 2)[places.reshape(-1)]
    return shared


def _trend(values: Floats) -> tuple[float, float]:
    """Return the median slope per night over all pairs of nights, and the probability by chance that so many pairs
    agree.
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
    """Return the numbers of the nights whose residual is an outlier."""
    scale = mad(residuals)
    if len(residuals) < _FEWEST_FOR_OUTLIERS or scale <= 0:
        return ()
    return tuple(int(place) for place in np.flatnonzero(np.abs(residuals) > _OUT * scale))


def _noise(residuals: Floats, outliers: tuple[int, ...], parameters: int) -> RepeatNoise | None:
    """Return the noise between nights without outliers; None where there are too few nights."""
    kept = np.delete(residuals, outliers)
    df = len(kept) - parameters
    if len(kept) < 5 or df < 3:
        return None
    return RepeatNoise(math.sqrt(float((kept**2).sum()) / df), df)
