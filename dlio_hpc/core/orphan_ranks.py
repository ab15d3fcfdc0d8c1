"""End ranks that would wait forever, because their launcher is gone or because a rank never reached MPI_Init."""

import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlio_hpc.errors import reported

_PR_SET_PDEATHSIG = 1
_HYDRA = "hydra_pmi_proxy"


def end_with_proxy() -> None:
    """Have the kernel kill this rank when the hydra proxy that started it dies (prctl(2), PR_SET_PDEATHSIG).

    When a batch system ends a job, it kills the proxies on the other nodes of the job. It does not reach the ranks of
    these proxies, which have sessions of their own and wait busily for ranks that are gone. Other launchers end their
    ranks themselves. Their daemons have several threads, and the kernel would send the signal as soon as the thread
    that started the rank ends.
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
    """Guard the start of a rank up to MPI_Init: print a fault, then end the rank by a signal.

    hydra ends the other ranks when a signal ends a rank. It does not when a rank exits before MPI_Init; the others then
    wait in MPI_Init until the walltime is over.
    """
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - reported before the rank ends
        reported(fault, f"a rank on {os.uname().nodename} does not start: ")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
