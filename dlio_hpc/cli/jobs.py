"""dlio-hpc status, wait, cancel and collect."""

import shlex
import sys
from pathlib import Path
from typing import Any

import click

from dlio_hpc.base.errors import Incomplete
from dlio_hpc.base.units import counted
from dlio_hpc.batch import abandoned_files, job_record, job_state
from dlio_hpc.batch.cancel import cancel as cancel_one
from dlio_hpc.cli import console
from dlio_hpc.cli.report import collect_all, collect_one, finish, show_study
from dlio_hpc.cli.verbs import JSON, PAGER, RUNS, SETTINGS, argument, option
from dlio_hpc.documents.jobs import (
    CancelDocument,
    CancelledJob,
    CancelOutcome,
    CollectDocument,
    CollectedJob,
    CollectedStudy,
    JobState,
    StatusDocument,
    lacked_by,
)
from dlio_hpc.records import names, study_outcome


def on_jobs(function: Any) -> Any:
    """Add the arguments JOB and the option --runs."""
    function = option(
        "-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True,
        help="Folder of the job directories.",
    )(function)  # fmt: skip
    return argument("jobs", nargs=-1, metavar="[JOB]...")(function)


@click.command(context_settings=SETTINGS)
@on_jobs
@PAGER
@JSON
def status(jobs: tuple[str, ...], runs: Path, has_pager: bool, as_json: bool) -> int:
    """Show the state of each JOB (a directory, or the name of a job or study in RUNS), or of all jobs in RUNS. Jobs
    that need attention come first: failed, invalid, stalled and lost jobs, and jobs whose results are not archived.
    Newer jobs come before older ones.
    """
    looks, code = _refreshed(jobs, runs)
    for note in () if jobs else names.overlooked(runs, {look.directory for look in looks}):
        console.say(f"note: {note}")
    if as_json:
        console.print_json(StatusDocument([_state(look) for look in looks]))
        return code
    if looks:
        from dlio_hpc.reports import status_page

        console.printed(lambda file: status_page.show(looks, runs, file, sys.stdout), has_pager)
    if left := list(abandoned_files.rests(runs)):
        console.say(
            f"note: {len(left)} remains of killed submissions; remove them: dlio-hpc clean -o {shlex.quote(str(runs))}"
        )
    return code


def _state(look: job_state.JobSnapshot) -> JobState:
    newest = look.job.states[-1]
    return JobState(
        look.job.job, look.job.batch_id, newest.state, newest.time, newest.text or "", str(look.directory.absolute()),
        newest.since, look.advice, look.job.cluster, look.job.night, look.job.nights, look.job.begins,
    )  # fmt: skip


def _refreshed(jobs: tuple[str, ...], runs: Path) -> tuple[list[job_state.JobSnapshot], int]:
    """Determine the states of the jobs. Each batch system is queried once. If a job directory cannot be read, or a
    batch system does not answer, print this failure. Return two values: the states, and the exit code of the first
    failure, or 0 if there was no failure.
    """
    directories, code = sound(jobs, runs)
    looks = job_state.refresh_all(directories)
    faults = {str(look.fault): look.fault for look in looks if look.fault is not None}
    for message, fault in faults.items():
        console.say(f"dlio-hpc: {message}; states may be out of date")
        code = code or fault.exit_code
    return looks, code


@click.command(context_settings=SETTINGS)
@on_jobs
@JSON
@option("--quiet", is_flag=True, help="Print no progress and no notes on stderr.")
def wait(jobs: tuple[str, ...], runs: Path, as_json: bool, quiet: bool) -> int:
    """Watch each JOB or study until it has ended, then collect it and report its measurements."""
    directories, code = sound(jobs, runs)
    watched, stray = console.wait(directories, quiet)
    folders = names.studies(jobs, runs) if len(jobs) == 1 else []
    if folders:
        collected = collect_all(watched, quiet)
        return show_study(folders[0], as_json) or collected or code or stray
    return finish(watched, as_json, quiet) or code or stray


