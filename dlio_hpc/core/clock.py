"""One clock for all ranks, and the barrier that does not disturb who still works."""

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

now = time.perf_counter

_POLL_S, _LOOKS = 100e-6, 10
_ROUND_TRIPS = 10
_TAG = 7


def offset_to_root(comm: "Intracomm", kernels: list[str]) -> float:
    """Seconds to add to this rank's now() to get rank 0's; off by half the shortest of ten round trips at most.

    `kernels` tells for each rank which running kernel it is on: one kernel, one clock, offset exactly 0.
    """
    if comm.rank and kernels[comm.rank] != kernels[0]:
        for _ in range(_ROUND_TRIPS):
            comm.recv(source=0, tag=_TAG)
            comm.send(now(), dest=0, tag=_TAG)
        return float(comm.recv(source=0, tag=_TAG))
    if comm.rank == 0:
        for rank in range(1, comm.size):
            if kernels[rank] != kernels[0]:
                _answer(comm, rank)
    return 0.0


def _answer(comm: "Intracomm", rank: int) -> None:
    trips = []
    for _ in range(_ROUND_TRIPS):
        sent = now()
        comm.send(None, dest=rank, tag=_TAG)
        theirs = comm.recv(source=rank, tag=_TAG)
        received = now()
        trips.append((received - sent, (sent + received) / 2 - theirs))
    comm.send(min(trips)[1], dest=rank, tag=_TAG)


def barrier(comm: "Intracomm") -> None:
    """Wait for all ranks asleep: a busy MPI_Barrier on shared cores slows down whoever is still working.

    The pause between two looks is fixed; a growing one costs many milliseconds with MPICH, whose barrier needs
    several looks to end. The first looks only give way to others, which halves the time where all ranks are there.
    """
    if comm.size == 1:
        return
    wait(comm.Ibarrier())


def wait(request: "Request") -> None:
    """Asleep between looks at what MPI is doing."""
    for _ in range(_LOOKS):
        if request.Test():
            return
        time.sleep(0)
    while not request.Test():
        time.sleep(_POLL_S)
