"""The `posix` mode for Zarr: whole files of chunks, and chunks of shards at their offsets, with preadv(2)."""

import functools
import os
import stat
import threading
from collections import OrderedDict
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.workload import Workload
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged, unopened, unplanned
from dlio_hpc.core.files import OpenFile
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.zarr import codecs, folders, shards
from dlio_hpc.core.formats.zarr.counting_store import opened_at_once
from dlio_hpc.core.formats.zarr.expected_array import ExpectedArrays
from dlio_hpc.core.formats.zarr.kept_stores import KeptStores
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset import chunk_grid, zarr_metadata
from dlio_hpc.dataset.chunk_grid import Overlap, Shape
from dlio_hpc.dataset.sample_layout import Place, Places
from dlio_hpc.dataset.zarr_metadata import ZarrMetadata
from dlio_hpc.dataset.zarr_store import METADATA

Values = npt.NDArray[Any]

# Bytes of the indexes of shards that are kept in memory.
_INDEX_BYTES = 64 << 20


class _Piece(NamedTuple):
    """Part of a sample in a file of chunks. suffix: end of the file's name, after the number of the file on the first
    axis. inside, outside: location of the part in the file, and in the sample, without the first axis.
    """

    suffix: str
    inside: tuple[slice, ...]
    outside: tuple[slice, ...]


@functools.lru_cache(16)
def _pieces(shape: Shape, stored: Shape, separator: str) -> list[_Piece]:
    """Return the parts of a sample of a shape in files that hold parts of the shape `stored`."""
    return [
        _Piece("".join(f"{separator}{place}" for place in overlap.at), overlap.inside, overlap.outside)
        for overlap in chunk_grid.overlaps([(0, extent) for extent in shape], stored)
    ]


class _Store:
    """A store whose metadata are read. prefix: beginning of the paths of its files of chunks. pieces: parts of each
    sample. least, most: bytes that a file with a chunk may have. is_plain: whether the bytes of a file are the values.
    shares_chunks: whether a chunk holds several samples, so that the next sample needs it again.
    """

    def __init__(self, folder: str, metadata: ZarrMetadata) -> None:
        self.metadata = metadata
        self.prefix = f"{folder}/{metadata.prefix}"
        self.pieces = _pieces(metadata.shape[1:], metadata.stored[1:], metadata.separator)
        self.least, self.most = 1 if metadata.compressors else metadata.chunk_bytes, codecs.largest(metadata)
        self.is_plain = not metadata.compressors and metadata.stored_dtype == metadata.dtype
        self.shares_chunks = metadata.chunk[0] > 1

    def can_receive(self, target: Values) -> bool:
        """Return whether a chunk can be read directly into `target`, a part of a sample."""
        shape = self.metadata.chunk
        return self.is_plain and shape[0] == 1 and target.shape == shape[1:] and bool(target.flags.c_contiguous)


