"""Actions that rank 0 performs on behalf of all ranks, so that the file system gets one request instead of
thousands.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from dlio_hpc.base.errors import DlioError
from dlio_hpc.core import clock

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

T = TypeVar("T")


def on_root(comm: "Intracomm", action: Callable[[], T]) -> T:
    """Run `action` on rank 0 and return its result on every rank. If `action` raises a DlioError, raise it on every
    rank. All ranks must call this.
    """
    answer: T | None = None
    fault: DlioError | None = None
    if comm.rank == 0:
        try:
            answer = action()
        except DlioError as raised:
            fault = raised
    clock.assemble(comm)
    answer, fault = comm.bcast((answer, fault))
    if fault is not None:
        raise fault
    return answer
