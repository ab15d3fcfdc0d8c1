"""Pictures of distributions over request sizes, durations and ranks."""

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dlio_hpc.analysis.log.view import Counts, Floats, Histogram, Ranks, View
from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.reports.figures import canvas
from dlio_hpc.reports.figures.canvas import COLOURS, NARROW

# Maximum numbers of bins, bars and dots in a picture. If there are more, they are grouped, or drawn as pixels, to keep
# files small.
_SIZES, _DURATIONS, _BARS, _DOTS = 64, 300, 64, 400


def sizes(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw the number of requests by size."""
    histogram = _trimmed(view.sizes, _SIZES)
    if histogram is None:
        return canvas.NOTHING, ""
    kinds = _kinds(histogram)
    figure, (axes,) = canvas.sheet(view, title, NARROW, 3.0)
    begin, ratio = histogram.edges[:-1], histogram.edges[1:] / histogram.edges[:-1]
    for place, (kind, counts) in enumerate(kinds.items()):
        used = counts > 0
        left = begin * ratio ** ((place + 0.06) / len(kinds))
        right = begin * ratio ** ((place + 0.94) / len(kinds))
        canvas.boxes(axes, left[used], right[used], 0, counts[used].astype(float), COLOURS[kind])
        axes.plot([], [], color=COLOURS[kind], linewidth=5, label=kind)
    canvas.count_scale(axes, np.concatenate(list(kinds.values())), "requests")
    canvas.log_bytes(axes, histogram.edges[0], histogram.edges[-1])
    axes.set_xlabel("bytes of one request")
    canvas.legend(axes)
    parts = [f"{int(counts.sum()):,} {kind}, median {_half(histogram.edges, counts)}" for kind, counts in kinds.items()]
    return figure, f"Requests: {'; '.join(parts)}."


def _half(edges: Floats, counts: Counts) -> str:
    """Return the median size as text: the start of its bin, and the width of the bin. Bins start at powers of two,
    because sizes are often powers of two.
    """
    at = int(np.searchsorted(np.cumsum(counts), counts.sum() / 2))
    width = float(edges[at + 1] / edges[at]) - 1
    return f"{format_size(float(edges[at]))} or up to {100 * width:.0f} % more"


def ranks_bandwidth(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw the bandwidth of each rank: as bars if there are few ranks, as a histogram if there are many."""
    ranks = view.ranks
    active = np.flatnonzero((ranks.io_s > 0) & (ranks.bytes_read + ranks.bytes_written > 0))
    if not len(active):
        return canvas.NOTHING, ""
    read, written = (values[active] / ranks.io_s[active] for values in (ranks.bytes_read, ranks.bytes_written))
    total = read + written
    name, unit = canvas.rate_unit(float(total.max()))
    least, median, most = (canvas.plain(value / unit) for value in (total.min(), np.median(total), total.max()))
    figure, (axes,) = canvas.sheet(view, title, NARROW, 3.0)
    canvas.numbers(axes, "x")
    canvas.numbers(axes, "y", whole=len(active) > _BARS)
    line = axes.axhline if len(active) <= _BARS else axes.axvline
    if len(active) <= _BARS:
        order = np.argsort(-total, kind="stable")
        _rank_bars(axes, active[order], read[order] / unit, written[order] / unit)
        axes.set(xlabel=f"rank, fastest first; dashed: median {median} {name}", ylabel=f"{name} while in I/O")
    else:
        counts, edges = np.histogram(total / unit, 40, (0.0, 1.02 * float(total.max() / unit)))
        axes.stairs(counts, edges, fill=True, color=COLOURS["I/O"])
        axes.set(xlabel=f"{name} while in I/O; dashed: median {median} {name}", ylabel="ranks", xlim=(0, edges[-1]))
    line(float(np.median(total)) / unit, color=canvas.INK, linewidth=0.9, linestyle="--")
    canvas.legend(axes)
    idle = len(ranks.hosts) - len(active)
    return figure, f"Throughput while at least one request was in flight: {least} to {most} {name}." + (
        f" {idle} of {len(ranks.hosts)} ranks neither read nor wrote." if idle else ""
    )


def _rank_bars(axes: Axes, numbers: npt.NDArray[np.int64], read: Floats, written: Floats) -> None:
    """Draw a bar per rank: the rate of reads, with the rate of writes on top of it. numbers: rank numbers."""
    place = np.arange(len(numbers))
    axes.bar(place, read, 0.8, color=COLOURS["read"], label="read")
    if written.any():
        axes.bar(place, written, 0.8, bottom=read, color=COLOURS["written"], label="written")
    every = canvas.groups(len(numbers), 16)
    axes.set_xticks(place[every], [str(number) for number in numbers[every]])
    axes.set_xlim(-0.6, max(len(numbers), 4) - 0.4)


def latency(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw a histogram of the durations of requests, with quantiles."""
    if view.latency is None:
        return "Single requests were not timed.", ""
    histogram = _trimmed(view.latency, _DURATIONS)
    if histogram is None:
        return canvas.NOTHING, ""
    figure, (axes,) = canvas.sheet(view, title, NARROW, 3.0)
    kinds = _kinds(histogram)
    canvas.count_scale(axes, np.concatenate(list(kinds.values())), "requests")
    marks = []
    parts = []
    for kind, counts in kinds.items():
        canvas.area(axes, histogram.edges, counts, kind)
        values = dict(zip(("p50", "p95", "p99"), _quantiles(histogram.edges, counts, [0.5, 0.95, 0.99]), strict=True))
        marks += [(value, name, COLOURS[kind]) for name, value in values.items()]
        parts.append(f"{kind}: " + ", ".join(f"{name} {format_seconds(value)}" for name, value in values.items()))
    least, most = float(histogram.edges[0]), float(histogram.edges[-1])
    canvas.log_seconds(axes, least, max(most, least * (max(marks)[0] / least) ** (1 / 0.72)))
    _mark_quantiles(axes, sorted(marks))
    axes.set_xlabel("duration of one request (log scale)")
    canvas.legend(axes)
    return figure, f"{'; '.join(parts)}. A quantile is the middle of its bin."


def _mark_quantiles(axes: Axes, marks: list[tuple[float, str, str]]) -> None:
    """Mark quantiles with labelled lines. marks: value, name and colour of each quantile, smallest value first. Each
    label has its own row above the histogram, so that labels do not overlap and no line crosses a label.
    """
    low, high = axes.get_ylim()
    room = 1 / (1 - 0.075 * len(marks))
    axes.set_ylim(low, low * (high / low) ** room if axes.get_yscale() == "log" else high * room)
    for row, (value, name, colour) in enumerate(marks):
        height = 0.99 - 0.075 * row
        axes.plot([value, value], [0, height], transform=axes.get_xaxis_transform(), color=colour, linewidth=0.9)
        axes.annotate(f"{name} {format_seconds(value)}", (value, height), (3, 0), ("data", "axes fraction"),
                      "offset points", va="top", fontsize=7, color=colour)  # fmt: skip


def spread(view: View, title: str) -> tuple[Figure | str, str]:
    """Draw the I/O time, the wait for data and the bytes of each rank."""
    ranks = view.ranks
    if not ranks.hosts:
        return "Ranks were not recorded.", ""
    rows = [("I/O time", ranks.io_s, "I/O"), ("wait", ranks.wait_s, "wait")]
    times = [(label, values, kind) for label, values, kind in rows if values is not None]
    figure, axes = canvas.sheet(view, title, NARROW, 0.9 + 0.85 * (len(times) + 1), [1] * (len(times) + 1))
    for row_axes, (label, values, kind) in zip(axes, times, strict=False):
        name, unit = canvas.seconds_unit(float(values.max()))
        _strip(row_axes, values / unit, kind)
        slowest = _slowest(values)
        row_axes.scatter(values[slowest] / unit, slowest, 26, facecolors="none", edgecolors=canvas.INK, linewidths=0.8)
        row_axes.set_xlabel(f"{label} ({name}); slowest: {_named(slowest, ranks.hosts)}")
    moved = {"read": ranks.bytes_read, "written": ranks.bytes_written}
    name, unit = canvas.bytes_unit(float(max(values.max() for values in moved.values())))
    for kind, count in moved.items():
        if count.any() or kind == "read":
            _strip(axes[-1], count / unit, kind)
    axes[-1].set_xlabel(f"bytes moved ({name})")
    canvas.legend(axes[-1])
    return figure, "One dot per rank, rank 0 at the top. Slowest: " + "; ".join(
        f"{label} {_listed(values, ranks)}" for label, values, _ in times
    )


def _strip(axes: Axes, values: npt.NDArray[np.number], kind: str) -> None:
    """Draw a dot per rank. values: one value per rank, shape (ranks,). The x axis shows the values and starts at zero.
    The y axis shows the ranks from top to bottom.
    """
    count = len(values)
    size = 12 if count <= 64 else 4
    axes.scatter(values, np.arange(count), size, COLOURS[kind], linewidths=0, alpha=0.6, label=kind,
                 rasterized=count > _DOTS)  # fmt: skip
    axes.set(xlim=(0, 1.05 * axes.dataLim.x1 or 1.0), ylim=(count - 0.5, -0.5), yticks=[])
    axes.spines["left"].set_visible(False)
    canvas.numbers(axes, "x")


def _slowest(values: Floats) -> npt.NDArray[np.int64]:
    """Return the rank numbers of the three largest values, largest first. If there are fewer values, return all rank
    numbers.
    """
    return np.argsort(-values, kind="stable")[:3]


def _named(ranks: npt.NDArray[np.int64], hosts: list[str]) -> str:
    """Return the rank numbers and hosts of the first of these ranks, as many as fit into a narrow picture."""
    names = [f"{rank} on {canvas.printable(hosts[rank].partition('.')[0], 18)}" for rank in ranks]
    while len(names) > 1 and sum(map(len, names)) > 38:
        names.pop()
    return ", ".join(names)


def _listed(values: Floats, ranks: Ranks) -> str:
    return ", ".join(f"rank {n}{_on(ranks.hosts[n])} ({format_seconds(float(values[n]))})" for n in _slowest(values))


def _on(host: str) -> str:
    return f" on {host}" if host else ""


def _kinds(histogram: Histogram) -> dict[str, Counts]:
    """Return the counts of requests by kind: "read" with the counts of reads, and "written" with the counts of writes.
    A kind without requests is left out.
    """
    return {kind: counts for kind, counts in (("read", histogram.reads), ("written", histogram.writes)) if counts.any()}


def _trimmed(histogram: Histogram, most: int) -> Histogram | None:
    """Return the histogram without the empty bins at both ends, merged into at most `most` bins. Return None if all
    bins are empty.
    """
    used = np.flatnonzero(histogram.reads + histogram.writes)
    if not len(used):
        return None
    first, end = int(used[0]), int(used[-1]) + 1
    edges = histogram.edges[first : end + 1].astype(float)
    if edges[0] <= 0:
        edges[0] = edges[1] / 2
    starts = canvas.groups(end - first, most)
    reads, writes = (np.add.reduceat(counts[first:end], starts) for counts in (histogram.reads, histogram.writes))
    return Histogram(np.append(edges[:-1][starts], edges[-1]), reads, writes)


def _quantiles(edges: Floats, counts: Counts, shares: list[float]) -> list[float]:
    """Return quantiles of a histogram. The value of a quantile is the geometric mean of the edges of its bin, as in
    result.json. shares: the quantiles to return, such as 0.95.
    """
    at = np.searchsorted(np.cumsum(counts), np.array(shares) * counts.sum())
    quantiles: list[float] = np.sqrt(edges[:-1] * edges[1:])[at].tolist()
    return quantiles
