"""Series of nights: one value per night, from the runs of its jobs."""

import itertools
import math
from collections.abc import Sequence
from datetime import date
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.quantiles import Floats, median
from dlio_hpc.verdict import outlying_runs, variation
from dlio_hpc.verdict.variation import OF_MEDIAN, NightSpread

# A night's runs are unusually scattered if their variance exceeds the usual one by this factor.
_SCATTERED = 6.0
# Number of newest jobs that show whether runs far from the others are rare.
_NEWEST = 13
# Number of weekend nights from which a difference between weekends and weekdays is estimated, the normal deviate from
# which it is taken out, and the number of neighbours on either side that a night is compared with.
_WEEKEND_NIGHTS, _WEEKEND_DEVIATE, _NEIGHBOURS = 4, 4.0, 3
_FRIDAY = 4


class JobLevel(NamedTuple):
    """Runs of a job. night: night on which it ended. level: logarithm of a metric. variance, runs: variance and number
    of the runs that the level is computed from. values: logarithms of all runs.
    """

    night: date
    level: float
    variance: float
    runs: int
    values: Floats

    @property
    def whole(self) -> "JobLevel":
        """The job with a level that is computed from all runs."""
        return JobLevel(self.night, float(self.values.mean()), _variance(self.values), len(self.values), self.values)


class NightSeries(NamedTuple):
    """One value per night. values: logarithms, oldest first. A difference between weekends and weekdays is removed.
    extra: variance of each value in addition to the variance of a usual night. jobs: index of the first job of each
    night, and the index after the last job. runs: part of the variance of a night's value that comes from its runs.
    weekend: logarithm of (weekends / weekdays); None if no difference is known.
    """

    values: Floats
    extra: Floats
    jobs: tuple[range, ...]
    runs: float
    weekend: float | None

    def place(self, job: int) -> int:
        """Return the index of the night of a job."""
        return next(place for place, jobs in enumerate(self.jobs) if job in jobs)


def job(night: date, values: Floats) -> JobLevel:
    """Return a job. night: night on which it ended. values: logarithms of a metric, one per run. Runs that are left out
    of the level are left out of the variance as well.
    """
    near = outlying_runs.near(values)
    return JobLevel(night, outlying_runs.level(values), _variance(near), len(near), values)


def _variance(values: Floats) -> float:
    return float(values.var(ddof=1)) if len(values) > 1 else 0.0


def of(jobs: Sequence[JobLevel], reference: int | None = None) -> NightSeries:
    """Return the series of these jobs, which are in the order of time. The newest job alone represents its night,
    because it is the job that is judged. reference: index of a job with which others are compared; jobs after it belong
    to another night even if they ran on the same date. Outlying runs of a job are left out if the newest jobs have few
    of them. Otherwise all runs are used.
    """
    if not outlying_runs.are_far_runs_rare([job.values for job in jobs[-_NEWEST:]]):
        jobs = [job.whole for job in jobs]
    nights = _nights(jobs, reference)
    levels = np.array([job.level for job in jobs])
    counts = np.array([len(night) for night in nights])
    values = np.add.reduceat(levels, [night.start for night in nights]) / counts
    of_run, share = _usual(jobs), float(np.mean([1 / job.runs for job in jobs]))
    extra_of_jobs = _extra(jobs, of_run, share)
    extra = np.add.reduceat(extra_of_jobs, [night.start for night in nights]) / counts**2
    if counts.max() > 1:
        values[-1] = levels[-1]
        extra[-1] = extra_of_jobs[-1] + _between_jobs(levels, nights)
    dates = [jobs[night.start].night for night in nights]
    weekend = _weekend(values, dates)
    if weekend is not None:
        values = values - weekend * np.array([_is_weekend(day) for day in dates])
    return NightSeries(values, extra, nights, OF_MEDIAN * of_run * share, weekend)


def prior(series: NightSeries, site: NightSpread) -> NightSpread:
    """Return prior knowledge about the variation between the nights of a series. This variation is at least the
    variation that the runs cause. site: prior knowledge from other measurements, or an assumption.
    """
    return with_runs(site, series.runs)


def with_runs(site: NightSpread, runs: float) -> NightSpread:
    """Return prior knowledge about the variation between nights, including the variance of runs. site: prior knowledge
    from other measurements, or an assumption. An assumption does not include the variance of runs.
    """
    if site.source == variation.ASSUMED.source:
        return site._replace(sd=math.sqrt(site.sd**2 + runs))
    return site._replace(sd=max(site.sd, math.sqrt(runs)))


