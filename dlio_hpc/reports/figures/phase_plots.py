"""Picture of the phases of a metadata workload: rates and latencies of operations."""

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullFormatter

from dlio_hpc.base.units import format_seconds
from dlio_hpc.reports.figures import canvas, plots
from dlio_hpc.reports.figures.canvas import COLOURS, INK
from dlio_hpc.reports.page import Picture
from dlio_hpc.results.run_result import PhaseSummary

_TITLE = "Rates and latencies of operations"


def draw(phases: Sequence[PhaseSummary], whose: str) -> Picture:
    """Return the picture of the phases of a run. whose: name of the run."""
    with canvas.style():
        figure, (rates, latencies) = plots.sheet(_TITLE, whose, 1.0 + 0.32 * len(phases), 1, 2)
        _rates(rates, phases)
        _latencies(latencies, phases)
    caption = (
        f"{whose}: bars: operations of all ranks per second, median of the repeats; dots: single repeats. Lines: "
        "latency of an operation from p50 to p99.9; marks: p50, p99 and p99.9."
    )
    return Picture("phases", _TITLE, caption, figure, True)


def _rates(axes: Axes, phases: Sequence[PhaseSummary]) -> None:
    places = range(len(phases))
    axes.barh(places, [phase.per_s for phase in phases], 0.6, color=f"{COLOURS['read']}66", edgecolor=COLOURS["read"])
    for place, phase in zip(places, phases, strict=True):
        axes.plot(phase.rates, [place] * len(phase.rates), "o", markersize=3, color=INK)
    axes.set_yticks(places, [phase.phase for phase in phases])
    axes.invert_yaxis()
    axes.set_xlabel("operations/s")
    canvas.numbers(axes, "x")


def _latencies(axes: Axes, phases: Sequence[PhaseSummary]) -> None:
    for place, phase in enumerate(phases):
        if (known := phase.latency_s) is None:
            continue
        values = [known.p50, known.p99, known.p999 or known.max]
        axes.plot(values, [place] * 3, "|-", markersize=9, color=COLOURS["read"])
    axes.set_yticks(range(len(phases)), [""] * len(phases))
    axes.set_ylim(len(phases) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_seconds(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("latency")
