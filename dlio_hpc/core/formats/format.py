"""What a file format has to offer."""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dlio_hpc.core import content
from dlio_hpc.core.tally import Tally
from dlio_hpc.errors import InvalidRun
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


def check(samples: Samples, rows: Rows, paths: Paths, samples_per_file: int) -> None:
    """InvalidRun when the first of `samples` does not begin in its row as it was generated: the file is another one.

    One sample of a batch finds foreign and overwritten files and costs microseconds.
    """
    if not len(samples):
        return
    sample, row = int(samples[0]), rows[0]
    expected = content.head(sample * len(row))[: len(row)]
    found = row[: len(expected)].tobytes()
    if found != expected:
        raise InvalidRun(
            f"{paths(sample // samples_per_file)}: sample {sample} begins with {found.hex()}, expected "
            f"{expected.hex()}: this is not what was generated; remove the dataset's folder and generate it again"
        )
