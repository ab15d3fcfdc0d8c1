"""A report as one HTML file that needs nothing else: no network, no script, no font."""

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from dlio_hpc.config import shipped
from dlio_hpc.report.banner import Banner

_NUMBER = re.compile(r"[-+]?\d[\d,]*(\.\d+)?(e[-+]?\d+)?( ?(%|x|[A-Za-z]{1,3}(/s)?))?")
_NO_NUMBER = {"", "-", "unknown"}
# Tokens longer than this may break after punctuation, so that they fit a narrow page.
_LONG_TOKEN = 12
_SPACE = re.compile(r"(\s+)")
_PIECE = re.compile(r"[^/,:;=&]*[/,:;=&]+|[^/,:;=&]+")
# Options stay whole: a browser breaks after their dashes.
_OPTION = re.compile(r"[(`]*-{1,2}[A-Za-z][A-Za-z0-9-]{0,30}[`).,;:]*")
_TAG = re.compile(r"<[^<>]*>")
_OWN_NAME = re.compile(r'(\bid="|href="#|url\(#)')


class Table(NamedTuple):
    """rows: as many cells each as header has."""

    title: str
    header: list[str]
    rows: list[list[str]]

    @property
    def right(self) -> list[bool]:
        """Which columns hold numbers and are set flush right."""
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.header)
        return [any(map(_NUMBER.fullmatch, column)) and all(map(_is_number, column)) for column in columns]


class Facts(NamedTuple):
    """Label and value of each."""

    title: str
    rows: list[tuple[str, str]]


class Drawing(NamedTuple):
    """A picture: `svg` an element, trusted as it is. wide: takes a line of its own."""

    stem: str
    title: str
    caption: str
    svg: str
    wide: bool


class Section(NamedTuple):
    """A run, or a log. notes: what a reader must know before believing its figures."""

    heading: str
    notes: list[str]
    summary: list[Table]
    drawings: list[Drawing]
    tables: list[Table]


class Page(NamedTuple):
    """A page, which opens with its banner. answers: sentences on what limited the program; empty where that is unknown.
    pictures: pictures that support the answers and stand beside them.
    """

    title: str
    subtitle: str
    banner: Banner
    facts: list[Facts]
    sections: list[Section]
    answers: Sequence[str] = ()
    pictures: Sequence[Drawing] = ()


def render(page: Page) -> str:
    """The file's text."""
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
    return environment.get_template("report.html.j2").render(page=page)


def _fit(value: Any) -> Any:
    """What HTML forbids in text, control characters and halves of letters, as the sign for that."""
    if not isinstance(value, str) or hasattr(value, "__html__") or value.isprintable():
        return value
    return "".join(
        letter if letter.isprintable() or letter == "\n" else "\N{REPLACEMENT CHARACTER}" for letter in value
    )


def _inline(drawing: Drawing, prefix: str) -> Any:
    """The SVG element with names of its own in this page, named to those who cannot see it."""
    from markupsafe import Markup, escape

    own = _TAG.sub(lambda tag: _OWN_NAME.sub(rf"\1{prefix}-{drawing.stem}-", tag[0]), drawing.svg)
    return Markup(own.replace("<svg ", f'<svg role="img" aria-label="{escape(drawing.title)}" ', 1))


def _breakable(text: str) -> Any:
    """Text whose long tokens, such as paths and keys, break after punctuation only."""
    from markupsafe import Markup

    return Markup("").join(map(_token, _SPACE.split(_fit(text))))


def _token(token: str) -> Any:
    from markupsafe import Markup, escape

    if _OPTION.fullmatch(token):
        return Markup('<span class="whole">{}</span>').format(token)
    return Markup("<wbr>").join(map(escape, _PIECE.findall(token))) if len(token) > _LONG_TOKEN else escape(token)


def _is_number(cell: str) -> bool:
    return cell in _NO_NUMBER or _NUMBER.fullmatch(cell) is not None
