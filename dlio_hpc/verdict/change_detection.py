"""What a series of nights tells: steps, drifts, and single nights that fell out of line.

A change must show in the ranks: a scan over all places at which the series may fall into two (Pettitt's statistic,
Applied Statistics 28, 1979, standardised at each place, so that what changed lately is found as well; its
distribution drawn, not asymptotic), a trend (Mann and Kendall), or a spell between two nights. A step may also be so
large that Student's t finds it in fewer nights than ranks can. The one or other name it
gets from what fits better: medians before and after, or Theil and Sen's line.
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

from dlio_hpc.analysis.robust import Floats, Noise, mad, median

Kind = Literal["step", "drift"]

# A look every night must not cry wolf: at this level one series of 60 nights in about fifty is taken for changed.
LEVEL = 0.001
# Nights that a step takes on either side of it, and that a series needs for any change to be seen.
_SIDE, FEWEST = 3, 8
# Standard deviations beyond which a night is by itself, and nights that it takes to say so.
_OUT, _FEWEST_BESIDE = 4.5, 6
_DRAWS, _SEED = 20_000, 20_261_121
_NO_RARITY = 0.002


class Change(Struct, frozen=True):
    """at: the first night after a step, or the first of a drift; until: the last night of a drift, else `at`. size: a
    logarithm, of the level after to that before, or of a drift's end to its beginning. p: of its ranks by chance.
    """

    kind: Kind
    at: int
    until: int
    size: float
    p: float


class Changes(NamedTuple):
    """changes: in their order. outliers: nights by themselves. levels: (n) what the changes make of the series. noise:
    between nights, beside all of this; None where too few of them tell.
    """

    changes: tuple[Change, ...]
    outliers: tuple[int, ...]
    levels: Floats
    noise: Noise | None


class _Model(NamedTuple):
    """parameters: how many numbers make `levels`."""

    changes: tuple[Change, ...]
    levels: Floats
    parameters: int


def find(values: Floats, level: float = LEVEL) -> Changes:
    """Of logarithms, one a night, the oldest first."""
    model = _model(values, 0, level)
    left = values - model.levels
    outliers = _outliers(left)
    return Changes(model.changes, outliers, model.levels, _noise(left, outliers, model.parameters))


def _model(values: Floats, first: int, level: float) -> _Model:
    """Of a part of the series, whose first night is number `first`."""
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
    """Parts that begin at these places, each with what changes in itself."""
    ends = _refined(values, [0, *places, len(values)])
    parts = [_model(values[begin:end], first + begin, level) for begin, end in itertools.pairwise(ends)]
    found: list[Change] = list(parts[0].changes)
    for place, (before, after) in zip(ends[1:], itertools.pairwise(parts), strict=False):
        size = float(after.levels[0] - before.levels[-1])
        found += [Change("step", first + place, first + place, size, p), *after.changes]
    levels = np.concatenate([part.levels for part in parts])
    return _Model(tuple(found), levels, sum(part.parameters for part in parts) + len(places))


def _refined(values: Floats, ends: list[int]) -> list[int]:
    """Each place where medians on both sides leave least: ranks find that there is a step, and nearly where."""
    found = list(ends)
    for number in range(1, len(ends) - 1):
        begin, place, end = found[number - 1], ends[number], ends[number + 1]
        near = range(max(begin + 1, place - _SIDE), min(end - 1, place + _SIDE) + 1)
        found[number] = min(near, key=lambda at: _left(values[begin:at]) + _left(values[at:end]))
    return found


def _left(values: Floats) -> float:
    return float(np.abs(values - median(values)).sum())


def _cost(values: Floats, model: _Model) -> float:
    """Schwarz' criterion for residuals with heavy tails."""
    count = len(values)
    left = max(float(np.abs(values - model.levels).mean()), 1e-12)
    return 2 * count * math.log(left) + model.parameters * math.log(count)


def _line(values: Floats, first: int, slope: float, p: float) -> _Model:
    nights = np.arange(len(values), dtype=np.float64)
    levels = slope * nights + median(values - slope * nights)
    last = first + len(values) - 1
    return _Model((Change("drift", first, last, slope * (len(values) - 1), p),), levels, 2)


def _split(values: Floats) -> tuple[int, float]:
    """Where the series falls into two, and how often chance makes as much of it."""
    scan = _scan(_ranks(values)[np.newaxis])[0]
    best = int(np.argmax(scan))
    by_ranks = best + _SIDE, _p(float(scan[best]), len(values), _drawn)
    place, p = _gap(values)
    return min(by_ranks, (place, 2 * p), key=lambda each: each[1])


