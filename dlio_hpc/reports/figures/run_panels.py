"""Pictures of a single run: the panels of the DLIO paper (CCGrid 2021), and further pictures that explain them."""

from collections.abc import Callable, Iterator

from matplotlib.figure import Figure

from dlio_hpc.analysis.log.view import View
from dlio_hpc.reports.figures import call_counts, canvas, distribution_plots, io_costs, time_series
from dlio_hpc.reports.figures.canvas import NARROW, WIDE
from dlio_hpc.reports.page import Picture

# Function that draws a view under a title. It returns the figure, or the reason why there is none, and the caption.
_Painter = Callable[[View, str], tuple[Figure | str, str]]
_PAINTERS: list[tuple[str, str, float, _Painter]] = [
    ("heat_map", "Bytes of each rank over time", NARROW, io_costs.heat_map),
    ("costs", "I/O cost of a rank", NARROW, io_costs.costs),
    ("bandwidth", "Bandwidth over time", WIDE, time_series.bandwidth),
    ("sizes", "Sizes of requests", NARROW, distribution_plots.sizes),
    ("calls", "Calls by kind", NARROW, call_counts.calls),
    ("order", "Order of requests in files", NARROW, call_counts.order),
    ("ranks_bandwidth", "Bandwidth of each rank", NARROW, distribution_plots.ranks_bandwidth),
    ("timeline", "Single ranks over time", WIDE, time_series.timeline),
    ("steps", "Time of steps by phase", WIDE, time_series.steps),
    ("opens", "Opens of files over time", WIDE, time_series.opens),
    ("latency", "Duration of requests", NARROW, distribution_plots.latency),
    ("spread", "Spread over ranks", NARROW, distribution_plots.spread),
]


def draw(view: View) -> Iterator[Picture]:
    """Yield the pictures in the order of the page. If the run recorded no steps, the picture of steps is left out. If
    there is no log, the pictures of calls are left out. If opens were not timed, their picture is left out.
    """
    without = {"steps"} if view.steps is None else set()
    without |= set() if view.calls else {"calls", "order"}
    without |= set() if view.opens is not None else {"opens"}
    for stem, title, width, paint in _PAINTERS:
        if stem in without:
            continue
        with canvas.style():
            figure, caption = paint(view, title)
            if isinstance(figure, str):
                figure = canvas.sentence(view, title, width, figure)
        yield Picture(stem, title, caption, figure, width == WIDE)
