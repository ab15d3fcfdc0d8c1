"""Report of jobs that are compared with baselines and earlier jobs, and sections on the verdict of a suite."""

from collections.abc import Iterator, Sequence

from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.reports import acceptance_page, regression_rows, verdict_banners
from dlio_hpc.reports.page import Facts, Lines, Page, Picture, Pictures, Section, Style, Table
from dlio_hpc.results.metrics import METRICS
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict
from dlio_hpc.verdict.suite import SuiteVerdict

# Maximum number of jobs in the title.
_NAMED = 3


def of_judgement(judgement: Judgement) -> Page:
    """Return the report of a comparison: a table of verdicts, followed by each verdict with its reason and picture."""
    verdicts = judgement.verdicts
    jobs = list(dict.fromkeys(verdict.job for verdict in verdicts))
    return Page(
        title=", ".join(jobs[:_NAMED]) + (f" and {len(jobs) - _NAMED} more" if len(jobs) > _NAMED else ""),
        subtitle="against its baseline and its history",
        banner=verdict_banners.of_judgement(judgement),
        facts=[],
        sections=sections(verdicts),
        conclusion=judgement.text if len(verdicts) > 1 else judgement.outcome,
    )


def sections(verdicts: Sequence[Verdict]) -> list[Section]:
    """Return a section with the table of all verdicts, followed by a section for each verdict."""
    return [Section("Verdicts", [_table(verdicts)]), *map(_verdict, verdicts)]


def of_suite(verdict: SuiteVerdict) -> list[Section]:
    """Return the sections on the verdict of a suite in the report of its study: baselines first, then criteria."""
    judged = verdict.judgement.verdicts
    if not verdict.is_first:
        compared = sections(judged)
    elif verdict.effects:
        compared = []
    else:
        command = f"dlio-hpc baseline accept {judged[0].job} --message '...'"
        compared = [
            Section("Baseline", [Lines([f"There is no baseline yet. To make this job the baseline: {command}"])])
        ]
    return [*compared, *acceptance_page.sections(verdict.acceptance)]


def _table(verdicts: Sequence[Verdict]) -> Table:
    styles: list[Style] = [OUTCOMES[verdict.outcome].colour for verdict in verdicts]
    return Table(
        "", regression_rows.HEADER, [regression_rows.row(verdict) for verdict in verdicts], styles, is_whole=True
    )


def _verdict(verdict: Verdict) -> Section:
    heading = f"{verdict.job}: {verdict.subject}, {METRICS[verdict.metric].noun}: {verdict.outcome}"
    remarks = [f"note: {warning}" for warning in verdict.warnings]
    return Section(
        heading,
        [
            Lines([verdict.why]),
            Lines([f"meanwhile: {line}" for line in verdict.disturbances]),
            Lines([f"advice: {line}" for line in verdict.advice]),
            Lines(remarks, "yellow"),
            Facts("", list(regression_rows.facts(verdict)), is_detail=True),
            Pictures("", lambda: _draw(verdict)),
        ],
    )


def _draw(verdict: Verdict) -> Iterator[Picture]:
    from dlio_hpc.reports.figures import regression_plots

    return regression_plots.of_verdict(verdict)
