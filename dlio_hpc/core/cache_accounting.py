"""For each epoch, count the bytes that storage delivered and the pages of the dataset that were in memory before the
epoch. Both numbers show whether the samples came from storage or from memory.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.core import cached_files, client_counters, page_cache
from dlio_hpc.core.procfs import IO, memory, process_io
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.files.filesystem import FileSystem
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Columns of the record of an epoch; a value is NaN if it is unknown. FETCHED: bytes that the kernel fetched from
# storage for the rank. ASKED, ARRIVED, KEPT: bytes that programs on the node read, bytes that servers sent to the node,
# and bytes that the client may have returned from its own memory, from the counters of the file system client; the
# first rank of a node reports them, its other ranks report 0. LOOKED, RESIDENT: pages that the rank checked before the
# epoch, and how many of them were in memory.
FETCHED, ASKED, ARRIVED, KEPT, LOOKED, RESIDENT = range(6)
COLUMNS = 6
_UNKNOWN = float("nan")
# Number of files to check: by all ranks of a node together, and the minimum per rank.
_FILES, _FEWEST = 32, 4


class Arrivals:
    """Counts, for each epoch of a rank, the bytes that came from storage and the pages of files that were in memory.

    file_system: file system that is read; None if nothing is read. looks: whether pages are checked. Files on a file
    system without a page cache are never checked. is_shared: whether other loads of a mix read on the same node; the
    counters of the client then count their bytes, too, and are not used.
    """

    def __init__(
        self,
        node: "Intracomm",
        file_system: FileSystem | None,
        looks: Callable[[bool], bool],
        is_shared: bool = False,
    ) -> None:
        self._speaks = node.rank == 0
        has_counter = file_system is not None and self._speaks and not is_shared
        self._count = client_counters.counter(file_system) if file_system and has_counter else None
        self._is_counted = file_system is not None and file_system.kind in storage_proofs.COUNTED
        is_client = file_system is not None and file_system.kind not in storage_proofs.COUNTED
        is_counted = node.bcast(self._count is not None and is_client)
        self._looks = file_system is not None and storage_proofs.has_pages(file_system.kind) and looks(is_counted)
        self._pages = (0, 0)
        self._io: IO | None = None
        self._traffic: client_counters.Traffic | None = None

    def look(self, paths: Callable[[], Sequence[str]]) -> None:
        """Count how many pages of some files are in memory. paths: function that returns the paths of the files, which
        this rank will read next. The function is called only if pages are checked.
        """
        if self._looks:
            self._pages = page_cache.resident(paths())

    def begin(self) -> None:
        """Read the counters at the start of an epoch."""
        self._traffic = self._count() if self._count else None
        self._io = process_io()

    def end(self, apart: int) -> tuple[float, ...]:
        """Return the counts for the epoch that ends: a value for each column that is defined at the top of this module.
        Worker processes of this rank must have ended before this call. apart: number of bytes that the kernel fetched
        for purposes other than samples. This number is subtracted.
        """
        after = process_io()
        fetched = _UNKNOWN
        if self._io is not None and after is not None:
            fetched = after.fetched - self._io.fetched - apart
        return fetched, *self._of_node(), *self._pages

    def from_storage(self, columns: tuple[float, ...]) -> float:
        """Return the bytes of an epoch that came from storage; NaN if this is not known. columns: result of end(). The
        first rank of a node reports all bytes that servers sent to the node.
        """
        return columns[FETCHED if self._is_counted else ARRIVED]

    def _of_node(self) -> tuple[float, ...]:
        """Return the increase of the client's counters. If a counter decreased, it was reset, and all increases are
        unknown.
        """
        if not self._speaks:
            return 0.0, 0.0, 0.0
        after = self._count() if self._count else None
        if after is None or self._traffic is None:
            return _UNKNOWN, _UNKNOWN, _UNKNOWN
        grown = [
            _UNKNOWN if new is None or old is None else float(new - old)
            for new, old in zip(after, self._traffic, strict=True)
        ]
        return tuple(grown) if not any(count < 0 for count in grown) else (_UNKNOWN, _UNKNOWN, _UNKNOWN)


def of_samples(node: "Intracomm", run: Run, nodes: int) -> Arrivals:
    """Return the counter of bytes and pages for the samples of a run. nodes: number of nodes.

    Checking pages opens files, so it is done only if the node has no counters, if the counters may include other bytes
    (data adjacent to the requested data, program files), or if the dataset fits into memory. For a dataset larger than
    memory, the check shows little. With O_DIRECT, it shows nothing if reads bypass the page cache. Blocks of KV caches
    are not checked, because the run itself writes them.
    """
    is_shared = run.load is not None and run.load.shares_nodes
    if run.workload.inference is not None:
        return Arrivals(node, filesystem.of(Path(run.outputs).parent), lambda _: False, is_shared)
    file_system = filesystem.of(Path(run.dataset)) if run.workload.dataset.is_stored else None
    fits = run.workload.dataset.size < nodes * memory()
    bypasses = file_system is not None and storage_proofs.bypasses_pages(file_system.kind)
    says_something = not (run.workload.reader.direct and bypasses)

    def looks(counted: bool) -> bool:
        is_below_pages = file_system is not None and not storage_proofs.of(file_system.kind).pages
        return says_something and (not counted or is_below_pages or run.workload.brings_neighbours or fits)

    return Arrivals(node, file_system, looks, is_shared)


def some_files(run: Run, order: Order, first: int, last: int, ranks_on_node: int) -> list[str]:
    """Return the paths of some files that a rank will read in the next epoch. first, last: range of the rank's
    positions in `order`; `last` is not included.
    """
    last = min(last, first + run.steps_per_epoch * run.workload.reader.batch_size)
    places = np.linspace(first, last - 1, max(_FEWEST, _FILES // ranks_on_node)).astype(int)
    samples = [order.samples(place, place + 1)[0] for place in places if first <= place < last]
    return cached_files.of_samples(run.stored, samples)
