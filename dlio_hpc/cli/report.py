"""dlio-hpc report, and the end of every command that has a job to show."""

import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from dlio_hpc.cli import console, job_names
from dlio_hpc.cli.picture_options import Pictures, gives_pictures
from dlio_hpc.cli.verbs import PATH, SETTINGS, option
from dlio_hpc.errors import ConfigError, DlioError
from dlio_hpc.metrics import MetricName
from dlio_hpc.records import job_outcome, study_outcome

if TYPE_CHECKING:
    from dlio_hpc.analysis.log.analyze import Examined
    from dlio_hpc.batch.collect import Collected
    from dlio_hpc.records.study_outcome import StudyOutcome
    from dlio_hpc.report.banner import Banner
    from dlio_hpc.report.figures.run_panels import Picture
    from dlio_hpc.report.page import Page
    from dlio_hpc.report.study_report import StudyReport
    from dlio_hpc.verdict.suite import SuiteVerdict


@click.command(context_settings=SETTINGS)
@click.argument("names", nargs=-1, required=True, metavar="STUDY|DIR|ARCHIVE...")
@option("-o", "--runs", type=PATH, metavar="DIR", default="dlio-runs", show_default=True, help="Where STUDY is.")
@option(
    "--metric",
    type=click.Choice(get_args(MetricName)),
    help="What a study's points are judged by. Default: what the study says.",
)
@gives_pictures
def report(
    names: tuple[str, ...], runs: Path, metric: MetricName | None, as_json: bool, as_csv: bool, step_s: float | None,
    **options: Any,
) -> int:  # fmt: skip
    """Show what jobs measured and what their I/O was like, from their directories or archives; or what a study found:
    which setting is best, and whether the differences are more than noise.

    A study is named by its folder, by its name, or by its jobs, several directories or archives.
    """
    wanted = Pictures(**options)
    jobs = [job_names.place(name, runs) for name in names]
    if (folder := next((path for path in jobs if study_outcome.is_study(path)), None)) is not None:
        _check_study_options(wanted, step_s)
        if len(jobs) > 1:
            raise ConfigError(f"{folder} is a study: report on it by itself, or give all of its jobs")
        return _report_study(job_names.study_in(folder), wanted, metric, as_json, as_csv)
    outcomes = job_outcome.load_all(jobs)
    if len(jobs) > 1 and (study := study_outcome.held(outcomes)) is not None:
        _check_study_options(wanted, step_s)
        found = study_outcome.of_jobs(study, outcomes, absent="none of these jobs was to make it")
        return _report_study(found, wanted, metric, as_json, as_csv)
    if metric is not None:
        raise click.UsageError("--metric goes with a study, whose points it judges")
    return _report_jobs(jobs, outcomes, wanted, as_json, as_csv, step_s)


def _check_study_options(wanted: Pictures, step_s: float | None) -> None:
    if wanted.perfetto is not None or step_s is not None:
        what = "--perfetto" if wanted.perfetto is not None else "--step"
        raise ConfigError(f"{what}: a timeline is of one job; name the job's directory or archive instead")


def show_study(folder: Path, as_json: bool, is_judged: bool = True) -> int:
    """Print what the study in a folder found, where that is judged with its verdict first if it is a suite; 0, or the
    verdict's code, or that of why measurements are missing.
    """
    outcome = job_names.study_in(folder)
    if is_judged and outcome.study.verdict is not None and outcome.study.generate != "only":
        return _show_suite(outcome, as_json)
    return _report_study(outcome, Pictures(None, None, None), None, as_json, False, is_judged)


def _show_suite(outcome: "StudyOutcome", as_json: bool) -> int:
    from dlio_hpc.cli import suites
    from dlio_hpc.report import study_report

    made = study_report.make(outcome)
    judged = suites.judge(made)
    if as_json:
        console.print_json({**study_report.as_document(made), "verdict": suites.as_document(judged)})
    else:
        from dlio_hpc.report import studytables, verdict_banners

        suites.show(judged)
        studytables.show(made, sys.stdout, verdict_banners.of_suite(judged))
    console.exit_code([study_report.fault(made)])
    return judged.exit_code


def _report_study(
    outcome: "StudyOutcome", wanted: Pictures, metric: MetricName | None, as_json: bool, as_csv: bool,
    is_judged: bool = True,
) -> int:  # fmt: skip
    from dlio_hpc.report import study_report

    made = study_report.make(outcome, metric)
    verdict = _verdict(made) if wanted.html is not None or not (as_json or as_csv) else None
    if as_json:
        console.print_json(study_report.as_document(made))
    elif as_csv:
        study_report.write_csv(made, sys.stdout)
    else:
        from dlio_hpc.report import studytables

        studytables.show(made, sys.stdout, _opening(verdict))
    if wanted.any:
        wanted.write_of_study(lambda: _study_page(made, verdict), lambda: _study_pictures(made))
    return console.exit_code([study_report.fault(made)]) if is_judged else 0


def _verdict(made: "StudyReport") -> "SuiteVerdict | None":
    """The verdict of a suite; None of any other study."""
    study = made.outcome.study
    if study.verdict is None or study.generate == "only":
        return None
    from dlio_hpc.cli import suites

    return suites.judge(made)