@click.command(context_settings=SETTINGS)
@on_jobs
@click.option("--all", "everything", is_flag=True, help="Cancel all jobs in RUNS that have not ended.")
@JSON
def cancel(jobs: tuple[str, ...], runs: Path, everything: bool, as_json: bool) -> int:
    """Ask the batch system to end each JOB. Completed runs of the job can still be collected."""
    if not jobs and not everything:
        raise click.UsageError("give the jobs to cancel, or --all")
    if jobs:
        directories, code = _directories(jobs, runs), 0
    else:
        looks, code = _refreshed(jobs, runs)
        directories = [look.directory for look in looks if not look.job.ended]
    # The last job comes first, because cancelling a job of a study can start the next job.
    records, failed = console.for_each(reversed(directories), cancel_one)
    cancelled = [_cancelled(record) for record in records]
    if as_json:
        console.print_json(CancelDocument(cancelled))
    else:
        for job in cancelled:
            console.show(f"{job.job}: {_OUTCOMES[job.outcome]}{job.state if job.outcome == 'already_ended' else ''}")
    return failed or code


_OUTCOMES: dict[CancelOutcome, str] = {
    "cancelling": "cancelling", "never_submitted": "cancelled before it was submitted",
    "already_ended": "had already ended, ",
}  # fmt: skip


def _cancelled(record: job_record.Job) -> CancelledJob:
    outcome: CancelOutcome = "cancelling"
    if record.ended:
        is_unsubmitted = record.batch_id is None and record.state == "cancelled"
        outcome = "never_submitted" if is_unsubmitted else "already_ended"
    return CancelledJob(record.job, record.batch_id, outcome, record.state)


@click.command(context_settings=SETTINGS)
@on_jobs
@JSON
def collect(jobs: tuple[str, ...], runs: Path, as_json: bool) -> int:
    """Archive each JOB that has ended. Without JOB, archive all jobs in RUNS that have ended. Existing archives are not
    changed. For a study, list the missing measurements and the command that submits them.
    """
    looks, code = _refreshed(jobs, runs)
    collected, failed = console.for_each(looks, lambda look: _collected(look, bool(jobs)))
    studies = [_collected_study(folder) for folder in names.studies(jobs, runs)]
    if as_json:
        console.print_json(CollectDocument(collected, studies))
    return code or failed or (Incomplete.exit_code if any(study.missing for study in studies) else 0)


def _collected(look: job_state.JobSnapshot, is_named: bool) -> CollectedJob:
    """Archive a job if it has ended, or if the user has named it."""
    if not look.job.ended and not is_named:
        console.say(f"{look.job.job}: {look.job.state}, not collected yet")
        return CollectedJob(look.job.job, look.job.state, None, is_new=False, notes=[])
    made = collect_one(look.directory, quiet=False)
    return CollectedJob(look.job.job, look.job.state, str(made.archive), made.is_new, made.notes)


def _collected_study(folder: Path) -> CollectedStudy:
    """Print the missing measurements of a study, and the command that submits them."""
    study = study_outcome.load(folder)
    outcome = study_outcome.outcome(study, study_outcome.jobs(study))
    missing = lacked_by(outcome)
    is_resumable = not all(measurement.is_live for measurement in missing)
    resume = f"dlio-submit --resume {shlex.quote(str(folder))}" if is_resumable else None
    collected = CollectedStudy(study.study, outcome.wanted, missing, list(outcome.broken), resume)
    _say(collected, len(study.points))
    return collected


def _say(study: CollectedStudy, points: int) -> None:
    for message in study.broken:
        console.say(f"{study.study}: left out a job that cannot be read: {message}")
    if not study.missing:
        console.say(f"{study.study}: all {counted(study.wanted, 'measurement')} of {counted(points, 'point')} exist")
        return
    console.say(f"{study.study}: {len(study.missing)} of {study.wanted} measurements are missing")
    for missing in study.missing:
        console.say(f"  p{missing.point} {missing.title}, repeat {missing.repeat + 1}: {missing.why}")
    if study.resume is not None:
        console.say(f"  to measure only these: {study.resume}")


def sound(jobs: tuple[str, ...], runs: Path) -> tuple[list[Path], int]:
    """Return two values: the job directories whose job.json can be read, and an exit code. Print an error for each
    job.json that cannot be read. The exit code is the code of the first such error, or 0 if there was no error.
    """
    return console.for_each(_directories(jobs, runs), lambda directory: (job_record.load(directory), directory)[1])


def _directories(jobs: tuple[str, ...], runs: Path) -> list[Path]:
    directories = names.directories(jobs, runs)
    if not directories:
        console.say(f"{' '.join(jobs)}: the job directories of the study no longer exist")
    return directories
