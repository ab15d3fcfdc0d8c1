"""For each epoch, count the bytes that storage delivered and the pages of the dataset that were in memory before the
epoch. Both numbers show whether the samples came from storage or from memory.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.core import client_counters, page_cache
from dlio_hpc.core.procfs import IO, memory, process_io
from dlio_hpc.files import filesystem
from dlio_hpc.plan import dataset, sample_index
from dlio_hpc.plan.plan import Run
from dlio_hpc.plan.sample_order import Order

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Columns of the record of an epoch; a value is NaN if it is unknown. FETCHED: bytes that the kernel fetched from
# storage for the rank. ASKED, ARRIVED: bytes that programs on the node read, and bytes that servers sent to the node,
# from the counters of the file system client; the first rank of a node reports them, its other ranks report 0. LOOKED,
# RESIDENT: pages that the rank checked before the epoch, and how many of them were in memory.
FETCHED, ASKED, ARRIVED, LOOKED, RESIDENT = range(5)
COLUMNS = 5
_UNKNOWN = float("nan")
# Number of files to check: by all ranks of a node together, and the minimum per rank.
_FILES, _FEWEST = 32, 4


class Arrivals:
    """Counts, for each epoch of a rank, the bytes that came from storage and the pages of the dataset that were in
    memory.
    """

    def __init__(self, node: "Intracomm", run: Run, nodes: int) -> None:
        self._node, self._run = node, run
        self._speaks = node.rank == 0
        file_system = filesystem.of(Path(run.dataset)) if run.workload.dataset.is_stored else None
        self._count = client_counters.counter(file_system) if file_system and self._speaks else None
        is_counted = node.bcast(self._count is not None)
        # Checking pages opens files, so it is done only if the node has no counters, if the counters may include other
        # bytes (data adjacent to the requested data, program files), or if the dataset fits into memory. For a dataset
        # larger than memory the check says little.
        fits = run.workload.dataset.size < nodes * memory()
        is_doubtful = not is_counted or run.workload.brings_neighbours or fits
        self._looks = file_system is not None and file_system.kind in filesystem.PAGED and is_doubtful
        self._pages = (0, 0)
        self._io: IO | None = None
        self._traffic: client_counters.Traffic | None = None

    def look(self, order: Order, first: int, last: int) -> None:
        """Check some of the files that this rank will read in the next epoch, and count how many pages of these files
        are in memory. first, last: range of the rank's positions in `order`; `last` is not included.
        """
        if not self._looks:
            return
        last = min(last, first + self._run.steps_per_epoch * self._run.workload.reader.batch_size)
        places = np.linspace(first, last - 1, max(_FEWEST, _FILES // self._node.size)).astype(int)
        samples = [order.samples(place, place + 1)[0] for place in places if first <= place < last]
        files = sample_index.file_numbers(self._run.workload.dataset, np.array(samples, np.uint64))
        numbers = dict.fromkeys(files.tolist())
        self._pages = page_cache.resident([dataset.file_path(self._run, number) for number in numbers])

    def begin(self) -> None:
        """Read the counters at the start of an epoch."""
        self._traffic = self._count() if self._count else None
        self._io = process_io()

    def end(self, apart: int) -> tuple[float, ...]:
        """Return the counts for the epoch that ends: a value for each column that is defined at the top of this module.
        Worker processes of this rank must have ended before this call. apart: bytes that the kernel fetched for
        purposes other than samples. They are subtracted.
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
