"""Documents printed on a terminal of 80 to 100 columns: first the banner, then facts and sections."""

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from dlio_hpc.base.safe_text import printable
from dlio_hpc.reports import banner
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.columns import are_numbers
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Section, Table

_WIDTHS = range(80, 101)
# Width of the labels of facts, in characters.
_LABEL = 10
# Maximum width of a table, in characters.
_WIDEST = 1000
# A text column is wide enough that tokens of up to this number of characters are not folded.
_TOKEN = 24


def show(page: Page, file: Any) -> None:
    """Print a page, without colours if `file` is not a terminal."""
    out = console(file)
    show_banner(page.banner, out)
    for answer in page.answers:
        _print(out, answer)
    out.print()
    _print(out, page.title, "bold")
    if page.subtitle:
        _print(out, page.subtitle)
    for facts in page.facts:
        if not facts.is_detail:
            _facts(out, facts)
    show_sections(page.sections, out)
    if page.conclusion:
        out.print()
        out.print(Text(page.conclusion, "bold"), soft_wrap=True)


def show_sections(sections: Sequence[Section], out: Console) -> None:
    """Print sections, each after an empty line. Blocks and sections that are only for the HTML page are left out."""
    for section in sections:
        blocks = [block for block in section.blocks if not block.is_detail and not _is_empty(block)]
        if section.is_detail or not (section.heading or blocks):
            continue
        out.print()
        if section.heading:
            _print(out, section.heading, "bold")
        for number, block in enumerate(blocks):
            if number and not (isinstance(block, Lines) and isinstance(blocks[number - 1], Lines)):
                out.print()
            _block(out, block)


def console(file: Any) -> Console:
    """Return a console with the width of the terminal, but at least 80 and at most 100 columns. If `file` is not a
    terminal, the width is 100 columns.
    """
    out = _SafeConsole(file=file, highlight=False, markup=False)
    out.width = min(max(out.width, _WIDTHS[0]), _WIDTHS[-1]) if out.is_terminal else _WIDTHS[-1]
    return out


class _SafeConsole(Console):
    """Console whose texts have no control characters; its own, for colours, are no part of texts."""

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.text if segment.control else printable(segment.text)
            yield segment if safe == segment.text else Segment(safe, segment.style)


def show_banner(opening: Banner, out: Console) -> None:
    """Print the state and the text of a banner. If the output is not a terminal, both are on one line, so that this
    line can serve as the subject of a mail.
    """
    colour = banner.COLOURS[opening.state]
    line = Text.assemble((f"{opening.label}: ", f"bold {colour}"), (opening.text, colour))
    out.print(line, soft_wrap=not out.is_terminal)


def _is_empty(block: Block) -> bool:
    return isinstance(block, Lines) and not block.lines


def _block(out: Console, block: Block) -> None:
    if isinstance(block, Lines):
        for line in block.lines:
            _print(out, line, block.style, block.depth)
    elif isinstance(block, Facts):
        _facts(out, block)
    elif isinstance(block, Table):
        show_table(block, out)


def _facts(out: Console, facts: Facts) -> None:
    if facts.title:
        _print(out, facts.title)
    for label, value in facts.rows:
        first, *rest = _folded(value, out.width - _LABEL) or [""]
        out.print(Text(f"{label:{_LABEL}}{first}"), soft_wrap=True)
        for line in rest:
            out.print(Text(" " * _LABEL + line), soft_wrap=True)


def _print(out: Console, line: str, style: str = "", depth: int = 0) -> None:
    """Print a line, folded to the width of the console. Continuation lines are indented by two more columns. Long
    tokens, such as paths, are not broken.
    """
    depth += len(line) - len(line.lstrip())
    for number, part in enumerate(_folded(line.strip(), out.width - depth - 2)):
        out.print(Text(" " * (depth + 2 * (number > 0)) + part, style), soft_wrap=True)


def _folded(text: str, width: int) -> list[str]:
    """Return the text as a list of lines of at most `width` characters. A number and its percent sign stay on the same
    line.
    """
    unbroken = text.replace(" %", "\N{NO-BREAK SPACE}%")
    lines = textwrap.wrap(unbroken, width, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}%", " %") for line in lines]


def show_table(table: Table, out: Console) -> None:
    """Print a table with its title and legend. A table that is wider than the console is printed at its full width."""
    if table.title:
        _print(out, table.title)
    grid = _grid(table)
    width = out.width
    size = Measurement.get(out, out.options.update(max_width=_WIDEST), grid)
    out.width = max(width, size.minimum)
    if size.maximum > out.width:
        _narrow(grid, out.width - size.minimum)
    out.print(grid)
    out.width = width
    if table.most is not None and len(table.rows) > table.most:
        _print(out, f"and {len(table.rows) - table.most} more; --json has all of them", depth=2)
    if table.legend:
        _print(out, table.legend, "dim")


def _grid(table: Table) -> Grid:
    """Return a grid with a rule below its header. Numbers are aligned right. Text is aligned left and may be folded."""
    grid = Grid(box=box.SIMPLE_HEAD if any(table.header) else None, padding=(0, 1, 0, 0), pad_edge=False,
                show_edge=False, show_header=any(table.header))  # fmt: skip
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.header)
    for heading, cells in zip(table.header, columns, strict=True):
        is_number = are_numbers(cells)
        tokens = (heading, *cells) if is_number or table.is_whole else " ".join((heading, *cells)).split()
        widest = max(map(cell_len, tokens), default=0)
        least = widest if is_number or table.is_whole else min(widest, _TOKEN)
        grid.add_column(heading, justify="right" if is_number else "left", overflow="fold", min_width=least)
    for row, style in _rows(table):
        grid.add_row(*map(Text, row), style=style)
    return grid


def _narrow(grid: Grid, room: int) -> None:
    """Set the widths of the columns, because rich would make columns narrower than their minimum and cut off the last
    one. room: width in excess of the sum of the minimum widths. The widest columns get it last.
    """
    needs = {}
    for column in grid.columns:
        column.width = column.min_width or 0
        widths = [cell_len(str(cell)) for cell in (column.header, *column.cells)]
        needs[id(column)] = max(widths) - column.width
    left = len(grid.columns)
    for column in sorted(grid.columns, key=lambda column: needs[id(column)]):
        more = min(needs[id(column)], room // left)
        column.width = (column.width or 0) + more
        room, left = room - more, left - 1


def _rows(table: Table) -> Iterator[tuple[Sequence[str], str]]:
    shown = table.rows[: table.most]
    for number, row in enumerate(shown):
        is_total = table.has_total and number == len(shown) - 1
        yield row, "bold" if is_total else table.styles[number] if table.styles else ""
