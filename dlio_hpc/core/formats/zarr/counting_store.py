"""Store of zarr-python that counts the requests of zarr's own store for folders, LocalStore, which it replaces."""

import functools
import io
import os
import stat
from contextvars import ContextVar
from typing import Any

from dlio_hpc.core.dataset_faults import damaged, unopened, unplanned
from dlio_hpc.core.formats.whole_file import CountedFile, buffered
from dlio_hpc.core.formats.zarr import codecs, shards
from dlio_hpc.core.formats.zarr.generated import largest_file
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset import zarr_metadata
from dlio_hpc.dataset.zarr_metadata import ZarrMetadata

# Counters of the requests for the batch that the calling thread reads, one for each file. zarr-python makes requests in
# threads of its own. asyncio gives these threads the context of the call, and appending to a list needs no lock.
BATCH: ContextVar[list[Tally]] = ContextVar("BATCH")
# Files that may be missing: zarr-python looks for them.
_MAY_LACK = {"zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata"}


class ChunkLimits:
    """Limits of the bytes that zarr-python decodes from a file of chunks. Without them, a damaged chunk could fill the
    memory. metadata: metadata of the array.
    """

    def __init__(self, metadata: ZarrMetadata) -> None:
        self._metadata = metadata
        self._largest, self._most = largest_file(metadata), codecs.largest(metadata)
        self._codec = metadata.compressors[-1] if metadata.compressors else ""

    def check_size(self, path: str, size: int) -> None:
        """Raise InvalidRun if a file has more bytes than its chunks can have."""
        if size > self._largest:
            raise damaged(path, f"it has {size} bytes, but its chunks have at most {self._largest}")

    def check(self, path: str, data: bytes, first: int, size: int) -> None:
        """Raise InvalidRun if a chunk claims to have more bytes than the metadata say. data: bytes of the file from
        byte `first` on. size: bytes of the whole file.
        """
        if self._is_index(first, len(data), size):
            self._index(path, data, size)
            return
        if self._metadata.shards is not None and len(data) == size:
            for offset, count in self._spans(path, data):
                self._check_chunk(path, memoryview(data)[offset : offset + count], offset)
        else:
            self._check_chunk(path, memoryview(data), first)

    def _is_index(self, first: int, count: int, size: int) -> bool:
        """Return whether `count` bytes of a file from byte `first` on are the index of a shard."""
        layout = self._metadata.shards
        if layout is None or count != self._metadata.index_bytes or count == size:
            return False
        return first + count == size if layout.at_end else first == 0

    def _index(self, path: str, data: bytes, size: int) -> shards.Index:
        """Return the index of a shard, whose file has `size` bytes. Raise InvalidRun if it is damaged."""
        try:
            return shards.parsed(data, self._metadata, size)
        except ValueError as reason:
            raise damaged(path, reason) from reason

    def _check_chunk(self, path: str, data: memoryview, at: int) -> None:
        try:
            codecs.check_claims(data, self._codec, self._most)
        except codecs.DAMAGE as reason:
            raise damaged(path, f"the chunk at byte {at}: {reason}") from reason

    def _spans(self, path: str, data: bytes) -> list[tuple[int, int]]:
        """Return the offset and the size of each chunk of a shard."""
        count, layout = self._metadata.index_bytes, self._metadata.shards
        assert layout is not None
        content = data[-count:] if layout.at_end else data[:count]
        index = self._index(path, content, len(data)).reshape(-1, 2).tolist()
        return [(offset, size) for offset, size in index if offset != shards.MISSING]


def opened_at_once(path: str, flags: int) -> int:
    """Open a file. A pipe, which has no writer, and a terminal in the place of a chunk are opened without harm."""
    return os.open(path, flags | os.O_NOCTTY | os.O_NONBLOCK)


