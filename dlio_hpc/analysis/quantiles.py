"""Median, quantiles and scale of few values. They are robust against outliers."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def median(values: Floats) -> float:
    """Return the median of `values`. There must be at least one value. For few values, this function takes a tenth of
    the time of numpy.median.
    """
    ordered = np.sort(values)
    return float(ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def quantile(values: Floats, share: float) -> float:
    """Return the quantile of `values` as numpy.quantile does. There must be at least one value. For few values, this
    function takes a tenth of the time of numpy.quantile.
    """
    ordered = np.sort(values)
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))


def mad(values: Floats) -> float:
    """Return the median absolute deviation, scaled so that it equals the standard deviation if the values are normally
    distributed. Return 0 if there are no values.
    """
    return 1.4826 * median(np.abs(values - median(values))) if len(values) else 0.0
