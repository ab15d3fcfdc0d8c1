"""Level of nights and the variation around it, estimated so that outliers have little influence."""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.quantiles import Floats, mad, median, quantile
from dlio_hpc.verdict import variation
from dlio_hpc.verdict.variation import NightSpread

Labels = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Nights count as if they deviated by at most this number of standard deviations, except a newest night by itself.
CLIP = 3.5
# Number of standard deviations that 90 % of normal values do not exceed.
_NORMAL_90 = NormalDist().inv_cdf(0.95)
# Fewest degrees of freedom for a scale that outliers do not affect.
_FEWEST_FOR_SCALE = 4


class CourseSpread(NamedTuple):
    """Variation of nights around their levels. sd: standard deviation. df: degrees of freedom of sd. correlation:
    correlation of consecutive nights.
    """

    sd: float
    df: float
    correlation: float = 0.0

    def error(self, count: int) -> float:
        """Return the variance (not the standard error) of the mean of `count` consecutive nights."""
        return self.sd**2 * float(error_share(self.correlation, count))


def error_share(correlation: float | Floats, count: int | Labels) -> float | Floats:
    """Return the variance of the mean of `count` consecutive nights, divided by the variance of a night. correlation:
    correlation of consecutive nights.
    """
    rho = correlation
    return ((1 + rho) / (1 - rho) - 2 * rho * (1 - rho**count) / (count * (1 - rho) ** 2)) / count


def spread_of(values: Floats, labels: Labels, prior: NightSpread) -> CourseSpread:
    """Return the variation of nights around their levels. values: logarithms, one a night. labels: number of the level
    of each night.
    """
    counts = np.bincount(labels)
    means = np.bincount(labels, values) / np.maximum(counts, 1)
    residuals = values - means[labels]
    df = max(0, len(values) - int(np.count_nonzero(counts)))
    if df == 0:
        known = variation.combined(NightSpread(0.0, 0), prior)
        return CourseSpread(known.sd, known.df)
    scale = _scale(residuals) if df >= _FEWEST_FOR_SCALE else math.inf
    clipped = np.clip(residuals, -CLIP * scale, CLIP * scale) if scale > 0 else residuals
    squares = float((clipped**2).sum())
    spread = variation.combined(NightSpread(math.sqrt(squares / df), df), prior)
    return CourseSpread(max(spread.sd, 1e-9), spread.df, _correlation(clipped, squares))


def _scale(residuals: Floats) -> float:
    """Return a standard deviation that outliers do not affect, if at most a tenth of the nights are outliers."""
    return max(mad(residuals), quantile(np.abs(residuals), 0.9) / _NORMAL_90)


def _correlation(residuals: Floats, squares: float) -> float:
    """Return the correlation of consecutive nights, corrected for the estimation of their mean. squares: sum of the
    squares of the residuals.
    """
    count = len(residuals)
    if count < 4 or squares <= 0:
        return 0.0
    raw = float((residuals[1:] * residuals[:-1]).sum()) / squares
    return min(0.8, max(0.0, (raw + 1 / count) * count / (count - 3)))


def level_of(values: Floats, sd: float) -> float:
    """Return the level of nights: the mean of their values, clipped at 3.5 standard deviations from the median."""
    middle = median(values)
    return float(np.clip(values, middle - CLIP * sd, middle + CLIP * sd).mean())


class LevelEstimates(NamedTuple):
    """Estimates from all nights before each night of a series. Arrays with an item for each night. level: level_of().
    sd, df, correlation: spread_of(). error: variance of the level.
    """

    level: Floats
    sd: Floats
    df: Floats
    correlation: Floats
    error: Floats


def before_each_night(values: Floats, prior: NightSpread) -> LevelEstimates:
    """Estimate from all nights before each night. All nights belong to one level. The first night, which has no nights
    before it, has the level 0 and the standard deviation 1. The results differ from the results of level_of() and
    spread_of() by rounding only; they take a fifth of the time.
    """
    counts = np.arange(1, len(values))
    is_before = np.arange(len(values) - 1) < counts[:, np.newaxis]
    rows = np.broadcast_to(values[:-1], is_before.shape)
    residuals = np.where(is_before, rows - (np.cumsum(values[:-1]) / counts)[:, np.newaxis], 0.0)
    clipped = _clipped(residuals, is_before)
    squares = (clipped**2).sum(axis=1)
    own = zip(np.sqrt(squares / np.maximum(1, counts - 1)).tolist(), (counts - 1).tolist(), strict=True)
    known = [variation.combined(NightSpread(*spread), prior) for spread in own]
    sd = np.array([max(spread.sd, 1e-9) if night else spread.sd for night, spread in enumerate(known)])
    middle, most = _quantiles(rows, is_before, 0.5)[:, np.newaxis], (CLIP * sd)[:, np.newaxis]
    level = np.where(is_before, np.clip(rows, middle - most, middle + most), 0.0).sum(axis=1) / counts
    correlation = _correlations(clipped, squares, counts)
    error = sd**2 * error_share(correlation, counts)
    first = LevelEstimates(*np.array([[0.0], [1.0], [1.0], [0.0], [1.0]]))
    rest = LevelEstimates(level, sd, np.array([spread.df for spread in known]), correlation, error)
    return LevelEstimates(*(np.append(*items) for items in zip(first, rest, strict=True)))


def _clipped(residuals: Floats, is_before: Flags) -> Floats:
    """Return rows of residuals, limited as spread_of() limits them. is_before: the items of each row that are used."""
    middle = _quantiles(residuals, is_before, 0.5)[:, np.newaxis]
    deviation = 1.4826 * _quantiles(np.abs(residuals - middle), is_before, 0.5)
    scale = np.maximum(deviation, _quantiles(np.abs(residuals), is_before, 0.9) / _NORMAL_90)
    scale[:_FEWEST_FOR_SCALE] = math.inf
    most = CLIP * np.where(scale > 0, scale, math.inf)[:, np.newaxis]
    return np.clip(residuals, -most, most)


def _quantiles(rows: Floats, is_before: Flags, share: float) -> Floats:
    """Return the quantile of each row. is_before: the items of each row that are used."""
    ordered = np.sort(np.where(is_before, rows, math.inf), axis=1)
    row, place = np.arange(len(rows)), share * np.arange(len(rows))
    low = place.astype(np.int64)
    lower, upper = ordered[row, low], ordered[row, np.minimum(low + 1, row)]
    return np.asarray(lower + (place - low) * (upper - lower))


def _correlations(residuals: Floats, squares: Floats, counts: Labels) -> Floats:
    """Return _correlation() of each row of residuals. counts: number of items of each row that are used."""
    products = (residuals[:, 1:] * residuals[:, :-1]).sum(axis=1)
    is_known = (counts >= 4) & (squares > 0)
    raw = np.divide(products, squares, where=is_known, out=np.zeros(len(counts)))
    corrected = np.clip((raw + 1 / counts) * counts / np.maximum(1, counts - 3), 0.0, 0.8)
    return np.where(is_known, corrected, 0.0)
