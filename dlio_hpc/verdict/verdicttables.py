"""Verdicts on a terminal."""

from typing import Any

from rich.text import Text

from dlio_hpc.report import tables
from dlio_hpc.verdict import verdictrows
from dlio_hpc.verdict.comparison import Judgement, Verdict

_COLOURS = {"fine": "green", "improved": "green", "noisy": "yellow", "not comparable": "yellow", "CACHED": "yellow"}


def show(found: Judgement, file: Any) -> None:
    """A line for each verdict under a heading, what there is to say of it, and one that sums up."""
    out = tables.console(file)
    table = tables.table(*verdictrows.HEADER)
    for place in (0, 1, 2, 3):
        table.columns[place].justify = "left"
    for verdict in found.verdicts:
        table.add_row(*_cells(verdict))
    tables.show_whole(out, table)
    out.print()
    for verdict in found.verdicts:
        for line in _remarks(verdict, len(found.verdicts) > 1):
            out.print(line, soft_wrap=True)
    colour = _COLOURS.get(found.outcome, "red")
    out.print(Text.assemble((found.words if len(found.verdicts) > 1 else found.outcome, f"bold {colour}")))


def _cells(verdict: Verdict) -> list[Text]:
    first, *rest = verdictrows.row(verdict)
    return [Text(first, _COLOURS.get(verdict.outcome, "red")), *map(Text, rest)]


def _remarks(verdict: Verdict, several: bool) -> list[str]:
    what = f", {verdictrows.subject(verdict)}" if verdict.key else ""
    whose = f"{verdict.job}{what}: " if several else ""
    told = [f"{whose}{verdict.why}"]
    if verdict.reference is not None and verdict.noise is None:
        told.append("  noise between nights is not known yet: the interval is of repeats alone")
    told += [f"  advice: {words}" for words in verdict.advice]
    return told + [f"  forced: {words}" for words in verdict.overridden]
