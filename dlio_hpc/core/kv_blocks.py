"""Blocks of KV caches on storage: a file for each block, for each conversation, or for each rank. Each call returns the
times at which its system calls began and ended; contents are made and compared outside of these times.
"""

import hashlib
import os
import re
from contextlib import suppress

from dlio_hpc.config.inference_keys import CacheModelName, InferenceKeys
from dlio_hpc.config.model_states import Precision
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.clock import now
from dlio_hpc.core.files import write_all
from dlio_hpc.dataset.kv_tiers import BlockPlace
from dlio_hpc.files import run_outputs

_POOL = "pool"
# Factor that makes a number of 64 bits, such as a hash has, from a serial.
_ODD = 0x9E3779B97F4A7C15
_OWN = re.compile(run_outputs.BLOCKS, re.ASCII)
# Start and end of the system calls of a block.
Span = tuple[float, float]


class ShortBlock(OSError):
    """Error of a block that has fewer bytes than were written."""


class BlockFiles:
    """A file for each block. folder: path of the folder of the files, which exists."""

    _created, _links, _mode = os.O_CREAT | os.O_EXCL, os.O_NOFOLLOW, 0o666

    def __init__(self, folder: str, keys: InferenceKeys) -> None:
        self.folder, self._size, self._fsync = folder, keys.block_bytes, keys.fsync
        self._more = os.O_CLOEXEC | self._links | (os.O_DIRECT if keys.direct else 0)
        self._opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)

    def path(self, place: BlockPlace) -> str:
        """Return the path of the file of a block."""
        return f"{self.folder}/b{place.serial}"

    def _draft(self, place: BlockPlace) -> str:
        """Return the path at which the file of a block is written."""
        return self.path(place)

    def _offset(self, place: BlockPlace) -> int:
        """Return the offset of a block in its file."""
        return 0

    def _put(self, file: int, place: BlockPlace, data: memoryview) -> None:
        """Write a block to its open file."""
        write_all(file, data)

    def write(self, place: BlockPlace, data: memoryview) -> Span:
        """Write a block to its file."""
        path, flags = self._draft(place), os.O_WRONLY | self._created | self._more
        began = now()
        with darshan_fd_gate.opening():
            file = os.open(path, flags, self._mode)
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
        """Remove the files of blocks from the folder that was opened at first, and the folder if it is then empty."""
        for name in os.listdir(self._opened):
            if _OWN.fullmatch(name):
                os.unlink(name, dir_fd=self._opened)
        os.close(self._opened)
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


class LMCacheFiles(BlockFiles):
    """Files that LMCache's local disk backend can read: their names, their bytes and the system calls are those of
    LMCache 0.5.6 of 2026. A file has the bytes of a block and nothing more. Its name has the model, the number of ranks
    of the engine, the rank, a hash of the tokens and the number format. Here, the hash follows from the serial.
    """

    _created, _links, _mode = os.O_CREAT, 0, 0o644

    def __init__(self, folder: str, keys: InferenceKeys) -> None:
        super().__init__(folder, keys)
        self._direct = keys.direct
        self._model = _LMCACHE_MODELS[keys.model] if isinstance(keys.model, str) else "model"
        self._format = _LMCACHE_FORMATS[keys.architecture.precision]

    def path(self, place: BlockPlace) -> str:
        number = (place.serial + 1) * _ODD % 2**64  # differs for each serial
        return f"{self.folder}/{self._model.replace('/', '-')}@1@0@{number:x}@{self._format}.pt"

    def write(self, place: BlockPlace, data: memoryview) -> Span:
        """Write a block to its file. Without O_DIRECT, LMCache uses a file object of Python."""
        if self._direct:
            return super().write(place, data)
        path = self._draft(place)
        began = now()
        with darshan_fd_gate.opening():
            file = open(path, "wb")  # noqa: SIM115 - closed behind the gate
        try:
            file.write(data)
            if self._fsync:
                file.flush()
                os.fsync(file.fileno())
        finally:
            with darshan_fd_gate.closing():
                file.close()
        return began, now()

    def read(self, place: BlockPlace, data: memoryview) -> Span:
        """Read a block with a file object of Python, which looks at the status of the file after it is opened."""
        path, flags = self.path(place), os.O_RDONLY | self._more
        began = now()
        with darshan_fd_gate.opening():
            file = os.fdopen(os.open(path, flags), "rb", 0) if self._direct else open(path, "rb")  # noqa: SIM115
        try:
            done = 0
            while done < len(data):
                count = file.readinto(data[done:])
                if not count:
                    raise _short(done, data)
                done += count
        finally:
            with darshan_fd_gate.closing():
                file.close()
        return began, now()


class LMCacheAdapterFiles(LMCacheFiles):
    """Files that LMCache's adapter of file systems (L2 adapter fs) can find and read. A block is written to a temporary
    file, which is then renamed. The adapter asks whether a file exists before each operation.
    """

    def path(self, place: BlockPlace) -> str:
        return f"{self._stem(place)}.data"

    def _draft(self, place: BlockPlace) -> str:
        return f"{self._stem(place)}.tmp"

    def _stem(self, place: BlockPlace) -> str:
        number = hashlib.sha256(place.serial.to_bytes(8, "big")).hexdigest()
        return f"{self.folder}/{self._model.replace('/', '-SEP-')}@0x01000100@0@{number}"

    def write(self, place: BlockPlace, data: memoryview) -> Span:
        """Write a block to its file under a temporary name."""
        path = self.path(place)
        began = now()
        os.path.exists(path)
        super().write(place, data)
        os.rename(self._draft(place), path)
        return began, now()

    def read(self, place: BlockPlace, data: memoryview) -> Span:
        """Look for the file of a block, and read it."""
        path = self.path(place)
        began = now()
        os.path.exists(path)
        _, ended = super().read(place, data)
        return began, ended

    def remove(self, place: BlockPlace) -> None:
        path = self.path(place)
        os.stat(path)
        os.unlink(path)


# Names that the models have on Hugging Face, and names of number formats in LMCache (lmcache/utils.py).
_LMCACHE_MODELS: dict[CacheModelName, str] = {
    "llama3_8b": "meta-llama/Llama-3.1-8B",
    "llama3_70b": "meta-llama/Llama-3.1-70B",
}
_LMCACHE_FORMATS: dict[Precision, str] = {"fp32": "float", "bf16": "bfloat16", "fp16": "half", "fp8": "fp8_e4m3fn"}
_LAYOUTS = {
    "block": BlockFiles, "sequence": SequenceFiles, "pool": BlockPool,
    "lmcache": LMCacheFiles, "lmcache_fs": LMCacheAdapterFiles,
}  # fmt: skip


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
            raise _short(done, data)
        done += count


def _short(done: int, data: memoryview) -> ShortBlock:
    """Return the error of a block that ends after `done` bytes."""
    return ShortBlock(f"a block has {done} bytes, but {len(data)} were written")


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
