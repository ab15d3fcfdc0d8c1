"""Range of normally distributed values: the difference between the largest and the smallest of n values. Ranges are in
standard deviations of a value.
"""

import functools
import math
from statistics import NormalDist

import numpy as np

from dlio_hpc.analysis.quantiles import Floats

_NORMAL = NormalDist()
# Ends of the integrals, in standard deviations, and their step. The error of a result is below 1e-6.
_END, _STEP = 8.0, 0.02


@functools.cache
def mean(count: int) -> float:
    """Return the mean range of `count` values, which is called d2 in tables for quality control. count: at least 2."""
    below = _below(0.0)
    return float(_STEP * (1 - below**count - (1 - below) ** count).sum())


def is_exceeded(size: float, count: int) -> float:
    """Return the probability that the range of `count` normally distributed values is larger than `size`. count: at
    least 2. size: range in standard deviations of a value, from 0 to infinity.
    """
    if math.isinf(size):
        return 0.0
    density = np.exp(-(_places() ** 2) / 2) / math.sqrt(2 * math.pi)
    within = (_below(size) - _below(0.0)) ** (count - 1)
    return max(0.0, 1 - float(_STEP * count * (density * within).sum()))


def _places() -> Floats:
    return np.arange(-_END, _END + _STEP / 2, _STEP)


def _below(shift: float) -> Floats:
    """Return, for each point at which the integrand is evaluated, the probability that a value is below this point plus
    `shift`.
    """
    return _at_zero() if shift == 0 else np.array([_NORMAL.cdf(place + shift) for place in _places()])


@functools.cache
def _at_zero() -> Floats:
    return np.array([_NORMAL.cdf(place) for place in _places()])
