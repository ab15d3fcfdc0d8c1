"""Ranks whose starter is gone."""

import ctypes
import os
import signal
from pathlib import Path

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
