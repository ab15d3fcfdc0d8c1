"""Plan of a regression or acceptance campaign: the number of nights that are needed to detect a drop of a given size.

Series of nights with the variation of the site are simulated with a fixed seed, and judged with the thresholds of
`compare` (drawn_nights). The drop is detected on the first night by which enough of the series have had a regression.
"""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dlio_hpc.analysis.quantiles import Floats
from dlio_hpc.verdict import change_detection, drawn_nights, night_intervals, night_series
from dlio_hpc.verdict.change_detection import EASED, Alarm
from dlio_hpc.verdict.variation import OF_MEDIAN, NightSpread

# Largest number of nights that a plan asks for.
MOST = 60
# Numbers of nights before a drop that are tried if the history has fewer than FEWEST nights of the measurement.
_REFERENCES, FEWEST = (5, 10, 20, 30), 5
# Number of nights before a drop from which further ones do not change the plan.
_MANY = 100
# Number of drawn series, and the seed.
_SERIES, _SEED = 2000, 20_261_126
# Largest drop that is tried, and the number of steps in which the smallest drop is searched.
_LARGEST, _STEPS = 0.9, 9
# Variance of the level of a job's runs (outlying_runs.level), divided by that of their mean. The level of few runs is
# their median.
_OF_MEDIAN = {3: 1.346, 4: 1.193}


class CampaignNoise(NamedTuple):
    """Variation of a measurement, as standard deviations of logarithms. nights: variation between nights, without the
    variation between runs. runs: variation between the runs of a job. site: prior knowledge that `compare` has about
    the variation between nights.
    """

    nights: float
    runs: float
    site: NightSpread

    def of_level(self, repeats: int) -> float:
        """Return the standard deviation of the level of a night."""
        return math.sqrt(self.nights**2 + self.runs**2 * share_of_runs(repeats))

    def prior(self, repeats: int) -> NightSpread:
        """Return the prior knowledge of `compare`. A single run does not show the variation between runs."""
        shown = OF_MEDIAN * self.runs**2 / repeats if repeats > 1 else 0.0
        return night_series.with_runs(self.site, shown)


class WantedDetection(NamedTuple):
    """Goal of a campaign. drop: size of the change, such as 0.05. power: probability of detecting it. error:
    probability that a regression is reported by chance during the campaign; None for the probability that `compare`
    allows. tolerance: tolerance of `compare`.
    """

    drop: float
    power: float
    error: float | None
    tolerance: float


class Campaign(NamedTuple):
    """Nights that a campaign needs. repeats: runs of each point in a job. before: additional nights before the drop.
    nights: nights after the drop. error: probability that a regression is reported by chance in the same number of
    nights without a drop. excess: amount by which normal deviates must exceed the thresholds of `compare`. It is
    negative, because the thresholds of the first nights are lower.
    """

    repeats: int
    before: int
    nights: int
    error: float
    excess: float

    @property
    def chance_a_year(self) -> float:
        """Upper limit of the number of such regressions by chance in a year, as `compare` states this number. If
        `compare` states a higher number for a regression, the plan does not count the regression as detected.
        """
        return change_detection.a_year(Alarm(0, 0.0, 1, self.excess))


def share_of_runs(repeats: int) -> float:
    """Return the variance of the level of a job, divided by the variance of a run."""
    return _OF_MEDIAN.get(repeats, 1.0) / repeats


def campaign(noise: CampaignNoise, repeats: int, history: int, wanted: WantedDetection) -> Campaign | None:
    """Return the campaign with the fewest nights, or None if it needs more than MOST (60). history: number of nights of
    the measurement at its current level. If these nights are too few, the campaign includes nights before the drop.
    """
    if history >= FEWEST:
        made = _after(noise, repeats, history, wanted, MOST)
        return None if made is None else Campaign(repeats, 0, *made)
    best: Campaign | None = None
    for reference in _REFERENCES:
        before = reference - history
        most = MOST if best is None else best.before + best.nights - 1
        made = _after(noise, repeats, reference, wanted, most - before) if most > before else None
        best = best if made is None else Campaign(repeats, before, *made)
    return best


