"""Medians of repeats, and how many times as good one set of them is as another, with intervals that few can bear.

Of differences values are logarithms, so that they are ratios. An interval is a bootstrap of medians (B. Efron), its
percentiles moved out as far as few values need it (T. Hesterberg, The American Statistician 69, 2015, section 4.3).
What repeats of one job share, such as the night's other users, they cannot show: where it is known from other jobs,
the interval is as much wider. Draws have a fixed seed: the same values, the same interval.
"""

import functools
import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Each end of an interval leaves out one in twenty, so both together one in ten.
SURE = 0.95
# Resamples of fewer repeats do not show their noise.
FEWEST = 3
_MANY = 5
_DRAWS = 4000
_SEED = 20_261_121


class Noise(NamedTuple):
    """Between medians of jobs that are alike: its standard deviation (a logarithm), and its degrees of freedom."""

    sd: float
    df: int


class Estimate(NamedTuple):
    """low, high: both ends of its interval; None where a single value tells no noise."""

    value: float
    low: float | None
    high: float | None


class Difference(NamedTuple):
    """Of two medians of logarithms, with both ends of its interval; these are None where nothing tells the noise."""

    value: float
    low: float | None
    high: float | None

    @property
    def half(self) -> float | None:
        """Half the interval's width."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2


def estimate(values: Sequence[float]) -> Estimate:
    """The median of at least one value; the same in any order. Of fewer than five, whose range holds the truth less
    often than promised, as if they were normally distributed.
    """
    found = np.sort(np.asarray(values, np.float64))
    if len(found) == 1:
        return Estimate(float(found[0]), None, None)
    if len(found) < _MANY:
        half = t_quantile(len(found) - 1) * float(found.std(ddof=1)) * math.sqrt(math.pi / 2 / len(found))
        return Estimate(median(found), median(found) - half, median(found) + half)
    drawn, tail = _medians(found, 0), _tail(len(found))
    return Estimate(median(found), float(np.quantile(drawn, tail)), float(np.quantile(drawn, 1 - tail)))


def ratio(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Of the median of values to that of base, all of them positive."""
    found = difference(np.log(values), np.log(base))
    low, high = (None if end is None else math.exp(end) for end in (found.low, found.high))
    return Estimate(math.exp(found.value), low, high)


def difference(
    one: Sequence[float] | Floats, other: Sequence[float] | Floats, noise: Noise | None = None
) -> Difference:
    """Median of `one` less that of `other`. noise: between jobs, where it is known."""
    mine, theirs = np.sort(np.asarray(one, np.float64)), np.sort(np.asarray(other, np.float64))
    value = median(mine) - median(theirs)
    if min(len(mine), len(theirs)) < FEWEST and noise is None:
        return Difference(value, None, None)
    medians = [_medians(mine, 0), _medians(theirs, 1)]
    drawn = np.sort(medians[0] - medians[1])
    tail = _tail(min(max(len(mine), 2), max(len(theirs), 2)))
    low, high = float(np.quantile(drawn, tail)), float(np.quantile(drawn, 1 - tail))
    if noise is None:
        return Difference(value, min(low, value), max(high, value))
    missing = sum(max(0.0, noise.sd**2 - float(each.var())) for each in medians)
    room = t_quantile(noise.df) * math.sqrt(missing)
    return Difference(value, value - math.hypot(value - low, room), value + math.hypot(high - value, room))


def t_quantile(df: int, sure: float = SURE) -> float:
    """Of Student's distribution; Cornish and Fisher's expansion, within 1 % from three degrees on, exact below."""
    if df == 1:
        return math.tan(math.pi * (sure - 0.5))
    if df == 2:
        return (2 * sure - 1) / math.sqrt(2 * sure * (1 - sure))
    z = NormalDist().inv_cdf(sure)
    terms = (
        z,
        (z**3 + z) / (4 * df),
        (5 * z**5 + 16 * z**3 + 3 * z) / (96 * df**2),
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * df**3),
    )
    return sum(terms)


def median(values: Floats) -> float:
    """Of one value or more; a tenth of the time that NumPy's takes for few."""
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def mad(values: Floats) -> float:
    """Median distance from the median, as large as a normal distribution's standard deviation."""
    return 1.4826 * median(np.abs(values - median(values))) if len(values) else 0.0


def _medians(values: Floats, side: int) -> Floats:
    """Medians of resamples of sorted values: (draws)."""
    count = len(values)
    places = _places(count, side)
    return (values[places[:, (count - 1) // 2]] + values[places[:, count // 2]]) / 2


@functools.cache
def _places(count: int, side: int) -> npt.NDArray[np.int64]:
    """Places of resampled values, in order: (draws, count). Another draw for each side."""
    random = np.random.default_rng([_SEED, side, count])
    return np.sort(random.integers(0, count, (_DRAWS, count)), axis=1)


@functools.cache
def _tail(count: int) -> float:
    """The share of draws beyond one end."""
    return NormalDist().cdf(-math.sqrt(count / (count - 1)) * t_quantile(count - 1))
