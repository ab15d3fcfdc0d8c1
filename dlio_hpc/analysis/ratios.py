"""The ratio of two points with its interval. Every ratio that a study's report shows comes from here.

Intervals hold for all ratios of a part together. Settings on the same ranks are compared pair by pair (Tukey, Kramer);
numbers of ranks with the fewest (Dunnett). Critical values are drawn from the design as it is (see replicates).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis import replicates
from dlio_hpc.analysis.replicates import SURE, Fit, Floats

# That any two settings differ at all must be surer, so that 2 % under 5 % of noise are noise in 19 studies of 20.
SURER = 0.975


class Noise(Struct, frozen=True):
    """sd: of a single measurement, relative; None where it is unknown. df: its degrees of freedom. are_rounds_apart:
    was what a round's measurements have in common told from it? drift: between the best round and the worst.
    """

    sd: float | None
    df: int
    are_rounds_apart: bool
    drift: float


class Ratio(NamedTuple):
    """value: how many times as good one point is as the other. low, high: its interval; None where noise is unknown,
    and of a point to itself.
    """

    value: float
    low: float | None
    high: float | None

    def is_apart(self, expected: float = 1.0) -> bool:
        """Does the interval leave out `expected`?"""
        return self.low is not None and self.high is not None and not self.low <= expected <= self.high


class Estimates(NamedTuple):
    """Points whose ratios are looked at together. critical: standard errors by which an interval reaches to either
    side; widest: (draws) the most by which noise alone sets any of these pairs apart, in standard errors. None: noise
    is unknown.
    """

    fit: Fit
    critical: float | None
    widest: Floats | None

    def ratio(self, one: int, other: int) -> Ratio:
        """Of the points at these places; above 1 where `one` is better."""
        difference = float(self.fit.values[one] - self.fit.values[other])
        if self.critical is None or one == other:
            return Ratio(_exp(difference), None, None)
        room = self.critical * self.fit.sd * self.fit.difference_sd(one, other)
        return Ratio(_exp(difference), _exp(difference - room), _exp(difference + room))

    def confidence(self, one: int, other: int) -> float | None:
        """Share of draws in which noise alone does less to any pair; None where noise is unknown."""
        if self.widest is None or one == other:
            return None
        difference = abs(float(self.fit.values[one] - self.fit.values[other]))
        return float((self.widest < difference / (self.fit.sd * self.fit.difference_sd(one, other))).mean())

    @property
    def noise(self) -> Noise:
        found = self.fit
        sd = float(np.expm1(found.sd)) if found.is_noise_known else None
        return Noise(sd, found.df, bool(found.spread.size), float(np.expm1(found.drift)))


def of_pairs(fits: Sequence[Fit], families: int) -> list[Estimates]:
    """Any two points of each fit, of all fits together. families: that share the part's 5 % of error."""
    known = replicates.pooled(fits)
    if not known or not known[0].is_noise_known:
        return [Estimates(fit, None, None) for fit in known]
    widest = replicates.ranges(known)
    critical = float(np.quantile(widest, _level(SURER, families)))
    if any(replicates.apart(fit) > critical for fit in known):
        critical = float(np.quantile(widest, _level(SURE, families)))
    return [Estimates(fit, critical, widest) for fit in known]


def of_steps(fit: Fit, steps: Sequence[tuple[int, int]], families: int) -> Estimates:
    """These pairs of points, of which the second is what the first is measured by. families: as of_pairs()."""
    if not fit.is_noise_known:
        return Estimates(fit, None, None)
    widest = replicates.differences(fit, steps)
    return Estimates(fit, float(np.quantile(widest, _level(SURE, families))), widest)


def _level(sure: float, families: int) -> float:
    return 1 - (1 - sure) / families


def _exp(logarithm: float) -> float:
    return float(np.exp(min(logarithm, 700.0)))  # JSON knows no infinity
