"""The null format, which has no files. Reading costs nothing, so a run measures the overhead of dlio-hpc itself."""

from typing import TYPE_CHECKING

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Places

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    """Do nothing, because the format has no files."""


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    """Return None, because there is no file that could have a fault."""
    return None


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> "Null":
    return Null()


class Null:
    """Reader that reads nothing and counts a read of zero bytes for each sample."""

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        stamps = [now() for _ in range(len(places))]
        tally.starts.extend(stamps)
        tally.ends.extend(stamps)
        tally.count_all([0] * len(places))

    def close(self) -> None:
        """Do nothing."""
