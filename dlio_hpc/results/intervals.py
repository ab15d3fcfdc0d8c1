"""Intervals of time as arrays: their union, their overlap with other intervals, and the distribution of weights over
time bins.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def union(times: Floats) -> Floats:
    """Return the union of intervals: disjoint intervals in order of time, shape (2, m). times: start and end of each
    interval, shape (2, n).
    """
    if not times.size:
        return times
    begins, ends = times[:, np.argsort(times[0], kind="stable")]
    reach = np.maximum.accumulate(ends)
    fresh = np.flatnonzero(np.concatenate(([True], begins[1:] > reach[:-1])))
    last = np.concatenate((fresh[1:] - 1, [len(begins) - 1]))
    return np.array([begins[fresh], reach[last]])


def length(covered: Floats) -> float:
    """Return the total length in seconds of disjoint intervals, shape (2, n)."""
    return float((covered[1] - covered[0]).sum())


def within(covered: Floats, windows: Floats) -> float:
    """Return for how many seconds the intervals `covered`, shape (2, n), overlap with the intervals `windows`, shape
    (m, 2). Intervals of the same array do not overlap. `windows` are in order of time.
    """
    if not covered.size or not windows.size:
        return 0.0
    passed = np.zeros(windows.shape)
    passed[:, 1] = np.cumsum(windows[:, 1] - windows[:, 0])
    passed[1:, 0] = passed[:-1, 1]
    before, after = np.interp(covered, windows.reshape(-1), passed.reshape(-1))
    return float((after - before).sum())


def binned(times: Floats, weights: Any, edges: Floats) -> Floats:
    """Return the sum of weights in each bin, shape (len(edges) - 1,). times: start and end of each interval, shape (2,
    n); all intervals are within `edges`. weights: weight of each interval; it is spread evenly over the duration of the
    interval. edges: equally spaced times. The weight of an interval of zero length is added to the bin that contains
    the interval.
    """
    begins, ends = times
    count = len(edges) - 1
    width = (edges[-1] - edges[0]) / count
    weights = np.broadcast_to(np.asarray(weights, np.float64), begins.shape)
    first = _bins_of(begins, edges, width)
    last = np.maximum(_bins_of(ends, edges, width), first)
    inside = first == last
    total = np.bincount(first[inside], weights[inside], count).astype(
        np.float64
    )  # bincount returns integers for empty input
    begins, ends, weights, first, last = (part[~inside] for part in (begins, ends, weights, first, last))
    if len(begins):
        rate = weights / (ends - begins)
        total += np.bincount(first, rate * (edges[first + 1] - begins), count)
        total += np.bincount(last, rate * (ends - edges[last]), count)
        # Only intervals that span whole bins are used: the rounding error of the high rate of a short interval would
        # persist in the sum.
        whole = last > first + 1
        first, last, rate = first[whole], last[whole], rate[whole]
        change = np.bincount(first + 1, rate * width, count + 1) - np.bincount(last, rate * width, count + 1)
        total += np.maximum(np.cumsum(change)[:count], 0)  # negative only by rounding
    return total


def _bins_of(times: Floats, edges: Floats, width: float) -> npt.NDArray[np.int64]:
    """Return the index of the bin that contains each time. A time just before an edge belongs to the bin before that
    edge, even if a rounding error of the division puts it after the edge.
    """
    bins: npt.NDArray[np.int64] = np.clip(((times - edges[0]) / width).astype(np.int64), 0, len(edges) - 2)
    return np.maximum(bins - (times < edges[bins]), 0)


def joined(covered: Floats, gap: float) -> Floats:
    """Merge successive intervals if the gap between them is at most `gap`. covered: disjoint intervals in order of
    time, shape (2, n). Return an array of shape (m, 3). The columns are the start and the end of each merged interval,
    and the share of it that the original intervals cover.
    """
    if not covered.size:
        return np.empty((0, 3))
    begins, ends = covered
    fresh = np.flatnonzero(np.concatenate(([True], begins[1:] - ends[:-1] > gap)))
    last = np.concatenate((fresh[1:] - 1, [len(begins) - 1]))
    spans = np.maximum(ends[last] - begins[fresh], 1e-12)
    spent = np.add.reduceat(ends - begins, fresh)
    return np.stack([begins[fresh], ends[last], np.minimum(spent / spans, 1)], axis=1)
