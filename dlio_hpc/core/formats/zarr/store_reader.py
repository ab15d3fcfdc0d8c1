"""The `posix` mode for Zarr: whole files of chunks, and chunks of shards at their offsets, with preadv(2)."""

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.workload import Workload
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged, unopened
from dlio_hpc.core.files import OpenFile
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.zarr import codecs, folders, shards
from dlio_hpc.core.formats.zarr.expected_array import ExpectedArrays
from dlio_hpc.core.formats.zarr.kept_stores import KeptStores
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset import chunk_grid, zarr_metadata
from dlio_hpc.dataset.chunk_grid import Overlap
from dlio_hpc.dataset.sample_layout import Place, Places
from dlio_hpc.dataset.zarr_metadata import ZarrMetadata
from dlio_hpc.dataset.zarr_store import METADATA

Values = npt.NDArray[Any]

# Bytes of the indexes of shards that are kept in memory.
_INDEX_BYTES = 64 << 20


class _Store:
    """A store whose metadata are read. folder: its path, which ends with a slash."""

    def __init__(self, folder: str, metadata: ZarrMetadata) -> None:
        self.folder = folder
        self.metadata = metadata
        self.rest = [(0, extent) for extent in metadata.shape[1:]]
        self.is_plain = not metadata.compressors and metadata.stored_dtype == metadata.dtype
        # Only chunks with several samples are needed again by the next sample.
        self.shares_chunks = metadata.chunk[0] > 1


class StoreReader:
    """Reader that makes one request per chunk. Each file of chunks is opened, read and closed. If the values of a chunk
    follow each other in the sample, and are not compressed, they are read directly into the row. Each thread keeps the
    chunk that it read last.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        dataset = workload.dataset
        self._dtype, self._shape = dataset.sample.array_dtype, (1, *dataset.sample.array_shape)
        self._has_gaps = dataset.existing is not None
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
        with _opened(path, tally) as (file, size):
            try:
                zarr_metadata.check_size(size)
            except zarr_metadata.UnreadableMetadata as reason:
                raise damaged(path, reason) from reason
            content = bytearray(size)
            _read_overhead(file, content, 0, tally)
        return _Store(f"{folder}/", self._expected.parsed(path, bytes(content), number))

    def read_alone(self, place: Place, row: Rows) -> None:
        """Read a sample into a row, and count nothing."""
        tally = Tally()
        self._read(self._stores.get(place.file, tally), place, row, tally)

    def _read(self, store: _Store, place: Place, row: Rows, tally: Tally) -> None:
        metadata, target = store.metadata, row.view(self._dtype).reshape(self._shape)
        region = [(place.within, place.within + 1), *store.rest]
        read = self._read_chunk if metadata.shards is None else self._read_shard
        for overlap in chunk_grid.overlaps(region, metadata.stored):
            read(store, place.file, overlap, target[overlap.outside], tally)

    def _read_chunk(self, store: _Store, number: int, overlap: Overlap, target: Values, tally: Tally) -> None:
        """Read the part of a chunk that a sample needs. target: this part of the sample."""
        metadata, key = store.metadata, (number, overlap.at)
        if store.shares_chunks and getattr(self._last, "key", None) == key:
            target[...] = self._last.chunk[overlap.inside]
            return
        path = store.folder + metadata.name(overlap.at)
        try:
            with _opened(path, tally, self._has_gaps) as (file, size):
                self._check_size(path, size, metadata)
                if store.is_plain and target.shape == metadata.chunk and target.flags.c_contiguous:
                    file.read([target.reshape(-1).view(np.uint8).data], 0, self._transfer_size, tally)
                    return
                chunk = self._decoded(file, 0, size, metadata, tally)
        except _Missing:
            target[...] = _fill_value(path, metadata)
            return
        target[...] = chunk[overlap.inside]
        if store.shares_chunks:
            self._last.key, self._last.chunk = key, chunk

    def _read_shard(self, store: _Store, number: int, overlap: Overlap, target: Values, tally: Tally) -> None:
        """Read the chunks of a shard that a sample needs. target: the part of the sample that is in the shard."""
        metadata, path = store.metadata, store.folder + store.metadata.name(overlap.at)
        region = [(part.start, part.stop) for part in overlap.inside]
        try:
            with _opened(path, tally, self._has_gaps) as (file, size):
                index = self._index(file, size, metadata, tally)
                for inner in chunk_grid.overlaps(region, metadata.chunk):
                    self._read_inner(file, index, metadata, inner, target[inner.outside], tally)
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
            target[...] = self._last.chunk[inner.inside]
            return
        offset, size = (int(value) for value in index[inner.at])
        if offset == shards.MISSING and size == shards.MISSING:
            target[...] = _fill_value(file.path, metadata)
            return
        if size > codecs.largest(metadata):
            raise damaged(file.path, f"its index says that the chunk at byte {offset} has {size} bytes")
        chunk = self._decoded(file, offset, size, metadata, tally)
        target[...] = chunk[inner.inside]
        if metadata.chunk[0] > 1:
            self._last.key, self._last.chunk = key, chunk

    def _check_size(self, path: str, size: int, metadata: ZarrMetadata) -> None:
        """Raise InvalidRun if a file cannot hold a chunk because of its size in bytes."""
        most, least = codecs.largest(metadata), 1 if metadata.compressors else metadata.chunk_bytes
        if not least <= size <= most:
            raise damaged(path, f"it has {size} bytes, but a chunk has {f'at most {most}' if least == 1 else least}")

    def _decoded(self, file: OpenFile, offset: int, size: int, metadata: ZarrMetadata, tally: Tally) -> Values:
        packed = np.empty(size, np.uint8)
        file.read([packed.data], offset, self._transfer_size, tally)
        try:
            return codecs.decode(packed.data, metadata)
        except codecs.DAMAGE as reason:
            raise damaged(file.path, f"the chunk at byte {offset}: {reason}") from reason


class _Missing(Exception):
    """A file of chunks does not exist: its values are the fill value."""


@contextlib.contextmanager
def _opened(path: str, tally: Tally, may_lack: bool = False) -> Iterator[tuple[OpenFile, int]]:
    """Open a file for reading in a `with` block. Yield it and its size in bytes. Raise _Missing if it does not exist
    and `may_lack` is set.
    """
    started = now()
    try:
        with darshan_fd_gate.opening():
            file = OpenFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError as fault:
        if may_lack:
            raise _Missing from fault
        raise unopened(path, fault) from fault
    except OSError as fault:
        raise unopened(path, fault) from fault
    tally.open(started)
    try:
        yield file, os.fstat(file.descriptor).st_size
    finally:
        started = now()
        file.close()
        tally.close(started)


def _read_overhead(file: OpenFile, content: bytearray, begin: int, tally: Tally) -> None:
    """Fill `content` with the bytes of a file from `begin` on in one request, and count them as overhead."""
    before = tally.bytes_read
    file.read([memoryview(content)], begin, len(content), tally)
    tally.move_to_overhead(tally.bytes_read - before)


def _fill_value(path: str, metadata: ZarrMetadata) -> Any:
    if metadata.fill is None:
        raise damaged(path, "it is missing, and the fill value of the array is not known")
    return np.frombuffer(metadata.fill, metadata.dtype)[0]
