"""What a file format has to offer."""

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


class Reader(Protocol):
    """One rank's access to the dataset. Its threads call read() at once, each with rows and tally of its own."""

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        """Bring each of `samples` to the front of its row; InvalidRun when the dataset does not hold it."""

    def close(self) -> None:
        """The end of an epoch: let go of all files."""


class Format(NamedTuple):
    """write: file `number` of the dataset into an open file, which may have
    older contents. reader: of the files that `Paths` names by number;
    the communicator is for collective access. fault: where the file at a path is not what write() makes of that number,
    in words, None where it is; quick: by its size and what it says of itself alone. head, fill: the first bytes and all
    bytes, as read() delivers them, of a sample at a position of the stream of contents.
    """

    write: Callable[[int, Dataset, int], None]
    reader: "Callable[[Workload, Paths, Intracomm | None], Reader]"
    fault: Callable[[str, Dataset, int, bool], str | None]
    head: Callable[[int, Texture], bytes] = content.head
    fill: Callable[[Rows, int, Texture], None] = content.fill


def damaged(path: str, fault: object) -> InvalidRun:
    """What to say of a file that its library cannot make sense of."""
    return InvalidRun(
        f"{path} is not a dlio-hpc dataset file, or is corrupted: {fault}; remove the dataset's folder and generate it "
        "again"
    )


def as_bytes(values: object) -> Rows:
    """The bytes of an array, without copying it."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
