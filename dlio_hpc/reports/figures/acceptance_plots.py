"""Pictures for an acceptance test. The picture of a group shows each metric that has a limit: its value in each run,
its level and its limit.
"""

import re
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from dlio_hpc.reports.figures import canvas
from dlio_hpc.reports.figures.canvas import COLOURS, GREY, INK, WIDE
from dlio_hpc.reports.page import Picture
from dlio_hpc.results.metrics import format_value
from dlio_hpc.verdict.acceptance import Acceptance
from dlio_hpc.verdict.criterion_result import Check

_HEAD, _ROW = 0.75, 0.95
_GOOD, _BAD = "#00734f", "#b3261e"
_CAPTION = (
    "Points: runs; bar: the value that is judged, usually the level over the nights, with its 96 % interval; dashed: "
    "the limit. In the red area, the limit is not met."
)


def draw(accepted: Acceptance) -> Iterator[Picture]:
    """Yield a picture for each group that has a check on a metric."""
    for number, group in enumerate(filter(None, accepted.groups), 1):
        checks = [check for check in accepted.of(group) if check.metric and check.value is not None]
        if checks:
            with canvas.style():
                figure = _figure(group, checks, accepted)
            slug = re.sub(r"[^A-Za-z0-9._-]+", "-", group).strip("-")[:60]
            yield Picture(f"criteria-{number}-{slug}", f"Metrics and limits: {group}", _CAPTION, figure, True)


def _figure(group: str, checks: list[Check], accepted: Acceptance) -> Figure:
    figure = Figure(figsize=(WIDE, _HEAD + _ROW * len(checks)), layout="constrained")
    axes = figure.subplots(len(checks), 1, squeeze=False)[:, 0]
    for row_axes, check in zip(axes, checks, strict=True):
        _row(row_axes, check)
    figure.suptitle(canvas.printable(group, 100), x=0.01, ha="left", fontsize=10, fontweight="bold")
    source = canvas.printable(f"{', '.join(accepted.what)} by {accepted.criteria.name}", 100)
    figure.supxlabel(source, x=0.995, ha="right", fontsize=7, color=GREY)
    return figure


def _row(axes: Axes, check: Check) -> None:
    assert check.value is not None
    assert check.limit is not None
    # A single run has no spread, so no points are drawn for it.
    values = [evidence.value for evidence in check.evidence if evidence.value is not None]
    runs = [] if check.metric == "spread" else values
    colour = _GOOD if check.outcome == "pass" else GREY if check.outcome in ("inconclusive", "cached") else _BAD
    low, high = _reach([*runs, check.value, check.limit, check.low, check.high])
    axes.axvspan(*((low, check.limit) if check.is_least else (check.limit, high)), color=f"{_BAD}14", linewidth=0)
    axes.axvline(check.limit, color=INK, linewidth=1, linestyle="--")
    heights = np.linspace(-0.25, 0.25, len(runs)) if len(runs) > 1 else np.zeros(len(runs))
    axes.plot(runs, heights, "o", color=COLOURS["read"], alpha=0.75, markersize=4.5, markeredgewidth=0, zorder=3)
    if check.low is not None and check.high is not None:
        axes.plot([check.low, check.high], [0, 0], color=colour, linewidth=2, solid_capstyle="butt")
    axes.plot([check.value] * 2, [-0.4, 0.4], color=colour, linewidth=2.5)
    axes.set(xlim=(low, high), ylim=(-0.6, 0.6), yticks=[])
    axes.grid(visible=False)
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_value(value, check.unit)))
    title = f"{check.title}: {check.asked}: {check.outcome}, {check.measured}"
    axes.set_title(
        canvas.printable(title, 120), fontsize=8.5, fontweight="normal", color=colour if colour != GREY else INK
    )


def _reach(values: list[float | None]) -> tuple[float, float]:
    """Return the smallest and the largest value, extended by a margin. Values that are None are ignored."""
    known = [value for value in values if value is not None]
    margin = 0.08 * (max(known) - min(known)) or 0.05 * abs(max(known)) or 1.0
    return min(known) - margin, max(known) + margin
