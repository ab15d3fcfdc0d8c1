"""Pictures over time: bandwidth of all ranks together, computation and I/O of individual ranks, and phases of steps."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlio_hpc.analysis.log.view import Floats, Steps, View
from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.reports.figures import canvas
from dlio_hpc.reports.figures.canvas import COLOURS, WIDE

# Maximum numbers in a picture: of bins, of individual ranks, of bins per rank, and of marked epochs. To keep files
# small, more bins are joined, and more ranks and epochs are left out.
_BINS, _LANES, _LANE_BINS, _EPOCHS = 500, 12, 400, 12
_SHADES = 5


def bandwidth(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw bandwidth and requests per second over time."""
    series = view.series
    both = {"read": (series.bytes_read, series.reads), "written": (series.bytes_written, series.writes)}
    both = {kind: pair for kind, pair in both.items() if pair[0].any() or (pair[1] is not None and pair[1].any())}
    if not both:
        is_moved = bool(view.ranks.bytes_read.sum() + view.ranks.bytes_written.sum())
        return ("Times of reads and writes were not recorded." if is_moved else canvas.NOTHING), ""
    moved = {kind: values for kind, (values, _) in both.items()}
    requests = {kind: values for kind, (_, values) in both.items() if values is not None}
    starts = canvas.groups(len(series.bytes_read), _BINS)
    edges = np.append(series.edges[:-1][starts], series.edges[-1])
    widths = np.diff(edges)
    rates = {kind: np.add.reduceat(values, starts) / widths for kind, values in moved.items()}
    name, unit = canvas.rate_unit(max(float(values.max()) for values in rates.values()))
    figure, sheets = canvas.sheet(view, title, WIDE, 3.6, (3, 1.3) if requests else (1,))
    upper, lower = sheets[0], sheets[-1]
    for kind, values in rates.items():
        canvas.area(upper, edges, values / unit, kind)
    for kind, counts in requests.items():
        canvas.area(lower, edges, np.add.reduceat(counts, starts) / widths, kind)
    _over_time(sheets, (name, "requests/s"), edges)
    canvas.legend(upper)
    parts = "; ".join(
        f"{format_size(moved[kind].sum())} {kind}, at most {canvas.plain(values.max() / unit)} {name}"
        for kind, values in rates.items()
    )
    return figure, f"{parts} in any {format_seconds(widths[0])}. MB is 1e6 bytes, MiB 2^20."


def _over_time(sheets: Sequence[Axes], labels: Sequence[str], edges: Floats) -> None:
    """Label the axes of sheets that are drawn over the same time, one above the other. labels: labels of the y axes, at
    least one a sheet. edges: edges of the time bins in seconds.
    """
    for axes, label in zip(sheets, labels, strict=False):
        canvas.numbers(axes)
        axes.set(ylabel=label, xlim=(edges[0], edges[-1]))
        axes.set_ylim(bottom=0)
    for axes in sheets[:-1]:
        axes.sharex(sheets[-1])
        axes.tick_params(labelbottom=False)
    sheets[-1].set_xlabel("time (s)")


