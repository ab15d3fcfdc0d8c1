"""A clock common to all ranks, and barriers that leave the CPU to ranks that are still working."""

import os
import select
import time
from array import array
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm, Request

now = time.perf_counter

# Pause between two polls of a request; number of polls before the first pause.
_POLL_S, _QUICK_POLLS = 100e-6, 10
# Time for which a waiting rank polls without a pause if it has a core of its own: longer than the time by which ranks
# that read from memory are apart, shorter than what would keep the core from reader threads.
_QUICK_S = 300e-6
# In assemble(): the longest pause, the pause as a fraction of the time waited so far, and the polls between two pauses.
# MPICH needs several polls to complete a barrier.
_LONGEST_POLL_S, _POLL_FRACTION, _POLLS_IN_TURN = 10e-3, 0.05, 4
# poll(2) of nothing with a timeout of 0 releases Python's lock and returns immediately. time.sleep(0) takes 50 us, the
# slack of the kernel's timers.
_let_threads_run = select.poll().poll
# Number of calls of wait() and assemble() in this process, by which another thread sees that a wait is a new one.
waits = [0]
_ROUND_TRIPS = 10
_TAG = 7


def offset_to_root(comm: "Intracomm", kernels: list[str]) -> float:
    """Return the seconds that must be added to now() on this rank to obtain now() on rank 0. All ranks must call this.
    The error is at most half of the shortest of ten round trips.

    kernels: for each rank, the boot id of the kernel on its node. Ranks with the same kernel share a clock, so the
    offset between them is exactly 0.
    """
    if comm.rank and kernels[comm.rank] != kernels[0]:
        for _ in range(_ROUND_TRIPS):
            comm.recv(source=0, tag=_TAG)
            comm.send(now(), dest=0, tag=_TAG)
        return float(comm.recv(source=0, tag=_TAG))
    if comm.rank == 0:
        for rank in range(1, comm.size):
            if kernels[rank] != kernels[0]:
                _measure_offset(comm, rank)
    return 0.0


def _measure_offset(comm: "Intracomm", rank: int) -> None:
    """Measure on rank 0 the clock offset of `rank`, and send it to that rank."""
    trips = []
    for _ in range(_ROUND_TRIPS):
        sent = now()
        comm.send(None, dest=rank, tag=_TAG)
        theirs = comm.recv(source=rank, tag=_TAG)
        received = now()
        trips.append((received - sent, (sent + received) / 2 - theirs))
    comm.send(min(trips)[1], dest=rank, tag=_TAG)


def barrier(comm: "Intracomm") -> None:
    """Wait for all ranks, sleeping between polls. MPI_Barrier polls without sleeping and would slow down ranks that are
    still working on the same cores.

    The pause between polls is constant. An increasing pause would cost many milliseconds with MPICH, whose barrier
    needs several polls to complete. The first polls yield the core without a pause, which halves the time of the
    barrier if all ranks have already arrived.
    """
    if comm.size == 1:
        return
    wait(comm.Ibarrier())


def assemble(comm: "Intracomm") -> None:
    """Wait for all ranks before a collective call of MPI that is not timed, and before MPI_Finalize. Ranks arrive there
    at different times, because they start, import, write or end at different speeds, or because rank 0 works for all of
    them. If ranks waited in the collective call itself, MPI would poll without sleeping.

    The pause between polls grows with the time waited, to at most 10 ms. A long wait therefore costs less CPU time than
    in barrier(), but ends a few percent later.
    """
    if comm.size == 1:
        return
    waits[0] += 1
    request = comm.Ibarrier()
    started = now()
    while not any(request.Test() for _ in range(_POLLS_IN_TURN)):
        time.sleep(min(max(_POLL_S, _POLL_FRACTION * (now() - started)), _LONGEST_POLL_S))


def longest(comm: "Intracomm", seconds: float) -> float:
    """Wait for all ranks, at the same cost as barrier(). Return the largest of their `seconds`."""
    if comm.size == 1:
        return seconds
    from mpi4py import MPI

    mine, largest = array("d", [seconds]), array("d", [0.0])
    wait(comm.Iallreduce([mine, MPI.DOUBLE], [largest, MPI.DOUBLE], MPI.MAX))
    return largest[0]


def quick_seconds(ranks_on_node: int) -> float:
    """Return the time for which a waiting rank may poll without a pause: 0 if the node has more ranks than cores."""
    return _QUICK_S if ranks_on_node <= len(os.sched_getaffinity(0)) else 0.0


def wait(request: "Request", quick_s: float = 0.0) -> None:
    """Wait until the MPI request completes, sleeping between polls. quick_s: time for which polls have no pause; other
    threads of this rank can run meanwhile.
    """
    waits[0] += 1
    if quick_s:
        until = now() + quick_s
        while now() < until:
            if request.Test():
                return
            _let_threads_run(0)
    for _ in range(_QUICK_POLLS):
        if request.Test():
            return
        time.sleep(0)
    while not request.Test():
        time.sleep(_POLL_S)
