"""Summary of a program's I/O from a Darshan log, with or without a trace."""

import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dlio_hpc.analysis.log import io_load
from dlio_hpc.analysis.log.findings import (
    LAST_SIZES,
    SIZE_BINS,
    Analysis,
    Interface,
    LogFile,
    Metadata,
    Node,
    Operation,
    Rank,
    SizeStats,
    Timeline,
)
from dlio_hpc.analysis.log.requests import Requests, over_time
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.darshan.log import NO_RECORDS, Log, Records, common_sizes, counter
from dlio_hpc.results import intervals

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

_TYPES = {
    ".h5": "HDF5", ".hdf5": "HDF5", ".nc": "NetCDF", ".nc4": "NetCDF", ".npz": "NumPy archive", ".npy": "NumPy array",
    ".tfrecord": "TFRecord", ".tfrecords": "TFRecord", ".csv": "CSV", ".json": "JSON", ".txt": "text", ".py": "Python",
    ".pyc": "Python", ".so": "library", ".pt": "PyTorch", ".pth": "PyTorch", ".ckpt": "checkpoint", ".pkl": "pickle",
    ".yaml": "YAML", ".yml": "YAML", ".jpg": "image", ".jpeg": "image", ".png": "image",
}  # fmt: skip
_COMMON, _MOST_STEPS = 5, 10_000_000


def summarise(
    log: Log,
    requests: Requests | None,
    wanted: Callable[[str], bool],
    computing: "dict[int, Floats] | None" = None,
    step_s: float | None = None,
) -> Analysis:
    """Summarise a log. requests: requests of the POSIX trace; None to use counters alone. wanted: function that returns
    whether a path is included. computing: for each rank, the disjoint intervals in which the rank computed, shape (n,
    2), on the clock of `requests`; None if the intervals are unknown. step_s: length of a step of the timeline in
    seconds; None for 200 steps.
    """
    posix, every_stdio = (_records(log, module, wanted) for module in ("POSIX", "STDIO"))
    stdio = every_stdio if requests is None else every_stdio[:0]
    io = _io_times(log, requests, posix, stdio, computing)
    by_rank = _by_rank(log, requests, posix, stdio, io)
    read, write = (_operation(log, requests, posix, stdio, kind) for kind in ("READ", "WRITE"))
    hidden = None if io.hidden is None else float(io.hidden.mean())
    mean = float(io.busy.mean()) if len(io.busy) else 0.0
    return Analysis(
        program=log.job.program,
        ranks=log.job.ranks,
        job_s=max(log.job.seconds, 0.0),
        traced=requests is not None,
        io_s=mean,
        io_share=mean / log.job.seconds if log.job.seconds > 0 else None,
        io_any_s=io.anybody,
        load=io_load.of_log(log, requests, wanted),
        hidden_s=hidden,
        hidden_share=None if hidden is None or not mean else hidden / mean,
        bytes_read=_sum(posix, "BYTES_READ") + _sum(stdio, "BYTES_READ"),
        bytes_written=_sum(posix, "BYTES_WRITTEN") + _sum(stdio, "BYTES_WRITTEN"),
        untraced_bytes=_sum(every_stdio, "BYTES_READ") + _sum(every_stdio, "BYTES_WRITTEN")
        if requests is not None
        else 0,
        read=read,
        write=write,
        metadata=_metadata(posix, every_stdio),
        interfaces=_interfaces(log, wanted),
        by_rank=by_rank,
        by_node=_by_node(by_rank),
        files=_files(log, posix, every_stdio),
        timeline=None if requests is None else timeline(requests, step_s),
    )


def _records(log: Log, module: str, wanted: Callable[[str], bool]) -> Records:
    records = log.counted.get(module, NO_RECORDS)
    return records[[wanted(log.names.get(number, str(number))) for number in records["id"].tolist()]]


def _sum(records: Records, name: str) -> int:
    return int(counter(records, name).sum())


