"""Raw format: a file holds its samples one after the other and nothing else. Reading these files puts the same load on
the storage as reading image files, .npy files or .bin files.

Mode `posix` reads samples at their offsets. Mode `framework` is Python's `open(path, "rb").read()`: a request for the
whole file, and a second request that finds the end of the file. If `transfer_size` is set, the file is read in the same
way as by a decoder of images, which looks at the first bytes before it reads the rest. It makes a request of
`transfer_size` bytes to fill a buffer, a request for the rest of the file, and a request that finds the end of the
file.
"""

import io
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.files import write_file
from dlio_hpc.core.formats.format import Paths, SampleReader
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.whole_file import Array, CountedFile, WholeFileReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.sample_layout import SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    write_file(descriptor, written_early(descriptor, _pieces(SampleLayout(dataset), dataset, number)))


def contents(dataset: Dataset, first: int, end: int) -> Iterator[memoryview]:
    """Yield the contents of the files from `first` to `end` - 1. They are consecutive in the content stream."""
    places = SampleLayout(dataset)
    starts = places.of(np.arange(first, end, dtype=np.uint64) * np.uint64(dataset.samples_per_file)).position
    begin = int(starts[0])
    stop = int(starts[-1]) + places.file_size(end - 1)
    memory = np.empty(stop - begin, np.uint8)
    content.fill(memory, begin, compressibility(dataset))
    bounds = [*(starts - begin).tolist(), stop - begin]
    for start, after in itertools.pairwise(bounds):
        yield memory.data[start:after]


def _pieces(places: SampleLayout, dataset: Dataset, number: int) -> Iterator[memoryview]:
    """Yield all bytes of file `number` in pieces. A piece is valid only until the next piece is requested."""
    return content.pieces(places.position(number), places.file_size(number), compressibility(dataset))


def sizes(dataset: Dataset) -> Callable[[int], int]:
    return SampleLayout(dataset).file_size


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    places = SampleLayout(dataset)
    expected = None if quick else _pieces(places, dataset, number)
    return file_comparison.of_file(path, places.file_size(number), expected, lambda at: places.holder(number, at))


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "posix":
        return FlatReader(workload, paths, comm, lambda *_: 0)
    dataset, buffer = workload.dataset, workload.reader.transfer_size

    def load(path: str, tally: Tally) -> list[Array]:
        with CountedFile(path, tally) as file:
            values = np.frombuffer(file.readall() if buffer is None else _read_after_head(file, buffer), np.uint8)
        if dataset.is_flat:
            return [values]
        try:
            return [values.view(dataset.sample.array_dtype).reshape(-1, *dataset.sample.array_shape)]
        except ValueError as reason:
            raise damaged(path, reason) from reason

    return WholeFileReader(workload, paths, load)


def _read_after_head(file: CountedFile, buffer: int) -> bytes:
    """Fill a buffer of `buffer` bytes from a file, then read the rest of the file. Return the contents of the file."""
    through = io.BufferedReader(file, buffer)
    through.peek(1)
    data = through.read()
    through.detach()
    return data
