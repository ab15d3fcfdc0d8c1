"""Outcome of a job, read from the job's directory or its archive."""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import structs

from dlio_hpc.analysis import disturbance_check
from dlio_hpc.analysis.storage_check import Storage, judge
from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import (
    ConfigError,
    DlioError,
    Incomplete,
    InfrastructureError,
    InvalidRun,
    Unexpected,
    about,
    kind_of,
    unreadable,
)
from dlio_hpc.batch import job_output, job_record, job_state, setup_failures
from dlio_hpc.batch.schedulers.scheduler import State
from dlio_hpc.batch.setup_failures import SetupFailure
from dlio_hpc.darshan import setup, verdict_file
from dlio_hpc.darshan.verdict_file import LogVerdict
from dlio_hpc.files import archive, filesystem, path_kinds, rundir, safe_folders
from dlio_hpc.lustre.layout_record import Record, read
from dlio_hpc.plan import darshan_needs
from dlio_hpc.plan.plan import Plan, Run, archive_folder
from dlio_hpc.results import probe_result, run_result
from dlio_hpc.results.probe_result import StorageProbe

# Names of the files that are read from the directory of a job, in addition to the files of its runs.
_PLAIN = (
    rundir.PLAN, rundir.JOB, rundir.STUDY, rundir.ENVIRONMENT, rundir.EXIT_STATUS, rundir.SETUP_FAILURES, rundir.STDERR,
    rundir.STDOUT,
)  # fmt: skip
# Limits of the last lines of job.err: number of lines, bytes read, characters per line.
_TAIL_LINES, _TAIL_BYTES, _TAIL_LETTERS = 10, 1 << 16, 240
_WANTED = re.compile(
    f"{'|'.join(map(re.escape, _PLAIN))}|"
    f"{rundir.LAYOUT}/[^/]+|{rundir.RUNS}/[^/]+/"
    f"({re.escape(rundir.RESULT)}|{re.escape(rundir.ERROR)}|{re.escape(rundir.PROBE)}|{rundir.DARSHAN}/{re.escape(setup.VERDICT)})"
)
_LONG = re.compile(
    f"{rundir.RUNS}/[^/]+/({re.escape(rundir.TIMELINE)}|{rundir.DARSHAN}/({rundir.WORKERS}/)?[^/]+[.]darshan)"
)


class Tail(NamedTuple):
    """Last lines of a job's output. file: name of the file that holds them: job.err, or job.out if job.err is empty."""

    file: str
    lines: tuple[str, ...]


class RunOutcome(NamedTuple):
    """Outcome of a planned run. A run that the job did not reach has neither a result nor an error. verdict: verdict on
    the Darshan log of the run; None if the run was made without Darshan, or if the job ended before the log was
    checked. probe: rates of plain reads before the run; None if there was no probe.
    """

    run: Run
    result: run_result.Result | None
    error: run_result.RunError | None
    verdict: LogVerdict | None
    probe: StorageProbe | None = None

    @property
    def name(self) -> str:
        return rundir.run_name(self.run.number, self.run.name)

    @property
    def storage(self) -> Storage | None:
        """Whether the bytes that the run read came from storage or from memory. If Darshan counted the bytes, its count
        is used. None if the run has no result.
        """
        counts = None if self.verdict is None else self.verdict.bytes
        if self.result is None:
            return None
        return judge(self.run, self.result, None if counts is None else counts.darshan, self.probe)


class JobOutcome(NamedTuple):
    """Outcome of a job and its runs. directory: directory of the job; None if the job was read from its archive.
    archive: path of the archive; None if the job has not been collected. layouts: layouts of the datasets as read back
    from the file system. environment: environment of the ranks; empty if the ranks have not started yet. study: content
    of the copy of study.json that the job has; None if the job belongs to no study. exit_status: exit status of the job
    script; None if the script did not reach its end. tail: last lines of the job's output; None if there is no output.
    setup_failures: lines of site.setup that failed.
    """

    plan: Plan
    job: job_record.Job
    directory: Path | None
    archive: Path | None
    runs: list[RunOutcome]
    layouts: list[Record]
    environment: dict[str, Any]
    study: bytes | None = None
    exit_status: int | None = None
    tail: Tail | None = None
    setup_failures: tuple[SetupFailure, ...] = ()


