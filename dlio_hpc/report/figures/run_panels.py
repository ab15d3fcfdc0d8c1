"""The pictures of one run: the panels of the DLIO paper (CCGrid 2021) and what explains them."""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.analysis.log.view import View
from dlio_hpc.errors import ConfigError
from dlio_hpc.report.page import Drawing

try:
    from matplotlib.figure import Figure

    from dlio_hpc.report.figures import canvas, distributions, io_costs, time_series
    from dlio_hpc.report.figures.canvas import NARROW, WIDE
except ModuleNotFoundError as fault:
    if not (fault.name or "").startswith("matplotlib"):
        raise
    raise ConfigError("pictures need matplotlib, which is not installed: pip install 'dlio-hpc[report]'") from None

# What draws a view under a title: the figure, or in words why there is none; and what to say below it.
_Painter = Callable[[View, str], tuple[Figure | str, str]]
# Pictures that support the sentence at the top of a page.
FIRST = ("heat_map", "costs")
_PAINTERS: list[tuple[str, str, float, _Painter]] = [
    ("heat_map", "Bytes of each rank over time", NARROW, io_costs.heat_map),
    ("costs", "I/O cost of a rank", NARROW, io_costs.costs),
    ("bandwidth", "Bandwidth over time", WIDE, time_series.bandwidth),
    ("sizes", "Sizes of requests", NARROW, distributions.sizes),
    ("ranks_bandwidth", "Bandwidth of each rank", NARROW, distributions.ranks_bandwidth),
    ("timeline", "Compute and I/O of single ranks", WIDE, time_series.timeline),
    ("steps", "What steps spend their time on", WIDE, time_series.steps),
    ("latency", "How long requests take", NARROW, distributions.latency),
    ("spread", "Spread over ranks", NARROW, distributions.spread),
]


class Picture(NamedTuple):
    """stem: of its files. caption: what stands below it, with figures in it. wide: takes a line of its own."""

    stem: str
    title: str
    caption: str
    figure: Figure
    wide: bool


def draw(view: View) -> Iterator[Picture]:
    """One after the other, in the order in which they are shown. Without steps there is no picture of steps."""
    for stem, title, width, paint in _PAINTERS:
        if stem == "steps" and view.steps is None:
            continue
        with canvas.style():
            figure, caption = paint(view, title)
            if isinstance(figure, str):
                figure = canvas.sentence(view, title, width, figure)
        yield Picture(stem, title, caption, figure, width == WIDE)


def svg(figure: Figure) -> str:
    """The same text for the same figure; no date, no reference to anything outside."""
    file = io.StringIO()
    with canvas.style():
        figure.savefig(file, format="svg", dpi=150, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    text = file.getvalue()
    # A hundredth of a point is enough.
    return re.sub(r' d="[^"]*"', lambda path: re.sub(r"(\.\d\d)\d+", r"\1", path[0]), text[text.index("<svg") :])


def save(pictures: Iterable[Picture], folder: Path) -> int:
    """Write STEM.svg and STEM.png of each picture; return the number of pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    stems = []
    for picture in pictures:
        (folder / f"{picture.stem}.svg").write_text(svg(picture.figure), encoding="utf-8")
        with canvas.style():
            picture.figure.savefig(folder / f"{picture.stem}.png", dpi=150, metadata={"Software": None})
        stems.append(picture.stem)
    return len(stems)


def inline(picture: Picture) -> Drawing:
    """As a page takes it."""
    return Drawing(picture.stem, picture.title, picture.caption, svg(picture.figure), picture.wide)
