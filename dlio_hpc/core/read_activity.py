"""Read activity of a rank over time, in bounded memory: bins of equal width, which doubles as the run gets longer."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc import intervals

Floats = npt.NDArray[np.float64]

# Rows of amounts: bytes received, requests, seconds with at least one read in flight.
BYTES_AND_REQUESTS, BUSY = slice(0, 2), slice(2, 3)
_ROWS = 3
# Widths are powers of two seconds, 7.8 ms at first, and bins begin at multiples of the width. So times divide without
# rounding, and counts at one width add up to counts at any larger width.
LEAST_S = 2.0**-7
BINS, _FEWEST = 512, 64
# Bins of all ranks together on rank 0, of 24 bytes each: 25 MB. Beyond 16,384 ranks it is 64 bins per rank.
_ALL_BINS = 2**20


class Lattice(NamedTuple):
    """`bins` bins of `width` seconds. The first begins at `first` times the width on the clock in use."""

    width: float
    first: int
    bins: int

    @property
    def start(self) -> float:
        """Start of the first bin, in seconds of the clock."""
        return self.first * self.width

    @property
    def end(self) -> float:
        """End of the last bin, in seconds of the clock."""
        return (self.first + self.bins) * self.width


class Activity:
    """Read activity of a rank. amounts (3, bins): the rows listed above, in the bins of `lattice`. There are no bins
    before the first read.
    """

    def __init__(self) -> None:
        self.lattice = Lattice(LEAST_S, 0, 0)
        self.amounts: Floats = np.zeros((_ROWS, 0))

    def add(self, rows: slice, times: Floats, amounts: Floats) -> None:
        """Add `amounts` (rows, n) to `rows`, each spread evenly over its interval in `times` (2, n)."""
        if times.size:
            self._reach(float(times[0].min()), float(times[1].max()))
            self.amounts[rows] += spread(times, amounts, self.lattice)

    def _reach(self, begin: float, end: float) -> None:
        """Extend the bins to cover `begin` to `end`. Widen them until `BINS` bins suffice."""
        while (wanted := _covering(self.lattice, begin, end)).bins > BINS:
            self._double()
        before = self.lattice.first - wanted.first if self.lattice.bins else 0
        after = wanted.bins - before - self.lattice.bins
        self.amounts = np.pad(self.amounts, ((0, 0), (before, after)))
        self.lattice = wanted

    def _double(self) -> None:
        """Double the bin width by merging pairs of neighbouring bins."""
        width, first, bins = self.lattice
        before = first % 2
        pairs = np.pad(self.amounts, ((0, 0), (before, (before + bins) % 2)))
        self.amounts = pairs.reshape(_ROWS, -1, 2).sum(axis=2)
        self.lattice = Lattice(2 * width, first // 2, self.amounts.shape[1])

    def by(self, offset: float, lattice: Lattice) -> Floats:
        """Return the amounts in the bins of another lattice, on a clock that is `offset` seconds ahead. Sums do not
        change. On a different clock, the amount of a bin may be split between two bins.
        """
        width, first, bins = self.lattice
        edges = (first + np.arange(bins + 1)) * width + offset
        return spread(np.array([edges[:-1], edges[1:]]), self.amounts, lattice)


def _covering(lattice: Lattice, begin: float, end: float) -> Lattice:
    """Return a lattice with the width of `lattice` that covers its bins and those of `begin` and `end`."""
    first, last = int(begin // lattice.width), int(end // lattice.width)
    if lattice.bins:
        first, last = min(first, lattice.first), max(last, lattice.first + lattice.bins - 1)
    return Lattice(lattice.width, first, last - first + 1)


def common(width: float, begin: float, end: float, ranks: int) -> Lattice:
    """Return a lattice for all ranks, with at most 512 bins, or fewer for more than 2048 ranks. width: the largest bin
    width of the ranks.
    """
    most = max(_FEWEST, min(BINS, _ALL_BINS // ranks))
    while (bins := math.ceil(end / width) - math.floor(begin / width)) > most:
        width *= 2
    return Lattice(width, math.floor(begin / width), bins)


def spread(times: Floats, amounts: Floats, lattice: Lattice) -> Floats:
    """Return `amounts` (k, n) per bin, shape (k, bins). Each amount is spread over its interval in `times` (2, n). All
    intervals lie within the lattice.
    """
    edges: Floats = (lattice.first + np.arange(lattice.bins + 1.0)) * lattice.width
    return np.array([intervals.binned(times, row, edges) for row in amounts])
