"""Pictures of verdicts: repeats against repeats, and a metric over the nights."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlio_hpc.metrics import METRICS, MetricName
from dlio_hpc.report.document import Picture
from dlio_hpc.report.figures import canvas
from dlio_hpc.report.figures.canvas import COLOURS, GREY, INK, WIDE
from dlio_hpc.report.history_rows import Block
from dlio_hpc.verdict import regression, trend
from dlio_hpc.verdict.baseline_comparison import TOLERANCE, Verdict
from dlio_hpc.verdict.trend import Night, Trend

_BAD, _GOOD, _OPEN, _BASE = COLOURS["written"], COLOURS["compute"], COLOURS["wait"], COLOURS["read"]
_OUTCOMES = {"regression": _BAD, "pass": _GOOD, "improved": _GOOD, "inconclusive": _OPEN}


class Band(NamedTuple):
    """What nights are held against. name, median: of the baseline; tolerance: a share of it."""

    name: str
    job: str
    median: float
    tolerance: float


def of_verdict(verdict: Verdict) -> Iterator[Picture]:
    """Draw a verdict that has metrics: its repeats beside the reference's, and the nights."""
    if verdict.here is not None:
        with canvas.style():
            yield _of_verdict(verdict)


def _of_verdict(verdict: Verdict) -> Picture:
    assert verdict.here is not None
    title = f"{_subject(verdict)}: {verdict.outcome}"
    figure = Figure(figsize=(WIDE, 3.4), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[1, 2.6], sharey=True)
    left.set_title(canvas.printable(title, 90))
    figure.supxlabel(canvas.printable(f"{verdict.job}", 100), x=0.995, ha="right", fontsize=7, color=GREY)
    _repeats(left, verdict)
    band = None
    if verdict.there is not None and verdict.reference is not None:
        band = Band(verdict.reference, verdict.there.job, verdict.there.median, verdict.tolerance)
    seen = verdict.trend or Trend((verdict.here,), (verdict.here.median,), (), ())
    _nights(right, seen, verdict.metric, band, verdict.job)
    left.set_ylabel(METRICS[verdict.metric].axis)
    canvas.legend(right, markerscale=1.0)
    return Picture("compare", title, _caption(verdict), figure, True)


def _caption(verdict: Verdict) -> str:
    """What came of it, and how to read the picture."""
    told = f"{verdict.why[0].upper()}{verdict.why[1:]}. Left: dots are repeats, the bar their median"
    if verdict.low is not None:
        told += "; the span is where the job's median lies by the interval of its ratio (90 %)"
    told += ". Right: each job's repeats and median"
    return f"{told}, and the reference with the tolerance." if verdict.there is not None else f"{told}."


def _subject(verdict: Verdict) -> str:
    named = verdict.job if verdict.key is None else verdict.title or verdict.key.title
    return f"{METRICS[verdict.metric].noun}, {named}"


def _repeats(axes: Axes, verdict: Verdict) -> None:
    """The reference's beside the job's."""
    assert verdict.here is not None
    scale = METRICS[verdict.metric].scale
    sides = [(verdict.there, _BASE, "reference"), (verdict.here, _OUTCOMES.get(verdict.outcome, GREY), "this job")]
    kept = [(night, colour, name) for night, colour, name in sides if night is not None]
    for place, (night, colour, _) in enumerate(kept):
        values = scale * np.array(night.values)
        spread = np.linspace(-0.13, 0.13, len(values)) if len(values) > 1 else np.zeros(1)
        axes.plot(place + spread, values, ".", color=colour, markersize=6, alpha=0.75)
        axes.plot([place - 0.25, place + 0.25], [scale * night.median] * 2, color=colour, linewidth=2)
    if verdict.there is not None and verdict.low is not None and verdict.high is not None:
        ends = _around(verdict)
        at = len(kept) - 1 + 0.34
        axes.plot([at, at], [scale * each for each in ends], color=INK, linewidth=1.2, marker="_", markersize=7)
    axes.set_xticks(range(len(kept)), [name for _, _, name in kept])
    axes.set_xlim(-0.6, len(kept) - 0.4)
    canvas.numbers(axes, "y")


def _around(verdict: Verdict) -> tuple[float, float]:
    """The interval of the ratio, laid over the reference's median."""
    assert verdict.there is not None
    assert verdict.low is not None
    assert verdict.high is not None
    power = 1.0 if METRICS[verdict.metric].is_higher_better else -1.0
    return verdict.there.median * verdict.low**power, verdict.there.median * verdict.high**power


