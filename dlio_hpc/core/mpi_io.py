"""Reading of a file that all ranks share, through MPI-IO. One collective call per step reads the batches of
all ranks.
"""

import re
from operator import itemgetter
from typing import TYPE_CHECKING

from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.core.clock import now
from dlio_hpc.core.dataset_faults import unplanned
from dlio_hpc.core.files import ReadRequests
from dlio_hpc.core.io_counters import Tally

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class CollectiveFile:
    """A file that is read with collective MPI-IO. All ranks must call fetch() the same number of times; a rank that has
    nothing to read passes no requests.

    transfer_size: value of the ROMIO hint cb_buffer_size, the number of bytes that an aggregator requests from the file
    system in one request. The hint is not set if `transfer_size` is None or if `hints` contains cb_buffer_size.
    """

    def __init__(self, comm: "Intracomm", path: str, hints: dict[str, str], transfer_size: int | None) -> None:
        import mpi4py
        from mpi4py import MPI

        check_library(MPI.Get_library_version(), mpi4py.__version__)
        self._mpi = MPI
        self._path = path
        self._comm = comm.Dup()  # reader threads make calls while the training loop synchronises on `comm`
        info = MPI.Info.Create()
        for name, value in hints.items():
            try:
                info.Set(name, value)
            except MPI.Exception as fault:
                raise ConfigError(f"reader.hints: MPI refuses {name!r}: {fault.Get_error_string()}") from fault
        if transfer_size is not None and "cb_buffer_size" not in hints:
            info.Set("cb_buffer_size", str(transfer_size))
        try:
            self._file = MPI.File.Open(self._comm, path, MPI.MODE_RDONLY, info)
        except MPI.Exception as fault:
            raise InvalidRun(f"cannot open {path} through MPI-IO: {fault.Get_error_string()}") from fault
        self._hints = dict(self._file.Get_info().items())
        self._size = self._file.Get_size()
        self._opened = False

    def fetch(self, reads: ReadRequests, tally: Tally) -> None:
        """Read all requests of this rank in one collective call, and count the call in `tally`. The requests are
        sorted first, because MPI file views need ascending offsets.
        """
        mpi = self._mpi
        pieces = sorted(_pieces(reads), key=itemgetter(0))
        offsets, lengths = [offset for offset, _ in pieces], [len(view) for _, view in pieces]
        end = offsets[-1] + lengths[-1] if pieces else 0
        if self._size < end:  # the MPI status does not report a read past the end
            raise unplanned(
                f"{self._path} ends at byte {self._size}, but samples were expected up to byte {end}: the file is "
                "truncated"
            )
        addresses = [mpi.Get_address(view) for _, view in pieces]
        in_file = mpi.BYTE.Create_hindexed(lengths, offsets).Commit()
        in_memory = mpi.BYTE.Create_hindexed(lengths, addresses).Commit()
        status = mpi.Status()
        try:
            self._file.Set_view(0, mpi.BYTE, in_file)
            started = now()
            self._file.Read_all([mpi.BOTTOM, 1 if pieces else 0, in_memory], status)
        except mpi.Exception as fault:
            raise InfrastructureError(f"cannot read {self._path} through MPI-IO: {fault.Get_error_string()}") from fault
        finally:
            in_file.Free()
            in_memory.Free()
        tally.add(started, status.Get_count(mpi.BYTE))
        tally.hints = self._hints
        if not self._opened:
            tally.opens += 1
            self._opened = True

    def close(self) -> None:
        """Do nothing. Opening and closing are collective calls, so the only file of the run stays open."""


def check_library(mpi: str, mpi4py: str) -> None:
    """Raise ConfigError if MPICH 4.0 is used with mpi4py 4. MPI-IO in this MPICH does not support the MPI-4 datatypes
    that mpi4py 4 creates: it aborts the ranks with "Out of memory in file adio/common/flatten.c" (pmodels/mpich, issue
    6121). mpi: text of MPI_Get_library_version. mpi4py: version of mpi4py.
    """
    version = re.match(r"MPICH Version:\s*(4\.0\S*)", mpi)
    if version and int(mpi4py.split(".", maxsplit=1)[0]) >= 4:
        raise ConfigError(
            f"reader.access=collective with reader.mode=posix does not work with MPICH {version[1]} under mpi4py "
            f"{mpi4py}; use a newer MPICH (the mpich wheel), another MPI library, or reader.access=independent"
        )


def _pieces(reads: ReadRequests) -> list[tuple[int, memoryview]]:
    pieces = []
    for begin, views in zip(reads.offsets, reads.views, strict=True):
        offset = begin
        for view in views:
            pieces.append((offset, view))
            offset += len(view)
    return pieces
