"""What the nights before a job tell: how alike they are, and whether something has changed since the baseline."""

import math
import statistics
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis.robust import Floats, Noise
from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.verdict import change_detection, run_groups
from dlio_hpc.verdict.change_detection import Change
from dlio_hpc.verdict.history_entry import Entry
from dlio_hpc.verdict.run_groups import Group

# Nights that are looked back over.
MOST = 90


class Night(Struct, frozen=True):
    """A job's repeats of one metric, in its unit."""

    job: str
    ended: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)


class Shift(Struct, frozen=True):
    """A change by the names of its jobs. ratio: how many times as good it is after it; below 1 it is worse. to: the
    last job of a drift, else `since`.
    """

    kind: change_detection.Kind
    since: str
    to: str
    ended: str
    ratio: float
    p: float


class Trend(Struct, frozen=True):
    """nights: oldest first. levels: what the shifts make of them, in the metric's unit. outliers: jobs all by
    themselves.
    """

    nights: tuple[Night, ...]
    levels: tuple[float, ...]
    shifts: tuple[Shift, ...]
    outliers: tuple[str, ...]

    def place(self, job: str) -> int | None:
        return next((place for place, night in enumerate(self.nights) if night.job == job), None)


def night(group: Group, metric: MetricName) -> Night | None:
    """None where the group has nothing that can be compared: no good run with the metric above 0."""
    values = group.values(metric)
    return Night(group.job, group.ended, values) if values and min(values) > 0 else None


def nights(history: Sequence[Entry], like: Group, metric: MetricName) -> list[Night]:
    """Jobs of the key whose figures are the storage's as much as those of `like`, oldest first; none that has several
    datasets of that key.
    """
    found = []
    for entry in history:
        mine = [group for group in run_groups.of(entry) if group.key == like.key]
        if len(mine) == 1 and mine[0].faulty is None and mine[0].is_of_storage == like.is_of_storage:
            found.append(night(mine[0], metric))
    return sorted((each for each in found if each is not None), key=lambda each: (each.ended, each.job))[-MOST:]


def of(found: Sequence[Night], metric: MetricName) -> Trend:
    """Of nights in their order."""
    told = change_detection.find(logs([each.median for each in found], metric))
    sign = 1.0 if METRICS[metric].is_higher_better else -1.0
    return Trend(
        nights=tuple(found),
        levels=tuple(float(each) for each in np.exp(sign * told.levels)),
        shifts=tuple(_shift(found, change) for change in told.changes),
        outliers=tuple(found[place].job for place in told.outliers),
    )


def noise(found: Sequence[Night], metric: MetricName) -> Noise | None:
    """Between these nights' medians, apart from what has changed; None where they are too few."""
    return change_detection.find(logs([each.median for each in found], metric)).noise


def logs(values: Sequence[float], metric: MetricName) -> Floats:
    """Logarithms, of which more is better."""
    found: Floats = np.log(np.asarray(values, np.float64))
    return found if METRICS[metric].is_higher_better else -found


def _shift(found: Sequence[Night], change: Change) -> Shift:
    first = found[change.at]
    return Shift(change.kind, first.job, found[change.until].job, first.ended, math.exp(change.size), change.p)