class _IO(NamedTuple):
    """I/O times in seconds. busy: for each rank, the time with a request in flight. hidden: for each rank, the part of
    `busy` during computation; None if there is no trace or the times of computation are unknown. anybody: time with a
    request of at least one rank in flight; None if there is no trace.
    """

    busy: Floats
    hidden: Floats | None
    anybody: float | None


def _io_times(
    log: Log, requests: Requests | None, posix: Records, stdio: Records, computing: "dict[int, Floats] | None"
) -> _IO:
    busy = np.zeros(max(log.job.ranks, 1))
    if requests is None:
        for records in (posix, stdio):
            spent = counter(records, "F_READ_TIME") + counter(records, "F_WRITE_TIME")
            own = records["rank"] >= 0
            np.add.at(busy, np.minimum(records["rank"][own], len(busy) - 1), spent[own])
            busy += spent[~own].sum() / len(busy)  # a shared record has the sum over ranks
        return _IO(busy, None, None)
    hidden = None if computing is None else np.zeros(len(busy))
    for rank in range(len(busy)):
        part = requests.of_rank(rank)
        covered = intervals.union(requests.times(part))
        busy[rank] = intervals.length(covered)
        if hidden is not None and computing is not None:
            hidden[rank] = intervals.within(covered, computing.get(rank, np.empty((0, 2))))
    return _IO(busy, hidden, intervals.length(intervals.union(requests.times())))


def _operation(log: Log, requests: Requests | None, posix: Records, stdio: Records, kind: str) -> Operation | None:
    plural, done = f"{kind}S", "READ" if kind == "READ" else "WRITTEN"
    count = _sum(posix, plural) + _sum(stdio, plural)
    if not count:
        return None
    size = _sum(posix, f"BYTES_{done}") + _sum(stdio, f"BYTES_{done}")
    histogram = {name: _sum(posix, f"SIZE_{kind}_{name}") for name in SIZE_BINS}
    own = _sum(posix, plural)
    counted = Operation(
        requests=count,
        bytes=size,
        time_s=(_sum_s(posix, kind) + _sum_s(stdio, kind)) / max(log.job.ranks, 1),
        size=None,
        histogram={name: number for name, number in histogram.items() if number},
        common=sorted(common_sizes(posix).items(), key=lambda pair: -pair[1])[:_COMMON],
        MBps=None,
        bandwidth_MBps=None,
        sequential=_sum(posix, f"SEQ_{plural}") / own if own else None,
        consecutive=_sum(posix, f"CONSEC_{plural}") / own if own else None,
    )
    if requests is None:
        return counted
    return _traced(counted, requests, kind, max(log.job.ranks, 1))


def _traced(counted: Operation, requests: Requests, kind: str, ranks: int) -> Operation:
    chosen = requests.write if kind == "WRITE" else ~requests.write
    lengths, times = requests.length[chosen], requests.times(chosen)
    if not len(lengths):
        return counted
    durations = times[1] - times[0]
    timed = durations > 0
    rates = lengths[timed] / durations[timed] / 1e6
    busy = intervals.length(intervals.union(times))
    of_rank = requests.rank[chosen]
    first = np.searchsorted(of_rank, np.arange(ranks + 1))
    spent = sum(intervals.length(intervals.union(times[:, low:high])) for low, high in pairwise(first))
    sizes, numbers = np.unique(lengths, return_counts=True)
    most = np.argsort(-numbers, kind="stable")[:_COMMON]
    return replace(
        counted,
        time_s=spent / ranks,
        size=_spread(lengths),
        histogram=_binned(sizes, numbers),
        common=[(int(sizes[at]), int(numbers[at])) for at in most],
        MBps=float(lengths.sum() / busy / 1e6) if busy else None,
        bandwidth_MBps=_spread(rates) if len(rates) else None,
    )


