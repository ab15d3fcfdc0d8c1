"""Distributions of requests on a logarithmic scale, whose unit is an octave (a doubling), and their distance.

The distance is the Wasserstein distance, also called earth mover's distance (Rubner, Tomasi, Guibas, IJCV 40(2), 2000).
It is the mean number of octaves by which the requests of one distribution must be moved to obtain the other
distribution. Unlike a comparison of bins, this distance is small for 256 KiB and 260 KiB, and large for 4 KiB and 4
MiB.
"""

import math
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.findings import LAST_SIZES
from dlio_hpc.analysis.log.requests import Requests

Floats = npt.NDArray[np.float64]

# Bins per octave of Grain.QUARTER.
_PER_OCTAVE = 4
# Rounding error of a logarithm.
_SLACK = 1e-12


class Grain(IntEnum):
    """Resolution of a distribution; a larger value is coarser."""

    EXACT = 0
    QUARTER = 1
    DARSHAN = 2


GRAINS = {
    Grain.EXACT: "single requests",
    Grain.QUARTER: "four bins an octave",
    Grain.DARSHAN: "Darshan's ten bins",
}


class RequestDistribution(NamedTuple):
    """Distribution of requests. at: positions in octaves, ascending. weight: share of all requests, or of all bytes, at
    each position. grain: resolution. Both arrays are empty if there are no requests.
    """

    at: Floats
    weight: Floats
    grain: Grain


class Distance(NamedTuple):
    """Distance between two distributions. octaves: mean distance. grain: resolution at which the distributions were
    compared. It is the coarser of the resolutions of the two distributions.
    """

    octaves: float
    grain: Grain

    @property
    def closeness(self) -> float:
        """Closeness: 1 for equal distributions, halved by each octave of distance. For two programs that use one
        request size each, it is the smaller size divided by the larger.
        """
        return float(2.0**-self.octaves)


def of_sizes(sizes: npt.NDArray[np.number], weight: npt.NDArray[np.number], grain: Grain) -> RequestDistribution:
    """Return the distribution of request sizes. sizes: sizes in bytes; a size of 0 is treated as 1. weight: weight of
    each request.
    """
    return _gathered(np.log2(np.maximum(sizes, 1).astype(np.float64)), weight.astype(np.float64), grain)


def of_jumps(jumps: npt.NDArray[np.number]) -> RequestDistribution:
    """Return the distribution of jumps: distances in bytes from the end of a request to the start of the next one. A
    jump is negative if the next request starts at a lower offset than the end of the previous one, and 0 if it starts
    exactly at that end.
    """
    at = np.sign(jumps) * np.log2(1.0 + np.abs(jumps.astype(np.float64)))
    return _gathered(at, np.ones(len(at)), Grain.EXACT)


def jumps(requests: Requests) -> npt.NDArray[np.int64]:
    """Return the distances in bytes from the end of each request to the start of the next request that the same rank
    makes to the same file. Requests are ordered by their start time.
    """
    order = np.lexsort((requests.start, requests.file, requests.rank))
    rank, file = requests.rank[order], requests.file[order]
    begin = requests.offset[order]
    end = begin + requests.length[order]
    same = (rank[1:] == rank[:-1]) & (file[1:] == file[:-1])
    between: npt.NDArray[np.int64] = (begin[1:] - end[:-1])[same]
    return between


def distance(a: RequestDistribution, b: RequestDistribution) -> Distance | None:
    """Return the distance between two distributions, or None if one of them is empty. Both distributions are first
    brought to the coarser of their two resolutions.
    """
    if not len(a.at) or not len(b.at):
        return None
    grain = max(a.grain, b.grain)
    a, b = _coarsened(a, grain), _coarsened(b, grain)
    at = np.union1d(a.at, b.at)
    apart = np.abs(_up_to(a, at) - _up_to(b, at))
    return Distance(float((apart[:-1] * np.diff(at)).sum()), grain)


def quantiles(distribution: RequestDistribution, shares: list[float]) -> list[float]:
    """Return quantiles of a distribution, in octaves. shares: for each quantile, the share of the distribution below
    it, between 0 and 1.
    """
    at = np.searchsorted(np.cumsum(distribution.weight), np.array(shares) * (1 - 1e-12))
    values: list[float] = distribution.at[np.minimum(at, len(distribution.at) - 1)].tolist()
    return values


def lower_edge(size: float) -> float:
    """Return the lower edge of the bin that a request size falls into, with four bins per octave. Sizes below one byte
    are returned unchanged.
    """
    if size < 1:
        return size
    return float(2.0 ** (math.floor(math.log2(size) * _PER_OCTAVE + _SLACK) / _PER_OCTAVE))


def _gathered(at: Floats, weight: Floats, grain: Grain) -> RequestDistribution:
    """Return the distribution with these positions and weights. Equal positions are merged, positions with weight 0 are
    removed, and the weights are scaled to add up to 1.
    """
    some = weight > 0
    places, which = np.unique(at[some], return_inverse=True)
    total: Floats = np.bincount(which, weight[some], len(places)).astype(np.float64)
    return RequestDistribution(places, total / total.sum() if len(total) else total, grain)


def _up_to(distribution: RequestDistribution, at: Floats) -> Floats:
    """Return the share of the distribution at or below each position in `at`."""
    sums = np.concatenate(([0.0], np.cumsum(distribution.weight)))
    shares: Floats = sums[np.searchsorted(distribution.at, at, side="right")]
    return shares


def _coarsened(distribution: RequestDistribution, grain: Grain) -> RequestDistribution:
    """Return the distribution of request sizes with its positions rounded to the resolution `grain`. If `grain` is
    exact, as it is for jumps, return the distribution unchanged.
    """
    if grain == Grain.EXACT:
        return distribution
    if grain == Grain.QUARTER:
        return _gathered(np.floor(distribution.at * _PER_OCTAVE + _SLACK) / _PER_OCTAVE, distribution.weight, grain)
    last = np.log2(np.array(LAST_SIZES, np.float64))
    edges = np.concatenate(([0.0], last[:-1], [40.0]))
    middles = (edges[:-1] + edges[1:]) / 2
    return _gathered(middles[np.searchsorted(last, distribution.at - _SLACK)], distribution.weight, grain)