def _after(
    noise: CampaignNoise, repeats: int, reference: int, wanted: WantedDetection, most: int
) -> tuple[int, float, float] | None:
    """Return the number of nights that are needed after a drop, and error and excess as in Campaign. Return None if
    more than `most` nights are needed. reference: nights before the drop.
    """
    first, prior = min(reference, _MANY), noise.prior(repeats)
    quiet = _drawn(noise.of_level(repeats), first, most)
    # Without a wanted error, the series without a drop are followed only as far as they are needed.
    by_chance = None if wanted.error is None else _evidence(quiet, first, prior, wanted)
    found_in = np.full(len(quiet), -np.inf)
    dropped = _dropped(quiet, first, wanted.drop)
    for night, of_night in enumerate(drawn_nights.evidence(dropped, first, prior, wanted.tolerance), 1):
        found_in = np.maximum(found_in, of_night)
        excess = -EASED if by_chance is None else _excess(by_chance[night - 1], wanted.error)
        if float((found_in > excess).mean()) >= wanted.power:
            if by_chance is None:
                by_chance = _evidence(quiet[:, : first + night], first, prior, wanted)
            return night, float((by_chance[night - 1] > excess).mean()), excess
    return None


def _evidence(values: Floats, first: int, prior: NightSpread, wanted: WantedDetection) -> Floats:
    """Return the largest evidence of a regression up to each night, of shape (nights, series)."""
    nights = list(drawn_nights.evidence(values, first, prior, wanted.tolerance))
    return np.asarray(np.maximum.accumulate(nights, axis=0))


def _drawn(sd: float, first: int, nights: int) -> Floats:
    """Return the levels of nights without a change, of shape (series, first + nights). All plans use the same simulated
    nights, so differences between plans are not due to chance.
    """
    return np.asarray(max(sd, 1e-9) * _standard()[:, _MANY - first : _MANY + nights])


@functools.cache
def _standard() -> Floats:
    """Return standard normal deviates, of shape (series, nights)."""
    values: Floats = np.random.default_rng(_SEED).standard_normal((_SERIES, _MANY + MOST))
    return values


def _dropped(quiet: Floats, first: int, drop: float) -> Floats:
    return np.asarray(quiet + math.log1p(-drop) * (np.arange(quiet.shape[1]) >= first))


def _excess(by_chance: Floats, error: float | None) -> float:
    """Return the smallest excess that is rare enough by chance: at most the fraction `error` of the series without a
    drop reach it. The result is at least the excess that `compare` requires. error: None selects the excess of
    `compare`.
    """
    if error is None:
        return -EASED
    place = len(by_chance) - 1 - int(error * len(by_chance))
    return max(-EASED, float(np.sort(by_chance)[place]))


def smallest(noise: CampaignNoise, repeats: int, reference: int, nights: int, wanted: WantedDetection) -> float | None:
    """Return the smallest drop that is detected in this number of nights, to within 0.1 %. Return None if no drop below
    90 % is detected. reference: number of nights before the drop. The drop in the goal of the campaign is ignored.
    """
    first, prior = min(reference, _MANY), noise.prior(repeats)
    quiet = _drawn(noise.of_level(repeats), first, nights)

    by_chance = -np.inf if wanted.error is None else _evidence(quiet, first, prior, wanted)[-1]
    excess = _excess(np.asarray(by_chance), wanted.error)

    def is_found(drop: float) -> bool:
        of_drop = _evidence(_dropped(quiet, first, drop), first, prior, wanted)[-1]
        return float((of_drop > excess).mean()) >= wanted.power

    return _least(is_found, wanted.tolerance, _LARGEST) if is_found(_LARGEST) else None


def _least(is_found: Callable[[float], bool], low: float, high: float) -> float:
    """Return the smallest drop that is detected, rounded up to 0.1 %. high: a drop that is detected."""
    for _ in range(_STEPS):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return math.ceil(1000 * high) / 1000


def nights_of_interval(noise: CampaignNoise, repeats: int, width: float) -> int | None:
    """Return the number of nights after which half the width of the interval of a criterion is below `width`, such as
    0.05. Return None if more than night_intervals.MOST (50) are necessary.
    """
    sd = noise.of_level(repeats)
    prior = noise.prior(repeats)
    return night_intervals.nights_needed(NightSpread(sd, 0), 0, prior, -math.log1p(-width))
