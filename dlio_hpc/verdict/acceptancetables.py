"""An acceptance for a terminal: every criterion in a row, then what is not met with its evidence, then one line."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.report import tables, verdict_banners
from dlio_hpc.verdict import acceptance
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.criterion_result import Check, advice_lines, evidence_lines

_WIDTH, _MOST_LINES = 100, 12
HEADER = ("verdict", "criterion", "asked", "found", "runs")


def show(found: Acceptance, file: Any) -> None:
    """At least 100 columns wide, the last line whole, without colour where `file` is no terminal."""
    out = tables.console(file)
    out.width = max(out.width, _WIDTH) if out.is_terminal else _WIDTH
    tables.show_banner(verdict_banners.of_acceptance(found), out)
    out.print()
    for part in _parts(found):
        out.print(part)
    out.print(Text(acceptance.summary(found), "bold"), soft_wrap=True)


def row(check: Check) -> list[str]:
    """As HEADER names them."""
    return [check.outcome, check.title, check.asked, check.found, str(check.runs) if check.runs else ""]


def _parts(found: Acceptance) -> Iterator[RenderableType]:
    for group in found.groups:
        yield Text(group or "All of it", "bold")
        yield _table(found.of(group))
        yield Text()
    for check in found.checks:
        # Why figures are cached is said once, of the storage.
        if check.outcome not in ("pass", "skipped") and not (check.outcome == "cached" and check.metric):
            yield from _why(check)
            yield Text()


def _table(checks: list[Check]) -> Table:
    grid = tables.table(*HEADER)
    for place in (1, 2, 3):
        grid.columns[place].no_wrap, grid.columns[place].overflow = False, "fold"
    for column in grid.columns[:-1]:
        column.justify = "left"
    for check in checks:
        verdict, *rest = row(check)
        grid.add_row(Text(verdict, OUTCOMES[check.outcome].colour), *rest)
    return grid


def _why(check: Check) -> Iterator[RenderableType]:
    where = f" ({check.group})" if check.group else ""
    yield Text(f"{check.outcome}: {check.title}{where}: {check.asked}", "bold")
    yield _line(check.words, 2)
    lines = evidence_lines(check)
    yield from (_line(line, 4) for line in lines[:_MOST_LINES])
    if len(lines) > _MOST_LINES:
        yield _line(f"and {len(lines) - _MOST_LINES} more; --json has them all", 4)
    yield from (_line(line, 2) for line in advice_lines(check))


def _line(text: str, depth: int) -> RenderableType:
    """What is folded stays below it."""
    return Padding(Text(text), (0, 0, 0, depth), expand=False)
