"""Webdataset shards (tar): a file is a tar file in the ustar format, as Python's tarfile writes it. A sample is a
member, or with `dataset.arrays` several members that follow each other and differ in their extension: 000000007.x0,
000000007.x1, ... The bytes of these members, in this order, are those of a sample with one member.

Mode `posix` reads each member at its offset, with a request per member, as readers with an index of the shards do. Mode
`framework` reads like webdataset: open(), and Python's tarfile in its stream mode, from the first member to the last.
The size of the file's buffer is `transfer_size` or, if that is not set, the size that Python's open() chooses. Samples
that are shuffled within shards are kept in memory, as in a shuffle buffer of a whole shard. Each worker of PyTorch
reads whole shards. In two cases framework mode reads members at their offsets instead: if samples are shuffled across
all files, or with loader=tensorflow.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.config.dataset_keys import TAR_BLOCK, Dataset
from dlio_hpc.config.reader_keys import by_streams
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, file_comparison
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import BLOCK
from dlio_hpc.core.files import ReadRequests, write_file
from dlio_hpc.core.formats import arrays
from dlio_hpc.core.formats.format import Paths, SampleReader
from dlio_hpc.core.formats.posix import cut, transport
from dlio_hpc.core.formats.shard_streams import ShardStreams
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.member_layout import MemberLayout
from dlio_hpc.dataset.sample_layout import Numbers, Places, SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Extension of the only member of a sample.
_EXTENSION = "bin"
# Header of a member without its name, its size and its checksum: mode, owner, group and time; type and format.
_FIELDS = b"0000644\0" + 2 * b"0000000\0", b"00000000000\0", b"0" + bytes(100) + b"ustar\x0000"
_BLANK_SUM = sum(map(sum, _FIELDS)) + 8 * ord(" ")


def header(name: bytes, size: int) -> bytes:
    """Return the header of a member with `size` bytes, as ustar defines it. name: at most 100 bytes."""
    digits = b"%011o\0" % size
    checksum = _BLANK_SUM + sum(name) + sum(digits)
    owner, time, kind = _FIELDS
    return (name.ljust(100, b"\0") + owner + digits + time + b"%06o\0 " % checksum + kind).ljust(TAR_BLOCK, b"\0")


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    write_file(descriptor, written_early(descriptor, _pieces(dataset, number)))


def _pieces(dataset: Dataset, number: int) -> Iterator[memoryview]:
    """Yield all bytes of file `number` in pieces. A piece is valid only until the next piece is requested."""
    layout, made = MemberLayout(dataset), compressibility(dataset)
    places = SampleLayout(dataset).in_file(number)
    extensions = [part.name for part in arrays.parts(dataset)] or [_EXTENSION]
    spare = len(extensions) * 2 * TAR_BLOCK
    buffer = np.empty(BLOCK + dataset.sample.largest + spare, np.uint8)
    used = 0
    for place, members in zip(places, layout.of(places).by_sample(), strict=True):
        position = place.position
        for extension, (_, size) in zip(extensions, members, strict=True):
            data, end = used + TAR_BLOCK, used + TAR_BLOCK + size
            buffer.data[used:data] = header(b"%09d.%s" % (place.sample, extension.encode()), size)
            content.fill(buffer[data:end], position, made)
            used = end + -size % TAR_BLOCK
            buffer[end:used] = 0
            position += size
        if used >= BLOCK:
            yield buffer[:used].data
            used = 0
    yield buffer[:used].data
    yield memoryview(bytes(layout.file_size(number) - layout.samples_end(number)))


def sizes(dataset: Dataset) -> Callable[[int], int]:
    return MemberLayout(dataset).file_size


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    layout = MemberLayout(dataset)
    pieces = None if quick else _pieces(dataset, number)
    return file_comparison.of_file(path, layout.file_size(number), pieces, partial(_holder, dataset, number))


def _holder(dataset: Dataset, number: int, at: int) -> int | None:
    """Return the number of the sample with the byte at offset `at` of a file; None for the end of the archive."""
    layout, places = MemberLayout(dataset), SampleLayout(dataset).in_file(number)
    if at >= layout.samples_end(number):
        return None
    return int(places.sample[np.searchsorted(layout.begins(places), at, side="right") - 1])


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if by_streams(workload.dataset, workload.reader):
        return ShardStreams(workload, paths)
    return MemberReader(workload, paths, comm)


class MemberReader:
    """Reader that reads each member of a sample at its offset, with one request per member."""

    def __init__(self, workload: Workload, paths: Paths, comm: "Intracomm | None") -> None:
        self._layout = MemberLayout(workload.dataset)
        self._in_turn = _in_turn(workload)
        self._transport = transport(workload, paths, comm)

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        """Read the sample at each of `places` into the beginning of the corresponding row."""
        if self._layout.is_single and len(places):
            sizes = places.size.tolist()
            begins = (self._layout.begins(places) + TAR_BLOCK).tolist()
            self._transport.fetch(ReadRequests(places.file.tolist(), begins, sizes, cut(buffer, sizes)), tally)
            return
        members = self._layout.of(places)
        rows = np.repeat(np.arange(len(places)), members.counts)
        order = np.flatnonzero(members.sizes)
        if self._in_turn is not None:
            order = self._in_turn(len(places))
        sizes = members.sizes[order].tolist()
        rows, firsts = rows[order].tolist(), members.firsts[order].tolist()
        views = [
            [buffer.views[row][0][first : first + size]] for row, first, size in zip(rows, firsts, sizes, strict=True)
        ]
        reads = ReadRequests(places.file[rows].tolist(), members.offsets[order].tolist(), sizes, views)
        self._transport.fetch(reads, tally)  # a collective transport needs a call of every rank

    def close(self) -> None:
        self._transport.close()


def _in_turn(workload: Workload) -> Callable[[int], Numbers] | None:
    """Return a function from the number of samples of a batch to the numbers of their members in the order in which
    they are read; None if this is the order of the file.
    """
    parts = len(workload.dataset.arrays or ())
    if not parts:
        return None
    return lambda samples: np.array(
        [at * parts + part.number for at, part in arrays.in_turn(workload, samples)], np.int64
    )
