"""Trend of a measurement key in the history: changes, and night-to-night noise. A night holds the repeats
of one job.
"""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.robust import Floats, RepeatNoise
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import change_detection, run_groups
from dlio_hpc.verdict.change_detection import Change
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.run_groups import Group

# Maximum number of nights that are used. Older nights are ignored.
MOST = 90


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
    to: last job of a drift; for a step, the same as `since`. ended: time at which the job `since` ended. ratio: new
    level / old level, or old level / new level if a lower value is better, so that a ratio below 1 is worse. p:
    probability that such a change appears by chance.
    """

    kind: change_detection.Kind
    since: str
    to: str
    ended: str
    ratio: float
    p: float


class Trend(Struct, frozen=True):
    """Trend of a series of nights. nights: oldest first. levels: level of each night according to `shifts`, in the unit
    of the metric. outliers: names of the jobs that are outliers.
    """

    nights: tuple[Night, ...]
    levels: tuple[float, ...]
    shifts: tuple[Shift, ...]
    outliers: tuple[str, ...]

    def place(self, job: str) -> int | None:
        """Return the index of the job in `nights`, or None if the job is not there."""
        return next((place for place, night in enumerate(self.nights) if night.job == job), None)


def night(group: Group, metric: MetricName) -> Night | None:
    """Return the Night of a group, which holds the group's values of the metric. Return None if no good run has the
    metric, or if a value is 0 or less.
    """
    values = group.values(metric)
    return Night(group.job, group.ended, values) if values and min(values) > 0 else None


def nights(history: Sequence[Entry], like: Group, metric: MetricName) -> list[Night]:
    """Return a Night for each job that has the measurement key of `like`, oldest first, but only the latest MOST (90)
    nights. Jobs with a faulty run, or with several datasets for that key, are left out. If the runs of `like` read from
    storage, only jobs whose runs read from storage are included. Otherwise, only jobs whose runs did not read from
    storage are included.
    """
    kept = []
    for entry in history:
        groups = [group for group in run_groups.of(entry) if group.key == like.key]
        if len(groups) == 1 and groups[0].faulty is None and groups[0].is_of_storage == like.is_of_storage:
            kept.append(night(groups[0], metric))
    return sorted((past for past in kept if past is not None), key=lambda past: (past.ended, past.job))[-MOST:]


def of(series: Sequence[Night], metric: MetricName) -> Trend:
    """Return the trend of a series of nights. series: the nights, oldest first."""
    detected = change_detection.find(logs([past.median for past in series], metric))
    sign = 1.0 if METRICS[metric].is_higher_better else -1.0
    return Trend(
        nights=tuple(series),
        levels=tuple(float(level) for level in np.exp(sign * detected.levels)),
        shifts=tuple(_shift(series, change) for change in detected.changes),
        outliers=tuple(series[place].job for place in detected.outliers),
    )


def noise(series: Sequence[Night], metric: MetricName) -> RepeatNoise | None:
    """Return the night-to-night noise: how much the medians of the nights scatter around the levels of the series.
    Return None if there are too few nights.
    """
    return change_detection.find(logs([past.median for past in series], metric)).noise


def logs(values: Sequence[float], metric: MetricName) -> Floats:
    """Return the logarithms of the values, negated if lower is better."""
    logarithms: Floats = np.log(np.asarray(values, np.float64))
    return logarithms if METRICS[metric].is_higher_better else -logarithms


def _shift(series: Sequence[Night], change: Change) -> Shift:
    first = series[change.at]
    return Shift(change.kind, first.job, series[change.until].job, first.ended, math.exp(change.size), change.p)
