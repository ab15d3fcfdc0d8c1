"""Check whether a log can be trusted. Each fault has a name. A log without faults has complete data."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.units import counted
from dlio_hpc.darshan.log import Log, LogFault, Records, Trace, used

# Counting module -> its tracing module, its counters of reads, its counters of writes.
_PAIRS = {
    "POSIX": ("DXT_POSIX", ("READS",), ("WRITES",)),
    "MPI-IO": (
        "DXT_MPIIO",
        ("INDEP_READS", "COLL_READS", "SPLIT_READS", "NB_READS"),
        ("INDEP_WRITES", "COLL_WRITES", "SPLIT_WRITES", "NB_WRITES"),
    ),
}
# A log may record times in whole seconds.
_SLACK_S = 2.0
# Largest number of files that a message names.
_NAMED = 3
# Largest plausible number of bytes, requests or seconds: 2^60, an exbibyte.
_MOST = 2.0**60
_MOST_RANKS, _MOST_S = 1 << 24, 2.0**36
# Counters that may have any value: record ids of files, and offsets, which have no limit in a sparse file.
_ANY = {"id", "file_id", "RENAMED_FROM", "MAX_BYTE_READ", "MAX_BYTE_WRITTEN"}

# Columns of a Table, which has the requests and bytes of each file and rank.
_READS, _BYTES_READ, _WRITES, _BYTES_WRITTEN = range(4)
_NONE = np.zeros(4, np.int64)
Table = dict[tuple[int, int], npt.NDArray[np.int64]]


class Expected(NamedTuple):
    """Facts about the run that the log must agree with; a fact is None if it is unknown. started, ended: seconds since
    1970. workers: number of worker processes of all ranks, each of which must have left a log.
    """

    ranks: int | None = None
    started: float | None = None
    ended: float | None = None
    workers: int = 0


def judge(log: Log, expected: Expected | None = None) -> list[LogFault]:
    """Return all faults of the log: faults found when the log was read, impossible values, contradictions between parts
    of the log, and contradictions between the log and `expected`. If there are no faults, the counters and the trace of
    the log are complete.
    """
    faults = list(log.faults)
    if log.path.name.endswith("_partial"):
        faults.append(LogFault("no end", "Darshan died while it wrote the log (.darshan_partial)"))
    faults += _impossible(log)
    if expected is not None:
        faults += _against_run(log, expected)
        faults += _missing_workers(log, expected)
    for module, pair in _PAIRS.items():
        if module in log.counted:
            faults += _trace_faults(log, module, *pair)
    return faults


def has_possible(faults: list[LogFault], module: str) -> bool:
    """Return False if a fault says that the data of the module are garbled, otherwise True."""
    return not any(fault.name == "garbled" and fault.text.startswith((f"{module}:", f"{module} ")) for fault in faults)


def _impossible(log: Log) -> Iterator[LogFault]:
    """Yield faults for values that no program can cause. Such values occur because checksums do not cover the header of
    a log, and because of bugs in the programs that write logs.
    """
    ranks = log.job.ranks
    if not 1 <= ranks <= _MOST_RANKS or not 0 <= log.job.started < _MOST_S:
        yield LogFault(
            "garbled",
            f"the log has an impossible number of processes ({ranks}) or start time ({log.job.started:.0f} s since "
            "1970)",
        )
    for module, records in log.counted.items():
        wrong = (records["rank"] < -1) | (records["rank"] >= ranks)
        for name in set(records.dtype.names or ()) - _ANY:
            values = used(records, name).astype(np.float64)
            wrong |= ~np.isfinite(values) | (abs(values) > _most(name))
        if count := int(wrong.sum()):
            yield LogFault("garbled", f"{module}: {count} of {len(records)} records hold impossible numbers")
    for module, trace in log.traced.items():
        rows = trace.segments
        wrong = ~(rows["start"] <= rows["end"]) | ~(abs(rows["start"]) < _MOST) | ~(rows["end"] < _MOST)
        wrong |= (rows["length"] < 0) | (rows["length"] > _MOST)
        strangers = int(((trace.files["rank"] < 0) | (trace.files["rank"] >= ranks)).sum())
        if wrong.any() or strangers:
            yield LogFault(
                "garbled", f"{module}: {int(wrong.sum())} requests and {strangers} files have impossible values"
            )


def _most(name: str) -> float:
    """Return the largest plausible value of a counter. For a variance, it is the square of the largest plausible value
    of other counters.
    """
    return _MOST**2 if "_VARIANCE_" in name else _MOST


def has_whole_counters(faults: list[LogFault]) -> bool:
    """Return whether the counters can be trusted, even if the trace has faults."""
    about_trace = ("DXT missing", "DXT cut")
    return all(fault.name in about_trace or fault.text.startswith(("DXT_", "HEATMAP")) for fault in faults)


def _against_run(log: Log, expected: Expected) -> Iterator[LogFault]:
    job = log.job
    if expected.ranks is not None and job.ranks != expected.ranks:
        yield LogFault(
            "rank count",
            f"the log has {counted(job.ranks, 'process')}, but the run had {expected.ranks} ranks: Darshan's "
            "library and the "
            "ranks' MPI do not match, or DARSHAN_ENABLE_NONMPI is set",
        )
    if expected.started is not None and job.ended and job.ended < expected.started - _SLACK_S:
        yield LogFault("stale", f"the log ended {expected.started - job.ended:.0f} s before the run began")
    if expected.ended is not None and job.started > expected.ended + _SLACK_S:
        yield LogFault("stale", f"the log began {job.started - expected.ended:.0f} s after the run ended")


def _missing_workers(log: Log, expected: Expected) -> Iterator[LogFault]:
    """Yield a fault if worker processes left no log. PyTorch waits 5 s for a worker to end, and then ends it with a
    signal; Darshan writes no log for a process that a signal ends.
    """
    if log.workers != expected.workers:
        yield LogFault(
            "workers missing",
            f"{log.workers} of {expected.workers} worker processes left a log, so reads are missing; PyTorch ends a "
            "worker that does not end by itself within 5 s, and Darshan then writes no log",
        )


def _trace_faults(
    log: Log, module: str, tracer: str, reads: tuple[str, ...], writes: tuple[str, ...]
) -> list[LogFault]:
    """Compare a module's counters with its trace. Return the faults found: the trace is missing, the trace is cut, or
    the counters disagree with the trace. tracer: name of the module that holds the trace. reads, writes: names of the
    counters of read requests and of write requests.
    """
    counted = _counted(log.counted[module], reads, writes)
    requests = sum(int(row[_READS]) + int(row[_WRITES]) for row in counted.values())
    unread = any(fault.text.startswith(f"{tracer} has records of version") for fault in log.faults)
    if unread or not requests:
        return []
    if tracer not in log.modules or not (trace := log.traced.get(tracer)):
        return [LogFault("DXT missing", f"the counters have {requests} requests, but the trace {tracer} has none")]
    if not len(trace.segments):
        return [LogFault("DXT missing", f"the counters have {requests} requests, but the trace {tracer} has none")]
    traced = _traced(trace, {number for number, rank in counted if rank < 0})
    differing = {key: (row, traced.get(key, _NONE)) for key, row in counted.items()}
    differing = {key: (row, traced_row) for key, (row, traced_row) in differing.items() if (row != traced_row).any()}
    partial = log.modules[tracer].partial or any(fault.text.startswith(tracer) for fault in log.faults)
    short = {key: both for key, both in differing.items() if partial and (both[1] <= both[0]).all()}
    odd = {key: both for key, both in differing.items() if key not in short}
    faults = []
    if short:
        lost = sum(int((row - traced_row)[[_READS, _WRITES]].sum()) for row, traced_row in short.values())
        faults.append(LogFault("DXT cut", f"{tracer} lacks {lost} of {requests} requests: {_where(log, list(short))}"))
    if odd:
        row, traced_row = next(iter(odd.values()))
        faults.append(
            LogFault(
                "counters disagree",
                f"{module} has {_described(row)}, but {tracer} has {_described(traced_row)}: {_where(log, list(odd))}; "
                "fork() under MPI is a possible cause",
            )
        )
    return faults


def _described(row: npt.NDArray[np.int64]) -> str:
    reads, bytes_read, writes, bytes_written = row.tolist()
    parts = [f"{reads} reads of {bytes_read} bytes"] if reads or not writes else []
    return " and ".join([*parts, *([f"{writes} writes of {bytes_written} bytes"] if writes else [])])


def _where(log: Log, keys: list[tuple[int, int]]) -> str:
    places = [f"{log.names.get(number, number)} on {_rank(rank)}" for number, rank in keys[:_NAMED]]
    return ", ".join(places) + (f" and {len(keys) - _NAMED} more" if len(keys) > _NAMED else "")


def _rank(rank: int) -> str:
    return f"rank {rank}" if rank >= 0 else "all ranks"


def _counted(records: Records, reads: tuple[str, ...], writes: tuple[str, ...]) -> Table:
    """Return the requests and bytes in the counters, by file and rank. Files that were only opened are included."""
    columns = (
        sum(records[name] for name in reads), records["BYTES_READ"],
        sum(records[name] for name in writes), records["BYTES_WRITTEN"],
    )  # fmt: skip
    rows = np.stack([np.maximum(column, 0) for column in columns], axis=1).astype(np.int64)
    return _summed(records["id"].tolist(), records["rank"].tolist(), rows)


def _traced(trace: Trace, reduced: set[int]) -> Table:
    """Return the requests and bytes in the trace, by file and rank. reduced: ids of the files whose counters Darshan
    has summed over all ranks. The requests of these files are summed over all ranks, too, and have rank -1.
    """
    lengths = np.maximum(trace.segments["length"], 0)
    sums = np.concatenate(([0], np.cumsum(lengths)))
    first, files = trace.first, trace.files
    middle, last = first + files["writes"], first + trace.counts
    rows = np.stack(
        [files["reads"], sums[last] - sums[middle], files["writes"], sums[middle] - sums[first]], axis=1
    ).astype(np.int64)
    numbers = files["id"].tolist()
    ranks = [-1 if number in reduced else rank for number, rank in zip(numbers, files["rank"].tolist(), strict=True)]
    return _summed(numbers, ranks, rows)


def _summed(numbers: list[int], ranks: list[int], rows: npt.NDArray[np.int64]) -> Table:
    """Sum the rows that have the same file and rank. A rank with several processes has several records for a file."""
    table: Table = {}
    for number, rank, row in zip(numbers, ranks, rows, strict=True):
        key = number, rank
        table[key] = table[key] + row if key in table else row
    return table
