"""dlio-hpc compare: compare jobs with their baselines and with earlier jobs."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dlio_hpc.base import units
from dlio_hpc.cli import console
from dlio_hpc.cli.archive_options import archive_options
from dlio_hpc.cli.outputs import OUTPUT, Outputs, page_options, write_junit
from dlio_hpc.cli.verbs import PAGER, SETTINGS, argument, option, parsed, part
from dlio_hpc.results.metrics import METRICS, MetricName

if TYPE_CHECKING:
    from dlio_hpc.reports.page import Page
    from dlio_hpc.verdict.baseline_comparison import Judgement
    from dlio_hpc.verdict.judged_jobs import Selected
    from dlio_hpc.verdict.junit import Case


@click.command(context_settings=SETTINGS)
@argument("names", nargs=-1, required=True, metavar="JOB|STUDY|ARCHIVE...")
@archive_options
@option(
    "--baseline", "against", metavar="JOB|ID", help="Compare with this job or baseline instead of the active baseline."
)
@option(
    "--metric", "metrics", type=click.Choice(list(METRICS)), multiple=True, metavar="NAME",
    help=(f"Metric to compare; repeatable: {', '.join(METRICS)}. Default: the metrics of the job's suite, "
        "or samples_per_s."),
)  # fmt: skip
@option(
    "--tolerance", callback=parsed(part), metavar="SHARE",
    help=("Largest relative drop that is not reported as a regression. Default: the tolerance of the job's "
        "suite, or 2%."),
)  # fmt: skip
@click.option("--force", is_flag=True, help="Compare despite different settings or cached runs; the output flags it.")
@option("--junit", type=OUTPUT, metavar="FILE", help="Write the verdicts as JUnit XML, for CI systems.")
@PAGER
@page_options
def compare(
    names: tuple[str, ...], archive: Path | None, runs: Path, against: str | None, metrics: tuple[MetricName, ...],
    tolerance: float | None, force: bool, junit: Path | None, has_pager: bool,
    outputs: Outputs,
) -> int:  # fmt: skip
    """Compare the repeats of a job with the baseline that has the same key (see dlio-hpc baseline --help), and with
    earlier jobs. Verdicts: pass, improved, regression, inconclusive, not_comparable; for jobs with unusable numbers:
    bug, invalid, infrastructure, incomplete, cached.

    The exit code is that of the most severe verdict. From most to least severe: 70 bug, 3 invalid, 6 infrastructure, 7
    incomplete, 4 cached, 1 regression, 5 inconclusive, 2 not_comparable, 0 pass or improved.
    """
    from dlio_hpc.verdict import comparison, judged_jobs

    started = units.utc_now(fraction=True)
    jobs, missing = judged_jobs.select(names, archive, runs, console.say)
    wanted = comparison.Wanted(tuple(dict.fromkeys(metrics)) or None, tolerance, force)
    judged = comparison.compare(names, jobs, wanted, against, runs, console.say)
    judged = comparison.with_missing(judged, missing)
    if outputs.as_json:
        from dlio_hpc.documents import judgements

        console.print_json(judgements.of_judgement(judged))
    if junit is not None:
        seconds = units.seconds_between(started, units.utc_now(fraction=True))
        write_junit(junit, "dlio-hpc compare", _cases(judged, jobs, seconds))
    outputs.present(lambda: _page(judged), has_pager)
    if len(names) == 2 and against is None:
        earlier, later = map(shlex.quote, names)
        console.say(
            "note: each job is compared with its own baseline. To compare the second with the first: "
            f"dlio-hpc compare {later} --baseline {earlier}"
        )
    for line in missing:
        console.say(f"dlio-hpc: {line}")
    return judged.exit_code


def _cases(judged: "Judgement", jobs: "Sequence[Selected]", seconds: float) -> "list[Case]":
    """Return a JUnit case for each verdict. The duration of a case is the total wall time of the runs of the verdict's
    job. If this job is not in `jobs`, the duration is `seconds`.
    """
    from dlio_hpc.reports import regression_rows

    took = {job.entry.job: sum(run.metrics.get("wall_s", 0.0) for run in job.entry.measurements) for job in jobs}
    return [regression_rows.case(verdict, took.get(verdict.job, seconds)) for verdict in judged.verdicts]


def _page(judged: "Judgement") -> "Page":
    from dlio_hpc.reports import regression_page

    return regression_page.of_judgement(judged)
