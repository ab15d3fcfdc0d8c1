"""Pictures of comparisons with a baseline: the repeats of the job and of the reference, and a metric over the jobs of
the history. A night stands for the repeats of one job.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlio_hpc.reports.figures import canvas
from dlio_hpc.reports.figures.canvas import COLOURS, GREY, INK, WIDE
from dlio_hpc.reports.history_rows import Block
from dlio_hpc.reports.page import Picture
from dlio_hpc.results.metrics import METRICS, MetricName
from dlio_hpc.verdict import regression, trend
from dlio_hpc.verdict.baseline_comparison import Verdict
from dlio_hpc.verdict.regression import TOLERANCE
from dlio_hpc.verdict.trend import Night, Trend

_BAD, _GOOD, _UNDECIDED, _BASE = COLOURS["written"], COLOURS["compute"], COLOURS["wait"], COLOURS["read"]
_OUTCOMES = {"regression": _BAD, "pass": _GOOD, "improved": _GOOD, "inconclusive": _UNDECIDED}


class Band(NamedTuple):
    """A baseline with its tolerance. name: id of the baseline. job: name of the baseline's job. median: median of the
    repeats of this job. tolerance: largest relative drop that still passes, as a fraction of the median.
    """

    name: str
    job: str
    median: float
    tolerance: float


def of_verdict(verdict: Verdict) -> Iterator[Picture]:
    """Yield the picture of a verdict: the repeats of the job next to the repeats of the reference, and the history.
    Yield nothing if the verdict has no values.
    """
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
    history = verdict.trend or Trend((verdict.here,), 1, (verdict.here.median,), (), ())
    _nights(right, history, verdict.metric, band, verdict.job)
    left.set_ylabel(METRICS[verdict.metric].axis)
    canvas.legend(right, markerscale=1.0)
    return Picture("compare", title, _caption(verdict), figure, True)


def _caption(verdict: Verdict) -> str:
    """Return a legend only; the reason for the verdict is in the text of the report."""
    text = "Left: dots are repeats, bars are their medians"
    if verdict.low is not None:
        text += "; the vertical line is the 90 % interval of the ratio, multiplied by the reference's median"
    text += ". Right: each job's repeats and median"
    return f"{text}, and the reference with the tolerance." if verdict.there is not None else f"{text}."


def _subject(verdict: Verdict) -> str:
    named = verdict.job if verdict.key is None else verdict.title or verdict.key.title
    return f"{METRICS[verdict.metric].noun}, {named}"


def _repeats(axes: Axes, verdict: Verdict) -> None:
    """Draw the repeats of the reference and of the job side by side."""
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
        axes.plot([at, at], [scale * end for end in ends], color=INK, linewidth=1.2, marker="_", markersize=7)
    axes.set_xticks(range(len(kept)), [name for _, _, name in kept])
    axes.set_xlim(-0.6, len(kept) - 0.4)
    canvas.numbers(axes, "y")


def _around(verdict: Verdict) -> tuple[float, float]:
    """Return the two ends of the confidence interval of the verdict's ratio, converted to values of the metric: each
    end is multiplied by the median of the reference. If a lower value is better, the median is divided by each end.
    """
    assert verdict.there is not None
    assert verdict.low is not None
    assert verdict.high is not None
    power = 1.0 if METRICS[verdict.metric].is_higher_better else -1.0
    return verdict.there.median * verdict.low**power, verdict.there.median * verdict.high**power


def of_block(block: Block, metric: MetricName) -> Iterator[Picture]:
    """Yield the picture of the history of a measurement key, with its baseline and tolerance."""
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
        source = canvas.printable(block.title, 110)
        figure.supxlabel(source, x=0.995, ha="right", fontsize=7, color=GREY)
        axes.set_ylabel(METRICS[metric].axis)
        canvas.numbers(axes, "y")
        _nights(axes, block.trend, metric, band)
        canvas.legend(axes, markerscale=1.0)
        yield Picture("history", title, _history_caption(block.trend), figure, True)


def _history_caption(history: Trend) -> str:
    """Return a caption: a description of the changes and outliers, followed by a legend."""
    out = f"; outliers: {', '.join(history.outliers)}" if history.outliers else ""
    sentence = regression.changes_sentence(history).removesuffix(".")
    return f"{sentence}{out}. Dots are repeats; the line joins the medians."


def _nights(axes: Axes, history: Trend, metric: MetricName, band: Band | None, job: str | None = None) -> None:
    """Draw repeats, medians, levels, changes and outliers over the jobs of the history. job: name of the job to mark;
    None to mark none.
    """
    scale = METRICS[metric].scale
    nights = history.nights
    places = np.arange(len(nights))
    medians = scale * np.array([night.median for night in nights])
    if band is not None:
        _band(axes, scale, band, history)
    dots = [(place, scale * value) for place, night in enumerate(nights) for value in night.values]
    axes.plot(*np.array(dots).T, ".", color=GREY, markersize=3, alpha=0.55, label="repeats")
    axes.plot(places, medians, color=INK, linewidth=0.9, marker="o", markersize=3, label="median")
    _levels(axes, history, scale)
    _shifts(axes, history)
    _outliers(axes, history, medians)
    if job is not None:
        axes.plot(places[-1:], medians[-1:], "D", color=_BAD, markersize=5, fillstyle="none", label="this job")
    _dates(axes, nights)


def _levels(axes: Axes, history: Trend, scale: float) -> None:
    """Draw the level of each series of nights between two changes."""
    starts = [place for shift in history.shifts if (place := history.place(shift.since)) is not None]
    ends = sorted({0, *starts, len(history.nights)})
    for number, (begin, end) in enumerate(itertools.pairwise(ends) if starts else ()):
        levels = scale * np.array(history.levels[begin:end])
        label = "" if number else "level"
        axes.plot(np.arange(begin, end), levels, color=COLOURS["sync"], linewidth=1.6, label=label)


def _band(axes: Axes, scale: float, band: Band, history: Trend) -> None:
    """Draw the median of the baseline and its tolerance."""
    low, high = (scale * band.median * (1 + sign * band.tolerance) for sign in (-1, 1))
    axes.axhspan(low, high, color=f"{_BASE}22", linewidth=0)
    axes.axhline(scale * band.median, color=_BASE, linewidth=1, linestyle="--", label="baseline")
    if (place := history.place(band.job)) is not None:
        axes.plot([place], [scale * band.median], "s", color=_BASE, markersize=6, fillstyle="none")


def _shifts(axes: Axes, history: Trend) -> None:
    """Draw a line at the start of each change, labelled with the size of the change."""
    for shift in history.shifts:
        place = history.place(shift.since)
        assert place is not None
        colour = _BAD if shift.ratio < 1 else _GOOD
        axes.axvline(place - 0.5, color=colour, linewidth=1, linestyle=":")
        label = f"{shift.kind} {regression.signed(shift.ratio)}"
        is_right = place > 0.75 * len(history.nights)
        axes.annotate(
            label,
            (place - 0.5, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(-3 if is_right else 3, 0),
            textcoords="offset points",
            ha="right" if is_right else "left",
            fontsize=7.5,
            color=colour,
        )


def _outliers(axes: Axes, history: Trend, medians: "np.ndarray[tuple[int, ...], np.dtype[np.float64]]") -> None:
    places = [place for place, night in enumerate(history.nights) if night.job in history.outliers]
    if places:
        axes.plot(places, medians[places], "x", color=_UNDECIDED, markersize=8, label="outlier")


def _dates(axes: Axes, nights: Sequence[Night]) -> None:
    """Put the nights at equal distances on the x axis, and label some of them with their dates."""
    step = -(-len(nights) // 8)
    shown = range(0, len(nights), step)
    days = [night.ended[:10] for night in nights]
    is_one_day = len(set(days)) == 1
    labels = [nights[place].ended[11:16] if is_one_day else days[place][5:] for place in shown]
    axes.set_xticks(list(shown), labels)
    axes.set_xlim(-0.8, len(nights) - 0.2)
    axes.set_xlabel(f"jobs of {days[0]}" if is_one_day else f"jobs from {days[0]} to {days[-1]}")
