"""Darshan's logs of worker processes, which PyTorch spawns.

A worker is not an MPI process, so the log of the ranks does not contain its reads. A worker therefore has its own log:
Darshan records a process without MPI if DARSHAN_ENABLE_NONMPI is set when the process starts and when it ends. The
variable must not be set in a rank, where Darshan waits for MPI_Init.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing import resource_tracker, spawn

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.darshan_fd_gate import is_watched
from dlio_hpc.darshan import setup
from dlio_hpc.files import rundir

_LOG, _PRELOAD = "DARSHAN_LOGFILE", "LD_PRELOAD"


class WorkerLogs:
    """Logs of the worker processes of a rank. The constructor creates the folder of these logs, next to the log of the
    ranks.
    """

    def __init__(self, rank: int, log: str) -> None:
        self._rank = rank
        self._folder = os.path.join(os.path.dirname(log), rundir.WORKERS)
        os.makedirs(self._folder, exist_ok=True)

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Let Darshan record the Python processes that are started in a `with` block. Other programs are not recorded,
        because libraries start small programs when they are imported, and such a program could take the name of a log.

        Python starts its resource tracker before the first worker. The resource tracker is not recorded.
        """
        resource_tracker.ensure_running()
        python = setup.expression(os.fsdecode(spawn.get_executable()).partition(" ")[0])
        variables = {
            "DARSHAN_ENABLE_NONMPI": "1",
            "DARSHAN_APP_EXCLUDE": ".",
            "DARSHAN_APP_INCLUDE": f"^{python}$",
            _LOG: os.path.join(self._folder, f"rank-{self._rank}-unnamed"),
        }
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update(variables)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value

    def named(self, epoch: int) -> Callable[[int], None]:
        """Return a function that each worker of an epoch must call, with the number of the worker as argument."""
        return partial(_name, os.path.join(self._folder, f"rank-{self._rank}-epoch-{epoch}-worker-"))


def of_rank(rank: int, workload: Workload) -> WorkerLogs | None:
    """Return the logs of the rank's worker processes. Return None if Darshan does not record them."""
    keys, log = workload.reader, os.environ.get(_LOG)
    if log is None or not keys.worker_processes or keys.multiprocessing_context != "spawn" or not is_watched():
        return None
    return WorkerLogs(rank, log)


def _name(beginning: str, worker: int) -> None:
    """Set the name of the log of this worker process. Darshan looks the name up when the process ends. Do not load
    libdarshan into processes that the worker starts, because they would write a log of the same name.
    """
    os.environ[_LOG] = f"{beginning}{worker}.darshan"
    libraries = os.environ.get(_PRELOAD, "").replace(":", " ").split()
    os.environ[_PRELOAD] = ":".join(library for library in libraries if "libdarshan" not in library)
