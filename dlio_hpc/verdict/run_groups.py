"""Groups of a job's measured runs with the same key and dataset. Groups are what is compared between jobs."""

from typing import Any

from msgspec import Struct

from dlio_hpc.analysis.page_cache_check import Outcome
from dlio_hpc.analysis.study.disturbances import Repeat
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement

# Worst first: one run from memory disqualifies the whole group.
_WORST: tuple[Outcome, ...] = ("cached", "unknown", "storage", "nothing read")


class Group(Struct, frozen=True):
    """Measured runs of a job with one key on one dataset, faulty runs included. data: directory of the dataset.
    workload: resolved, as decoded from JSON.
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
        """Runs without a fault."""
        return tuple(run for run in self.measurements if run.is_good)

    @property
    def faulty(self) -> Measurement | None:
        """First run with a fault; None where there is none."""
        return next((run for run in self.measurements if not run.is_good), None)

    @property
    def storage(self) -> Outcome:
        """Worst cache outcome of the good runs; unknown where there is no good run."""
        outcomes = {"unknown" if run.storage is None else run.storage.outcome() for run in self.good}
        return next((outcome for outcome in _WORST if outcome in outcomes), "unknown")

    @property
    def is_of_storage(self) -> bool:
        """Whether the runs measured the storage, or read nothing at all."""
        return self.storage in ("storage", "nothing read")

    @property
    def storage_words(self) -> str:
        """Cache outcome of the worst run in words."""
        for run in self.good:
            if run.storage is not None and run.storage.outcome() == self.storage:
                return f"{run.run}: {run.storage.words()}"
        return "it was not recorded whether bytes came from storage"

    @property
    def advice(self) -> tuple[str, ...]:
        """Options of dlio-submit that would defeat the cache."""
        return next((run.storage.advice for run in self.good if run.storage and run.storage.advice), ())

    def repeats(self, metric: MetricName) -> tuple[Repeat, ...]:
        """Return the repeats of the good runs that have the metric, inverted where lower is better."""
        sign = 1 if METRICS[metric].is_higher_better else -1
        return tuple(
            Repeat(measurement.run, measurement.metrics[metric] ** sign, measurement.disturbance)
            for measurement in self.good
            if measurement.metrics.get(metric, 0) > 0
        )

    def values(self, metric: MetricName) -> tuple[float, ...]:
        """Return the values of the good runs that have the metric."""
        return tuple(run.metrics[metric] for run in self.good if metric in run.metrics)


def of(entry: Entry) -> tuple[Group, ...]:
    """Return the groups of a job, in the order of their first runs."""
    by_key: dict[tuple[Key, str], list[Measurement]] = {}
    for run in entry.measurements:
        if run.kind == "measure":
            by_key.setdefault((run.key, run.data), []).append(run)
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
        for (key, data), runs in by_key.items()
    )


def alone(groups: tuple[Group, ...], group: Group) -> bool:
    """Return whether the group is the job's only group of its key. Where a job compares datasets of one key, no group
    stands for the key.
    """
    return sum(candidate.key == group.key for candidate in groups) == 1
