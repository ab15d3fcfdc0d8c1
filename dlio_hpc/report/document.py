"""A report as data: headings, facts, tables, sentences and pictures, built once for each subject.

report.terminal prints a document, report.page renders it as one HTML file, report.pictures saves its pictures.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlio_hpc.report.banner import Banner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["", "bold", "dim", "red", "yellow", "green", "blue", "bold green"]


class Lines(NamedTuple):
    """Sentences, one a line. depth: columns of indentation. is_detail: on the page only."""

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
    """A table. rows: as many cells each as header has. styles: one for each row, or none. legend: how to read it.
    has_total: the last row sums up the others. most: rows that a terminal shows; None: all. is_whole: a terminal
    folds no cell.
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
    """A picture. stem: of its files. caption: text below it. is_wide: takes a line of its own."""

    stem: str
    title: str
    caption: str
    figure: "Figure"
    is_wide: bool


class Pictures(NamedTuple):
    """Pictures, drawn when a page or files are wanted: matplotlib takes long to import. name: of their folder, where
    several of these are saved.
    """

    name: str
    draw: Callable[[], Iterable[Picture]]
    is_detail: bool = True


Block = Lines | Facts | Table | Pictures


class Section(NamedTuple):
    """Blocks below a heading. is_detail: on the page only. page_order: the page has sections of lower numbers first."""

    heading: str
    blocks: Sequence[Block]
    is_detail: bool = False
    page_order: int = 0


class Document(NamedTuple):
    """A report. answers: sentences on what limited the program. lead: stems of pictures that support the answers and
    stand beside them on the page. conclusion: the last line on a terminal.
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
