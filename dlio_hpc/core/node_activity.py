"""Activity of other processes on a node: CPU time, load, and time in which tasks waited for resources, from kernel
counters (proc(5)).

The counters cover the whole node, including all containers. They are read between epochs, never during a step that is
timed.
"""

import os
import resource
from collections.abc import Sequence

import numpy as np

from dlio_hpc.core import clock, procfs
from dlio_hpc.core.distributions import Floats
from dlio_hpc.results.run_result import Disturbance, Level

# Columns of a time span. OWN: CPU seconds of the rank and of its children that have ended. The columns after OWN
# describe the node: its first rank reports them, and its other ranks report 0; a value is NaN if the kernel does not
# report it. BUSY, STEAL: CPU seconds. LOAD: load average at the end of the span. CPU, IO, MEMORY: seconds in which at
# least one task waited for that resource. PERIODS, THROTTLED: periods of the CPU quota of the rank's control group, and
# those in which the quota was used up.
SECONDS, OWN, CORES, BUSY, STEAL, LOAD, CPU, IO, MEMORY, PERIODS, THROTTLED = range(11)
COLUMNS = 11
_UNKNOWN = float("nan")


class Meter:
    """Reader of the counters on a rank. speaks: whether this rank reports the counters of its node. This is true for
    the first rank of each node.
    """

    def __init__(self, speaks: bool) -> None:
        self._speaks = speaks

    def read(self) -> Floats:
        """Read the counters. Return an array with a value for each column that is defined at the top of this module."""
        counts = np.zeros(COLUMNS)
        counts[SECONDS], counts[OWN] = clock.now(), _own()
        if self._speaks:
            busy, steal = procfs.cpu_seconds() or (_UNKNOWN, _UNKNOWN)
            quota = procfs.quota_periods() or (_UNKNOWN, _UNKNOWN)
            node = os.cpu_count(), busy, steal, procfs.load(), *map(procfs.stalled, ("cpu", "io", "memory")), *quota
            counts[CORES:] = [_UNKNOWN if value is None else value for value in node]
        return counts


def _own() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def between(before: Floats, after: Floats) -> Floats:
    """Return the differences between two readings of a Meter. The number of cores and the load are not differences:
    they are the values in `after`.
    """
    span = after - before
    span[[CORES, LOAD]] = after[[CORES, LOAD]]
    return span


def together(spans: Floats) -> Floats:
    """Add up the differences over consecutive spans of time, and return the sums. spans: results of between(), shape
    (spans, columns).
    """
    span: Floats = spans.sum(axis=0)
    span[[CORES, LOAD]] = spans[-1, [CORES, LOAD]]
    return span


def merged(names: Sequence[str], kernels: Sequence[str], spans: Floats) -> Disturbance:
    """Summarise the activity on all nodes during a span of time. names: for each rank, the name of its node. kernels:
    for each rank, the boot id of its node's kernel; ranks with the same boot id are on the same node. spans: for each
    rank, a result of between(); shape (ranks, columns).
    """
    _, firsts, numbers = np.unique(np.array(kernels), return_index=True, return_inverse=True)
    nodes = np.full((len(firsts), COLUMNS), -np.inf)
    np.maximum.at(nodes, numbers, spans)
    seconds = np.maximum(nodes[:, SECONDS], np.finfo(float).tiny)
    others = np.maximum(nodes[:, BUSY] - np.bincount(numbers, spans[:, OWN]), 0.0)
    hosts = [names[first] for first in firsts]
    cores = nodes[:, CORES]
    return Disturbance(
        seconds=float(nodes[:, SECONDS].max()),
        cores=None if np.isnan(cores).all() else int(np.nanmax(cores)),
        others=_level(others / seconds, hosts),
        load=_level(nodes[:, LOAD], hosts),
        steal=_level(nodes[:, STEAL] / seconds / np.maximum(cores, 1), hosts),
        cpu_pressure=_level(nodes[:, CPU] / seconds, hosts),
        io_pressure=_level(nodes[:, IO] / seconds, hosts),
        memory_pressure=_level(nodes[:, MEMORY] / seconds, hosts),
        throttled=_level(nodes[:, THROTTLED] / np.maximum(nodes[:, PERIODS], 1), hosts),
    )


def _level(values: Floats, hosts: Sequence[str]) -> Level | None:
    """Return the mean and the maximum of a value over the nodes on which the value is known. Return None if the value
    is unknown on all nodes.
    """
    if np.isnan(values).all():
        return None
    worst = int(np.nanargmax(values))
    return Level(float(np.nanmean(values)), float(values[worst]), hosts[worst])