def load_all(paths: Sequence[Path]) -> list[JobOutcome]:
    """Load several jobs from their directories or archives. Query each batch system only once, for the states of all
    its jobs.
    """
    looks = {look.directory: look for look in job_state.refresh_all([path for path in paths if path.is_dir()])}
    return [load(path, looks.get(path)) for path in paths]


def load(path: Path, look: job_state.JobSnapshot | None = None) -> JobOutcome:
    """Load a job from its directory or its archive. look: current state of a job that has a directory; None to
    determine the state now. A job that is loaded from an archive has the state that is recorded in the archive.
    """
    if path.is_dir():
        with job_record.naming_archive(path):
            return _of_directory(path, look)
    if not path.exists():
        raise job_record.unknown(path)
    if not path.name.endswith(archive.SUFFIX):
        path_kinds.refuse_other(path, "a job, a study, or the archive of a job (dlio-hpc status lists them)")
    return load_archive(path)


def _of_directory(path: Path, look: job_state.JobSnapshot | None) -> JobOutcome:
    """Load a job from its directory. look: as for load()."""
    if look is None:
        (look,) = job_state.refresh_all([path])
    content = {name: job_record.content(path, name) for name in (rundir.PLAN, rundir.JOB)}
    small = (f"{rundir.RUNS}/*/*.json", f"{rundir.RUNS}/*/{rundir.DARSHAN}/*.json", f"{rundir.LAYOUT}/*.yaml")
    others = (rundir.ENVIRONMENT, rundir.STUDY, rundir.EXIT_STATUS, rundir.SETUP_FAILURES)
    for file in (file for pattern in (*others, *small) for file in rundir.matching(path, pattern)):
        with about(file):
            content[file.relative_to(path).as_posix()] = safe_folders.content(file, rundir.LARGEST_DOCUMENT)
    for name in (rundir.STDERR, rundir.STDOUT):
        if (end := _end_of(path / name)) is not None:
            content[name] = end
    outcome = _outcome(content | _spared(path, content), str(path))
    target = archive_folder(outcome.plan, path) / (outcome.job.job + archive.SUFFIX)
    outcome = outcome._replace(job=look.job, directory=path.resolve())
    outcome = outcome._replace(runs=_without_changes(outcome.runs, path, content, target))
    return outcome._replace(archive=target) if target.exists() else outcome


def _without_changes(runs: list[RunOutcome], path: Path, content: dict[str, bytes], target: Path) -> list[RunOutcome]:
    """Return the runs. If files of a run differ from the collected files and the run was not repeated, the run has a
    fault. path: directory of the job. content: files of the directory, by name. target: the archive.
    """
    collected, where = _collected(path, target)
    of_runs = {name: _digest(file) for name, file in content.items() if name in collected}
    changed = archive.altered(path, of_runs, collected)
    return [_with_change(run, changed, where) for run in runs]


def _collected(path: Path, target: Path) -> tuple[dict[str, str], str]:
    """Return two values. The first is the SHA-256 of each file of a job at the time when the job was collected, by
    name. The second is a phrase that says where the original files are. The digests are read from the archive or, if
    there is no archive, from the manifest in the directory of the job.
    """
    if target.exists():
        try:
            return archive.listed(target), "its archive has the original"
        except DlioError:
            return archive.recorded(path), f"{target}, which has the original, is damaged"
    return archive.recorded(path), f"{target}, which contained the original, is missing"


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _with_change(run: RunOutcome, changed: Sequence[str], where: str) -> RunOutcome:
    """Return a run with a fault for each of its files that was changed. changed: names of files of the job. where:
    phrase that says where the original files are.
    """
    names = [name for name in changed if name.startswith(f"{rundir.RUNS}/{run.name}/")]
    if run.result is None or not names:
        return run
    faults = [f"{name} was changed after the job was collected; {where}" for name in names]
    return run._replace(result=structs.replace(run.result, faults=[*run.result.faults, *faults]))


