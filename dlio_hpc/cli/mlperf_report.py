"""dlio-hpc mlperf-report: write finished jobs in the directory layout of MLPerf Storage."""

import re
import shlex
from pathlib import Path
from typing import get_args

import click

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.cli import console
from dlio_hpc.cli.verbs import FOLDER, JSON, RUNS, SETTINGS, argument, option, parsed
from dlio_hpc.dataset import folder_kinds
from dlio_hpc.documents.files import MlperfReportDocument
from dlio_hpc.files.archive import SUFFIX
from dlio_hpc.records import job_outcome, study_outcome
from dlio_hpc.records import names as jobs_by_name
from dlio_hpc.reports.mlperf_storage.editions import EDITIONS, Division, EditionName


def _folder_name(text: str) -> str:
    """Return a name that MLPerf Storage allows for folders (Rules.md 2.1.1). Raise ValueError for others."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", text):
        raise ValueError(f"{text!r} is not a name of letters, digits, '.', '_' and '-'")
    return text


@click.command("mlperf-report", context_settings=SETTINGS)
@argument("directory", type=FOLDER, metavar="DIR")
@argument("names", nargs=-1, required=True, metavar="JOB|STUDY|ARCHIVE...")
@option("--edition", type=click.Choice(get_args(EditionName)), required=True, help="Edition of MLPerf Storage.")
@option("--division", type=click.Choice(get_args(Division)), required=True, help="Division, which is a folder.")
@option(
    "--submitter", required=True, metavar="NAME", callback=parsed(_folder_name), help="Organisation, which is a folder."
)
@option("--system", required=True, metavar="NAME", callback=parsed(_folder_name), help="System, which is a folder.")
@option("--accelerator", metavar="NAME", help="Leave out training on other accelerators than this one, such as b200.")
@option(
    "--replace",
    "is_replaced",
    is_flag=True,
    help="Replace the folders that an earlier report wrote for the same workloads.",
)
@option(
    "-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True, help="Folder that contains JOB."
)
@JSON
def mlperf_report(
    directory: Path, names: tuple[str, ...], edition: EditionName, division: Division, submitter: str, system: str,
    accelerator: str | None, is_replaced: bool, runs: Path, as_json: bool,
) -> None:  # fmt: skip
    """Write finished jobs to DIR in the directory layout of MLPerf Storage, which its checkers read.

    The result is not a submission: a submission is made with MLCommons' tool mlpstorage. The rules of the edition and
    the division that the jobs do not meet are listed; they are checked by the criteria of dlio-hpc accept. Data that
    the results of dlio-hpc do not contain are left out, and listed.
    """
    from dlio_hpc.reports.mlperf_storage import selection, tree

    _refuse_swap(directory, names, runs)
    outcomes = job_outcome.load_all(_jobs(names, runs))
    if not outcomes:
        raise ConfigError(f"no jobs in {', '.join(names)}; give finished jobs, or a study with finished jobs")
    placement = tree.Placement(EDITIONS[edition], division, submitter, system)
    reported = selection.reported(outcomes, placement.edition, accelerator)
    report = tree.write(directory, reported, placement, is_replaced)
    if as_json:
        missing, cautions = list(report.missing), list(report.cautions)
        console.print_json(MlperfReportDocument(report.headline, str(directory), report.folders, missing, cautions))
        return
    console.show(report.headline)
    _list("Rules that are not met:", report.rules.unmet)
    _list("Rules that could not be checked:", report.rules.undecided)
    _list(f"Folders in {directory}:", [f"{folder}: {name}" for folder, name in report.folders.items()])
    _list("Left out or null:", report.missing)
    _list("Storage was not read, or this is unknown:", report.cautions)


def _refuse_swap(directory: Path, names: tuple[str, ...], runs: Path) -> None:
    """Raise ConfigError if the first argument is a job or a study. It must be the folder to write."""
    path = jobs_by_name.place(str(directory), runs)
    what = folder_kinds.member(path) or ("an archive of a job" if path.name.endswith(SUFFIX) else None)
    if what is not None:
        line = shlex.join(["dlio-hpc", "mlperf-report", *names[:1], str(directory)])
        raise ConfigError(f"{directory} is {what}, but the first argument is the folder to write: {line} ...")


def _jobs(names: tuple[str, ...], runs: Path) -> list[Path]:
    """Return the paths of the jobs. A study stands for all its jobs."""
    paths = [jobs_by_name.place(name, runs) for name in names]
    jobs = (study_outcome.jobs(study_outcome.load(path)) if study_outcome.is_study(path) else [path] for path in paths)
    return list(dict.fromkeys(path for group in jobs for path in group))


def _list(title: str, lines: tuple[str, ...] | list[str]) -> None:
    if lines:
        console.show(title)
    for line in lines:
        console.show(f"  {line}")
