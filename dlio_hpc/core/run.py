"""Execute a run of a plan on all ranks, and write its result.json."""

import errno
import os
import threading
import time
from collections import Counter
from contextlib import ExitStack, nullcontext, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, Incomplete, InfrastructureError, InvalidRun, about, reported
from dlio_hpc.config import reader_keys
from dlio_hpc.core import clock, environment, hang_watch, interruptions, merge, run_file_systems
from dlio_hpc.core.darshan_markers import MarkerReads
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.generate import generate
from dlio_hpc.core.hang_watch import HangWatch
from dlio_hpc.core.interruptions import StopWatch
from dlio_hpc.core.live_writer import LiveWriter
from dlio_hpc.core.neighbours import Neighbours, require_ranks
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.rank_zero import on_root
from dlio_hpc.core.run_file_systems import Mounted, Role
from dlio_hpc.core.train import train
from dlio_hpc.darshan import setup
from dlio_hpc.dataset import dataset_folder, planned_bytes
from dlio_hpc.files import elf_library, filesystem, run_outputs, rundir, safe_folders
from dlio_hpc.plan import cost
from dlio_hpc.plan.mix import OVERLAP
from dlio_hpc.plan.plan import Plan, Run
from dlio_hpc.plan.plan import load as load_plan
from dlio_hpc.results import probe_result
from dlio_hpc.results.run_result import (
    DatasetFacts,
    Disturbance,
    Epoch,
    Generated,
    MixSummary,
    PaceSummary,
    Result,
    RunError,
    Summary,
    decode,
    write,
)

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from dlio_hpc.core.loaders.tensorflow.profile import Profiler
    from dlio_hpc.core.loaders.tensorflow.xplane import XPlane


# Seconds that a file system, or HDF5's library, has to answer after storage did not; seconds after which a rank ends
# even if MPI_Abort does not end it; seconds in which launchers forward the message.
_ANSWER_S, _ABORT_S, _FORWARD_S = 1.0, 10.0, 0.2
# Delay at the end of a run up to which steps at fixed times count as held, in steps and as a share of the run's time.
_LATE_STEPS, _LATE_SHARE = 2, 0.05
# Error numbers of a file system or a quota without space.
_FULL = (errno.ENOSPC, errno.EDQUOT)


def load(path: Path, number: int) -> tuple[Plan, Run, str]:
    """Read a plan. Return the plan, its run `number`, and the SHA-256 of its file. Raise ConfigError if the plan has no
    such run.
    """
    plan, sha256 = load_plan(path)
    for run in plan.runs:
        if run.number == number:
            return plan, run, sha256
    raise ConfigError(f"{path} has no run {number}; its runs are 0 to {len(plan.runs) - 1}")


def execute(
    comm: "Intracomm", directory: Path, plan: Plan, run: Run, plan_sha256: str, around: Neighbours | None = None
) -> None:
    """Execute a run on all ranks of a communicator, and write timeline.h5 and result.json on rank 0. Raise InvalidRun,
    after the files are written, if the run was not made as planned. plan: the plan with the numbers of nodes and ranks
    of the run. around: the other loads of a mix; None for a run on all ranks of the job.
    """
    require_ranks(comm, plan)
    folder = rundir.run_directory(directory, run.number, run.name)
    started = units.utc_now(fraction=True)
    if comm.rank == 0:
        for file in (rundir.RESULT, rundir.TIMELINE):
            (folder / file).unlink(missing_ok=True)
        for name in (rundir.TF_PROFILE, rundir.HANGS, rundir.LIVE):
            safe_folders.discard(folder / name)
        with suppress(OSError):  # without the folder, nobody can watch the run
            (folder / rundir.LIVE).mkdir(parents=True)
    _require_file_system(plan, run)
    _require_preloads(plan)
    memory = environment.memory(comm)
    clock.assemble(comm)
    hosts = comm.allgather(environment.host())
    progress = Progress(rundir.run_name(run.number, run.name), speaks=comm.rank == 0)
    stop = Stop(comm, directory, plan.ranks_per_node if run.load is None else run.load.job_ranks_per_node, around)
    ask = partial(run_file_systems.mounts, run)  # storage may hang before the watch begins
    mounts = (filesystem.answered(ask, _ANSWER_S) or {}) if comm.rank == 0 else {}
    job = _Job(directory, folder, plan, run, plan_sha256, started, hosts, memory, mounts)
    watch = HangWatch(
        directory, folder, comm.rank, hosts, run.workload, hang_watch.limits(plan.warning_time),
        partial(_end_hanging, comm, job), LiveWriter(folder / rundir.LIVE, hosts, comm.rank, progress),
    )  # fmt: skip
    if run.kind == "generate":
        with watch:
            generated, trained = generate(comm, run, progress, stop), None
    else:
        generated, trained = None, _train(comm, job, watch, progress, stop, around)
    if comm.rank:
        return
    result = _result(job, trained, generated, run_file_systems.fields(run, plan.ranks, mounts))
    try:
        _write(directory, folder, result, trained.timeline_fault if trained else None)
    finally:  # the removal may take longer than the job has left; after a failure, the rank that reports it removes
        run_outputs.discard(run.outputs)
        if around is not None:
            around.wait()
    safe_folders.discard(folder / rundir.LIVE)
    _end(directory, result)


