"""Contents of a report as data: headings, facts, tables, sentences and pictures.

The same page is used for three outputs: reports.terminal prints it, reports.html_page renders it as an HTML file, and
reports.pictures saves its pictures.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dlio_hpc.reports.banner import Banner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Style = Literal["", "bold", "dim", "red", "yellow", "green", "blue", "bold green"]


class Lines(NamedTuple):
    """Sentences, one per line. depth: number of columns by which the lines are indented. is_detail: whether only the
    HTML page shows the lines. is_for_terminal: whether only the terminal shows the lines.
    """

    lines: Sequence[str]
    style: Style = ""
    depth: int = 0
    is_detail: bool = False
    is_for_terminal: bool = False


class Facts(NamedTuple):
    """Rows of a label and a value. is_detail: whether only the HTML page shows the rows."""

    title: str
    rows: Sequence[tuple[str, str]]
    is_detail: bool = False


class Table(NamedTuple):
    """A table. rows: each with one cell per column of the header. styles: one style per row; empty if no row has a
    style. legend: explanation of the columns. has_total: whether the last row is the total. most: maximum number of
    rows on a terminal; None for all rows. is_whole: whether cells are never folded on a terminal. names: indices of the
    columns that hold names; names are never cut. is_detail: whether only the HTML page shows the table. links: for each
    row, relative address of the page to which its first cell links, or an empty string; empty if no row links to a
    page. fold: text on which the reader clicks to unfold the table on the page; empty for a table that is always shown.
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
    links: Sequence[str] = ()
    fold: str = ""
    names: Sequence[int] = ()


class Picture(NamedTuple):
    """A picture. stem: file name without its suffix. caption: text below the picture. is_wide: whether the picture
    takes the full width of the page.
    """

    stem: str
    title: str
    caption: str
    figure: "Figure"
    is_wide: bool


class Pictures(NamedTuple):
    """Pictures that are drawn only if a page or picture files are written, because importing matplotlib is slow. name:
    subdirectory for these pictures if the page has several groups of pictures. draw: function that draws the
    pictures.
    """

    name: str
    draw: Callable[[], Iterable[Picture]]
    is_detail: bool = True


NightState = Literal["good", "regression", "inconclusive", "failed", "not measured"]


class CardLine(NamedTuple):
    """A measurement on a card of a dashboard. spark: small picture of the nights as an SVG element. nights: description
    of this picture. latest: newest value with its unit. change: difference from the baseline. interval: confidence
    interval of this difference.
    """

    state: NightState
    name: str
    spark: str
    nights: str
    latest: str
    change: str
    interval: str


class Card(NamedTuple):
    """A suite or workload on a dashboard. anchor: id on the page. when: when the suite or workload last ran.
    is_current: whether this was last night. links: text and relative address of each page of its newest jobs; the
    address is empty if there is no page. notes: further sentences.
    """

    anchor: str
    state: NightState
    title: str
    when: str
    is_current: bool
    summary: str
    links: Sequence[tuple[str, str]]
    lines: Sequence[CardLine]
    notes: Sequence[str]


class Board(NamedTuple):
    """Cards of a dashboard. Only the HTML page shows them."""

    cards: Sequence[Card]
    is_detail: bool = True


Block = Lines | Facts | Table | Pictures | Board


class Section(NamedTuple):
    """A heading with the blocks below it. is_detail: whether only the HTML page shows the section. page_order: sections
    with lower numbers come first on the page.
    """

    heading: str
    blocks: Sequence[Block]
    is_detail: bool = False
    page_order: int = 0


class Page(NamedTuple):
    """A report. answers: sentences on the bottleneck of the program. lead: stems of the pictures that the page shows
    next to these sentences. conclusion: last line on a terminal; empty if there is none.
    """

    title: str
    subtitle: str
    banner: Banner
    facts: Sequence[Facts]
    sections: Sequence[Section]
    answers: Sequence[str] = ()
    lead: Sequence[str] = ()
    conclusion: str = ""


def pictures(page: Page) -> Iterator[Pictures]:
    """Yield the groups of pictures of a page, in the order in which the page shows them."""
    for section in on_page(page.sections):
        yield from (block for block in section.blocks if isinstance(block, Pictures))


def on_page(sections: Sequence[Section]) -> list[Section]:
    """Return the sections in the order in which the page shows them."""
    return sorted(sections, key=lambda section: section.page_order)
