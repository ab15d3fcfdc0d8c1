"""What of a job can be compared: its measured runs that are alike."""

from typing import Any

from msgspec import Struct

from dlio_hpc.analysis.page_cache_check import Outcome
from dlio_hpc.analysis.study.disturbances import Repeat
from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement

# The worst first: one run from memory makes the group's figures no storage's.
_WORST: tuple[Outcome, ...] = ("cached", "unknown", "storage", "nothing read")


class Group(Struct, frozen=True):
    """Measured runs of a job of one key on one dataset, faulty ones too. data: the folder the dataset lies in.
    workload: resolved, as JSON has it.
    """

    job: str
    study: str
    ended: str
    title: str
    key: Key
    data: str
    workload: Any
    measurements: tuple[Measurement, ...]

    @property
    def good(self) -> tuple[Measurement, ...]:
        return tuple(each for each in self.measurements if each.is_good)

    @property
    def faulty(self) -> Measurement | None:
        """The first run that is no measurement."""
        return next((each for each in self.measurements if not each.is_good), None)

    @property
    def storage(self) -> Outcome:
        """The worst of the good runs'; unknown where none is."""
        found = {"unknown" if each.storage is None else each.storage.outcome() for each in self.good}
        return next((outcome for outcome in _WORST if outcome in found), "unknown")

    @property
    def is_of_storage(self) -> bool:
        """Do the figures tell of the storage, or, where nothing is read, of nothing that memory could have faked?"""
        return self.storage in ("storage", "nothing read")

    @property
    def storage_words(self) -> str:
        """Of the run that is worst."""
        for each in self.good:
            if each.storage is not None and each.storage.outcome() == self.storage:
                return f"{each.run}: {each.storage.words()}"
        return "nothing tells whether storage was read"

    @property
    def advice(self) -> tuple[str, ...]:
        """What would defeat the cache, as options of dlio-submit."""
        return next((each.storage.advice for each in self.good if each.storage and each.storage.advice), ())

    def repeats(self, metric: MetricName) -> tuple[Repeat, ...]:
        """Repeats of the good runs that have the metric, inverted where less is better."""
        sign = 1 if METRICS[metric].is_higher_better else -1
        return tuple(
            Repeat(measurement.run, measurement.metrics[metric] ** sign, measurement.disturbance)
            for measurement in self.good
            if measurement.metrics.get(metric, 0) > 0
        )

    def values(self, metric: MetricName) -> tuple[float, ...]:
        """Of the good runs that have it."""
        return tuple(each.metrics[metric] for each in self.good if metric in each.metrics)


def of(entry: Entry) -> tuple[Group, ...]:
    """In the order in which they were first measured."""
    found: dict[tuple[Key, str], list[Measurement]] = {}
    for each in entry.measurements:
        if each.kind == "measure":
            found.setdefault((each.key, each.data), []).append(each)
    return tuple(
        Group(
            job=entry.job,
            study=entry.study,
            ended=entry.ended,
            title=runs[0].title,
            key=key,
            data=data,
            workload=entry.workloads.get(key.settings),
            measurements=tuple(runs),
        )
        for (key, data), runs in found.items()
    )


def alone(groups: tuple[Group, ...], group: Group) -> bool:
    """Is it the job's only one of its key? Where datasets are compared under one key, neither stands for the key."""
    return sum(each.key == group.key for each in groups) == 1
