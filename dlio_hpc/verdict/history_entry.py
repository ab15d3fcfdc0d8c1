"""Entry of a job in the history. It holds all data that verdicts need, and is computed from the job's archive alone."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any, NamedTuple

from msgspec import Struct, structs

from dlio_hpc.analysis import disturbance_check
from dlio_hpc.analysis.storage_check import Storage
from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import InvalidRun
from dlio_hpc.base.nights import nights_of
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.config import lustre_layout
from dlio_hpc.lustre import layout_record
from dlio_hpc.lustre.layout_record import Record
from dlio_hpc.plan import mix, night_chain
from dlio_hpc.plan.mix import Load
from dlio_hpc.plan.plan import Kind, Plan, Run
from dlio_hpc.records import job_outcome
from dlio_hpc.records.job_outcome import JobOutcome, RunOutcome
from dlio_hpc.results import metrics
from dlio_hpc.results.run_result import Disturbance
from dlio_hpc.verdict import comparable_versions, settings_digest

# Longest time between the submission and the end of a job.
_YEAR_S = 366 * 86400


class Key(Struct, frozen=True, omit_defaults=True):
    """Measurement key: everything that two measurements must have in common to be compared. file_system: type and mount
    point of the dataset's file system, such as "lustre /scratch". layout: description of the dataset's striping.
    settings: digest of the whole workload. version: first version of dlio-hpc that measures in the same way as the
    version that executed the run. outputs: type and mount point of the file system of the checkpoints and auxiliary
    files that the run writes; "unknown" if it was not recorded; empty if the run writes none. mix: other loads that run
    at the same time (Load.company), and a digest of their settings; empty if the run is no load of a mix. An empty
    value is not part of the digest.
    """

    site: str
    file_system: str
    layout: str
    nodes: int
    ranks_per_node: int
    workload: str
    settings: str
    version: str
    outputs: str = ""
    mix: str = ""

    @property
    def digest(self) -> str:
        """Digest of the measurement key, twelve hexadecimal digits."""
        return _digest(self)

    @property
    def place(self) -> str:
        """File systems of the dataset and of the outputs, such as "none, outputs on lustre /scratch"."""
        is_elsewhere = self.outputs not in ("", self.file_system)
        return f"{self.file_system}, outputs on {self.outputs}" if is_elsewhere else self.file_system

    @property
    def title(self) -> str:
        """Title of one line, such as "cosmoflow on theta, 128 x 4 ranks"."""
        return f"{self.workload} on {self.site}, {self.nodes} x {self.ranks_per_node} ranks"


def point_title(title: str, key: Key) -> str:
    """Return the title of a study's point. The result is empty for the only point of a study without swept keys. This
    point is measured like a job without a study, and its title is only the name of the workload.
    """
    return "" if title == key.workload else title


class Measurement(Struct, frozen=True):
    """A warm-up or measured run; runs that generate datasets have no Measurement. title: title of the study's point
    that the run measures; empty if there is none. data: directory of the dataset. fault: reason why the run must not be
    used; None for a good run. exit_code: exit code for this reason; 0 for a good run. metrics: values by their names in
    metrics.METRICS. steps: steps per epoch. gap_s: seconds since the end of the job's previous run. disturbance: other
    activity on the nodes of the run; None if it was not recorded. remarks: sentences on computation and epochs that
    took far longer than expected. job: name of the job that made the measurement; empty in entries of earlier versions.
    In a study of several nights, the name contains the number of the night (nights.job_name). requests: number of
    requests of an inference workload; None for other workloads.
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
    remarks: tuple[str, ...] = ()
    job: str = ""
    requests: int | None = None

    @property
    def is_good(self) -> bool:
        """Whether this is a measured run without a fault. A good run may nevertheless have read from memory."""
        return self.fault is None and self.kind == "measure"

    @property
    def unit(self) -> tuple[Any, ...]:
        """Identity of the measurement within its study. It stays the same if the measurement is made again after a
        failure. Parts of the measurement key that only become known while the job runs are left out, because a run that
        failed early lacks them.
        """
        key = self.key
        return self.title, self.data, key.settings, key.nodes, key.ranks_per_node, self.repeat


