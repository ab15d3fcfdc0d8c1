"""Data for the figures of one run, from any source. The arrays are small, whatever the number of requests.

Times are seconds since the run's first step, or since the start of the job if no steps are known.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Series(NamedTuple):
    """Bytes and requests over time. edges: n + 1 equally spaced times in seconds. The other arrays have one sum for
    each of the n bins between the edges. reads, writes: None if only bytes are known.
    """

    edges: Floats
    bytes_read: Floats
    bytes_written: Floats
    reads: Floats | None
    writes: Floats | None


class Histogram(NamedTuple):
    """Histogram of requests. edges: n + 1 sizes in bytes or durations in seconds. reads, writes: number of requests in
    each of the n bins.
    """

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
    """Row of a rank, or of a thread, in the picture of a timeline. compute, io: intervals of computation and of I/O,
    shape (n, 3). The columns are the start and the end of an interval, and the share of the interval that is busy.
    Intervals that are too short to draw are joined.
    """

    label: str
    compute: Floats
    io: Floats


class Steps(NamedTuple):
    """Times of the steps in seconds, as means over ranks. start: start of each step. wait, compute, sync: durations.
    epochs: index of the first step of each epoch. Checkpoints are not part of the steps.
    """

    start: Floats
    wait: Floats
    compute: Floats
    sync: Floats
    epochs: list[int]


class HeatMap(NamedTuple):
    """Bytes that ranks read and wrote over time. edges: n + 1 times in seconds. moved: bytes, shape (rows, n). Each row
    is a group of `ranks_per_row` neighbouring ranks; the last group may be smaller. ranks: number of ranks.
    """

    edges: Floats
    moved: Floats
    ranks: int
    ranks_per_row: int


class CallCost(NamedTuple):
    """Seconds that a rank spends in the calls of one interface, as means over ranks; None for seconds that were not
    recorded.
    """

    interface: str
    read_s: float | None
    write_s: float | None
    metadata_s: float | None


class AccessOrder(NamedTuple):
    """Order of the reads or of the writes of a program. consecutive: share of requests that start exactly where the
    rank's previous request to the file ended. ahead: share of requests that start after this place. The other requests
    start before it.
    """

    kind: str
    requests: int
    consecutive: float
    ahead: float


class Opens(NamedTuple):
    """Opens of sample files over time. edges: n + 1 equally spaced times in seconds. opened, seconds: number of opens
    in each of the n bins, and the time that they took, summed over threads and ranks.
    """

    edges: Floats
    opened: Floats
    seconds: Floats


class View(NamedTuple):
    """Data for the figures of one run. source: name of the origin of the data. duration_s: end of the time axis. notes:
    limitations of the data that the user must know about. series: bytes and requests over time. sizes: sizes of
    requests. latency: durations of requests; None if requests were not timed individually. lanes: rows of a selection
    of ranks. steps: None if no steps are known. heat: None if bytes per rank over time were not recorded. elapsed_s:
    run time, by which costs are divided to get shares. calls: numbers of calls by name. orders: order of reads and
    writes. calls and orders are empty without a log. opens: None if opens were not timed.
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
    calls: tuple[tuple[str, int], ...] = ()
    orders: tuple[AccessOrder, ...] = ()
    opens: Opens | None = None
