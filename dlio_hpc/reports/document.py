"""Contents of a report as data: headings, facts, tables, sentences and pictures.

The same document is used for three outputs: reports.terminal prints it, reports.page renders it as an HTML file, and
reports.pictures saves its pictures.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlio_hpc.reports.banner import Banner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["", "bold", "dim", "red", "yellow", "green", "blue", "bold green"]


class Lines(NamedTuple):
    """Sentences, one per line. depth: number of columns by which they are indented. is_detail: whether only the HTML
    page shows them.
    """

    lines: Sequence[str]
    style: Style = ""
    depth: int = 0
    is_detail: bool = False


class Facts(NamedTuple):
    """Rows of a label and a value. is_detail: whether only the HTML page shows them."""

    title: str
    rows: Sequence[tuple[str, str]]
    is_detail: bool = False


class Table(NamedTuple):
    """A table. rows: each with one cell per column of the header. styles: one style per row; empty if no row has a
    style. legend: explanation of the columns. has_total: whether the last row is the total. most: maximum number of
    rows on a terminal; None for all rows. is_whole: whether cells are never folded on a terminal. is_detail: whether
    only the HTML page shows the table.
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
    """A picture. stem: file name without its suffix. caption: text below the picture. is_wide: whether it takes the
    full width of the page.
    """

    stem: str
    title: str
    caption: str
    figure: "Figure"
    is_wide: bool


class Pictures(NamedTuple):
    """Pictures that are drawn only if a page or picture files are written, because importing matplotlib is slow. name:
    subdirectory for these pictures if the document has several groups of pictures. draw: function that draws the
    pictures.
    """

    name: str
    draw: Callable[[], Iterable[Picture]]
    is_detail: bool = True


Block = Lines | Facts | Table | Pictures


class Section(NamedTuple):
    """A heading with the blocks below it. is_detail: whether only the HTML page shows the section. page_order: sections
    with lower numbers come first on the page.
    """

    heading: str
    blocks: Sequence[Block]
    is_detail: bool = False
    page_order: int = 0


class Document(NamedTuple):
    """A report. answers: sentences on the bottleneck of the program. lead: stems of the pictures that support these
    sentences; the page shows these pictures beside the sentences. conclusion: last line on a terminal; empty if there
    is none.
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
    """Yield the groups of pictures of a document, in the order in which the page shows them."""
    for section in on_page(document.sections):
        yield from (block for block in section.blocks if isinstance(block, Pictures))


def on_page(sections: Sequence[Section]) -> list[Section]:
    """Return the sections in the order in which the page shows them."""
    return sorted(sections, key=lambda section: section.page_order)