# dict=True gives an entry a __dict__, in which run_groups.of() keeps the groups of the job.
class Entry(Struct, frozen=True, dict=True):
    """A job that has ended. ended: time in UTC. fault: reason why the metrics of the job must not be used; None if the
    job has no fault. exit_code: exit code for this fault; 0 if the job has no fault. hosts: names of the nodes.
    versions: versions of software, by name. Hosts and versions were recorded by the runs of the job. results_on: file
    system of the job directory when the job ran, in the form of Key.file_system; empty if it was not recorded.
    workloads: workloads with their defaults filled in, by their digest (Key.settings). night: night for which the job
    was planned, counted from 1; 0 if its study was not planned for several nights.
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
    night: int = 0
    schema: int = 1

    @property
    def is_invalid(self) -> bool:
        """Whether the job as a whole is invalid although none of its runs has a fault, for example because a layout is
        not the requested one.
        """
        return self.exit_code == InvalidRun.exit_code and all(run.fault is None for run in self.measurements)


def of(outcome: JobOutcome) -> Entry:
    """Return the entry of a job. The result is the same whether the job was read from its directory or from its
    archive.
    """
    fault = job_outcome.fault(outcome)
    results = [run.result for run in outcome.runs if run.result is not None]
    measured = [run for run in outcome.runs if run.run.kind != "generate"]
    entry = Entry(
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
        night=outcome.plan.night if outcome.plan.nights > 1 else 0,
        workloads={
            settings_digest.of(run.run.workload): json.loads(
                serialization.encode(settings_digest.placeless(run.run.workload))
            )
            for run in measured
        },
        measurements=tuple(_measurement(outcome, run) for run in measured),
    )
    return _with_clock_fault(entry)


def _with_clock_fault(entry: Entry) -> Entry:
    """Return the entry. If its job ended more than a year after its submission, a clock was wrong, and the returned
    entry is invalid.
    """
    is_same_year = entry.created[:4] == entry.ended[:4] and entry.created <= entry.ended
    if is_same_year or units.seconds_between(entry.created, entry.ended) <= _YEAR_S:
        return entry
    fault = (
        f"the job was submitted at {entry.created} and ended at {entry.ended}: a clock was wrong, and its place among "
        "the nights is unknown; move its archive out of the folder"
    )
    return structs.replace(entry, fault=fault, exit_code=InvalidRun.exit_code)


def carried(entry: Entry) -> Entry:
    """Return the entry of a job that this or an earlier version wrote. The result has the measurement keys of this
    version, the night for which the job was planned, and a fault if a clock was wrong. Entries of earlier versions have
    the night only in the name of the job.
    """
    entry = _with_clock_fault(entry)
    digests = {digest: settings_digest.carried(workload, digest) for digest, workload in entry.workloads.items()}
    keys = {key: _carried_key(key, digests, entry.workloads) for key in {run.key for run in entry.measurements}}
    night = entry.night or night_chain.job_night(entry.study, entry.job)
    if night == entry.night and all(known == key for known, key in (*keys.items(), *digests.items())):
        return entry
    return structs.replace(
        entry,
        night=night,
        workloads={digests[digest]: workload for digest, workload in entry.workloads.items()},
        measurements=tuple(structs.replace(run, key=keys[run.key]) for run in entry.measurements),
    )


def located(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries, oldest first. File systems and layouts that a job did not record, because it failed early,
    are filled in. They are taken from the last earlier job that measured the same in the same folder or, if there is
    none, from the first later one.
    """
    if all(run.key.file_system != "unknown" for entry in entries for run in entry.measurements):
        return tuple(entries)
    known: dict[tuple[Any, ...], Key] = {}
    for entry in reversed(entries):
        known |= {_place(run): run.key for run in entry.measurements if run.key.file_system != "unknown"}
    made = []
    for entry in entries:
        runs = tuple(
            structs.replace(run, key=known.get(_place(run), run.key)) if run.key.file_system == "unknown" else run
            for run in entry.measurements
        )
        known |= {_place(run): run.key for run in runs if run.key.file_system != "unknown"}
        made.append(entry if runs == entry.measurements else structs.replace(entry, measurements=runs))
    return tuple(made)


