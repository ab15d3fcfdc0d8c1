"""Groups of measured runs. The runs of a group belong to the same entry, that is, a job or merged jobs of a study, and
have the same measurement key and dataset. Jobs are compared group by group.
"""

import functools
from typing import Any

from msgspec import Struct, structs

from dlio_hpc.analysis.storage_check import Outcome
from dlio_hpc.analysis.study.spread_reasons import Repeat
from dlio_hpc.base.nights import night_of
from dlio_hpc.plan import night_chain
from dlio_hpc.results.metrics import MAINS, METRICS, MetricName
from dlio_hpc.verdict.history_entry import Entry, Key, Measurement, carried_key

# Cache outcomes from worst to best. A single cached run disqualifies the whole group.
_WORST: tuple[Outcome, ...] = ("cached", "unknown", "storage", "nothing read")


class Group(Struct, frozen=True, dict=True):
    """Measured runs of one job that have the same measurement key and the same dataset. Faulty runs are included.
    title: title of the study's point; empty if there is none. data: directory of the dataset. workload: the workload
    with its defaults filled in, as decoded from JSON.
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
        """First run with a fault, or None if all runs are good."""
        return next((run for run in self.measurements if not run.is_good), None)

    @functools.cached_property
    def storage(self) -> Outcome:
        """Worst cache outcome of the good runs, such as "storage" or "cached"; "unknown" if there is no good run."""
        outcomes = {"unknown" if run.storage is None else run.storage.outcome() for run in self.good}
        return next((outcome for outcome in _WORST if outcome in outcomes), "unknown")

    @property
    def is_of_storage(self) -> bool:
        """True if the runs read from storage or read nothing at all."""
        return self.storage in ("storage", "nothing read")

    @property
    def storage_words(self) -> str:
        """Description of the worst cache outcome of the good runs, with the name of a run that has this outcome."""
        for run in self.good:
            if run.storage is not None and run.storage.outcome() == self.storage:
                return f"{run.run}: {run.storage.text()}"
        return "it was not recorded whether bytes came from storage"

    @property
    def advice(self) -> tuple[str, ...]:
        """Advice for runs that read from memory: options of dlio-submit with which the runs would read from storage."""
        return next((run.storage.advice for run in self.good if run.storage and run.storage.advice), ())

    @property
    def main_metrics(self) -> tuple[MetricName, ...]:
        """Metrics that are compared by default: samples/s, the bandwidth of checkpoints, and the rates of the phases of
        a metadata workload, without those that no run has.
        """
        return tuple(metric for metric in MAINS if self.values(metric)) or MAINS[:1]

    @property
    def main_metric(self) -> MetricName:
        """Metric that is shown by default: the first of main_metrics."""
        return self.main_metrics[0]

    def repeats(self, metric: MetricName) -> tuple[Repeat, ...]:
        """Return the good runs that have a positive value of the metric, as repeats. If a lower value is better, a
        repeat has the reciprocal of the value.
        """
        sign = 1 if METRICS[metric].is_higher_better else -1
        return tuple(
            Repeat(measurement.run, measurement.metrics[metric] ** sign, measurement.disturbance)
            for measurement in self.good
            if measurement.metrics.get(metric, 0) > 0
        )

    def values(self, metric: MetricName) -> tuple[float, ...]:
        """Return the values of the good runs that have the metric."""
        return tuple(run.metrics[metric] for run in self.good if metric in run.metrics)


def carried(group: Group) -> Group:
    """Return a group that this or an earlier version wrote, with the measurement keys of this version."""
    return structs.replace(
        group,
        key=carried_key(group.key, group.workload),
        measurements=tuple(
            structs.replace(run, key=carried_key(run.key, group.workload)) for run in group.measurements
        ),
    )


def of_newest_night(group: Group) -> Group:
    """Return a group without the earlier nights of its study. Earlier versions wrote groups of all nights of a study;
    the result has the runs and the name of the newest night with a good run. Other groups are returned unchanged.
    """
    ended = [run.ended for run in group.good if night_chain.job_night(group.study, run.job)]
    if group.job != group.study or not ended:
        return group
    night = night_of(max(ended))
    jobs = [run.job for run in group.good if night_of(run.ended) == night]
    return structs.replace(group, job=jobs[0], measurements=tuple(run for run in group.measurements if run.job in jobs))


def of(entry: Entry) -> tuple[Group, ...]:
    """Return the groups of a job, in the order of their first runs. The entry keeps them for the next call."""
    kept = vars(entry)
    if "groups" not in kept:
        kept["groups"] = _of(entry)
    groups: tuple[Group, ...] = kept["groups"]
    return groups


def _of(entry: Entry) -> tuple[Group, ...]:
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
    """Return whether no other group of the job has the same measurement key. If a job measures one key on several
    datasets, none of its groups can represent the key.
    """
    return sum(candidate.key == group.key for candidate in groups) == 1
