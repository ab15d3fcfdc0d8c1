"""Marker reads: reads of a small file. Both the benchmark and Darshan record the time of each marker read. These times
are used to align their two clocks (see darshan/clock_alignment.py).
"""

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.core import clock
from dlio_hpc.core.darshan_fd_gate import is_watched
from dlio_hpc.core.distributions import Floats
from dlio_hpc.core.rank_zero import on_root
from dlio_hpc.darshan import setup
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Number of reads per call of take(). The alignment uses the shortest of them.
_READS = 5


class MarkerReads:
    """Marker reads of a rank. On rank 0, the constructor writes the marker file. taken: timestamps before and after
    each marker read, shape (marker reads, 2); empty if Darshan does not watch the rank or the marker file cannot be
    written.
    """

    def __init__(self, comm: "Intracomm", directory: str, run: Run) -> None:
        self._path = setup.marker_path(directory, run)
        self.taken: Floats = np.empty((0, 2))
        self._root = comm.rank == 0
        self._watched = run.darshan and is_watched() and on_root(comm, self._written)

    def _written(self) -> bool:
        """Write the marker file and return True. If that fails, print a message and return False; the report then says
        that the clocks are not aligned.
        """
        try:
            with open(self._path, "wb") as file:
                file.write(bytes(setup.MARKER_BYTES))
        except OSError as fault:
            print(
                f"dlio-hpc: Darshan's clock cannot be aligned, because {self._path} cannot be written: "
                f"{fault.strerror}",
                file=sys.stderr,
            )
            return False
        return True

    def take(self) -> None:
        """Read the marker file several times and append the timestamps to `taken`."""
        if not self._watched:
            return
        rows = []
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for _ in range(_READS):
                before = clock.now()
                os.pread(descriptor, setup.MARKER_BYTES, 0)
                rows.append((before, clock.now()))
        finally:
            os.close(descriptor)
        self.taken = np.concatenate((self.taken, np.array(rows)))

    def close(self) -> None:
        """Remove the marker file. All ranks must have called take() for the last time before this call."""
        if self._watched and self._root:
            with suppress(OSError):
                os.unlink(self._path)
