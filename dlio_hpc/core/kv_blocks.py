"""Blocks of KV caches on storage: a file for each block, for each conversation, or for each rank. Each call returns the
times at which its system calls began and ended; contents are made and compared outside of these times.
"""

import os
import re
from contextlib import suppress

from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.clock import now
from dlio_hpc.core.files import write_all
from dlio_hpc.dataset.kv_tiers import BlockPlace

_POOL = "pool"
_OWN = re.compile(rf"[bs]\d+|{_POOL}", re.ASCII)
# Start and end of the system calls of a block.
Span = tuple[float, float]


class ShortBlock(OSError):
    """Error of a block that has fewer bytes than were written."""


class BlockFiles:
    """A file for each block. folder: path of the folder of the files, which exists."""

    _created = os.O_CREAT | os.O_EXCL

    def __init__(self, folder: str, keys: InferenceKeys) -> None:
        self.folder, self._size, self._fsync = folder, keys.block_bytes, keys.fsync
        self._more = os.O_CLOEXEC | (os.O_DIRECT if keys.direct else 0)

    def path(self, place: BlockPlace) -> str:
        """Return the path of the file of a block."""
        return f"{self.folder}/b{place.serial}"

    def _offset(self, place: BlockPlace) -> int:
        """Return the offset of a block in its file."""
        return 0

    def _put(self, file: int, place: BlockPlace, data: memoryview) -> None:
        """Write a block to its open file."""
        write_all(file, data)

    def write(self, place: BlockPlace, data: memoryview) -> Span:
        """Write a block to its file."""
        path, flags = self.path(place), os.O_WRONLY | self._created | self._more
        began = now()
        with darshan_fd_gate.opening():
            file = os.open(path, flags, 0o666)
        try:
            self._put(file, place, data)
            if self._fsync:
                os.fsync(file)
        finally:
            with darshan_fd_gate.closing():
                os.close(file)
        return began, now()

    def read(self, place: BlockPlace, data: memoryview) -> Span:
        """Read a block into `data`."""
        path, flags = self.path(place), os.O_RDONLY | self._more
        began = now()
        with darshan_fd_gate.opening():
            file = os.open(path, flags)
        try:
            _fill(file, data, self._offset(place))
        finally:
            with darshan_fd_gate.closing():
                os.close(file)
        return began, now()

    def remove(self, place: BlockPlace) -> None:
        """Remove the file of a block."""
        os.unlink(self.path(place))

    def forget(self, place: BlockPlace) -> None:
        """Write the pages of a block to storage, and remove them from the page cache."""
        _forget(self.path(place))

    def close(self) -> None:
        """Remove the files of blocks, and the folder if it is then empty."""
        with os.scandir(self.folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            if _OWN.fullmatch(name):
                os.unlink(f"{self.folder}/{name}")
        with suppress(OSError):  # another program may have put files there, which are named at the end of the run
            os.rmdir(self.folder)


class SequenceFiles(BlockFiles):
    """A file for each conversation. Its blocks follow each other. They are removed only with the folder."""

    _created = os.O_CREAT

    def path(self, place: BlockPlace) -> str:
        return f"{self.folder}/s{place.sequence}"

    def _offset(self, place: BlockPlace) -> int:
        return place.part * self._size

    def _put(self, file: int, place: BlockPlace, data: memoryview) -> None:
        _write(file, data, self._offset(place))


class BlockPool(BlockFiles):
    """A file with a part for each block, which stays open. A part is used again after its block was removed."""

    def __init__(self, folder: str, keys: InferenceKeys) -> None:
        super().__init__(folder, keys)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | self._more
        with darshan_fd_gate.opening():
            self._file = os.open(f"{folder}/{_POOL}", flags, 0o666)

    def path(self, place: BlockPlace) -> str:
        return f"{self.folder}/{_POOL}"

    def write(self, place: BlockPlace, data: memoryview) -> Span:
        """Write a block to its part of the file."""
        at = place.slot * self._size
        began = now()
        _write(self._file, data, at)
        if self._fsync:
            os.fsync(self._file)
        return began, now()

    def read(self, place: BlockPlace, data: memoryview) -> Span:
        at = place.slot * self._size
        began = now()
        _fill(self._file, data, at)
        return began, now()

    def remove(self, place: BlockPlace) -> None:
        """Do nothing: the part of the block is used again."""

    def close(self) -> None:
        with darshan_fd_gate.closing():
            os.close(self._file)
        super().close()


_LAYOUTS = {"block": BlockFiles, "sequence": SequenceFiles, "pool": BlockPool}


def opened(folder: str, keys: InferenceKeys) -> BlockFiles:
    """Make the folder of a rank, and return its blocks."""
    os.mkdir(folder)
    return _LAYOUTS[keys.file_layout](folder, keys)


def _write(file: int, data: memoryview, at: int) -> None:
    """Write all of `data` to an open file from the offset `at` on."""
    done = 0
    while done < len(data):
        done += os.pwrite(file, data[done:], at + done)


def _fill(file: int, data: memoryview, at: int) -> None:
    """Fill `data` with the bytes of an open file from the offset `at` on."""
    done = 0
    while done < len(data):
        count = os.preadv(file, [data[done:]], at + done)
        if not count:
            raise ShortBlock(f"a block has {done} bytes, but {len(data)} were written")
        done += count


def _forget(path: str) -> None:
    """Write the pages of a file to storage, and remove them from the page cache."""
    with darshan_fd_gate.opening():
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        with darshan_fd_gate.closing():
            os.close(file)