class StoreFiles:
    """Files of the folder of an array. has_gaps: whether chunks may be missing. limits: limits of files of chunks; None
    until the metadata are known. contents: what files of metadata hold, by their names.
    """

    def __init__(self, folder: str, has_gaps: bool) -> None:
        self._folder = folder
        self._has_gaps = has_gaps
        self.limits: ChunkLimits | None = None
        self.contents: dict[str, bytes] = {}

    def get(self, key: str, byte_range: Any) -> bytes | None:
        """Return bytes of a file; None if it does not exist. Count the requests for the batch."""
        path, tally = f"{self._folder}/{key}", Tally()
        BATCH.get().append(tally)
        try:
            data = self._read(path, key in _MAY_LACK, byte_range, tally)
        except FileNotFoundError as fault:
            if self._has_gaps or key in _MAY_LACK:
                return None
            raise unopened(path, fault) from fault
        except OSError as fault:
            raise unopened(path, fault) from fault
        if key in _MAY_LACK:
            self.contents[key] = data
        return data

    def _read(self, path: str, is_metadata: bool, byte_range: Any, tally: Tally) -> bytes:
        """Read a file in the same way as LocalStore."""
        limits = None if is_metadata else self.limits
        with CountedFile(path, tally, opened_at_once) as file:
            status = os.fstat(file.fileno())
            size = status.st_size
            if not stat.S_ISREG(status.st_mode):
                raise unplanned(f"{path} is not a regular file")
            _check_size(path, size, limits)
            first, data = (0, file.readall()) if byte_range is None else _part(file, byte_range)
        if limits is not None:
            limits.check(path, data, first, size)
        return data


@functools.cache
def _store_class() -> Any:
    """Return the class of the store. It is made when zarr-python is needed."""
    import asyncio

    from zarr.core.buffer.core import default_buffer_prototype
    from zarr.storage import LocalStore

    base: Any = LocalStore

    class CountingStore(base):  # type: ignore[misc]
        """Store whose files are read by StoreFiles."""

        def __init__(self, folder: str, files: StoreFiles) -> None:
            super().__init__(folder, read_only=True)
            self.files = files

        async def get(self, key: str, prototype: Any = None, byte_range: Any = None) -> Any:
            if not self._is_open:
                await self._open()
            return _in_buffer(await asyncio.to_thread(self.files.get, key, byte_range), prototype)

        def get_sync(self, key: str, *, prototype: Any = None, byte_range: Any = None) -> Any:
            return _in_buffer(self.files.get(key, byte_range), prototype)

        async def get_partial_values(self, prototype: Any, key_ranges: Any) -> list[Any]:
            return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    def _in_buffer(data: bytes | None, prototype: Any) -> Any:
        return None if data is None else (prototype or default_buffer_prototype()).buffer.from_bytes(data)

    return CountingStore


def _check_size(path: str, size: int, limits: ChunkLimits | None) -> None:
    """Raise InvalidRun if a file is too large. limits: limits of a file of chunks; None for metadata."""
    if limits is not None:
        limits.check_size(path, size)
        return
    try:
        zarr_metadata.check_size(size)
    except zarr_metadata.UnreadableMetadata as reason:
        raise damaged(path, reason) from reason


def _part(file: CountedFile, byte_range: Any) -> tuple[int, bytes]:
    """Return the offset and the bytes of a part of a file."""
    from zarr.abc.store import OffsetByteRequest, RangeByteRequest

    with buffered(file) as through:
        size = through.seek(0, io.SEEK_END)
        if isinstance(byte_range, RangeByteRequest):
            through.seek(byte_range.start)
            return byte_range.start, through.read(byte_range.end - byte_range.start)
        first = byte_range.offset if isinstance(byte_range, OffsetByteRequest) else max(0, size - byte_range.suffix)
        through.seek(first)
        return first, through.read()


def made(folder: str, files: StoreFiles) -> Any:
    """Return a store of zarr-python for the folder of an array, whose files are read by `files`."""
    return _store_class()(folder, files)
