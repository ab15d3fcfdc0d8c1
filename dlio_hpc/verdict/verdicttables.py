"""Verdicts on a terminal."""

from typing import Any

from rich.table import Table
from rich.text import Text

from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.report import regression_rows, tables, verdict_banners
from dlio_hpc.verdict.baseline_comparison import Judgement, Verdict


def show(found: Judgement, file: Any) -> None:
    """Print the banner, then for each job a line for each verdict with its remarks."""
    out = tables.console(file)
    tables.show_banner(verdict_banners.of_judgement(found), out)
    out.print()
    for job in dict.fromkeys(verdict.job for verdict in found.verdicts):
        mine = [verdict for verdict in found.verdicts if verdict.job == job]
        out.print(Text(job, "bold"))
        tables.show_whole(out, _table(mine))
        out.print()
        for verdict in mine:
            for line in _remarks(verdict, len(mine) > 1):
                out.print(line, soft_wrap=True)
        out.print()
    out.print(Text(found.words if len(found.verdicts) > 1 else found.outcome, "bold"))


def _table(verdicts: list[Verdict]) -> Table:
    """Without the job, which stands above it."""
    table = tables.table(*(name for name in regression_rows.HEADER if name != "job"))
    for place in (0, 1, 2):
        table.columns[place].justify = "left"
    for verdict in verdicts:
        table.add_row(*_cells(verdict))
    return table


def _cells(verdict: Verdict) -> list[Text]:
    first, _, *rest = regression_rows.row(verdict)
    return [Text(first, OUTCOMES[verdict.outcome].colour), *map(Text, rest)]


def _remarks(verdict: Verdict, several: bool) -> list[str]:
    whose = f"{regression_rows.subject(verdict)}: " if several and verdict.key else ""
    told = [f"{whose}{verdict.why}"]
    if verdict.ratio is not None and verdict.noise is None:
        told.append("  noise between nights is not known yet: the interval is of repeats alone")
    told += [f"  meanwhile: {line}" for line in verdict.disturbances]
    told += [f"  advice: {words}" for words in verdict.advice]
    return told + [f"  note: {words}" for words in verdict.warnings]
