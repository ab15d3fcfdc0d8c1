"""The `posix` mode for formats with contiguous samples: read each sample at its offset, directly into the buffer of the
loader.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.files import MOST_VIEWS, OpenFiles, ReadRequests
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Numbers, Places, SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Transport(Protocol):
    """Interface of objects that read bytes from files, either through the rank's own descriptors or through MPI-IO from
    a file that all ranks share.
    """

    def fetch(self, reads: ReadRequests, tally: Tally) -> None:
        """Read the bytes of all requests into their views."""

    def close(self) -> None:
        """Close all files."""


class FlatReader:
    """Reader of files in which samples follow each other. start: function that returns the offset of the first sample
    in a file. It is called only once, because this offset is the same in all generated files. For existing files, the
    index has the offset in each file. gap: number of bytes between two samples. If `transfer_size` is larger than a
    sample, adjacent samples are read in one request.
    """

    def __init__(
        self,
        workload: Workload,
        paths: Paths,
        comm: "Intracomm | None",
        start: Callable[[int, Tally], int],
        gap: int = 0,
    ) -> None:
        self._paths = paths
        self._start_of = start
        self._start: int | None = None
        self._starts = SampleLayout(workload.dataset).begins
        self._gap = gap
        self._transport = transport(workload, paths, comm)
        self.merges = (workload.reader.transfer_size or 0) > workload.dataset.largest

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        """Read the sample at each of `places` into the beginning of the corresponding row."""
        if not len(places):
            self.bring(ReadRequests([], [], [], []), tally)  # a collective transport needs a call of every rank
            return
        sizes = places.size.tolist()
        begins = self.begins(places, tally).tolist()
        self.bring(ReadRequests(places.file.tolist(), begins, sizes, cut(buffer, sizes)), tally)

    def begins(self, places: Places, tally: Tally) -> Numbers:
        """Return the offset of each sample in its file. places: at least one sample."""
        if self._starts is not None:
            return places.offset + self._starts[places.file] + places.within * self._gap
        if self._start is None:
            self._start = self._start_of(int(places.file[0]), tally)
        begins = places.offset
        if self._start:
            begins = begins + self._start
        if self._gap:
            begins = begins + places.within * self._gap
        return begins

    def bring(self, reads: ReadRequests, tally: Tally) -> None:
        self._transport.fetch(_merged(reads) if self.merges else reads, tally)

    def close(self) -> None:
        self._transport.close()


def transport(workload: Workload, paths: Paths, comm: "Intracomm | None") -> Transport:
    """Return the object that reads bytes in the way that `reader.access` selects."""
    keys = workload.reader
    if keys.access == "collective" and comm is not None:
        from dlio_hpc.core.mpi_io import CollectiveFile

        return CollectiveFile(comm, paths(0), keys.hints, keys.transfer_size)
    dataset, size = workload.dataset, workload.request_size or workload.dataset.largest
    if keys.engine == "io_uring":
        from dlio_hpc.core.ring_files import RingFiles

        per_sample = sum(-(-part // size) for part in dataset.arrays or (dataset.largest,))
        in_flight = keys.queue_depth or keys.batch_size * per_sample
        return RingFiles(paths, size, keys.direct, in_flight)
    is_one_request = dataset.samples_per_file == 1 and dataset.arrays is None and not dataset.facts.splits_samples
    return OpenFiles(paths, size, keys.direct, once=is_one_request or keys.reopen)


def cut(buffer: Buffer, sizes: list[int]) -> list[list[memoryview]]:
    """Return memory views of the first bytes of each row. sizes: number of bytes of each row."""
    width = buffer.rows.shape[1]
    if min(sizes) == width:
        return buffer.views
    return [[row[:size]] for (row,), size in zip(buffer.views, sizes, strict=True)]


def _merged(reads: ReadRequests) -> ReadRequests:
    """Return `reads`, with successive requests merged if they are for adjacent bytes of the same file. A merged request
    has at most 1024 views.
    """
    merged = ReadRequests([], [], [], [])
    end = -1
    for file, offset, size, views in zip(*reads, strict=True):
        is_adjacent = merged.files and file == merged.files[-1] and offset == end
        if is_adjacent and len(merged.views[-1]) + len(views) <= MOST_VIEWS:
            merged.views[-1].extend(views)
            merged.sizes[-1] += size
        else:
            merged.files.append(file)
            merged.offsets.append(offset)
            merged.sizes.append(size)
            merged.views.append(list(views))
        end = offset + size
    return merged
