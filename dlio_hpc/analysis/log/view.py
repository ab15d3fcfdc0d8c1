"""What pictures of one run are drawn from, whoever recorded it: small arrays, however many requests there were.

Times are seconds since the run's first step, or, where no steps are known, since the job started.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Series(NamedTuple):
    """Over time. edges: (n + 1) seconds, equally far apart; all others (n): what falls into each bin. reads, writes:
    None where only bytes are known.
    """

    edges: Floats
    bytes_read: Floats
    bytes_written: Floats
    reads: Floats | None
    writes: Floats | None


class Histogram(NamedTuple):
    """edges: (n + 1), of sizes in bytes or of durations in seconds; reads, writes: (n) how many requests."""

    edges: Floats
    reads: Counts
    writes: Counts


class Ranks(NamedTuple):
    """One entry a rank. io_s: seconds with at least one request in flight. wait_s, compute_s, sync_s: of all steps,
    None where no steps are known.
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
    """One rank (or thread) on the timeline. compute, io: (n, 3), begin, end, and the share of that time that it was so;
    joined where they are finer than a picture shows.
    """

    label: str
    compute: Floats
    io: Floats


class Steps(NamedTuple):
    """Each step, means over ranks. epochs: number of the first step of each epoch. checkpoints are none of them."""

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


class Cost(NamedTuple):
    """Seconds that a rank spends in the calls of one interface, mean over ranks. None: not recorded."""

    interface: str
    read_s: float | None
    write_s: float | None
    metadata_s: float | None


class View(NamedTuple):
    """One run. source: whose record it is, in words. notes: what a reader must know before believing a picture.
    latency: durations of requests, None where single ones were not timed. lanes: a few ranks. heat: None where no
    record has the bytes of each rank over time. elapsed_s: run time, the base of the shares of costs.
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
    costs: tuple[Cost, ...] = ()
    elapsed_s: float = 0.0
