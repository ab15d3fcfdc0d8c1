"""Emulated computation: a rank spends a given time without holding Python's interpreter lock (GIL), so that reader
threads can run.
"""

import os
import time
import zlib

import numpy as np

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import counted, format_seconds
from dlio_hpc.config.workload import ComputeTime, Workload
from dlio_hpc.core.clock import now
from dlio_hpc.core.distributions import Floats

# The timer slack makes sleeps end late. The last part of the time is therefore spent in sleeps of zero length, which
# yield to other threads.
_TAIL_S = 300e-6
# Delay of a step at a fixed time from which on the run ends, in seconds and in steps.
_HOPELESS_S, _HOPELESS_STEPS = 10.0, 20
# Data that zlib checksums in about 10 us without holding the GIL. A loop in Python would starve the reader threads.
_WORK = bytes(1 << 16)


def emulate(seconds: float, mode: str = "sleep") -> None:
    """Sleep or spin for `seconds`, accurate to about ten microseconds. mode: `sleep`, or `spin` to keep the
    core busy.
    """
    if seconds <= 0:
        return
    deadline = now() + seconds
    if mode == "spin":
        while now() < deadline:
            zlib.crc32(_WORK)
        return
    if seconds > _TAIL_S:
        time.sleep(seconds - _TAIL_S)
    while now() < deadline:
        time.sleep(0)


class FixedPace:
    """Fixed start times of steps (compute.interval). every_s: seconds from one start to the next."""

    def __init__(self, every_s: float) -> None:
        self._every_s, self._first, self._steps = every_s, 0.0, 0

    def rest(self, started: float, ready: float) -> float:
        """Return the seconds from `ready` to the start of the next step; 0 if that is late. started: time at which the
        present step started. ready: time at which its batch was ready. Each call counts a step. Raise InvalidRun if the
        step started so late that the run will hardly catch up.
        """
        if not self._steps:
            self._first = started
        late_s = started - self._first - self._steps * self._every_s
        if late_s > max(_HOPELESS_S, _HOPELESS_STEPS * self._every_s):
            raise InvalidRun(
                f"the rate was not held: steps were to start every {format_seconds(self._every_s)}, but step "
                f"{self._steps + 1} started {format_seconds(late_s)} late; lower the rate, or use more ranks"
            )
        self._steps += 1
        return max(0.0, self._first + self._steps * self._every_s - ready)


def draw(wanted: ComputeTime, steps: int, rank: int, epoch: int) -> Floats:
    """Return the computation time in seconds of each step of an epoch on a rank. The times are drawn from the
    distribution `wanted`. The same seed, rank and epoch always give the same times.
    """
    if wanted.distribution == "constant":
        return np.full(steps, float(wanted.mean))  # without numpy.random, which opens many files when it is imported
    random = np.random.Generator(np.random.PCG64([wanted.seed, rank, epoch]))
    stdev = wanted.stdev or 0.0
    if wanted.distribution == "normal":
        return np.maximum(random.normal(wanted.mean, stdev, steps), 0.0)
    if wanted.distribution == "gamma":
        return random.gamma((wanted.mean / stdev) ** 2, stdev**2 / wanted.mean, steps)
    return random.exponential(wanted.mean, steps)


def check_cores(workload: Workload, ranks_on_node: int) -> None:
    """Raise ConfigError if `compute.mode` is spin and the node has too few cores. Each rank needs a core for itself and
    one for each of its reader and preprocessing threads.

    If the launcher has bound a rank to a subset of the cores, the rank is assumed to have these cores to itself.
    Otherwise the ranks of a node share all cores of the node.
    """
    if workload.compute.mode != "spin":
        return
    keys = workload.reader
    threads = keys.read_threads if keys.batches_ahead else 0
    if keys.preprocess_time and keys.loader != "pytorch":
        threads += keys.preprocess_threads
    cores = len(os.sched_getaffinity(0))
    ranks = 1 if cores < (os.cpu_count() or 1) else ranks_on_node
    wanted = ranks * (1 + threads)
    if wanted > cores:
        raise ConfigError(
            f"compute.mode=spin needs {wanted} cores, but only {cores} are available. Each of "
            f"{counted(ranks, 'rank')} needs "
            f"a core for itself and one for each of its {counted(threads, 'reader and preprocessing thread')}. "
            "Use fewer ranks "
            "or threads, or compute.mode=sleep"
        )
