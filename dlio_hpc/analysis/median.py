"""The median of repeated measurements, and how far it may be from what more of them would give."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Both ends of an interval together leave out one in ten, so each end by itself one in twenty.
_OUTSIDE = 0.05
# Fewer repeats than these tell nothing of their noise.
FEWEST = 3
_DRAWS, _FEWEST_DRAWS, _NUMBERS = 10_000, 1_000, 10_000_000
_SEED = 20_260_101


class Estimate(NamedTuple):
    """low, high: of 90 %, by the bootstrap; of fewer than three values their range; None where there is but one."""

    value: float
    low: float | None
    high: float | None


def of(values: Sequence[float]) -> Estimate:
    """Of at least one value; the same for the same values in any order."""
    found = np.sort(np.asarray(values, float))
    if len(found) == 1:
        return Estimate(float(found[0]), None, None)
    if len(found) < FEWEST:
        return Estimate(float(np.median(found)), float(found[0]), float(found[-1]))
    return Estimate(float(np.median(found)), *_ends(_medians(found, _SEED)))


def ratio(values: Sequence[float], base: Sequence[float]) -> Estimate:
    """Of the median of values to that of base, all of them positive."""
    upper, lower = np.sort(np.asarray(values, float)), np.sort(np.asarray(base, float))
    value = float(np.median(upper) / np.median(lower))
    fewest = min(len(upper), len(lower))
    if fewest == 1:
        return Estimate(value, None, None)
    if fewest < FEWEST:
        return Estimate(value, float(upper[0] / lower[-1]), float(upper[-1] / lower[0]))
    return Estimate(value, *_ends(_medians(upper, _SEED) / _medians(lower, _SEED + 1)))


def _medians(values: Floats, seed: int) -> Floats:
    """(draws): of as many values, drawn from these with repeats."""
    random: Any = np.random.default_rng(seed)
    draws = int(np.clip(_NUMBERS // len(values), _FEWEST_DRAWS, _DRAWS))
    places = random.integers(0, len(values), (draws, len(values)))
    return np.asarray(np.median(values[places], axis=1), np.float64)


def _ends(medians: Floats) -> tuple[float, float]:
    """The outer of the two draws that an end falls between."""
    low = np.quantile(medians, _OUTSIDE, method="lower")
    return float(low), float(np.quantile(medians, 1 - _OUTSIDE, method="higher"))
