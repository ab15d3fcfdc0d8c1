"""Terminate ranks that would otherwise wait forever, because their launcher is gone or another rank failed before
MPI_Init.
"""

import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlio_hpc.base.errors import reported

_PR_SET_PDEATHSIG = 1
_HYDRA = "hydra_pmi_proxy"


def end_with_proxy() -> None:
    """Have the kernel kill this rank when its parent process, a hydra proxy, dies (prctl(2), PR_SET_PDEATHSIG). Do
    nothing if the parent is not a hydra proxy.

    When a batch system ends a job, it kills hydra's proxies on the other nodes, but not the ranks that these proxies
    started: the ranks are in sessions of their own, and poll forever for ranks that are gone. Other launchers end their
    ranks themselves. With these launchers, this setting would be wrong: their daemons are multi-threaded, and the
    kernel sends the signal as soon as the thread that started the rank ends.
    """
    proxy = os.getppid()
    try:
        is_hydra = Path(f"/proc/{proxy}/comm").read_text().strip() == _HYDRA
    except OSError:
        return
    if is_hydra:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != proxy:
            os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def ending_all() -> Iterator[None]:
    """Guard the start of a rank up to MPI_Init. If an exception is raised in the `with` block, print it and abort the
    rank with a signal.

    hydra ends the other ranks of the job if one rank is ended by a signal, but not if a rank exits before MPI_Init. In
    that case the other ranks would wait in MPI_Init until the end of the walltime.
    """
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - reported before the rank ends
        reported(fault, f"a rank on {os.uname().nodename} does not start: ")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