class _Job(NamedTuple):
    """Facts about the job that a result contains. directory, folder: folders of the job and of the run. memory: memory
    of the nodes, on rank 0. mounts: file systems at the start of the run; empty on other ranks than 0.
    """

    directory: Path
    folder: Path
    plan: Plan
    run: Run
    plan_sha256: str
    started: str
    hosts: list[merge.Host]
    memory: environment.NodeMemory | None
    mounts: dict[Role, Mounted]


def _result(job: _Job, trained: "_Trained | None", generated: Generated | None, file_systems: dict[str, Any]) -> Result:
    """Return the content of result.json for a run that ends now. file_systems: result of run_file_systems.fields()."""
    plan, run = job.plan, job.run
    return Result(
        run=rundir.run_name(run.number, run.name),
        kind=run.kind,
        plan_sha256=job.plan_sha256,
        started=job.started,
        ended=units.utc_now(fraction=True),
        ranks=plan.ranks,
        nodes=plan.nodes,
        ranks_per_node=plan.ranks_per_node,
        dataset=_facts(run),
        hosts=list(dict.fromkeys(host.name for host in job.hosts)),
        versions=environment.versions(),
        epochs=trained.epochs if trained else [],
        summary=trained.summary if trained else None,
        generated=generated,
        hints=trained.hints if trained else {},
        faults=trained.faults if trained else [],
        gap_s=_gap(job.directory, plan, run, job.started),
        **file_systems,
        memory_bytes=job.memory.limit if job.memory is not None else None,
        physical_memory_bytes=job.memory.physical if job.memory is not None else None,
        disturbance=trained.disturbance if trained else None,
    )


def _end_hanging(comm: "Intracomm", job: _Job, reason: str, kept: str, rank: int, merged: merge.Merged | None) -> None:
    """Write result.json for the epochs that have ended on all ranks, write error.json, and end all ranks. This function
    is called when storage does not respond. It is not called by the main thread, so it sends no MPI messages. It
    accesses only the storage of the job's directory. kept: part of the message that names the results that are kept.
    rank: the rank that hangs. merged: results of the epochs that have ended; None if no epoch has ended.
    """
    threading.Timer(_ABORT_S, os._exit, [Incomplete.exit_code]).start()
    message = f"{reason}; {kept}"
    error = RunError(rank, job.hosts[rank].name, Incomplete.__name__, message, Incomplete.exit_code)
    try:
        if merged is not None:
            _keep(job, reason, merged)
        rundir.write(job.folder / rundir.ERROR, serialization.encode(error))
        safe_folders.discard(job.folder / rundir.HANGS)
        raise Incomplete(message)
    except Exception as fault:  # noqa: BLE001 - reported, then all ranks end
        reported(fault, f"rank {rank} on {error.host}: ")
    time.sleep(_FORWARD_S)
    comm.Abort(Incomplete.exit_code)


