"""What a job left behind, read from its directory or from its archive alike."""

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dlio_hpc import archive, document, folders, results, rundir
from dlio_hpc.analysis.storage import Storage, judge
from dlio_hpc.batch import job, state
from dlio_hpc.batch.schedulers import State
from dlio_hpc.darshan import preload
from dlio_hpc.darshan import verdict as verdicts
from dlio_hpc.darshan.verdict import Verdict
from dlio_hpc.errors import (
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
from dlio_hpc.lustre.record import Record, read
from dlio_hpc.plan import Plan, Run, archive_folder

# Files of a job that are read besides those of its runs. Limits of the tail of job.err: lines, bytes, letters of a
# line.
_PLAIN = (rundir.PLAN, rundir.JOB, rundir.STUDY, rundir.ENVIRONMENT, rundir.EXIT_STATUS, rundir.STDERR, rundir.STDOUT)
_TAIL_LINES, _TAIL_BYTES, _TAIL_LETTERS = 10, 1 << 16, 240
_WANTED = re.compile(
    f"{'|'.join(map(re.escape, _PLAIN))}|"
    f"{rundir.LAYOUT}/[^/]+|{rundir.RUNS}/[^/]+/"
    f"({re.escape(rundir.RESULT)}|{re.escape(rundir.ERROR)}|{rundir.DARSHAN}/{re.escape(preload.VERDICT)})"
)
_LONG = re.compile(f"{rundir.RUNS}/[^/]+/({re.escape(rundir.TIMELINE)}|{rundir.DARSHAN}/[^/]+[.]darshan)")


class Tail(NamedTuple):
    """The last lines of what a job printed. file: job.err, or job.out where that is empty."""

    file: str
    lines: tuple[str, ...]


class RunOutcome(NamedTuple):
    """A planned run and what came of it; neither result nor error: it was not reached. `verdict`: on its Darshan log,
    None where it had no Darshan, or the job ended before.
    """

    run: Run
    result: results.Result | None
    error: results.RunError | None
    verdict: Verdict | None

    @property
    def name(self) -> str:
        return rundir.run_name(self.run.number, self.run.name)

    @property
    def storage(self) -> Storage | None:
        """Was it the storage? With Darshan's count beside the core's; None where the run has no result."""
        seen = None if self.verdict is None else self.verdict.bytes
        return None if self.result is None else judge(self.run, self.result, None if seen is None else seen.darshan)


class JobOutcome(NamedTuple):
    """A job and its runs. `archive` None: it has not been collected. `directory` None: read from the archive alone.
    `layouts`: how its datasets lie, as far as that was looked at. `environment`: what the ranks ran on, empty before
    they did. `study`: its copy of the study that it is a part of, as it was written; None where it has none.
    `exit_status`: of the job script; None where it did not reach its end. `tail`: the last lines that it printed; None
    where it printed nothing.
    """

    plan: Plan
    job: job.Job
    directory: Path | None
    archive: Path | None
    runs: list[RunOutcome]
    layouts: list[Record]
    environment: dict[str, Any]
    study: bytes | None = None
    exit_status: int | None = None
    tail: Tail | None = None


def load_all(paths: Sequence[Path]) -> list[JobOutcome]:
    """As load() of each, their batch systems asked once for all of them."""
    looks = {look.directory: look for look in state.refresh_all([path for path in paths if path.is_dir()])}
    return [load(path, looks.get(path)) for path in paths]


def load(path: Path, look: state.Look | None = None) -> JobOutcome:
    """The job in a directory, whose state is asked for anew unless it is given, or in an archive."""
    if path.is_dir():
        if look is None:
            (look,) = state.refresh_all([path])
        content = {name: job.content(path, name) for name in (rundir.PLAN, rundir.JOB)}
        small = (f"{rundir.RUNS}/*/*.json", f"{rundir.RUNS}/*/{rundir.DARSHAN}/*.json", f"{rundir.LAYOUT}/*.yaml")
        others = (rundir.ENVIRONMENT, rundir.STUDY, rundir.EXIT_STATUS)
        for file in (file for pattern in (*others, *small) for file in rundir.matching(path, pattern)):
            with about(file):
                content[file.relative_to(path).as_posix()] = folders.content(file, rundir.LARGEST_DOCUMENT)
        for name in (rundir.STDERR, rundir.STDOUT):
            if (end := _end_of(path / name)) is not None:
                content[name] = end
        outcome = _outcome(content, str(path))
        target = archive_folder(outcome.plan, path) / (outcome.job.job + archive.SUFFIX)
        return outcome._replace(job=look.job, directory=path.resolve(), archive=target if target.exists() else None)
    if not path.exists():
        raise job.unknown(path)
    return load_archive(path)


def load_archive(path: Path) -> JobOutcome:
    """The job in an archive, every byte of which is verified; InvalidRun where it is none."""
    content = archive.sound(path, lambda name: bool(_WANTED.fullmatch(name)))
    if rundir.PLAN not in content or rundir.JOB not in content:
        raise InvalidRun(f"{path} holds no {rundir.PLAN} and {rundir.JOB}; it is no job's archive")
    return _outcome(content, str(path))._replace(archive=path.resolve())


def _outcome(content: dict[str, bytes], source: str) -> JobOutcome:
    plan = document.decode(content[rundir.PLAN], Plan, f"{source}/{rundir.PLAN}", InvalidRun)
    record = job.decode(content[rundir.JOB], f"{source}/{rundir.JOB}")
    runs = []
    for run in plan.runs:
        folder = f"{rundir.RUNS}/{rundir.run_name(run.number, run.name)}"
        judged = f"{rundir.DARSHAN}/{preload.VERDICT}"
        result, error, verdict = (content.get(f"{folder}/{name}") for name in (rundir.RESULT, rundir.ERROR, judged))
        runs.append(
            RunOutcome(
                run,
                results.decode(result, f"{source}/{folder}/{rundir.RESULT}") if result else None,
                results.decode_error(error, f"{source}/{folder}/{rundir.ERROR}") if error else None,
                verdicts.decode(verdict, f"{source}/{folder}/{judged}") if verdict else None,
            )
        )
    after = [f"{rundir.LAYOUT}/{rundir.layout_name(rundir.AFTER, place)}" for place in range(len(plan.datasets))]
    layouts = [read(content[name], f"{source}/{name}") for name in after if name in content]
    environment = document.decode(
        content.get(rundir.ENVIRONMENT, b"{}"), dict[str, Any], f"{source}/{rundir.ENVIRONMENT}", InvalidRun
    )
    return JobOutcome(
        plan, record, None, None, runs, layouts, environment, content.get(rundir.STUDY),
        _exit_status(content.get(rundir.EXIT_STATUS)), _tail(content),
    )  # fmt: skip


def _end_of(path: Path) -> bytes | None:
    """The last bytes of a file, which may be large; None where the file cannot be read."""
    try:
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
    """The last lines of job.err or, where it is empty, of job.out; None where both are."""
    for name in (rundir.STDERR, rundir.STDOUT):
        if lines := _last_lines(content.get(name, b"")):
            return Tail(name, lines)
    return None


def _last_lines(content: bytes) -> tuple[str, ...]:
    """The last lines that are not blank, cut to a readable length, without control characters."""
    lines = content[-_TAIL_BYTES:].decode(errors="backslashreplace").splitlines()
    printable = ("".join(letter if letter.isprintable() else " " for letter in line).rstrip() for line in lines)
    return tuple(line[:_TAIL_LETTERS] for line in [line for line in printable if line][-_TAIL_LINES:])


class Evidence(NamedTuple):
    """What a run recorded at length. timeline: the bytes of its timeline.h5. log: where its Darshan log lies."""

    run: RunOutcome
    timeline: bytes | None
    log: Path | None


@contextmanager
def evidence(path: Path, outcome: JobOutcome) -> Iterator[list[Evidence]]:
    """Of each run that has a result. Logs in an archive lie unpacked while the block lasts."""
    runs = [run for run in outcome.runs if run.result is not None]
    if path.is_dir():
        folders = [(run, path / rundir.RUNS / run.name) for run in runs]
        yield [Evidence(run, _timeline(folder / rundir.TIMELINE), _log(run, folder)) for run, folder in folders]
        return
    with tempfile.TemporaryDirectory(prefix="dlio-hpc-") as folder:
        content = archive.read(path, lambda name: bool(_LONG.fullmatch(name)), archive.LARGEST_RECORDING)
        found = []
        for run in runs:
            mine = f"{rundir.RUNS}/{run.name}"
            logs = sorted(name for name in content if name.startswith(f"{mine}/{rundir.DARSHAN}/"))
            log = next((name for name in reversed(logs) if _is_of(run, name)), None)
            where = None
            if log is not None:
                where = Path(folder, f"{run.name}-{Path(log).name}")
                with about(where):
                    where.write_bytes(content[log])
            timeline = content.get(f"{mine}/{rundir.TIMELINE}")
            if timeline is not None:
                _check(timeline, f"{path}/{mine}/{rundir.TIMELINE}")
            found.append(Evidence(run, timeline, where))
        yield found


def _log(run: RunOutcome, folder: Path) -> Path | None:
    logs = sorted((folder / rundir.DARSHAN).glob("*.darshan"), reverse=True)
    return next((path for path in logs if _is_of(run, path.name)), None)


def _is_of(run: RunOutcome, name: str) -> bool:
    """The log that was judged; any where the job had no time for that."""
    return run.verdict is None or Path(name).name == run.verdict.log


def _timeline(path: Path) -> bytes | None:
    """The bytes of a timeline.h5, which are sound; None where there is none."""
    if not path.exists():
        return None
    with about(path):
        content = path.read_bytes()
    _check(content, str(path))
    return content


def without_log(outcome: JobOutcome, run: RunOutcome) -> str | None:
    """Why a run has no Darshan log; None where it has one."""
    if run.verdict is not None:
        return run.verdict.why_not
    if not run.run.darshan:
        named = outcome.plan.site.darshan is not None
        return "left out of this run" if named else f"site {outcome.plan.site.name} names no libdarshan"
    return "the job ended before its log was judged"


def as_document(outcome: JobOutcome) -> dict[str, Any]:
    """The job as the --json of dlio-submit and dlio-hpc report shows it."""
    return {
        "job": outcome.job.job,
        "batch_id": outcome.job.batch_id,
        "state": outcome.job.state,
        "directory": str(outcome.directory) if outcome.directory else None,
        "archive": str(outcome.archive) if outcome.archive else None,
        "notes": list(outcome.plan.notes),
        "runs": [
            {
                "name": run.name,
                "kind": run.run.kind,
                "result": msgspec.to_builtins(run.result),
                **({"error": msgspec.to_builtins(run.error)} if run.error else {}),
                **({"darshan": msgspec.to_builtins(run.verdict)} if run.verdict else {}),
            }
            for run in outcome.runs
            if run.result or run.error
        ],
        **({_STREAMS[outcome.tail.file]: list(outcome.tail.lines)} if outcome.tail and is_cut_short(outcome) else {}),
    }


_STREAMS = {rundir.STDERR: "stderr", rundir.STDOUT: "stdout"}


def is_cut_short(outcome: JobOutcome) -> bool:
    """Return whether the job has ended and a run left no result."""
    return outcome.job.ended and any(run.result is None for run in outcome.runs)


_INFRASTRUCTURE: frozenset[State] = frozenset({"node_fail", "out_of_memory"})
_INCOMPLETE: frozenset[State] = frozenset({"timeout", "cancelled", "lost"})


def fault(outcome: JobOutcome) -> DlioError | None:
    """Why the job's figures must not be used, of the class whose exit code says so; None for a good or a live job."""
    return _found_fault(outcome) or _ended_fault(outcome)


def _found_fault(outcome: JobOutcome) -> DlioError | None:
    """What the job's own files tell."""
    for layout in outcome.layouts:
        if layout.faults:
            return InvalidRun(f"the layout is not as asked: {'; '.join(layout.faults)}")
    return next((fault for run in outcome.runs if (fault := _own_fault(run)) is not None), None)


def _own_fault(run: RunOutcome) -> DlioError | None:
    """What the run's own files tell."""
    if run.error is not None:
        kind = kind_of(run.error.exit_code)
        return kind(f"{run.name} failed on rank {run.error.rank} ({run.error.host}): {run.error.message}")
    if run.result is not None and run.result.faults:
        return InvalidRun(f"{run.name} is invalid: {'; '.join(run.result.faults)}")
    if run.verdict is not None and run.verdict.differences:
        return InvalidRun(f"{run.name} is invalid: {'; '.join(run.verdict.differences)}")
    return None


def run_fault(outcome: JobOutcome, run: RunOutcome, must_be_laid_out: bool = False) -> DlioError | None:
    """Why a run of the job is no measurement, whatever became of the others; None for a good one. must_be_laid_out: it
    is none either where the file system knows no layouts.
    """
    layout = next((each for each in outcome.layouts if each.path == run.run.dataset), None)
    if layout is not None and (why := _layout_fault(layout, must_be_laid_out)) is not None:
        return InvalidRun(why)
    if (fault := _own_fault(run)) is not None:
        return fault
    if run.result is None or run.result.summary is None:
        return _bug(outcome) or _not_reached(outcome.job)
    if run.result.summary.steps < run.result.summary.steps_planned:
        return Incomplete(f"job {outcome.job.job} came near its time limit in the middle of it")
    return None


def _bug(outcome: JobOutcome) -> DlioError | None:
    """The fault of a job that ended with a bug of dlio-hpc; None for any other job."""
    if outcome.exit_status != Unexpected.exit_code:
        return None
    return Unexpected(f"job {outcome.job.job} ended with a bug of dlio-hpc; {_where(outcome)}")


def _not_reached(record: job.Job) -> DlioError:
    if record.ended:
        kind, words = _ENDED[record.state]
        return kind(f"job {record.job} {words}")
    if record.batch_id is None:
        return Incomplete(f"job {record.job} was never handed to the batch system")
    return Incomplete(f"job {record.job} is {record.state}")


_ENDED: dict[State, tuple[type[DlioError], str]] = {
    "completed": (InvalidRun, "ended well without a result of it"),
    "failed": (InfrastructureError, "failed before it"),
    "timeout": (Incomplete, "came near its time limit before it"),
    "cancelled": (Incomplete, "was cancelled before it"),
    "node_fail": (InfrastructureError, "lost a node before it"),
    "out_of_memory": (InfrastructureError, "ran out of memory before it"),
    "lost": (Incomplete, "was lost before it"),
}


def _layout_fault(layout: Record, must_be_laid_out: bool) -> str | None:
    if layout.faults:
        return f"the layout is not as asked: {'; '.join(layout.faults)}"
    if must_be_laid_out and layout.asked is not None and not layout.file_system.is_lustre:
        return f"the layout was not set: {layout.path} is on {layout.file_system.kind}, not Lustre"
    return None


def _ended_fault(outcome: JobOutcome) -> DlioError | None:
    """What its state tells."""
    state = outcome.job.state
    if state == "completed" and (silent := [run.name for run in outcome.runs if run.result is None]):
        return InvalidRun(
            f"job {outcome.job.job} ended well but {', '.join(silent)} left no result: did the launcher start "
            f"the ranks? {_where(outcome)}"
        )
    if state in _INCOMPLETE:
        return Incomplete(f"job {outcome.job.job} ended as {state}; what it had done so far is kept{_reason(outcome)}")
    if state == "failed" and outcome.job.batch_id is None:
        return ConfigError(f"job {outcome.job.job} was not taken: {outcome.job.states[-1].words}")
    if (bug := _bug(outcome)) is not None:
        return bug
    if state == "failed" or state in _INFRASTRUCTURE:
        return InfrastructureError(f"job {outcome.job.job} ended as {state}; {_where(outcome)}")
    return None


def _reason(outcome: JobOutcome) -> str:
    """The end of a sentence that names the files of a lost job that may say why; empty for other jobs."""
    return f"; {_where(outcome)}" if outcome.job.state == "lost" and outcome.tail is not None else ""


def _where(outcome: JobOutcome) -> str:
    """The files of a job that may say more, in words."""
    if outcome.tail is None:
        return f"its {rundir.STDERR} and {rundir.STDOUT} are empty or missing"
    files = f"{rundir.STDERR} and {rundir.STDOUT}" if outcome.tail.file == rundir.STDERR else outcome.tail.file
    return f"see {files} in {outcome.directory or 'its archive'}"


def _check(timeline: bytes, source: str) -> None:
    """InvalidRun where the bytes are no timeline; needs NumPy and h5py, which take long to import."""
    from dlio_hpc.analysis import schema

    schema.check(timeline, source)
