"""Intervals of time, many at once: what they cover together, and how what they bring falls into bins."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def union(begins: Floats, ends: Floats) -> tuple[Floats, Floats]:
    """Begins and ends of the disjoint intervals that cover the same time, in order."""
    if not len(begins):
        return begins, ends
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], ends[order]
    reach = np.maximum.accumulate(ends)
    fresh = np.concatenate(([True], begins[1:] > reach[:-1]))
    last = np.concatenate((fresh[1:], [True]))
    return begins[fresh], reach[last]


def length(begins: Floats, ends: Floats) -> float:
    """Seconds that disjoint intervals cover."""
    return float((ends - begins).sum())


def within(begins: Floats, ends: Floats, knots: Floats) -> float:
    """Seconds of disjoint intervals that lie in `knots` (n, 2), which are disjoint and in order."""
    if not len(begins) or not len(knots):
        return 0.0
    covered = np.zeros(knots.shape)
    covered[:, 1] = np.cumsum(knots[:, 1] - knots[:, 0])
    covered[1:, 0] = covered[:-1, 1]
    times, values = knots.reshape(-1), covered.reshape(-1)
    return float((np.interp(ends, times, values) - np.interp(begins, times, values)).sum())


def binned(begins: Floats, ends: Floats, weights: Any, edges: Floats) -> Floats:
    """What falls into each of the bins between equally distant `edges`, each interval's weight spread evenly over its
    time. Nothing lies outside.
    """
    count = len(edges) - 1
    width = (edges[-1] - edges[0]) / count
    weights = np.broadcast_to(np.asarray(weights, np.float64), begins.shape)
    first = np.clip(((begins - edges[0]) / width).astype(np.int64), 0, count - 1)
    last = np.clip(((ends - edges[0]) / width).astype(np.int64), first, count - 1)
    inside = first == last
    total = np.bincount(first[inside], weights[inside], count).astype(np.float64)  # integers where there are none
    begins, ends, weights, first, last = (part[~inside] for part in (begins, ends, weights, first, last))
    if len(begins):
        rate = weights / (ends - begins)
        total += np.bincount(first, rate * (edges[first + 1] - begins), count)
        total += np.bincount(last, rate * (ends - edges[last]), count)
        change = np.bincount(first + 1, rate * width, count + 1) - np.bincount(last, rate * width, count + 1)
        total += np.cumsum(change)[:count]
    return total


def joined(begins: Floats, ends: Floats, gap: float) -> Floats:
    """Disjoint, ordered intervals with those made one that lie no further apart than `gap`: (n, 3), begin, end, and the
    share of that time which they cover.
    """
    if not len(begins):
        return np.empty((0, 3))
    fresh = np.flatnonzero(np.concatenate(([True], begins[1:] - ends[:-1] > gap)))
    last = np.concatenate((fresh[1:] - 1, [len(begins) - 1]))
    spans = np.maximum(ends[last] - begins[fresh], 1e-12)
    covered = np.add.reduceat(ends - begins, fresh)
    return np.stack([begins[fresh], ends[last], np.minimum(covered / spans, 1)], axis=1)
