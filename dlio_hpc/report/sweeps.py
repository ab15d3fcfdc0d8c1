"""The pictures of a study: figures over what was varied, main effects, and scaling."""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator

from dlio_hpc.analysis.comparison import COSTS, Comparison, Finding, PointFigures, value
from dlio_hpc.analysis.effects import Effect
from dlio_hpc.analysis.measured import Measured
from dlio_hpc.analysis.scaling import Scaling
from dlio_hpc.report import canvas, studyrows
from dlio_hpc.report.canvas import COLOURS, GREY, INK, WIDE
from dlio_hpc.report.figures import Picture
from dlio_hpc.report.studyreport import StudyReport
from dlio_hpc.study import Metric, Part, Study
from dlio_hpc.sweep import Axis

# Of Okabe and Ito, in the order in which lines take them.
_LINES = [COLOURS["read"], COLOURS["written"], COLOURS["compute"], COLOURS["sync"], COLOURS["wait"], "#56B4E9", INK]
_UNITS: dict[Metric, str] = {
    "wall_s": "time (s)",
    "read_MBps": "MB/s",
    "samples_per_s": "samples/s",
    "io_time_s": "I/O time (s)",
    "au": "AU (%)",
}
# More of them than fit beside each other are not all named, or not all drawn.
_MOST_TICKS, _MOST_PANELS, _MOST_CELLS = 14, 9, 16


class _Shown(NamedTuple):
    """A part with its points on the same ranks. title: of the picture; whose: below it."""

    study: Study
    part: Part
    finding: Finding
    found: Comparison
    measured: list[Measured]
    whose: str

    @property
    def points(self) -> list[PointFigures]:
        numbers = {point.point for point in self.found.points}
        return [point for point in self.finding.points if point.point in numbers]

    @property
    def medians(self) -> dict[int, float]:
        """Of what points are judged by, as far as a logarithm can be had of it."""
        spreads = {point.point: getattr(point, self.finding.metric) for point in self.points}
        return {number: spread.median for number, spread in spreads.items() if spread and spread.median > 0}

    def level(self, point: int, axis: Axis) -> int:
        return self.study.points[point].places[axis.key]


def draw(report: StudyReport) -> Iterator[Picture]:
    """Of each part in turn, then of all together; what was not measured has none."""
    for finding in report.findings:
        yield from of_part(report, finding)
    yield from together(report)


def of_part(report: StudyReport, finding: Finding) -> Iterator[Picture]:
    """Their names begin with the part's where there are several."""
    study = report.outcome.study
    part, several = study.part(finding.part), len(study.parts) > 1
    prefix = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', part.name)}-" if several else ""
    title = f"{part.name}: " if several else ""
    for stem, words, figure, caption in _of_part(report, part, finding, title):
        yield Picture(prefix + stem, title + words, caption, figure, True)


def _of_part(report: StudyReport, part: Part, finding: Finding, title: str) -> Iterator[tuple[str, str, Figure, str]]:
    """Stem, title, figure and caption of each."""
    study = report.outcome.study
    whose = f"{study.study} on {study.site.name}, {study.created}"
    if part.axes and finding.comparisons:
        found = finding.comparisons[-1]
        ranks = f", {found.nodes} node(s) x {found.ranks_per_node} ranks" if len(finding.comparisons) > 1 else ""
        shown = _Shown(study, part, finding, found, report.outcome.measured, whose + ranks)
        if part.zipped or len(part.axes) == 1:
            words = "Time and bandwidth over " + " with ".join(
                studyrows.short([axis.key for axis in part.axes]).values()
            )
            with canvas.style():
                yield "sweep", words, *_sweep(shown, title + words)
        elif len(part.axes) == 2 and shown.medians:
            words = f"{studyrows.METRICS[finding.metric].capitalize()} of each combination"
            with canvas.style():
                yield "map", words, *_map(shown, title + words)
        if found.ranking is not None and len(found.ranking.effects) > 1 and shown.medians:
            with canvas.style():
                yield "effects", "What each parameter does", *_effects(shown, title + "What each parameter does")
    if finding.scalings:
        words = f"{finding.scalings[0].kind.capitalize()} scaling"
        named = [(_setting(scaling), scaling) for scaling in finding.scalings]
        with canvas.style():
            yield "scaling", words, *_scaling(named, whose, title + words)


