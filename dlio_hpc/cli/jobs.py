"""dlio-hpc status, wait, cancel and collect."""

import shlex
from pathlib import Path
from typing import Any

import click

from dlio_hpc.batch import debris, job_record, job_state
from dlio_hpc.batch.cancel import cancel as cancel_one
from dlio_hpc.cli import console
from dlio_hpc.cli.report import collect_all, collect_one, finish, show_study
from dlio_hpc.cli.verbs import PATH, SETTINGS, argument, option
from dlio_hpc.errors import Incomplete
from dlio_hpc.records import names, study_outcome


def _on_jobs(function: Any) -> Any:
    """Add the arguments JOB and the option --runs."""
    function = option(
        "-o", "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True,
        help="Folder of the directories of jobs.",
    )(function)  # fmt: skip
    return argument("jobs", nargs=-1, metavar="[JOB]...")(function)


@click.command(context_settings=SETTINGS)
@_on_jobs
@option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def status(jobs: tuple[str, ...], runs: Path, as_json: bool) -> int:
    """Show the state of each JOB (a directory, or the name of a job or study below RUNS), or of all jobs below RUNS."""
    looks, code = _refreshed(jobs, runs)
    if as_json:
        listed = [{"job": look.job.job, "batch_id": look.job.batch_id, "state": look.job.state} for look in looks]
        console.print_json({"jobs": listed})
        return code
    for look in looks:
        newest = look.job.states[-1]
        click.echo(f"{look.job.job}  {newest.state}  since {newest.time}{f'  ({newest.text})' if newest.text else ''}")
    if left := list(debris.rests(runs)):
        console.say(
            f"note: {len(left)} remains of killed submissions; remove them: dlio-hpc clean -o {shlex.quote(str(runs))}"
        )
    return code


def _refreshed(jobs: tuple[str, ...], runs: Path) -> tuple[list[job_state.JobSnapshot], int]:
    """Determine the states of the jobs. Each batch system is queried once. Print each failure: a job directory that
    cannot be read, or a batch system that does not answer. Return two values: the states, and an exit code. The exit
    code is that of the first failure, or 0 if there was none.
    """
    directories, code = _sound(jobs, runs)
    looks = job_state.refresh_all(directories)
    faults = {str(look.fault): look.fault for look in looks if look.fault is not None}
    for message, fault in faults.items():
        console.say(f"dlio-hpc: {message}; states may be out of date")
        code = code or fault.exit_code
    return looks, code


@click.command(context_settings=SETTINGS)
@_on_jobs
@option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@option("--quiet", is_flag=True, help="Print no progress and no notes on stderr.")
def wait(jobs: tuple[str, ...], runs: Path, as_json: bool, quiet: bool) -> int:
    """Watch each JOB or study until it has ended, then collect it and report what it measured."""
    directories, code = _sound(jobs, runs)
    watched, stray = console.wait(directories, quiet)
    folders = names.studies(jobs, runs) if len(jobs) == 1 else []
    if folders:
        collected = collect_all(watched, quiet)
        return show_study(folders[0], as_json) or collected or code or stray
    return (finish(watched, as_json, quiet) if watched else 0) or code or stray


@click.command(context_settings=SETTINGS)
@_on_jobs
@click.option("--all", "everything", is_flag=True, help="Cancel all jobs below RUNS that have not ended.")
def cancel(jobs: tuple[str, ...], runs: Path, everything: bool) -> int:
    """Ask the batch system to end each JOB. Its completed runs can be collected."""
    if not jobs and not everything:
        raise click.UsageError("give the jobs to cancel, or --all")
    if jobs:
        directories, code = _directories(jobs, runs), 0
    else:
        looks, code = _refreshed(jobs, runs)
        directories = [look.directory for look in looks if not look.job.ended]
    # The last job comes first, because cancelling a job of a study can start the next job.
    records, failed = console.for_each(reversed(directories), cancel_one)
    for record in records:
        click.echo(f"{record.job}: {_cancelled(record)}")
    return failed or code


@click.command(context_settings=SETTINGS)
@_on_jobs
def collect(jobs: tuple[str, ...], runs: Path) -> int:
    """Archive each JOB that has ended. Without JOB, archive all jobs below RUNS that have ended. Existing archives stay
    as they are. For a study, list the missing measurements and the command that submits them.
    """
    looks, code = _refreshed(jobs, runs)
    for look in looks:
        if look.job.ended or jobs:
            failed = console.for_each([look.directory], lambda ended: collect_one(ended, quiet=False))[1]
            code = code or failed
        else:
            console.say(f"{look.job.job}: {look.job.state}, not collected yet")
    for folder in names.studies(jobs, runs):
        missing = _missing(folder)
        code = code or missing
    return code


def _missing(folder: Path) -> int:
    """Print the missing measurements of a study, and the command that submits them. Return 0 if no measurement is
    missing, otherwise the exit code of Incomplete.
    """
    study = study_outcome.load(folder)
    outcome = study_outcome.outcome(study, study_outcome.jobs(study))
    for message in outcome.broken:
        console.say(f"{study.study}: left out a job that cannot be read: {message}")
    if not outcome.missing:
        console.say(f"{study.study}: all {outcome.wanted} measurements of {len(study.points)} points exist")
        return 0
    console.say(f"{study.study}: {len(outcome.missing)} of {outcome.wanted} measurements are missing")
    for missing in outcome.missing:
        point = study.points[missing.unit.point]
        console.say(f"  p{point.number} {study.title(point)}, repeat {missing.unit.repeat + 1}: {missing.why}")
    if not all(missing.is_live for missing in outcome.missing):
        console.say(f"  to measure only these: dlio-submit --resume {shlex.quote(str(folder))}")
    return Incomplete.exit_code


def _cancelled(record: job_record.Job) -> str:
    if not record.ended:
        return "cancelling"
    is_unsubmitted = record.batch_id is None and record.state == "cancelled"
    return "cancelled before it was submitted" if is_unsubmitted else f"had already ended, {record.state}"


def _sound(jobs: tuple[str, ...], runs: Path) -> tuple[list[Path], int]:
    """Return two values: the job directories whose job.json can be read, and an exit code. Print an error for each
    job.json that cannot be read. The exit code is that of the first such error, or 0 if there was no error.
    """
    return console.for_each(_directories(jobs, runs), lambda directory: (job_record.load(directory), directory)[1])


def _directories(jobs: tuple[str, ...], runs: Path) -> list[Path]:
    directories = names.directories(jobs, runs)
    if not directories:
        console.say(f"{' '.join(jobs)}: the job directories of the study no longer exist")
    return directories
