"""From what the ranks recorded to figures: distributions, histograms that add up, overlap of reading and computing."""

from array import array

import numpy as np
import numpy.typing as npt

from dlio_hpc.results import Distribution

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

# The columns of a step: four instants of the rank's clock, samples and bytes that arrived, seconds of compute asked.
STARTED, READY, COMPUTED, SYNCED, SAMPLES, BYTES, ASKED = range(7)
COLUMNS = 7

# Read latencies: 8 bins an octave from 100 ns up, 34 octaves to half an hour. Ranks' counts add up to the job's.
_BINS_PER_OCTAVE, _LEAST_S, _BINS = 8, 1e-7, 8 * 34
# Reads that wait to be folded: 4 MiB of instants.
_FOLD = 1 << 18


def bin_edges() -> Floats:
    """Seconds; one more than there are bins."""
    edges: Floats = _LEAST_S * 2.0 ** (np.arange(_BINS + 1) / _BINS_PER_OCTAVE)
    return edges


def histogram(latencies: Floats) -> Counts:
    """Counts of `latencies`; what is shorter or longer than the bins goes to the first or last."""
    bins = np.log2(np.maximum(latencies, _LEAST_S) / _LEAST_S) * _BINS_PER_OCTAVE
    return np.bincount(np.minimum(bins.astype(np.int64), _BINS - 1), minlength=_BINS)


def of_histogram(counts: Counts, total_s: float, longest: float) -> Distribution | None:
    """Mean and maximum exactly, quantiles at the geometric middle of their bin; None when nothing was counted."""
    reads = int(counts.sum())
    if not reads:
        return None
    edges = bin_edges()
    middles = np.sqrt(edges[:-1] * edges[1:])
    at = np.searchsorted(np.cumsum(counts), np.array([0.50, 0.95, 0.99]) * reads)
    p50, p95, p99 = np.minimum(middles[at], longest).tolist()
    return Distribution(total_s / reads, p50, p95, p99, longest)


def of_values(values: Floats) -> Distribution:
    """The distribution of all `values`, exactly."""
    p50, p95, p99 = np.percentile(values, [50, 95, 99]).tolist()
    return Distribution(float(values.mean()), p50, p95, p99, float(values.max()))


class ReadLog:
    """All reads of a rank, folded into a few numbers before they grow to many.

    io_s: time with at least one read in flight; hidden_s: the part of it within compute; both in seconds.
    """

    def __init__(self) -> None:
        self.histogram: Counts = np.zeros(_BINS, np.int64)
        self.io_s = self.hidden_s = self.total_s = self.longest_s = 0.0
        self._starts, self._ends = array("d"), array("d")
        self._pending: Floats = np.empty((2, 0))

    def add(self, starts: "array[float]", ends: "array[float]") -> bool:
        """Note reads; true when it is time to fold."""
        self._starts.extend(starts)
        self._ends.extend(ends)
        return len(self._starts) >= _FOLD

    def fold(self, steps: Floats, until: float = np.inf) -> None:
        """Take in what was noted. `steps` (n, columns): those done, in order of time. No read that will be noted later
        began before `until`: time up to there is settled, what reaches beyond waits for the next fold.
        """
        reads = np.array([self._starts, self._ends])
        del self._starts[:], self._ends[:]
        latencies = reads[1] - reads[0]
        self.histogram += histogram(latencies)
        self.total_s += float(latencies.sum())
        self.longest_s = max(self.longest_s, float(latencies.max(initial=0.0)))
        reads = np.concatenate((self._pending, reads), axis=1)
        io_s, hidden_s = overlap(np.minimum(reads[:, reads[0] < until], until), steps)
        self.io_s, self.hidden_s = self.io_s + io_s, self.hidden_s + hidden_s
        self._pending = np.maximum(reads[:, reads[1] > until], until)


def overlap(reads: Floats, steps: Floats) -> tuple[float, float]:
    """Seconds with at least one of `reads` (2, n) in flight, and the part of them within the compute of `steps`."""
    begins, ends = union(reads)
    if not len(begins):
        return 0.0, 0.0
    knots = steps[:, [READY, COMPUTED]]
    computed = np.zeros(knots.shape)
    computed[:, 1] = np.cumsum(knots[:, 1] - knots[:, 0])
    computed[1:, 0] = computed[:-1, 1]
    times, values = knots.reshape(-1), computed.reshape(-1)
    hidden = np.interp(ends, times, values) - np.interp(begins, times, values)
    return float((ends - begins).sum()), float(hidden.sum())


def union(intervals: Floats) -> tuple[Floats, Floats]:
    """Begins and ends of the disjoint intervals that cover the same time as `intervals` (2, n), in order."""
    begins, ends = intervals[:, np.argsort(intervals[0], kind="stable")]
    reach = np.maximum.accumulate(ends)
    fresh = np.flatnonzero(np.concatenate(([True], begins[1:] > reach[:-1]))) if len(begins) else np.arange(0)
    last = np.concatenate((fresh[1:] - 1, [len(begins) - 1])) if len(begins) else fresh
    return begins[fresh], reach[last]