def _keep(job: _Job, reason: str, merged: merge.Merged) -> None:
    """Write result.json and timeline.h5 of the epochs that have ended."""
    from dlio_hpc.core import timeline

    summary = merge.summary(merged, job.run)
    done = f"{summary.steps} of {summary.steps_planned} steps; {reason}"
    made = _Trained(
        merge.epochs(merged, job.run), structs.replace(summary, cut_short=done), {}, [], merge.disturbed(merged), None
    )
    ask = partial(run_file_systems.fields, job.run, job.plan.ranks, job.mounts)
    file_systems = filesystem.answered(ask, _ANSWER_S) or {}
    write(job.folder / rundir.RESULT, _result(job, made, None, file_systems))
    # HDF5's library lets one thread in at a time, and a reader thread may hang in it.
    filesystem.answered(lambda: timeline.write(job.folder, merged, job.run, [], ""), _ANSWER_S)


class ResultKept(InfrastructureError):
    """Error that is raised if the file system of the folder of runs is full. The result of the run is complete, but the
    result is kept elsewhere, or the timeline is missing.
    """


class MadeOtherwise(InvalidRun):
    """Error that is raised after the result was written, if the run was not made as planned."""


class RateMissed(MadeOtherwise):
    """Error that is raised if a background load did not hold its rate: the other loads of the launch ran beside a
    weaker load than planned.
    """


def concerned(fault: Exception, folders: list[Path], own: Path | None) -> list[Path]:
    """Return the folders of the runs that have no valid result because of an error. folders: folders of all runs of the
    launch. own: folder of the run of the rank; None if the rank has none yet.
    """
    if isinstance(fault, ResultKept):
        return []
    if not isinstance(fault, MadeOtherwise) or own is None:
        return folders
    # The own folder comes first: another load may have reported a fault of its own.
    return [own, *(folder for folder in folders if folder != own)] if isinstance(fault, RateMissed) else [own]


def _write(directory: Path, folder: Path, result: Result, timeline_fault: OSError | None) -> None:
    """Write result.json. If the folder of runs is full, keep the result in the spare folder of this node, and raise
    ResultKept. timeline_fault: the reason why timeline.h5 was not written; None if it was.
    """
    place = folder / rundir.RESULT
    try:
        write(place, result)
    except OSError as fault:
        if fault.errno not in _FULL:
            raise
        name = str(place.relative_to(directory))
        kept = rundir.keep_spare(directory, name, serialization.encode(result))
        if kept is None:
            raise
        raise ResultKept(
            f"{directory.parent} is full ({fault.strerror}): the result of {result.run} is complete, and is kept on "
            f"{os.uname().nodename} in {kept}. dlio-hpc report finds it there"
        ) from fault
    if timeline_fault is not None:
        raise ResultKept(
            f"{directory.parent} is full ({timeline_fault.strerror}): the result of {result.run} is complete, but its "
            "timeline.h5 is missing"
        )


def _require_file_system(plan: Plan, run: Run) -> None:
    """Raise InfrastructureError if the data of the run are on another kind of file system than the site expects."""
    places = [run.dataset] * run.workload.dataset.is_stored + [run.outputs] * run.workload.writes_outputs
    for place in places:
        if (why := filesystem.unexpected(Path(place), plan.site.file_system)) is not None:
            raise InfrastructureError(why)


def _require_preloads(plan: Plan) -> None:
    """Raise InfrastructureError if a library of site.preload cannot be loaded on this node. The loader of the system
    only prints a warning and starts the rank without the library.
    """
    for library in plan.site.preload:
        if (why := elf_library.fault(library)) is not None:
            raise InfrastructureError(f"site.preload: {why}; correct preload in the site profile")


def probe(comm: "Intracomm", folder: Path, plan: Plan, run: Run) -> None:
    """Make the probe of a measured run on all ranks, and write probe.json to the folder of the run on rank 0."""
    from dlio_hpc.core import storage_probe

    (folder / rundir.PROBE).unlink(missing_ok=True)
    if plan.site.probe is not None and (outcome := storage_probe.probe(comm, run, plan.site.probe)) is not None:
        probe_result.write(folder / rundir.PROBE, outcome)


def _end(directory: Path, result: Result) -> None:
    """Write the stop file if time ran out before the end of the run. The stop file tells the job script to stop. Raise
    MadeOtherwise if the run was not made as planned.
    """
    summary = result.summary
    if summary is not None and summary.cut_short is not None:
        stop = directory / rundir.STOP  # job.sh looks for it
        with about(stop), stop.open("a") as stopped:
            stopped.write(f"{result.run}: stopped, {summary.cut_short}\n")
    if result.faults:
        is_late = summary is not None and summary.pace is not None and _pace_faults(summary.pace, summary.wall_s)
        raise (RateMissed if is_late else MadeOtherwise)("; ".join(result.faults))


