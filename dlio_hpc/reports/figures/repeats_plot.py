"""Picture of a part of a study that has a single point: its repeats and their median."""

from collections.abc import Sequence

from matplotlib.figure import Figure

from dlio_hpc.analysis.study.best_setting import Finding
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.reports.figures import canvas, plots
from dlio_hpc.reports.figures.canvas import COLOURS
from dlio_hpc.results.metrics import METRICS


def repeats(finding: Finding, measured: Sequence[Measured], whose: str, title: str) -> tuple[Figure, str]:
    """Draw a dot per repeat, in the order of the rounds. measured: measurements of the only point of the part. whose:
    source of the data, which the picture shows.
    """
    figure, (axes,) = plots.sheet(title, whose, 2.6, 1)
    metric = METRICS[finding.metric]
    levels = [(measurement.repeat + 1, metric.value(measurement.summary)) for measurement in measured]
    known = [(repeat, metric.scale * level) for repeat, level in levels if level is not None]
    axes.plot(*zip(*known, strict=True), "o", color=COLOURS["read"], markersize=5)
    median = metric.scale * finding.points[0].metrics[finding.metric].median
    axes.axhline(median, color=canvas.INK, linewidth=0.9, linestyle="--")
    canvas.numbers(axes, "x", whole=True)
    canvas.numbers(axes, "y")
    axes.set(xlabel="repeat", ylabel=metric.axis, xlim=(0.5, max(repeat for repeat, _ in known) + 0.5))
    axes.set_ylim(0, 1.1 * max(level for _, level in known) or 1.0)
    return (
        figure,
        f"Dots are measurements; the dashed line is their median, {canvas.plain(median)} {metric.axis}.",
    )
