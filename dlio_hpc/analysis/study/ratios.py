"""Ratios between points, with their intervals. Every ratio in a study's report is computed here.

Intervals are simultaneous: with the stated confidence, all intervals of a part of the study contain the true ratio.
Settings on the same number of ranks are compared in pairs (Tukey, Kramer). Each number of ranks is compared with the
smallest (Dunnett). Critical values are simulated for the measurements that the study made (see replicates).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.study import replicates
from dlio_hpc.analysis.study.job_spread import ASSUMED, JobSpread
from dlio_hpc.analysis.study.replicates import SURE, Fit, Floats

# Confidence that is required before a difference between settings is reported. With a noise of 5 %, a difference of 2 %
# is not reported in 19 of 20 studies.
SURER = 0.975


class Noise(Struct, frozen=True):
    """Noise of measurements. sd: relative standard deviation of a single measurement; None if it is unknown. df:
    degrees of freedom of sd. is_blocked: whether differences between rounds of measurements were separated from the
    noise. drift: relative difference between the best and the worst round. includes_jobs: whether sd includes an
    assumed variation between jobs, because settings were measured in different jobs, and the jobs have no settings in
    common.
    """

    sd: float | None
    df: int
    is_blocked: bool
    drift: float
    includes_jobs: bool = False


class Ratio(NamedTuple):
    """Ratio of one point to another; above 1 means better. low, high: interval of the ratio; None if the noise is
    unknown, or if a point is compared with itself.
    """

    value: float
    low: float | None
    high: float | None

    def is_apart(self, expected: float = 1.0) -> bool:
        """Return whether the interval excludes `expected`."""
        return self.low is not None and self.high is not None and not self.low <= expected <= self.high


class Estimates(NamedTuple):
    """Estimates of the metric of points. The intervals of the ratios between the points are simultaneous. fit: fit of
    the points. critical: half-width of an interval in standard errors; None if the noise is unknown. widest: for each
    noise-only simulation, the largest difference between any two points that are compared, in standard errors; None if
    the noise is unknown.
    """

    fit: Fit
    critical: float | None
    widest: Floats | None

    def ratio(self, a: int, b: int) -> Ratio:
        """Return the ratio of the levels of two points, given by their indices. It is above 1 if point `a` is better.
        The interval is computed from the estimates, and widened to contain the ratio of the levels.
        """
        ratio = _exp(float(self.fit.levels[a] - self.fit.levels[b]))
        if self.critical is None or a == b:
            return Ratio(ratio, None, None)
        difference = float(self.fit.values[a] - self.fit.values[b])
        return _with_interval(ratio, difference, self.critical * self.fit.sd * self.fit.difference_sd(a, b))

    def confidence(self, a: int, b: int) -> float | None:
        """Return the share of noise-only simulations in which the differences of all pairs, in standard errors, are
        smaller than the difference between `a` and `b`. Return None if the noise is unknown or `a` equals `b`.
        """
        if self.widest is None or a == b:
            return None
        difference = abs(float(self.fit.values[a] - self.fit.values[b]))
        return float((self.widest < difference / (self.fit.sd * self.fit.difference_sd(a, b))).mean())

    @property
    def noise(self) -> Noise:
        fit = self.fit
        sd = float(np.expm1(fit.sd)) if fit.is_noise_known else None
        return Noise(sd, fit.df, bool(fit.spread.size), float(np.expm1(fit.drift)), fit.runs_of_job > 1)


def of_pairs(fits: Sequence[Fit], families: int, assumed: JobSpread = ASSUMED) -> list[Estimates]:
    """Return estimates for all pairs of points of each fit, with one critical value for all fits. families: number of
    families of ratios (settings, scaling). The error level of a part, 5 %, is divided among the families. assumed: as
    for replicates.widened().
    """
    known = replicates.widened(replicates.pooled(fits), assumed)
    if not known or not known[0].is_noise_known:
        return [Estimates(fit, None, None) for fit in known]
    widest = replicates.ranges(known)
    critical = float(np.quantile(widest, _level(SURER, families)))
    if any(replicates.apart(fit) > critical for fit in known):
        critical = float(np.quantile(widest, _level(SURE, families)))
    return [Estimates(fit, critical, widest) for fit in known]


def of_steps(
    values: Floats, levels: Floats, variances: Floats, df: float, steps: Sequence[tuple[int, int]], families: int
) -> list[Ratio]:
    """Return the ratio of the levels of the two points of each pair in `steps`. values, variances: estimate of each
    point, and the variance of the estimate. levels: level of each point as reports show it. df: degrees of freedom of
    the variances; 0 if they are unknown. families: as in of_pairs().
    """
    ratios = [_exp(float(levels[a] - levels[b])) for a, b in steps]
    if not df > 0:
        return [Ratio(ratio, None, None) for ratio in ratios]
    critical = float(np.quantile(replicates.differences(variances, df, steps), _level(SURE, families)))
    half_widths = [critical * float(np.sqrt(variances[a] + variances[b])) for a, b in steps]
    differences = [float(values[a] - values[b]) for a, b in steps]
    return [
        _with_interval(ratio, difference, half_width)
        for ratio, difference, half_width in zip(ratios, differences, half_widths, strict=True)
    ]


def _with_interval(ratio: float, difference: float, half_width: float) -> Ratio:
    """Return a ratio of levels with its interval. The interval is computed from the estimates, and widened to contain
    the ratio. difference: difference of the logarithms of the estimates. half_width: half the width of the interval of
    the difference.
    """
    return Ratio(ratio, min(ratio, _exp(difference - half_width)), max(ratio, _exp(difference + half_width)))


def _level(sure: float, families: int) -> float:
    return 1 - (1 - sure) / families


def _exp(logarithm: float) -> float:
    return float(np.exp(min(logarithm, 700.0)))  # limited, because JSON has no infinity
