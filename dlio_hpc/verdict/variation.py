"""Variation of a metric: between the runs of a job, and between nights with the same settings.

The runs of one job do not show effects that are the same for all of them on a night, such as the load by other users.
The variation between nights is therefore estimated from several nights. If there are few nights, other measurements of
the site, or an assumption, are used as well.
"""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from dlio_hpc.analysis import students_t
from dlio_hpc.analysis.quantiles import Floats, median
from dlio_hpc.analysis.study import job_spread
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import outlying_runs

# Where a variation comes from: the nights of the measurement, other measurements of the site, an assumption, the runs
# alone, or the user.
NoiseSource = Literal["nights", "site", "assumed", "runs", "given"]
# Variance of the median of many normal values, divided by that of their mean. That of few values is smaller.
OF_MEDIAN = math.pi / 2
# Number of nights of a measurement from which the assumption about nights has no weight any more.
ENOUGH = 10
# Largest number of degrees of freedom that the other measurements of a site count for.
_MOST_OF_SITE = 30.0
# Smallest number of degrees of freedom of a measurement that counts for its site.
_LEAST = 3


class NightSpread(NamedTuple):
    """Variation between nights with the same settings. sd: standard deviation of the logarithm of a night's level. df:
    degrees of freedom of sd; infinite if it is known. source: source of sd.
    """

    sd: float
    df: float
    source: NoiseSource = "nights"


# The assumption about jobs (job_spread) holds for nights. Unlike in a study of few jobs, it loses its weight with the
# number of nights. Ten degrees of freedom make an interval from two nights a seventh wider than if it were known.
ASSUMED = NightSpread(job_spread.ASSUMED.sd, 10, "assumed")
# Variation between the runs of a night, if every night has a single run. With three degrees of freedom, acceptance is
# wrong in 1 of 100 cases even if runs differ by 10 %, and several nights soon replace the assumption.
ASSUMED_RUNS = NightSpread(0.07, 3, "assumed")


class SampledLevel(NamedTuple):
    """Level of a metric on several nights. value: logarithm. low, high: ends of its interval, logarithms. nights:
    number of nights. spread: variation between nights that the interval contains.
    """

    value: float
    low: float
    high: float
    nights: int
    spread: NightSpread


def logarithms(values: Sequence[float], metric: MetricName) -> Floats:
    """Return the logarithms of the values, negated if lower is better."""
    logs: Floats = np.log(np.asarray(values, np.float64))
    return logs if METRICS[metric].is_higher_better else -logs


def within(values: Sequence[Floats]) -> float:
    """Return the standard deviation of the runs of a job, from several jobs. It is 0 if every job has one run. values:
    logarithms of the runs of each job.
    """
    squares = sum(float(((runs - runs.mean()) ** 2).sum()) for runs in values)
    return math.sqrt(squares / max(1, sum(len(runs) - 1 for runs in values)))


def combined(own: NightSpread, prior: NightSpread) -> NightSpread:
    """Return the estimate of variation from the nights of a measurement, and from prior knowledge about it. The weight
    of an assumption decreases with the number of nights, because it is not about this site. A known variation is
    returned unchanged.
    """
    if math.isinf(prior.df):
        return prior
    weight = prior.df
    if prior.source == ASSUMED.source:
        weight *= max(0.0, 1 - own.df / ENOUGH)
    df = own.df + weight
    if df <= 0:
        return own
    sd = math.sqrt((own.df * own.sd**2 + weight * prior.sd**2) / df)
    return NightSpread(sd, df, prior.source if weight > own.df else own.source)


def of_nights(levels: Floats) -> NightSpread:
    """Return the variation between nights whose level does not change. levels: logarithms, one a night."""
    df = max(0, len(levels) - 1)
    return NightSpread(float(levels.std(ddof=1)) if df else 0.0, df)


def of_differences(levels: Floats) -> NightSpread:
    """Return the variation between nights whose level may change, from the differences of consecutive nights. Outliers
    are limited. levels: logarithms, one a night, in the order of time.
    """
    differences = np.diff(levels) / math.sqrt(2)
    if not len(differences):
        return NightSpread(0.0, 0)
    limit = 3 * max(1.4826 * median(np.abs(differences)), 1e-12)
    clipped = np.clip(differences, -limit, limit)
    # Consecutive differences share a night, so that they have two thirds as many degrees of freedom as nights.
    return NightSpread(math.sqrt(float((clipped**2).mean())), 2 * len(differences) / 3)


def is_usable(spread: NightSpread) -> bool:
    """Return whether the variation of a measurement is known well enough to estimate the variation of its site."""
    return spread.df >= _LEAST and spread.sd > 0


def of_site(others: Sequence[NightSpread]) -> NightSpread:
    """Return the variation of a measurement as estimated from other measurements of the site. The more their variations
    differ, the fewer degrees of freedom the result has. Without such measurements, the result is the assumption.
    others: variation of each measurement.
    """
    usable = [other for other in others if is_usable(other)]
    if not usable:
        return ASSUMED
    total = sum(other.df for other in usable)
    variance = sum(other.df * other.sd**2 for other in usable) / total
    if len(usable) == 1:
        return NightSpread(math.sqrt(variance), min(usable[0].df, ASSUMED.df), "site")
    ratios = np.array([other.sd**2 / variance for other in usable])
    by_chance = float(np.mean([2 / other.df for other in usable]))
    excess = float(ratios.var(ddof=1)) - by_chance
    df = _MOST_OF_SITE if excess <= 0 else min(_MOST_OF_SITE, 2 / excess + 4)
    return NightSpread(math.sqrt(variance), df, "site")


def sampled(nights: Sequence[Floats], prior: NightSpread, confidence: float) -> SampledLevel:
    """Return the level of a metric from nights that sample it. nights: logarithms of the runs of each night; at least
    one night. prior: prior knowledge about the variation between nights. If its sd is 0, nights are assumed not to
    differ, and the interval follows from the variation between runs. confidence: two-sided, such as 0.96.
    """
    level = outlying_runs.level if outlying_runs.are_far_runs_rare(nights) else np.mean
    levels = np.array([float(level(runs)) for runs in nights])
    value = float(levels.mean())
    if prior.sd == 0:
        spread = _of_runs(nights)
        error = spread.sd / math.sqrt(sum(map(len, nights)))
    else:
        spread = combined(of_nights(levels), prior)
        error = spread.sd / math.sqrt(len(levels))
    half = students_t.quantile((1 + confidence) / 2, spread.df) * error if spread.df > 0 else math.inf
    return SampledLevel(value, value - half, value + half, len(levels), spread)


def _of_runs(nights: Sequence[Floats]) -> NightSpread:
    """Return the variation between runs, as if all runs belonged to one night."""
    runs = np.concatenate(list(nights))
    return NightSpread(float(runs.std(ddof=1)) if len(runs) > 1 else 0.0, len(runs) - 1, "runs")
