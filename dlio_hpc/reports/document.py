"""A report as data: headings, facts, tables, sentences and pictures, built once for each subject.

report.terminal prints a document, report.page renders it as one HTML file, report.pictures saves its pictures.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlio_hpc.reports.banner import Banner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["", "bold", "dim", "red", "yellow", "green", "blue", "bold green"]


class Lines(NamedTuple):
    """Sentences, one per line. depth: columns of indentation. is_detail: on the page only."""

    lines: Sequence[str]
    style: Style = ""
    depth: int = 0
    is_detail: bool = False


class Facts(NamedTuple):
    """Labels and values."""

    title: str
    rows: Sequence[tuple[str, str]]
    is_detail: bool = False


class Table(NamedTuple):
    """A table. rows: one cell per column of header. styles: one per row, or none. legend: how to read the table.
    has_total: the last row is the total. most: rows that a terminal shows; None: all. is_whole: a terminal does not
    fold cells.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    styles: Sequence[Style] = ()
    legend: str = ""
    has_total: bool = False
    most: int | None = None
    is_whole: bool = False
    is_detail: bool = False


class Picture(NamedTuple):
    """A picture. stem: of its file names. caption: text below it. is_wide: takes the full width."""

    stem: str
    title: str
    caption: str
    figure: "Figure"
    is_wide: bool


class Pictures(NamedTuple):
    """Pictures, drawn only when a page or files are written, because matplotlib takes long to import. name: of their
    directory, where several of these are saved.
    """

    name: str
    draw: Callable[[], Iterable[Picture]]
    is_detail: bool = True


Block = Lines | Facts | Table | Pictures


class Section(NamedTuple):
    """Blocks below a heading. is_detail: on the page only. page_order: sections with lower numbers come first on the
    page.
    """

    heading: str
    blocks: Sequence[Block]
    is_detail: bool = False
    page_order: int = 0


class Document(NamedTuple):
    """A report. answers: sentences on what limited the program. lead: stems of the pictures that support the answers
    and stand beside them on the page. conclusion: the last line on a terminal.
    """

    title: str
    subtitle: str
    banner: Banner
    facts: Sequence[Facts]
    sections: Sequence[Section]
    answers: Sequence[str] = ()
    lead: Sequence[str] = ()
    conclusion: str = ""


def pictures(document: Document) -> Iterator[Pictures]:
    """Return the groups of pictures in a document, in the order of the page."""
    for section in on_page(document.sections):
        yield from (block for block in section.blocks if isinstance(block, Pictures))


def on_page(sections: Sequence[Section]) -> list[Section]:
    """Return the sections in the order of the page."""
    return sorted(sections, key=lambda section: section.page_order)
