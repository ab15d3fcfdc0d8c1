"""Distributions and histograms of times and sizes, and the overlap of reading with computation. All are computed from
the recorded steps and reads of a rank.
"""

from copy import copy

import numpy as np
import numpy.typing as npt

from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.read_activity import BUSY, BYTES_AND_REQUESTS, OPENS, Activity
from dlio_hpc.results import intervals
from dlio_hpc.results.run_result import Distribution

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

# Columns of a step: four timestamps on the rank's clock, samples and bytes received, and the
# requested computation time in seconds.
STARTED, READY, COMPUTED, SYNCED, SAMPLES, BYTES, ASKED = range(7)
COLUMNS = 7

# Bins of read latencies: 8 per octave over 34 octaves, from 100 ns to half an hour. They are the same on all ranks, so
# that histograms can be summed.
_BINS_PER_OCTAVE, _LEAST_S, _BINS = 8, 1e-7, 8 * 34
# Bins of request sizes: 4 per octave from 1 B to 1 TiB. A bin includes its lower edge. Powers of two are edges.
_SIZES_PER_OCTAVE, _SIZE_BINS = 4, 4 * 40
# Rows of the histograms of latencies.
READ, OPEN, CLOSE = range(3)
_KINDS = 3
# Number of reads that are collected before they are added to totals and histograms: 8 MiB of timestamps and sizes.
_FOLD = 1 << 16


def bin_edges() -> Floats:
    """Return the edges of the latency bins in seconds. There is one more edge than bins."""
    edges: Floats = _LEAST_S * 2.0 ** (np.arange(_BINS + 1) / _BINS_PER_OCTAVE)
    return edges


def histogram(latencies: Floats) -> Counts:
    """Return the histogram of `latencies` (seconds): a count per bin. Values outside the bins are counted in the first
    or last bin.
    """
    bins = np.log2(np.maximum(latencies, _LEAST_S) / _LEAST_S) * _BINS_PER_OCTAVE
    return np.bincount(np.minimum(bins.astype(np.int64), _BINS - 1), minlength=_BINS)


def size_edges() -> Floats:
    """Return the edges of the request size bins in bytes. There is one more edge than bins."""
    edges: Floats = 2.0 ** (np.arange(_SIZE_BINS + 1) / _SIZES_PER_OCTAVE)
    return edges


def size_histogram(sizes: Counts) -> Counts:
    """Return the histogram of `sizes` (bytes): a count per bin. Sizes above the last bin are counted in the last bin.
    Requests of zero bytes are not counted.
    """
    bins = np.searchsorted(size_edges(), sizes[sizes > 0], side="right") - 1
    return np.bincount(np.minimum(bins, _SIZE_BINS - 1), minlength=_SIZE_BINS)


def of_histogram(counts: Counts, total_s: float, longest: float, unfinished: int = 0) -> Distribution | None:
    """Return the distribution that a latency histogram describes, or None if the histogram is empty. total_s, longest:
    sum and maximum of the latencies in seconds. The mean and the maximum of the distribution are exact; a quantile is
    the geometric mean of the edges of its bin, or the maximum if the quantile of so few latencies is the largest one.
    unfinished: number of operations that did not end, and which are longer than all others. A quantile that falls among
    them is the maximum of the others, and so too low.
    """
    reads = int(counts.sum())
    if not reads:
        return None
    edges = bin_edges()
    middles = np.append(np.sqrt(edges[:-1] * edges[1:]), longest)
    places = np.ceil(np.array([0.50, 0.95, 0.99, 0.999]) * (reads + unfinished))
    at = np.where(places < reads, np.searchsorted(np.cumsum(counts), places), len(counts))
    p50, p95, p99, p999 = np.minimum(middles[at], longest).tolist()
    return Distribution(total_s / reads, p50, p95, p99, longest, p999)


def of_values(values: Floats) -> Distribution:
    """Return the exact distribution of `values`, which must not be empty."""
    p50, p95, p99, p999 = np.percentile(values, [50, 95, 99, 99.9]).tolist()
    return Distribution(float(values.mean()), p50, p95, p99, float(values.max()), p999)


