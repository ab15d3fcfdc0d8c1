"""Pictures over parameters: curves over one parameter, heat maps over two, and main effects of several."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from dlio_hpc.analysis.study.best_setting import Comparison, Finding, PointMetrics
from dlio_hpc.analysis.study.main_effects import Effect
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.plan.study import Part, Study
from dlio_hpc.plan.sweep import Axis
from dlio_hpc.reports import study_rows, study_text
from dlio_hpc.reports.figures import canvas, plots
from dlio_hpc.reports.figures.canvas import COLOURS, GREY, INK, WIDE
from dlio_hpc.reports.figures.plots import AxisPlaces
from dlio_hpc.results import metrics
from dlio_hpc.results.metrics import METRICS, MetricName

# Maximum number of panels in a picture of effects. Maximum number of cells in a row or column of a heat map for its
# cells to be labelled.
_MOST_PANELS, _MOST_CELLS = 9, 16


class PlottedPart(NamedTuple):
    """A part of a study, and one comparison of its points. comparison: comparison of the points that have the same
    number of ranks. whose: source of the data, which is shown below the picture.
    """

    study: Study
    part: Part
    finding: Finding
    comparison: Comparison
    measured: list[Measured]
    whose: str

    @property
    def points(self) -> list[PointMetrics]:
        """Metrics of the points that are in the comparison."""
        numbers = {point.point for point in self.comparison.points}
        return [point for point in self.finding.points if point.point in numbers]

    @property
    def medians(self) -> dict[int, float]:
        """Median of the metric, by number of the point. Medians of 0 are left out, because they have no logarithm."""
        spreads = {point.point: point.metrics.get(self.finding.metric) for point in self.points}
        return {number: spread.median for number, spread in spreads.items() if spread and spread.median > 0}

    def level(self, point: int, axis: Axis) -> int:
        """Return the value of a parameter at a point, as an index into all values of the parameter. axis: the
        parameter.
        """
        return self.study.points[point].places[axis.key]


def sweep(shown: PlottedPart, title: str) -> tuple[Figure, str]:
    """Draw metrics over a parameter: each repeat as a dot, a line through the medians, and a band over the range of the
    repeats.
    """
    part = shown.part
    axis = part.settings[0] if len(part.settings) == 1 else _together(part)
    places = plots.places(axis)
    panels = _panels(shown)
    figure, sheets = plots.sheet(title, shown.whose, 1.2 + 1.7 * len(panels), len(panels))
    for axes, metric in zip(sheets, panels, strict=True):
        _curve(shown, axes, axis, places, metric)
        plots.ticks(axes, places, axis.key)
    for axes in sheets[:-1]:
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    _legend(sheets[0])
    figure.align_ylabels(sheets)
    return figure, f"{_verdict(shown)} Dots are measurements; the line joins their medians; the band is their range."


def _legend(axes: Axes) -> None:
    """Draw the legend. Its markers have the same size as in the plot."""
    canvas.legend(axes, markerscale=1.0)


def _together(part: Part) -> Axis:
    labels = tuple(", ".join(row) for row in zip(*(axis.labels for axis in part.settings), strict=True))
    keys = " with ".join(axis.key for axis in part.settings)
    return Axis(keys, labels, labels, None)


def _panels(shown: PlottedPart) -> list[MetricName]:
    if shown.finding.metric == "checkpoint_write_MBps":
        return ["wall_s", shown.finding.metric]
    if phases := metrics.quoted_phases({name for point in shown.points for name in point.metrics}):
        return list(phases)
    reads = any((spread := point.metrics.get("read_MBps")) and spread.max > 0 for point in shown.points)
    usual: list[MetricName] = ["wall_s", "read_MBps" if reads else "samples_per_s"]
    return usual if shown.finding.metric in {*usual, "samples_per_s"} else [*usual, shown.finding.metric]


def _curve(shown: PlottedPart, axes: Axes, axis: Axis, places: AxisPlaces, metric: MetricName) -> None:
    scale = METRICS[metric].scale
    colour = COLOURS["compute"] if METRICS[metric].is_higher_better else COLOURS["read"]
    key = shown.part.settings[0]
    levels, spreads, numbers = [], [], []
    for point in sorted(shown.points, key=lambda point: shown.level(point.point, key)):
        if (spread := point.metrics.get(metric)) is not None:
            levels.append(places.at[shown.level(point.point, key)])
            spreads.append([scale * value for value in (spread.min, spread.median, spread.max)])
            numbers.append(point.point)
    if not spreads:
        axes.text(0.01, 0.5, "unknown", transform=axes.transAxes, color=GREY, va="center")
        return
    low, median, high = np.array(spreads).T
    axes.fill_between(levels, low, high, color=f"{colour}33", linewidth=0)
    axes.plot(levels, median, color=colour, linewidth=1.2)
    dots = [
        (at, scale * value)
        for at, number in zip(levels, numbers, strict=True)
        for run in shown.measured
        if run.point == number and (value := METRICS[metric].value(run.summary)) is not None
    ]
    axes.plot(*zip(*dots, strict=True), linestyle="", marker="o", markersize=3, color=colour, label="a measurement")
    for number, at, y in zip(numbers, levels, median, strict=True):
        _mark(axes, shown.comparison, number, at, y)
    canvas.numbers(axes, "y")
    axes.set(ylabel=METRICS[metric].axis, ylim=(0, 1.12 * float(high.max()) or 1))


def _mark(axes: Axes, comparison: Comparison, number: int, x: float, y: float) -> None:
    """Draw a ring around the best point and a square around the reference."""
    if number == comparison.best:
        label = "best" if comparison.noise.sd is not None else "ahead"
        axes.plot([x], [y], linestyle="", marker="o", markersize=10, fillstyle="none", color=INK, label=label)
    if number == comparison.reference:
        axes.plot([x], [y], linestyle="", marker="s", markersize=7.5, fillstyle="none", color=INK, label="reference")


def _verdict(shown: PlottedPart) -> str:
    return " ".join(
        [*study_text.verdict(shown.study, shown.finding, shown.comparison), *study_text.noise(shown.finding)]
    )


def heat_map(shown: PlottedPart, title: str) -> tuple[Figure, str]:
    """Draw a cell per combination of two parameters. Darker cells are better."""
    across, up = sorted(shown.part.settings, key=lambda axis: -len(axis.labels))
    metric = shown.finding.metric
    cells = np.full((len(up.labels), len(across.labels)), np.nan)
    for number, median in shown.medians.items():
        cells[shown.level(number, up), shown.level(number, across)] = median
    figure, (axes,) = plots.sheet(title, shown.whose, min(7.0, 1.5 + 0.42 * len(up.labels)), 1)
    good = METRICS[metric].sign * np.log(cells)
    low, high = np.nanmin(good), np.nanmax(good)
    shades = (good - low) / (high - low) if high > low else np.where(np.isnan(good), np.nan, 0.5)
    colours = LinearSegmentedColormap.from_list("good", ["#F4F8FB", COLOURS["read"]])
    axes.pcolormesh(np.ma.masked_invalid(shades), cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
    if max(cells.shape) <= _MOST_CELLS:
        for (row, column), median in np.ndenumerate(cells):
            text = "-" if np.isnan(median) else _cell(float(median), metric)
            shade = 0.0 if np.isnan(shades[row, column]) else shades[row, column]
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color="white" if shade > 0.55 else INK)
    _frames(shown, axes, across, up)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    columns = [canvas.printable(label, 16) for label in across.labels]
    step = -(-len(columns) * (2 + max(map(len, columns))) // 130)
    axes.set_xticks(np.arange(len(columns))[::step] + 0.5, columns[::step])
    axes.set_yticks(np.arange(len(up.labels)) + 0.5, [canvas.printable(label, 22) for label in up.labels])
    axes.set(xlabel=canvas.printable(across.key, 80), ylabel=canvas.printable(up.key, 40))
    axes.set_xlim(0, len(across.labels))
    axes.set_ylim(0, len(up.labels))
    _legend(axes)
    return figure, f"{_verdict(shown)} Medians of {METRICS[metric].noun}; darker is better."


def _cell(value: float, metric: MetricName) -> str:
    return study_rows.number(value, metric)


def _frames(shown: PlottedPart, axes: Axes, across: Axis, up: Axis) -> None:
    """Draw frames around the best point, the points that are not significantly different from it, and the reference."""
    styles = {"best": (INK, "-", 2.2), "same as best": (INK, ":", 1.4)}
    named: set[str] = set()
    for point in shown.comparison.points:
        if point.verdict in styles:
            colour, line, width = styles[point.verdict]
            _frame(shown, axes, (across, up), point.point, 0.06, colour, line, width, point.verdict, named)
    if shown.comparison.reference is not None:
        place = (across, up)
        _frame(shown, axes, place, shown.comparison.reference, 0.13, COLOURS["written"], "-", 1.4, "reference", named)


def _frame(
    shown: PlottedPart, axes: Axes, place: tuple[Axis, Axis], number: int, inset: float, colour: str, line: str,
    width: float, label: str, named: set[str],
) -> None:  # fmt: skip
    width_in, height_in = (WIDE - 0.8) / len(place[0].labels), 0.45  # of a cell, roughly
    right, above = inset * min(1.0, height_in / width_in), inset * min(1.0, width_in / height_in)
    corner = shown.level(number, place[0]) + right, shown.level(number, place[1]) + above
    axes.add_patch(
        Rectangle(corner, 1 - 2 * right, 1 - 2 * above, fill=False, edgecolor=colour, linestyle=line, linewidth=width,
                  label="" if label in named else label)
    )  # fmt: skip
    named.add(label)


def effects(shown: PlottedPart, title: str) -> tuple[Figure, str]:
    """Draw one panel per parameter, in the order of their effects, largest first. A panel shows, for each value of its
    parameter, the mean over the other parameters, and all points.
    """
    assert shown.comparison.ranking is not None
    effects = shown.comparison.ranking.effects[:_MOST_PANELS]
    columns = min(3, len(effects))
    rows = -(-len(effects) // columns)
    figure, sheets = plots.sheet("", shown.whose, 0.7 + 2.2 * rows, rows, columns)
    figure.suptitle(title, x=0.005, ha="left", fontsize=10, fontweight="bold")
    metric, scale = shown.finding.metric, METRICS[shown.finding.metric].scale
    medians = {number: scale * median for number, median in shown.medians.items()}
    centre = float(np.exp(np.mean(np.log(list(medians.values())))))
    top = 1.08 * max(medians.values())
    for axes, effect in zip(sheets, effects, strict=False):
        _effect(shown, axes, effect, medians, centre)
        axes.set_ylim(0, top)
        canvas.numbers(axes, "y")
    for axes in sheets[::columns]:
        axes.set_ylabel(METRICS[metric].axis)
    for axes in sheets[len(effects) :]:
        axes.axis("off")
    sentence = "; ".join(_effect_words(effect) for effect in effects)
    notes = " ".join(study_text.ranking_notes(shown.comparison.ranking))
    legend = "Lines are geometric means over all settings of the other parameters; dots are medians of points."
    return figure, f"{sentence}. {legend} {notes}"


def _effect_words(effect: Effect) -> str:
    name = " with ".join(study_rows.short(effect.keys).values())
    within = "" if effect.is_beyond_noise else ", within noise" if effect.confidence is not None else ""
    return f"{name} {effect.ratio:.2f} x from {effect.worst} to {effect.best}{within}"


def _effect(shown: PlottedPart, axes: Axes, effect: Effect, medians: dict[int, float], centre: float) -> None:
    (axis,) = (axis for axis in shown.part.axes if axis.key == effect.keys[0])
    places = plots.places(axis)
    x = [places.at[shown.level(number, axis)] for number in medians]
    axes.plot(x, list(medians.values()), linestyle="", marker="o", markersize=2.5, color=f"{GREY}88")
    sign = METRICS[shown.finding.metric].sign
    means = {level.label: centre * level.ratio**sign for level in effect.levels}
    order = [label for label in axis.labels if label in means]
    colour = COLOURS["read"] if effect.is_beyond_noise else GREY
    at = [places.at[axis.labels.index(label)] for label in order]
    axes.plot(at, [means[label] for label in order], color=colour, linewidth=1.6, marker="D", markersize=4)
    beyond = "" if effect.is_beyond_noise else " (within noise)" if effect.confidence is not None else ""
    axes.set_title(f"{effect.ratio:.2f} x{beyond}", fontsize=8.5, fontweight="normal")
    plots.ticks(axes, places, axis.key)
    if len(axis.labels) > 6:
        step = -(-len(axis.labels) // 6)
        axes.set_xticks(places.at[::step], [canvas.printable(label, 12) for label in places.labels[::step]])
