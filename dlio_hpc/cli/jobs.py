"""A job's life after submission: status, wait, cancel, collect."""

from pathlib import Path
from typing import Any

import click

from dlio_hpc import rundir
from dlio_hpc.batch import job
from dlio_hpc.cli import console
from dlio_hpc.cli.report import collect_one, finish
from dlio_hpc.cli.verbs import SETTINGS, option
from dlio_hpc.errors import ConfigError


def _on_jobs(function: Any) -> Any:
    """JOB arguments and --runs, as every verb on jobs has them."""
    function = option(
        "-o", "--runs", type=click.Path(path_type=Path), metavar="DIR", default="dlio-runs", show_default=True,
        help="Where jobs' directories lie.",
    )(function)  # fmt: skip
    return click.argument("jobs", nargs=-1, metavar="[JOB]...")(function)


@click.command(context_settings=SETTINGS)
@_on_jobs
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def status(jobs: tuple[str, ...], runs: Path, as_json: bool) -> int:
    """Show the state of each JOB (directory or name below RUNS); of all below RUNS when none is named."""
    records, code = console.each(_directories(jobs, runs), job.refresh)
    if as_json:
        listed = [{"job": record.job, "batch_id": record.batch_id, "state": record.state} for record in records]
        console.print_json({"jobs": listed})
    else:
        for record in records:
            click.echo(f"{record.job}  {record.state}  since {record.states[-1].time}")
    return code


@click.command(context_settings=SETTINGS)
@_on_jobs
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@option("--quiet", is_flag=True, help="No progress and no notes on stderr.")
def wait(jobs: tuple[str, ...], runs: Path, as_json: bool, quiet: bool) -> int:
    """Watch each JOB to its end, collect it and show what it measured."""
    directories = _directories(jobs, runs)
    watched, code = console.each(directories, lambda directory: (console.wait(directory, quiet), directory)[1])
    return (finish(watched, as_json, quiet) if watched else 0) or code


@click.command(context_settings=SETTINGS)
@_on_jobs
def cancel(jobs: tuple[str, ...], runs: Path) -> int:
    """Ask the batch system to end each JOB; what it has done so far can be collected."""
    if not jobs:
        raise click.UsageError("name the jobs to cancel")
    records, code = console.each(_directories(jobs, runs), job.cancel)
    for record in records:
        click.echo(f"{record.job}: {_cancelled(record)}")
    return code


@click.command(context_settings=SETTINGS)
@_on_jobs
def collect(jobs: tuple[str, ...], runs: Path) -> int:
    """Archive each JOB that has ended; all below RUNS when none is named. What is archived already stays as it is."""
    records, code = console.each(_directories(jobs, runs), lambda directory: (directory, job.refresh(directory)))
    for directory, record in records:
        if record.ended or jobs:
            code = console.each([directory], lambda ended: collect_one(ended, quiet=False))[1] or code
        else:
            console.say(f"{record.job}: {record.state}, not collected yet")
    return code


def _cancelled(record: job.Job) -> str:
    if not record.ended:
        return "cancelling"
    return "cancelled before it was submitted" if record.batch_id is None else f"had ended, {record.state}"


def _directories(jobs: tuple[str, ...], runs: Path) -> list[Path]:
    """The directories of `jobs`, paths or names below `runs`; all below `runs` when none is named."""
    if not jobs:
        found = sorted(path.parent for path in runs.glob(f"*/{rundir.JOB}"))
        if not found:
            raise ConfigError(f"no jobs in {runs}; say with --runs where they lie")
        return found
    return [Path(name) if Path(name).is_dir() or "/" in name else runs / name for name in jobs]
