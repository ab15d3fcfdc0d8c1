"""Intervals of time, many at once: what they cover together, and how what they bring falls into bins."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def union(times: Floats) -> Floats:
    """The disjoint intervals, in order, that cover the same time as `times` (2, n)."""
    if not times.size:
        return times
    begins, ends = times[:, np.argsort(times[0], kind="stable")]
    reach = np.maximum.accumulate(ends)
    fresh = np.flatnonzero(np.concatenate(([True], begins[1:] > reach[:-1])))
    last = np.concatenate((fresh[1:] - 1, [len(begins) - 1]))
    return np.array([begins[fresh], reach[last]])


def length(covered: Floats) -> float:
    """Seconds of disjoint intervals (2, n)."""
    return float((covered[1] - covered[0]).sum())


def within(covered: Floats, others: Floats) -> float:
    """Seconds of disjoint intervals (2, n) that lie in `others` (n, 2), which are disjoint and in order."""
    if not covered.size or not others.size:
        return 0.0
    passed = np.zeros(others.shape)
    passed[:, 1] = np.cumsum(others[:, 1] - others[:, 0])
    passed[1:, 0] = passed[:-1, 1]
    before, after = np.interp(covered, others.reshape(-1), passed.reshape(-1))
    return float((after - before).sum())


def binned(times: Floats, weights: Any, edges: Floats) -> Floats:
    """What falls into each of the bins between equally distant `edges`, the weight of each of `times` (2, n) spread
    evenly over it; one of no length goes to the bin where it is. Nothing lies outside.
    """
    begins, ends = times
    count = len(edges) - 1
    width = (edges[-1] - edges[0]) / count
    weights = np.broadcast_to(np.asarray(weights, np.float64), begins.shape)
    first = _bins_of(begins, edges, width)
    last = np.maximum(_bins_of(ends, edges, width), first)
    inside = first == last
    total = np.bincount(first[inside], weights[inside], count).astype(np.float64)  # integers where there are none
    begins, ends, weights, first, last = (part[~inside] for part in (begins, ends, weights, first, last))
    if len(begins):
        rate = weights / (ends - begins)
        total += np.bincount(first, rate * (edges[first + 1] - begins), count)
        total += np.bincount(last, rate * (ends - edges[last]), count)
        # The rate of a short interval at an edge can be so high that its rounding would stay in the sum of the changes.
        whole = last > first + 1
        first, last, rate = first[whole], last[whole], rate[whole]
        change = np.bincount(first + 1, rate * width, count + 1) - np.bincount(last, rate * width, count + 1)
        total += np.maximum(np.cumsum(change)[:count], 0)  # less than nothing only where rounding made it so
    return total


def _bins_of(times: Floats, edges: Floats, width: float) -> npt.NDArray[np.int64]:
    """Number of the bin that holds each time. A time just before an edge stays before it, although the division
    rounds it up.
    """
    bins: npt.NDArray[np.int64] = np.clip(((times - edges[0]) / width).astype(np.int64), 0, len(edges) - 2)
    return np.maximum(bins - (times < edges[bins]), 0)


def joined(covered: Floats, gap: float) -> Floats:
    """Disjoint, ordered intervals (2, n) with those made one that lie no further apart than `gap`: (m, 3), begin, end,
    and the share of that time which they cover.
    """
    if not covered.size:
        return np.empty((0, 3))
    begins, ends = covered
    fresh = np.flatnonzero(np.concatenate(([True], begins[1:] - ends[:-1] > gap)))
    last = np.concatenate((fresh[1:] - 1, [len(begins) - 1]))
    spans = np.maximum(ends[last] - begins[fresh], 1e-12)
    spent = np.add.reduceat(ends - begins, fresh)
    return np.stack([begins[fresh], ends[last], np.minimum(spent / spans, 1)], axis=1)
