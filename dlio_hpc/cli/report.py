"""dlio-hpc report, and the functions by which other commands collect and report jobs."""

import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import Outputs, trace_options
from dlio_hpc.cli.verbs import PAGER, RUNS, SETTINGS, argument, option
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records import names as jobs_by_name
from dlio_hpc.results.metrics import MetricName

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.records.study_outcome import StudyOutcome
    from dlio_hpc.reports.page import Page
    from dlio_hpc.verdict.collection import Archived


@click.command(context_settings=SETTINGS)
@argument("names", nargs=-1, required=True, metavar="STUDY|DIR|ARCHIVE...")
@option(
    "-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True, help="Folder that contains STUDY."
)
@option(
    "--metric",
    type=click.Choice(get_args(MetricName)),
    help="Metric by which the points of a study are compared. Default: the metric of each part of the study.",
)
@option(
    "--full", "is_full", is_flag=True,
    help=("Show each run in full. Default: if there are several runs, show a table of the runs, and only "
        "the run with the median rate in full."),
)  # fmt: skip
@PAGER
@trace_options
def report(
    names: tuple[str, ...], runs: Path, metric: MetricName | None, is_full: bool, has_pager: bool, outputs: Outputs
) -> int:
    """Report the measurements and the I/O of jobs, from their directories or archives. For a study, report which
    setting is best, and whether the differences exceed the noise.

    Give a study by its folder, by its name, or by all of its jobs.
    """
    jobs = [jobs_by_name.place(name, runs) for name in names]
    if (folder := next((path for path in jobs if study_outcome.is_study(path)), None)) is not None:
        if len(jobs) > 1:
            raise ConfigError(f"{folder} is a study: give it alone, or give all of its jobs instead")
        return _report_study(jobs_by_name.study_in(folder), outputs, metric, has_pager)
    outcomes = job_outcome.load_all(jobs)
    if len(jobs) > 1 and (study := study_outcome.held(outcomes)) is not None:
        of_jobs = study_outcome.of_jobs(study, outcomes, absent="not planned in any of the given jobs")
        return _report_study(of_jobs, outputs, metric, has_pager)
    if metric is not None:
        raise click.UsageError("--metric is only for studies: it selects the metric by which points are compared")
    return _report_jobs(jobs, outcomes, outputs, is_full, has_pager)


def show_study(folder: Path, as_json: bool, is_judged: bool = True) -> int:
    """Print the report of the study in a folder; see report_study.show_study()."""
    from dlio_hpc.cli import report_study

    return report_study.show_study(folder, as_json, is_judged)


def _report_study(outcome: "StudyOutcome", outputs: Outputs, metric: MetricName | None, has_pager: bool) -> int:
    from dlio_hpc.cli import report_study

    return report_study.present(outcome, outputs, metric, has_pager=has_pager)


def _report_jobs(
    jobs: list[Path], outcomes: list[job_outcome.JobOutcome], outputs: Outputs, is_full: bool, has_pager: bool
) -> int:
    from dlio_hpc.reports import examined_runs

    pairs = zip(jobs, outcomes, strict=True)
    examined = [examined_runs.examine(path, outcome, outputs.step_s, len(jobs) == 1) for path, outcome in pairs]
    if outputs.as_json:
        _print_json(outcomes, examined)
    elif outputs.as_csv:
        _print_csv(outcomes, examined)
    draws_all = outputs.figures is not None
    outputs.present(lambda: _job_page(outcomes, examined, is_full, draws_all), has_pager)
    outputs.write_trace([run for runs in examined for run in runs.values()])
    return console.exit_code(job_outcome.fault(outcome) or job_outcome.unfinished(outcome) for outcome in outcomes)


def _job_page(
    outcomes: list[job_outcome.JobOutcome], examined: "Sequence[dict[str, Examined]]", is_full: bool = False,
    draws_all: bool = False,
) -> "Page":  # fmt: skip
    from dlio_hpc.reports import job_page

    return job_page.of_jobs(outcomes, examined, is_full, draws_all)


def show(paths: list[Path] | tuple[Path, ...], as_json: bool) -> int:
    """Print the measurements of jobs. If there are no jobs, print nothing, or an empty JSON document. paths:
    directories or archives of the jobs. Return the exit code of the first fault, or 0 if there is no fault.
    """
    outcomes = [job_outcome.load(path) for path in paths]
    if as_json:
        _print_json(outcomes, [])
    if outcomes:
        Outputs(as_json=as_json).present(lambda: _job_page(outcomes, ()))
    return console.exit_code(job_outcome.fault(outcome) for outcome in outcomes)


def _print_json(outcomes: list[job_outcome.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    from dlio_hpc.documents import jobs

    analyses = [
        {name: log.analysis for name, log in runs.items() if log is not None and log.analysis is not None}
        for runs in examined
    ]
    console.print_json(jobs.of_jobs(outcomes, analyses))


def _print_csv(outcomes: list[job_outcome.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    from dlio_hpc.reports import log_rows

    measured = [
        log_rows.numbers_of_result(run.result, run.name if len(outcomes) == 1 else f"{outcome.job.job}/{run.name}")
        for outcome in outcomes
        for run in outcome.runs
        if run.result is not None
    ]
    logs = [log_rows.numbers_of_log(run) for runs in examined for run in runs.values()]
    log_rows.write_csv(chain.from_iterable([*measured, *logs]), sys.stdout)


def collect_all(directories: list[Path], quiet: bool) -> int:
    """Archive jobs that have ended. Return the exit code of the first failure to archive a job, or 0 if all jobs were
    archived.
    """
    return console.for_each(directories, lambda directory: collect_one(directory, quiet))[1]


def finish(directories: list[Path], as_json: bool, quiet: bool) -> int:
    """Archive jobs that have ended, then print a report on all of them. Return the exit code of the report or, if that
    is 0, the exit code of the first failure to archive a job, or 0 if all jobs were archived.
    """
    code = collect_all(directories, quiet)
    return show(directories, as_json) or code


def collect_one(directory: Path, quiet: bool) -> "Archived":
    """Archive a job. Unless `quiet` is True, print notes and the path of the archive on stderr."""
    from dlio_hpc.verdict import collection

    with console.busy(f"archiving {directory.name}", quiet):
        archived = collection.archive(directory)
    if not quiet:
        for note in archived.notes:
            console.say(f"note: {note}")
        console.say(f"{'archived' if archived.is_new else 'already archived'}: {archived.archive}")
    return archived
