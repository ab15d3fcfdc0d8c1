"""Pictures of the calls of a program: their numbers, and the order in which requests go through files."""

import numpy as np
from matplotlib.figure import Figure

from dlio_hpc.analysis.log.view import View
from dlio_hpc.reports.figures import canvas
from dlio_hpc.reports.figures.canvas import COLOURS, NARROW

_COLOURS = {"read": COLOURS["read"], "write": COLOURS["written"]}
# Parts of an order: name, colour, and where a request starts.
_ORDER = (
    ("consecutive", COLOURS["compute"], "where the one before ended"),
    ("ahead", COLOURS["wait"], "further on"),
    ("back", COLOURS["written"], "before that"),
)


def calls(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw the number of calls of each kind."""
    made = [(name, count) for name, count in view.calls if count]
    if not made:
        return canvas.NOTHING, ""
    figure, (axes,) = canvas.sheet(view, title, NARROW, 3.0)
    counts = np.array([count for _, count in made], float)
    colours = [_COLOURS.get(name, COLOURS["metadata"]) for name, _ in made]
    axes.bar(range(len(made)), counts, 0.6, color=colours)
    axes.set_xticks(range(len(made)), [name for name, _ in made])
    axes.set_xlim(-0.7, max(len(made), 3) - 0.3)
    canvas.count_scale(axes, counts, "calls")
    return figure, f"Calls of all ranks: {', '.join(f'{count:,} {name}' for name, count in made)}."


def order(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw where requests start, relative to the end of the rank's previous request to the same file: at this end,
    behind it, or before it.
    """
    if not view.orders:
        return "The order of requests was not recorded.", ""
    figure, (axes,) = canvas.sheet(view, title, NARROW, 3.0)
    below = np.zeros(len(view.orders))
    parts = [(one.consecutive, one.ahead, max(0.0, 1 - one.consecutive - one.ahead)) for one in view.orders]
    for (name, colour, _), shares in zip(_ORDER, 100 * np.array(parts).T, strict=True):
        axes.bar(range(len(parts)), shares, 0.5, bottom=below, color=colour, label=name)
        below = below + shares
    axes.set_xticks(range(len(parts)), [f"{one.requests:,} {one.kind}s" for one in view.orders])
    axes.set_xlim(-0.7, max(len(parts), 3) - 0.3)
    axes.set_ylim(0, 108)
    canvas.numbers(axes, "y")
    axes.set_ylabel("% of requests")
    canvas.legend(axes)
    texts = (
        f"{one.kind}s: {', '.join(f'{share:.0%} {where}' for share, (_, _, where) in zip(row, _ORDER, strict=True))}"
        for one, row in zip(view.orders, parts, strict=True)
    )
    return (
        figure,
        f"Start of a request, relative to the end of the previous request to the same file: {'; '.join(texts)}. "
        "The first request to a file is in the last part.",
    )
