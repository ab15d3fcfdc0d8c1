"""Trend of a measurement key in the history: levels, changes of level, and the variation between nights."""

import functools
import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import date
from typing import NamedTuple

from msgspec import Struct

from dlio_hpc.base.nights import nights_of
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import change_detection, night_series, run_groups, variation
from dlio_hpc.verdict.change_detection import Change, Course
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.night_series import NightSeries
from dlio_hpc.verdict.run_groups import Group
from dlio_hpc.verdict.variation import ASSUMED, NightSpread

# Maximum number of jobs that are used. Older jobs are ignored, except this number before and after a reference.
MOST, _NEAR_REFERENCE = 400, 60


class Night(Struct, frozen=True):
    """Values of a metric in the repeats of one job, in the unit of the metric. ended: time at which the job ended."""

    job: str
    ended: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Shift(Struct, frozen=True):
    """A change of level. Jobs are identified by their names. since: first job after a step, or first job of a drift.
    to: last job of a drift; for a step, the same as `since`. ended: time at which the job `since` ended. earliest:
    first job of the first night of the range in which the change begins with a probability of 90 %. latest: first job
    of the last night of the range in which the change begins with a probability of 90 %. ratio: new level / old level,
    or old level / new level if a lower value is better, so that a ratio below 1 is worse. certainty: probability that
    the change is of this `kind` (step or drift). a_year: number of such changes that occur by chance in a year.
    """

    kind: change_detection.Kind
    since: str
    to: str
    ended: str
    ratio: float
    earliest: str
    latest: str
    certainty: float
    a_year: float


class Trend(Struct, frozen=True):
    """Trend of a series of jobs. nights: a Night for each job, oldest first. dates: number of different nights. levels:
    level of each job according to `shifts`, in the unit of the metric. outliers: names of the jobs that are outliers.
    weekend: level of weekends divided by the level of weekdays, oriented so that a ratio below 1 is worse; None if no
    difference is known. This difference is removed before changes are detected.
    """

    nights: tuple[Night, ...]
    dates: int
    levels: tuple[float, ...]
    shifts: tuple[Shift, ...]
    outliers: tuple[str, ...]
    weekend: float | None = None

    def place(self, job: str) -> int | None:
        """Return the index of the job in `nights`, or None if the job is not there."""
        return next((place for place, night in enumerate(self.nights) if night.job == job), None)


class Followed(NamedTuple):
    """A series of jobs that was followed night by night. trend: the result. series: one value per night. course: the
    nights and their levels. changes: changes of level.
    """

    trend: Trend
    series: NightSeries
    course: Course
    changes: tuple[Change, ...]


def night(group: Group, metric: MetricName) -> Night | None:
    """Return the Night of a group, which holds the group's values of the metric. Return None if no good run has the
    metric, or if a value is 0 or less.
    """
    values = group.values(metric)
    return Night(group.job, group.ended, values) if values and min(values) > 0 else None


def nights(history: Sequence[Entry], like: Group, metric: MetricName, reference: str | None = None) -> list[Night]:
    """Return a Night for each job that has the measurement key of `like`, oldest first. Only the latest MOST (400) jobs
    and the jobs near the reference are included. Invalid jobs, jobs with a faulty run, and jobs with several datasets
    for that key are left out. If the runs of `like` read from storage, only jobs whose runs read from storage are
    included. Otherwise, only jobs whose runs did not read from storage are included. reference: time at which the
    reference ended, if any.
    """
    kept = []
    for entry in history:
        groups = [] if entry.is_invalid else [group for group in run_groups.of(entry) if group.key == like.key]
        if len(groups) == 1 and groups[0].faulty is None and groups[0].is_of_storage == like.is_of_storage:
            kept.append(night(groups[0], metric))
    return in_order(kept, reference)


def in_order(nights: Iterable[Night | None], reference: str | None = None) -> list[Night]:
    """Return the latest MOST (400) nights and the nights near the reference, oldest first. Items of `nights` that are
    None are dropped. reference: as for nights().
    """
    ordered = sorted((past for past in nights if past is not None), key=lambda past: (past.ended, past.job))
    older, newest = ordered[:-MOST], ordered[-MOST:]
    if reference is None or not older:
        return newest
    place = sum(past.ended <= reference for past in older)
    return [*older[max(0, place - _NEAR_REFERENCE) : place + _NEAR_REFERENCE], *newest]


def spread(groups: Sequence[Group], metric: MetricName) -> NightSpread | None:
    """Return the variation between the nights of groups. The groups have the same measurement key, and their level may
    change. Return None if fewer than two groups have the metric.
    """
    series = in_order(night(group, metric) for group in groups)
    return variation.of_differences(night_series.of(_jobs(series, metric)).values) if len(series) > 1 else None


def of(series: Sequence[Night], metric: MetricName, site: NightSpread = ASSUMED) -> Trend:
    """Return the trend of a series of jobs. series: a Night for each job, oldest first. site: prior knowledge about the
    variation between nights, from other measurements.
    """
    if not series:
        return Trend((), 0, (), (), ())
    return followed(series, metric, site).trend


def followed(
    series: Sequence[Night], metric: MetricName, site: NightSpread = ASSUMED, reference: int | None = None
) -> Followed:
    """Follow a series of jobs night by night. series: a Night for each job, oldest first; at least one. reference:
    index of the job with which the last job is compared; None if there is none.
    """
    jobs = night_series.of(_jobs(series, metric), reference)
    prior = night_series.prior(jobs, site)
    state = change_detection.followed(jobs.values, prior, jobs.extra)
    course = change_detection.course(state, jobs.values, prior, jobs.extra)
    changes = change_detection.described(state, course)
    sign = 1.0 if METRICS[metric].is_higher_better else -1.0
    levels = [float(changes.levels[place]) for place, night in enumerate(jobs.jobs) for _ in night]
    trend = Trend(
        nights=tuple(series),
        dates=len(jobs.jobs),
        levels=tuple(math.exp(sign * level) for level in levels),
        shifts=tuple(_shift(series, jobs, change) for change in changes.changes),
        outliers=tuple(series[job].job for place in changes.outliers for job in jobs.jobs[place]),
        weekend=None if jobs.weekend is None else math.exp(jobs.weekend),
    )
    return Followed(trend, jobs, course, changes.changes)


def _jobs(series: Sequence[Night], metric: MetricName) -> list[night_series.JobLevel]:
    dates = nights_of([past.ended for past in series])
    return [_job(date, past.values, metric) for date, past in zip(dates, series, strict=True)]


@functools.lru_cache(1 << 15)
def _job(night: date, values: tuple[float, ...], metric: MetricName) -> night_series.JobLevel:
    """Return a job of a series. The result is cached, because each job of a site is used for each measurement of the
    site.
    """
    return night_series.job(night, variation.logarithms(values, metric))


def _shift(series: Sequence[Night], jobs: NightSeries, change: Change) -> Shift:
    since, to, earliest, latest = (
        series[jobs.jobs[place].start] for place in (change.at, change.until, change.earliest, change.latest)
    )
    return Shift(
        kind=change.kind,
        since=since.job,
        to=to.job,
        ended=since.ended,
        ratio=math.exp(change.size),
        earliest=earliest.ended,
        latest=latest.ended,
        certainty=change.certainty,
        a_year=change.a_year,
    )
