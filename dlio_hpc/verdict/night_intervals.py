"""Interval of a metric from several nights, and the number of nights that are needed for a decision on a limit."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis import students_t
from dlio_hpc.analysis.quantiles import Floats
from dlio_hpc.analysis.study import job_spread
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import variation
from dlio_hpc.verdict.outlying_runs import FEW
from dlio_hpc.verdict.variation import ASSUMED, ASSUMED_RUNS, ENOUGH, OF_MEDIAN, NightSpread, SampledLevel

# Two-sided confidence of an interval: 2 % are beyond each end.
CONFIDENCE = 0.96
# Largest number of nights, or of runs, that is recommended.
MOST = 50


class LimitScale(NamedTuple):
    """Scale on which a metric is compared with its limit. The scale is logarithmic. If a value is 0 or negative, and so
    has no logarithm, the scale is linear. Close to the limit, both scales are equal. Higher positions on the scale are
    better. The limit has position 0. limit: the limit, above 0. is_linear: whether the scale is linear, in units of the
    limit.
    """

    metric: MetricName
    limit: float
    is_linear: bool

    def places(self, values: Sequence[float]) -> Floats:
        if self.is_linear:
            ratios: Floats = np.asarray(values, np.float64) / self.limit
            return (ratios - 1) * METRICS[self.metric].sign
        return variation.logarithms(values, self.metric) - variation.logarithms([self.limit], self.metric)

    def value(self, place: float) -> float:
        signed = place * METRICS[self.metric].sign
        return self.limit * (1 + signed) if self.is_linear else self.limit * math.exp(min(signed, 700.0))


def level(nights: Sequence[Floats], prior: NightSpread) -> SampledLevel:
    """Return the level of a metric with its interval. The interval is infinite if the noise is unknown. nights: runs of
    each night, as logarithms. prior: as in variation.sampled().
    """
    return variation.sampled(nights, of_levels(nights, prior), CONFIDENCE)


def of_levels(nights: Sequence[Floats], prior: NightSpread) -> NightSpread:
    """Return the variation between the levels of nights: the variation between nights, plus the noise of the runs of a
    night. This noise is assumed if every night has a single run. The variation from other measurements of the site
    already contains the noise of runs, unless the runs of these nights differ by more.
    """
    noise = ASSUMED_RUNS if are_runs_assumed(nights, prior) else _noise_of_runs(nights)
    if prior.sd == 0 or noise.sd == 0:
        return prior
    shares = [(OF_MEDIAN if 2 < len(runs) < FEW else 1) / len(runs) for runs in nights]
    of_runs = noise.sd**2 * float(np.mean(shares))
    if prior.source == "site" and of_runs <= prior.sd**2:
        return prior
    variance, df = job_spread.combined([prior.sd**2, of_runs], [prior.df, noise.df])
    return NightSpread(math.sqrt(variance), df, prior.source)


def _noise_of_runs(nights: Sequence[Floats]) -> NightSpread:
    return NightSpread(variation.within(nights), sum(len(runs) - 1 for runs in nights), "runs")


def are_runs_assumed(nights: Sequence[Floats], prior: NightSpread) -> bool:
    """Return whether the noise of runs is assumed, because no night has several runs. A variation of levels that the
    site shows or the user states already contains this noise.
    """
    return prior.source == ASSUMED.source and all(len(runs) < 2 for runs in nights)


def half_width(spread: NightSpread, share: float) -> float:
    """Return half of the width of an interval. share: variance of the estimate, divided by the variance of a level."""
    return students_t.quantile((1 + CONFIDENCE) / 2, spread.df) * spread.sd * math.sqrt(share)


def nights_needed(measured: NightSpread, nights: int, prior: NightSpread, margin: float, sides: int = 1) -> int | None:
    """Return the smallest number of nights for which the interval excludes the limit, if the estimate does not change.
    Return None if more than MOST would be necessary. measured: variation between levels, from the current number of
    nights. margin: distance of the estimate from the limit. sides: number of levels of which the estimate is the
    difference.
    """
    for count in range(nights + 1, MOST + 1):
        spread = variation.combined(NightSpread(measured.sd, sides * (count - 1)), prior)
        if half_width(spread, sides / count) < margin:
            return count
    return None


def runs_needed(measured: NightSpread, runs: int, margin: float) -> int | None:
    """Return the smallest number of runs for which the interval excludes the limit, if nights do not differ. Return
    None if more than MOST would be necessary. measured: variation between runs.
    """
    counts = range(runs + 1, MOST + 1)
    return next((n for n in counts if half_width(NightSpread(measured.sd, n - 1), 1 / n) < margin), None)


def about_nights(measured: NightSpread, nights: int, prior: NightSpread, is_assumed: bool) -> str:
    """Return a phrase for the variation between nights in an interval. measured: variation that the interval contains.
    nights: number of nights. prior: prior knowledge about nights, without the noise of runs. is_assumed: whether the
    noise of runs is assumed.
    """
    if prior.sd == 0:
        return "nights are assumed to be equal (night_spread: 0)"
    if nights == 1:
        runs = f", and runs by {percent(ASSUMED_RUNS)} (--repeat 3 shows how much)" if is_assumed else ""
        return f"nights were not sampled: nights {_differ(prior)}{runs}"
    if prior.source == "given":
        return f"nights differ by {percent(prior)} (night_spread)"
    text = f"nights differ by {percent(measured)}, estimated from these nights"
    if prior.source == "site":
        return f"{text} and the {percent(prior)} of this site"
    runs = f", and of {percent(ASSUMED_RUNS)} between runs" if is_assumed else ""
    return text if nights > ENOUGH else f"{text} and an assumption of {percent(prior)}{runs}"


def _differ(prior: NightSpread) -> str:
    if prior.source == "given":
        return f"differ by {percent(prior)} (night_spread)"
    if prior.source == "site":
        return f"at this site differ by {percent(prior)}"
    return f"are assumed to differ by {percent(prior)}"


def percent(spread: NightSpread) -> str:
    """Return a variation as text, such as "3.1 %"."""
    return f"{100 * spread.sd:.2g} %"