def of_block(block: Block, metric: MetricName) -> Iterator[Picture]:
    """Draw the nights of a key that was measured, with the band of its baseline."""
    if block.trend is None or block.key is None:
        return
    night = None if block.baseline is None else trend.night(block.baseline.group, metric)
    band = None
    if block.baseline is not None and night is not None:
        band = Band(block.baseline.id, night.job, night.median, TOLERANCE)
    with canvas.style():
        figure = Figure(figsize=(WIDE, 3.0), layout="constrained")
        axes = figure.subplots()
        title = f"{METRICS[metric].noun}, {block.name}"
        axes.set_title(canvas.printable(title, 60))
        whose = canvas.printable(block.title, 110)
        figure.supxlabel(whose, x=0.995, ha="right", fontsize=7, color=GREY)
        axes.set_ylabel(METRICS[metric].axis)
        canvas.numbers(axes, "y")
        _nights(axes, block.trend, metric, band)
        canvas.legend(axes, markerscale=1.0)
        yield Picture("history", title, _told(block.trend), figure, True)


def _told(seen: Trend) -> str:
    """The changes in words."""
    out = f"; by itself: {', '.join(seen.outliers)}" if seen.outliers else ""
    sentence = regression.changes_sentence(seen).removesuffix(".")
    return f"{sentence}{out}. Dots are repeats, the line joins the medians."


def _nights(axes: Axes, seen: Trend, metric: MetricName, band: Band | None, job: str | None = None) -> None:
    scale = METRICS[metric].scale
    nights = seen.nights
    places = np.arange(len(nights))
    medians = scale * np.array([night.median for night in nights])
    if band is not None:
        _band(axes, scale, band, seen)
    dots = [(place, scale * each) for place, night in enumerate(nights) for each in night.values]
    axes.plot(*np.array(dots).T, ".", color=GREY, markersize=3, alpha=0.55, label="repeats")
    axes.plot(places, medians, color=INK, linewidth=0.9, marker="o", markersize=3, label="median")
    _levels(axes, seen, scale)
    _shifts(axes, seen)
    _outliers(axes, seen, medians)
    if job is not None:
        axes.plot(places[-1:], medians[-1:], "D", color=_BAD, markersize=5, fillstyle="none", label="this job")
    _dates(axes, nights)


def _levels(axes: Axes, seen: Trend, scale: float) -> None:
    """A line from one change to the next."""
    starts = [place for shift in seen.shifts if (place := seen.place(shift.since)) is not None]
    ends = sorted({0, *starts, len(seen.nights)})
    for number, (begin, end) in enumerate(itertools.pairwise(ends) if starts else ()):
        levels = scale * np.array(seen.levels[begin:end])
        label = "" if number else "level"
        axes.plot(np.arange(begin, end), levels, color=COLOURS["sync"], linewidth=1.6, label=label)


def _band(axes: Axes, scale: float, band: Band, seen: Trend) -> None:
    low, high = (scale * band.median * (1 + sign * band.tolerance) for sign in (-1, 1))
    axes.axhspan(low, high, color=f"{_BASE}22", linewidth=0)
    axes.axhline(scale * band.median, color=_BASE, linewidth=1, linestyle="--", label="baseline")
    if (place := seen.place(band.job)) is not None:
        axes.plot([place], [scale * band.median], "s", color=_BASE, markersize=6, fillstyle="none")


def _shifts(axes: Axes, seen: Trend) -> None:
    """A line where each begins, with its size."""
    for shift in seen.shifts:
        place = seen.place(shift.since)
        assert place is not None
        colour = _BAD if shift.ratio < 1 else _GOOD
        axes.axvline(place - 0.5, color=colour, linewidth=1, linestyle=":")
        words = f"{shift.kind} {regression.signed(shift.ratio)}"
        right = place > 0.75 * len(seen.nights)
        axes.annotate(
            words,
            (place - 0.5, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if right else 3, 0),
            textcoords="offset points",
            ha="right" if right else "left",
            fontsize=7.5,
            color=colour,
        )


def _outliers(axes: Axes, seen: Trend, medians: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> None:
    found = [place for place, night in enumerate(seen.nights) if night.job in seen.outliers]
    if found:
        axes.plot(found, medians[found], "x", color=_OPEN, markersize=8, label="by itself")


def _dates(axes: Axes, nights: Sequence[Night]) -> None:
    """Nights side by side, however far they are apart; the day below some of them."""
    step = -(-len(nights) // 8)
    shown = range(0, len(nights), step)
    days = [night.ended[:10] for night in nights]
    same = len(set(days)) == 1
    labels = [nights[place].ended[11:16] if same else days[place][5:] for place in shown]
    axes.set_xticks(list(shown), labels)
    axes.set_xlim(-0.8, len(nights) - 0.2)
    axes.set_xlabel(f"jobs of {days[0]}" if same else f"jobs from {days[0]} to {days[-1]}")
