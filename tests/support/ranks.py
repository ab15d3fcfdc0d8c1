"""Communicators of ranks that are threads of one process."""

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dlio_hpc.core import clock


def work_on_ranks(ranks: int, work: "Callable[[int, Rank], None]") -> None:
    """Call `work` on all ranks, with the number of the rank and its communicator, and wait for its end. Ranks wait for
    each other without MPI.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "assemble", lambda comm: comm.bcast(None))
        patch.setattr(clock, "barrier", lambda comm: comm.bcast(None))
        threads = [threading.Thread(target=work, args=pair) for pair in enumerate(Ranks(ranks).members)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


class Ranks:
    """Ranks that exchange values. members: the communicator of each rank."""

    def __init__(self, ranks: int) -> None:
        self._barrier, self._slots = threading.Barrier(ranks), [None] * ranks
        self.members = [Rank(self, rank, ranks) for rank in range(ranks)]

    def exchanged(self, rank: int, value: Any) -> list[Any]:
        """Return the values of all ranks, in the order of the ranks."""
        self._slots[rank] = value
        self._barrier.wait(30)
        values = list(self._slots)
        self._barrier.wait(30)
        return values

    def abort(self) -> None:
        """End the waits of all ranks with an error."""
        self._barrier.abort()


class Rank:
    """Communicator of a rank, with the methods of mpi4py's Intracomm that are used."""

    def __init__(self, together: Ranks, rank: int, size: int) -> None:
        self._together, self.rank, self.size = together, rank, size

    def bcast(self, value: Any) -> Any:
        return self._together.exchanged(self.rank, value)[0]

    def allgather(self, value: Any) -> list[Any]:
        return self._together.exchanged(self.rank, value)

    def allreduce(self, value: Any) -> Any:
        return sum(self.allgather(value))

    def abort(self) -> None:
        self._together.abort()
