"""Pictures of a study: metrics over parameters, main effects, and scaling."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from dlio_hpc.analysis.study.best_setting import Finding
from dlio_hpc.analysis.study.file_system_pairs import PairedEffect
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.scaling import Scaling
from dlio_hpc.base.units import counted
from dlio_hpc.plan.study import Part, Study
from dlio_hpc.reports import ab_rows, study_rows, study_text
from dlio_hpc.reports.figures import canvas, plots, sweep_plots
from dlio_hpc.reports.figures.canvas import COLOURS, GREY, INK
from dlio_hpc.reports.figures.plots import AxisPlaces
from dlio_hpc.reports.figures.sweep_plots import PlottedPart
from dlio_hpc.reports.page import Picture
from dlio_hpc.reports.study_report import StudyReport
from dlio_hpc.results.metrics import METRICS


def draw(report: StudyReport) -> Iterator[Picture]:
    """Yield the pictures of each part of the study, followed by the pictures of all parts together. Parts without
    measurements have no pictures.
    """
    yield from of_sides(report)
    for finding in report.findings:
        yield from of_part(report, finding)
    yield from together(report)


def of_sides(report: StudyReport) -> Iterator[Picture]:
    """Yield the picture that compares two file systems. Yield nothing if the study does not compare file systems."""
    if report.effects:
        title = "Two file systems, pair by pair"
        with canvas.style():
            figure, caption = pairs_plot(report.outcome.study, report.effects, title)
        yield Picture("sides", title, caption, figure, True)


def of_part(report: StudyReport, finding: Finding) -> Iterator[Picture]:
    """Yield the pictures of a part. If the study has several parts, file names and titles start with the name of the
    part.
    """
    study = report.outcome.study
    part, is_one_of_several = study.part(finding.part), len(study.parts) > 1
    prefix = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', part.name)}-" if is_one_of_several else ""
    title = f"{part.name}: " if is_one_of_several else ""
    for stem, heading, figure, caption in _of_part(report, part, finding, title):
        yield Picture(prefix + stem, title + heading, caption, figure, True)


def _of_part(report: StudyReport, part: Part, finding: Finding, title: str) -> Iterator[tuple[str, str, Figure, str]]:
    """Yield the file name, title, figure and caption of each picture of a part."""
    study = report.outcome.study
    whose = f"{study.study} on {study.site.name}, {study.created}"
    if finding.comparisons:
        comparison = finding.comparisons[-1]
        ranks = (
            f", {counted(comparison.nodes, 'node')} x {comparison.ranks_per_node} ranks"
            if len(finding.comparisons) > 1
            else ""
        )
        ranks += f", below {comparison.data}" if comparison.data is not None else ""
        shown = PlottedPart(study, part, finding, comparison, report.outcome.measured, whose + ranks)
        if part.zipped or len(part.settings) == 1:
            heading = "Time and bandwidth over " + " with ".join(
                study_rows.short([axis.key for axis in part.settings]).values()
            )
            with canvas.style():
                yield "sweep", heading, *sweep_plots.sweep(shown, title + heading)
        elif len(part.settings) == 2 and shown.medians:
            heading = f"{METRICS[finding.metric].noun.capitalize()} of each combination"
            with canvas.style():
                yield "map", heading, *sweep_plots.heat_map(shown, title + heading)
        if comparison.ranking is not None and len(comparison.ranking.effects) > 1 and shown.medians:
            with canvas.style():
                yield (
                    "effects",
                    "Effect of each parameter",
                    *sweep_plots.effects(shown, title + "Effect of each parameter"),
                )
    if len(finding.points) == 1 and finding.metric in finding.points[0].metrics:
        measured = [
            measurement for measurement in report.outcome.measured if measurement.point == finding.points[0].point
        ]
        with canvas.style():
            yield "repeats", "Repeats", *repeats_plot(finding, measured, whose, title + "Repeats")
    if finding.scalings:
        heading = f"{finding.scalings[0].kind.capitalize()} scaling"
        named = [(setting(scaling), scaling) for scaling in finding.scalings]
        with canvas.style():
            yield "scaling", heading, *scaling_plot(named, whose, title + heading)


def together(report: StudyReport) -> Iterator[Picture]:
    """Yield one picture with the scaling of all parts, if more than one part varies the number of ranks."""
    study = report.outcome.study
    scaling = [(finding, curve) for finding in report.findings for curve in finding.scalings]
    if len({finding.part for finding, _ in scaling}) < 2:
        return
    named = [(f"{finding.part}: {setting(curve)}", curve) for finding, curve in scaling]
    with canvas.style():
        figure, caption = scaling_plot(
            named, f"{study.study} on {study.site.name}, {study.created}", "Scaling of all parts"
        )
    yield Picture("scaling", "Scaling of all parts", caption, figure, True)


def pairs_plot(study: Study, results: tuple[PairedEffect, ...], title: str) -> tuple[Figure, str]:
    """Draw a row of ratios B / A for each setting, the first setting at the top. A ratio above 1 means that B is
    better. Return the figure and its caption.
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
    ticks = _ratio_ticks(float(values.min()), float(values.max()))
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    names = [canvas.printable(result.setting or "all together", 40) for result in reversed(results)]
    axes.set_yticks(range(len(results)), names)
    axes.set_xlabel("B / A; right of 1 B is better")
    legend = "Dots: ratios of pairs; diamond: their mean; line: its 95 % interval."
    return figure, " ".join([ab_rows.verdict(study, results), legend, *ab_rows.noise(results)])


def _ratio_ticks(least: float, most: float) -> list[float]:
    """Return the ticks of an axis of ratios. One tick is at 1; ticks close to 1 are left out."""
    near = np.log(most / least) / 12
    ticks = np.round(np.geomspace(least, most, 6), 2).tolist()
    return sorted({1.0, *(tick for tick in ticks if tick > 0 and abs(np.log(tick)) > near)})


def repeats_plot(finding: Finding, measured: Sequence[Measured], whose: str, title: str) -> tuple[Figure, str]:
    """Draw a dot per repeat, in the order of the rounds. measured: measurements of the only point of the part. whose:
    source of the data, which is shown in the picture.
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


def scaling_plot(named: list[tuple[str, Scaling]], whose: str, title: str) -> tuple[Figure, str]:
    """Draw the speed-up and, below it, the efficiency, each with the line of linear scaling. The x axis shows numbers
    of ranks if all curves start at the same number of ranks. Otherwise, the x axis shows multiples of the smallest
    number of ranks of each curve. named: label and scaling of each curve.
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
    """Return the setting of a curve as text. If there is only one setting, the text says whether the scaling is strong
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