class _Trained(NamedTuple):
    """Results of a warm-up or measurement, on rank 0. timeline_fault: the reason why timeline.h5 was not written; None
    if it was.
    """

    epochs: list[Epoch]
    summary: Summary
    hints: dict[str, str]
    faults: list[str]
    disturbance: Disturbance
    timeline_fault: OSError | None


def _train(
    comm: "Intracomm", job: _Job, watch: HangWatch, progress: Progress, stop: Stop, neighbours: Neighbours | None
) -> _Trained | None:
    """Run all steps of a warm-up or measurement, and write timeline.h5 on rank 0. Return the results on rank 0, and
    None on other ranks.
    """
    plan, run, folder, hosts = job.plan, job.run, job.folder, job.hosts
    with watch, _reading(run) if comm.rank == 0 else nullcontext():
        on_root(comm, lambda: _require(run, comm.size))
        profiler = _profiler(folder, comm.rank) if run.tf_profile else None
        marks = MarkerReads(comm, plan.directory, run)
        marks.take()
        with StopWatch(has_heartbeat=_is_plain(run)) as stopped:
            around = profiler or nullcontext()
            recording = train(comm, run, plan.ranks_per_node, progress, stop, around, watch.watch)
            stops = stopped.stops()
    marks.take()
    clock.barrier(comm)
    marks.close()
    profiles: list[XPlane | None] = []
    if run.tf_profile:
        profile = profiler.profile() if profiler else None
        clock.assemble(comm)
        profiles = comm.gather(profile) or []
    merged = merge.gather(comm, hosts, recording, marks.taken)
    all_stops = comm.gather(stops)
    if merged is None or all_stops is None:
        return None
    from dlio_hpc.core import timeline  # not on all ranks: it imports several modules

    interrupted = interruptions.of_run(merged, run.steps_per_epoch, all_stops)
    summary = structs.replace(merge.summary(merged, run), interruptions=interrupted)
    summary = structs.replace(summary, cut_short=_cut_short(run, summary) if recording.stopped else None)
    if neighbours is not None:
        summary = structs.replace(summary, mix=_of_mix(neighbours, merged, run))
    ends_early = recording.stopped and stop.ends_with_mix()
    if ends_early:
        summary = structs.replace(summary, cut_short=None, steps_planned=summary.steps)
    elif neighbours is not None and recording.stopped and summary.cut_short is None:
        summary = structs.replace(summary, cut_short="not all loads of the mix had ended")
    timeline_fault = None
    try:
        timeline.write(folder, merged, run, profiles, setup.marker_path(plan.directory, run))
    except OSError as fault:
        if fault.errno not in _FULL:
            raise
        timeline_fault = fault
    is_planned = summary.steps == run.steps_per_epoch * run.workload.train.epochs
    is_checked = summary.cut_short is None and (is_planned or not ends_early)
    faults = _faults(run, summary, comm.size) if is_checked else []
    if ends_early and not is_planned:
        faults += _sample_faults(run, summary)
    faults += [] if summary.mix is None else _mix_faults(summary.mix)
    faults += [] if summary.pace is None else _pace_faults(summary.pace, summary.wall_s)
    faults += _placement_faults(plan, run, [host.name for host in hosts])
    return _Trained(
        merge.epochs(merged, run), summary, recording.counts.hints, faults, merge.disturbed(merged), timeline_fault
    )


def _of_mix(neighbours: Neighbours, merged: merge.Merged, run: Run) -> MixSummary:
    return neighbours.summary(merged.steps, run.steps_per_epoch, run.workload.reads_samples)


def _reading(run: Run) -> ExitStack:
    """Hold the locks that keep datasets remove from the datasets of the run."""
    with ExitStack() as stack:
        for part in (run, *([run.evaluation] if run.evaluation is not None else [])):
            if part.workload.dataset.is_generated:
                stack.enter_context(dataset_folder.being_read(part.dataset))
        return stack.pop_all()


