"""Nodes, or storage targets, that are slower than their likes, run after run."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis import robust
from dlio_hpc.analysis.timeline_reader import Recorded
from dlio_hpc.darshan.log import Log

# Below this share of the median in the middle of all runs, and not far above it in three of four of so many at least.
_SLOW, _SLOWISH, _OFTEN, _RUNS = 0.8, 0.9, 0.75, 3
# Among so many, also as much below the median as their likes never are.
_MANY, _APART = 5, 4


class Member(Struct, frozen=True):
    """A node or a target. MBps: while it was being read from, median over runs. ratio: to the median of all members of
    the run, likewise.
    """

    name: str
    runs: int
    MBps: float
    ratio: float
    is_straggler: bool


def members(runs: Sequence[Mapping[str, float]]) -> tuple[Member, ...]:
    """The slowest first. runs: of each, MB/s by member; nothing where there are no two to compare."""
    ratios: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for run in runs:
        middle = float(np.median(list(run.values()))) if len(run) > 1 else 0.0
        for name, rate in run.items() if middle > 0 else ():
            ratios.setdefault(name, []).append(rate / middle)
            rates.setdefault(name, []).append(rate)
    middles = [float(np.median(found)) for found in ratios.values()]
    least = min(_SLOW, float(np.exp(-_APART * robust.mad(np.log(middles))))) if len(middles) >= _MANY else _SLOW
    told = [_member(name, rates[name], found, least) for name, found in ratios.items()]
    return tuple(sorted(told, key=lambda member: (member.ratio, member.name)))


def _member(name: str, rates: list[float], ratios: list[float], least: float) -> Member:
    middle = float(np.median(ratios))
    often = len(ratios) >= _RUNS and float(np.mean(np.array(ratios) < _SLOWISH)) >= _OFTEN
    return Member(name, len(rates), float(np.median(rates)), middle, middle < least and often)


def by_node(recorded: Recorded) -> dict[str, float]:
    """MB/s of each node's ranks while they read; empty where reads were not timed."""
    if not recorded.is_timed:
        return {}
    arrived, seconds = recorded.file["ranks/bytes_read"][:].astype(float), recorded.file["ranks/io_time"][:]
    return _rates(zip(recorded.hosts, arrived, seconds, strict=True))


def by_target(log: Log, targets: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """MB/s of each storage target while files on it were read. targets: of files, by their names; a file's bytes and
    time are shared out among its targets.
    """
    if "POSIX" not in log.counted:
        return {}
    parts = []
    for record in log.counted["POSIX"]:
        name = log.names.get(int(record["id"]), "").rpartition("/")[2]
        its = targets.get(name, ())
        parts += [(f"OST {it}", record["BYTES_READ"] / len(its), record["F_READ_TIME"] / len(its)) for it in its]
    return _rates(parts)


def _rates(parts: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    """parts: name, bytes, seconds."""
    sums: dict[str, list[float]] = {}
    for name, count, seconds in parts:
        known = sums.setdefault(name, [0.0, 0.0])
        known[0] += float(count)
        known[1] += float(seconds)
    return {name: count / seconds / 1e6 for name, (count, seconds) in sums.items() if seconds > 0 and count > 0}
