"""Read activity of a rank over time, in time bins of equal width. The width doubles as the run gets longer, so that
memory is bounded.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc import intervals

Floats = npt.NDArray[np.float64]

# Rows of the amounts in each bin: bytes received, requests, seconds with at least one read in flight.
BYTES_AND_REQUESTS, BUSY = slice(0, 2), slice(2, 3)
_ROWS = 3
# Bin widths are powers of two seconds, 7.8 ms at first, and bins begin at multiples of the width. So times are divided
# without rounding, and the counts at a width add up to the counts at any larger width.
LEAST_S = 2.0**-7
BINS, _FEWEST = 512, 64
# Maximum number of bins of all ranks together, on rank 0, at 24 bytes each: 25 MB. Beyond 16,384 ranks: 64 per rank.
_ALL_BINS = 2**20


class Lattice(NamedTuple):
    """A row of time bins: `bins` bins of `width` seconds each. The first bin starts at `first` * `width` seconds on the
    clock of the read times.
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
    """Read activity of a rank. lattice: its time bins; none before the first read. amounts (3, bins): in each bin,
    bytes received, requests, and seconds with at least one read in flight.
    """

    def __init__(self) -> None:
        self.lattice = Lattice(LEAST_S, 0, 0)
        self.amounts: Floats = np.zeros((_ROWS, 0))

    def add(self, rows: slice, times: Floats, amounts: Floats) -> None:
        """Add `amounts` (rows, n) to the given rows. Each amount is spread evenly over its interval in `times`
        (2, n).
        """
        if times.size:
            self._reach(float(times[0].min()), float(times[1].max()))
            self.amounts[rows] += spread(times, amounts, self.lattice)

    def _reach(self, begin: float, end: float) -> None:
        """Extend the bins to cover the time from `begin` to `end`. Double their width until `BINS` bins suffice."""
        while (wanted := _covering(self.lattice, begin, end)).bins > BINS:
            self._double()
        before = self.lattice.first - wanted.first if self.lattice.bins else 0
        after = wanted.bins - before - self.lattice.bins
        self.amounts = np.pad(self.amounts, ((0, 0), (before, after)))
        self.lattice = wanted

    def _double(self) -> None:
        """Double the width of the bins by merging pairs of neighbouring bins."""
        width, first, bins = self.lattice
        before = first % 2
        pairs = np.pad(self.amounts, ((0, 0), (before, (before + bins) % 2)))
        self.amounts = pairs.reshape(_ROWS, -1, 2).sum(axis=2)
        self.lattice = Lattice(2 * width, first // 2, self.amounts.shape[1])

    def by(self, offset: float, lattice: Lattice) -> Floats:
        """Return the amounts in other time bins, whose clock is `offset` seconds ahead. The sums over all bins do not
        change. If the bins do not coincide, the amount of a bin is divided between two bins.
        """
        width, first, bins = self.lattice
        edges = (first + np.arange(bins + 1)) * width + offset
        return spread(np.array([edges[:-1], edges[1:]]), self.amounts, lattice)


def _covering(lattice: Lattice, begin: float, end: float) -> Lattice:
    """Return time bins of the same width that cover the bins of `lattice` and the time from `begin` to `end`."""
    first, last = int(begin // lattice.width), int(end // lattice.width)
    if lattice.bins:
        first, last = min(first, lattice.first), max(last, lattice.first + lattice.bins - 1)
    return Lattice(lattice.width, first, last - first + 1)


def common(width: float, begin: float, end: float, ranks: int) -> Lattice:
    """Return common time bins for all ranks, from `begin` to `end`: at most 512, or fewer for more than 2048 ranks.
    width: largest bin width of the ranks.
    """
    most = max(_FEWEST, min(BINS, _ALL_BINS // ranks))
    while (bins := math.ceil(end / width) - math.floor(begin / width)) > most:
        width *= 2
    return Lattice(width, math.floor(begin / width), bins)


def spread(times: Floats, amounts: Floats, lattice: Lattice) -> Floats:
    """Return the amounts per bin, shape (k, bins). Each of `amounts` (k, n) is spread evenly over its interval in
    `times` (2, n). All intervals lie within the bins of `lattice`.
    """
    edges: Floats = (lattice.first + np.arange(lattice.bins + 1.0)) * lattice.width
    return np.array([intervals.binned(times, row, edges) for row in amounts])