def _binned(sizes: Counts, numbers: Counts) -> dict[str, int]:
    counts = np.bincount(np.searchsorted(LAST_SIZES, sizes), numbers, len(LAST_SIZES))
    return {name: int(count) for name, count in zip(SIZE_BINS, counts, strict=True) if count}


def _spread(values: Any) -> SizeStats:
    return SizeStats(float(values.min()), float(values.max()), float(values.mean()), float(np.median(values)))


def _sum_s(records: Records, kind: str) -> float:
    return float(counter(records, f"F_{kind}_TIME").sum())


def _metadata(posix: Records, stdio: Records) -> Metadata:
    time_s = _sum_s(posix, "META") + _sum_s(stdio, "META")
    transfers = sum(_sum_s(records, kind) for records in (posix, stdio) for kind in ("READ", "WRITE"))
    return Metadata(
        opens=_sum(posix, "OPENS") + _sum(stdio, "OPENS"),
        seeks=_sum(posix, "SEEKS") + _sum(stdio, "SEEKS"),
        syncs=_sum(posix, "FSYNCS") + _sum(posix, "FDSYNCS") + _sum(stdio, "FLUSHES"),
        time_s=time_s,
        share=time_s / (time_s + transfers) if time_s + transfers else None,
        stats=_sum(posix, "STATS"),
        maps=_sum(posix, "MMAPS"),
    )


def _interfaces(log: Log, wanted: Callable[[str], bool]) -> dict[str, Interface]:
    interfaces = {}
    for module in log.counted:
        records = _records(log, module, wanted)
        if not len(records) or module == "H5F":  # an H5F record counts opens and flushes only
            continue
        prefixes = ("INDEP_", "COLL_", "SPLIT_", "NB_") if module == "MPI-IO" else ("",)
        interfaces[module] = Interface(
            _sum(records, "BYTES_READ"),
            _sum(records, "BYTES_WRITTEN"),
            sum(_sum(records, f"{prefix}READS") for prefix in prefixes),
            sum(_sum(records, f"{prefix}WRITES") for prefix in prefixes),
            len(np.unique(records["id"])),
            *(_sum_s(records, kind) / max(log.job.ranks, 1) for kind in ("READ", "WRITE", "META")),
        )
    return interfaces


def _by_rank(log: Log, requests: Requests | None, posix: Records, stdio: Records, io: _IO) -> list[Rank]:
    """Return the metrics of each rank. If Darshan summed the records of shared files over ranks (rank -1), bytes and
    requests are taken from the trace. If there is no trace in that case, return an empty list.
    """
    count = len(io.busy)
    columns: dict[str, Any] = {
        name: np.zeros(count) for name in ("BYTES_READ", "BYTES_WRITTEN", "READS", "WRITES", "F_META_TIME")
    }
    reduced = bool((posix["rank"] < 0).any())
    if reduced and requests is None:
        return []
    for records in (posix, stdio):
        own = (records["rank"] >= 0) & (records["rank"] < count)
        for name, column in columns.items():
            np.add.at(column, records["rank"][own], counter(records, name)[own])
    if reduced and requests is not None:
        for name, values in (("BYTES", requests.length), ("S", np.ones(len(requests.rank), np.int64))):
            reads = np.bincount(requests.rank, np.where(requests.write, 0, values), count)
            writes = np.bincount(requests.rank, np.where(requests.write, values, 0), count)
            columns["BYTES_READ" if name == "BYTES" else "READS"] = reads
            columns["BYTES_WRITTEN" if name == "BYTES" else "WRITES"] = writes
    hosts = requests.hosts if requests is not None else [""] * count
    return [
        Rank(
            rank,
            hosts[rank] if rank < len(hosts) else "",
            int(columns["BYTES_READ"][rank]),
            int(columns["BYTES_WRITTEN"][rank]),
            int(columns["READS"][rank]),
            int(columns["WRITES"][rank]),
            float(io.busy[rank]),
            float(columns["F_META_TIME"][rank]),
            float((columns["BYTES_READ"][rank] + columns["BYTES_WRITTEN"][rank]) / io.busy[rank] / 1e6)
            if io.busy[rank]
            else None,
            None if io.hidden is None else float(io.hidden[rank]),
        )
        for rank in range(count)
    ]


