"""Interface of file formats."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content
from dlio_hpc.core.content import Rows, Texture
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import Samples
from dlio_hpc.errors import InvalidRun

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Paths = Callable[[int], str]


class SampleReader(Protocol):
    """Access of a rank to the dataset. Threads call read() concurrently, each with its own rows and tally."""

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        """Read each of `samples` into the beginning of its row. Raise InvalidRun if the dataset does not hold it."""

    def close(self) -> None:
        """Close all files at the end of an epoch."""


class Format(NamedTuple):
    """Functions of a file format. write: write file `number` of the dataset to an open file, which may have older
    contents. reader: open a reader of the files that `Paths` names by number; the communicator is for collective
    access. fault: describe how the file at a path differs from the file that write() creates for that number, or return
    None; with quick, by its size and metadata only. head, fill: first bytes and all bytes, as read() returns them, of a
    sample at a position of the content stream.
    """

    write: Callable[[int, Dataset, int], None]
    reader: "Callable[[Workload, Paths, Intracomm | None], SampleReader]"
    fault: Callable[[str, Dataset, int, bool], str | None]
    head: Callable[[int, Texture], bytes] = content.head
    fill: Callable[[Rows, int, Texture], None] = content.fill


def damaged(path: str, fault: object) -> InvalidRun:
    """Return the error for a file that its library cannot read."""
    return InvalidRun(
        f"{path} is not a dlio-hpc dataset file, or is corrupted: {fault}; remove the dataset's folder and generate it "
        "again"
    )


def as_bytes(values: object) -> Rows:
    """Return the bytes of a contiguous array without copying it."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
