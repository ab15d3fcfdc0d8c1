"""From what the ranks recorded to figures: distributions, histograms that add up, overlap of reading and computing."""

from array import array

import numpy as np
import numpy.typing as npt

from dlio_hpc import intervals
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.read_activity import BUSY, BYTES_AND_REQUESTS, Activity
from dlio_hpc.results import Distribution

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

# The columns of a step: four instants of the rank's clock, samples and bytes that arrived, seconds of compute asked.
STARTED, READY, COMPUTED, SYNCED, SAMPLES, BYTES, ASKED = range(7)
COLUMNS = 7

# Read latencies: 8 bins an octave from 100 ns up, 34 octaves to half an hour. Ranks' counts add up to the job's.
_BINS_PER_OCTAVE, _LEAST_S, _BINS = 8, 1e-7, 8 * 34
# Request sizes: 4 bins an octave from 1 B to 1 TiB; each bin has its lower edge in it, and powers of two are edges.
_SIZES_PER_OCTAVE, _SIZE_BINS = 4, 4 * 40
# Reads that wait to be folded: 6 MiB of instants and sizes.
_FOLD = 1 << 18


def bin_edges() -> Floats:
    """Seconds; one more than there are bins."""
    edges: Floats = _LEAST_S * 2.0 ** (np.arange(_BINS + 1) / _BINS_PER_OCTAVE)
    return edges


def histogram(latencies: Floats) -> Counts:
    """Counts of `latencies`; what is shorter or longer than the bins goes to the first or last."""
    bins = np.log2(np.maximum(latencies, _LEAST_S) / _LEAST_S) * _BINS_PER_OCTAVE
    return np.bincount(np.minimum(bins.astype(np.int64), _BINS - 1), minlength=_BINS)


def size_edges() -> Floats:
    """Bytes; one more than there are bins."""
    edges: Floats = 2.0 ** (np.arange(_SIZE_BINS + 1) / _SIZES_PER_OCTAVE)
    return edges


def size_histogram(sizes: Counts) -> Counts:
    """Counts of `sizes`, in bytes; what is larger than the bins goes to the last, what brought nothing to none."""
    bins = np.searchsorted(size_edges(), sizes[sizes > 0], side="right") - 1
    return np.bincount(np.minimum(bins, _SIZE_BINS - 1), minlength=_SIZE_BINS)


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

    io_s: time with at least one read in flight; hidden_s: the part of it within compute; both in seconds. activity: all
    bytes and requests of the batches' tallies, and io_s, over time. sizes: of requests whose size is known.
    """

    def __init__(self) -> None:
        self.histogram: Counts = np.zeros(_BINS, np.int64)
        self.sizes: Counts = np.zeros(_SIZE_BINS, np.int64)
        self.activity = Activity()
        self.io_s = self.hidden_s = self.total_s = self.longest_s = 0.0
        self._starts, self._ends, self._sizes = array("d"), array("d"), array("q")
        self._batches = array("q")
        self._pending: Floats = np.empty((2, 0))

    def add(self, tally: Tally) -> bool:
        """Note a batch's reads; true when it is time to fold."""
        self._starts.extend(tally.starts)
        self._ends.extend(tally.ends)
        self._sizes.extend(tally.sizes)
        self._batches.extend((len(tally.starts), tally.bytes_read + tally.overhead_bytes, tally.requests))
        return len(self._starts) >= _FOLD or len(self._batches) >= _FOLD

    def fold(self, steps: Floats, until: float = np.inf) -> None:
        """Take in what was noted. `steps` (n, columns): those done, in order of time. No read that will be noted later
        began before `until`: time up to there is settled, what reaches beyond waits for the next fold.
        """
        reads = np.array([self._starts, self._ends])
        latencies = reads[1] - reads[0]
        self.histogram += histogram(latencies)
        self.total_s += float(latencies.sum())
        self.longest_s = max(self.longest_s, float(latencies.max(initial=0.0)))
        sizes, batches = np.array(self._sizes, np.int64), np.array(self._batches, np.int64).reshape(-1, 3)
        del self._starts[:], self._ends[:], self._sizes[:], self._batches[:]
        self.sizes += size_histogram(sizes)
        self.activity.add(BYTES_AND_REQUESTS, reads, shared_out(latencies, sizes, batches))
        reads = np.concatenate((self._pending, reads), axis=1)
        covered = intervals.union(np.minimum(reads[:, reads[0] < until], until))
        lengths = covered[1] - covered[0]
        self.activity.add(BUSY, covered, lengths[np.newaxis])
        self.io_s += float(lengths.sum())
        self.hidden_s += intervals.within(covered, steps[:, [READY, COMPUTED]])
        self._pending = np.maximum(reads[:, reads[1] > until], until)


def shared_out(latencies: Floats, sizes: Counts, batches: Counts) -> Floats:
    """Bytes and requests (2, reads) of each read. `batches` (n, 3): how many reads each batch has, its bytes and its
    requests. What a batch has beyond its reads of known size is shared out among the others, or among all where there
    are no others, in proportion to their time; what batches without a read have belongs to nobody.
    """
    of_batch = np.repeat(np.arange(len(batches)), batches[:, 0])
    known = sizes >= 0
    amounts = np.array([np.where(known, sizes, 0), known], np.float64)
    left = batches[:, 1:].T - np.array([np.bincount(of_batch, row, len(batches)) for row in amounts])
    if not left[:, batches[:, 0] > 0].any():
        return amounts
    all_known = np.bincount(of_batch, ~known, len(batches)) == 0
    weights = np.where(known & ~all_known[of_batch], 0.0, np.maximum(latencies, _LEAST_S))
    shares = weights / np.bincount(of_batch, weights, len(batches))[of_batch]
    amounts += left[:, of_batch] * shares
    return amounts
