"""What a rank read when, at bounded memory: bins of equal width, which doubles where a run outgrows them."""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc import intervals

Floats = npt.NDArray[np.float64]

# Rows of amounts: bytes that arrived, requests, seconds with at least one read in flight.
BYTES_AND_REQUESTS, BUSY = slice(0, 2), slice(2, 3)
_ROWS = 3
# Widths are powers of two seconds, 7.8 ms at first, and bins begin at their multiples: times divide without rounding,
# and what was counted at one width adds up to any larger one.
LEAST_S = 2.0**-7
BINS, _FEWEST = 512, 64
# Bins of all ranks together on rank 0: 24 bytes each, 25 MB (beyond 16,384 ranks 64 a rank).
_ALL_BINS = 2**20


class Lattice(NamedTuple):
    """`bins` bins of `width` seconds, whose first begins at `first` times the width, by some clock."""

    width: float
    first: int
    bins: int

    @property
    def start(self) -> float:
        """Seconds of the clock."""
        return self.first * self.width

    @property
    def end(self) -> float:
        """Seconds of the clock."""
        return (self.first + self.bins) * self.width


class Activity:
    """amounts: (3, bins), the rows above, in the bins of `lattice`; none before anything was read."""

    def __init__(self) -> None:
        self.lattice = Lattice(LEAST_S, 0, 0)
        self.amounts: Floats = np.zeros((_ROWS, 0))

    def add(self, rows: slice, times: Floats, amounts: Floats) -> None:
        """`amounts` (rows, n) to those rows, what belongs to each of `times` (2, n) evenly over it."""
        if times.size:
            self._reach(float(times[0].min()), float(times[1].max()))
            self.amounts[rows] += spread(times, amounts, self.lattice)

    def _reach(self, begin: float, end: float) -> None:
        """Bins from `begin` to `end`, as wide as it takes for `BINS` to do."""
        while (wanted := _covering(self.lattice, begin, end)).bins > BINS:
            self._double()
        before = self.lattice.first - wanted.first if self.lattice.bins else 0
        after = wanted.bins - before - self.lattice.bins
        self.amounts = np.pad(self.amounts, ((0, 0), (before, after)))
        self.lattice = wanted

    def _double(self) -> None:
        """Every two neighbours become one."""
        width, first, bins = self.lattice
        before = first % 2
        pairs = np.pad(self.amounts, ((0, 0), (before, (before + bins) % 2)))
        self.amounts = pairs.reshape(_ROWS, -1, 2).sum(axis=2)
        self.lattice = Lattice(2 * width, first // 2, self.amounts.shape[1])

    def by(self, offset: float, lattice: Lattice) -> Floats:
        """The amounts in the bins of another lattice, by a clock that is `offset` seconds ahead. Sums stay as they are;
        where that clock is another one, what lay in one bin may come to lie in two.
        """
        width, first, bins = self.lattice
        edges = (first + np.arange(bins + 1)) * width + offset
        return spread(np.array([edges[:-1], edges[1:]]), self.amounts, lattice)


def _covering(lattice: Lattice, begin: float, end: float) -> Lattice:
    """As wide as `lattice`, from the bin of `begin` to that of `end`, and at least what it had."""
    first, last = int(begin // lattice.width), int(end // lattice.width)
    if lattice.bins:
        first, last = min(first, lattice.first), max(last, lattice.first + lattice.bins - 1)
    return Lattice(lattice.width, first, last - first + 1)


def common(width: float, begin: float, end: float, ranks: int) -> Lattice:
    """One for all ranks, of whose bins none is wider than `width`; at most 512 bins, fewer for more than 2048 ranks."""
    most = max(_FEWEST, min(BINS, _ALL_BINS // ranks))
    while (bins := math.ceil(end / width) - math.floor(begin / width)) > most:
        width *= 2
    return Lattice(width, math.floor(begin / width), bins)


def spread(times: Floats, amounts: Floats, lattice: Lattice) -> Floats:
    """(k, bins): `amounts` (k, n) of `times` (2, n), which lie in the lattice, over the bins that each spans."""
    edges: Floats = (lattice.first + np.arange(lattice.bins + 1.0)) * lattice.width
    return np.array([intervals.binned(times, row, edges) for row in amounts])
