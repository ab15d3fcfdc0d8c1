"""How single requests are distributed, on scales of doublings, and how far two such distributions lie apart.

The distance is Wasserstein's (the earth mover's: Rubner, Tomasi, Guibas, IJCV 40(2), 2000): the octaves by which the
requests of one have to be moved, on average, to become those of the other. Unlike bins that agree or do not, it calls
256 KiB and 260 KiB near, and 4 KiB and 4 MiB far.
"""

from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.findings import LAST_SIZES
from dlio_hpc.analysis.log.requests import Requests

Floats = npt.NDArray[np.float64]

_PER_OCTAVE = 4
# What a logarithm may be off by.
_SLACK = 1e-12


class Grain(IntEnum):
    """How finely a distribution is known."""

    EXACT = 0
    QUARTER = 1
    DARSHAN = 2


GRAINS = {
    Grain.EXACT: "single requests",
    Grain.QUARTER: "four bins an octave",
    Grain.DARSHAN: "Darshan's ten bins",
}


class Distribution(NamedTuple):
    """at: (n) ascending, octaves; weight: (n) shares of all requests, or of all bytes. Both (0): nothing was there."""

    at: Floats
    weight: Floats
    grain: Grain


class Distance(NamedTuple):
    """octaves: mean way. grain: the coarser one of both."""

    octaves: float
    grain: Grain

    @property
    def closeness(self) -> float:
        """1 for equal ones, half for each octave: of two single sizes the smaller over the larger."""
        return float(2.0**-self.octaves)


def of_sizes(sizes: npt.NDArray[np.number], weight: npt.NDArray[np.number], grain: Grain) -> Distribution:
    """sizes: bytes; none at all counts as one."""
    return _gathered(np.log2(np.maximum(sizes, 1).astype(np.float64)), weight.astype(np.float64), grain)


def of_jumps(jumps: npt.NDArray[np.number]) -> Distribution:
    """jumps: bytes from the end of a request to the begin of the next; backwards below zero, right behind at it."""
    at = np.sign(jumps) * np.log2(1.0 + np.abs(jumps.astype(np.float64)))
    return _gathered(at, np.ones(len(at)), Grain.EXACT)


def jumps(requests: Requests) -> npt.NDArray[np.int64]:
    """Between each request and the next one of the same rank to the same file, in the order in which they began."""
    order = np.lexsort((requests.start, requests.file, requests.rank))
    rank, file = requests.rank[order], requests.file[order]
    begin = requests.offset[order]
    end = begin + requests.length[order]
    same = (rank[1:] == rank[:-1]) & (file[1:] == file[:-1])
    found: npt.NDArray[np.int64] = (begin[1:] - end[:-1])[same]
    return found


def distance(one: Distribution, other: Distribution) -> Distance | None:
    """By the coarser of both; None where one has nothing."""
    if not len(one.at) or not len(other.at):
        return None
    grain = max(one.grain, other.grain)
    one, other = _coarsened(one, grain), _coarsened(other, grain)
    at = np.union1d(one.at, other.at)
    apart = np.abs(_up_to(one, at) - _up_to(other, at))
    return Distance(float((apart[:-1] * np.diff(at)).sum()), grain)


def quantiles(found: Distribution, shares: list[float]) -> list[float]:
    """In octaves."""
    at = np.searchsorted(np.cumsum(found.weight), np.array(shares) * (1 - 1e-12))
    values: list[float] = found.at[np.minimum(at, len(found.at) - 1)].tolist()
    return values


def _gathered(at: Floats, weight: Floats, grain: Grain) -> Distribution:
    """Equal ones together, empty ones left out."""
    some = weight > 0
    places, which = np.unique(at[some], return_inverse=True)
    total: Floats = np.bincount(which, weight[some], len(places)).astype(np.float64)
    return Distribution(places, total / total.sum() if len(total) else total, grain)


def _up_to(found: Distribution, at: Floats) -> Floats:
    """The share that lies at or below each of `at`."""
    sums = np.concatenate(([0.0], np.cumsum(found.weight)))
    shares: Floats = sums[np.searchsorted(found.at, at, side="right")]
    return shares


def _coarsened(found: Distribution, grain: Grain) -> Distribution:
    """Of sizes, of which alone there are coarse ones."""
    if grain == Grain.EXACT:
        return found
    if grain == Grain.QUARTER:
        return _gathered(np.floor(found.at * _PER_OCTAVE + _SLACK) / _PER_OCTAVE, found.weight, grain)
    last = np.log2(np.array(LAST_SIZES, np.float64))
    edges = np.concatenate(([0.0], last[:-1], [40.0]))
    middles = (edges[:-1] + edges[1:]) / 2
    return _gathered(middles[np.searchsorted(last, found.at - _SLACK)], found.weight, grain)
