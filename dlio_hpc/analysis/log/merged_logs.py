"""Merge of several logs into one. Programs without MPI leave a log for each of their processes."""

import re
from collections.abc import Sequence

import numpy as np

from dlio_hpc.darshan.log import Log, LogJob, Records, Trace
from dlio_hpc.errors import ConfigError

# <user>_<exe>_id<job>-<pid>_<date>.darshan
_PID = re.compile(r"_id\d+-(\d+)_")


def merge(logs: Sequence[Log]) -> Log:
    """Merge the logs of the processes of one program. Each process becomes a rank, except that a forked process belongs
    to the rank of its parent. Times count from the start of the first process. Records are not summed: a file has a
    record per process. Raise ConfigError if there are several logs and one of them is from a program with MPI.
    """
    first = min(logs, key=lambda log: log.job.started)
    if len(logs) == 1:
        return first
    if any(log.job.ranks > 1 for log in logs):
        raise ConfigError(
            "several logs can be read together only if they come from the processes of one program without MPI; "
            f"{next(log.path for log in logs if log.job.ranks > 1)} comes from an MPI program: pass it on its own"
        )
    ranks = _ranks(logs)
    parts = list(zip(logs, ranks, strict=True))
    job = first.job._replace(ranks=max(ranks) + 1, ended=max(log.job.ended for log in logs))
    return first._replace(
        job=job,
        modules={name: module for log in logs for name, module in log.modules.items()},
        names={number: path for log in logs for number, path in log.names.items()},
        counted={name: _counted(parts, name) for name in {name for log in logs for name in log.counted}},
        traced={name: _traced(parts, name, job) for name in _everywhere(logs)},
        faults=[fault for log in logs for fault in log.faults],
        heat={},
    )


def _ranks(logs: Sequence[Log]) -> list[int]:
    """Return the rank of each log. All processes that were forked from one parent get the same rank, even if the parent
    has no log or the name of the parent's log has no pid.
    """
    pids = [match[1] if (match := _PID.search(log.path.name)) else "" for log in logs]
    parents = [log.job.metadata.get("fork_parent", "") for log in logs]
    number: dict[str, int] = {}
    return [number.setdefault(_root(at, pids, parents), len(number)) for at in range(len(logs))]


def _root(at: int, pids: list[str], parents: list[str]) -> str:
    """Return an identifier that is the same for all processes with a common ancestor."""
    for _ in pids:
        if not parents[at]:
            return pids[at] or _only_parent(at, pids, parents) or f"log {at}"
        if parents[at] not in pids:
            break
        at = pids.index(parents[at])
    return parents[at]


def _only_parent(at: int, pids: list[str], parents: list[str]) -> str | None:
    """Return the pid of the process that wrote the log with index `at`. This log has no pid in its file name, and names
    no parent process. The other logs may name parents. The log must be that of a parent if exactly one of the named
    parents has no log with its pid, and no other log lacks both a pid and a parent. If so, return the pid of this
    parent. Otherwise, return None.
    """
    wanted = set(parents) - {"", *pids}
    nameless = [number for number, pid in enumerate(pids) if not pid and not parents[number]]
    return wanted.pop() if len(wanted) == 1 and nameless == [at] else None


def _everywhere(logs: Sequence[Log]) -> set[str]:
    """Return the tracing modules whose trace is kept. These modules have a trace in every log that has records, and the
    traces have the same record type in all these logs. Other traces are left out, because a trace of some processes
    would be mistaken for a trace of all processes.
    """
    moving = [log for log in logs if any(len(records) for records in log.counted.values())]
    names = set.intersection(*(set(log.traced) for log in moving)) if moving else set()
    return {name for name in names if len({log.traced[name].segments.dtype for log in moving}) == 1}


def _counted(parts: Sequence[tuple[Log, int]], name: str) -> Records:
    columns = []
    for log, rank in parts:
        if name in log.counted:
            records = log.counted[name].copy()
            records["rank"] = rank
            columns.append(records)
    return np.concatenate(columns)


def _traced(parts: Sequence[tuple[Log, int]], name: str, job: LogJob) -> Trace:
    files, segments = [], []
    ranks = [rank for _, rank in parts]
    for at, (log, rank) in enumerate(parts):
        if name not in log.traced:
            continue
        trace = log.traced[name]
        rows, late = trace.segments.copy(), log.job.started - job.started
        rows["start"] += late
        rows["end"] += late
        if len(set(ranks)) < len(ranks):
            rows = _with_process(rows, ranks[:at].count(rank))
        heads = trace.files.copy()
        heads["rank"] = rank
        files.append(heads)
        segments.append(rows)
    return Trace(np.concatenate(files), np.concatenate(segments))


def _with_process(segments: Records, number: int) -> Records:
    wider = np.empty(len(segments), [*segments.dtype.descr, ("process", "<i8")])
    for name in segments.dtype.names or ():
        wider[name] = segments[name]
    wider["process"] = number
    return wider