def _spared(path: Path, content: dict[str, bytes]) -> dict[str, bytes]:
    """Return the results and the exit status that the job wrote to the spare folder of this node, because the directory
    of the job was full. content: files of the job's directory, by name.
    """
    plan = serialization.decode(content[rundir.PLAN], Plan, f"{path}/{rundir.PLAN}", InvalidRun)
    names = rundir.spare_names((run.number, run.name) for run in plan.runs)
    kept = {name: rundir.spare_content(path, name) for name in names if name not in content}
    return {name: file for name, file in kept.items() if file is not None}


def load_archive(path: Path) -> JobOutcome:
    """Load a job from its archive and verify every byte. Raise InvalidRun if the file is not the archive of a job, or
    is corrupted.
    """
    content = archive.sound(path, lambda name: bool(_WANTED.fullmatch(name)))
    if rundir.PLAN not in content or rundir.JOB not in content:
        raise InvalidRun(f"{path} contains no {rundir.PLAN} and {rundir.JOB}: not a job's archive")
    return _outcome(content, str(path))._replace(archive=path.resolve())


def _outcome(content: dict[str, bytes], source: str) -> JobOutcome:
    plan = serialization.decode(content[rundir.PLAN], Plan, f"{source}/{rundir.PLAN}", InvalidRun)
    record = job_record.decode(content[rundir.JOB], f"{source}/{rundir.JOB}")
    if record.job != plan.job:
        raise InvalidRun(f"{source}: {rundir.PLAN} is of job {plan.job}, but {rundir.JOB} of job {record.job}")
    digest = _digest(content[rundir.PLAN])
    runs = []
    for run in plan.runs:
        folder = f"{rundir.RUNS}/{rundir.run_name(run.number, run.name)}"
        judged = f"{rundir.DARSHAN}/{setup.VERDICT}"
        names = (rundir.RESULT, rundir.ERROR, judged, rundir.PROBE)
        result, error, verdict, probe = (content.get(f"{folder}/{name}") for name in names)
        runs.append(
            RunOutcome(
                run,
                _of_plan(run_result.decode(result, f"{source}/{folder}/{rundir.RESULT}"), run, digest)
                if result
                else None,
                run_result.decode_error(error, f"{source}/{folder}/{rundir.ERROR}") if error else None,
                verdict_file.decode(verdict, f"{source}/{folder}/{judged}") if verdict else None,
                probe_result.decode(probe, f"{source}/{folder}/{rundir.PROBE}") if probe else None,
            )
        )
    after = [f"{rundir.LAYOUT}/{rundir.layout_name(rundir.AFTER, place)}" for place in range(len(plan.datasets))]
    layouts = [read(content[name], f"{source}/{name}") for name in after if name in content]
    environment = serialization.decode(
        content.get(rundir.ENVIRONMENT, b"{}"), dict[str, Any], f"{source}/{rundir.ENVIRONMENT}", InvalidRun
    )
    return JobOutcome(
        plan, record, None, None, runs, layouts, environment, content.get(rundir.STUDY),
        _exit_status(content.get(rundir.EXIT_STATUS)), _tail(content),
        setup_failures.decode(content.get(rundir.SETUP_FAILURES, b"")),
    )  # fmt: skip


def _of_plan(result: run_result.Result, run: Run, digest: str) -> run_result.Result:
    """Return the result with its faults. There is a fault for each field that does not match this run of the plan.
    digest: SHA-256 of the job's plan.json.
    """
    name, its = rundir.run_name(run.number, run.name), f"its {rundir.RESULT}"
    signs = {
        f"{its} was made from another {rundir.PLAN}, whose SHA-256 begins with {result.plan_sha256[:12]}": (
            result.plan_sha256 not in ("", digest)
        ),
        f"{its} is from the run {result.run}": result.run != name,
        f"{its} is from a run of kind {result.kind}": result.kind != run.kind,
        f"{its} has no summary": result.summary is None and result.kind != "generate",
    }
    return structs.replace(result, faults=[*result.faults, *(sign for sign, is_seen in signs.items() if is_seen)])


