"""Small reads and writes of auxiliary files: files without samples, such as metadata and summaries. These requests are
counted and timed separately from the reads of samples.
"""

from typing import NamedTuple

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.config.dataset_keys import AuxiliaryFile
from dlio_hpc.core import content
from dlio_hpc.core.clock import now
from dlio_hpc.core.files import OpenFile, open_file, write_all, write_file
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.output_folder import OutputFolder
from dlio_hpc.core.procfs import ExcludedIO
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.sample_order import mix
from dlio_hpc.plan.plan import Run


class Counts(NamedTuple):
    """Counts of the requests that a rank makes to auxiliary files. time_s: seconds spent in these requests, including
    opening the files.
    """

    opens: int = 0
    reads: int = 0
    writes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    time_s: float = 0.0


class AuxiliaryFiles:
    """The auxiliary files that a rank reads and writes. A file that is read stays open after the first request to it.

    apart: counter of the bytes that the kernel fetches from storage for auxiliary files. The training loop later
    subtracts these bytes from all bytes that the kernel fetched for the rank.
    """

    def __init__(self, run: Run, rank: int, apart: ExcludedIO) -> None:
        sides = run.workload.dataset.auxiliary_files
        self._mine = [side for side in sides if side.by == "all" or rank == 0]
        self._apart = apart
        self._run = run
        self._outputs = OutputFolder(run.outputs)
        self._rank = rank
        self._requests: dict[str, int] = {}
        self._open: dict[str, OpenFile] = {}
        self._tally = Tally()
        self._writes = self._written = 0
        self._time_s = 0.0

    def due(self, when: str) -> None:
        """Make the requests that the workload configures for the moment `when`: start, epoch, step or end."""
        for side in self._mine:
            if side.when == when:
                started = now()
                with self._apart:
                    self._do(side)
                self._time_s += now() - started

    def _do(self, side: AuxiliaryFile) -> None:
        if side.access == "read":
            self._read(side)
        else:
            self._write(side)

    def _read(self, side: AuxiliaryFile) -> None:
        if side.name not in self._open:
            self._open[side.name] = open_file(dataset_folder.side_path(self._run.stored, side))
            self._tally.opens += 1
        file, buffer = self._open[side.name], memoryview(bytearray(side.bytes))
        first = self._requests.get(side.name, 0)
        self._requests[side.name] = first + side.count
        for offset in offsets(side, first, self._rank):
            file.read([buffer], offset, side.bytes, self._tally)
        if side.read_to_eof:
            file.find_end(side.file_size, self._tally)

    def _write(self, side: AuxiliaryFile) -> None:
        name = f"rank{self._rank:05}-{side.name}"
        try:
            with self._outputs.opened(name, "wb") as file:
                for number in range(side.count):
                    piece = b"".join(map(bytes, content.pieces(number * side.bytes, side.bytes)))
                    write_all(file.fileno(), memoryview(piece))
        except OSError as fault:
            raise InfrastructureError(f"cannot write {self._outputs.path(name)}: {fault.strerror}") from fault
        self._tally.opens += 1
        self._writes += side.count
        self._written += side.count * side.bytes

    def counts(self) -> Counts:
        """Return the counts of the requests made so far."""
        tally = self._tally
        return Counts(
            tally.opens, tally.requests, self._writes, tally.bytes_read, self._written, self._time_s
        )  # fmt: skip

    def close(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()
        self._outputs.close()


def offsets(side: AuxiliaryFile, first: int, rank: int) -> list[int]:
    """Return the offsets of the next `side.count` requests of a rank to the auxiliary file `side`. The offsets are
    random or sequential, as `side.random` says. Sequential offsets wrap around at the end of the file. first: number of
    requests that the rank has already made to this file.
    """
    numbers = range(first, first + side.count)
    if not side.random:
        return [number % (side.file_size // side.bytes) * side.bytes for number in numbers]
    run = side.burst or 1
    span = side.file_size - run * side.bytes + 1
    places = [mix(mix(rank) ^ number) % span for number in numbers[::run]]
    if side.burst is not None:
        places.sort()
    return [place + number * side.bytes for place in places for number in range(run)]


def write(descriptor: int, side: AuxiliaryFile) -> None:
    """Write the generated contents of the auxiliary file `side` to the open file `descriptor`."""
    write_file(descriptor, content.pieces(0, side.file_size))
