"""The `posix` mode for formats with contiguous samples: read each sample at its offset, directly into the buffer of the
loader.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.content import Rows
from dlio_hpc.core.files import OpenFiles, ReadRequest
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import Place, SampleLayout, Samples

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Transport(Protocol):
    """Interface of objects that read bytes from files, either through the rank's own descriptors or through MPI-IO from
    a file that all ranks share.
    """

    def fetch(self, requests: Sequence[ReadRequest], tally: Tally) -> None:
        """Read the bytes of all requests into their views."""

    def close(self) -> None:
        """Close all files."""


class FlatReader:
    """Reader of files in which samples follow each other. start: function that returns the offset of the first sample
    in a file. It is called only once, because this offset is the same in all files. gap: number of bytes between two
    samples. If `transfer_size` is larger than a sample, adjacent samples are read in one request.
    """

    def __init__(
        self,
        workload: Workload,
        paths: Paths,
        comm: "Intracomm | None",
        start: Callable[[int, Tally], int],
        gap: int = 0,
    ) -> None:
        self._places = SampleLayout(workload.dataset)
        self._paths = paths
        self._start_of = start
        self._start: int | None = None
        self._gap = gap
        self._transport = transport(workload, paths, comm)
        self.merges = (workload.reader.transfer_size or 0) > workload.dataset.largest

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        places = self._places.of(samples)
        self.fetch(places, rows, tally)

    def fetch(self, places: list[Place], rows: Rows, tally: Tally) -> None:
        """Read the sample at each of `places` into the beginning of the corresponding row."""
        memory, width = rows.reshape(-1).data, rows.shape[1]
        self.bring(
            [
                ReadRequest(
                    place.file, self.begin(place, tally), [memory[number * width : number * width + place.size]]
                )
                for number, place in enumerate(places)
            ],
            tally,
        )

    def begin(self, place: Place, tally: Tally) -> int:
        """Return the offset of the sample in its file."""
        if self._start is None:
            self._start = self._start_of(place.file, tally)
        return self._start + place.within * self._gap + place.offset

    def bring(self, requests: list[ReadRequest], tally: Tally) -> None:
        self._transport.fetch(_merged(requests) if self.merges else requests, tally)

    def close(self) -> None:
        self._transport.close()


def transport(workload: Workload, paths: Paths, comm: "Intracomm | None") -> Transport:
    """Return the object that reads bytes in the way that `reader.access` selects."""
    keys = workload.reader
    if keys.access == "collective" and comm is not None:
        from dlio_hpc.core.mpi_io import CollectiveFile

        return CollectiveFile(comm, paths(0), keys.hints, keys.transfer_size)
    return OpenFiles(paths, workload.request_size or workload.dataset.largest, keys.direct)


def _merged(requests: list[ReadRequest]) -> list[ReadRequest]:
    """Return `requests`, with successive requests merged if they are for adjacent bytes of the same file."""
    merged: list[ReadRequest] = []
    end = -1
    for request in requests:
        if merged and request.number == merged[-1].number and request.offset == end:
            merged[-1].views.extend(request.views)
        else:
            merged.append(ReadRequest(request.number, request.offset, list(request.views)))
        end = request.offset + sum(map(len, request.views))
    return merged