def _end_of(path: Path) -> bytes | None:
    """Return the last 64 KiB of a file, which may be large. Return None if it is not a file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe would block
            return None
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise unreadable(fault, path) from fault


def _exit_status(content: bytes | None) -> int | None:
    try:
        return None if content is None else int(content)
    except ValueError:
        return None


def _tail(content: dict[str, bytes]) -> Tail | None:
    """Return the last lines of job.err. If job.err is empty, return the last lines of job.out. Return None if both are
    empty.
    """
    for name in (rundir.STDERR, rundir.STDOUT):
        if lines := _last_lines(content.get(name, b"")):
            return Tail(name, lines)
    return None


def _last_lines(content: bytes) -> tuple[str, ...]:
    """Return the last ten lines of the text that are not blank. Cut each line to 240 characters, and replace
    unprintable characters with blanks.
    """
    lines = content[-_TAIL_BYTES:].decode(errors="backslashreplace").splitlines()
    printable = ("".join(letter if letter.isprintable() else " " for letter in line).rstrip() for line in lines)
    return tuple(line[:_TAIL_LETTERS] for line in [line for line in printable if line][-_TAIL_LINES:])


class RunFiles(NamedTuple):
    """Timeline and Darshan log of a run. timeline: content of the file timeline.h5 of the run; None if the run has no
    timeline. log: path of the Darshan log of the run; None if the run has no log.
    """

    run: RunOutcome
    timeline: bytes | None
    log: Path | None


@contextmanager
def evidence(path: Path, outcome: JobOutcome) -> Iterator[list[RunFiles]]:
    """Yield, for a `with` block, the timelines and Darshan logs of all runs that have a result. path: directory or
    archive of the job. Darshan logs in an archive are unpacked into a temporary directory, which is removed at the end
    of the block.
    """
    runs = [run for run in outcome.runs if run.result is not None]
    if path.is_dir():
        folders = [(run, path / rundir.RUNS / run.name) for run in runs]
        yield [RunFiles(run, _timeline(folder / rundir.TIMELINE), _log(run, folder)) for run, folder in folders]
        return
    with tempfile.TemporaryDirectory(prefix="dlio-hpc-") as folder:
        content = archive.read(path, lambda name: bool(_LONG.fullmatch(name)), archive.LARGEST_RECORDING)
        records = []
        for run in runs:
            mine = f"{rundir.RUNS}/{run.name}"
            logs = {name: content[name] for name in sorted(content) if name.startswith(f"{mine}/{rundir.DARSHAN}/")}
            target = _unpacked(run, logs, Path(folder, run.name))
            timeline = content.get(f"{mine}/{rundir.TIMELINE}")
            if timeline is not None:
                _check(timeline, f"{path}/{mine}/{rundir.TIMELINE}")
            records.append(RunFiles(run, timeline, target))
        yield records


def _unpacked(run: RunOutcome, logs: dict[str, bytes], folder: Path) -> Path | None:
    """Write the Darshan log of a run and the logs of its worker processes to a new folder. Return the path of the log,
    or None if the run has none. logs: content of all logs of the run in the archive, by name.
    """
    names = [name for name in logs if Path(name).parent.name != rundir.WORKERS]
    log = next((name for name in reversed(names) if _is_of(run, name)), None)
    if log is None:
        return None
    for name in (log, *(name for name in logs if name not in names)):
        target = folder / Path(name).relative_to(Path(log).parent)
        with about(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(logs[name])
    return folder / Path(log).name


def _log(run: RunOutcome, folder: Path) -> Path | None:
    logs = sorted((folder / rundir.DARSHAN).glob("*.darshan"), reverse=True)
    return next((path for path in logs if _is_of(run, path.name)), None)


def _is_of(run: RunOutcome, name: str) -> bool:
    """Return whether `name` is the file name of the Darshan log that was checked for the run. If no log was checked for
    the run, return True.
    """
    return run.verdict is None or Path(name).name == run.verdict.log


def _timeline(path: Path) -> bytes | None:
    """Read and check a timeline.h5. Return its content, or None if the file does not exist."""
    if not path.exists():
        return None
    with about(path):
        content = path.read_bytes()
    _check(content, str(path))
    return content


def without_log(outcome: JobOutcome, run: RunOutcome) -> str | None:
    """Return the reason why a run has no usable Darshan log. Return None if the run has one."""
    if run.verdict is not None:
        return run.verdict.why_not
    if not run.run.darshan:
        site = outcome.plan.site
        if site.darshan is None:
            return f"site {site.name} has no libdarshan in its profile"
        hidden = darshan_needs.hidden(site, run.run.workload, outcome.plan.ranks)
        return "Darshan was not used in this run" if hidden is None else f"{hidden[0]}; use {hidden[1]}"
    return "the job ended before its log was checked"


def is_cut_short(outcome: JobOutcome) -> bool:
    """Return whether the job has ended although some of its runs have no result."""
    return outcome.job.ended and any(run.result is None for run in outcome.runs)


# A folder with less free space is full: a small result does not fit.
_FULL_BYTES = 64 << 10
_INFRASTRUCTURE: frozenset[State] = frozenset({"node_fail", "out_of_memory"})
_INCOMPLETE: frozenset[State] = frozenset({"timeout", "cancelled", "lost"})


def fault(outcome: JobOutcome) -> DlioError | None:
    """Return the reason why the numbers of the job must not be used, as an error. Commands exit with the exit code of
    this error. Return None if the job has no fault so far.
    """
    return _recorded_fault(outcome) or _ended_fault(outcome) or _unrecorded_fault(outcome)


def unfinished(outcome: JobOutcome) -> DlioError | None:
    """Return an error if the job has not ended. Return None if it has ended."""
    return None if outcome.job.ended else _not_reached(outcome.job)


def _recorded_fault(outcome: JobOutcome) -> DlioError | None:
    """Return the first fault that the job's own files record. Return None if they record no fault."""
    for layout in outcome.layouts:
        if layout.faults:
            return InvalidRun(f"the layout is not the requested one: {'; '.join(layout.faults)}")
    faults = (_own_fault(run) or _suspended(outcome.job, run) for run in outcome.runs)
    return next((fault for fault in faults if fault is not None), None)