def _sheet(title: str, whose: str, height: float, rows: int, columns: int = 1) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(WIDE, height), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    axes[0].set_title(title)
    figure.supxlabel(canvas.printable(whose, 100), x=0.995, ha="right", fontsize=7, color=GREY)
    return figure, axes


class _Places(NamedTuple):
    """Where the levels of an axis lie, and how they are called."""

    at: list[float]
    labels: list[str]
    is_log: bool


def _places(axis: Axis) -> _Places:
    """By their logarithms where they are sizes or powers of two, else side by side."""
    numbers = axis.numbers
    is_log = (
        numbers is not None
        and len(numbers) > 1
        and min(numbers) > 0
        and (axis.unit == "bytes" or all(float(np.log2(number)).is_integer() for number in numbers))
    )
    at = list(map(float, numbers)) if is_log and numbers is not None else list(map(float, range(len(axis.labels))))
    return _Places(at, list(axis.labels), is_log)


def _ticks(axes: Axes, places: _Places, name: str) -> None:
    step = -(-len(places.at) // _MOST_TICKS)
    axes.set_xlabel(canvas.printable(name, 90))
    if places.is_log:
        low, high = np.log2(min(places.at)), np.log2(max(places.at))
        room = 0.06 * (high - low) or 1
        axes.set_xscale("log", base=2)
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlim(2.0 ** (low - room), 2.0 ** (high + room))
    else:
        axes.set_xlim(-0.5, len(places.at) - 0.5)
    labels = [canvas.printable(label, 22) for label in places.labels]
    axes.set_xticks(places.at[::step], labels[::step])
    if max(map(len, labels)) * len(labels[::step]) > 110:
        axes.tick_params(axis="x", labelrotation=30)


def _sweep(shown: _Shown, title: str) -> tuple[Figure, str]:
    """Each repeat a dot, a line through medians, a band from the least to the most."""
    part = shown.part
    axis = part.axes[0] if len(part.axes) == 1 else _together(part)
    places = _places(axis)
    panels = _panels(shown)
    figure, sheets = _sheet(title, shown.whose, 1.2 + 1.7 * len(panels), len(panels))
    for axes, metric in zip(sheets, panels, strict=True):
        _curve(shown, axes, axis, places, metric)
        _ticks(axes, places, axis.key)
    for axes in sheets[:-1]:
        axes.set_xlabel("")
        axes.tick_params(labelbottom=False)
    _legend(sheets[0])
    figure.align_ylabels(sheets)
    return figure, f"{_verdict(shown)} Dots are measurements, the line their medians, the band from least to most."


def _legend(axes: Axes) -> None:
    """Beside the title, with marks as large as they are drawn."""
    canvas.legend(axes, markerscale=1.0)


def _together(part: Part) -> Axis:
    labels = tuple(", ".join(row) for row in zip(*(axis.labels for axis in part.axes), strict=True))
    keys = " with ".join(axis.key for axis in part.axes)
    return Axis(keys, labels, labels, None)


def _panels(shown: _Shown) -> list[Metric]:
    reads = any(point.read_MBps is not None and point.read_MBps.max > 0 for point in shown.points)
    usual: list[Metric] = ["wall_s", "read_MBps" if reads else "samples_per_s"]
    return usual if shown.finding.metric in {*usual, "samples_per_s"} else [*usual, shown.finding.metric]


def _curve(shown: _Shown, axes: Axes, axis: Axis, places: _Places, metric: Metric) -> None:
    scale = 100.0 if metric == "au" else 1.0
    colour = COLOURS["read"] if metric in COSTS else COLOURS["compute"]
    key = shown.part.axes[0]
    levels, spreads, numbers = [], [], []
    for point in sorted(shown.points, key=lambda point: shown.level(point.point, key)):
        if (spread := getattr(point, metric)) is not None:
            levels.append(places.at[shown.level(point.point, key)])
            spreads.append([scale * each for each in (spread.min, spread.median, spread.max)])
            numbers.append(point.point)
    if not spreads:
        axes.text(0.01, 0.5, "unknown", transform=axes.transAxes, color=GREY, va="center")
        return
    low, middle, high = np.array(spreads).T
    axes.fill_between(levels, low, high, color=f"{colour}33", linewidth=0)
    axes.plot(levels, middle, color=colour, linewidth=1.2)
    dots = [
        (at, scale * found)
        for at, number in zip(levels, numbers, strict=True)
        for each in shown.measured
        if each.point == number and (found := value(each.summary, metric)) is not None
    ]
    axes.plot(*zip(*dots, strict=True), linestyle="", marker="o", markersize=3, color=colour, label="a measurement")
    for number, at, y in zip(numbers, levels, middle, strict=True):
        _mark(axes, shown.found, number, at, y)
    canvas.numbers(axes, "y")
    axes.set(ylabel=_UNITS[metric], ylim=(0, 1.12 * float(high.max()) or 1))


def _mark(axes: Axes, found: Comparison, number: int, x: float, y: float) -> None:
    """A ring round the best, a square round the reference."""
    if number == found.best:
        label = "best" if found.noise.sd is not None else "ahead"
        axes.plot([x], [y], linestyle="", marker="o", markersize=10, fillstyle="none", color=INK, label=label)
    if number == found.reference:
        axes.plot([x], [y], linestyle="", marker="s", markersize=7.5, fillstyle="none", color=INK, label="reference")


def _verdict(shown: _Shown) -> str:
    return " ".join([*studyrows.verdict(shown.study, shown.finding, shown.found), *studyrows.noise(shown.finding)])


def _map(shown: _Shown, title: str) -> tuple[Figure, str]:
    """Two parameters: a cell each, darker where it is better."""
    across, up = sorted(shown.part.axes, key=lambda axis: -len(axis.labels))
    metric = shown.finding.metric
    cells = np.full((len(up.labels), len(across.labels)), np.nan)
    for number, median in shown.medians.items():
        cells[shown.level(number, up), shown.level(number, across)] = median
    figure, (axes,) = _sheet(title, shown.whose, min(7.0, 1.5 + 0.42 * len(up.labels)), 1)
    good = -np.log(cells) if metric in COSTS else np.log(cells)
    low, high = np.nanmin(good), np.nanmax(good)
    shades = (good - low) / (high - low) if high > low else np.where(np.isnan(good), np.nan, 0.5)
    colours = LinearSegmentedColormap.from_list("good", ["#F4F8FB", COLOURS["read"]])
    axes.pcolormesh(np.ma.masked_invalid(shades), cmap=colours, vmin=0, vmax=1, edgecolors="white", linewidth=1.5)
    if max(cells.shape) <= _MOST_CELLS:
        for (row, column), found in np.ndenumerate(cells):
            text = "-" if np.isnan(found) else _cell(float(found), metric)
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
    return figure, f"{_verdict(shown)} Medians of {studyrows.METRICS[metric]}; the darker the better."


def _cell(found: float, metric: Metric) -> str:
    return studyrows.figure(found, metric).removesuffix(f" {studyrows.METRICS[metric]}")


def _frames(shown: _Shown, axes: Axes, across: Axis, up: Axis) -> None:
    """Round the best, and what cannot be told from it, and the reference."""
    styles = {"best": (INK, "-", 2.2), "same as best": (INK, ":", 1.4)}
    named: set[str] = set()
    for point in shown.found.points:
        if point.verdict in styles:
            colour, line, width = styles[point.verdict]
            _frame(shown, axes, (across, up), point.point, 0.06, colour, line, width, point.verdict, named)
    if shown.found.reference is not None:
        place = (across, up)
        _frame(shown, axes, place, shown.found.reference, 0.13, COLOURS["written"], "-", 1.4, "reference", named)


def _frame(
    shown: _Shown, axes: Axes, place: tuple[Axis, Axis], number: int, inset: float, colour: str, line: str,
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


def _effects(shown: _Shown, title: str) -> tuple[Figure, str]:
    """A panel a parameter, the one that matters most first: its means, and all points behind them."""
    assert shown.found.ranking is not None
    effects = shown.found.ranking.effects[:_MOST_PANELS]
    columns = min(3, len(effects))
    rows = -(-len(effects) // columns)
    figure, sheets = _sheet("", shown.whose, 0.7 + 2.2 * rows, rows, columns)
    figure.suptitle(title, x=0.005, ha="left", fontsize=10, fontweight="bold")
    metric, scale = shown.finding.metric, 100.0 if shown.finding.metric == "au" else 1.0
    medians = {number: scale * median for number, median in shown.medians.items()}
    centre = float(np.exp(np.mean(np.log(list(medians.values())))))
    top = 1.08 * max(medians.values())
    for axes, effect in zip(sheets, effects, strict=False):
        _effect(shown, axes, effect, medians, centre)
        axes.set_ylim(0, top)
        canvas.numbers(axes, "y")
    for axes in sheets[::columns]:
        axes.set_ylabel(_UNITS[metric])
    for axes in sheets[len(effects) :]:
        axes.axis("off")
    told = "; ".join(_effect_words(effect) for effect in effects)
    notes = " ".join(studyrows.ranking_notes(shown.found.ranking))
    return figure, f"{told}. Lines are geometric means over all settings of the others, dots medians of points. {notes}"


def _effect_words(effect: Effect) -> str:
    name = " with ".join(studyrows.short(effect.keys).values())
    within = "" if effect.is_beyond_noise else ", within noise" if effect.confidence is not None else ""
    return f"{name} {effect.ratio:.2f} x from {effect.worst} to {effect.best}{within}"


def _effect(shown: _Shown, axes: Axes, effect: Effect, medians: dict[int, float], centre: float) -> None:
    (axis,) = (axis for axis in shown.part.axes if axis.key == effect.keys[0])
    places = _places(axis)
    x = [places.at[shown.level(number, axis)] for number in medians]
    axes.plot(x, list(medians.values()), linestyle="", marker="o", markersize=2.5, color=f"{GREY}88")
    sign = -1 if shown.finding.metric in COSTS else 1
    means = {level.label: centre * level.ratio**sign for level in effect.levels}
    order = [label for label in axis.labels if label in means]
    colour = COLOURS["read"] if effect.is_beyond_noise else GREY
    at = [places.at[axis.labels.index(label)] for label in order]
    axes.plot(at, [means[label] for label in order], color=colour, linewidth=1.6, marker="D", markersize=4)
    beyond = "" if effect.is_beyond_noise else " (within noise)" if effect.confidence is not None else ""
    axes.set_title(f"{effect.ratio:.2f} x{beyond}", fontsize=8.5, fontweight="normal")
    _ticks(axes, places, axis.key)
    if len(axis.labels) > 6:
        step = -(-len(axis.labels) // 6)
        axes.set_xticks(places.at[::step], [canvas.printable(label, 12) for label in places.labels[::step]])


def together(report: StudyReport) -> Iterator[Picture]:
    """How parts scale beside each other; nothing where only one does."""
    study = report.outcome.study
    scaling = [(finding, each) for finding in report.findings for each in finding.scalings]
    if len({finding.part for finding, _ in scaling}) < 2:
        return
    named = [(f"{finding.part}: {_setting(each)}", each) for finding, each in scaling]
    with canvas.style():
        figure, caption = _scaling(
            named, f"{study.study} on {study.site.name}, {study.created}", "Scaling of all parts"
        )
    yield Picture("scaling", "Scaling of all parts", caption, figure, True)


def _scaling(named: list[tuple[str, Scaling]], whose: str, title: str) -> tuple[Figure, str]:
    """Speed-up above, efficiency below, both against the ideal: over ranks, where all begin with as many."""
    figure, (upper, lower) = _sheet(title, whose, 5.0, 2)
    drawn = named[: len(_LINES)]
    starts = {scaling.steps[0].ranks for _, scaling in drawn}
    first = starts.pop() if len(starts) == 1 else 1
    over = "ranks" if not starts else "times as many ranks as the fewest"
    at = sorted({first * step.ideal for _, scaling in drawn for step in scaling.steps})
    upper.plot([at[0], at[-1]], [1, at[-1] / at[0]], color=GREY, linewidth=1, linestyle="--", label="ideal")
    for colour, (name, scaling) in zip(_LINES, drawn, strict=False):
        _line(upper, lower, scaling, first, colour, canvas.printable(name, 48))
    lower.axhline(100, color=GREY, linewidth=1, linestyle="--")
    for axes in (upper, lower):
        _ticks(axes, _Places(at, [f"{each:g}" for each in at], True), over)
    upper.set_yscale("log", base=2)
    upper.yaxis.set_minor_locator(NullLocator())
    upper.yaxis.set_major_formatter(FuncFormatter(lambda each, _: f"{each:g}"))
    upper.set(ylabel="speed-up (log scale)", xlabel="")
    upper.tick_params(labelbottom=False)
    highest = max(100 * step.efficiency for _, scaling in drawn for step in scaling.steps)
    lower.set(ylabel="efficiency (%)", ylim=(0, 1.1 * max(100.0, highest)))
    upper.legend(loc="upper left")
    figure.align_ylabels([upper, lower])
    return figure, _scaling_words(named, len(drawn))


def _line(upper: Axes, lower: Axes, scaling: Scaling, first: int, colour: str, name: str) -> None:
    speed = np.array([step.speed_up for step in scaling.steps])
    ends = np.array([[step.low or step.speed_up, step.high or step.speed_up] for step in scaling.steps]).T
    room = np.abs(ends - speed)
    ideal = np.array([step.ideal for step in scaling.steps])
    looks: dict[str, Any] = {"color": colour, "linewidth": 1.3, "marker": "o", "markersize": 4, "capsize": 2.5}
    upper.errorbar(first * ideal, speed, room, label=name, **looks)
    lower.errorbar(first * ideal, 100 * speed / ideal, 100 * room / ideal, **looks)


def _setting(scaling: Scaling) -> str:
    names = studyrows.short(list(scaling.labels))
    return ", ".join(f"{names[key]}={label}" for key, label in scaling.labels.items()) or f"{scaling.kind} scaling"


def _scaling_words(named: list[tuple[str, Scaling]], drawn: int) -> str:
    told = [
        f"{name}: {scaling.steps[-1].speed_up:.2f} x on {scaling.steps[-1].ranks} ranks, "
        f"{100 * scaling.steps[-1].efficiency:.0f} % of ideal"
        for name, scaling in named[:drawn]
    ]
    kinds = {scaling.kind for _, scaling in named}
    what = {"strong": "all ranks together read the same amount", "weak": "each rank reads the same amount"}
    scale = " ".join(f"{kind.capitalize()} scaling: {words}." for kind, words in what.items() if kind in kinds)
    more = f" {len(named) - drawn} more are in the tables." if len(named) > drawn else ""
    return f"{scale} {'; '.join(told)}. Bars: 95 % intervals, where there are repeats.{more}"
