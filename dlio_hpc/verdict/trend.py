"""Trend of a measurement key in the history: noise between nights, and changes. A night is the repeats of one job."""

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

# Largest number of nights that are considered; older ones are ignored.
MOST = 90


class Night(Struct, frozen=True):
    """Repeats of one metric in one job, in the metric's unit."""

    job: str
    ended: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Shift(Struct, frozen=True):
    """A change of level; jobs are given by name. since: first job after a step, or first job of a drift. to: last job
    of a drift; for a step, the same as `since`. ended: end of the job `since`. ratio: new level / old level, inverted
    if lower is better, so below 1 is worse. p: probability of such a change by chance.
    """

    kind: change_detection.Kind
    since: str
    to: str
    ended: str
    ratio: float
    p: float


class Trend(Struct, frozen=True):
    """Trend of a series of nights. nights: oldest first. levels: level of each night, as the shifts explain it, in the
    metric's unit. outliers: jobs whose night is an outlier.
    """

    nights: tuple[Night, ...]
    levels: tuple[float, ...]
    shifts: tuple[Shift, ...]
    outliers: tuple[str, ...]

    def place(self, job: str) -> int | None:
        """Return the index of a job's night, or None if the job has none."""
        return next((place for place, night in enumerate(self.nights) if night.job == job), None)


def night(group: Group, metric: MetricName) -> Night | None:
    """Return the values of a group as a night, or None if no good run has the metric or a value is 0 or less."""
    values = group.values(metric)
    return Night(group.job, group.ended, values) if values and min(values) > 0 else None


def nights(history: Sequence[Entry], like: Group, metric: MetricName) -> list[Night]:
    """Return the nights of the jobs with the measurement key of `like`, oldest first. Jobs with a faulty run or with
    several datasets of that key are left out. If the storage of `like` was measured, only jobs are taken whose storage
    was measured too; otherwise only jobs whose storage was not.
    """
    kept = []
    for entry in history:
        groups = [group for group in run_groups.of(entry) if group.key == like.key]
        if len(groups) == 1 and groups[0].faulty is None and groups[0].is_of_storage == like.is_of_storage:
            kept.append(night(groups[0], metric))
    return sorted((past for past in kept if past is not None), key=lambda past: (past.ended, past.job))[-MOST:]


def of(series: Sequence[Night], metric: MetricName) -> Trend:
    """Return the trend of a series of nights. series: oldest first."""
    detected = change_detection.find(logs([past.median for past in series], metric))
    sign = 1.0 if METRICS[metric].is_higher_better else -1.0
    return Trend(
        nights=tuple(series),
        levels=tuple(float(level) for level in np.exp(sign * detected.levels)),
        shifts=tuple(_shift(series, change) for change in detected.changes),
        outliers=tuple(series[place].job for place in detected.outliers),
    )


def noise(series: Sequence[Night], metric: MetricName) -> RepeatNoise | None:
    """Return the noise between the medians of these nights, changes of level excluded; None if there are too few
    nights.
    """
    return change_detection.find(logs([past.median for past in series], metric)).noise


def logs(values: Sequence[float], metric: MetricName) -> Floats:
    """Return the logarithms of the values, negated if lower is better."""
    logarithms: Floats = np.log(np.asarray(values, np.float64))
    return logarithms if METRICS[metric].is_higher_better else -logarithms


def _shift(series: Sequence[Night], change: Change) -> Shift:
    first = series[change.at]
    return Shift(change.kind, first.job, series[change.until].job, first.ended, math.exp(change.size), change.p)
