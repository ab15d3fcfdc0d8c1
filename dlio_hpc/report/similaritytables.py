"""Similarities for a terminal: 100 columns, the measures last, where the eye ends."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlio_hpc.analysis.profile import Profile
from dlio_hpc.analysis.similarity import Matrix, Similarity, Yardsticks
from dlio_hpc.report import similarityrows as rows
from dlio_hpc.report import tables

_WIDTH = 100
# What columns that are named at their top may take together.
_NAMED = 62


def show(a: Profile, b: Profile, found: Similarity, known: Yardsticks, file: Any) -> None:
    """Who they are, the factors, the measures beside what published pairs score."""
    _print(_pair(a, b, found, known), file)


def show_matrix(made: Matrix, known: Yardsticks, file: Any) -> None:
    """Each row's pattern similarity to all columns."""
    _print(_matrix(made, known), file)


def _print(parts: Iterable[RenderableType], file: Any) -> None:
    out = tables.console(file)
    out.width = max(out.width, _WIDTH) if out.is_terminal else _WIDTH
    for part in parts:
        if isinstance(part, Table):
            tables.show_whole(out, part)
        else:
            out.print(part)


def _pair(a: Profile, b: Profile, found: Similarity, known: Yardsticks) -> Iterator[RenderableType]:
    for letter, each in (("A", a), ("B", b)):
        yield from _who(letter, each)
    yield Text()
    yield _table(rows.FACTOR_HEADER, rows.factors(found), left=(0, 4))
    for line in rows.left_out(found):
        yield Text(line, "yellow")
    yield Text()
    yield _table(rows.MEASURE_HEADER, rows.measures(found, known), left=(0,))
    yield Text(rows.LEGEND, "dim")
    yield Text()
    for label, words in rows.distances(found):
        yield Text(f"{label:7}{words}")
    yield Text(rows.APART, "dim")
    yield Text()
    yield Text(rows.verdict(found), "bold")


def _who(letter: str, found: Profile) -> Iterator[RenderableType]:
    yield Text.assemble((f"{letter}  {found.title}", "bold"))
    yield Padding(Text(rows.whose(found)), (0, 0, 0, 3))
    for note in found.notes:
        yield Padding(Text(f"note: {note}", "yellow"), (0, 0, 0, 3))


def _matrix(made: Matrix, known: Yardsticks) -> Iterator[RenderableType]:
    names = [rows.short(each) for each in made.columns]
    are_named = sum(max(len(name), 5) + 1 for name in names) <= _NAMED and len(set(names)) == len(names)
    heads = names if are_named else [str(number) for number in range(1, len(names) + 1)]
    yield Text("Pattern similarity; *: nearest", "bold")
    table = _table(
        ("", *heads, "nearest", "its own?"),
        [
            [rows.short(row.profile), *rows.cells(row), rows.nearest(row, made.columns), rows.own(row)]
            for row in made.rows
        ],
        left=(0, len(heads) + 1, len(heads) + 2),
    )
    for place in (0, len(heads) + 1):
        table.columns[place].no_wrap, table.columns[place].overflow = False, "fold"
    yield table
    yield from _legend(made, are_named)
    yield Text(rows.LEGEND, "dim")
    yard = known.pattern
    yield Text(f"Same application: {rows.span(yard.kindred)}. Different ones: {rows.span(yard.strangers)}.", "dim")
    yield Text()
    yield Text(rows.found_own(made), "bold")


def _legend(made: Matrix, are_named: bool) -> Iterator[RenderableType]:
    """Who is who, and what to know of them."""
    for number, each in enumerate(made.columns, 1):
        if not are_named:
            yield Text(f"{number:>2}  {each.title}")
        for note in each.notes:
            yield Padding(Text(f"note on {each.title}: {note}", "yellow"), (0, 0, 0, 4))
    for each in (row.profile for row in made.rows if row.profile not in made.columns):
        for note in each.notes:
            yield Padding(Text(f"note on {each.title}: {note}", "yellow"), (0, 0, 0, 4))


def _table(header: Iterable[str], lines: list[list[str]], left: tuple[int, ...]) -> Table:
    grid = tables.table(*header)
    for place in left:
        grid.columns[place].justify = "left"
    for line in lines:
        grid.add_row(*line)
    return grid
