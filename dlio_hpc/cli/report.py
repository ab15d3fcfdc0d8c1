"""dlio-hpc report, and the end of every command that has a job to show."""

import sys
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.pictures import Pictures, gives_pictures
from dlio_hpc.cli.verbs import SETTINGS
from dlio_hpc.report import jobfiles

if TYPE_CHECKING:
    from dlio_hpc.analysis.examine import Examined
    from dlio_hpc.report.page import Page

_PATH = click.Path(path_type=Path)


@click.command(context_settings=SETTINGS)
@click.argument("jobs", nargs=-1, required=True, type=_PATH, metavar="DIR|ARCHIVE...")
@gives_pictures
def report(jobs: tuple[Path, ...], as_json: bool, as_csv: bool, step_s: float | None, **options: Any) -> int:
    """Show what jobs measured and what their I/O was like, from their directories or archives."""
    from dlio_hpc.report import evidence

    wanted = Pictures(**options)
    outcomes = [jobfiles.load(path) for path in jobs]
    pairs = zip(jobs, outcomes, strict=True)
    examined = [evidence.examine(path, outcome, step_s, is_one=len(jobs) == 1) for path, outcome in pairs]
    if as_json:
        _print_json(outcomes, examined)
    elif as_csv:
        _print_csv(outcomes, examined)
    else:
        _print(outcomes, examined)
    if wanted.any:
        wanted.write(lambda: _page(outcomes, examined), [run for runs in examined for run in runs.values()])
    return console.exit_code(jobfiles.fault(outcome) for outcome in outcomes)


def _page(outcomes: list[jobfiles.JobOutcome], examined: "list[dict[str, Examined]]") -> "Page":
    from dlio_hpc.report import pages

    return pages.of_jobs(outcomes, examined)


def show(paths: list[Path] | tuple[Path, ...], as_json: bool) -> int:
    """Print what the jobs measured; the exit code of the first that went wrong."""
    outcomes = [jobfiles.load(path) for path in paths]
    if as_json:
        _print_json(outcomes, [])
    else:
        _print(outcomes, [])
    return console.exit_code(jobfiles.fault(outcome) for outcome in outcomes)


def _print_json(outcomes: list[jobfiles.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    documents = [jobfiles.as_document(outcome) for outcome in outcomes]
    for document, runs in zip(documents, examined, strict=False):
        for run in document["runs"]:
            if (found := runs.get(run["name"])) is not None and found.analysis is not None:
                import msgspec

                run["analysis"] = msgspec.to_builtins(found.analysis)
    console.print_json({"study": outcomes[0].plan.study, "jobs": documents})


def _print_csv(outcomes: list[jobfiles.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    from dlio_hpc.report import iotables

    measured = [
        iotables.figures_of_result(run.result, run.name if len(outcomes) == 1 else f"{outcome.job.job}/{run.name}")
        for outcome in outcomes
        for run in outcome.runs
        if run.result is not None
    ]
    logs = [iotables.figures_of_log(run) for runs in examined for run in runs.values()]
    iotables.write_csv(chain.from_iterable([*measured, *logs]), sys.stdout)


def _print(outcomes: list[jobfiles.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    from dlio_hpc.report import tables

    for number, outcome in enumerate(outcomes):
        tables.show(outcome, sys.stdout)
        for run in examined[number].values() if examined else ():
            if run.analysis is not None:
                from dlio_hpc.report import iotables

                print()
                iotables.show(run, sys.stdout)


def collect_all(directories: list[Path], quiet: bool) -> int:
    """Collect jobs that have ended; the code of the first that could not be."""
    return console.each(directories, lambda directory: collect_one(directory, quiet))[1]


def show_study(folder: Path, as_json: bool) -> int:
    raise NotImplementedError


def finish(directories: list[Path], as_json: bool, quiet: bool) -> int:
    """Collect jobs that have ended, then show them, those that could not be collected too."""
    code = collect_all(directories, quiet)
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
