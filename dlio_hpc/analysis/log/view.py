"""Data of the figures of one run, from any source: small arrays, regardless of the number of requests.

Times are seconds since the run's first step, or since the start of the job if no steps are known.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Series(NamedTuple):
    """Bytes and requests over time. edges: (n + 1) seconds, equidistant. The others: (n), sums per bin. reads, writes:
    None if only bytes are known.
    """

    edges: Floats
    bytes_read: Floats
    bytes_written: Floats
    reads: Floats | None
    writes: Floats | None


class Histogram(NamedTuple):
    """Histogram of requests. edges: (n + 1), sizes in bytes or durations in seconds. reads, writes: (n) requests."""

    edges: Floats
    reads: Counts
    writes: Counts


class Ranks(NamedTuple):
    """Metrics with one entry per rank. io_s: seconds with at least one request in flight. wait_s, compute_s, sync_s:
    sums over all steps; None if no steps are known.
    """

    hosts: list[str]
    bytes_read: Counts
    bytes_written: Counts
    reads: Counts
    writes: Counts
    io_s: Floats
    wait_s: Floats | None = None
    compute_s: Floats | None = None
    sync_s: Floats | None = None


class Lane(NamedTuple):
    """One rank (or thread) on the timeline. compute, io: (n, 3), begin, end, and the busy share of that interval.
    Intervals that are too fine to draw are joined.
    """

    label: str
    compute: Floats
    io: Floats


class Steps(NamedTuple):
    """Steps, means over ranks, in seconds. epochs: index of the first step of each epoch. Checkpoints are not steps."""

    start: Floats
    wait: Floats
    compute: Floats
    sync: Floats
    epochs: list[int]


class HeatMap(NamedTuple):
    """Bytes that ranks moved over time. edges: (n + 1) seconds. moved: (rows, n) bytes read and written. Each row is a
    group of `ranks_per_row` neighbouring ranks; the last group may be smaller.
    """

    edges: Floats
    moved: Floats
    ranks: int
    ranks_per_row: int


class CallCost(NamedTuple):
    """Seconds that a rank spends in the calls of one interface, mean over ranks. None: not recorded."""

    interface: str
    read_s: float | None
    write_s: float | None
    metadata_s: float | None


class View(NamedTuple):
    """Data of the figures of one run. source: name of the record they come from. notes: limits of the data that a
    reader must know. latency: durations of requests; None if single requests were not timed. lanes: a selection of
    ranks. heat: None if bytes per rank over time were not recorded. elapsed_s: run time, the base of the shares of
    costs.
    """

    title: str
    source: str
    duration_s: float
    notes: list[str]
    series: Series
    sizes: Histogram
    latency: Histogram | None
    ranks: Ranks
    lanes: list[Lane]
    steps: Steps | None
    heat: HeatMap | None = None
    costs: tuple[CallCost, ...] = ()
    elapsed_s: float = 0.0
