"""A picture of two file systems compared: each pair, and what they come to."""

import numpy as np
from matplotlib.figure import Figure

from dlio_hpc.analysis.study.file_system_pairs import Effect
from dlio_hpc.plan.study import Study
from dlio_hpc.report import ab_rows
from dlio_hpc.report.figures import canvas, plots
from dlio_hpc.report.figures.canvas import COLOURS, GREY, INK


def effects(study: Study, found: tuple[Effect, ...], title: str) -> tuple[Figure, str]:
    """A line for each setting, the first on top; right of 1 B is better."""
    figure, (axes,) = plots.sheet(title, f"{study.study} on {study.site.name}", 1.4 + 0.4 * len(found), 1)
    for row, one in enumerate(reversed(found)):
        axes.plot(one.ratios, [row] * len(one.ratios), linestyle="", marker="o", markersize=3, color=COLOURS["read"])
        if one.low is not None and one.high is not None:
            axes.plot([one.low, one.high], [row, row], color=INK, linewidth=1.4)
        axes.plot([one.ratio], [row], linestyle="", marker="D", markersize=5, color=INK)
    axes.axvline(1, color=GREY, linewidth=0.8)
    values = np.concatenate([(*one.ratios, one.low or one.ratio, one.high or one.ratio, 1.0) for one in found])
    axes.set_xscale("log")
    margin = 1.05
    axes.set(xlim=(values.min() / margin, values.max() * margin), ylim=(-0.6, len(found) - 0.4))
    ticks = np.unique(np.round(np.geomspace(values.min(), values.max(), 6), 2))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    names = [canvas.printable(one.setting or "all together", 40) for one in reversed(found)]
    axes.set_yticks(range(len(found)), names)
    axes.set_xlabel("B / A; right of 1 B is better")
    told = "Dots are pairs measured side by side, the diamond their mean, the line its 95 % interval."
    return figure, f"{ab_rows.verdict(study, found)} {told}"