def _is_plain(run: Run) -> bool:
    """Return True if no library of the run holds Python's lock while a rank waits for storage."""
    checkpoint = run.workload.checkpoint
    return run.workload.reader.mode == "posix" and (checkpoint is None or checkpoint.mode == "posix")


def _require(run: Run, ranks: int) -> None:
    """Raise ConfigError if the run lacks its dataset, or space for its checkpoints."""
    dataset_folder.require(run.stored)
    if run.evaluation is not None:
        dataset_folder.require(run.evaluation.stored)
    cost.require_space(run, ranks)


def _profiler(folder: Path, rank: int) -> "Profiler | None":
    """Return the TensorFlow profiler of a rank, or None if the rank is not profiled. Only ranks 0 to 7 are profiled."""
    from dlio_hpc.core.loaders.tensorflow.profile import RANKS, Profiler

    return Profiler(folder, rank) if rank < RANKS else None


def _gap(directory: Path, plan: Plan, run: Run, started: str) -> float | None:
    """Return the seconds between the end of the job's previous run and the time `started`. Return None for the first
    run, or if the previous run left no valid result.
    """
    first = run.number if run.launch is None else run.launch
    if first == 0:
        return None
    before = plan.runs[first - 1]
    path = rundir.run_directory(directory, before.number, before.name) / rundir.RESULT
    try:
        return units.seconds_between(decode(path.read_bytes(), str(path)).ended, started)
    except (OSError, InvalidRun):
        return None


def _facts(run: Run) -> DatasetFacts:
    layout = run.workload.dataset
    size = layout.size if layout.facts.holds_data else 0
    is_existing = layout.existing is not None
    return DatasetFacts(run.dataset, run.fingerprint, layout.format, layout.files, layout.samples, size, is_existing)


def _faults(run: Run, summary: Summary, ranks: int) -> list[str]:
    """Compare the samples and bytes that a run has read with the plan. Return a list with a message for each
    difference. The run must have made all its steps.

    If a library reads the files, or if whole chunks are read, more bytes than planned may be read, but never fewer. For
    TFRecord, the number of additional bytes is limited.
    """
    faults = []
    checkpoint, restored = run.workload.checkpoint, summary.restored
    written = summary.checkpoint.count if summary.checkpoint is not None else 0
    if checkpoint is not None and checkpoint.writes is not None and written != checkpoint.writes:
        faults.append(f"{written} checkpoints were written, but {checkpoint.writes} were planned (checkpoint.writes)")
    reads = checkpoint.reads if checkpoint is not None and summary.checkpoint is not None else 0
    if (number := restored.count if restored else 0) < reads:
        faults.append(f"{number} checkpoints were read, but {reads} were planned")
    if run.evaluation is not None:
        evaluated = summary.evaluation.samples if summary.evaluation else 0
        if evaluated != run.evaluation.samples:
            faults.append(f"{evaluated} samples were read for evaluation, but {run.evaluation.samples} were planned")
    if summary.samples != run.samples:
        faults.append(f"{summary.samples} samples were read, but {run.samples} were planned")
    if not _bytes_are_known(run, summary, ranks):
        return faults
    exact = run.workload.reader.mode == "posix" and not run.workload.dataset.is_chunked
    enough = summary.bytes_read == run.bytes if exact else summary.bytes_read >= run.bytes
    most = planned_bytes.most(run.workload, ranks, run.bytes)
    if not enough:
        faults.append(f"{summary.bytes_read} bytes were read, but {run.bytes} were planned")
    elif most is not None and summary.bytes_read > most:
        times = summary.bytes_read / run.bytes
        faults.append(f"{summary.bytes_read} bytes were read, {times:.3g} times the planned {run.bytes} bytes")
    return faults


def _sample_faults(run: Run, summary: Summary) -> list[str]:
    """Return a list with a message if a load of a mix that has started again read another number of samples than its
    whole epochs have. Otherwise, or if its last epoch was cut, return an empty list.
    """
    epochs, cut = divmod(summary.steps, run.steps_per_epoch)
    planned = run.samples // run.workload.train.epochs * epochs
    if cut or summary.samples == planned:
        return []
    return [f"{summary.samples} samples were read in {epochs} epochs, but these have {planned}"]


