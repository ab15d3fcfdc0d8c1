"""A job as the history knows it: all that verdicts ask of it, worked out from its archive and nothing else."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import Struct, structs

from dlio_hpc import document, metrics
from dlio_hpc.analysis.page_cache_check import Storage
from dlio_hpc.batch.schedulers import State
from dlio_hpc.config import lustre_layout
from dlio_hpc.errors import InvalidRun
from dlio_hpc.lustre import layout_record
from dlio_hpc.lustre.layout_record import Record
from dlio_hpc.plan.plan import Kind, Run
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.results import Disturbance


class Key(Struct, frozen=True):
    """What has to be the same for two measurements to be compared. file_system: kind and mount: "lustre /scratch".
    layout: how the dataset is striped, in words. settings: digest of everything in the workload. version: of the core.
    """

    site: str
    file_system: str
    layout: str
    nodes: int
    ranks_per_node: int
    workload: str
    settings: str
    version: str

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits."""
        return _digest(self)

    @property
    def title(self) -> str:
        """One line for people, such as "cosmoflow on theta, 128 x 4 ranks"."""
        return f"{self.workload} on {self.site}, {self.nodes} x {self.ranks_per_node} ranks"


class Measurement(Struct, frozen=True):
    """A run, warm-ups too, generation not. title: of the study's point that it measures, else empty. data: the folder
    its dataset lies in. fault: why it is no measurement, with the exit code of its class; None and 0 for a good one.
    metrics: by their names in metrics.METRICS. steps: of an epoch. gap_s: since the job's run before it ended.
    disturbance: other activity on its nodes; None where it was not recorded.
    """

    run: str
    kind: Kind
    title: str
    repeat: int
    data: str
    key: Key
    started: str
    ended: str
    gap_s: float | None
    fault: str | None
    exit_code: int
    metrics: dict[str, float]
    epochs: int
    steps: int
    samples: int
    storage: Storage | None
    disturbance: Disturbance | None = None

    @property
    def is_good(self) -> bool:
        """A measured run whose figures count, whether or not they are of the storage."""
        return self.fault is None and self.kind == "measure"

    @property
    def unit(self) -> tuple[Any, ...]:
        """The same of a measurement of the study that was made once more. Without what is looked up while a job runs:
        one that failed early has it not.
        """
        key = self.key
        return self.title, self.data, key.settings, key.nodes, key.ranks_per_node, self.repeat


class Entry(Struct, frozen=True):
    """A job that has ended. ended: when, UTC. fault: why its figures must not be used, with the exit code of its class.
    hosts, versions: of its runs. results_on: the file system of its directory while it ran, as keys have a dataset's;
    empty where that was not noted. workloads: each by the digest in its measurements' keys, resolved.
    """

    job: str
    study: str
    site: str
    batch_id: str | None
    created: str
    ended: str
    state: State
    fault: str | None
    exit_code: int
    hosts: tuple[str, ...]
    versions: dict[str, str]
    workloads: dict[str, Any]
    measurements: tuple[Measurement, ...]
    results_on: str = ""
    schema: int = 1


def of(outcome: JobOutcome) -> Entry:
    """The same from the job's directory and from its archive."""
    fault = job_outcome.fault(outcome)
    results = [run.result for run in outcome.runs if run.result is not None]
    measured = [run for run in outcome.runs if run.run.kind != "generate"]
    return Entry(
        job=outcome.job.job,
        study=outcome.job.study,
        site=outcome.job.site,
        batch_id=outcome.job.batch_id,
        created=outcome.plan.created,
        ended=outcome.job.states[-1].time,
        state=outcome.job.state,
        fault=None if fault is None else str(fault),
        exit_code=0 if fault is None else fault.exit_code,
        hosts=tuple(dict.fromkeys(host for result in results for host in result.hosts)),
        versions=results[-1].versions if results else {},
        results_on=str(outcome.environment.get("results_on", "")),
        workloads={_settings(run.run): json.loads(document.encode(run.run.workload)) for run in measured},
        measurements=tuple(_measurement(outcome, run) for run in measured),
    )


def together(entries: Sequence[Entry]) -> list[Entry]:
    """One entry for each study, however many jobs it took: repeats of one evening are repeats, not evenings."""
    studies: dict[str, list[Entry]] = {}
    for entry in entries:
        studies.setdefault(entry.study, []).append(entry)
    return [
        each[0] if len(each) == 1 else _joined(sorted(each, key=lambda one: one.created)) for each in studies.values()
    ]