class ReadLog:
    """Statistics of all reads of a rank. Reads are first collected. To bound the memory, they are added to totals and
    histograms at intervals, and then forgotten.

    histograms: histograms of the latencies of reads, openings and closings of files, shape (3, bins); the rows are
    READ, OPEN and CLOSE. sums: sum and maximum of these latencies in seconds, shape (3, 2).

    io_s: seconds with at least one read in flight. hidden_s: part of io_s that overlaps with computation. waited_s:
    seconds in which the rank waits for a batch while at least one file is read, opened or closed. sizes: histogram
    of the request sizes, without requests of unknown size. activity: read_activity.py defines its amounts over time.
    """

    def __init__(self) -> None:
        self.histograms: Counts = np.zeros((_KINDS, _BINS), np.int64)
        self.sums: Floats = np.zeros((_KINDS, 2))
        self.sizes: Counts = np.zeros(_SIZE_BINS, np.int64)
        self.activity = Activity()
        self.io_s = self.hidden_s = self.waited_s = 0.0
        # Lists, because they are extended faster than arrays.
        self._starts: list[float] = []
        self._ends: list[float] = []
        self._sizes: list[int] = []
        self._batches: list[int] = []
        self._opened: list[tuple[float, float]] = []
        self._closed: list[tuple[float, float]] = []
        self._handled: list[tuple[float, float]] = []
        self._pending: Floats = np.empty((2, 0))
        self._pending_handled: Floats = np.empty((2, 0))

    def copy(self) -> "ReadLog":
        """Return a log that has the reads collected so far."""
        made = copy(self)
        made.histograms, made.sums, made.sizes = self.histograms.copy(), self.sums.copy(), self.sizes.copy()
        made.activity = copy(self.activity)
        made.activity.amounts = self.activity.amounts.copy()
        made._starts, made._ends, made._sizes = self._starts.copy(), self._ends.copy(), self._sizes.copy()
        made._batches, made._opened, made._closed = self._batches.copy(), self._opened.copy(), self._closed.copy()
        made._handled = self._handled.copy()
        return made

    def add(self, tally: Tally) -> bool:
        """Collect the reads of a batch. Return True if the caller must now call fold(), because many reads have been
        collected.
        """
        self._starts += tally.starts
        self._ends += tally.ends
        self._sizes += tally.sizes
        self._opened += tally.opened
        self._closed += tally.closed
        self._handled += tally.handled
        self._batches += len(tally.starts), tally.bytes_read + tally.overhead_bytes, tally.requests
        return max(len(self._starts), len(self._batches), len(self._opened)) >= _FOLD

    def fold(self, steps: Floats, until: float = np.inf) -> None:
        """Add the collected reads to the totals and histograms. steps: completed steps in order of time, shape (n,
        columns of a step). until: time in seconds; all reads that are collected later start at this time or after it.
        The totals up to this time are therefore final. If a read ends after `until`, the rest of the read is kept for
        the next call.
        """
        reads = np.array([self._starts, self._ends])
        opened, closed, handled = (
            np.array(times, float).reshape(-1, 2).T for times in (self._opened, self._closed, self._handled)
        )
        for kind, times in ((READ, reads), (OPEN, opened), (CLOSE, closed)):
            self._count(kind, times[1] - times[0])
        latencies = reads[1] - reads[0]
        sizes, batches = np.array(self._sizes, np.int64), np.array(self._batches, np.int64).reshape(-1, 3)
        del self._starts[:], self._ends[:], self._sizes[:], self._batches[:]
        self.sizes += size_histogram(sizes)
        self.activity.add(BYTES_AND_REQUESTS, reads, shared_out(latencies, sizes, batches))
        self.activity.add(OPENS, opened, np.array([np.ones(opened.shape[1]), opened[1] - opened[0]]))
        handled = np.concatenate((opened, closed, handled), axis=1)
        del self._opened[:], self._closed[:], self._handled[:]
        covered, self._pending = _until(np.concatenate((self._pending, reads), axis=1), until)
        handled, self._pending_handled = _until(np.concatenate((self._pending_handled, handled), axis=1), until)
        lengths = covered[1] - covered[0]
        self.activity.add(BUSY, covered, lengths[np.newaxis])
        self.io_s += float(lengths.sum())
        active = intervals.union(np.concatenate((covered, handled), axis=1))
        if active.size:
            steps = steps[np.searchsorted(steps[:, COMPUTED], active[0, 0]) :]
        self.hidden_s += intervals.within(covered, steps[:, [READY, COMPUTED]])
        self.waited_s += intervals.within(active, steps[:, [STARTED, READY]])

    def _count(self, kind: int, latencies: Floats) -> None:
        """Add latencies of one kind to the histograms and sums. kind: READ, OPEN or CLOSE."""
        self.histograms[kind] += histogram(latencies)
        longest = max(self.sums[kind, 1], latencies.max(initial=0.0))
        self.sums[kind] = self.sums[kind, 0] + latencies.sum(), longest


def _until(times: Floats, until: float) -> tuple[Floats, Floats]:
    """Return the union of intervals up to the time `until`, and the parts of the intervals after this time. times:
    start and end of each interval, shape (2, n).
    """
    return (
        intervals.union(np.minimum(times[:, times[0] < until], until)),
        np.maximum(times[:, times[1] > until], until),
    )


def shared_out(latencies: Floats, sizes: Counts, batches: Counts) -> Floats:
    """Return the bytes and the requests of each read, shape (2, reads). latencies: seconds that each read took. sizes:
    bytes of each read; negative if unknown. batches: number of reads, bytes and requests of each batch, shape (n, 3).

    A read of known size gets its own bytes and one request. The remaining bytes and requests of a batch are divided
    among its reads of unknown size, in proportion to their latency. If all sizes in a batch are known, the remaining
    bytes and requests are divided among all its reads. Bytes and requests of a batch without reads are dropped.
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