def _mix_faults(mix: MixSummary) -> list[str]:
    """Return a list with a message if the other loads of a mix ran for too small a part of the run. Otherwise return an
    empty list.
    """
    if mix.overlap >= OVERLAP:
        return []
    return [
        f"the loads ran together for only {100 * mix.overlap:.0f} % of the time of {mix.load}; use --mix-until last, "
        "more epochs or shorter steps"
    ]


def _pace_faults(pace: PaceSummary, wall_s: float) -> list[str]:
    """Return a list with a message if steps at fixed times were late at the end of the run: storage did not hold the
    rate. Otherwise return an empty list.
    """
    if pace.behind_s <= max(_LATE_STEPS * pace.every_s, _LATE_SHARE * wall_s):
        return []
    return [
        f"the rate was not held: steps were to start every {units.format_seconds(pace.every_s)}, that is "
        f"{1 / pace.every_s:.3g}/s, but {pace.per_s:.3g}/s were reached, and the last step was "
        f"{units.format_seconds(pace.behind_s)} late; lower the rate, or use more ranks"
    ]


def _cut_short(run: Run, summary: Summary) -> str | None:
    """Return a text that names the parts of a run that are incomplete because time ran out, and how much of each part
    was done. Return None if nothing is missing.
    """
    evaluation, checkpoint = run.evaluation, run.workload.checkpoint
    evaluated = summary.evaluation.samples if summary.evaluation else 0
    restored = summary.restored.count if summary.restored else 0
    parts = (
        (summary.steps, summary.steps_planned, run.workload.steps_in_words),
        (evaluated, evaluation.samples if evaluation else 0, "samples of the evaluation passes"),
        (restored, checkpoint.reads if checkpoint else 0, "checkpoints read"),
    )
    return ", ".join(f"{done} of {planned} {what}" for done, planned, what in parts if done < planned) or None


def _bytes_are_known(run: Run, summary: Summary, ranks: int) -> bool:
    """Return whether the number of bytes that a run reads is known before the run starts. It is unknown in six cases:
    an inference workload leaves out the requests that it cannot serve in its time; the dataset is compressed; existing
    stores may lack chunks, which have fill values; samples vary in size, and not exactly all of them are read; several
    ranks request the same data in collective HDF5 reads, which read the data only once; or data are kept in memory from
    one epoch to the next. Data are kept if files stay open, because the HDF5 library has caches and the reader of
    Parquet keeps a row group.
    """
    dataset, reader = run.workload.dataset, run.workload.reader
    if run.workload.inference is not None or reader_keys.keeps_data(dataset, reader):
        return False
    if reader.access == "collective" and reader.mode == "framework" and not reader.shard:
        return False
    if dataset.sizes_vary and (summary.samples_left_out or planned_bytes.factor(run.workload, ranks) != 1):
        return False
    if dataset.scan is not None and (dataset.scan.needs_library or dataset.facts.is_store):
        return False
    return dataset.compression == "none"


def _works_on_other_nodes(run: Run) -> bool:
    """Return whether a rank works on files that a rank of another node has written in the same run."""
    metadata, saved = run.workload.metadata, run.workload.checkpoint
    return bool((metadata and metadata.shift_nodes) or (saved and saved.reads and saved.reorder))


def _placement_faults(plan: Plan, run: Run, hosts: list[str]) -> list[str]:
    """Return a list with a message if the ranks are not placed on the nodes as planned, because the launcher ignored
    the plan. Otherwise return an empty list. hosts: the node of each rank.
    """
    counts = Counter(hosts)
    if len(counts) == plan.nodes and set(counts.values()) == {plan.ranks_per_node}:
        changes = sum(host != following for host, following in pairwise(hosts))
        if changes == plan.nodes - 1 or not _works_on_other_nodes(run):
            return []
        nodes = f"{', '.join(hosts[:8])}{', ...' * (len(hosts) > 8)}"
        return [
            "ranks work on files of other nodes, so the ranks of a node must have consecutive numbers, but the "
            f"launcher placed the ranks on {nodes}; set it to block placement, such as srun --distribution=block"
        ]
    actual = ", ".join(f"{count} on {host}" for host, count in sorted(counts.items()))
    return [
        f"{units.counted(plan.nodes, 'node')} x {plan.ranks_per_node} ranks were planned, but the actual "
        f"placement is {actual}"
    ]