def _suspended(record: job_record.Job, run: RunOutcome) -> DlioError | None:
    """Return an error if the batch system was observed to suspend the job during a measured run, otherwise None."""
    if run.run.kind != "measure" or run.result is None:
        return None
    started, ended = units.timestamp(run.result.started), units.timestamp(run.result.ended)
    for sighting, end in zip(record.states, [*record.states[1:], None], strict=True):
        resumed = units.timestamp(end.time) if end is not None else ended
        if sighting.suspended and units.timestamp(sighting.time) <= ended and resumed >= started:
            return Incomplete(
                f"{run.name} is not a measurement: the batch system suspended the job ({sighting.text}, seen at "
                f"{sighting.time}); submit it again"
            )
    return None


def _own_fault(run: RunOutcome) -> DlioError | None:
    """Return the fault that the run's own files record: its error, its result, or the verdict on its Darshan log.
    Return None if these files record no fault.
    """
    if run.error is not None:
        kind = kind_of(run.error.exit_code)
        if kind is Incomplete:
            return Incomplete(f"{run.name}: {run.error.message}")
        return kind(f"{run.name} failed on rank {run.error.rank} ({run.error.host}): {run.error.message}")
    if run.result is not None and run.result.faults:
        return InvalidRun(f"{run.name} is invalid: {'; '.join(run.result.faults)}")
    if run.verdict is not None and run.verdict.differences:
        return InvalidRun(f"{run.name} is invalid: {'; '.join(run.verdict.differences)}")
    if (
        run.run.kind == "measure"
        and run.result is not None
        and (stop := disturbance_check.stop(run.result)) is not None
    ):
        return Incomplete(f"{run.name} is not a measurement: {stop}; submit it again")
    return None


