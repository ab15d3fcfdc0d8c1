"""Time of ranks in I/O calls, over all interfaces that a log records: the time of the slowest rank, and the time in
which at least one rank is in a call.

MPI-IO and HDF5 make the requests of the interfaces below them. The calls to a file are therefore counted once, in the
interface in which they take the longest time. For files without MPI-IO or HDF5, the times of POSIX and of STDIO are
added, because POSIX does not include STDIO. If a shared file has one record for all ranks (rank -1), the record has the
sum, the slowest rank and the fastest rank; times of single ranks then have a lower and an upper bound.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.findings import IoLoad
from dlio_hpc.analysis.log.requests import Requests
from dlio_hpc.darshan.log import NO_RECORDS, Log, Records, counter
from dlio_hpc.results import intervals

Floats = npt.NDArray[np.float64]

_KINDS = {"READ": "reads", "WRITE": "writes", "META": "metadata calls"}
# Modules that count I/O, but whose records are not read.
_UNREAD = ("DFS", "DAOS", "MDHIM")


class _Times(NamedTuple):
    """Seconds in calls, shape (ranks,). least, most: bounds for each rank. longest: for each rank, the longest time in
    calls to a single file. mean: mean over ranks.
    """

    least: Floats
    most: Floats
    longest: Floats
    mean: float


def of_log(log: Log, requests: Requests | None, wanted: Callable[[str], bool]) -> IoLoad:
    """Return how long ranks are in I/O calls. requests: requests of the POSIX trace, which replace the read and write
    times of the POSIX counters; None to use counters alone. wanted: function that returns whether a path is included.
    """
    ranks, job_s = max(log.job.ranks, 1), max(log.job.seconds, 0.0)
    interfaces = _interfaces(log, wanted)
    parts = {
        interface: _highest([_times(module, records, requests, ranks, log) for module, records in modules.items()])
        for interface, modules in interfaces.items()
    }
    total = _sum(list(parts.values()), ranks)
    slowest = int(np.argmax(total.least))
    is_known = total.least[slowest] >= total.mean * (1 - 1e-9) and total.least[slowest] > 0
    least, most = max(float(total.least[slowest]), total.mean), float(total.most.max())
    # Times of calls that overlap in threads or processes of a rank add up.
    overlaps = bool(job_s) and least > job_s + clock_s(log)
    if overlaps:
        longest = float(total.longest.max())
        slowest, least, most = int(np.argmax(total.longest)), min(longest, job_s), job_s
    elif job_s:
        most = max(least, min(most, job_s))
    name = max(parts, key=lambda part: parts[part].least[slowest] if is_known else parts[part].mean, default=None)
    any_least, any_most = _of_any(log, requests, total, least)
    return IoLoad(
        rank=slowest if is_known else None,
        host=requests.hosts[slowest] if is_known and requests is not None and slowest < len(requests.hosts) else "",
        interface=name,
        calls=None if name is None else _main_calls(interfaces[name], slowest if is_known else None),
        least_s=least,
        most_s=most,
        any_least_s=min(any_least, job_s) if job_s else any_least,
        any_most_s=min(any_most, job_s) if job_s else any_most,
        overlaps=overlaps,
        clock_s=clock_s(log),
        unread=[module for module in _UNREAD if module in log.modules],
    )


def clock_s(log: Log) -> float:
    """Return the resolution in seconds of the times when the job started and ended. Logs before format 3.41 have whole
    seconds.
    """
    return 1.0 if log.job.started % 1 == 0 and log.job.ended % 1 == 0 else 0.0


def _interfaces(log: Log, wanted: Callable[[str], bool]) -> dict[str, dict[str, Records]]:
    """Return the records of each module, for each interface. The records of a file belong to the interface through
    which the program uses the file. This is HDF5 if the file has records of HDF5, otherwise MPI-IO if the file has
    records of MPI-IO. For other files, POSIX and STDIO are separate interfaces.
    """
    numbers = {name: number for number, name in log.names.items()}
    records = {module: _wanted(log, rows, wanted, numbers) for module, rows in log.counted.items()}
    files = {module: _files(log, rows, numbers) for module, rows in records.items()}
    none = np.empty(0, np.uint64)
    hdf5 = np.union1d(files.get("H5F", none), files.get("H5D", none))
    mpiio = np.setdiff1d(files.get("MPI-IO", none), hdf5)
    interfaces: dict[str, dict[str, Records]] = {}
    for module, rows in records.items():
        of_hdf5, of_mpiio = np.isin(files[module], hdf5), np.isin(files[module], mpiio)
        for name, chosen in (("HDF5", of_hdf5), ("MPI-IO", of_mpiio), (module, ~of_hdf5 & ~of_mpiio)):
            if chosen.any():
                interfaces.setdefault(name, {})[module] = rows[chosen]
    return interfaces


def _wanted(log: Log, records: Records, wanted: Callable[[str], bool], numbers: dict[str, int]) -> Records:
    paths = [log.names.get(number, str(number)) for number in _files(log, records, numbers).tolist()]
    return records[[wanted(path) for path in paths]] if len(records) else NO_RECORDS


def _files(log: Log, records: Records, numbers: dict[str, int]) -> Any:
    """Return the record ids of the files. Records of HDF5 datasets have ids of their own. Such a record contains the id
    of its file, or has the name FILE:/DATASET. numbers: record ids by name.
    """
    if "DATATYPE_SIZE" not in (records.dtype.names or ()):
        return records["id"]
    own = records["file_id"].tolist() if "file_id" in (records.dtype.names or ()) else [0] * len(records)
    names = (log.names.get(number, "") for number in records["id"].tolist())
    files = [
        file or numbers.get(name.partition(":/")[0], number)
        for file, name, number in zip(own, names, records["id"].tolist(), strict=True)
    ]
    return np.array(files, np.uint64)


def _times(module: str, records: Records, requests: Requests | None, ranks: int, log: Log) -> _Times:
    kinds = ("META",) if module == "POSIX" and requests is not None else tuple(_KINDS)
    times = _counted(records, kinds, ranks)
    if module != "POSIX" or requests is None:
        return times
    paths = {log.names.get(number, str(number)) for number in records["id"].tolist()}
    busy = _busy(requests, requests.on(paths), ranks)
    return _Times(
        times.least + busy, times.most + busy, np.maximum(times.longest, busy), times.mean + float(busy.mean())
    )


def _busy(requests: Requests, chosen: npt.NDArray[np.bool_], ranks: int) -> Floats:
    """Return for each rank the time with at least one of the chosen requests in flight."""
    part = requests.chosen(chosen)
    busy = np.zeros(ranks)
    for rank in range(ranks):
        busy[rank] = intervals.length(intervals.union(part.times(part.of_rank(rank))))
    return busy


def _counted(records: Records, kinds: tuple[str, ...], ranks: int) -> _Times:
    seconds = sum((counter(records, f"F_{kind}_TIME") for kind in kinds), np.zeros(len(records)))
    shared = (records["rank"] < 0) & (ranks > 1)
    rank = np.clip(records["rank"], 0, ranks - 1)
    least, longest = np.zeros(ranks), np.zeros(ranks)
    np.add.at(least, rank[~shared], seconds[~shared])
    np.maximum.at(longest, rank[~shared], seconds[~shared])
    slowest_s = np.minimum(counter(records, "F_SLOWEST_RANK_TIME"), seconds)
    most = least + np.where(slowest_s > 0, slowest_s, seconds)[shared].sum()
    if len(kinds) == len(_KINDS):
        ranked = shared & (slowest_s > 0)
        fastest_s = np.minimum(counter(records, "F_FASTEST_RANK_TIME"), seconds / ranks)[ranked]
        slowest = np.clip(counter(records, "SLOWEST_RANK"), 0, ranks - 1)[ranked]
        least += fastest_s.sum()
        np.add.at(least, slowest, np.maximum(slowest_s[ranked] - fastest_s, 0.0))
        np.maximum(longest, fastest_s.max(initial=0.0), out=longest)
        np.maximum.at(longest, slowest, slowest_s[ranked])
    return _Times(least, most, longest, float(seconds.sum()) / ranks)


def _highest(times: list[_Times]) -> _Times:
    """Return the times of ranks in nested interfaces. The time of each rank is the longest of its times in these
    interfaces, because the calls of one interface include the calls of the others.
    """
    least, most, longest = (np.max([getattr(part, name) for part in times], axis=0) for name in _Times._fields[:3])
    return _Times(least, most, longest, max(part.mean for part in times))


def _sum(times: list[_Times], ranks: int) -> _Times:
    """Return the sum over interfaces that are not nested."""
    none = np.zeros(ranks)
    least, most = (sum((getattr(part, name) for part in times), none) for name in ("least", "most"))
    longest = np.max([none, *(part.longest for part in times)], axis=0)
    return _Times(least, most, longest, sum(part.mean for part in times))


def _of_any(log: Log, requests: Requests | None, total: _Times, slowest_s: float) -> tuple[float, float]:
    """Return bounds of the time in which at least one rank is in an I/O call. The trace has the time of each POSIX read
    and write. For all other calls, only the sum of their times is known.
    """
    everybody = total.mean * len(total.least)
    if requests is None:
        return slowest_s, everybody
    traced = intervals.length(intervals.union(requests.times()))
    return max(traced, slowest_s), traced + max(everybody - float(_busy_of_all(requests, len(total.least))), 0.0)


def _busy_of_all(requests: Requests, ranks: int) -> float:
    return float(_busy(requests, np.ones(len(requests.start), bool), ranks).sum())


def _main_calls(modules: dict[str, Records], rank: int | None) -> str | None:
    """Return the kind of calls that take the most time: reads, writes or metadata calls. rank: only the records of this
    rank and the records that all ranks share are used; None to use all records.
    """
    seconds = dict.fromkeys(_KINDS, 0.0)
    for records in modules.values():
        chosen = records if rank is None else records[(records["rank"] == rank) | (records["rank"] < 0)]
        for kind in _KINDS:
            seconds[kind] = max(seconds[kind], float(counter(chosen, f"F_{kind}_TIME").sum()))
    kind = max(seconds, key=lambda name: seconds[name])
    return _KINDS[kind] if seconds[kind] else None
