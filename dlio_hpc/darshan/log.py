"""What a Darshan log holds, whoever read it: the job, counters of files, the extended trace (DXT), heat maps."""

from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

Name = Literal[
    "truncated", "garbled", "partial", "unknown version", "DXT missing", "DXT cut", "counters disagree",
    "rank count", "stale", "no end",
]  # fmt: skip
Records = npt.NDArray[np.void]
# Of a module that a log has not.
NO_RECORDS: Records = np.empty(0, [("id", "<u8"), ("rank", "<i8")])

COUNTING = ("POSIX", "MPI-IO", "STDIO")
TRACING = ("DXT_POSIX", "DXT_MPIIO")
# Slots for the most frequent sizes of requests to a file.
_SLOTS = 4


class Fault(NamedTuple):
    """Why a log, or a part of it, is not to be believed."""

    name: Name
    text: str

    def __str__(self) -> str:
        return f"{self.name}: {self.text}"


class Job(NamedTuple):
    """started, ended: seconds since 1970 (0: it never did); library: version as Darshan's maker called it."""

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
    """Where a module's records lie. partial: it ran out of memory and says so."""

    version: int
    offset: int
    length: int
    partial: bool


class Trace(NamedTuple):
    """DXT. files: counters.TRACED, a file of a rank each; segments: one row a request, those of files[n] from first[n]
    on, writes before reads. Times are seconds of the rank's own clock since Darshan began there. Where a rank is of
    several processes, each has a log of its own, and segments have the number of theirs as `process`.
    """

    files: Records
    segments: Records

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Segments of each of `files`."""
        both: npt.NDArray[np.int64] = self.files["writes"] + self.files["reads"]
        return both

    @property
    def first(self) -> npt.NDArray[np.int64]:
        return np.cumsum(self.counts) - self.counts


class Heat(NamedTuple):
    """HEATMAP of one interface: bytes that each of `ranks` read and wrote, (ranks, bins), in bins of width_s since the
    job began.
    """

    width_s: float
    ranks: npt.NDArray[np.int64]
    read: npt.NDArray[np.int64]
    written: npt.NDArray[np.int64]


class Log(NamedTuple):
    """counted: module -> records (counters.record_type); traced: module -> Trace; heat: interface -> Heat. A module
    that could not be read, or whose records cannot be trusted to be whole, is among the faults; what could be read of
    it is kept.
    """

    path: Path
    version: str
    job: Job
    modules: dict[str, Module]
    names: dict[int, str]
    counted: dict[str, Records]
    traced: dict[str, Trace]
    faults: list[Fault]
    heat: dict[str, Heat]


def counter(records: Records, name: str) -> Any:
    """One value a record: 0 where the module has no such counter, or Darshan marks it as unknown (-1)."""
    if name not in (records.dtype.names or ()):
        return np.zeros(len(records), np.int64)
    return np.maximum(records[name], 0)


def used(records: Records, name: str) -> Any:
    """The values of a counter, one for each record. A common size or stride (ACCESSn_ACCESS, STRIDEn_STRIDE) whose
    COUNT is 0 gives 0, because Darshan may leave any value there (3.2.0 does).
    """
    slot, _, kind = name.partition("_")
    if not slot[-1:].isdecimal() or kind == "COUNT":
        return records[name]
    return np.where(records[f"{slot}_COUNT"] > 0, records[name], 0)


def common_sizes(records: Records) -> dict[int, int]:
    """Number of requests by their size in bytes, reads and writes together. Darshan keeps the four most frequent sizes
    of each file.
    """
    requests: dict[int, int] = {}
    for number in range(1, _SLOTS + 1):
        sizes, counts = (counter(records, f"ACCESS{number}_{part}").tolist() for part in ("ACCESS", "COUNT"))
        for size, count in zip(sizes, counts, strict=True):
            if count:
                requests[size] = requests.get(size, 0) + count
    return requests
