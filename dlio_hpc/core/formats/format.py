"""What a file format has to offer."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dlio_hpc.core.tally import Tally
from dlio_hpc.workload import Dataset, Workload

Rows = npt.NDArray[np.uint8]
Samples = npt.NDArray[np.uint64]
Paths = Callable[[int], str]


class Reader(Protocol):
    """One rank's access to the dataset. Its threads call read() at once, each with rows and tally of its own."""

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        """Bring each of `samples` into its row of sample bytes; InvalidRun when the dataset does not hold it."""

    def close(self) -> None:
        """The end of an epoch: let go of all files."""


class Format(NamedTuple):
    """write: one file of payload `pieces` at a path. reader: of the files that `Paths` names by number."""

    write: Callable[[str, Dataset, Iterable[memoryview]], None]
    reader: Callable[[Workload, Paths], Reader]
