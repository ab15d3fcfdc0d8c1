"""Read activity of a rank over time, in time bins of equal width. As the run gets longer, the width is doubled
repeatedly, which limits the memory that the bins need.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.results import intervals

Floats = npt.NDArray[np.float64]

# Rows of `amounts`: bytes received, requests, seconds with at least one read in flight, openings of files, and seconds
# in these openings, summed over threads.
BYTES_AND_REQUESTS, BUSY, OPENS = slice(0, 2), slice(2, 3), slice(3, 5)
_ROWS = 5
# Bin widths are powers of two in seconds, initially 7.8 ms, and bins start at multiples of the width. Times are
# therefore divided without rounding, and the amounts of two narrow bins add up to the amount of a wider bin.
LEAST_S = 2.0**-7
BINS, _FEWEST = 512, 64
# Maximum number of bins of all ranks together, which are gathered on rank 0. A bin takes 40 bytes, all bins 42 MB.
# Above 16,384 ranks, each rank has 64 bins.
_ALL_BINS = 2**20


class TimeBins(NamedTuple):
    """Consecutive time bins of `width` seconds. bins: number of bins. The first bin starts at `first` * `width` seconds
    on the clock of the read times.
    """

    width: float
    first: int
    bins: int

    @property
    def start(self) -> float:
        """Start of the first bin, in seconds on the clock of the read times."""
        return self.first * self.width

    @property
    def end(self) -> float:
        """End of the last bin, in seconds on the clock of the read times."""
        return (self.first + self.bins) * self.width


class Activity:
    """Read activity of a rank. time_bins: the rank's time bins; before the first read there are none. amounts: the
    amounts in each bin, shape (5, bins).
    """

    def __init__(self) -> None:
        self.time_bins = TimeBins(LEAST_S, 0, 0)
        self.amounts: Floats = np.zeros((_ROWS, 0))

    def add(self, rows: slice, times: Floats, amounts: Floats) -> None:
        """Add `amounts`, shape (rows, n), to the given rows of self.amounts. times: start and end of each of the n
        amounts in seconds, shape (2, n). An amount is spread evenly between its start and its end.
        """
        if times.size:
            self._reach(float(times[0].min()), float(times[1].max()))
            self.amounts[rows] += spread(times, amounts, self.time_bins)

    def _reach(self, begin: float, end: float) -> None:
        """Extend the bins to cover the time from `begin` to `end`. If more than `BINS` bins would be needed, double
        their width until `BINS` suffice.
        """
        while (wanted := _covering(self.time_bins, begin, end)).bins > BINS:
            self._double()
        before = self.time_bins.first - wanted.first if self.time_bins.bins else 0
        after = wanted.bins - before - self.time_bins.bins
        self.amounts = np.pad(self.amounts, ((0, 0), (before, after)))
        self.time_bins = wanted

    def _double(self) -> None:
        """Double the width of the bins by merging pairs of neighbouring bins."""
        width, first, bins = self.time_bins
        before = first % 2
        pairs = np.pad(self.amounts, ((0, 0), (before, (before + bins) % 2)))
        self.amounts = pairs.reshape(_ROWS, -1, 2).sum(axis=2)
        self.time_bins = TimeBins(2 * width, first // 2, self.amounts.shape[1])

    def by(self, offset: float, time_bins: TimeBins) -> Floats:
        """Return the amounts of this rank in other time bins, `time_bins`. The clock of these bins is `offset` seconds
        ahead of this rank's clock. The sums over all bins do not change. If a bin of this rank overlaps two of the
        other bins, its amount is divided between them.
        """
        width, first, bins = self.time_bins
        edges = (first + np.arange(bins + 1)) * width + offset
        return spread(np.array([edges[:-1], edges[1:]]), self.amounts, time_bins)


def _covering(time_bins: TimeBins, begin: float, end: float) -> TimeBins:
    """Return time bins of the same width as `time_bins`. They cover both `time_bins` and the time from `begin` to
    `end`.
    """
    first, last = int(begin // time_bins.width), int(end // time_bins.width)
    if time_bins.bins:
        first, last = min(first, time_bins.first), max(last, time_bins.first + time_bins.bins - 1)
    return TimeBins(time_bins.width, first, last - first + 1)


def common(width: float, begin: float, end: float, ranks: int) -> TimeBins:
    """Return time bins for all ranks, which cover the time from `begin` to `end`. There are at most 512 bins, and fewer
    if there are more than 2048 ranks. width: largest bin width of any rank.
    """
    most = max(_FEWEST, min(BINS, _ALL_BINS // ranks))
    while (bins := math.ceil(end / width) - math.floor(begin / width)) > most:
        width *= 2
    return TimeBins(width, math.floor(begin / width), bins)


def spread(times: Floats, amounts: Floats, time_bins: TimeBins) -> Floats:
    """Return the amounts per bin, shape (k, bins). amounts: k rows of n amounts, shape (k, n). times: start and end of
    each of the n amounts in seconds, shape (2, n); all must be within `time_bins`. Each amount is spread evenly between
    its start and its end.
    """
    edges: Floats = (time_bins.first + np.arange(time_bins.bins + 1.0)) * time_bins.width
    return np.array([intervals.binned(times, row, edges) for row in amounts])
