"""A study's report for a terminal."""

import textwrap
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dlio_hpc.analysis.comparison import Comparison, Finding
from dlio_hpc.report import studyrows, tables
from dlio_hpc.report.studyreport import StudyReport
from dlio_hpc.study import Study

_WIDTH = 100
# Columns that figures take of it.
_FIGURES = 66
_COLOURS = {"best": "bold green", "same": "green", "worse": ""}
LEGEND = (
    "Medians of n. x ref: times as good as the reference (ref). best, same: cannot be told from the best; worse: beyond "
    "noise."
)


def show(report: StudyReport, file: Any) -> None:
    """At most 100 columns wide, without colour where `file` is no terminal."""
    out = Console(file=file, highlight=False, markup=False)
    out.width = min(out.width, _WIDTH) if out.is_terminal else _WIDTH
    out.print(Group(*_report(report, out.width)))


def _report(report: StudyReport, width: int) -> Iterator[RenderableType]:
    study = report.outcome.study
    yield Text(study.study, "bold")
    yield from map(Text, studyrows.heading(report.outcome))
    for finding in report.findings:
        yield Text()
        yield from _part(study, finding)
    if report.advice:
        yield Text()
        yield Text("For the application", "bold")
        yield from _indented(report.advice, width)
    if lines := studyrows.missing(report.outcome):
        yield Text()
        yield from (Text(line, "yellow") for line in lines)


def _indented(lines: list[str], width: int) -> Iterator[RenderableType]:
    """What belongs to a line stays below it when it is folded; words of a command stay whole."""
    for line in lines:
        depth = " " * (len(line) - len(line.lstrip()))
        folded = textwrap.wrap(
            line.strip(), width - len(depth) - 2, break_long_words=False, break_on_hyphens=False
        )
        for number, part in enumerate(folded):
            yield Text(depth + "  " * (number > 0) + part)


def _part(study: Study, finding: Finding) -> Iterator[RenderableType]:
    part = study.part(finding.part)
    if title := ": ".join(filter(None, (part.name, part.title))):
        yield Text(title, "bold")
    if not finding.points:
        yield Text("Nothing was measured yet.")
        return
    yield _points(study, finding)
    if (more := studyrows.left_out(finding)) is not None:
        yield Text(more)
    if finding.comparisons:
        yield Text(LEGEND, "dim")
        unusual = "" if part.is_default else " The workload's own setting was not measured; the reference is the first."
        yield Text(f"Compared by {studyrows.METRICS[finding.metric]}, ratios with drift taken out.{unusual}", "dim")
    if finding.unusable is not None:
        yield Text(finding.unusable, "yellow")
    for found in finding.comparisons:
        yield Text()
        yield from map(Text, studyrows.verdict(study, finding, found))
    yield from map(Text, studyrows.noise(finding))
    yield from _ranking(finding)
    for scaling in finding.scalings:
        yield Text()
        yield Text(studyrows.scaling_title(scaling))
        grid = tables.table(*studyrows.scaling_header(scaling))
        for row in studyrows.scaling(scaling):
            grid.add_row(*row)
        yield grid


def _points(study: Study, finding: Finding) -> Table:
    """What varies has columns of its own, or where these are too many, one for all."""
    keys = studyrows.varied(study, finding)
    rows = list(studyrows.points(study, finding))
    header = studyrows.point_header(study.part(finding.part), finding.metric, keys)
    header = [*(name.replace("_", "_\n").replace(".", ".\n") for name in header[: len(keys)]), *header[len(keys) :]]
    widths = [
        max(len(word) for word in (*header[place].splitlines(), *(row[place] for _, row in rows)))
        for place in range(len(keys))
    ]
    fits = sum(widths) + 2 * len(widths) <= _WIDTH - _FIGURES
    grid = tables.table(*(header if fits else ["setting", *header[len(keys) :]]))
    if not fits:
        grid.columns[0].justify, grid.columns[0].no_wrap, grid.columns[0].overflow = "left", False, "fold"
    for found, row in rows:
        cells = row if fits else [studyrows.setting(study, found.point), *row[len(keys) :]]
        grid.add_row(*cells, style=_COLOURS.get(row[-1], ""))
    return grid


def _ranking(finding: Finding) -> Iterator[RenderableType]:
    """Of the most ranks, where there are several numbers of them."""
    found: Comparison | None = next((each for each in reversed(finding.comparisons) if each.ranking is not None), None)
    if found is None or found.ranking is None:
        return
    several = len(finding.comparisons) > 1
    where = f" on {found.nodes} node(s) x {found.ranks_per_node} ranks" if several else ""
    if len(found.ranking.effects) > 1:
        yield Text()
        yield Text(f"What matters{where}: means over all settings of the others")
        grid = tables.table(*studyrows.RANKING)
        for place in (0, 1, 2):
            grid.columns[place].justify, grid.columns[place].no_wrap = "left", False
        for row in studyrows.ranking(found.ranking):
            grid.add_row(*row)
        yield grid
    yield from map(Text, studyrows.ranking_notes(found.ranking))