class StoreReader:
    """Reader that makes one request per chunk. Each file of chunks is opened, read and closed. If the values of a chunk
    follow each other in the sample, and are not compressed, they are read directly into the row. Each thread keeps the
    chunk that it read last.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        dataset = workload.dataset
        self._dtype, self._shape = dataset.sample.array_dtype, dataset.sample.array_shape
        self._has_gaps = dataset.scan is not None and dataset.scan.gaps > 0
        self._transfer_size = workload.request_size or dataset.largest
        self._folders = folders.of(dataset, paths)
        self._expected = ExpectedArrays(dataset)
        self._lock = threading.Lock()
        self._stores = KeptStores(self._opened)
        self._indexes: OrderedDict[str, shards.Index] = OrderedDict()
        self._last = threading.local()
        darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        for place, row in zip(places, buffer.rows, strict=False):
            self._read(self._stores.get(place.file, tally), place, row[: place.size], tally)

    def close(self) -> None:
        self._stores.close()
        self._indexes.clear()
        self._last = threading.local()

    def _opened(self, number: int, tally: Tally) -> _Store:
        folder = self._folders(number)
        path = zarr_metadata.find(folder) or os.path.join(folder, METADATA[3])
        with _Opened(path, tally) as (file, size):
            try:
                zarr_metadata.check_size(size)
            except zarr_metadata.UnreadableMetadata as reason:
                raise damaged(path, reason) from reason
            content = bytearray(size)
            _read_overhead(file, content, 0, tally)
        return _Store(folder, self._expected.parsed(path, bytes(content), number))

    def read_alone(self, place: Place, row: Rows) -> None:
        """Read a sample into a row, and count nothing."""
        tally = Tally()
        self._read(self._stores.get(place.file, tally), place, row, tally)

    def _read(self, store: _Store, place: Place, row: Rows, tally: Tally) -> None:
        sample = row.view(self._dtype).reshape(self._shape)
        number, within = divmod(place.within, store.metadata.stored[0])
        prefix = f"{store.prefix}{number}"
        read = self._read_chunk if store.metadata.shards is None else self._read_shard
        for piece in store.pieces:
            read(store, prefix + piece.suffix, (within, *piece.inside), sample[piece.outside], tally)

    def _read_chunk(
        self, store: _Store, path: str, inside: tuple[int | slice, ...], target: Values, tally: Tally
    ) -> None:
        """Read a part of the chunk in the file at a path. inside: location of the part. target: receives the part."""
        if store.shares_chunks and getattr(self._last, "key", None) == path:
            target[...] = self._last.chunk[inside]
            return
        try:
            with _Opened(path, tally, self._has_gaps) as (file, size):
                if not store.least <= size <= store.most:
                    wanted = f"at most {store.most}" if store.least < store.most else store.most
                    raise damaged(path, f"it has {size} bytes, but a chunk has {wanted}")
                if store.can_receive(target):
                    self._fill(file, 0, target.reshape(-1).view(np.uint8), tally)
                    return
                chunk = self._decoded(file, 0, size, store.metadata, tally)
        except _Missing:
            target[...] = _fill_value(path, store.metadata)
            return
        target[...] = chunk[inside]
        if store.shares_chunks:
            self._last.key, self._last.chunk = path, chunk

    def _read_shard(
        self, store: _Store, path: str, inside: tuple[int | slice, ...], target: Values, tally: Tally
    ) -> None:
        """Read the chunks of a shard that hold a part of it. Arguments are those of _read_chunk()."""
        metadata, (within, *rest) = store.metadata, inside
        assert isinstance(within, int)
        region = [(within, within + 1), *((part.start, part.stop) for part in rest if isinstance(part, slice))]
        try:
            with _Opened(path, tally, self._has_gaps) as (file, size):
                index = self._index(file, size, metadata, tally)
                for inner in chunk_grid.overlaps(region, metadata.chunk):
                    self._read_inner(file, index, metadata, inner, target[inner.outside[1:]], tally)
        except _Missing:
            target[...] = _fill_value(path, metadata)

    def _index(self, file: OpenFile, size: int, metadata: ZarrMetadata, tally: Tally) -> shards.Index:
        """Return the index of a shard, which is read unless it is in memory. size: bytes of the shard."""
        index = self._indexes.get(file.path)
        if index is not None:
            return index
        count = metadata.index_bytes
        if size < count:
            raise damaged(file.path, f"{size} bytes are too few for the index of a shard, {count} bytes")
        assert metadata.shards is not None
        begin, content = size - count if metadata.shards.at_end else 0, bytearray(count)
        _read_overhead(file, content, begin, tally)
        try:
            index = shards.parsed(bytes(content), metadata, size)
        except ValueError as reason:
            raise damaged(file.path, f"byte {begin}: {reason}") from reason
        with self._lock:
            self._indexes[file.path] = index
            while len(self._indexes) > max(1, _INDEX_BYTES // count):
                self._indexes.popitem(last=False)
        return index

    def _read_inner(
        self, file: OpenFile, index: shards.Index, metadata: ZarrMetadata, inner: Overlap, target: Values, tally: Tally
    ) -> None:
        """Read the part of a chunk of a shard that a sample needs. target: this part of the sample."""
        key = (file.path, inner.at)
        if getattr(self._last, "key", None) == key:
            target[...] = self._last.chunk[inner.inside][0]
            return
        offset, size = (int(value) for value in index[inner.at])
        if offset == shards.MISSING and size == shards.MISSING:
            target[...] = _fill_value(file.path, metadata)
            return
        if size > codecs.largest(metadata):
            raise damaged(file.path, f"its index says that the chunk at byte {offset} has {size} bytes")
        chunk = self._decoded(file, offset, size, metadata, tally)
        target[...] = chunk[inner.inside][0]
        if metadata.chunk[0] > 1:
            self._last.key, self._last.chunk = key, chunk

    def _fill(self, file: OpenFile, offset: int, memory: Rows, tally: Tally) -> None:
        """Fill `memory` with the bytes of a file from `offset` on."""
        is_small = len(memory) <= self._transfer_size
        done = file.ask([memory.data], offset, tally) if is_small else 0
        if done < len(memory):
            file.read([memory.data], offset, self._transfer_size, tally, done)

    def _decoded(self, file: OpenFile, offset: int, size: int, metadata: ZarrMetadata, tally: Tally) -> Values:
        packed = np.empty(size, np.uint8)
        self._fill(file, offset, packed, tally)
        try:
            return codecs.decode(packed.data, metadata)
        except codecs.DAMAGE as reason:
            raise damaged(file.path, f"the chunk at byte {offset}: {reason}") from reason


class _Missing(Exception):
    """A file of chunks does not exist: its values are the fill value."""


class _Opened:
    """Context manager of a file that is open for reading in a `with` block. It yields the file and its size in bytes.
    It raises _Missing if the file does not exist and `may_lack` is set. A generator would take longer.
    """

    __slots__ = ("_file", "_may_lack", "_path", "_tally")

    def __init__(self, path: str, tally: Tally, may_lack: bool = False) -> None:
        self._path, self._tally, self._may_lack = path, tally, may_lack

    def __enter__(self) -> tuple[OpenFile, int]:
        started = now()
        try:
            with darshan_fd_gate.opening():
                descriptor = opened_at_once(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as fault:
            if self._may_lack and isinstance(fault, FileNotFoundError):
                raise _Missing from fault
            raise unopened(self._path, fault) from fault
        self._tally.open(started)
        self._file = OpenFile(self._path, descriptor)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            self._file.close()
            raise unplanned(f"{self._path} is not a regular file")
        return self._file, status.st_size

    def __exit__(self, *_: object) -> None:
        started = now()
        self._file.close()
        self._tally.close(started)


def _read_overhead(file: OpenFile, content: bytearray, begin: int, tally: Tally) -> None:
    """Fill `content` with the bytes of a file from `begin` on in one request, and count them as overhead."""
    before = tally.bytes_read
    file.read([memoryview(content)], begin, len(content), tally)
    tally.move_to_overhead(tally.bytes_read - before)


def _fill_value(path: str, metadata: ZarrMetadata) -> Any:
    if metadata.fill is None:
        raise damaged(path, "it is missing, and the fill value of the array is not known")
    return np.frombuffer(metadata.fill, metadata.dtype)[0]