def notes(outcome: JobOutcome) -> list[str]:
    """Return the notes of the plan, the messages of the batch system when it accepted the job, and notes on lines of
    site.setup that failed.
    """
    failed = [failure.text() for failure in outcome.setup_failures]
    return [*outcome.plan.notes, *job_record.remarks(outcome.job), *failed]


def run_fault(outcome: JobOutcome, run: RunOutcome, must_be_laid_out: bool = False) -> DlioError | None:
    """Return the reason why a run is not a valid measurement, or why it did not generate its dataset. Return None if
    the run is valid. Faults of other runs of the job are ignored. must_be_laid_out: whether a run is also invalid if it
    requests a Lustre layout and its dataset is on a file system without layouts.
    """
    layout = next((layout for layout in outcome.layouts if layout.path == run.run.dataset), None)
    if layout is not None and (why := _layout_fault(layout, must_be_laid_out)) is not None:
        return InvalidRun(why)
    if (fault := _own_fault(run) or _suspended(outcome.job, run)) is not None:
        return fault
    if run.result is not None and run.run.kind == "generate":
        return None
    if run.result is None or run.result.summary is None:
        return _bug(outcome) or _not_reached(outcome.job)
    if (done := run_result.unfinished(run.result.summary)) is not None:
        return Incomplete(f"job {outcome.job.job} stopped close to its time limit during this run: {done}")
    return None


def _bug(outcome: JobOutcome) -> DlioError | None:
    """Return an error if the job ended because of a bug in dlio-hpc. Return None otherwise."""
    if outcome.exit_status != Unexpected.exit_code:
        return None
    return Unexpected(f"job {outcome.job.job} ended because of a bug in dlio-hpc; {_where(outcome)}")


def _not_reached(record: job_record.Job) -> DlioError:
    if record.ended:
        kind, message = _ENDED[record.state]
        return kind(f"job {record.job} {message}")
    if record.batch_id is None:
        return Incomplete(f"job {record.job} was never submitted to the batch system")
    return Incomplete(f"job {record.job} is {record.described()}")


# Exit codes of a script that ended at its time limit, or because the job was cancelled.
_STOPPED = (124, 130, 137, 143)

_ENDED: dict[State, tuple[type[DlioError], str]] = {
    "completed": (InvalidRun, "completed without a result of this run"),
    "failed": (InfrastructureError, "failed before this run"),
    "timeout": (Incomplete, "stopped close to its time limit before this run"),
    "cancelled": (Incomplete, "was cancelled before this run"),
    "node_fail": (InfrastructureError, "lost a node before this run"),
    "out_of_memory": (InfrastructureError, "ran out of memory before this run"),
    "lost": (Incomplete, "was lost before this run"),
}


def _layout_fault(layout: Record, must_be_laid_out: bool) -> str | None:
    if layout.faults:
        return f"the layout is not the requested one: {'; '.join(layout.faults)}"
    if must_be_laid_out and layout.asked is not None and not layout.file_system.is_lustre:
        return f"the layout was not set: {layout.path} is on {layout.file_system.kind}, not Lustre"
    return None


def _ended_fault(outcome: JobOutcome) -> DlioError | None:
    """Return the fault that follows from the state in which the job ended. Return None if the state is not a fault, or
    if the job has not ended.
    """
    state = outcome.job.state
    if state == "completed" and (silent := [run.name for run in outcome.runs if run.result is None]):
        return InvalidRun(
            f"job {outcome.job.job} completed, but {', '.join(silent)} left no result. The launcher may not have "
            f"started the ranks; {_where(outcome)}"
        )
    if state in _INCOMPLETE:
        reason = _reason(outcome) if state == "lost" else ""
        return Incomplete(f"job {outcome.job.job} ended as {outcome.job.described()}; {_kept(outcome)}{reason}")
    if state == "failed" and outcome.job.batch_id is None and outcome.exit_status is None:
        return ConfigError(f"job {outcome.job.job} was not accepted: {outcome.job.states[-1].text}")
    if (bug := _bug(outcome)) is not None:
        return bug
    if state == "failed" or state in _INFRASTRUCTURE:
        return InfrastructureError(f"job {outcome.job.job} ended as {outcome.job.described()}{_reason(outcome)}")
    return None


