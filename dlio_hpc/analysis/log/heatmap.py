"""Heat maps: bytes that each rank read and wrote over time. They are made from a trace, from Darshan's heat maps or
from timeline.h5.
"""

from typing import Any

import numpy as np

from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.analysis.log.view import Floats, HeatMap
from dlio_hpc.analysis.timeline_reader import Recorded
from dlio_hpc.darshan.log import Heat
from dlio_hpc.results import intervals

# Largest numbers of rows and columns of a heat map; with more ranks, several share a row.
MOST_ROWS, BINS = 64, 200


def of_requests(requests: Requests, ranks: int, end: float) -> HeatMap | None:
    """Return the heat map of a trace, or None if the trace has no requests. ranks: number of ranks. end: time in
    seconds at which the heat map ends.
    """
    if not len(requests.start):
        return None
    begin = min(0.0, float(requests.start.min()))
    edges = np.linspace(begin, max(end, begin + 1e-9), BINS + 1)
    per_row = _ranks_per_row(ranks)
    rows = []
    for first in range(0, ranks, per_row):
        part = slice(requests.of_rank(first).start, requests.of_rank(min(first + per_row, ranks) - 1).stop)
        rows.append(intervals.binned(requests.times(part), requests.length[part], edges))
    return HeatMap(edges, np.stack(rows), ranks, per_row)


def of_recorded(recorded: Recorded) -> HeatMap | None:
    """Return the heat map from the run's timeline.h5, or None if the run did not time reads individually."""
    if not recorded.is_timed:
        return None
    group = recorded.file["activity"]
    ranks, bins = group["bytes"].shape
    edges = float(group.attrs["start"]) + float(group.attrs["width"]) * np.arange(bins + 1)
    return _grouped(group["bytes"], edges, ranks)


def of_darshan(heat: list[Heat], ranks: int) -> HeatMap | None:
    """Return one heat map with the sums over all interfaces of a log, or None if the log lacks heat maps per rank."""
    if not heat or not ranks:
        return None
    moved = np.zeros((ranks, max(interface.read.shape[1] for interface in heat)))
    for interface in heat:
        if len(interface.ranks) and (interface.ranks.min() < 0 or interface.ranks.max() >= ranks):
            return None
        moved[interface.ranks, : interface.read.shape[1]] += interface.read + interface.written
    return _grouped(moved, heat[0].width_s * np.arange(moved.shape[1] + 1), ranks)


def _grouped(moved: Any, edges: Floats, ranks: int) -> HeatMap:
    """Return a heat map in which each row is a group of ranks. moved: bytes per rank and bin, as an array or an HDF5
    dataset. To save memory, `moved` is read group by group.
    """
    per_row = _ranks_per_row(ranks)
    starts = np.arange(0, len(edges) - 1, max(1, -(-(len(edges) - 1) // BINS)))
    rows = [
        np.add.reduceat(np.asarray(moved[first : first + per_row], np.float64).sum(axis=0), starts)
        for first in range(0, ranks, per_row)
    ]
    # Less than a byte in a cell is a rounding error of a request that spans several cells.
    whole = [np.where(row < 1, 0.0, row) for row in rows]
    return HeatMap(np.append(edges[:-1][starts], edges[-1]), np.stack(whole), ranks, per_row)


def _ranks_per_row(ranks: int) -> int:
    return max(1, -(-ranks // MOST_ROWS))
