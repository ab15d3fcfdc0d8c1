"""Picture of the comparison of two file systems: the ratio of each pair, and the mean ratio with its interval."""

import numpy as np
from matplotlib.figure import Figure

from dlio_hpc.analysis.study.file_system_pairs import PairedEffect
from dlio_hpc.plan.study import Study
from dlio_hpc.reports import ab_rows
from dlio_hpc.reports.figures import canvas, plots
from dlio_hpc.reports.figures.canvas import COLOURS, GREY, INK


def effects(study: Study, results: tuple[PairedEffect, ...], title: str) -> tuple[Figure, str]:
    """Draw a row of ratios B / A for each setting, the first setting at the top. B is better where the ratio is above
    1. Return the figure and its caption.
    """
    figure, (axes,) = plots.sheet(title, f"{study.study} on {study.site.name}", 1.4 + 0.4 * len(results), 1)
    for row, result in enumerate(reversed(results)):
        axes.plot(
            result.ratios, [row] * len(result.ratios), linestyle="", marker="o", markersize=3, color=COLOURS["read"]
        )
        if result.low is not None and result.high is not None:
            axes.plot([result.low, result.high], [row, row], color=INK, linewidth=1.4)
        axes.plot([result.ratio], [row], linestyle="", marker="D", markersize=5, color=INK)
    axes.axvline(1, color=GREY, linewidth=0.8)
    values = np.concatenate(
        [(*result.ratios, result.low or result.ratio, result.high or result.ratio, 1.0) for result in results]
    )
    axes.set_xscale("log")
    margin = 1.05
    axes.set(xlim=(values.min() / margin, values.max() * margin), ylim=(-0.6, len(results) - 0.4))
    ticks = np.unique(np.round(np.geomspace(values.min(), values.max(), 6), 2))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    names = [canvas.printable(result.setting or "all together", 40) for result in reversed(results)]
    axes.set_yticks(range(len(results)), names)
    axes.set_xlabel("B / A; right of 1 B is better")
    legend = "Dots: ratios of pairs; diamond: their mean; line: its 95 % interval."
    return figure, " ".join([ab_rows.verdict(study, results), legend, *ab_rows.noise(results)])
