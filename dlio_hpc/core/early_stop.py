"""Early stop of a job. Shortly before the end of the walltime, the job script creates a stop file, and all ranks stop
after the same step.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from dlio_hpc.base.errors import Incomplete
from dlio_hpc.core import clock
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from dlio_hpc.core.neighbours import Neighbours

_CHECK_S = 1.0
# Bits of a rank's vote: the stop file exists; the rank left its step incomplete; the loads of a mix end; the rank left
# its step incomplete for that reason.
_NEAR, _CUT, _ENDED, _LEFT = 1, 2, 4, 8


class Stop:
    """Check for the stop file. Rank 0 looks for the file at most once a second. The barrier at the end of a step tells
    all ranks whether the file exists. ranks_on_node: number of ranks on a node; None if they may exceed its cores.
    neighbours: the other loads of a mix, which may end the run, too.
    """

    def __init__(
        self,
        comm: "Intracomm",
        directory: Path,
        ranks_on_node: int | None = None,
        neighbours: "Neighbours | None" = None,
    ) -> None:
        from mpi4py import MPI

        self._quick_s = clock.quick_seconds(ranks_on_node) if ranks_on_node is not None else 0.0
        self._comm, self._neighbours = comm, neighbours
        self._path = directory / rundir.STOP
        self._next = 0.0 if comm.rank == 0 else float("inf")
        self._next_cut = 0.0
        self._vote, self._verdict = bytearray(1), bytearray(1)
        self._reduction = ([self._vote, MPI.BYTE], [self._verdict, MPI.BYTE], MPI.BOR)

    def epochs(self, run: Run) -> int:
        """Return the largest number of epochs of a run. A load of a mix may start again after its planned epochs."""
        return run.workload.train.epochs if self._neighbours is None else self._neighbours.epochs(run)

    def begin(self, epoch: int) -> None:
        """Wait for all ranks before an epoch, and before the first epoch for all loads of a mix. epoch: index."""
        if self._neighbours is not None and not epoch:
            self._neighbours.begin()
        clock.barrier(self._comm)

    def mark(self, epoch: int) -> None:
        """Note the end of an epoch. epoch: index. Later calls for the epoch do nothing."""
        if self._neighbours is not None:
            self._neighbours.mark(epoch)

    def planned_end(self) -> None:
        """Tell the other loads of a mix that this load has made its planned epochs."""
        if self._neighbours is not None:
            self._neighbours.end()

    def _look(self) -> None:
        if clock.now() >= self._next:
            self._vote[0] |= _NEAR * self._path.exists()
            self._next = clock.now() + _CHECK_S
        if self._neighbours is not None:
            self._vote[0] |= _ENDED * self._neighbours.end_all()

    def cuts(self) -> bool:
        """Look for the stop file during a long step, on this rank, at most once a second, and ask whether the loads of
        a mix end. Return whether the rank must leave its step incomplete. After the next barrier, is_cut() is then True
        on every rank.
        """
        if self._neighbours is not None and self._neighbours.cuts():
            self._vote[0] |= _ENDED | _LEFT
        if clock.now() >= self._next_cut:
            self._vote[0] |= (_NEAR | _CUT) * self._path.exists()
            self._next_cut = clock.now() + _CHECK_S
        return bool(self._vote[0] & (_CUT | _LEFT))

    def is_cut(self) -> bool:
        """Return whether a rank left the step before the last barrier incomplete. The result is the same on every
        rank.
        """
        return bool(self._voted() & (_CUT | _LEFT))

    def ends_with_mix(self) -> bool:
        """Return whether the ranks stop because the loads of the mix end, and not because of the time limit."""
        return bool(self._voted() & _ENDED) and not self._voted() & _NEAR

    def _voted(self) -> int:
        """Return the votes of all ranks at the last barrier."""
        return (self._vote if self._comm.size == 1 else self._verdict)[0]

    def barrier(self) -> bool:
        """Wait for all ranks. Return on every rank whether all ranks must stop. If each rank has a core, there is no
        pause between the first polls. Otherwise, the barrier costs as much as clock.barrier().
        """
        self._look()
        if self._comm.size == 1:
            return bool(self._vote[0])
        clock.wait(self._comm.Iallreduce(*self._reduction), self._quick_s)
        if self._neighbours is not None and self._verdict[0] & _LEFT:
            self._neighbours.cut()
        return bool(self._verdict[0])

    def check(self, message: str) -> None:
        """Check on rank 0 whether the stop file exists, which means that the time limit is near. If it exists, raise
        Incomplete with `message`. The exception ends all ranks. On other ranks, do nothing.
        """
        self._look()
        if self._vote[0] & _NEAR:
            raise Incomplete(f"the time limit is near, {message}")