def opens(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw the mean time of an open, and the rate of opens, over time."""
    assert view.opens is not None
    starts = canvas.groups(len(view.opens.opened), _BINS)
    edges = np.append(view.opens.edges[:-1][starts], view.opens.edges[-1])
    count, seconds = (np.add.reduceat(values, starts) for values in (view.opens.opened, view.opens.seconds))
    means = np.divide(seconds, count, where=count > 0, out=np.full(len(count), np.nan))
    name, unit = canvas.seconds_unit(float(np.nanmax(means)))
    figure, sheets = canvas.sheet(view, title, WIDE, 3.6, (3, 1.3))
    canvas.area(sheets[0], edges, means / unit, "read")
    canvas.area(sheets[1], edges, count / np.diff(edges), "read")
    _over_time(sheets, (f"time of an open ({name})", "opens/s"), edges)
    slowest = int(np.nanargmax(means))
    return figure, (
        f"Mean time of an open of a sample file: {format_seconds(seconds.sum() / count.sum())}; longest mean: "
        f"{format_seconds(means[slowest])} from {format_seconds(max(edges[slowest], 0.0))} on."
    )


def timeline(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw when individual ranks computed and when they had requests in flight."""
    lanes = view.lanes[:_LANES]
    until = max([view.duration_s, *(part[-1, 1] for lane in lanes for part in lane[1:] if len(part))])
    if not any(len(lane.compute) or len(lane.io) for lane in lanes) or until <= 0:
        return "Times of compute and I/O were not recorded.", ""
    figure, (axes,) = canvas.sheet(view, title, WIDE, 1.3 + 0.3 * len(lanes))
    computes = any(len(lane.compute) for lane in lanes)
    for row, lane in enumerate(lanes):
        _bars(axes, lane.compute, until, row - 0.4, COLOURS["compute"])
        _bars(axes, lane.io, until, row + (0.03 if computes else -0.18), COLOURS["I/O"])
    for kind in ("compute", "I/O") if computes else ("I/O",):
        axes.plot([], [], color=COLOURS[kind], linewidth=5, label=kind)
    axes.set_yticks(range(len(lanes)), [canvas.printable(lane.label, 24) for lane in lanes])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    canvas.numbers(axes, "x")
    axes.set(xlim=(0, until), ylim=(len(lanes) - 0.45, -0.55), xlabel="time (s)")
    canvas.legend(axes)
    bars = "Upper bars: a rank computed. Lower bars: it" if computes else "Bars: a rank"
    return figure, (
        f"{bars} had requests in flight. Paler: only part of the time."
        + (f" The first {len(lanes)} of {len(view.lanes)}." if len(lanes) < len(view.lanes) else "")
    )


def _bars(axes: Axes, segments: Floats, until: float, top: float, colour: str) -> None:
    """Draw the segments of a rank as bars. segments: shape (n, 3). The columns are the start and the end of a segment,
    and the share of its duration for which the rank was busy. The shade of a bar shows this share. All bars of the same
    shade are one path.
    """
    if len(segments) > _LANE_BINS:
        segments = _binned(segments, until, _LANE_BINS)
    shades = _shades(segments[:, 2])
    for shade in range(1, _SHADES + 1):
        begin, end = segments[shades == shade, :2].T
        if len(begin):
            alpha = round(255 * (0.15 + 0.85 * shade / _SHADES))
            canvas.boxes(axes, begin, end, top, top + 0.37, f"{colour}{alpha:02X}")


def _binned(segments: Floats, until: float, bins: int) -> Floats:
    """Divide the time from 0 to `until` into `bins` bins of equal width, and return the bins as segments. Neighbouring
    bins with about the same busy share are joined into one segment. segments: shape (n, 3). The columns are the start
    and the end of a segment, and its busy share. The result has the same columns. until: seconds.
    """
    times = np.concatenate((segments[:, 0], segments[:, 1]))
    order = np.argsort(times, kind="stable")
    shares = np.cumsum(np.concatenate((segments[:, 2], -segments[:, 2]))[order])
    done = np.concatenate(([0.0], np.cumsum(shares[:-1] * np.diff(times[order]))))
    edges = np.linspace(0.0, until, bins + 1)
    share = np.diff(np.interp(edges, times[order], done)) / (until / bins)
    shade = _shades(share)
    first = np.flatnonzero(np.append(True, np.diff(shade) != 0))
    return np.stack((edges[first], edges[np.append(first[1:], bins)], shade[first] / _SHADES), axis=1)


def _shades(shares: Floats) -> npt.NDArray[np.int64]:
    """Return a shade for each share of time. Shade 0 stands for a share of 0 (apart from rounding errors), and the
    highest shade stands for a share of 1.
    """
    return np.ceil(np.clip(shares, 0, 1) * _SHADES - 1e-6).astype(np.int64)


def steps(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw the time of each step by phase, as means over ranks."""
    done = view.steps
    if done is None or not len(done.wait):
        return "No step was completed.", ""
    count = len(done.wait)
    starts = canvas.groups(count, _BINS)
    sizes = np.diff(np.append(starts, count))
    edges = np.append(starts, count) - 0.5
    means = {phase: np.add.reduceat(values, starts) / sizes for phase, values in _parts(done).items()}
    total = np.sum(list(means.values()), axis=0)
    most = float(total.max())
    usual = float(np.percentile(total, 98))
    shown = 1.5 * usual if most > 3 * usual > 0 else most
    name, unit = canvas.seconds_unit(shown)
    figure, (axes,) = canvas.sheet(view, title, WIDE, 3.0)
    below = np.zeros(len(starts))
    for phase, values in means.items():
        axes.stairs((below + values) / unit, edges, baseline=below / unit, fill=True, color=COLOURS[phase], label=phase)
        below = below + values
    canvas.numbers(axes, "x", whole=True)
    canvas.numbers(axes, "y")
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, 1.15 * shown / unit or 1), ylabel=f"time per step ({name})")
    highest = f"highest at {starts[int(total.argmax())]:,}: {format_seconds(most)}, cut off"
    axes.set_xlabel(f"step ({highest})" if most > shown else "step")
    _mark_epochs(axes, done.epochs)
    canvas.legend(axes)
    return figure, _steps_caption(done, int(sizes[0]))


def _parts(steps: Steps) -> dict[str, Floats]:
    return {"wait": steps.wait, "compute": steps.compute, "sync": steps.sync}


def _steps_caption(steps: Steps, group: int) -> str:
    parts = {phase: float(values.sum()) for phase, values in _parts(steps).items()}
    total = sum(parts.values()) or 1.0
    parts_in_words = ", ".join(f"{phase} {100 * value / total:.1f} %" for phase, value in parts.items())
    return f"Means over ranks. Shares of the time in steps: {parts_in_words}." + (
        f" Each bar is the mean of {group} steps." if group > 1 else ""
    )


def _mark_epochs(axes: Axes, epochs: list[int]) -> None:
    for number in canvas.groups(len(epochs), _EPOCHS):
        place = epochs[number] - 0.5
        axes.axvline(place, color=canvas.INK, linewidth=0.7, linestyle=":")
        axes.annotate(f"epoch {number + 1}", (place, 0.985), (3, 0), ("data", "axes fraction"), "offset points",
                      va="top", fontsize=7, color=canvas.INK)  # fmt: skip