def without_copies(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return the entries. An entry with the same runs as an earlier entry becomes invalid, because two jobs cannot have
    the same times and results. Such a copy of a good job must not be used as another measurement.
    """
    originals: dict[str, list[Entry]] = {}
    made = []
    for entry in entries:
        others = originals.setdefault(entry.created, [])
        original = next((other for other in others if _measured(other) == _measured(entry)), None)
        others.append(entry)
        made.append(_copy(entry, original) if original is not None and _measured(entry) else entry)
    return tuple(made)


def _copy(entry: Entry, original: Entry) -> Entry:
    """Return the entry of a copy of a job, which is invalid as a whole and in each run."""
    fault = f"it has the same runs as {original.job}, at the same times: one of the two is a copy; remove the copy"
    runs = tuple(
        structs.replace(run, fault=run.fault or fault, exit_code=run.exit_code or InvalidRun.exit_code)
        for run in entry.measurements
    )
    return structs.replace(entry, fault=fault, exit_code=InvalidRun.exit_code, measurements=runs)


def _measured(entry: Entry) -> list[tuple[Any, ...]]:
    """Return the measurement keys, times and metrics of the runs that have metrics."""
    return [(run.key, run.started, run.ended, run.metrics) for run in entry.measurements if run.metrics]


def _place(run: Measurement) -> tuple[Any, ...]:
    """Return what a run measures and where, without the parts of the key that only become known while a job runs."""
    unknown = {"file_system": "", "layout": "", "outputs": ""}
    return structs.replace(run.key, **unknown), run.data


def carried_key(key: Key, workload: Any) -> Key:
    """Return the key that this version gives to a measurement that this or an earlier version made. workload: the
    workload as decoded from JSON; None if it was not kept. Earlier versions did not record the file system of
    checkpoints.
    """
    return _carried_key(key, {key.settings: settings_digest.carried(workload, key.settings)}, {key.settings: workload})


def _carried_key(key: Key, digests: dict[str, str], workloads: dict[str, Any]) -> Key:
    """Return the key that this version gives to a measurement. digests: digest of the settings in this version, by
    recorded digest. workloads: workload as decoded from JSON, by recorded digest.
    """
    outputs = key.outputs
    if not outputs and _writes_outputs(workloads.get(key.settings)):
        outputs = _assumed_outputs(key.file_system)
    settings, version = digests.get(key.settings, key.settings), comparable_versions.since(key.version)
    if (outputs, settings, version) == (key.outputs, key.settings, key.version):
        return key
    return structs.replace(key, settings=settings, version=version, outputs=outputs)


def _writes_outputs(workload: Any) -> bool:
    """Return the value of Workload.writes_outputs for a workload as decoded from JSON. The workload may be invalid in
    this version.
    """
    if not isinstance(workload, dict):
        return False
    sides = workload.get("dataset", {}).get("auxiliary_files") or ()
    return workload.get("checkpoint") is not None or any(side.get("access") == "write" for side in sides)


def together(entries: Sequence[Entry]) -> list[Entry]:
    """Merge the jobs of each study into one entry, and return all entries. Repeats in several jobs of a study are thus
    treated as repeats of one measurement. If the study was planned for several nights, each night has its own entry.
    """
    studies: dict[str, list[Entry]] = {}
    for entry in entries:
        studies.setdefault(entry.study, []).append(entry)
    return [
        merged
        for jobs in studies.values()
        for merged in (jobs if len(jobs) == 1 else _merged(sorted(jobs, key=lambda job: job.created)))
    ]


class _Counted(NamedTuple):
    """A run that is used (see _counted). job: index of the run's job among the jobs of the study."""

    job: int
    run: Measurement


def _merged(jobs: Sequence[Entry]) -> list[Entry]:
    """Merge the jobs of a study into one entry per night, or into one entry if the study has no nights. jobs: in the
    order of their creation. If the same repeat was run more than once, its first good run is used, on the night of the
    job that made it. The entry of a night has the name of the night's first job that has such a run. Return the entries
    in the order of time.
    """
    counted = _counted(jobs)
    if not any(job.night for job in jobs):
        return [_joined(jobs, [counts.run for counts in counted], jobs[0].study)]
    by_night: dict[tuple[date, int], list[int]] = {}
    for number, night in enumerate(nights_of([job.ended for job in jobs])):
        by_night.setdefault((night, jobs[number].night), []).append(number)
    measuring = {counts.job for counts in counted if counts.run.kind == "measure"}
    merged = []
    for _, numbers in sorted(by_night.items()):
        kept = [number for number in numbers if number in measuring or _failed_early(jobs[number])]
        runs = [counts.run for counts in counted if counts.job in kept]
        if kept:
            first = next((number for number in kept if number in measuring), kept[0])
            merged.append(_joined([jobs[number] for number in kept], runs, jobs[first].job))
    return merged or [_joined(jobs, [counts.run for counts in counted], jobs[0].job)]


def _counted(jobs: Sequence[Entry]) -> list[_Counted]:
    """Return the runs that are included in the result of a study. If the same repeat was measured more than once, only
    its first good run is included, or its last run if none is good. jobs: jobs of the study.
    """
    by_unit: dict[tuple[Any, ...], _Counted] = {}
    for number, run in ((number, run) for number, job in enumerate(jobs) for run in job.measurements):
        unit = run.unit if run.kind == "measure" else (number, run.job, run.run)
        if unit not in by_unit or not by_unit[unit].run.is_good:
            by_unit[unit] = _Counted(number, run)
    return list(by_unit.values())


def _failed_early(job: Entry) -> bool:
    """Return whether a job failed before it was known what it would measure."""
    return job.fault is not None and all(run.kind != "measure" for run in job.measurements)


def _joined(jobs: Sequence[Entry], runs: Sequence[Measurement], name: str) -> Entry:
    """Merge jobs into one entry. The fault of a job is kept only if some measurement has no good run, or if the fault
    invalidates good runs. runs: the runs of these jobs that are used. name: name of the entry.
    """
    lost = not runs or any(run.kind == "measure" and not run.is_good for run in runs)
    faulty = [job for job in jobs if job.fault is not None and (lost or job.is_invalid)]
    newest = jobs[-1]
    return structs.replace(
        newest,
        job=name,
        batch_id=newest.batch_id if len(jobs) == 1 else None,
        created=jobs[0].created,
        ended=max(job.ended for job in jobs),
        fault=faulty[0].fault if faulty else None,
        exit_code=faulty[0].exit_code if faulty else 0,
        hosts=tuple(dict.fromkeys(host for job in jobs for host in job.hosts)),
        workloads={digest: workload for job in jobs for digest, workload in job.workloads.items()},
        measurements=tuple(runs),
    )


def _measurement(outcome: JobOutcome, run: RunOutcome) -> Measurement:
    planned, result = run.run, run.result
    summary = None if result is None else result.summary
    fault = job_outcome.run_fault(outcome, run)
    return Measurement(
        run=run.name,
        kind=planned.kind,
        title="" if planned.point is None else outcome.plan.titles.get(planned.point, ""),
        repeat=planned.repeat,
        data=planned.data,
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
        remarks=() if result is None else tuple(disturbance_check.remarks(result)),
        job=outcome.job.job,
        requests=summary.inference.requests if summary is not None and summary.inference is not None else None,
    )


def key(outcome: JobOutcome, run: RunOutcome) -> Key:
    """Return the measurement key of a run. The run need not have a result."""
    plan, planned, load = outcome.plan, run.run, run.run.load
    layout = next((record for record in outcome.layouts if record.path == planned.dataset), None)
    file_system = _file_system(layout, planned)
    version = plan.version if run.result is None else run.result.versions.get("dlio_hpc", plan.version)
    return Key(
        site=plan.site.name,
        file_system=file_system,
        layout=_layout(layout, planned),
        nodes=plan.nodes if load is None else load.nodes,
        ranks_per_node=plan.ranks_per_node if load is None else load.ranks_per_node,
        workload=planned.workload.name,
        settings=settings_digest.of(planned.workload),
        version=comparable_versions.since(version),
        outputs=_outputs(run, file_system),
        mix="" if load is None else _company(plan, planned, load),
    )


def _company(plan: Plan, run: Run, load: Load) -> str:
    """Return the load, the other loads, and a digest of their settings and of the rules of the mix."""
    others = [
        (other.load.name, other.load.place, settings_digest.of(other.workload))
        for other in plan.launched_with(run)
        if other.load is not None and other.number != run.number
    ]
    rules = (load.until, load.time_s, load.place)
    digest = hashlib.sha256(serialization.encode((sorted(others), rules if others else ()))).hexdigest()
    return f"{load.company}{mix.MARK}{digest[:8]}" if others else load.company


def _outputs(run: RunOutcome, file_system: str) -> str:
    if not run.run.workload.writes_outputs:
        return ""
    return (run.result.outputs_on if run.result is not None else "") or _assumed_outputs(file_system)


def _assumed_outputs(file_system: str) -> str:
    """Return the file system of the outputs if it was not recorded. Outputs are in the folder of the dataset, so this
    is the file system of the dataset. It is unknown for a run without a dataset.
    """
    return "unknown" if file_system == "none" else file_system


def _file_system(layout: Record | None, run: Run) -> str:
    if not run.workload.dataset.is_stored:
        return "none"
    if layout is None:
        return "unknown"
    return layout.file_system.text


def _layout(layout: Record | None, run: Run) -> str:
    """Return a phrase for the layout of the dataset. This is the layout that was requested; if none was requested, the
    actual layout.
    """
    if layout is not None and not layout.file_system.is_lustre:
        return "none"
    if run.layout is not None:
        return lustre_layout.describe(run.layout)
    return "unknown" if layout is None else layout_record.striping(layout) or "unknown"


def _digest(value: Struct) -> str:
    return hashlib.sha256(serialization.encode(value)).hexdigest()[:12]


def differences(before: Key, after: Key, settings: tuple[Any, Any] = (None, None)) -> list[str]:
    """Return the differences between two measurement keys, each as NAME: BEFORE / AFTER. settings: the workloads of the
    two measurement keys; if they are given, the settings that differ are listed by name.
    """
    lines = []
    for name in Key.__struct_fields__:
        left, right = getattr(before, name), getattr(after, name)
        if left != right and name != "settings":
            lines.append(f"{_NAMES[name]}: {left or 'none'} / {right or 'none'}")
    if before.settings != after.settings:
        lines += changes(*settings) or [f"settings of the workload: {before.settings} / {after.settings}"]
    return lines


_NAMES = {
    "site": "site", "file_system": "file system", "layout": "layout", "nodes": "nodes",
    "ranks_per_node": "ranks per node", "workload": "workload", "version": "version of dlio-hpc",
    "outputs": "file system of the checkpoints", "mix": "other loads",
}  # fmt: skip
# YAML keys of a workload that only describe it.
_ASIDE = {"name", "description", "source"}


def changes(before: Any, after: Any, path: str = "") -> list[str]:
    """Return the YAML keys below `path` whose values differ, each with both values, such as
    reader.batch_size: 4 / 8.
    """
    if not isinstance(before, dict) or not isinstance(after, dict):
        return [f"{path}: {before} / {after}"] if path and before != after else []
    names = [name for name in dict.fromkeys([*before, *after]) if path or name not in _ASIDE]
    return [line for name in names for line in changes(before.get(name), after.get(name), f"{path}.{name}".lstrip("."))]


def flat(workload: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted YAML keys of a workload, such as reader.batch_size, with their values. Keys that only describe
    the workload are left out.
    """
    if not isinstance(workload, dict):
        if path:
            yield path, workload
        return
    for name, value in workload.items():
        if path or name not in _ASIDE:
            yield from flat(value, f"{path}.{name}".lstrip("."))
