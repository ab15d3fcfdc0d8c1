"""The two pictures at the top of a page: bytes of each rank over time, and time in I/O calls."""

import matplotlib
import numpy as np
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from dlio_hpc.analysis.log.view import CallCost, HeatMap, View
from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.reports.figures import canvas
from dlio_hpc.reports.figures.canvas import COLOURS, NARROW

# If the ratio of the highest rate to the lowest is above this, the colour scale is logarithmic.
_LINEAR = 50.0
# Maximum ratio of the highest rate to the lowest on the colour scale. Rates below this range have the colour of its
# lower end.
_WIDEST = 1e4
_PARTS = (("read", "read_s"), ("written", "write_s"), ("metadata", "metadata_s"))
_NAMES = {"read": "read", "written": "write", "metadata": "metadata"}


def heat_map(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw bytes/s of each rank over time."""
    heat = view.heat
    if heat is None:
        return "Bytes of each rank over time were not recorded.", ""
    if not heat.moved.any():
        return canvas.NOTHING, ""
    rates = heat.moved / np.diff(heat.edges)
    name, unit = canvas.rate_unit(float(rates.max()))
    nonzero = rates[rates > 0] / unit
    is_wide = float(nonzero.max()) > _LINEAR * float(nonzero.min())
    low, high = (max(float(nonzero.min()), float(nonzero.max()) / _WIDEST) if is_wide else 0.0), float(nonzero.max())
    figure, (axes,) = canvas.sheet(view, title, NARROW, 3.0)
    colours = matplotlib.colormaps["viridis_r"].with_extremes(bad="white")
    image = axes.imshow(
        np.ma.masked_equal(rates / unit, 0),
        cmap=colours,
        norm=LogNorm(low, high) if is_wide else Normalize(low, high),
        aspect="auto",
        interpolation="nearest",
        extent=(heat.edges[0], heat.edges[-1], heat.ranks - 0.5, -0.5),
    )
    axes.grid(visible=False)
    canvas.numbers(axes, "x")
    canvas.numbers(axes, "y", whole=True)
    if heat.ranks == 1:
        axes.set_yticks([0])
    axes.set(xlabel="time (s)", ylabel="rank", xlim=(min(0.0, heat.edges[0]), max(view.duration_s, heat.edges[-1])))
    plain = FuncFormatter(lambda value, _: canvas.plain(value))
    bar = figure.colorbar(image, cax=figure.add_axes((0, 0, 1, 1)), format=plain)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    bar.set_label(f"{name} per {'rank' if heat.ranks_per_row == 1 else f'group of {heat.ranks_per_row} ranks'}")
    return figure, f"{view.title}: {_heat_caption(heat)}"


def _heat_caption(heat: HeatMap) -> str:
    moved = heat.moved.sum(axis=1)
    width = format_seconds(float(heat.edges[1] - heat.edges[0]))
    row = "rank" if heat.ranks_per_row == 1 else f"group of {heat.ranks_per_row} ranks"
    spread = f"{format_size(int(moved.min()))} to {format_size(int(moved.max()))} per {row}"
    return f"bytes read and written, {spread}. A cell stands for {width} of one {row}; white: no bytes."


def costs(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw, for each I/O interface, the shares of the run time that ranks spend in its read, write and metadata calls,
    as means over the ranks.
    """
    known = [cost for cost in view.costs if any(getattr(cost, field) is not None for _, field in _PARTS)]
    if not known or view.elapsed_s <= 0:
        return "Times of I/O calls were not recorded.", ""
    figure, (axes,) = canvas.sheet(view, title, NARROW, 3.0)
    below = np.zeros(len(known))
    for part, field in _PARTS:
        shares = np.array([100 * (getattr(cost, field) or 0.0) / view.elapsed_s for cost in known])
        if shares.any():
            axes.bar(range(len(known)), shares, 0.6, bottom=below, color=COLOURS[part], label=_NAMES[part])
        below = below + shares
    axes.set_xticks(range(len(known)), [cost.interface for cost in known])
    axes.set_xlim(-0.7, max(len(known), 3) - 0.3)
    axes.set_ylim(0, 1.1 * float(below.max()) or 1.0)
    canvas.numbers(axes, "y")
    axes.set_ylabel("% of the run time")
    canvas.legend(axes)
    return (
        figure,
        f"{view.title}: seconds per rank (mean), of {format_seconds(view.elapsed_s)}: {'; '.join(map(_cost, known))}.",
    )


def _cost(cost: CallCost) -> str:
    parts = []
    for part, field in _PARTS:
        seconds = getattr(cost, field)
        parts.append(f"{_NAMES[part]} {'not recorded' if seconds is None else format_seconds(seconds)}")
    return f"{cost.interface}: {', '.join(parts)}"
