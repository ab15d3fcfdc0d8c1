"""What is found about a program's I/O, in figures: VaniDL's table.

Times in seconds, sizes in bytes, MB = 1e6 bytes. Bytes and requests are of the POSIX module; without a trace, of STDIO
as well, which does not pass through it. MPI-IO's requests end up as POSIX ones and are told apart under `interfaces`.
"""

from msgspec import Struct

# Darshan's bins of request sizes, and the last size of each.
SIZE_BINS = ("0_100", "100_1K", "1K_10K", "10K_100K", "100K_1M", "1M_4M", "4M_10M", "10M_100M", "100M_1G", "1G_PLUS")
LAST_SIZES = (100, 1 << 10, 10 << 10, 100 << 10, 1 << 20, 4 << 20, 10 << 20, 100 << 20, 1 << 30, 1 << 62)


class Spread(Struct, frozen=True):
    """Of single requests. median None: only a trace tells."""

    min: float
    max: float
    mean: float
    median: float | None


class Operation(Struct, frozen=True):
    """Reads, or writes. time_s: with one in flight, mean over ranks. histogram: Darshan's bins -> requests. common: the
    most frequent sizes. MBps: all bytes over the time in which any rank had one in flight; bandwidth_MBps: of single
    requests. sequential, consecutive: shares of the requests that began behind, or right at, the end of the one before
    in that file by that rank. None: not told.
    """

    requests: int
    bytes: int
    time_s: float
    size: Spread | None
    histogram: dict[str, int]
    common: list[tuple[int, int]]
    MBps: float | None
    bandwidth_MBps: Spread | None
    sequential: float | None
    consecutive: float | None


class Rank(Struct, frozen=True):
    """io_s: with any request in flight. hidden_s: the part within its computing, None where that is not known."""

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
    """All ranks of a host; io_s: the mean over them."""

    host: str
    ranks: int
    bytes_read: int
    bytes_written: int
    io_s: float


class File(Struct, frozen=True):
    """size: the last byte that anybody touched; it may have more. ranks: how many opened it, all where that is -1."""

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
    """time_s: of all ranks; share: of it in all time in I/O calls."""

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
    """step_s wide bins from start_s on (seconds since the job started, or since the run's first step)."""

    start_s: float
    step_s: float
    bytes_read: list[float]
    bytes_written: list[float]
    reads: list[float]
    writes: list[float]


class Analysis(Struct, frozen=True):
    """`traced`: figures come from a trace; else from counters alone. io_s: with any request in flight, mean over ranks;
    io_any_s: of any rank at all. hidden_share: the part of io_s within computing. timeline None: no trace.
    untraced_bytes: through STDIO, beside a trace that does not hold them.
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
    files: list[File]
    timeline: Timeline | None
