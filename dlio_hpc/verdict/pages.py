"""Verdicts and histories as pages."""

from collections.abc import Sequence

from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.report import history_rows, regression_rows, verdict_banners
from dlio_hpc.report.figures import regression_plots
from dlio_hpc.report.figures import run_panels as drawn
from dlio_hpc.report.figures.regression_plots import Series
from dlio_hpc.report.history_rows import Block
from dlio_hpc.report.page import Page, Section, Table
from dlio_hpc.verdict import acceptancepages
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict
from dlio_hpc.verdict.suite import SuiteVerdict


def of_judgement(found: Judgement) -> Page:
    """First what came of it, then a section for each verdict with its picture."""
    jobs = list(dict.fromkeys(verdict.job for verdict in found.verdicts))
    rows = [regression_rows.row(verdict) for verdict in found.verdicts]
    return Page(
        title=", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""),
        subtitle="against its baseline and its history",
        banner=verdict_banners.of_judgement(found),
        facts=[],
        sections=[
            Section("Verdicts", [], [Table("", list(regression_rows.HEADER), rows)], [], []),
            *(_section(verdict) for verdict in found.verdicts),
        ],
    )


def of_suite(verdict: SuiteVerdict) -> list[Section]:
    """The sections of a suite's verdict on the page of its study: baselines, then criteria."""
    rows = [regression_rows.row(one) for one in verdict.judgement.verdicts]
    compared = Section("Against baselines", [], [Table("", list(regression_rows.HEADER), rows)], [], [])
    return [compared, acceptancepages.overview(verdict.acceptance)]


def _section(verdict: Verdict) -> Section:
    facts = [[f"{label}: {text}"] for label, text in regression_rows.facts(verdict)]
    pictures = [drawn.inline(picture._replace(stem="compare")) for picture in regression_plots.of_verdicts([verdict])]
    return Section(
        f"{verdict.job}: {regression_rows.subject(verdict)}, {METRICS[verdict.metric].noun}: {verdict.outcome}",
        list(verdict.warnings),
        [Table("", [""], facts)],
        pictures,
        [],
    )


def of_history(blocks: Sequence[Block], series: Sequence[Series], metric: MetricName, source: str) -> Page:
    """A section for each key: its picture, its nights."""
    pictures = {
        each.key: picture for each, picture in zip(series, regression_plots.of_history(series, metric), strict=True)
    }
    count = len({line.job for block in blocks for line in block.lines})
    return Page(
        title=f"History of {METRICS[metric].noun}",
        subtitle=f"{source}, {count} jobs",
        banner=verdict_banners.of_history(blocks, metric),
        facts=[],
        sections=[
            Section(
                block.title,
                [],
                [],
                [drawn.inline(pictures[block.key]._replace(stem="history"))] if block.key in pictures else [],
                [Table("", list(history_rows.HEADER), [list(history_rows.cells(line)) for line in block.lines])],
            )
            for block in blocks
        ],
    )