def _unrecorded_fault(outcome: JobOutcome) -> DlioError | None:
    """Return a fault that the state of the job does not show: a run stopped before its end, or the script ended with an
    exit code that could not be recorded, because the disk was full. Return None if there is none.
    """
    for run in outcome.runs:
        summary = run.result.summary if run.result is not None else None
        if summary is not None and (done := run_result.unfinished(summary)) is not None:
            return Incomplete(f"job {outcome.job.job} stopped close to its time limit during {run.name}: {done}")
    code = outcome.exit_status
    if outcome.job.ended or not code:
        return None
    kind = Incomplete if code in _STOPPED else kind_of(code)
    return kind(f"the script of job {outcome.job.job} ended with exit code {code}{_reason(outcome)}")


def _kept(outcome: JobOutcome) -> str:
    """Return a clause that says whether an incomplete job has results."""
    results = [run.result for run in outcome.runs if run.result is not None]
    if any(result.epochs or result.summary is not None or result.generated is not None for result in results):
        return "its results so far are kept"
    return "it has no results"


def _reason(outcome: JobOutcome) -> str:
    """Return a clause on a job that was lost or failed: the last line of job.err, whether its folder is full, setup
    lines that failed, and where its output is.
    """
    full, directory = "", outcome.directory
    if directory is not None and filesystem.free(directory) < _FULL_BYTES:
        kept = f"$TMPDIR/{rundir.spare(directory).parent.name}/{directory.name}"
        full = f"; {directory.parent} is full, so its results may be in {kept} of its first node"
    is_silent = outcome.job.state == "lost" and outcome.tail is None
    failed = "".join(f"; {failure.text()}" for failure in outcome.setup_failures)
    if is_silent:
        return f"{full}{failed}"
    return f"{_last_words(outcome)}{_lost_map(outcome)}{full}{failed}; {_where(outcome)}"


def _lost_map(outcome: JobOutcome) -> str:
    """Return a clause on a mapped file that was lost: the kernel ends the rank with signal 7 (SIGBUS)."""
    lines = () if outcome.tail is None else outcome.tail.lines
    is_mapped = any(run.run.workload.reader.mapped for run in outcome.runs)
    is_ended = any("Bus error" in line or "signal 7" in line for line in lines)
    return "; a file that was mapped was cut meanwhile, or cannot be read" if is_mapped and is_ended else ""


def _last_words(outcome: JobOutcome) -> str:
    """Return a clause with the line of job.err that tells most about the end of the job. Return an empty text if there
    is none, or if the state of the job quotes it already.
    """
    if outcome.tail is None or outcome.tail.file != rundir.STDERR:
        return ""
    line = job_output.telling_line(outcome.tail.lines)
    return "" if line in outcome.job.described() else f": {line}"


def _where(outcome: JobOutcome) -> str:
    """Return a phrase that names the output files of the job."""
    if outcome.tail is None:
        return f"its {rundir.STDERR} and {rundir.STDOUT} are empty or missing"
    files = f"{rundir.STDERR} and {rundir.STDOUT}" if outcome.tail.file == rundir.STDERR else outcome.tail.file
    return f"see {files} in {outcome.directory or 'its archive'}"


def _check(timeline: bytes, source: str) -> None:
    """Raise InvalidRun if the bytes are not a valid timeline.h5."""
    from dlio_hpc.analysis import timeline_schema  # imports NumPy and h5py, which load slowly

    timeline_schema.check(timeline, source)
