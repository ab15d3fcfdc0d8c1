"""dlio-hpc site-report: make a static site of all jobs."""

from pathlib import Path

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.archive_options import archive_options
from dlio_hpc.cli.verbs import FOLDER, JSON, SETTINGS, argument, option
from dlio_hpc.documents.files import SiteReportDocument


@click.command(context_settings=SETTINGS)
@argument("folder", type=FOLDER, metavar="DIR")
@archive_options
@option("--anew", "is_anew", is_flag=True, help="Rebuild all pages, for example after an upgrade of dlio-hpc.")
@JSON
@option("--quiet", is_flag=True, help="Print faults only.")
def site_report(folder: Path, archive: Path | None, runs: Path, is_anew: bool, as_json: bool, quiet: bool) -> int:
    """Make a static web site of all archived jobs. DIR/index.html is the dashboard of the facility, DIR/jobs/JOB.html
    the report of a job, and DIR/studies/STUDY.html the report of a study or suite.

    A page is rebuilt if one of its archives is newer. Nothing is removed. Archives that cannot be read are listed.

    The exit code is 0 if all pages are made; otherwise, it is the exit code of the most severe fault of an archive.
    """
    from dlio_hpc.reports import web_site
    from dlio_hpc.verdict import judged_jobs

    _refuse_input(folder)
    archives = judged_jobs.folder(archive, runs)
    judged_jobs.refresh(archives, lambda _: None)
    made = web_site.make(folder, archives, is_anew, console.reporter(quiet))
    for item in made.unread:
        console.say(f"dlio-hpc: {item.name}: {item.why}")
    if as_json:
        console.print_json(SiteReportDocument(str(folder), list(map(str, made.written)), made.kept))
    if not quiet:
        console.say(f"{folder / web_site.INDEX}: {len(made.written)} pages made, {made.kept} up to date")
    return made.exit_code


def _refuse_input(folder: Path) -> None:
    """Raise a usage error if the folder for the web site holds archives, jobs or datasets."""
    from dlio_hpc.dataset import folder_kinds

    what = folder_kinds.described(folder)
    if what is not None:
        option = {"a folder of archives": "--archive", "a folder of jobs": "--runs"}.get(what)
        advice = f"; give the folder that is read with an option: site-report DIR {option} {folder}" if option else ""
        raise click.UsageError(f"{folder} is {what}, but DIR is the folder that the web site is written to{advice}")
