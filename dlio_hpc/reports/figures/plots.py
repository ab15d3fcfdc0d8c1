"""Figures of studies, and axes that show the values of a parameter."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from dlio_hpc.plan.sweep import Axis
from dlio_hpc.reports.figures import canvas
from dlio_hpc.reports.figures.canvas import GREY, WIDE

# Maximum number of ticks that fit beside each other. If there are more levels, only some of them have a tick.
_MOST_TICKS = 14


def sheet(title: str, whose: str, height: float, rows: int, columns: int = 1) -> tuple[Figure, list[Axes]]:
    """Return a figure with `rows` x `columns` axes. whose: source of the data, which is shown in the lower right
    corner.
    """
    figure = Figure(figsize=(WIDE, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    axes[0].set_title(title)
    figure.supxlabel(canvas.printable(whose, 100), x=0.995, ha="right", fontsize=7, color=GREY)
    return figure, axes


class AxisPlaces(NamedTuple):
    """Positions of a parameter's values on an axis, and the labels of these positions."""

    at: list[float]
    labels: list[str]
    is_log: bool


def places(axis: Axis) -> AxisPlaces:
    """Return the positions of a parameter's values on an axis. The axis is logarithmic if the values are sizes or
    powers of two. Otherwise, the values are equally spaced.
    """
    numbers = axis.numbers
    is_log = (
        numbers is not None
        and len(numbers) > 1
        and min(numbers) > 0
        and (axis.unit == "bytes" or all(float(np.log2(number)).is_integer() for number in numbers))
    )
    at = list(map(float, numbers)) if is_log and numbers is not None else list(map(float, range(len(axis.labels))))
    return AxisPlaces(at, list(axis.labels), is_log)


def ticks(axes: Axes, places: AxisPlaces, name: str) -> None:
    """Set the ticks of the x axis to the values of a parameter. name: label of the axis."""
    step = -(-len(places.at) // _MOST_TICKS)
    axes.set_xlabel(canvas.printable(name, 90))
    if places.is_log:
        low, high = np.log2(min(places.at)), np.log2(max(places.at))
        room = 0.06 * (high - low) or 1
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(2.0 ** (low - room), 2.0 ** (high + room))
    else:
        axes.set_xlim(-0.5, len(places.at) - 0.5)
    labels = [canvas.printable(label, 22) for label in places.labels]
    axes.set_xticks(places.at[::step], labels[::step])
    if max(map(len, labels)) * len(labels[::step]) > 110:
        axes.tick_params(axis="x", labelrotation=30)
