"""Trend of a key over the nights of the history: noise between nights, and changes."""

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

# Most nights that are considered.
MOST = 90


class Night(Struct, frozen=True):
    """One job's repeats of one metric, in its unit."""

    job: str
    ended: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Shift(Struct, frozen=True):
    """A change, by the names of its jobs. ratio: level after over level before, inverted where lower is better; below 1
    is worse. to: last job of a drift, else `since`.
    """

    kind: change_detection.Kind
    since: str
    to: str
    ended: str
    ratio: float
    p: float


class Trend(Struct, frozen=True):
    """A series of nights. nights: oldest first. levels: level of each night by the shifts, in the metric's unit.
    outliers: jobs of single nights out of line.
    """

    nights: tuple[Night, ...]
    levels: tuple[float, ...]
    shifts: tuple[Shift, ...]
    outliers: tuple[str, ...]

    def place(self, job: str) -> int | None:
        """Return the number of a job's night; None where it has none."""
        return next((place for place, night in enumerate(self.nights) if night.job == job), None)


def night(group: Group, metric: MetricName) -> Night | None:
    """Return the values of a group; None where no good run has the metric, or a value is 0."""
    values = group.values(metric)
    return Night(group.job, group.ended, values) if values and min(values) > 0 else None


def nights(history: Sequence[Entry], like: Group, metric: MetricName) -> list[Night]:
    """Return the nights with the key of `like`, oldest first. Jobs with a faulty run or several datasets of that key
    are left out. Jobs whose storage was measured are not mixed with jobs whose storage was not.
    """
    kept = []
    for entry in history:
        groups = [group for group in run_groups.of(entry) if group.key == like.key]
        if len(groups) == 1 and groups[0].faulty is None and groups[0].is_of_storage == like.is_of_storage:
            kept.append(night(groups[0], metric))
    return sorted((past for past in kept if past is not None), key=lambda past: (past.ended, past.job))[-MOST:]


def of(series: Sequence[Night], metric: MetricName) -> Trend:
    """Return the trend of nights, oldest first."""
    detected = change_detection.find(logs([past.median for past in series], metric))
    sign = 1.0 if METRICS[metric].is_higher_better else -1.0
    return Trend(
        nights=tuple(series),
        levels=tuple(float(level) for level in np.exp(sign * detected.levels)),
        shifts=tuple(_shift(series, change) for change in detected.changes),
        outliers=tuple(series[place].job for place in detected.outliers),
    )


def noise(series: Sequence[Night], metric: MetricName) -> RepeatNoise | None:
    """Return the noise between the medians of these nights, apart from changes; None where there are too few nights."""
    return change_detection.find(logs([past.median for past in series], metric)).noise


def logs(values: Sequence[float], metric: MetricName) -> Floats:
    """Return logarithms, negated where lower is better."""
    logarithms: Floats = np.log(np.asarray(values, np.float64))
    return logarithms if METRICS[metric].is_higher_better else -logarithms


def _shift(series: Sequence[Night], change: Change) -> Shift:
    first = series[change.at]
    return Shift(change.kind, first.job, series[change.until].job, first.ended, math.exp(change.size), change.p)