def _joined(jobs: Sequence[Entry]) -> Entry:
    """Of what was measured more than once the first good one counts; a job's fault if something is missing for it."""
    found: dict[tuple[Any, ...], Measurement] = {}
    for number, run in ((number, run) for number, job in enumerate(jobs) for run in job.measurements):
        unit = run.unit if run.kind == "measure" else (number, run.run)
        if unit not in found or not found[unit].is_good:
            found[unit] = run
    runs = tuple(found.values())
    lost = any(run.kind == "measure" and not run.is_good for run in runs)
    faulty = [job for job in jobs if job.fault is not None and (lost or _is_invalid_beside(job))]
    newest = jobs[-1]
    return structs.replace(
        newest,
        job=newest.study,
        batch_id=None,
        created=jobs[0].created,
        ended=max(job.ended for job in jobs),
        fault=faulty[0].fault if faulty else None,
        exit_code=faulty[0].exit_code if faulty else 0,
        hosts=tuple(dict.fromkeys(host for job in jobs for host in job.hosts)),
        workloads={name: work for job in jobs for name, work in job.workloads.items()},
        measurements=runs,
    )


def _is_invalid_beside(job: Entry) -> bool:
    """Is something wrong with what its good runs depend on, such as the dataset?"""
    return job.exit_code == InvalidRun.exit_code and all(run.fault is None for run in job.measurements)


def _measurement(outcome: JobOutcome, run: RunOutcome) -> Measurement:
    planned, result = run.run, run.result
    summary = None if result is None else result.summary
    fault = job_outcome.run_fault(outcome, run)
    return Measurement(
        run=run.name,
        kind=planned.kind,
        title="" if planned.point is None else outcome.plan.titles.get(planned.point, ""),
        repeat=planned.repeat,
        data=os.path.dirname(planned.dataset),
        key=key(outcome, run),
        started="" if result is None else result.started,
        ended="" if result is None else result.ended,
        gap_s=None if result is None else result.gap_s,
        fault=None if fault is None else str(fault),
        exit_code=0 if fault is None else fault.exit_code,
        metrics={} if summary is None else metrics.values(summary),
        epochs=planned.workload.train.epochs,
        steps=planned.steps_per_epoch,
        samples=0 if summary is None else summary.samples,
        storage=None if summary is None else run.storage,
        disturbance=None if result is None else result.disturbance,
    )


def key(outcome: JobOutcome, run: RunOutcome) -> Key:
    """Of a run, whether or not it came to a result."""
    made, planned = outcome.plan, run.run
    lies = next((each for each in outcome.layouts if each.path == planned.dataset), None)
    version = made.version if run.result is None else run.result.versions.get("dlio_hpc", made.version)
    return Key(
        site=made.site.name,
        file_system=_file_system(lies, planned),
        layout=_layout(lies, planned),
        nodes=made.nodes,
        ranks_per_node=made.ranks_per_node,
        workload=planned.workload.name,
        settings=_settings(planned),
        version=version,
    )


def _file_system(lies: Record | None, run: Run) -> str:
    if not run.workload.dataset.is_stored:
        return "none"
    if lies is None:
        return "unknown"
    return lies.file_system.words


def _layout(lies: Record | None, run: Run) -> str:
    """As asked for; where the layout was left alone, as it was found."""
    if lies is not None and not lies.file_system.is_lustre:
        return "none"
    if run.layout is not None:
        return lustre_layout.describe(run.layout)
    return "unknown" if lies is None else layout_record.found(lies) or "unknown"


def _settings(run: Run) -> str:
    return _digest(structs.replace(run.workload, description="", source=""))


def _digest(value: Struct) -> str:
    return hashlib.sha256(document.encode(value)).hexdigest()[:12]


def differences(one: Key, other: Key, settings: tuple[Any, Any] = (None, None)) -> list[str]:
    """What keeps the two from being compared, `one` before `other`. settings: the workloads behind their digests, so
    that what differs in them is named.
    """
    told = []
    for name in Key.__struct_fields__:
        before, after = getattr(one, name), getattr(other, name)
        if before != after and name != "settings":
            told.append(f"{_NAMES[name]}: {before} / {after}")
    if one.settings != other.settings:
        told += changes(*settings) or [f"settings of the workload: {one.settings} / {other.settings}"]
    return told


_NAMES = {
    "site": "site", "file_system": "file system", "layout": "layout", "nodes": "nodes",
    "ranks_per_node": "ranks per node", "workload": "workload", "version": "version of dlio-hpc",
}  # fmt: skip
# Of a workload, for people alone.
_ASIDE = {"name", "description", "source"}


def changes(one: Any, other: Any, path: str = "") -> list[str]:
    """Keys below `path` whose values differ, such as reader.batch_size: 4 / 8."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return [f"{path}: {one} / {other}"] if path and one != other else []
    names = [name for name in dict.fromkeys([*one, *other]) if path or name not in _ASIDE]
    return [words for name in names for words in changes(one.get(name), other.get(name), f"{path}.{name}".lstrip("."))]


def flat(workload: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Keys of a workload in JSON, such as reader.batch_size, with their values; without keys that only describe it."""
    if not isinstance(workload, dict):
        if path:
            yield path, workload
        return
    for name, value in workload.items():
        if path or name not in _ASIDE:
            yield from flat(value, f"{path}.{name}".lstrip("."))
