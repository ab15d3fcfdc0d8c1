"""Megatron-LM's IndexedDataset (indexed): a container is a file of tokens (.bin) and the index of its sequences (.idx).
Only the files of tokens have samples. The bytes of the file of tokens are a part of the content stream.

Mode `posix` reads the index of a container once, when it opens the container, and then each piece of a sample at its
offset, with one request per piece. Mode `framework` is Megatron-LM's way. It reads the header of the index and maps the
index into memory. It then opens, reads and closes the file of tokens for each piece (_FileBinReader), or with
reader.mapped maps the file and copies the pieces (_MMapBinReader, the default of Megatron-LM). One difference: the
order of documents is computed when a container is opened, and not before the first step. Containers stay open, as in
Megatron-LM, so that a rank keeps 16 bytes for each document that it may read.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.reader_keys import LARGEST_REQUEST
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, darshan_fd_gate, file_comparison, procfs
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged, unopened, unplanned
from dlio_hpc.core.files import ReadRequests, open_file, write_file
from dlio_hpc.core.formats.format import Expected, Paths, SampleReader
from dlio_hpc.core.formats.format import expected as of_stream
from dlio_hpc.core.formats.posix import cut, transport
from dlio_hpc.core.formats.whole_file import CountedFile, buffered
from dlio_hpc.core.handle_cache import HandleCache
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset import token_index, token_layout
from dlio_hpc.dataset.sample_layout import Numbers, Place, Places, SampleLayout
from dlio_hpc.dataset.token_index import TokenIndex
from dlio_hpc.dataset.token_layout import FileLayout, Piece, TokenFiles

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Parts of a container.
_PARTS, _TOKENS, _INDEX = 2, 0, 1
# Bytes of the first request for an index. The header is in it, so that no other file is read whole.
_FIRST = 1 << 20
# Number of samples of a container that are located one by one.
_FEW = 9


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    write_file(descriptor, written_early(descriptor, _pieces(dataset, number)))


def _pieces(dataset: Dataset, number: int) -> Iterator[bytes | memoryview]:
    """Yield all bytes of the stored file `number` in pieces. A piece is valid only until the next one is requested."""
    container, part = divmod(number, _PARTS)
    files = TokenFiles(dataset)
    if part == _INDEX:
        yield from token_index.encoded(files.lengths(container), dataset.sample.array_dtype)
        return
    begin = SampleLayout(dataset).position(container)
    yield from content.pieces(begin, files.size(container), compressibility(dataset))


def contents(dataset: Dataset, first: int, end: int) -> Iterator[memoryview]:
    for number in range(first, end):
        yield memoryview(b"".join(_pieces(dataset, number)))


def sizes(dataset: Dataset) -> Callable[[int], int]:
    files = TokenFiles(dataset)
    of_index = token_index.size(dataset.documents_per_file)
    return lambda number: of_index if number % _PARTS == _INDEX else files.size(number // _PARTS)


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    container, part = divmod(number, _PARTS)

    def holder(at: int) -> int | None:
        is_sample = part == _TOKENS and not dataset.joins_documents
        return SampleLayout(dataset).holder(container, at) if is_sample else None

    return file_comparison.of_file(path, sizes(dataset)(number), None if quick else _pieces(dataset, number), holder)


def expected(dataset: Dataset) -> Expected:
    """Return the function that gives the bytes of a sample: those of its pieces, in order."""
    if not dataset.joins_documents:
        return of_stream(dataset)
    kind, places = compressibility(dataset), SampleLayout(dataset)

    def fill(row: Rows, place: Place, begin: int) -> None:
        members = token_layout.generated(dataset, place.file).of(np.array([place.within], np.int64))
        start = places.position(place.file)
        for offset, size, first in zip(*(members[at].tolist() for at in (1, 2, 3)), strict=True):
            low, high = max(first, begin), min(first + size, begin + len(row))
            if low < high:
                content.fill(row[low - begin : high - begin], start + offset + low - first, kind)

    return fill


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "posix":
        return _OffsetReader(workload, paths, comm)
    darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps, which would be counted for a reader thread
    return _MappedReader(workload, paths) if workload.reader.mapped else _PieceReader(workload, paths)


def _part(paths: Paths, part: int, container: int) -> str:
    return paths(container * _PARTS + part)


class _Container(NamedTuple):
    """An open container. layout: location of its samples. path: path of its file of tokens. tokens: all bytes of this
    file, mapped into memory; None if they are read.
    """

    layout: FileLayout
    path: str
    tokens: memoryview | None = None

    def close(self) -> None:
        """Do nothing: maps end with their last view."""


class _TokenReader:
    """Base of the readers. path: function from the number of a container and of a part to the path of the file."""

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._dataset = workload.dataset
        self._path: Callable[[int, int], str] = lambda container, part: _part(paths, part, container)
        self._containers: HandleCache[_Container] = HandleCache(self._opened, True, sys.maxsize)

    def _opened(self, container: int, tally: Tally) -> _Container:
        """Open a container, and count the reads of its index. The cache counts one opening."""
        raise NotImplementedError

    def _decoded(self, container: int, known: token_index.Header, data: Any) -> TokenIndex:
        try:
            return token_index.decoded(known, data)
        except token_index.MalformedIndex as reason:
            raise damaged(self._path(container, _INDEX), reason) from reason

    def _header(self, container: int, begin: bytes, size: int) -> token_index.Header:
        try:
            return token_index.header(begin, size)
        except token_index.MalformedIndex as reason:
            raise damaged(self._path(container, _INDEX), reason) from reason

    def _pieces(self, places: Places, tally: Tally) -> list[list[Piece]]:
        """Return the pieces of each sample, in the order of the samples. The samples of a container are located
        together.
        """
        files = places.file
        if not len(files):
            return []
        if (files == files[0]).all():
            return self._of_file(int(files[0]), places, tally)
        located: list[list[Piece]] = [[]] * len(files)
        for container in dict.fromkeys(files.tolist()):
            chosen = np.flatnonzero(files == container)
            for at, pieces in zip(chosen.tolist(), self._of_file(container, places.part(chosen), tally), strict=True):
                located[at] = pieces
        return located

    def _of_file(self, container: int, places: Places, tally: Tally) -> list[list[Piece]]:
        """Return the pieces of samples of one container. Raise an error if the index does not have these samples."""
        numbers = places.within.tolist()
        layout = self._layout(container, max(numbers), tally)
        located = [layout.one(number) for number in numbers] if len(numbers) < _FEW else _located(layout, places.within)
        for number, size, pieces in zip(numbers, places.size.tolist(), located, strict=True):
            if pieces[-1][1] + pieces[-1][2] != size:
                raise self._of_other_size(container, number, pieces[-1][1] + pieces[-1][2], size)
        return located

    def _begins(self, places: Places, tally: Tally) -> list[int]:
        """Return the offset of each sample in its file of tokens. The samples must have one piece each."""
        if len(places) >= _FEW:
            return self._begins_together(places, tally)
        begins = []
        for container, within, size in zip(
            places.file.tolist(), places.within.tolist(), places.size.tolist(), strict=True
        ):
            begin, actual, _ = self._layout(container, within, tally).one(within)[0]
            if actual != size:
                raise self._of_other_size(container, within, actual, size)
            begins.append(begin)
        return begins

    def _begins_together(self, places: Places, tally: Tally) -> list[int]:
        """Return the same as _begins(). For many samples, this takes less time."""
        begins = np.empty(len(places), np.int64)
        for container in dict.fromkeys(places.file.tolist()):
            chosen = places.file == container
            withins, sizes = places.within[chosen], places.size[chosen]
            members = self._layout(container, withins.max().item(), tally).of(withins)
            differs = members.sizes != sizes
            if differs.any():
                at = differs.argmax()
                raise self._of_other_size(container, withins.item(at), members.sizes.item(at), sizes.item(at))
            begins[chosen] = members.offsets
        offsets: list[int] = begins.tolist()
        return offsets

    def _layout(self, container: int, last: int, tally: Tally) -> FileLayout:
        """Return the layout of a container. Raise an error if its index does not have the sample `last`."""
        layout = self._containers.get(container, tally).layout
        if last >= layout.samples:
            raise unplanned(
                f"{self._path(container, _INDEX)} describes {layout.samples} samples, but sample {last} of the "
                "file was expected"
            )
        return layout

    def _of_other_size(self, container: int, number: int, size: int, expected: int) -> Exception:
        return unplanned(
            f"{self._path(container, _INDEX)} gives sample {number} of the file {size} bytes, expected {expected}"
        )

    def close(self) -> None:
        self._containers.close()


class _OffsetReader(_TokenReader):
    """Reader that reads the index as a whole, and pieces at their offsets."""

    def __init__(self, workload: Workload, paths: Paths, comm: "Intracomm | None") -> None:
        super().__init__(workload, paths)
        self._transport = transport(workload, partial(_part, paths, _TOKENS), comm)

    def _opened(self, container: int, tally: Tally) -> _Container:
        of_index = Tally()
        file = open_file(self._path(container, _INDEX))
        try:
            size = os.fstat(file.descriptor).st_size
            data = np.empty(min(size, _FIRST), np.uint8)
            if size:
                file.read([data.data], 0, LARGEST_REQUEST, of_index)
            known = self._header(container, data[: token_index.HEADER].tobytes(), size)
            if size > _FIRST:
                data = np.concatenate([data, np.empty(size - _FIRST, np.uint8)])
                file.read([data.data[_FIRST:]], _FIRST, LARGEST_REQUEST, of_index)
        finally:
            file.close()
        of_index.move_to_overhead(of_index.bytes_read)
        tally.merge(of_index)
        index = self._decoded(container, known, data.data)
        return _Container(token_layout.of_index(self._dataset, index, container), self._path(container, _TOKENS))

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        """Read the sample at each of `places` into the beginning of the corresponding row."""
        if len(places) and not self._dataset.joins_documents:
            sizes = places.size.tolist()
            begins = self._begins(places, tally)
            self._transport.fetch(ReadRequests(places.file.tolist(), begins, sizes, cut(buffer, sizes)), tally)
            return
        reads = ReadRequests([], [], [], [])
        rows = zip(places.file.tolist(), self._pieces(places, tally), buffer.views, strict=False)
        for container, pieces, (row,) in rows:
            for offset, size, first in pieces:
                reads.files.append(container)
                reads.offsets.append(offset)
                reads.sizes.append(size)
                reads.views.append([row[first : first + size]])
        self._transport.fetch(reads, tally)  # a collective transport needs a call of every rank

    def close(self) -> None:
        super().close()
        self._transport.close()


class _PieceReader(_TokenReader):
    """Reader that maps the index, and opens the file of tokens for each piece."""

    def _opened(self, container: int, tally: Tally) -> _Container:
        return _Container(self._mapped_index(container, tally)[0], self._path(container, _TOKENS))

    def _mapped_index(self, container: int, tally: Tally) -> tuple[FileLayout, int]:
        """Map an index, as Megatron-LM does. Return the layout of the samples, and the bytes of the file of tokens
        according to the index.
        """
        path, of_header = self._path(container, _INDEX), Tally()
        before = procfs.page_faults()
        try:
            with buffered(CountedFile(path, of_header)) as file:
                begin = file.read(token_index.HEADER)
            data = _mapped(path)
        except OSError as fault:
            raise unopened(path, fault) from fault
        of_header.move_to_overhead(of_header.bytes_read)
        tally.merge(of_header)
        known = self._header(container, begin, len(data))
        index = self._decoded(container, known, data)
        layout = token_layout.of_index(self._dataset, index, container)
        after = procfs.page_faults()
        tally.major_faults += after.major - before.major
        tally.minor_faults += after.minor - before.minor
        return layout, index.end

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        """Read the sample at each of `places` into the beginning of the corresponding row."""
        pieces_of_samples, files = self._pieces(places, tally), places.file.tolist()
        paths = {container: self._containers.get(container, tally).path for container in dict.fromkeys(files)}
        for container, pieces, (row,) in zip(files, pieces_of_samples, buffer.views, strict=False):
            for offset, size, first in pieces:
                self._read_piece(paths[container], offset, row[first : first + size], tally)

    def _read_piece(self, path: str, offset: int, row: memoryview, tally: Tally) -> None:
        try:
            started = now()
            with darshan_fd_gate.opening():
                file = io.FileIO(path)
            tally.open(started)
            try:
                file.seek(offset)
                count = _filled(file, row, tally)
            finally:
                started = now()
                with darshan_fd_gate.closing():
                    file.close()
                tally.close(started)
        except OSError as fault:
            raise unopened(path, fault) from fault
        if count < len(row):
            raise unplanned(
                f"{path} ends at byte {offset + count}, but data were expected from byte {offset} to "
                f"{offset + len(row)}: the file is truncated"
            )


class _MappedReader(_PieceReader):
    """Reader that maps the index and the file of tokens."""

    def _opened(self, container: int, tally: Tally) -> _Container:
        layout, end = self._mapped_index(container, tally)
        path = self._path(container, _TOKENS)
        try:
            started = now()
            tokens = _mapped(path)
            tally.open(started)
        except OSError as fault:
            raise unopened(path, fault) from fault
        if end > len(tokens):
            raise unplanned(f"{path} ends at byte {len(tokens)}, but its index states {end} bytes: it is truncated")
        return _Container(layout, path, tokens.data)

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        """Copy the sample at each of `places` into the beginning of the corresponding row."""
        pieces_of_samples = self._pieces(places, tally)
        files = places.file.tolist()
        tokens = {container: self._containers.get(container, tally).tokens for container in dict.fromkeys(files)}
        before = procfs.page_faults()
        for container, pieces, (row,) in zip(files, pieces_of_samples, buffer.views, strict=False):
            mapped = tokens[container]
            assert mapped is not None
            tally.starts.append(now())
            for offset, size, first in pieces:
                row[first : first + size] = mapped[offset : offset + size]
            tally.ends.append(now())
        tally.map(places.size.tolist(), before)


def _filled(file: io.FileIO, row: memoryview, tally: Tally) -> int:
    """Read a file into `row` until that is full or the file ends. Return the number of bytes."""
    count = 0
    while True:
        started = now()
        more = file.readinto(row[count:] if count else row) or 0
        tally.add(started, more)
        count += more
        if not more or count == len(row):
            return count


def _located(layout: FileLayout, within: Numbers) -> list[list[Piece]]:
    """Return the pieces of each sample. within: numbers of the samples in the file."""
    members = layout.of(within)
    pieces = list(zip(members.offsets.tolist(), members.sizes.tolist(), members.firsts.tolist(), strict=True))
    ends = np.cumsum(members.counts)
    return [pieces[first:end] for first, end in zip((ends - members.counts).tolist(), ends.tolist(), strict=True)]


def _mapped(path: str) -> npt.NDArray[np.uint8]:
    """Map a file into memory, as numpy.memmap(path, mode="r") does. Raise OSError if it cannot be opened or mapped."""
    with darshan_fd_gate.opening():
        try:
            return np.asarray(np.memmap(path, mode="r", order="C"))
        except ValueError:  # an empty file
            return np.zeros(0, np.uint8)
