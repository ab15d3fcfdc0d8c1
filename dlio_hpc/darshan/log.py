"""Contents of a Darshan log: job, counters of files, extended trace (DXT), and heat maps. All readers of logs return
the same classes.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from dlio_hpc.base.errors import ConfigError

Name = Literal[
    "truncated", "garbled", "partial", "unknown version", "DXT missing", "DXT cut", "counters disagree",
    "rank count", "stale", "no end", "workers missing",
]  # fmt: skip
Records = npt.NDArray[np.void]
# Records of a module that is not in the log.
NO_RECORDS: Records = np.empty(0, [("id", "<u8"), ("rank", "<i8")])

COUNTING = ("POSIX", "MPI-IO", "STDIO")
# Modules of a library above the counting modules: their records are read if their version is known.
ABOVE = ("H5F", "H5D")
TRACING = ("DXT_POSIX", "DXT_MPIIO")
# Number of most frequent request sizes that Darshan keeps per file.
_SLOTS = 4


class LogFault(NamedTuple):
    """Reason why a log, or a part of it, cannot be trusted."""

    name: Name
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class LogJob(Struct, frozen=True):
    """Job in which a Darshan log was recorded."""

    uid: int
    """User id of the job's owner."""
    id: int
    """Job id in the batch system, or process id if the job was not in a batch system."""
    ranks: int
    """Number of ranks."""
    started: float
    """Start of the job, in seconds since 1970."""
    ended: float
    """End of the job, in seconds since 1970; 0 if the log does not record it."""
    program: str
    """Command line of the program."""
    library: str
    """Version of the libdarshan that wrote the log."""
    metadata: dict[str, str]
    """Metadata in the log, by key."""
    mounts: dict[str, str]
    """Type of each mounted file system, by mount point."""

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Module(NamedTuple):
    """Location of a module's records in the log. version: version of the record format. partial: whether the module ran
    out of memory and dropped records.
    """

    version: int
    offset: int
    length: int
    partial: bool


class Trace(NamedTuple):
    """Trace of a DXT module. files: a row of type counters.TRACED per pair of a file and a rank. segments: a row per
    request. The segments that belong to files[n] start at index first[n]; the segments of writes come before the
    segments of reads. Times are seconds since Darshan started on the rank. If a rank had several processes, each
    process has written its own log; segments then have a field `process` with the number of the process.
    """

    files: Records
    segments: Records

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of segments of each row of `files`."""
        both: npt.NDArray[np.int64] = self.files["writes"] + self.files["reads"]
        return both

    @property
    def first(self) -> npt.NDArray[np.int64]:
        """Index in `segments` of the first segment of each row of `files`."""
        return np.cumsum(self.counts) - self.counts


class Heat(NamedTuple):
    """Heat map of an I/O interface (module HEATMAP). width_s: width of the time bins in seconds; the first bin starts
    when the job starts. ranks: numbers of the ranks. read, written: bytes, shape (ranks, bins).
    """

    width_s: float
    ranks: npt.NDArray[np.int64]
    read: npt.NDArray[np.int64]
    written: npt.NDArray[np.int64]


class Log(NamedTuple):
    """Darshan log. version: version of the log format. names: paths of files by record id. counted: records of each
    counting module, of type counters.record_type(). traced: trace of each tracing module. heat: heat map of each
    interface. faults: faults found while the log was read. A module has a fault if it could not be read, or if its
    records may be incomplete. The part of such a module that could be read is kept. workers: number of logs of worker
    processes that this log includes.
    """

    path: Path
    version: str
    job: LogJob
    modules: dict[str, Module]
    names: dict[int, str]
    counted: dict[str, Records]
    traced: dict[str, Trace]
    faults: list[LogFault]
    heat: dict[str, Heat]
    workers: int = 0


def refuse_unmatched(logs: Sequence[Log], only: str | None) -> None:
    """Raise ConfigError if the logs contain files, but no path matches the regular expression `only`."""
    names = [name for log in logs for name in log.names.values() if name.startswith("/")]
    if only is not None and names and not any(map(re.compile(only).search, names)):
        raise ConfigError(f"--only {only}: no path matches it; the log has {len(names)}, such as {names[0]}")


def without_reads(log: Log, paths: Collection[str]) -> Log:
    """Return the log without the reads of the files with these paths, in counters and traces."""
    if not paths:
        return log
    numbers = np.array([number for number, path in log.names.items() if path in paths], np.uint64)
    return log._replace(
        counted={name: _unread(records, numbers) for name, records in log.counted.items()},
        traced={name: _untraced(trace, numbers) for name, trace in log.traced.items()},
    )


def _unread(records: Records, numbers: npt.NDArray[np.uint64]) -> Records:
    """Return the records of a module, in which all counters of reads of these files are set to 0."""
    made, chosen = records.copy(), np.isin(records["id"].astype(np.uint64), numbers)
    for name in records.dtype.names or ():
        if "READ" in name:
            made[name][chosen] = 0
    return made


def _untraced(trace: Trace, numbers: npt.NDArray[np.uint64]) -> Trace:
    """Return a trace without the reads of these files."""
    chosen = np.isin(trace.files["id"].astype(np.uint64), numbers)
    counts = np.stack([trace.files["writes"], trace.files["reads"]], axis=1).reshape(-1)
    is_kept = np.repeat(np.stack([np.ones_like(chosen), ~chosen], axis=1).reshape(-1), counts)
    files = trace.files.copy()
    files["reads"][chosen] = 0
    return Trace(files, trace.segments[is_kept])


def counter(records: Records, name: str) -> Any:
    """Return the values of a counter, one per record. If Darshan marks a value as unknown (-1), it is replaced by 0. If
    the records have no such counter, all values are 0.
    """
    if name not in (records.dtype.names or ()):
        return np.zeros(len(records), np.int64)
    return np.maximum(records[name], 0)


def used(records: Records, name: str) -> Any:
    """Return the values of a counter, one per record. In a record, a common size or stride (ACCESSn_ACCESS,
    STRIDEn_STRIDE) is valid only if its count (ACCESSn_COUNT, STRIDEn_COUNT) is above 0. If it is not valid, the log
    may hold any value there, for example a log of Darshan 3.2.0. In this case, 0 is returned in place of the value.
    """
    slot, _, kind = name.partition("_")
    if not slot[-1:].isdecimal() or kind == "COUNT":
        return records[name]
    return np.where(records[f"{slot}_COUNT"] > 0, records[name], 0)


def common_sizes(records: Records) -> dict[int, int]:
    """Return the number of requests of each size in bytes. Reads and writes are counted together. Only the four most
    frequent sizes of each file are counted, because Darshan keeps no others.
    """
    requests: dict[int, int] = {}
    for number in range(1, _SLOTS + 1):
        sizes, counts = (counter(records, f"ACCESS{number}_{part}").tolist() for part in ("ACCESS", "COUNT"))
        for size, count in zip(sizes, counts, strict=True):
            if count:
                requests[size] = requests.get(size, 0) + count
    return requests
