"""What else keeps a node busy: CPU time, load, time in which tasks stand still; by the kernel's counts (proc(5)).

They are of the node, containers and all, and are asked for between epochs, never while a step is timed.
"""

import os
import resource
from collections.abc import Sequence

import numpy as np

from dlio_hpc.core import clock, kernel
from dlio_hpc.core.measures import Floats
from dlio_hpc.results import Disturbance, Level

# Columns of a span. OWN: CPU seconds of the rank and of its children that have ended. The others are of the node, told
# by its first rank, 0 by others; nan where the kernel does not tell. BUSY, STEAL: CPU seconds. LOAD: at its end.
# CPU, IO, MEMORY: seconds in which some task stood still for want of it.
SECONDS, OWN, CORES, BUSY, STEAL, LOAD, CPU, IO, MEMORY = range(9)
COLUMNS = 9
_UNKNOWN = float("nan")


class Meter:
    """Of one rank. speaks: it is its node's first."""

    def __init__(self, speaks: bool) -> None:
        self._speaks = speaks

    def read(self) -> Floats:
        """(columns): counts until now."""
        found = np.zeros(COLUMNS)
        found[SECONDS], found[OWN] = clock.now(), _own()
        if self._speaks:
            busy, steal = kernel.cpu_seconds() or (_UNKNOWN, _UNKNOWN)
            node = os.cpu_count(), busy, steal, kernel.load(), *map(kernel.stalled, ("cpu", "io", "memory"))
            found[CORES:] = [_UNKNOWN if value is None else value for value in node]
        return found


def _own() -> float:
    """Seconds of CPU time."""
    whose = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in whose)


def between(before: Floats, after: Floats) -> Floats:
    """(columns) of the span from one reading to the other."""
    span = after - before
    span[[CORES, LOAD]] = after[[CORES, LOAD]]
    return span


def merged(names: Sequence[str], kernels: Sequence[str], spans: Floats) -> Disturbance:
    """Of all nodes. names, kernels: of each rank's host; ranks of one kernel share a node. spans: (ranks, columns)."""
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
    )


def _level(values: Floats, hosts: Sequence[str]) -> Level | None:
    """Of the nodes that tell; None where none does."""
    if np.isnan(values).all():
        return None
    worst = int(np.nanargmax(values))
    return Level(float(np.nanmean(values)), float(values[worst]), hosts[worst])
