"""Pictures of scaling: speed-up and efficiency over the number of ranks, compared with linear scaling."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from dlio_hpc.analysis.study.scaling import Scaling
from dlio_hpc.reports import study_rows, study_text
from dlio_hpc.reports.figures import canvas, plots
from dlio_hpc.reports.figures.canvas import GREY
from dlio_hpc.reports.figures.plots import AxisPlaces


def scaling(named: list[tuple[str, Scaling]], whose: str, title: str) -> tuple[Figure, str]:
    """Draw the speed-up and, below it, the efficiency, each with the line of linear scaling. The x axis shows numbers
    of ranks if all curves start at the same number. Otherwise, it shows multiples of each curve's smallest number of
    ranks. named: label and scaling of each curve.
    """
    figure, (upper, lower) = plots.sheet(title, whose, 5.0, 2)
    drawn = named[: len(canvas.LINES)]
    starts = {scaling.steps[0].ranks for _, scaling in drawn}
    is_common = len(starts) == 1
    first = min(starts) if is_common else 1
    over = "ranks" if is_common else "ranks / fewest ranks"
    at = sorted({first * step.ideal for _, scaling in drawn for step in scaling.steps})
    upper.plot([at[0], at[-1]], [1, at[-1] / at[0]], color=GREY, linewidth=1, linestyle="--", label="ideal")
    for colour, (name, scaling) in zip(canvas.LINES, drawn, strict=False):
        _line(upper, lower, scaling, first, colour, canvas.printable(name, 48))
    lower.axhline(100, color=GREY, linewidth=1, linestyle="--")
    for axes in (upper, lower):
        plots.ticks(axes, AxisPlaces(at, [f"{ranks:g}" for ranks in at], True), over)
    upper.set_yscale("log", base=2)
    upper.yaxis.set_minor_locator(NullLocator())
    upper.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    upper.set(ylabel="speed-up (log scale)", xlabel="")
    upper.tick_params(labelbottom=False)
    highest = max(100 * step.efficiency for _, scaling in drawn for step in scaling.steps)
    lower.set(ylabel="efficiency (%)", ylim=(0, 1.1 * max(100.0, highest)))
    upper.legend(loc="upper left")
    figure.align_ylabels([upper, lower])
    return figure, _caption(named, len(drawn))


def _line(upper: Axes, lower: Axes, scaling: Scaling, first: int, colour: str, name: str) -> None:
    speed = np.array([step.speed_up for step in scaling.steps])
    ends = np.array([[step.low or step.speed_up, step.high or step.speed_up] for step in scaling.steps]).T
    bars = np.abs(ends - speed)
    ideal = np.array([step.ideal for step in scaling.steps])
    looks: dict[str, Any] = {"color": colour, "linewidth": 1.3, "marker": "o", "markersize": 4, "capsize": 2.5}
    upper.errorbar(first * ideal, speed, bars, label=name, **looks)
    lower.errorbar(first * ideal, 100 * speed / ideal, 100 * bars / ideal, **looks)


def setting(scaling: Scaling) -> str:
    """Return the setting of a curve as text. If there is only one setting, return instead whether the scaling is strong
    or weak.
    """
    return study_rows.joined(scaling.labels) or f"{scaling.kind} scaling"


def _caption(named: list[tuple[str, Scaling]], drawn: int) -> str:
    """Return the meaning of the kinds of scaling, the sentences on each curve, and a legend."""
    sentences = " ".join(f"{name}: {' '.join(study_text.scaling(scaling))}" for name, scaling in named[:drawn])
    kinds = {scaling.kind for _, scaling in named}
    scale = " ".join(
        f"{kind.capitalize()} scaling: {meaning}." for kind, meaning in study_text.KINDS.items() if kind in kinds
    )
    more = f" {len(named) - drawn} more are in the tables." if len(named) > drawn else ""
    bars = "Bars: simultaneous 95 % confidence intervals of all ratios of a part; no bars without repeats."
    jobs = dict.fromkeys(sentence for _, scaling in named[:drawn] for sentence in study_text.between_jobs(scaling))
    return " ".join([scale, sentences, *jobs, f"{bars}{more}"])
