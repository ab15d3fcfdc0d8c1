"""The job's early warning: the script leaves a file when the time limit is near, and all ranks end after one step."""

from pathlib import Path
from typing import TYPE_CHECKING

from dlio_hpc.core import clock
from dlio_hpc.errors import Incomplete
from dlio_hpc.files import rundir

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

_LOOK_S = 1.0


class Stop:
    """Rank 0 looks for the file once a second at most; all hear of it in the step's barrier."""

    def __init__(self, comm: "Intracomm", directory: Path) -> None:
        from mpi4py import MPI

        self._comm = comm
        self._path = directory / rundir.STOP
        self._next = 0.0 if comm.rank == 0 else float("inf")
        self._vote, self._verdict = bytearray(1), bytearray(1)
        self._reduction = ([self._vote, MPI.BYTE], [self._verdict, MPI.BYTE], MPI.BOR)

    def _look(self) -> None:
        if clock.now() >= self._next:
            self._vote[0] = self._path.exists()
            self._next = clock.now() + _LOOK_S

    def barrier(self) -> bool:
        """As clock.barrier(), at its cost; True on all ranks when they are to stop here."""
        self._look()
        if self._comm.size == 1:
            return bool(self._vote[0])
        clock.wait(self._comm.Iallreduce(*self._reduction))
        return bool(self._verdict[0])

    def check(self, what: str) -> None:
        """Incomplete on rank 0 when there is no time left for `what`, which ends all ranks."""
        self._look()
        if self._vote[0]:
            raise Incomplete(f"the time limit is near, {what}")
