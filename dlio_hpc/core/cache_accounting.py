"""What reached this side of the file system in an epoch, and what lay in memory before it: was storage read at all?"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.core import client_counters, page_cache
from dlio_hpc.core.procfs import IO, memory, process_io
from dlio_hpc.files import filesystem
from dlio_hpc.plan import dataset
from dlio_hpc.plan.plan import Run
from dlio_hpc.plan.sample_order import Order

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Columns of an epoch's record; nan where nobody can tell. What a node counts is told by its first rank, 0 by others.
# FETCHED: bytes the kernel got from storage for the rank. ASKED, ARRIVED: of the node, as its client counts them.
# LOOKED, RESIDENT: pages that the rank looked at before the epoch, and those of them in memory.
FETCHED, ASKED, ARRIVED, LOOKED, RESIDENT = range(5)
COLUMNS = 5
_UNKNOWN = float("nan")
# Of all ranks of a node together, and of each.
_FILES, _FEWEST = 32, 4


class Arrivals:
    """Of one rank, epoch by epoch."""

    def __init__(self, node: "Intracomm", run: Run, nodes: int) -> None:
        self._node, self._run = node, run
        self._speaks = node.rank == 0
        found = filesystem.of(Path(run.dataset)) if run.workload.dataset.is_stored else None
        self._count = client_counters.counter(found) if found and self._speaks else None
        is_counted = node.bcast(self._count is not None)
        # A look opens files: where nobody counts, or where the count may have other things in it, such as neighbours of
        # what was asked for, or programs; where more is read than memory holds, it tells little.
        fits = run.workload.dataset.size < nodes * memory()
        is_doubtful = not is_counted or run.workload.brings_neighbours or fits
        self._looks = found is not None and found.kind in filesystem.PAGED and is_doubtful
        self._pages = (0, 0)
        self._io: IO | None = None
        self._traffic: client_counters.Traffic | None = None

    def look(self, order: Order, first: int, last: int) -> None:
        """Before the epoch: how much of some files that this rank will read lies in the node's memory already?"""
        if not self._looks:
            return
        last = min(last, first + self._run.steps_per_epoch * self._run.workload.reader.batch_size)
        places = np.linspace(first, last - 1, max(_FEWEST, _FILES // self._node.size)).astype(int)
        samples = [int(order.samples(place, place + 1)[0]) for place in places if first <= place < last]
        numbers = dict.fromkeys(sample // self._run.workload.dataset.samples_per_file for sample in samples)
        self._pages = page_cache.resident([dataset.file_path(self._run, number) for number in numbers])

    def begin(self) -> None:
        self._traffic = self._count() if self._count else None
        self._io = process_io()

    def end(self, apart: int) -> tuple[float, ...]:
        """The columns, when processes that read for this one have ended. apart: bytes fetched for something else than
        samples.
        """
        after = process_io()
        fetched = _UNKNOWN
        if self._io is not None and after is not None:
            fetched = after.fetched - self._io.fetched - apart
        return fetched, *self._of_node(), *self._pages

    def _of_node(self) -> tuple[float, float]:
        if not self._speaks:
            return 0.0, 0.0
        after = self._count() if self._count else None
        if after is None or self._traffic is None:
            return _UNKNOWN, _UNKNOWN
        return after.asked - self._traffic.asked, after.arrived - self._traffic.arrived
