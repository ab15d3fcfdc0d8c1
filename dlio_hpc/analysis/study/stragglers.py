"""Stragglers: nodes or storage targets that are slower than the others of their kind in most runs."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from msgspec import Struct

from dlio_hpc.analysis import quantiles
from dlio_hpc.analysis.timeline_reader import Recorded
from dlio_hpc.darshan.log import Log

# A straggler has a known throughput in at least _RUNS runs. Its median ratio is below _SLOW, and its ratio is below
# _SLOWISH in at least the fraction _OFTEN of the runs.
_SLOW, _SLOWISH, _OFTEN, _RUNS = 0.8, 0.9, 0.75, 3
# If there are _MANY or more nodes or targets, its ratio must also be _APART median absolute deviations below the
# median.
_MANY, _APART = 5, 4


class Throughput(Struct, frozen=True):
    """Throughput of a node or storage target. runs: number of runs. MBps: read rate while reads were in flight, as the
    median over the runs. ratio: read rate divided by the median rate of all nodes (or all targets) in the same run, as
    the median over the runs.
    """

    name: str
    runs: int
    MBps: float
    ratio: float
    is_straggler: bool


def members(runs: Sequence[Mapping[str, float]]) -> tuple[Throughput, ...]:
    """Return the throughput of each node or storage target, slowest first. runs: for each run, MB/s by name of the node
    or target. Runs with fewer than two names are ignored.
    """
    ratios: dict[str, list[float]] = {}
    rates: dict[str, list[float]] = {}
    for run in runs:
        middle = float(np.median(list(run.values()))) if len(run) > 1 else 0.0
        for name, rate in run.items() if middle > 0 else ():
            ratios.setdefault(name, []).append(rate / middle)
            rates.setdefault(name, []).append(rate)
    middles = [float(np.median(of_member)) for of_member in ratios.values()]
    least = min(_SLOW, float(np.exp(-_APART * quantiles.mad(np.log(middles))))) if len(middles) >= _MANY else _SLOW
    judged = [_member(name, rates[name], of_member, least) for name, of_member in ratios.items()]
    return tuple(sorted(judged, key=lambda member: (member.ratio, member.name)))


def _member(name: str, rates: list[float], ratios: list[float], least: float) -> Throughput:
    middle = float(np.median(ratios))
    often = len(ratios) >= _RUNS and float(np.mean(np.array(ratios) < _SLOWISH)) >= _OFTEN
    return Throughput(name, len(rates), float(np.median(rates)), middle, middle < least and often)


def by_node(recorded: Recorded) -> dict[str, float]:
    """Return the read rate in MB/s of each node, by name. Return an empty dict if reads were not timed individually."""
    if not recorded.is_timed:
        return {}
    arrived, seconds = recorded.file["ranks/bytes_read"][:].astype(float), recorded.file["ranks/io_time"][:]
    return _rates(zip(recorded.hosts, arrived, seconds, strict=True))


def by_target(log: Log, targets: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """Return the read rate of each storage target in MB/s. targets: for each file name, the numbers of its storage
    targets. The bytes and read time of a file are divided evenly among its targets.
    """
    if "POSIX" not in log.counted:
        return {}
    parts = []
    for record in log.counted["POSIX"]:
        name = log.names.get(int(record["id"]), "").rpartition("/")[2]
        own = targets.get(name, ())
        parts += [(f"OST {ost}", record["BYTES_READ"] / len(own), record["F_READ_TIME"] / len(own)) for ost in own]
    return _rates(parts)


def _rates(parts: Iterable[tuple[str, float, float]]) -> dict[str, float]:
    """Return MB/s by name. parts: tuples of name, bytes and seconds; those with the same name are added up."""
    sums: dict[str, list[float]] = {}
    for name, count, seconds in parts:
        known = sums.setdefault(name, [0.0, 0.0])
        known[0] += float(count)
        known[1] += float(seconds)
    return {name: count / seconds / 1e6 for name, (count, seconds) in sums.items() if seconds > 0 and count > 0}
