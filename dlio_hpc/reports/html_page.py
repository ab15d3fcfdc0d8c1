"""Documents as single HTML files that need no network, no scripts and no fonts."""

import re
from typing import Any, NamedTuple

from dlio_hpc.config import shipped
from dlio_hpc.reports import pictures
from dlio_hpc.reports.columns import are_numbers
from dlio_hpc.reports.page import Board, Card, Lines, NightState, Page, Picture, Pictures, Table, on_page

# Number of characters above which a token may break after punctuation, so that it fits on a narrow page.
_LONG_TOKEN = 12
_SPACE = re.compile(r"(\s+)")
_PIECE = re.compile(r"[^/,:;=&]*[/,:;=&]+|[^/,:;=&]+")
# Command-line options. They must not be broken; a browser would break them after their dashes.
_OPTION = re.compile(r"[(`]*-{1,2}[A-Za-z][A-Za-z0-9-]{0,30}[`).,;:]*")
_TAG = re.compile(r"<[^<>]*>")
_OWN_NAME = re.compile(r'(\bid="|href="#|url\(#)')


class Drawing(NamedTuple):
    """A picture on the page. svg: its SVG element, which is inserted without escaping. prefix: text put before all
    names in the SVG element, so that no two pictures on the page use the same name.
    """

    title: str
    caption: str
    svg: str
    is_wide: bool
    prefix: str


# Element by which a page of a site is recognised.
SITE_MARK = '<meta name="generator" content="dlio-hpc site-report">'
_SYMBOLS: dict[NightState, str] = {
    "failed": "✗", "regression": "▼", "not measured": "○", "inconclusive": "?", "good": "✓",
}  # fmt: skip


def render(page: Page, home: str | None = None) -> str:
    """Return the text of the HTML file. home: relative address of the first page of the site that the page belongs to;
    empty for the first page itself; None if the page belongs to no site.
    """
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped.root() / "templates"),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_fit,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["inline"] = _inline
    environment.filters["breakable"] = _breakable
    lead, sections = _drawn(page)
    template = environment.get_template("report.html.j2")
    return template.render(
        page=page, lead=lead, sections=sections, are_numbers=_are_numbers, home=home, site_mark=SITE_MARK,
        symbols=_SYMBOLS, cards=_cards(page), trusted=_trusted,
    )  # fmt: skip


def _cards(page: Page) -> list[Card]:
    """Return the cards of all sections, the most severe first."""
    boards = [block for section in page.sections for block in section.blocks if isinstance(block, Board)]
    return sorted((card for board in boards for card in board.cards), key=lambda card: list(_SYMBOLS).index(card.state))


def _trusted(svg: str) -> Any:
    """Return an SVG element as it is."""
    from markupsafe import Markup

    return Markup(svg)


def _are_numbers(table: Table) -> list[bool]:
    """Return, for each column, whether it contains numbers."""
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.header)
    return [are_numbers(column) for column in columns]


def _drawn(page: Page) -> tuple[list[Drawing], list[tuple[str, list[tuple[str, Any]]]]]:
    """Return two values: the pictures that are shown next to the answers, and the sections. A section is a pair of its
    heading and its blocks. A block is a pair of its kind and its content. Sections without blocks are left out.
    """
    lead: list[Drawing] = []
    sections: list[tuple[str, list[tuple[str, Any]]]] = []
    for number, section in enumerate(on_page(page.sections), 1):
        blocks: list[tuple[str, Any]] = []
        for block in section.blocks:
            if isinstance(block, Pictures):
                drawings = [_drawing(picture, f"s{number}") for picture in block.draw()]
                if not lead and page.lead:
                    lead = [drawing for stem, drawing in drawings if stem in page.lead]
                    drawings = [(stem, drawing) for stem, drawing in drawings if stem not in page.lead]
                if drawings:
                    blocks.append(("pictures", [drawing for _, drawing in drawings]))
            elif not isinstance(block, Lines) or (block.lines and not block.is_for_terminal):
                blocks.append((type(block).__name__.lower(), block))
        if blocks:
            sections.append((section.heading, blocks))
    return lead, sections


def _drawing(picture: Picture, prefix: str) -> tuple[str, Drawing]:
    text = pictures.svg(picture.figure)
    return picture.stem, Drawing(picture.title, picture.caption, text, picture.is_wide, f"{prefix}-{picture.stem}")


def _fit(value: Any) -> Any:
    """Return a string in which U+FFFD replaces characters that must not appear in HTML, such as control characters and
    surrogates. Return values that are not strings, or that are marked as safe, unchanged.
    """
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in value
    )


def _inline(drawing: Drawing) -> Any:
    """Return the SVG element of a picture with names that are unique on the page, and with a label for screen
    readers.
    """
    from markupsafe import Markup, escape

    own = _TAG.sub(lambda tag: _OWN_NAME.sub(rf"\1{drawing.prefix}-", tag[0]), drawing.svg)
    return Markup(own.replace("<svg ", f'<svg role="img" aria-label="{escape(drawing.title)}" ', 1))


def _breakable(text: str) -> Any:
    """Return the text as HTML in which long tokens, such as paths and keys, may break only after punctuation."""
    from markupsafe import Markup

    return Markup("").join(map(_token, _SPACE.split(_fit(text))))


def _token(token: str) -> Any:
    from markupsafe import Markup, escape

    if _OPTION.fullmatch(token):
        return Markup('<span class="whole">{}</span>').format(token)
    return Markup("<wbr>").join(map(escape, _PIECE.findall(token))) if len(token) > _LONG_TOKEN else escape(token)
