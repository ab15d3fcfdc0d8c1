"""The interface of file formats."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Rows
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Place, Places

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Function from the number of a stored file to its path.
Paths = Callable[[int], str]
# Function that fills an array with the bytes of a sample in memory, from a given byte of the sample on.
Expected = Callable[[Rows, Place, int], None]


def expected(dataset: Dataset) -> Expected:
    """Return the function for formats whose samples in memory are bytes of the content stream."""
    kind = compressibility(dataset)
    return lambda row, place, begin: content.fill(row, place.position + begin, kind)


class SampleReader(Protocol):
    """Access of a rank to the samples of the dataset. Several threads call read() at the same time, each with its own
    buffer and tally.
    """

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        """Read the sample at each of `places` into the beginning of the corresponding row of `buffer`, and count the
        reads in `tally`. Raise InvalidRun if a sample cannot be read because files are missing or corrupted.
        """

    def close(self) -> None:
        """Close all files. A later read opens them again."""


class Format(NamedTuple):
    """Functions of a file format. Numbers of files are those of stored files; a container may have several, see
    dataset/stored_parts.py. write: writes the file with a given number to an open file, which may have older
    contents. reader: returns a reader of the dataset's files. Its arguments are the workload; a function that returns
    the path of the file with a given number; and the communicator for collective access, or None. fault: takes the
    path and the number of a file. It returns how this file differs from the file that write() creates for this
    number, or None if there is no difference. The last argument of `fault` restricts the check to size and metadata.
    expected: returns the function that gives the bytes which read() delivers. beginning: number of bytes at the
    beginning of a sample that tell it from other samples, a multiple of 4. contents: yields what write() writes to
    consecutive files, given the number of the first file and the number after the last one; all of it is in memory.
    None: only write() can do this. sizes: returns a function from the number of a file to its size in bytes. None:
    only fault() can tell whether a file has its size.
    """

    write: Callable[[int, Dataset, int], None]
    reader: "Callable[[Workload, Paths, Intracomm | None], SampleReader]"
    fault: Callable[[str, Dataset, int, bool], str | None]
    expected: Callable[[Dataset], Expected] = expected
    beginning: int = content.WORD
    contents: Callable[[Dataset, int, int], Iterator[memoryview]] | None = None
    sizes: Callable[[Dataset], Callable[[int], int]] | None = None


def as_bytes(values: object) -> Rows:
    """Return the bytes of an array as a one-dimensional array of uint8. A contiguous array is not copied."""
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)
