"""Style, colours, figures and scales of pictures. Pictures of the same data are identical byte by byte."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import matplotlib.style
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from dlio_hpc.analysis.log.view import Floats, View
from dlio_hpc.base.safe_text import single_line
from dlio_hpc.base.units import format_size
from dlio_hpc.reports.figures.margins import Stacked

# The palette of Okabe and Ito, which colour-blind readers can distinguish.
COLOURS = {
    "read": "#0072B2",
    "written": "#D55E00",
    "compute": "#009E73",
    "wait": "#E69F00",
    "sync": "#CC79A7",
    "I/O": "#3F4A5A",
    "metadata": "#CC79A7",
}
INK, GREY, RULE = "#222222", "#6A6A6A", "#E4E4E4"
# Colours of lines, in the order in which they are used.
LINES = [COLOURS["read"], COLOURS["written"], COLOURS["compute"], COLOURS["sync"], COLOURS["wait"], "#56B4E9", INK]
# Widths of pictures in inches. A row of the page holds one wide picture or two narrow ones.
WIDE, NARROW = 9.2, 4.55
NOTHING = "Nothing was read or written."

# Text in SVG files stays text, which is small, sharp and searchable. A viewer that lacks the font DejaVu uses Verdana,
# which is as wide.
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "dlio-hpc",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana"],
    "font.size": 8.5,
    "text.parse_math": False,
    "text.color": INK,
    "axes.edgecolor": GREY,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.handlelength": 1.0,
    "legend.handleheight": 0.8,
    "legend.columnspacing": 1.2,
    "legend.borderaxespad": 0.3,
}
_SECONDS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_BYTES = (("TiB", 2.0**40), ("GiB", 2.0**30), ("MiB", 2.0**20), ("KiB", 2.0**10), ("B", 1.0))


@contextmanager
def style() -> Iterator[None]:
    """Apply the style in a `with` block, regardless of the user's matplotlibrc. Warnings about glyphs that the font
    lacks are suppressed, because viewers of the SVG file may have other fonts.
    """
    with matplotlib.style.context(["default", _STYLE]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def sheet(
    view: View, title: str, width: float, height: float, rows: Sequence[float] = (1,)
) -> tuple[Figure, list[Axes]]:
    """Return a figure of width x height inches, with axes stacked vertically. rows: relative heights of the axes."""
    figure = Figure(figsize=(width, height), layout=Stacked(rows))
    axes = figure.subplots(len(rows), 1, squeeze=False, gridspec_kw={"height_ratios": list(rows)})[:, 0]
    axes[0].set_title(title)
    source = printable(f"{view.title}, {view.source}", 100 if width > NARROW else 62)
    figure.supxlabel(source, x=0.995, ha="right", fontsize=7, color=GREY)
    return figure, list(axes)


def sentence(view: View, title: str, width: float, text: str) -> Figure:
    """Return a figure that shows only a sentence, for use instead of a picture if there are no data."""
    figure, (axes,) = sheet(view, title, width, 1.2)
    axes.axis("off")
    axes.text(0, 0.6, text, transform=axes.transAxes, color=GREY, va="center")
    return figure


def printable(text: str, most: int) -> str:
    """Replace unprintable characters, which XML may forbid, with U+FFFD. Cut the result to at most `most` characters,
    and return it.
    """
    clean = single_line(text, "\N{REPLACEMENT CHARACTER}")
    return clean if len(clean) <= most else clean[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def legend(axes: Axes, markerscale: float = 2) -> None:
    """Draw the legend above the axes and next to the title, where the legend covers no data."""
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        across, where = len(labels), (1.0, 1.0)
        axes.legend(handles, labels, loc="lower right", bbox_to_anchor=where, ncols=across, markerscale=markerscale)


def area(axes: Axes, edges: Floats, heights: npt.NDArray[np.number], label: str) -> None:
    """Draw a filled step curve over bins, in a colour so light that an area behind the curve stays visible."""
    colour = COLOURS[label]
    axes.stairs(heights, edges, fill=True, facecolor=f"{colour}66", edgecolor=colour, linewidth=0.8, label=label)


def boxes(axes: Axes, left: Floats, right: Floats, bottom: float, top: Floats | float, colour: str) -> None:
    """Draw filled boxes as a single path, which makes the file five times smaller than one path per box. left, right:
    horizontal ends of the boxes, shape (boxes,). bottom: lower end of all boxes. top: upper end, either one value for
    all boxes or one per box.
    """
    low, high = np.full(len(left), bottom), np.broadcast_to(top, left.shape)
    corners = [[left, low], [left, high], [right, high], [right, low], [left, low]]
    vertices = np.moveaxis(np.array(corners), 2, 0).reshape(-1, 2)
    codes = np.tile([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], len(left))
    axes.add_patch(PathPatch(Path(vertices, codes), facecolor=colour, linewidth=0))


def numbers(axes: Axes, names: str = "xy", whole: bool = False) -> None:
    """Show plain numbers with thousands separators on linear axes. names: the axes: "x", "y" or "xy". whole: whether
    only whole numbers get ticks.
    """
    steps = [1, 2, 5, 10] if whole else [1, 2, 2.5, 5, 10]
    for name in names:
        axis = axes.xaxis if name == "x" else axes.yaxis
        axis.set_major_locator(MaxNLocator(5 if name == "y" else 8, steps=steps, integer=whole))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def count_scale(axes: Axes, counts: npt.NDArray[np.number], label: str) -> None:
    """Make the y axis a scale for counts: linear, or logarithmic if the largest count is more than 200 times the
    smallest.
    """
    nonzero = counts[counts > 0]
    numbers(axes, "y", whole=True)
    axes.set_ylabel(label)
    axes.set_ylim(0, 1.08 * float(nonzero.max()))
    if nonzero.max() > 200 * nonzero.min():
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_ylim(0.5, 2 * float(nonzero.max()))
        axes.set_ylabel(f"{label} (log scale)")


def log_bytes(axes: Axes, least: float, most: float) -> None:
    """Make the x axis logarithmic from `least` to `most` bytes, with ticks at powers of two. The axis covers at least
    four powers of two.
    """
    low, high = _at_least(np.log2(least), np.log2(most), 4)
    _log_x(axes, 2, low, high)
    step = next(step for step in (1, 2, 5, 10, 20) if (high - low) / step <= 6 or step == 20)
    powers = np.arange(max(0, np.ceil(low / step)), np.floor(high / step) + 1) * step
    axes.set_xticks(2.0**powers, [format_size(2.0**power) for power in powers])


def log_seconds(axes: Axes, least: float, most: float) -> None:
    """Make the x axis logarithmic from `least` to `most` seconds, with ticks at powers of ten. The axis covers at least
    two powers of ten.
    """
    low, high = _at_least(np.log10(least), np.log10(most), 2)
    _log_x(axes, 10, low, high)
    powers = np.arange(np.ceil(low), np.floor(high) + 1)
    units = [seconds_unit(1.001 * 10.0**power) for power in powers]
    axes.set_xticks(
        10.0**powers, [f"{10.0**power / unit:.0f} {name}" for power, (name, unit) in zip(powers, units, strict=True)]
    )


def _log_x(axes: Axes, base: int, low: float, high: float) -> None:
    axes.set_xscale("log", base=base)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlim(float(base) ** low, float(base) ** high)


def _at_least(low: float, high: float, width: float) -> tuple[float, float]:
    """Return the range `low` to `high`, widened to at least `width` and with a margin added at both ends."""
    missing = max(0.0, width - (high - low)) / 2
    return low - missing - 0.1, high + missing + 0.1


def rate_unit(most: float) -> tuple[str, float]:
    """Return the unit for rates of up to `most` bytes/s: its name, and its value in bytes/s."""
    return ("GB/s", 1e9) if most >= 2e10 else ("MB/s", 1e6)


def seconds_unit(most: float) -> tuple[str, float]:
    """Return the unit for times of up to `most` seconds: its name, and its value in seconds."""
    return next((unit for unit in _SECONDS if most >= unit[1]), _SECONDS[0] if not most else _SECONDS[-1])


def bytes_unit(most: float) -> tuple[str, float]:
    """Return the unit for sizes of up to `most` bytes: its name, and its value in bytes."""
    return next((unit for unit in _BYTES if most >= unit[1]), _BYTES[-1])


def plain(value: float) -> str:
    """Return a number as text with three significant digits, or with all digits before the decimal point if there are
    more than three. Examples: 0.0123, 12.3, 1,234.
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def groups(count: int, most: int) -> npt.NDArray[np.int64]:
    """Divide `count` items into at most `most` groups of neighbouring items, and return the index of the first item of
    each group. All groups except the last have the same size.
    """
    return np.arange(0, count, max(1, -(-count // most)))
