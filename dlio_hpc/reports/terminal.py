"""Documents printed on a terminal: first the banner, then facts and sections. Text has 80 to 100 columns; tables have
the width of the terminal, and at least 80 columns.
"""

import os
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from dlio_hpc.base.safe_text import in_ascii, printable
from dlio_hpc.reports import banner
from dlio_hpc.reports.banner import Banner
from dlio_hpc.reports.columns import are_numbers
from dlio_hpc.reports.page import Block, Facts, Lines, Page, Section, Table

_WIDTHS = range(80, 101)
# Width of text and tables that are not printed on a terminal, unless COLUMNS sets another.
_PIPED = 80
# Width of the labels of facts, in characters.
_LABEL = 10
# Width of their labels if these are numbers.
_NUMBER = 4
# Empty columns between the columns of a table.
_GAP = "  "
# Smallest width of a column of names. Longer names have a line of their own.
_NAME = 17
# A text column is wide enough that tokens of up to this number of characters are not folded.
_TOKEN = 24


class SafeConsole(Console):
    """Console that removes control characters from texts; only the console itself adds control characters, for colours.
    table_width: maximum width of tables. is_ascii: whether texts are converted to ASCII.
    """

    table_width: int = _WIDTHS[-1]
    is_ascii: bool = False

    def render(self, renderable: Any, options: Any = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            safe = segment.text if segment.control else self.safe(segment.text)
            yield segment if safe == segment.text else Segment(safe, segment.style)

    def safe(self, text: str) -> str:
        return in_ascii(printable(text)) if self.is_ascii else printable(text)

    def lines(self, lines: Sequence[str]) -> None:
        """Print lines without a style, bypassing rich, which takes a millisecond for ten lines."""
        self.file.write("".join(f"{self.safe(line)}\n" for line in lines))


def show(page: Page, file: Any, output: Any = None) -> None:
    """Print a page, without colours if the output is not a terminal. output: stream that gets the text later; None if
    `file` is this stream.
    """
    out = console(file, output)
    show_banner(page.banner, out)
    for answer in page.answers:
        _print(out, answer)
    out.print()
    _print(out, page.title, "bold")
    if page.subtitle:
        _print(out, page.subtitle)
    for facts in page.facts:
        if not facts.is_detail:
            show_facts(facts, out)
    show_sections(page.sections, out)
    if page.conclusion:
        out.print()
        out.print(Text(page.conclusion, "bold"), soft_wrap=True)


def show_sections(sections: Sequence[Section], out: SafeConsole) -> None:
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


def console(file: Any, output: Any = None) -> SafeConsole:
    """Return a console for text. Its width is the width of the terminal, but at least 80 and at most 100 columns. If
    the output is not a terminal, COLUMNS gives the width; the default is 80 columns. output: as in show().
    """
    output = file if output is None else output
    out = SafeConsole(file=file, highlight=False, markup=False, force_terminal=output.isatty() or None)
    out.is_ascii = is_ascii_only(output)
    is_set = out.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    out.table_width = max(out.width, _WIDTHS[0]) if is_set else _PIPED
    out.width = min(out.table_width, _WIDTHS[-1])
    return out


def is_ascii_only(file: Any) -> bool:
    """Return whether an output can show only ASCII characters, because its encoding has no others, or because the
    terminal is dumb.
    """
    return os.environ.get("TERM") == "dumb" or not _is_unicode(getattr(file, "encoding", None) or "utf-8")


def _is_unicode(encoding: str) -> bool:
    try:
        return "\N{BOX DRAWINGS LIGHT HORIZONTAL}".encode(encoding) != b""
    except (UnicodeEncodeError, LookupError):
        return False


def show_banner(opening: Banner, out: SafeConsole) -> None:
    """Print the state and the text of a banner. If the output is not a terminal, both are on one line, so that this
    line can serve as the subject of a mail.
    """
    colour = banner.COLOURS[opening.state]
    line = Text.assemble((f"{opening.label}: ", f"bold {colour}"), (opening.text, colour))
    out.print(line, soft_wrap=not out.is_terminal)


def _is_empty(block: Block) -> bool:
    return isinstance(block, Lines) and not block.lines


def _block(out: SafeConsole, block: Block) -> None:
    if isinstance(block, Lines):
        for line in block.lines:
            _print(out, line, block.style, block.depth)
    elif isinstance(block, Facts):
        show_facts(block, out)
    elif isinstance(block, Table):
        show_table(block, out)


def show_facts(facts: Facts, out: SafeConsole) -> None:
    """Print facts. Each value is folded beside its label."""
    if facts.title:
        _print(out, facts.title)
    labels = [label for label, _ in facts.rows]
    are_short = all(label[:1].isdigit() for label in labels)
    width = max(_NUMBER, *(len(label) + 2 for label in labels)) if are_short else _LABEL
    for label, value in facts.rows:
        first, *rest = _folded(value, out.width - width) or [""]
        out.print(Text(f"{label:{width}}{first}"), soft_wrap=True)
        for line in rest:
            out.print(Text(" " * width + line), soft_wrap=True)


def show_text(text: str, out: SafeConsole, style: str = "") -> None:
    """Print a paragraph, folded to the width of the console."""
    _print(out, text, style)


def _print(out: SafeConsole, line: str, style: str = "", depth: int = 0) -> None:
    """Print a line, folded to the width of the console. Continuation lines are indented by two additional columns. Long
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


def show_table(table: Table, out: SafeConsole) -> None:
    """Print a table with its title and legend. Text that does not fit is folded. Names are never cut; see _row(). If
    the numbers and the longest words of a table do not fit into the width of the console, the table is printed at its
    full width.
    """
    if table.title:
        _print(out, table.title)
    # Widths are those of the texts that are printed.
    table = table._replace(rows=[list(map(out.safe, row)) for row in table.rows])
    columns = list(zip(table.header, *table.rows[: table.most], strict=True))
    numbers = [are_numbers(cells[1:]) for cells in columns]
    widths = _widths(table, columns, numbers, out.table_width)
    if any(table.header):
        out.print(Text("\n".join(_row(table.header, table, widths, numbers)), "bold"), soft_wrap=True)
        out.lines(["─" * (sum(widths) + len(_GAP) * (len(widths) - 1))])
    for row, style in _rows(table):
        lines = _row(row, table, widths, numbers)
        if style and out.is_terminal:
            out.print(Text("\n".join(lines), style), soft_wrap=True)
        else:
            out.lines(lines)
    if table.most is not None and len(table.rows) > table.most:
        _print(out, f"and {len(table.rows) - table.most} more; --json has all of them", depth=2)
    if table.legend:
        _print(out, table.legend, "dim")


def _widths(table: Table, columns: Sequence[Sequence[str]], numbers: Sequence[bool], room: int) -> list[int]:
    """Return the widths of the columns of a table. If the table is too wide, each column gets its smallest width. The
    remaining width is divided among the columns, beginning with the column that needs the least. columns: cells with
    their headings. room: width of the table.
    """
    natural = [max(map(cell_len, cells)) for cells in columns]
    rest = room - len(_GAP) * (len(columns) - 1)
    if sum(natural) <= rest:
        return natural
    widths = [
        _least(table, number, cells, widest, is_number)
        for number, (cells, widest, is_number) in enumerate(zip(columns, natural, numbers, strict=True))
    ]
    rest = max(0, rest - sum(widths))
    order = sorted(range(len(columns)), key=lambda number: natural[number] - widths[number])
    for place, number in enumerate(order):
        more = min(natural[number] - widths[number], rest // (len(columns) - place))
        widths[number] += more
        rest -= more
    return widths


def _least(table: Table, number: int, cells: Sequence[str], widest: int, is_number: bool) -> int:
    """Return the smallest width of a column of a table. widest: width of its widest cell."""
    if number in table.names:
        return min(widest, _NAME)
    if is_number:
        return max(map(cell_len, (*cells[1:], *cells[0].split())), default=0)
    if table.is_whole:
        return widest
    return min(max(map(cell_len, " ".join(cells).split()), default=0), _TOKEN)


def _row(cells: Sequence[str], table: Table, widths: Sequence[int], numbers: Sequence[bool]) -> list[str]:
    """Return the lines of a row of a table. Numbers are aligned right, text is aligned left. A name that is too long
    for its column ends the first line, so that it can be copied; the cells on its right are on the next lines.
    """
    long = next((number for number in table.names if cell_len(cells[number]) > widths[number]), None)
    if long is not None:
        first = _row([*cells[:long], *("" for _ in cells[long:])], table, widths, numbers)
        rest = _row([*("" for _ in cells[: long + 1]), *cells[long + 1 :]], table, widths, numbers)
        start = sum(widths[:long]) + len(_GAP) * long
        return [f"{first[0]:{start}}{cells[long]}", *first[1:], *(line for line in rest if line)]
    folded = []
    for cell, width in zip(cells, widths, strict=True):
        folded.append([cell] if cell_len(cell) <= width and "\n" not in cell else _fitted(cell, width))
    lines = []
    for place in range(max(map(len, folded), default=0)):
        parts = [part[place] if place < len(part) else "" for part in folded]
        lines.append(_GAP.join(map(_padded, parts, widths, numbers)).rstrip())
    return lines


def _padded(text: str, width: int, is_number: bool) -> str:
    space = " " * (width - cell_len(text))
    return space + text if is_number else text + space


def _fitted(text: str, width: int) -> list[str]:
    """Return the text as lines of at most `width` columns. Words that are longer are broken."""
    if text.isascii():
        return textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    lines = Text(" ".join(text.split())).wrap(Console(), width, overflow="fold")
    return [line.plain.rstrip() for line in lines] or [""]


def _rows(table: Table) -> Iterator[tuple[Sequence[str], str]]:
    shown = table.rows[: table.most]
    for number, row in enumerate(shown):
        is_total = table.has_total and number == len(shown) - 1
        yield row, "bold" if is_total else table.styles[number] if table.styles else ""
