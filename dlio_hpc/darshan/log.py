"""Contents of a Darshan log, independent of its reader: job, counters of files, extended trace (DXT), heat maps."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Name = Literal[
    "truncated", "garbled", "partial", "unknown version", "DXT missing", "DXT cut", "counters disagree",
    "rank count", "stale", "no end",
]  # fmt: skip
Records = npt.NDArray[np.void]
# Records of a module that is not in the log.
NO_RECORDS: Records = np.empty(0, [("id", "<u8"), ("rank", "<i8")])

COUNTING = ("POSIX", "MPI-IO", "STDIO")
TRACING = ("DXT_POSIX", "DXT_MPIIO")
# Number of most frequent request sizes that Darshan keeps per file.
_SLOTS = 4


class LogFault(NamedTuple):
    """Reason why a log, or a part of it, cannot be trusted."""

    name: Name
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class LogJob(NamedTuple):
    """Job of a log. started, ended: seconds since 1970; ended is 0 if no end was recorded. library: version of
    libdarshan.
    """

    uid: int
    id: int
    ranks: int
    started: float
    ended: float
    program: str
    library: str
    metadata: dict[str, str]
    mounts: dict[str, str]

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Module(NamedTuple):
    """Location of a module's records. partial: the module ran out of memory and dropped records."""

    version: int
    offset: int
    length: int
    partial: bool


class Trace(NamedTuple):
    """Trace of a DXT module. files: counters.TRACED, a row per file and rank. segments: a row per request; those of
    files[n] begin at first[n], writes before reads. Times are seconds on the rank's clock since Darshan began on that
    rank. If a rank has several processes, each has its own log, and segments have the number of the process as
    `process`.
    """

    files: Records
    segments: Records

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Number of segments of each of `files`."""
        both: npt.NDArray[np.int64] = self.files["writes"] + self.files["reads"]
        return both

    @property
    def first(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.counts) - self.counts


class Heat(NamedTuple):
    """HEATMAP of an interface. read, written: bytes of each of `ranks`, (ranks, bins), in bins of width_s since the job
    began.
    """

    width_s: float
    ranks: npt.NDArray[np.int64]
    read: npt.NDArray[np.int64]
    written: npt.NDArray[np.int64]


class Log(NamedTuple):
    """Darshan log. counted: module -> records (counters.record_type). traced: module -> Trace. heat: interface -> Heat.
    A module that could not be read, or whose records may be incomplete, is among the faults. The part of it that could
    be read is kept.
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


def counter(records: Records, name: str) -> Any:
    """Return a counter, one value per record. It is 0 if the module has no such counter or Darshan marks it as unknown
    (-1).
    """
    if name not in (records.dtype.names or ()):
        return np.zeros(len(records), np.int64)
    return np.maximum(records[name], 0)


def used(records: Records, name: str) -> Any:
    """Return a counter, one value per record. A common size or stride (ACCESSn_ACCESS, STRIDEn_STRIDE) whose COUNT is 0
    is returned as 0, because Darshan may leave any value there (3.2.0 does).
    """
    slot, _, kind = name.partition("_")
    if not slot[-1:].isdecimal() or kind == "COUNT":
        return records[name]
    return np.where(records[f"{slot}_COUNT"] > 0, records[name], 0)


def common_sizes(records: Records) -> dict[int, int]:
    """Return the number of requests by size in bytes, reads and writes together. Darshan keeps the four most frequent
    sizes of each file.
    """
    requests: dict[int, int] = {}
    for number in range(1, _SLOTS + 1):
        sizes, counts = (counter(records, f"ACCESS{number}_{part}").tolist() for part in ("ACCESS", "COUNT"))
        for size, count in zip(sizes, counts, strict=True):
            if count:
                requests[size] = requests.get(size, 0) + count
    return requests