def _gap(values: Floats) -> tuple[int, float]:
    """Where means differ most for what is left around them, and at most how often chance does that at any place. A
    single night far off makes what is left larger, and finds nothing.
    """
    count = len(values)
    places = np.arange(_SIDE, count - _SIDE + 1)
    sums, squares = np.cumsum(values)[places - 1], float(((values - values.mean()) ** 2).sum())
    apart = sums / places - (values.sum() - sums) / (count - places)
    between = apart**2 * places * (count - places) / count
    left = np.maximum(squares - between, 1e-18)
    best = int(np.argmax(between / left))
    # Student's t as a normal deviate; D. L. Wallace, Annals of Mathematical Statistics 30, 1959.
    df = count - 2
    deviate = math.sqrt(df * math.log1p(float(between[best] / left[best]))) * (1 - 3 / (4 * df))
    return int(places[best]), min(1.0, 2 * len(places) * NormalDist().cdf(-deviate))


def _spell(values: Floats) -> tuple[int, int, float]:
    """A part in the midst that is unlike both ends, which one split alone does not see: its first night and the first
    one after it.
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
    """(begin, end) of parts from place _SIDE on: of their sum of ranks by chance; infinite where there is no part."""
    places = np.arange(_SIDE, count - _SIDE + 1)
    lengths = places - places[:, np.newaxis]
    variances = lengths * (count - lengths) * (count + 1) / 12
    return np.sqrt(np.where(lengths >= _SIDE, variances, np.inf))


def _p(most: float, count: int, drawn: Callable[[int], Floats]) -> float:
    """How often a series without change has as much. Where even a single place would make it no rarity, not drawn."""
    at_least = 2 * NormalDist().cdf(-most)
    if at_least > _NO_RARITY:
        return at_least
    found = drawn(count)
    beyond = len(found) - int(np.searchsorted(found, most - 1e-6))
    return (1 + beyond) / (1 + len(found))


def _scan(ranks: Floats) -> Floats:
    """(series, places): how far the sum of the first ranks is from what it would be by chance, in deviations."""
    count = ranks.shape[1]
    places = np.arange(_SIDE, count - _SIDE + 1)
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, places - 1]
    found: Floats = np.abs(sums) / np.sqrt(places * (count - places) * (count + 1) / 12)
    return found


def _spells(ranks: Floats) -> Iterator[tuple[int, Floats]]:
    """Likewise of the ranks of each part in the midst: its length, and (series, places) from place _SIDE on."""
    count = ranks.shape[1]
    sums = np.cumsum(ranks - (count + 1) / 2, axis=1)[:, _SIDE - 1 : count - _SIDE]
    for length in range(_SIDE, count - 2 * _SIDE + 1):
        deviation = math.sqrt(length * (count - length) * (count + 1) / 12)
        yield length, np.abs(sums[:, length:] - sums[:, :-length]) / deviation


@functools.cache
def _drawn(count: int) -> Floats:
    """The largest of each of many series without any change, in order."""
    return np.sort(_scan(_drawn_ranks(count)).max(axis=1))


@functools.cache
def _drawn_spells(count: int) -> Floats:
    """Likewise of their parts in the midst."""
    most = np.zeros(_DRAWS)
    for _, scan in _spells(_drawn_ranks(count)):
        np.maximum(most, scan.max(axis=1), out=most)
    return np.sort(most)


def _drawn_ranks(count: int) -> Floats:
    random = np.random.default_rng([_SEED, count])
    return np.argsort(random.random((_DRAWS, count)), axis=1).astype(np.float64) + 1


def _ranks(values: Floats) -> Floats:
    """From 1; equals share theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    shared: Floats = (ends - (counts - 1) / 2)[places.reshape(-1)]
    return shared


def _trend(values: Floats) -> tuple[float, float]:
    """Median slope a night of all pairs of nights, and how often chance makes as many pairs agree."""
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


def _outliers(left: Floats) -> tuple[int, ...]:
    """Of what the changes leave unexplained."""
    scale = mad(left)
    if len(left) < _FEWEST_BESIDE or scale <= 0:
        return ()
    return tuple(int(place) for place in np.flatnonzero(np.abs(left) > _OUT * scale))


def _noise(left: Floats, outliers: tuple[int, ...], parameters: int) -> Noise | None:
    kept = np.delete(left, outliers)
    df = len(kept) - parameters
    if len(kept) < 5 or df < 3:
        return None
    return Noise(math.sqrt(float((kept**2).sum()) / df), df)
