"""dlio-hpc accept: judge measurements against criteria."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlio_hpc.cli import console
from dlio_hpc.cli.outputs import OUTPUT, Outputs, page_options, write_junit
from dlio_hpc.cli.verbs import RUNS, SETTINGS, argument, option

if TYPE_CHECKING:
    from dlio_hpc.reports.page import Page
    from dlio_hpc.verdict.acceptance import Acceptance


@click.command(context_settings=SETTINGS)
@argument("names", nargs=-1, required=True, metavar="STUDY|JOB|ARCHIVE...")
@option("--criteria", metavar="NAME|FILE", help="Shipped criteria, or a YAML file. Default: the criteria of the suite.")
@option(
    "-o", "--runs", type=RUNS, metavar="DIR", default="dlio-runs", show_default=True, help="Folder that contains STUDY."
)
@option("--junit", type=OUTPUT, metavar="FILE", help="Write the outcomes as JUnit XML, for CI systems.")
@page_options
def accept(names: tuple[str, ...], criteria: str | None, runs: Path, junit: Path | None, outputs: Outputs) -> int:
    """Judge measurements against the criteria in a file. Print the outcome of each criterion, and its evidence.

    The exit code is the first of these that applies: 70 a run met a bug in dlio-hpc, 3 a run is invalid, 6 the
    infrastructure failed, 7 measurements are missing, 4 cached (the storage was not measured), 1 a criterion is not
    met, 5 inconclusive, 2 a criterion limits a metric that the workload never has, 0 all criteria are met.
    """
    from dlio_hpc.records import names as jobs_by_name
    from dlio_hpc.verdict import acceptance, judged_jobs

    judged = judged_jobs.judged([jobs_by_name.place(name, runs) for name in names])
    for fault in (fault for study in judged.studies for fault in study.broken):
        console.say(f"dlio-hpc: left out a job that cannot be read: {fault}")
    accepted = acceptance.of(judged, criteria, console.say)
    if outputs.as_json:
        from dlio_hpc.documents import judgements

        console.print_json(judgements.of_accept(accepted))
    if junit is not None:
        write_junit(junit, f"acceptance by {accepted.criteria.name}", acceptance.cases(accepted))
    outputs.present(lambda: _page(accepted))
    return accepted.exit_code


def _page(accepted: "Acceptance") -> "Page":
    from dlio_hpc.reports import acceptance_page

    return acceptance_page.of_acceptance(accepted)
