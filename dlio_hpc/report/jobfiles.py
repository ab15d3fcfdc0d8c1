"""What a job left behind, read from its directory or from its archive alike."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from dlio_hpc import archive, document, results, rundir
from dlio_hpc.batch import job, state
from dlio_hpc.batch.schedulers import State
from dlio_hpc.errors import ConfigError, DlioError, Incomplete, InfrastructureError, InvalidRun
from dlio_hpc.lustre.record import Record, read
from dlio_hpc.plan import Plan, Run

_WANTED = re.compile(
    f"{re.escape(rundir.PLAN)}|{re.escape(rundir.JOB)}|{rundir.LAYOUT}/[^/]+|{rundir.RUNS}/[^/]+/"
    f"({re.escape(rundir.RESULT)}|{re.escape(rundir.ERROR)})"
)


class RunOutcome(NamedTuple):
    """A planned run and what came of it; neither result nor error: it was not reached."""

    run: Run
    result: results.Result | None
    error: results.RunError | None

    @property
    def name(self) -> str:
        return rundir.run_name(self.run.number, self.run.name)


class JobOutcome(NamedTuple):
    """A job and its runs. `archive` None: it has not been collected. `directory` None: read from the archive alone.
    `layout`: how the dataset lies, None where that was not looked at.
    """

    plan: Plan
    job: job.Job
    directory: Path | None
    archive: Path | None
    runs: list[RunOutcome]
    layout: Record | None


def load(path: Path) -> JobOutcome:
    """The job in a directory, whose state is asked for anew, or in an archive."""
    if path.is_dir():
        (look,) = state.refresh_all([path])
        content = {name: job.content(path, name) for name in (rundir.PLAN, rundir.JOB)}
        for file in (*path.glob(f"{rundir.RUNS}/*/*.json"), *path.glob(f"{rundir.LAYOUT}/*.yaml")):
            content[file.relative_to(path).as_posix()] = file.read_bytes()
        outcome = _outcome(content, str(path))
        target = Path(outcome.plan.archive, outcome.job.job + archive.SUFFIX)
        return outcome._replace(job=look.job, directory=path.resolve(), archive=target if target.exists() else None)
    if not path.exists():
        raise ConfigError(f"{path} is not there; give a job's directory or archive")
    if broken := archive.faults(path):
        raise InvalidRun(f"{path} is broken: {broken[0]}; see dlio-hpc archive verify")
    content = archive.read(path, lambda name: bool(_WANTED.fullmatch(name)))
    if rundir.PLAN not in content or rundir.JOB not in content:
        raise InvalidRun(f"{path} holds no {rundir.PLAN} and {rundir.JOB}; it is no job's archive")
    return _outcome(content, str(path))._replace(archive=path.resolve())


def _outcome(content: dict[str, bytes], source: str) -> JobOutcome:
    plan = document.decode(content[rundir.PLAN], Plan, f"{source}/{rundir.PLAN}")
    record = document.decode(content[rundir.JOB], job.Job, f"{source}/{rundir.JOB}")
    runs = []
    for run in plan.runs:
        folder = f"{rundir.RUNS}/{rundir.run_name(run.number, run.name)}"
        result, error = (content.get(f"{folder}/{name}") for name in (rundir.RESULT, rundir.ERROR))
        runs.append(
            RunOutcome(
                run,
                results.decode(result, f"{source}/{folder}/{rundir.RESULT}") if result else None,
                results.decode_error(error, f"{source}/{folder}/{rundir.ERROR}") if error else None,
            )
        )
    after = f"{rundir.LAYOUT}/{rundir.AFTER}"
    layout = read(content[after], f"{source}/{after}") if after in content else None
    return JobOutcome(plan, record, None, None, runs, layout)


def as_document(outcome: JobOutcome) -> dict[str, Any]:
    """The job as the --json of dlio-submit and dlio-hpc report shows it."""
    return {
        "job": outcome.job.job,
        "batch_id": outcome.job.batch_id,
        "state": outcome.job.state,
        "directory": str(outcome.directory) if outcome.directory else None,
        "archive": str(outcome.archive) if outcome.archive else None,
        "runs": [
            {
                "name": run.name,
                "kind": run.run.kind,
                "result": msgspec.to_builtins(run.result),
                **({"error": msgspec.to_builtins(run.error)} if run.error else {}),
            }
            for run in outcome.runs
            if run.result or run.error
        ],
    }


_INFRASTRUCTURE: frozenset[State] = frozenset({"node_fail", "out_of_memory"})
_INCOMPLETE: frozenset[State] = frozenset({"timeout", "cancelled", "lost"})


def fault(outcome: JobOutcome) -> DlioError | None:
    """Why the job's figures must not be used, of the class whose exit code says so; None for a good or a live job."""
    return _found_fault(outcome) or _ended_fault(outcome)


def _found_fault(outcome: JobOutcome) -> DlioError | None:
    """What the job's own files tell."""
    if outcome.layout is not None and outcome.layout.faults:
        return InvalidRun(f"the layout is not as asked: {'; '.join(outcome.layout.faults)}")
    for run in outcome.runs:
        if run.error is not None:
            kinds: dict[int, type[DlioError]] = {2: ConfigError, 3: InvalidRun, 7: Incomplete}
            kind = kinds.get(run.error.exit_code, InfrastructureError)
            return kind(f"{run.name} failed on rank {run.error.rank} ({run.error.host}): {run.error.message}")
        if run.result is not None and run.result.faults:
            return InvalidRun(f"{run.name} is invalid: {'; '.join(run.result.faults)}")
    return None


def _ended_fault(outcome: JobOutcome) -> DlioError | None:
    """What its state tells."""
    state = outcome.job.state
    if state == "completed" and (silent := [run.name for run in outcome.runs if run.result is None]):
        return InvalidRun(
            f"job {outcome.job.job} ended well but {', '.join(silent)} left no result: did the launcher start "
            f"the ranks? See {rundir.STDOUT} and {rundir.STDERR}"
        )
    if state in _INCOMPLETE:
        return Incomplete(f"job {outcome.job.job} ended as {state}; what it had done so far is kept")
    if state == "failed" and outcome.job.batch_id is None:
        return ConfigError(f"job {outcome.job.job} was not taken: {outcome.job.states[-1].words}")
    if state == "failed" or state in _INFRASTRUCTURE:
        where = outcome.directory or "its archive"
        return InfrastructureError(f"job {outcome.job.job} ended as {state}; see {rundir.STDERR} in {where}")
    return None
