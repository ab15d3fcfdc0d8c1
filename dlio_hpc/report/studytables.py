"""A study's report for a terminal."""

import textwrap
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dlio_hpc.analysis.study.best_setting import Finding
from dlio_hpc.plan.study import Study
from dlio_hpc.report import ab_rows, bottleneck, study_banner, study_rows, study_text, tables
from dlio_hpc.report.banner import Banner
from dlio_hpc.report.study_report import StudyReport

_WIDTH = 100
# Columns that figures take of it.
_FIGURES = 66
_COLOURS = {"best": "bold green", "same": "green", "worse": ""}


def show(report: StudyReport, file: Any, opening: Banner | None = None) -> None:
    """Print the study's own banner, or `opening`, then each part; at most 100 columns wide, without colour where `file`
    is no terminal.
    """
    out = Console(file=file, highlight=False, markup=False)
    out.width = min(out.width, _WIDTH) if out.is_terminal else _WIDTH
    tables.show_banner(opening or study_banner.of_study(report), out)
    for answer in bottleneck.of_study(report.outcome.jobs):
        out.print(Text(answer))
    out.print(Group(*_report(report, out.width)))
    if (words := study_text.resume(report.outcome)) is not None:
        out.print(Text(words, "yellow"), soft_wrap=True)


def _report(report: StudyReport, width: int) -> Iterator[RenderableType]:
    study = report.outcome.study
    yield Text(study.study, "bold")
    yield from map(Text, study_text.heading(report.outcome))
    yield from (Text(f"Note: {words}", "yellow") for words in study_text.notes(report.outcome))
    if study.is_ab:
        yield Text()
        yield from _sides(report)
    for finding in report.findings:
        yield Text()
        yield from _part(report, finding)
    if report.advice:
        yield Text()
        yield Text("For the application", "bold")
        yield from _indented(report.advice, width)
    if lines := study_text.missing(report.outcome):
        yield Text()
        yield from (Text(line, "yellow") for line in lines)


def _sides(report: StudyReport) -> Iterator[RenderableType]:
    """Two file systems compared."""
    study = report.outcome.study
    yield Text("Old against new", "bold")
    yield from map(Text, ab_rows.sides(report.sides))
    yield from (Text(words, "yellow") for words in ab_rows.cached(report.outcome.measured))
    yield Text(ab_rows.verdict(study, report.effects), "bold")
    tabulated: list[tuple[str, tuple[str, ...], list[list[str]]]] = [
        ("", ab_rows.EFFECTS, list(map(ab_rows.effect, report.effects)))
    ]
    tabulated += [(title, ab_rows.MEMBERS, listed) for side in report.sides for title, listed in ab_rows.members(side)]
    for title, header, listed in tabulated:
        if title:
            yield Text(title)
        grid = tables.table(*header)
        grid.columns[0].justify, grid.columns[0].no_wrap, grid.columns[0].overflow = "left", False, "fold"
        for row in listed:
            grid.add_row(*row)
        yield grid
    yield from map(Text, ab_rows.stragglers(report.sides))


def _indented(lines: list[str], width: int) -> Iterator[RenderableType]:
    """What belongs to a line stays below it when it is folded; words of a command stay whole."""
    for line in lines:
        depth = " " * (len(line) - len(line.lstrip()))
        folded = textwrap.wrap(line.strip(), width - len(depth) - 2, break_long_words=False, break_on_hyphens=False)
        for number, part in enumerate(folded):
            yield Text(depth + "  " * (number > 0) + part)


def _part(report: StudyReport, finding: Finding) -> Iterator[RenderableType]:
    study, measured = report.outcome.study, report.outcome.measured
    if title := study_text.part_title(study, finding):
        yield Text(title, "bold")
    if not finding.points:
        yield Text("Nothing was measured yet.")
        return
    yield _points(study, finding)
    if (more := study_rows.left_out(finding)) is not None:
        yield Text(more)
    if finding.comparisons:
        yield Text(study_text.legend(study, finding), "dim")
    if finding.unusable is not None:
        yield Text(finding.unusable, "yellow")
    for sentences in study_text.conclusions(study, finding):
        yield Text()
        yield from map(Text, sentences)
    disturbed = study_text.disturbances(study, finding, measured)
    yield from map(Text, [*study_text.noise(finding), *disturbed, *study_text.cached(finding)])
    yield from _ranking(finding)
    for scaling in finding.scalings:
        yield Text()
        yield Text(study_text.scaling_title(scaling))
        grid = tables.table(*study_rows.scaling_header())
        for row in study_rows.scaling(scaling):
            grid.add_row(*row)
        yield grid


def _points(study: Study, finding: Finding) -> Table:
    """What varies has columns of its own, or where these are too many, one for all."""
    keys = study_rows.varied(study, finding)
    rows = list(study_rows.points(study, finding))
    header = study_rows.point_header(finding, keys)
    header = [*(name.replace("_", "_\n").replace(".", ".\n") for name in header[: len(keys)]), *header[len(keys) :]]
    widths = [
        max(len(word) for word in (*header[place].splitlines(), *(row[place] for _, row in rows)))
        for place in range(len(keys))
    ]
    fits = sum(widths) + 2 * len(widths) <= _WIDTH - _FIGURES
    if not fits:
        names = study_rows.short(keys)
        header = [",\n".join(names[key] for key in keys), *header[len(keys) :]]
        rows = [(found, [", ".join(row[: len(keys)]), *row[len(keys) :]]) for found, row in rows]
    grid = tables.table(*header)
    if not fits:
        grid.columns[0].justify, grid.columns[0].no_wrap, grid.columns[0].overflow = "left", False, "fold"
    for _, row in rows:
        grid.add_row(*row, style=_COLOURS.get(row[-1], ""))
    return grid


def _ranking(finding: Finding) -> Iterator[RenderableType]:
    if (found := study_rows.ranked(finding)) is None or found.ranking is None:
        return
    if len(found.ranking.effects) > 1:
        yield Text()
        yield Text(study_text.ranking_title(finding, found))
        grid = tables.table(*study_rows.RANKING)
        for place in (0, 1, 2):
            grid.columns[place].justify, grid.columns[place].no_wrap = "left", False
        for row in study_rows.ranking(found.ranking):
            grid.add_row(*row)
        yield grid
    yield from map(Text, study_text.ranking_notes(found.ranking))
