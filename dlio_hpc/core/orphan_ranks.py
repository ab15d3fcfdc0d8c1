"""Ranks that would wait for ever: for a starter that is gone, or for a rank that never reached MPI."""

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

    A batch system that ends a job kills the proxies on its other nodes. Their ranks have sessions of their own, so that
    it does not reach them, and wait busily for ranks that are gone. Other launchers end their ranks by themselves.
    Their daemons have several threads, and the kernel sends the signal when the thread that started the rank ends.
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
    """Around the start of a rank up to MPI's own: a fault is printed and ends the rank by a signal.

    hydra ends the other ranks when a signal ends one of them. It does not when one exits before MPI_Init, and they wait
    in it until the job's time is over.
    """
    try:
        yield
    except Exception as fault:  # noqa: BLE001 - printed, then the rank ends
        reported(fault, f"a rank on {os.uname().nodename} does not start: ")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.abort()
