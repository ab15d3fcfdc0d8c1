"""Metrics of a program's I/O, as in VaniDL's table.

Times are in seconds and sizes are in bytes; 1 MB is 1e6 bytes. Bytes and requests are taken from Darshan's POSIX
module. They include MPI-IO, because MPI-IO makes POSIX requests. The bytes and requests of STDIO are added only if
there is no trace. `interfaces` has the counts of each module separately.
"""

from msgspec import Struct

# Darshan's bins of request sizes, and the largest size in each bin.
SIZE_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
LAST_SIZES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, 1 << 62)


class SizeStats(Struct, frozen=True):
    """Statistics of a value over individual requests. median: None if there is no trace."""

    min: float
    max: float
    mean: float
    median: float | None


class Operation(Struct, frozen=True):
    """Metrics of all reads or of all writes. time_s: time with at least one request in flight, as the mean over ranks.
    histogram: number of requests in each of Darshan's size bins. common: the most frequent sizes and their counts.
    MBps: bytes of all ranks, divided by the time during which at least one rank had a request in flight.
    bandwidth_MBps: bandwidth of individual requests. sequential: share of requests that start at or after the end of
    the rank's previous request to the file. consecutive: share of requests that start exactly at the end of the rank's
    previous request to the file. Values are None if they are unknown.
    """

    requests: int
    bytes: int
    time_s: float
    size: SizeStats | None
    histogram: dict[str, int]
    common: list[tuple[int, int]]
    MBps: float | None
    bandwidth_MBps: SizeStats | None
    sequential: float | None
    consecutive: float | None


class Rank(Struct, frozen=True):
    """Metrics of a rank. io_s: time with at least one request in flight. meta_s: time in metadata operations. hidden_s:
    the part of io_s during computation; None if it is unknown.
    """

    rank: int
    host: str
    bytes_read: int
    bytes_written: int
    reads: int
    writes: int
    io_s: float
    meta_s: float
    MBps: float | None
    hidden_s: float | None = None


class Node(Struct, frozen=True):
    """Metrics of a node: sums over the ranks of the node. io_s: mean over these ranks."""

    host: str
    ranks: int
    bytes_read: int
    bytes_written: int
    io_s: float


class LogFile(Struct, frozen=True):
    """Metrics of a file. size: bytes from the beginning of the file to the end of the access that reached furthest; the
    file may be larger. ranks: number of ranks that opened the file; -1 for all.
    """

    path: str
    type: str
    size: int
    bytes_read: int
    bytes_written: int
    reads: int
    writes: int
    opens: int
    ranks: int
    io_s: float


class Metadata(Struct, frozen=True):
    """Metadata operations. time_s: seconds in these operations, summed over ranks. share: time_s divided by the time of
    all I/O calls; None if the time of all I/O calls is 0. stats, maps: calls of stat and of mmap.
    """

    opens: int
    seeks: int
    syncs: int
    time_s: float
    share: float | None
    stats: int = 0
    maps: int = 0


class Interface(Struct, frozen=True):
    """Counts of one Darshan module. files: number of files. read_s, write_s, metadata_s: seconds in the calls of the
    module, as the mean over ranks.
    """

    bytes_read: int
    bytes_written: int
    reads: int
    writes: int
    files: int
    read_s: float = 0.0
    write_s: float = 0.0
    metadata_s: float = 0.0


class Timeline(Struct, frozen=True):
    """Bytes and requests per bin of step_s seconds. start_s: start of the first bin in seconds since the job started,
    or since the run's first step if steps are known.
    """

    start_s: float
    step_s: float
    bytes_read: list[float]
    bytes_written: list[float]
    reads: list[float]
    writes: list[float]


class IoLoad(Struct, frozen=True):
    """Time in I/O calls: reads, writes and metadata calls of POSIX, STDIO, MPI-IO and HDF5. Calls of nested interfaces
    are counted once. rank: the slowest rank, which spends the most time in I/O calls; None if it is unknown. host: node
    of the slowest rank; "" if it is unknown. interface, calls: interface and kind of calls in which the slowest rank
    spends the most time. If the slowest rank is unknown, the times of all ranks are used. least_s, most_s: bounds of
    the time that the slowest rank is in I/O calls. They differ if Darshan reduced the records of shared files, or if
    calls overlap. any_least_s, any_most_s: bounds of the time that at least one rank is in an I/O call. overlaps:
    whether the calls of the slowest rank add up to more than the run time, because calls of its threads or processes
    overlap. clock_s: resolution of the run time. unread: modules of the log that count I/O but were not read.
    """

    rank: int | None
    host: str
    interface: str | None
    calls: str | None
    least_s: float
    most_s: float
    any_least_s: float
    any_most_s: float
    overlaps: bool
    clock_s: float
    unread: list[str]


class Analysis(Struct, frozen=True):
    """I/O metrics of a program. traced: whether metrics come from a trace and not only from counters. job_s: duration
    of the job. io_s: time with at least one request in flight, as the mean over ranks. io_share: io_s divided by job_s.
    io_any_s: time with at least one request of any rank in flight. load: time in I/O calls of all interfaces. hidden_s:
    the part of io_s during computation; None if it is unknown. hidden_share: hidden_s divided by io_s. timeline: None
    if there is no trace. untraced_bytes: bytes transferred through STDIO, which the trace lacks.
    """

    program: str
    ranks: int
    job_s: float
    traced: bool
    io_s: float
    io_share: float | None
    io_any_s: float | None
    load: IoLoad
    hidden_s: float | None
    hidden_share: float | None
    bytes_read: int
    bytes_written: int
    untraced_bytes: int
    read: Operation | None
    write: Operation | None
    metadata: Metadata
    interfaces: dict[str, Interface]
    by_rank: list[Rank]
    by_node: list[Node]
    files: list[LogFile]
    timeline: Timeline | None
