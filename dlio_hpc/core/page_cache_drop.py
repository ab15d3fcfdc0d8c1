"""Removal of files from the page cache before an epoch or an evaluation pass."""

from typing import TYPE_CHECKING

from dlio_hpc.base.units import counted
from dlio_hpc.core import cached_files, page_cache
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class PageCacheDrop:
    """Callable that drops files from the page cache before an epoch: all files that ranks of this node will read in the
    epoch. If pages of a file are not on storage yet, for example because the file has just been copied, they are
    written to storage before they are dropped. When this happens first, a message is printed on stdout.
    """

    def __init__(self, node: "Intracomm", run: Run) -> None:
        self._node = node
        self._run = run
        self._is_told = False

    def __call__(self, order: Order, first: int, last: int) -> None:
        steps = self._run.steps_per_epoch
        numbers = page_cache.files_of(self._node, self._run.workload, order, first, last, steps)
        files = cached_files.of_containers(self._run.stored, numbers)
        written = sum(page_cache.drop(path) for path in files)
        if written and not self._is_told:
            self._is_told = True
            print(
                f"dlio-hpc: drop_cache: pages of {counted(written, 'file')} were in use or not on storage yet; "
                "these pages were written to storage first",
                flush=True,
            )
