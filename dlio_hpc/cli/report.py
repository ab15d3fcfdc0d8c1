"""dlio-hpc report, and the end of every command that has a job to show."""

import sys
from pathlib import Path

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import SETTINGS, option
from dlio_hpc.report import jobfiles

_PATH = click.Path(path_type=Path)


@click.command(context_settings=SETTINGS)
@click.argument("jobs", nargs=-1, required=True, type=_PATH, metavar="DIR|ARCHIVE...")
@option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def report(jobs: tuple[Path, ...], as_json: bool) -> int:
    """Show what jobs measured, from their directories or archives."""
    return show(jobs, as_json)


def show(paths: list[Path] | tuple[Path, ...], as_json: bool) -> int:
    """Print the jobs; the exit code of the first that went wrong."""
    outcomes = [jobfiles.load(path) for path in paths]
    if as_json:
        console.print_json(
            {"study": outcomes[0].plan.study, "jobs": [jobfiles.as_document(outcome) for outcome in outcomes]}
        )
    else:
        from dlio_hpc.report import tables

        for outcome in outcomes:
            tables.show(outcome, sys.stdout)
    return console.exit_code(jobfiles.fault(outcome) for outcome in outcomes)


def finish(directories: list[Path], as_json: bool, quiet: bool) -> int:
    """Collect jobs that have ended, then show them, those that could not be collected too."""
    _, code = console.each(directories, lambda directory: collect_one(directory, quiet))
    return show(directories, as_json) or code


def collect_one(directory: Path, quiet: bool) -> None:
    """Archive one job; notes go to stderr."""
    from dlio_hpc.batch.collect import collect

    with console.busy(f"archiving {directory.name}", quiet):
        collected = collect(directory)
    if not quiet:
        for note in collected.notes:
            console.say(f"note: {note}")
        console.say(f"{'archived' if collected.fresh else 'already archived'}: {collected.archive}")
