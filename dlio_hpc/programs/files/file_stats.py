"""Accesses to each file of a log, summed over the counters of all modules and ranks."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.darshan.log import NO_RECORDS, Log, Records, counter

Floats = npt.NDArray[np.float64]

_SUMS = ("BYTES_READ", "BYTES_WRITTEN", "READS", "WRITES", "OPENS", "FSYNCS", "FDSYNCS")
_COLLECTIVE = ("COLL_READS", "COLL_WRITES")


class FileStats(NamedTuple):
    """Accesses to a file. size: bytes from the beginning of the file to the end of the access that reached furthest.
    ranks: number of ranks that opened the file. read_s, written_s: time of the first and of the last read (or write) in
    seconds since the job began; None if there was none. buffered: bytes transferred through STDIO, which is not traced.
    collective: number of collective MPI-IO requests. rank: the rank that opened the file; -1 if several ranks did.
    buffered_read: bytes read through STDIO. written_end: bytes from the beginning of the file to the end of the write
    that reached furthest. renamed_from: former path of a file that the program renamed; "" if it did not. has_excess:
    whether reads reached beyond the end of the file (see file_ends).
    """

    path: str
    bytes_read: int
    bytes_written: int
    reads: int
    writes: int
    opens: int
    syncs: int
    size: int
    ranks: int
    read_s: tuple[float, float] | None
    written_s: tuple[float, float] | None
    buffered: int
    collective: int
    rank: int = -1
    buffered_read: int = 0
    written_end: int = 0
    renamed_from: str = ""
    has_excess: bool = False

    @property
    def moved(self) -> int:
        return self.bytes_read + self.bytes_written


def take(log: Log) -> list[FileStats]:
    """Return the accesses to all files of a log, sorted by path. POSIX records include bytes that were transferred
    through MPI-IO; bytes transferred through STDIO are added.
    """
    posix, stdio, mpiio = (log.counted.get(name, NO_RECORDS) for name in ("POSIX", "STDIO", "MPI-IO"))
    both = (posix, stdio)
    numbers = np.concatenate([records["id"] for records in both])
    ids, at = np.unique(numbers, return_inverse=True)
    sums = {name: _summed(both, name, at, len(ids)) for name in _SUMS}
    collective = _collective(mpiio, ids)
    read_end, written_end = (_ends(both, kind, at, len(ids)) for kind in ("READ", "WRITTEN"))
    ranks = _ranks(both, at, len(ids), log.job.ranks)
    only = np.full(len(ids), -1, np.int64)
    only[at] = np.concatenate([records["rank"] for records in both])
    only[ranks > 1] = -1
    read, written = (_span(both, kind, at, len(ids)) for kind in ("READ", "WRITE"))
    buffered_read, buffered_written = (
        _summed((stdio,), f"BYTES_{kind}", at[len(posix) :], len(ids)) for kind in ("READ", "WRITTEN")
    )
    renamed = _renamed(log, posix)
    files = [
        FileStats(
            log.names.get(int(number), str(number)),
            int(sums["BYTES_READ"][row]),
            int(sums["BYTES_WRITTEN"][row]),
            int(sums["READS"][row]),
            int(sums["WRITES"][row]),
            int(sums["OPENS"][row]),
            int(sums["FSYNCS"][row] + sums["FDSYNCS"][row]),
            int(max(read_end[row], written_end[row])),
            int(ranks[row]),
            pair(read[:, row]),
            pair(written[:, row]),
            int(buffered_read[row] + buffered_written[row]),
            collective.get(int(number), 0),
            int(only[row]),
            int(buffered_read[row]),
            int(written_end[row]),
            renamed.get(int(number), ""),
        )
        for row, number in enumerate(ids)
    ]
    return sorted(files)


def _joined(both: tuple[Records, ...], name: str) -> Any:
    return np.concatenate([counter(records, name) for records in both])


def _summed(both: tuple[Records, ...], name: str, at: Any, count: int) -> Any:
    total = np.zeros(count, np.int64)
    np.add.at(total, at, _joined(both, name))
    return total


def _ends(both: tuple[Records, ...], kind: str, at: Any, count: int) -> Any:
    """Return for each file the bytes from its beginning to the end of the access that reached furthest, or 0 for a file
    without accesses. If no bytes were transferred, a counter of 0 does not mean that byte 0 was accessed. kind: READ or
    WRITTEN.
    """
    ends = np.zeros(count, np.int64)
    values = np.where(_joined(both, f"BYTES_{kind}") > 0, _joined(both, f"MAX_BYTE_{kind}") + 1, 0)
    np.maximum.at(ends, at, values)
    return ends


def _renamed(log: Log, posix: Records) -> dict[int, str]:
    """Return the former path of each file that the program renamed, by record id."""
    if "RENAMED_FROM" not in (posix.dtype.names or ()):
        return {}
    former = posix["RENAMED_FROM"].astype(np.uint64)  # a record id, which Darshan keeps in a signed counter
    pairs = zip(posix["id"].tolist(), former.tolist(), strict=True)
    return {number: log.names[source] for number, source in pairs if source in log.names and source != number}


def _ranks(both: tuple[Records, ...], at: Any, count: int, ranks: int) -> Any:
    """Return the number of ranks that opened each file. A record of rank -1 stands for all ranks."""
    known = np.concatenate([records["rank"] for records in both])
    pairs = np.unique(np.stack([at, known], axis=1), axis=0) if len(at) else np.empty((0, 2), np.int64)
    number = np.bincount(pairs[:, 0].astype(np.int64), minlength=count)
    everybody = np.zeros(count, bool)
    everybody[at[known < 0]] = True
    return np.where(everybody, max(ranks, 1), number)


def _span(both: tuple[Records, ...], kind: str, at: Any, count: int) -> Floats:
    """Return the time of the first and of the last access to each file, shape (2, files). The times are infinite for a
    file without accesses. kind: READ or WRITE.
    """
    begins, ends = (_joined(both, f"F_{kind}_{part}_TIMESTAMP") for part in ("START", "END"))
    span = np.array([np.full(count, np.inf), np.full(count, -np.inf)])
    np.minimum.at(span[0], at[begins > 0], begins[begins > 0])
    np.maximum.at(span[1], at[ends > 0], ends[ends > 0])
    return span


def pair(span: Floats) -> tuple[float, float] | None:
    """Return the first and the last time, or None if there were no accesses."""
    return (float(span[0]), float(span[1])) if np.isfinite(span).all() else None


def _collective(mpiio: Records, ids: Any) -> dict[int, int]:
    known = set(ids.tolist())
    requests: dict[int, int] = {}
    calls = sum(counter(mpiio, name) for name in _COLLECTIVE)
    for number, count in zip(mpiio["id"].tolist(), np.broadcast_to(calls, len(mpiio)).tolist(), strict=True):
        if number in known and count:
            requests[number] = requests.get(number, 0) + count
    return requests
