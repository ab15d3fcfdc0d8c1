"""Similarities for a terminal: 100 columns, the measures last, where the eye ends."""

from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dlio_hpc.analysis.similarity.io_profile import Profile
from dlio_hpc.analysis.similarity.similarity import Matrix, Similarity, Yardsticks
from dlio_hpc.report import similarity_banner, tables
from dlio_hpc.report import similarity_rows as rows
from dlio_hpc.report.banner import Banner

_WIDTH = 100
# What columns that are named at their top may take together.
_NAMED = 66
# Letters of a row's name.
_LONGEST = 20


def show(a: Profile, b: Profile, found: Similarity, known: Yardsticks, file: Any) -> None:
    """Who they are, the factors, the measures beside what published pairs score."""
    _print(similarity_banner.of_pair(found, known), _pair(a, b, found, known), file)


def show_matrix(made: Matrix, known: Yardsticks, file: Any) -> None:
    """Each row's pattern similarity to all columns."""
    _print(similarity_banner.of_matrix(made), _matrix(made, known), file)


def _print(opening: Banner, parts: Iterable[RenderableType], file: Any) -> None:
    out = tables.console(file)
    out.width = max(out.width, _WIDTH) if out.is_terminal else _WIDTH
    tables.show_banner(opening, out)
    out.print()
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
    for label, words in rows.distances(a, b, found):
        yield Text(f"{label:7}{words}" if label else words)
    if rows.is_told_apart(found):
        yield Text(rows.APART, "dim")
    yield Text()
    yield Text(rows.verdict(found), "bold")


def _who(letter: str, found: Profile) -> Iterator[RenderableType]:
    yield Text.assemble((f"{letter}  {found.title}", "bold"))
    yield Padding(Text(rows.whose(found)), (0, 0, 0, 3), expand=False)
    for note in found.notes:
        yield Padding(Text(f"note: {note}", "yellow"), (0, 0, 0, 3), expand=False)


def _matrix(made: Matrix, known: Yardsticks) -> Iterator[RenderableType]:
    names = [rows.short(each) for each in made.columns]
    is_named = sum(max(len(name), 5) + 1 for name in names) <= _NAMED and len(set(names)) == len(names)
    yield Text("Pattern similarity; *: nearest", "bold")
    yield _named(made, names) if is_named else _numbered(made)
    yield from (Text(line) for line in ([] if is_named else _numbers(made)))
    for words in rows.matrix_left_out(made):
        yield Text(words, "yellow")
    everybody = {each.title: each for each in (*(row.profile for row in made.rows), *made.columns)}
    for title, each in everybody.items():
        yield from (Text(f"note on {title}: {note}", "yellow") for note in each.notes)
    yield Text(rows.LEGEND, "dim")
    yard = known.pattern
    yield Text(f"Same application: {rows.span(yard.kindred)}. Different ones: {rows.span(yard.strangers)}.", "dim")
    yield Text()
    yield Text(rows.found_own(made), "bold")


def _named(made: Matrix, names: list[str]) -> Table:
    lines = [[_row_name(row.profile), *rows.cells(row), rows.own(row)] for row in made.rows]
    return _table(["", *names, "its own?"], lines, left=(0, len(names) + 1))


def _numbered(made: Matrix) -> Table:
    """Where names of columns would not fit, or are not one each."""
    heads = [str(number) for number in range(1, len(made.columns) + 1)]
    places = {each.title: number for number, each in enumerate(made.columns, 1)}
    lines = [
        [
            f"{places.get(row.profile.title, ''):>2} {_row_name(row.profile)}",
            *(cell.removeprefix("0") for cell in rows.cells(row)),
            rows.nearest(row, heads),
            rows.own(row),
        ]
        for row in made.rows
    ]
    return _table(["", *heads, "nearest", "its own?"], lines, left=(0, len(heads) + 1, len(heads) + 2))


def _row_name(found: Profile) -> str:
    """The end of a long one, where names differ."""
    name = rows.short(found)
    return name if len(name) <= _LONGEST else f"...{name[3 - _LONGEST :]}"


def _numbers(made: Matrix) -> Iterator[str]:
    for number, each in enumerate(made.columns, 1):
        yield f"{number:>2}  {each.title}"


def _table(header: Iterable[str], lines: list[list[str]], left: tuple[int, ...]) -> Table:
    grid = tables.table(*header)
    for place in left:
        grid.columns[place].justify = "left"
    for line in lines:
        grid.add_row(*line)
    return grid
