"""Pictures of the requests of two programs. Each picture shows the same distribution of both programs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlio_hpc.base.units import format_size
from dlio_hpc.programs.similarity.io_profile import Profile
from dlio_hpc.programs.similarity.request_distance import Floats, RequestDistribution
from dlio_hpc.reports.figures import canvas, plots
from dlio_hpc.reports.figures.canvas import COLOURS, GREY
from dlio_hpc.reports.page import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Number of bins per octave.
_PER_OCTAVE = 2
_A, _B = COLOURS["read"], COLOURS["written"]


class _Panel(NamedTuple):
    """A picture to draw. stem: file name without its suffix. field: field of Profile that the picture shows. label:
    label of the y axis.
    """

    stem: str
    title: str
    field: str
    label: str


_PANELS = (
    _Panel("sizes", "Request sizes", "sizes", "share of all requests"),
    _Panel("volumes", "Bytes by the size of their requests", "volumes", "share of all bytes"),
    _Panel("jumps", "From the end of a request to the start of the next", "jumps", "share of all requests"),
)


def draw(a: Profile, b: Profile) -> Iterator[Picture]:
    """Yield a picture for each distribution that at least one of the programs has."""
    for panel in _PANELS:
        if any(getattr(profile, panel.field) is not None for profile in (a, b)):
            with canvas.style():
                yield _picture(panel, a, b)


def _picture(panel: _Panel, a: Profile, b: Profile) -> Picture:
    figure, (axes,) = plots.sheet(panel.title, f"{a.title} and {b.title}", 3.2, 1)
    lacking = []
    for letter, profile, colour in (("A", a, _A), ("B", b, _B)):
        distribution: RequestDistribution | None = getattr(profile, panel.field)
        if distribution is not None and len(distribution.at):
            edges, shares = _binned(distribution)
            axes.stairs(
                shares, edges, fill=True, facecolor=f"{colour}55", edgecolor=colour, linewidth=1.2, label=letter
            )
        elif panel.field == "sizes":
            lacking += _marks(axes, letter, profile, colour)
        else:
            lacking.append(f"{letter} has no distribution")
    axes.set(ylim=(0, 1.12), ylabel=panel.label)
    _ticks(axes, panel.field == "jumps")
    canvas.legend(axes, markerscale=1.0)
    sentences = [f"A: {a.title}, {a.source}", f"B: {b.title}, {b.source}", *lacking]
    return Picture(f"similarity-{panel.stem}", panel.title, f"{'. '.join(sentences)}.", figure, True)


def _binned(distribution: RequestDistribution) -> tuple[Floats, Floats]:
    """Divide a distribution into bins that are half an octave wide. Return the edges of the bins in octaves (log2), and
    the share of the distribution in each bin.
    """
    at = np.floor(distribution.at * _PER_OCTAVE + 1e-9)
    low, high = int(at.min()), int(at.max())
    shares = np.bincount((at - low).astype(np.int64), distribution.weight, high - low + 1).astype(np.float64)
    return (np.arange(low, high + 2) / _PER_OCTAVE).astype(np.float64), shares


def _marks(axes: "Axes", letter: str, profile: Profile, colour: str) -> list[str]:
    """Draw lines at the median, mean and largest request size of a program. The distribution of this program is
    unknown. Return a list with one sentence for the caption.
    """
    for name, style in (("median", "-"), ("mean", "--"), ("max", ":")):
        value = getattr(profile, f"request_{name}")
        if value is not None:
            axes.axvline(np.log2(max(value, 1)), color=colour, linestyle=style, linewidth=1.3, label=f"{letter} {name}")
    return [f"{letter} has summary numbers only: lines are its median, mean and largest request"]


def _ticks(axes: "Axes", signed: bool) -> None:
    """Set ticks at powers of two. signed: whether the axis also shows negative values, which jumps can have."""
    low, high = axes.get_xlim()
    low, high = (min(low, -1.0), max(high, 1.0)) if signed else (low - 0.5, max(high, low + 4) + 0.5)
    axes.set_xlim(low, high)
    step = next(step for step in (1, 2, 5, 10, 20) if (high - low) / step <= 14 or step == 20)
    places = np.arange(np.ceil(low / step), np.floor(high / step) + 1) * step
    axes.set_xticks(places, [_tick(place, signed) for place in places])
    axes.set_xlabel("bytes: backwards left of 0, forwards right of 0" if signed else "bytes of one request")
    if signed:
        axes.axvline(0, color=GREY, linewidth=0.6)


def _tick(octave: float, signed: bool) -> str:
    if not signed:
        return format_size(2.0**octave)
    return "0" if octave == 0 else f"{'-' if octave < 0 else ''}{format_size(2.0 ** abs(octave))}"