def _nights(jobs: Sequence[JobLevel], reference: int | None) -> tuple[range, ...]:
    """Return the jobs of each night, as ranges of indices."""
    keys = [(job.night, reference is not None and number > reference) for number, job in enumerate(jobs)]
    ends = [number for number in range(1, len(jobs)) if keys[number] != keys[number - 1]]
    return tuple(range(begin, end) for begin, end in itertools.pairwise([0, *ends, len(jobs)]))


def _usual(jobs: Sequence[JobLevel]) -> float:
    """Return the variance of a run within its job, from all jobs. The result is not affected if up to half of the jobs
    are unusually scattered.
    """
    dfs = np.array([job.runs - 1 for job in jobs if job.runs > 1])
    if not len(dfs):
        return 0.0
    variances = np.array([job.variance for job in jobs if job.runs > 1])
    # The median of a variance is smaller than its mean (E. B. Wilson and M. M. Hilferty, PNAS 17, 1931).
    of_half = median(variances / (1 - 2 / (9 * dfs)) ** 3)
    return min(of_half, float((dfs * variances).sum() / dfs.sum()))


def _extra(jobs: Sequence[JobLevel], of_run: float, share: float) -> Floats:
    """Return, for each job, the variance of its level minus the variance of the level of a usual job. The difference is
    positive if the job has unusually scattered runs, or fewer runs than usual. of_run: usual variance of a run. share:
    mean of 1 / (number of runs) over all jobs.
    """
    runs, variances = np.array([job.runs for job in jobs]), np.array([job.variance for job in jobs])
    of_fewer = of_run * np.maximum(0.0, 1 - share * runs)
    return np.asarray(OF_MEDIAN * np.where(variances > _SCATTERED * of_run, variances, of_fewer) / runs)


def _between_jobs(levels: Floats, nights: Sequence[range]) -> float:
    """Return the variance to add for a night that one job represents instead of the mean of its jobs. If most nights
    have one job, the variation between nights already contains the variation between jobs; return 0.
    """
    variances = [float(levels[night.start : night.stop].var(ddof=1)) for night in nights if len(night) > 1]
    if 2 * len(variances) < len(nights):
        return 0.0
    return median(np.array(variances)) * (1 - float(np.mean([1 / len(night) for night in nights])))


def _is_weekend(day: date) -> bool:
    return day.weekday() > _FRIDAY


def _weekend(values: Floats, dates: Sequence[date]) -> float | None:
    """Return the difference between weekends and weekdays, from the differences of nights to the weekdays near them.
    Return None if it is not significant, or if there are too few nights.
    """
    is_weekend = np.array([_is_weekend(day) for day in dates])
    if is_weekend.sum() < _WEEKEND_NIGHTS or (~is_weekend).sum() < 2 * _WEEKEND_NIGHTS:
        return None
    differences, has_weekdays = _from_weekdays(values, is_weekend)
    weekdays, weekends = differences[has_weekdays & ~is_weekend], differences[has_weekdays & is_weekend]
    difference = float(weekends.mean() - weekdays.mean())
    error = math.sqrt(weekends.var(ddof=1) / len(weekends) + weekdays.var(ddof=1) / len(weekdays))
    # Differences of neighbouring nights share nights with each other.
    return difference if abs(difference) > _WEEKEND_DEVIATE * error * 1.2 else None


def _from_weekdays(values: Floats, is_weekend: npt.NDArray[np.bool_]) -> tuple[Floats, npt.NDArray[np.bool_]]:
    """Return two values for each night: its difference to the median of the neighbouring weekdays, and whether there
    are such weekdays.
    """
    nights = np.arange(len(values))[:, np.newaxis]
    neighbours = nights + [shift for shift in range(-_NEIGHBOURS, _NEIGHBOURS + 1) if shift]
    places = np.clip(neighbours, 0, len(values) - 1)
    is_used = (places == neighbours) & ~is_weekend[places]
    ordered = np.sort(np.where(is_used, values[places], np.inf), axis=1)
    count = is_used.sum(axis=1)
    middle = (np.maximum(count - 1, 0) // 2, count // 2)
    low, high = (np.take_along_axis(ordered, place[:, np.newaxis], axis=1)[:, 0] for place in middle)
    return np.where(count > 0, values - (low + high) / 2, 0.0), count > 0