def _by_node(ranks: list[Rank]) -> list[Node]:
    nodes: dict[str, list[Rank]] = {}
    for rank in ranks:
        if rank.host:
            nodes.setdefault(rank.host, []).append(rank)
    return [
        Node(
            host,
            len(members),
            sum(rank.bytes_read for rank in members),
            sum(rank.bytes_written for rank in members),
            sum(rank.io_s for rank in members) / len(members),
        )
        for host, members in nodes.items()
    ]


def _files(log: Log, posix: Records, stdio: Records) -> list[LogFile]:
    """Return the metrics of each file, sorted by the bytes transferred, most bytes first."""
    columns = ("BYTES_READ", "BYTES_WRITTEN", "READS", "WRITES", "OPENS", "F_READ_TIME", "F_WRITE_TIME")
    numbers = np.concatenate((posix["id"], stdio["id"]))
    ids, at = np.unique(numbers, return_inverse=True)
    table = {
        name: np.bincount(at, np.concatenate((counter(posix, name), counter(stdio, name))), len(ids))
        for name in columns
    }
    last = np.full(len(ids), -1, np.int64)
    for name in ("MAX_BYTE_READ", "MAX_BYTE_WRITTEN"):
        np.maximum.at(last, at, np.concatenate((counter(posix, name), counter(stdio, name))))
    ranks = np.bincount(at, minlength=len(ids))
    everybody = np.bincount(at, np.concatenate((posix["rank"], stdio["rank"])) < 0, len(ids)) > 0
    files = [
        LogFile(
            path=(path := log.names.get(int(number), str(number))),
            type=kind(path),
            size=int(last[row]) + 1 if table["BYTES_READ"][row] + table["BYTES_WRITTEN"][row] else 0,
            **{name.lower(): int(table[name][row]) for name in columns[:5]},
            ranks=-1 if everybody[row] else int(ranks[row]),
            io_s=float(table["F_READ_TIME"][row] + table["F_WRITE_TIME"][row]),
        )
        for row, number in enumerate(ids)
    ]
    return sorted(files, key=lambda file: (-file.bytes_read - file.bytes_written, file.path))


def kind(path: str) -> str:
    """Return the type of a file according to its extension, such as HDF5."""
    ending = os.path.splitext(path)[1].lower()
    return _TYPES.get(ending, ending.lstrip(".") or "other")


def timeline(requests: Requests, step_s: float | None = None, least_bins: int = 200) -> Timeline:
    """Return bytes and requests in each step of the timeline. step_s: length of a step in seconds; None to choose it so
    that there are `least_bins` steps. The bytes of a request are spread over its duration. The request itself is
    counted in the step in which it starts. Raise ConfigError if there are too many steps.
    """
    if not len(requests.start):
        return Timeline(0.0, step_s or 1.0, [], [], [], [])
    begin, end = min(0.0, float(requests.start.min())), float(requests.end.max())
    step_s = step_s or max((end - begin) / least_bins, 1e-9)
    if (end - begin) / step_s > _MOST_STEPS:
        raise ConfigError(
            f"--step: a timeline of {end - begin:.6g} s has too many steps of {step_s:.3g} s; choose a longer step"
        )
    bins = max(int(np.ceil((end - begin) / step_s)), 1)
    edges: Floats = begin + step_s * np.arange(bins + 1, dtype=np.float64)
    bytes_read, reads, bytes_written, writes = (column.tolist() for column in over_time(requests, edges))
    return Timeline(begin, step_s, bytes_read, bytes_written, reads, writes)
