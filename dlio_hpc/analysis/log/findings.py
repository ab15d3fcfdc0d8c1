"""Metrics of a program's I/O, as in VaniDL's table.

Times are in seconds, sizes in bytes, MB = 1e6 bytes. Bytes and requests are those of the POSIX module; without a trace,
those of STDIO are added, which do not pass through it. MPI-IO requests arrive as POSIX requests; `interfaces` has them
separately.
"""

from msgspec import Struct

# Darshan's bins of request sizes, and the largest size in each bin.
SIZE_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
LAST_SIZES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, 1 << 62)


class SizeStats(Struct, frozen=True):
    """Distribution of a value over single requests. median: None without a trace."""

    min: float
    max: float
    mean: float
    median: float | None


class Operation(Struct, frozen=True):
    """Metrics of all reads or of all writes. time_s: time with at least one request in flight, mean over ranks.
    histogram: requests by Darshan's bins. common: the most frequent sizes and their counts. MBps: all bytes over the
    time with a request of any rank in flight. bandwidth_MBps: bandwidth of single requests. sequential, consecutive:
    shares of the requests that began after, or exactly at, the end of the previous request of the rank to the file.
    None: not known.
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
    """Metrics of a rank. io_s: time with at least one request in flight. hidden_s: the part of io_s during computation;
    None if unknown.
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
    """Metrics of a node: sums over its ranks. io_s: mean over its ranks."""

    host: str
    ranks: int
    bytes_read: int
    bytes_written: int
    io_s: float


class LogFile(Struct, frozen=True):
    """Metrics of a file. size: bytes up to the end of the last access; the file may be larger. ranks: number of ranks
    that opened it; -1 for all.
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
    """Metadata operations. time_s: sum over ranks. share: share of time_s in the time of all I/O calls."""

    opens: int
    seeks: int
    syncs: int
    time_s: float
    share: float | None


class Interface(Struct, frozen=True):
    """Counts of one Darshan module. read_s, write_s, metadata_s: seconds in its calls, mean over ranks."""

    bytes_read: int
    bytes_written: int
    reads: int
    writes: int
    files: int
    read_s: float = 0.0
    write_s: float = 0.0
    metadata_s: float = 0.0


class Timeline(Struct, frozen=True):
    """Bytes and requests per bin of step_s seconds. start_s: begin of the first bin in seconds since the job started,
    or since the run's first step.
    """

    start_s: float
    step_s: float
    bytes_read: list[float]
    bytes_written: list[float]
    reads: list[float]
    writes: list[float]


class Analysis(Struct, frozen=True):
    """I/O metrics of a program. traced: metrics come from a trace, else from counters alone. io_s: time with at least
    one request in flight, mean over ranks. io_any_s: time with a request of any rank in flight. hidden_share: the part
    of io_s during computation. timeline: None without a trace. untraced_bytes: bytes through STDIO, which the trace
    lacks.
    """

    program: str
    ranks: int
    job_s: float
    traced: bool
    io_s: float
    io_share: float | None
    io_any_s: float | None
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
