"""What rank 0 looks at for all ranks: one request to the file system instead of thousands."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from dlio_hpc.errors import DlioError

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

T = TypeVar("T")


def on_root(comm: "Intracomm", action: Callable[[], T]) -> T:
    """What `action` gives on rank 0, on every rank; a DlioError that it raises there is raised on every rank."""
    answer: T | None = None
    fault: DlioError | None = None
    if comm.rank == 0:
        try:
            answer = action()
        except DlioError as found:
            fault = found
    answer, fault = comm.bcast((answer, fault))
    if fault is not None:
        raise fault
    return answer
