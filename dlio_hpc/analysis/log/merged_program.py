"""Merge of several logs into one. Programs without MPI leave a log for each of their processes."""

import re
from collections import Counter
from collections.abc import Sequence

from msgspec import structs

from dlio_hpc.analysis.log import logs_by_program
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.darshan import joined_records
from dlio_hpc.darshan.log import Log

# Programs that start ranks without MPI, and those of the processes that Python's multiprocessing starts with the
# methods spawn and forkserver.
_LAUNCHER = re.compile(r"torch\.distributed\.(?:run|launch)|\b(?:torchrun|horovodrun|accelerate|deepspeed)\b")
_SPAWNED = re.compile(r"multiprocessing[.-](?:spawn|fork|resource_tracker|forkserver)|spawn_main")


def merge(logs: Sequence[Log]) -> Log:
    """Merge the logs of the processes of one program. Each process becomes a rank, with two exceptions. A forked
    process belongs to the rank of its parent. A process of another program, such as a launcher or a command, belongs to
    the first rank. Times are relative to the start of the first process. Records are not summed: a file has a record
    per process. Raise ConfigError if there are several logs and one of them is from a program with MPI.
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
    job = structs.replace(first.job, ranks=max(ranks) + 1, ended=max(log.job.ended for log in logs))
    return first._replace(
        job=job,
        modules={name: module for log in logs for name, module in log.modules.items()},
        names={number: path for log in logs for number, path in log.names.items()},
        counted=joined_records.counted(parts, job.started),
        traced=joined_records.traced(parts, job.started),
        faults=[fault for log in logs for fault in log.faults],
        heat={},
    )


def _ranks(logs: Sequence[Log]) -> list[int]:
    """Return the rank of each log. All processes that were forked or spawned by one parent get the same rank, even if
    the parent has no log or the name of the parent's log has no pid. Only processes of the program that read the most
    bytes become ranks of their own.
    """
    pids = [logs_by_program.LogHead(log.path, log.job).pid for log in logs]
    forked = [log.job.metadata.get("fork_parent", "") for log in logs]
    parents = [parent or _spawner(at, logs, pids) for at, parent in enumerate(forked)]
    roots = [_root(at, pids, parents) for at in range(len(logs))]
    own = {pid: _name(log) for pid, log in zip(pids, logs, strict=True) if pid}
    names = {root: own.get(root, _name(log)) for root, log in zip(roots, logs, strict=True)}
    read: Counter[str] = Counter()
    for root, log in zip(roots, logs, strict=True):
        read[names[root]] += _bytes_read(log)
    main = max(read, key=read.__getitem__)
    number: dict[str, int] = {}
    for root in roots:
        if names[root] == main:
            number.setdefault(root, len(number))
    return [number.get(root, 0) for root in roots]


def _name(log: Log) -> str:
    """Return a name for the program of a process. For a launcher, this is the name of the program that the launcher
    starts.
    """
    launcher = _LAUNCHER.search(log.job.program)
    return launcher[0] if launcher else logs_by_program.short_name(log.job.program)


def _bytes_read(log: Log) -> int:
    return sum(int(log.counted[name]["BYTES_READ"].sum()) for name in ("POSIX", "STDIO") if name in log.counted)


def _spawner(at: int, logs: Sequence[Log], pids: list[str]) -> str:
    """Return the pid of the process that spawned a process, or "" if the process was not spawned. Logs do not name the
    spawning process. It is taken to be the process with the largest pid below the pid of the spawned process.
    """
    if not _SPAWNED.search(logs[at].job.program) or not pids[at]:
        return ""
    others = [int(pid) for pid, log in zip(pids, logs, strict=True) if pid and not _SPAWNED.search(log.job.program)]
    earlier = [pid for pid in others if pid < int(pids[at])]
    return str(max(earlier or others, default=""))


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
    """Return the pid of the process that wrote log `at`, which has neither a pid in its file name nor a named parent.
    If exactly one process that other logs name as parent has no log of its own, and every other log has a pid or a
    parent, the log belongs to that process. Otherwise, return None.
    """
    wanted = set(parents) - {"", *pids}
    nameless = [number for number, pid in enumerate(pids) if not pid and not parents[number]]
    return wanted.pop() if len(wanted) == 1 and nameless == [at] else None