def _opening(verdict: "SuiteVerdict | None") -> "Banner | None":
    """The banner of a suite by its verdict; None of any other study, which has a banner of its own."""
    if verdict is None:
        return None
    from dlio_hpc.report import verdict_banners

    return verdict_banners.of_suite(verdict)


def _study_page(made: "StudyReport", verdict: "SuiteVerdict | None") -> "Page":
    from dlio_hpc.report import studypages

    if verdict is None:
        return studypages.of_study(made)
    from dlio_hpc.verdict import pages

    return studypages.of_study(made, _opening(verdict), pages.of_suite(verdict))


def _study_pictures(made: "StudyReport") -> "Iterator[Picture]":
    from dlio_hpc.report.figures import study_plots

    return study_plots.draw(made)


def _report_jobs(
    jobs: list[Path], outcomes: list[job_outcome.JobOutcome], wanted: Pictures, as_json: bool, as_csv: bool,
    step_s: float | None,
) -> int:  # fmt: skip
    from dlio_hpc.report import examined_runs

    pairs = zip(jobs, outcomes, strict=True)
    examined = [examined_runs.examine(path, outcome, step_s, is_one=len(jobs) == 1) for path, outcome in pairs]
    if as_json:
        _print_json(outcomes, examined)
    elif as_csv:
        _print_csv(outcomes, examined)
    else:
        _print(outcomes, examined)
    if wanted.any:
        wanted.write(lambda: _page(outcomes, examined), [run for runs in examined for run in runs.values()])
    return console.exit_code(job_outcome.fault(outcome) for outcome in outcomes)


def _page(outcomes: list[job_outcome.JobOutcome], examined: "list[dict[str, Examined]]") -> "Page":
    from dlio_hpc.report import pages

    return pages.of_jobs(outcomes, examined)


def show(paths: list[Path] | tuple[Path, ...], as_json: bool) -> int:
    """Print what the jobs measured; the exit code of the first that went wrong."""
    outcomes = [job_outcome.load(path) for path in paths]
    if as_json:
        _print_json(outcomes, [])
    else:
        _print(outcomes, [])
    return console.exit_code(job_outcome.fault(outcome) for outcome in outcomes)


def _print_json(outcomes: list[job_outcome.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    documents = [job_outcome.as_document(outcome) for outcome in outcomes]
    for document, runs in zip(documents, examined, strict=False):
        for run in document["runs"]:
            if (found := runs.get(run["name"])) is not None and found.analysis is not None:
                import msgspec

                run["analysis"] = msgspec.to_builtins(found.analysis)
    console.print_json({"study": outcomes[0].plan.study, "jobs": documents})


def _print_csv(outcomes: list[job_outcome.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    from dlio_hpc.report import iotables

    measured = [
        iotables.figures_of_result(run.result, run.name if len(outcomes) == 1 else f"{outcome.job.job}/{run.name}")
        for outcome in outcomes
        for run in outcome.runs
        if run.result is not None
    ]
    logs = [iotables.figures_of_log(run) for runs in examined for run in runs.values()]
    iotables.write_csv(chain.from_iterable([*measured, *logs]), sys.stdout)


def _print(outcomes: list[job_outcome.JobOutcome], examined: "list[dict[str, Examined]]") -> None:
    from dlio_hpc.report import tables

    for number, outcome in enumerate(outcomes):
        tables.show(outcome, sys.stdout)
        for run in examined[number].values() if examined else ():
            if run.analysis is not None:
                from dlio_hpc.report import iotables

                print()
                iotables.show_run(run, sys.stdout)


def collect_all(directories: list[Path], quiet: bool) -> int:
    """Collect jobs that have ended; the code of the first that could not be."""
    return console.each(directories, lambda directory: collect_one(directory, quiet))[1]


def finish(directories: list[Path], as_json: bool, quiet: bool) -> int:
    """Collect jobs that have ended, then show them, those that could not be collected too."""
    code = collect_all(directories, quiet)
    return show(directories, as_json) or code


def collect_one(directory: Path, quiet: bool) -> None:
    """Archive one job; notes go to stderr."""
    from dlio_hpc.batch.collect import collect

    with console.busy(f"archiving {directory.name}", quiet):
        collected = collect(directory)
        unrecorded = _record(directory, collected)
    if not quiet:
        for note in [*collected.notes, *unrecorded]:
            console.say(f"note: {note}")
        console.say(f"{'archived' if collected.fresh else 'already archived'}: {collected.archive}")


def _record(directory: Path, collected: "Collected") -> list[str]:
    """Enter the job into the history beside its archive; why it could not be, which loses nothing: the history takes
    in by itself what it finds later.
    """
    from dlio_hpc.verdict import history, history_entry

    folder = collected.archive.parent
    try:
        if collected.fresh:
            history.enter(folder, history_entry.of(job_outcome.load(directory)))
        elif not history.knows(collected.archive):
            history.enter(folder, history_entry.of(job_outcome.load(collected.archive)))
    except (DlioError, OSError) as fault:
        return [f"the job is not in the history yet: {fault}"]
    return []
