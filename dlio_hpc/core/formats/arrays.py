"""Files with several arrays per sample (`dataset.arrays`). The arrays are named x0, x1, ..., have the type uint8 and
the shape (samples of the file, bytes). A row of an array holds a part of a sample. The parts of a sample, in the order
of the arrays, are the bytes that a file with one array holds for the same sample.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import BLOCK, Rows
from dlio_hpc.core.files import ReadRequests
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.posix import transport
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Places, SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Size of a sample up to which whole samples are generated for each of their parts. Generating a part of a larger sample
# alone takes less time.
_SMALL = 64 << 10


class SamplePart(NamedTuple):
    """Part of each sample. One array of the file holds this part of all samples. number: position of the array in the
    file. name: name of the array. first: offset of the part in the sample. size: size of the part in bytes.
    """

    number: int
    name: str
    first: int
    size: int

    def of(self, row: Rows) -> Rows:
        """Return the bytes of this part in `row`, which holds a sample."""
        return row[self.first : self.first + self.size]


def parts(dataset: Dataset) -> list[SamplePart]:
    """Return the parts of a sample in the order of the arrays. The list is empty if files hold one array."""
    listed, first = [], 0
    for number, size in enumerate(dataset.arrays or ()):
        listed.append(SamplePart(number, f"x{number}", first, int(size)))
        first += size
    return listed


def in_reading_order(workload: Workload) -> list[SamplePart]:
    """Return the parts of a sample in the order in which they are read. The list is empty if files hold one array."""
    listed, order = parts(workload.dataset), workload.reader.array_order
    return listed if order is None else [listed[index] for index in order]


def shapes(dataset: Dataset, places: SampleLayout, number: int) -> list[tuple[int, ...]]:
    """Return the shape of each array in file `number`."""
    if dataset.arrays is None:
        return [places.array_shape(number)]
    return [(dataset.samples_per_file, int(size)) for size in dataset.arrays]


def holder(dataset: Dataset, places: SampleLayout, number: int, index: int, offset: int) -> int:
    """Return the number of the sample that contains byte `offset` of an array of file `number`. index: index of the
    array in the file.
    """
    if dataset.arrays is None:
        return places.holder(number, offset)
    return number * dataset.samples_per_file + offset // dataset.arrays[index]


def slabs(dataset: Dataset, number: int, part: SamplePart, samples: range | None = None) -> Iterator[Rows]:
    """Yield the generated rows of an array of file `number` in slabs. A slab has about 1 MiB, but at least one row, and
    is valid only until the next slab is requested. samples: indices of samples in the file; None for all samples of the
    file.
    """
    wanted = range(dataset.samples_per_file) if samples is None else samples
    places, kind = SampleLayout(dataset), compressibility(dataset)
    position, width = places.position(number), dataset.sample.size
    is_small = width <= _SMALL
    rows = max(1, min(len(wanted), BLOCK // (width if is_small else part.size)))
    wholes = np.empty((rows, width if is_small else 0), np.uint8)
    memory = np.empty((rows, part.size), np.uint8)
    for first in range(wanted.start, wanted.stop, rows):
        slab = memory[: wanted.stop - first]
        if is_small:
            whole = wholes[: len(slab)]
            content.fill(whole.reshape(-1), position + first * width, kind)
            slab[...] = whole[:, part.first : part.first + part.size]
        else:
            for within, row in enumerate(slab, first):
                content.fill(row, position + within * width + part.first, kind)
        yield slab


def in_turn(workload: Workload, samples: int) -> Iterator[tuple[int, SamplePart]]:
    """Yield the parts of the samples of a batch in the order in which they are read, each with the index of its sample.
    samples: number of samples in the batch.
    """
    listed = in_reading_order(workload)
    if workload.reader.by_array:
        yield from ((at, part) for part in listed for at in range(samples))
    else:
        yield from ((at, part) for at in range(samples) for part in listed)


class PartsReader:
    """Reader that reads each part of a sample at its offset, with one request per part. starts: function that returns
    the offset of each array in a file. It is called only once, because these offsets are the same in all files.
    """

    def __init__(
        self,
        workload: Workload,
        paths: Paths,
        comm: "Intracomm | None",
        starts: Callable[[int, Tally], list[int]],
    ) -> None:
        self._workload = workload
        self._starts_of = starts
        self._starts: list[int] = []
        self._transport = transport(workload, paths, comm)

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        """Read the sample at each of `places` into the beginning of the corresponding row."""
        reads = ReadRequests([], [], [], [])
        if len(places) and not self._starts:
            self._starts = self._starts_of(int(places.file[0]), tally)
        listed, views = list(places), [view for (view,) in buffer.views]
        for at, part in in_turn(self._workload, len(listed)):
            place = listed[at]
            reads.files.append(place.file)
            reads.offsets.append(self._starts[part.number] + place.within * part.size)
            reads.sizes.append(part.size)
            reads.views.append([views[at][part.first : part.first + part.size]])
        self._transport.fetch(reads, tally)  # a collective transport needs a call of every rank

    def close(self) -> None:
        self._transport.close()
