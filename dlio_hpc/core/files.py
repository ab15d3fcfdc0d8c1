"""Files that are read with preadv(2). All threads of a rank share the descriptors. Each request is counted when it
returns.
"""

import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from dlio_hpc.config.reader_keys import BLOCK
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.clock import now
from dlio_hpc.core.handle_cache import HandleCache
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.errors import ConfigError, InfrastructureError, InvalidRun, unreadable

# Maximum number of buffers in a preadv call on Linux (UIO_MAXIOV).
_MOST_VIEWS = 1024
# Appended to messages about a missing file of the dataset.
ABSENT = "; the dataset may have been removed or never generated"


class ReadRequest(NamedTuple):
    """A request to read from `offset` of file `number` into `views`, which are filled in order."""

    number: int
    offset: int
    views: list[memoryview]


class OpenFile(NamedTuple):
    """An open file. path: its path, for messages."""

    path: str
    descriptor: int

    def read(self, views: list[memoryview], offset: int, transfer_size: int, tally: Tally) -> None:
        """Fill `views` with the bytes of the file that start at `offset`, in requests of `transfer_size` bytes. Raise
        InvalidRun if the file ends before the views are full.
        """
        wanted = sum(map(len, views))
        done, cursor = 0, _Cursor(views)
        while done < wanted:
            count = self._request(cursor.window(transfer_size), offset + done, (offset, offset + wanted), tally)
            cursor.advance(count)
            done += count

    def read_direct(self, views: list[memoryview], offset: int, transfer_size: int, tally: Tally) -> None:
        """Fill `views` like read(), but with O_DIRECT: read whole blocks into an aligned buffer, and copy the wanted
        bytes from the buffer.
        """
        end = offset + sum(map(len, views))
        begin, stop = offset // BLOCK * BLOCK, -(-end // BLOCK) * BLOCK
        block_size = -(-transfer_size // BLOCK) * BLOCK
        aligned = _aligned_buffer(min(block_size, stop - begin))
        cursor = _Cursor(views)
        while begin < end:
            part = aligned[: min(block_size, stop - begin)]
            count = self._request([part], begin, (offset, end), tally)
            first, last = max(begin, offset), min(begin + count, end)
            cursor.copy(part[first - begin : max(first, last) - begin])
            tally.move_to_overhead(count - max(0, last - first))
            if last < end and count % BLOCK:
                raise self._too_short((offset, end))
            begin += count

    def _request(self, views: list[memoryview], offset: int, wanted: tuple[int, int], tally: Tally) -> int:
        count = self._ask(views, offset, tally)
        if not count:
            raise self._too_short(wanted)
        return count

    def _ask(self, views: list[memoryview], offset: int, tally: Tally) -> int:
        started = now()
        try:
            count = os.preadv(self.descriptor, views, offset)
        except OSError as fault:
            raise InfrastructureError(f"cannot read {self.path} at byte {offset}: {fault.strerror}") from fault
        tally.add(started, count)
        return count

    def _too_short(self, wanted: tuple[int, int]) -> InvalidRun:
        return InvalidRun(
            f"{self.path} ends at byte {os.fstat(self.descriptor).st_size}, but data were expected from byte "
            f"{wanted[0]} to {wanted[1]}: the file is truncated; remove the dataset's folder and generate it again"
        )

    def find_end(self, offset: int, tally: Tally) -> None:
        """Request a byte at `offset`, where the file ends. A program that reads until it finds the end of a file makes
        the same request.
        """
        self._ask([memoryview(bytearray(1))], offset, tally)

    def close(self) -> None:
        """Close the file. Errors are ignored, because nothing was written."""
        with darshan_fd_gate.closing(), suppress(OSError):
            os.close(self.descriptor)


def open_file(path: str, direct: bool = False) -> OpenFile:
    """Open a file for reading, with O_DIRECT if `direct` is True. Raise InvalidRun if the file does not exist,
    InfrastructureError if it cannot be opened, and ConfigError if its file system does not support O_DIRECT.
    """
    try:
        with darshan_fd_gate.opening():
            return OpenFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)))
    except OSError as fault:
        if fault.errno == errno.EINVAL and direct:
            raise ConfigError(f"the file system of {path} has no O_DIRECT; set reader.direct: false") from fault
        raise unreadable(fault, path, InvalidRun, ABSENT) from fault


def write_all(descriptor: int, data: memoryview) -> None:
    """Write all of `data`, with several calls if needed. A single write(2) may write only part of the data if they are
    larger than 2 GiB or if the disk is nearly full.
    """
    done = 0
    while done < len(data):
        done += os.write(descriptor, data[done:])


def write_file(descriptor: int, pieces: Iterable[bytes | memoryview]) -> None:
    """Write the pieces in order to an open file, and truncate the file at the end of the last piece."""
    size = 0
    for piece in pieces:
        write_all(descriptor, memoryview(piece))
        size += len(piece)
    os.ftruncate(descriptor, size)


class OpenFiles:
    """Cache of the open files of a dataset, by file number. Files are read in requests of `transfer_size` bytes."""

    def __init__(self, paths: Callable[[int], str], transfer_size: int, direct: bool = False) -> None:
        self._kept: HandleCache[OpenFile] = HandleCache(lambda number, _: open_file(paths(number), direct))
        self._transfer_size = transfer_size
        self._direct = direct

    def fetch(self, requests: Sequence[ReadRequest], tally: Tally) -> None:
        """Read all `requests` in order."""
        for number, of_file in groupby(requests, itemgetter(0)):
            with self._kept.use(number, tally) as file:
                read = file.read_direct if self._direct else file.read
                for _, offset, views in of_file:
                    read(views, offset, self._transfer_size, tally)

    def find_end(self, number: int, offset: int, tally: Tally) -> None:
        """Request a byte at `offset`, where file `number` ends. A program that reads until it finds the end of a file
        makes the same request.
        """
        with self._kept.use(number, tally) as file:
            file.find_end(offset, tally)

    def close(self) -> None:
        """Close all files. A later use of a file opens it again."""
        self._kept.close()


_buffers = threading.local()


def _aligned_buffer(size: int) -> memoryview:
    """Return a page-aligned buffer of at least `size` bytes. Each thread has one such buffer, which later calls return
    again.
    """
    if len(getattr(_buffers, "aligned", b"")) < size:
        _buffers.aligned = memoryview(mmap.mmap(-1, size))
    aligned: memoryview = _buffers.aligned
    return aligned


class _Cursor:
    """A position in a list of memory views, which advances as the views are filled."""

    def __init__(self, views: list[memoryview]) -> None:
        self._views = views
        self._number = self._inside = 0

    def window(self, size: int) -> list[memoryview]:
        """Return views of the next `size` bytes. The views have fewer bytes if fewer are left, or if preadv's limit on
        the number of buffers is reached.
        """
        window: list[memoryview] = []
        number, inside = self._number, self._inside
        while size > 0 and number < len(self._views) and len(window) < _MOST_VIEWS:
            part = self._views[number][inside : inside + size]
            if len(part):
                window.append(part)
            size -= len(part)
            number, inside = number + 1, 0
        return window

    def advance(self, count: int) -> None:
        """Move the position forward by `count` bytes."""
        while count > 0:
            left = len(self._views[self._number]) - self._inside
            if count < left:
                self._inside += count
                return
            count -= left
            self._number, self._inside = self._number + 1, 0

    def copy(self, source: memoryview) -> None:
        """Copy `source` to the next bytes of the views."""
        while len(source):
            for target in self.window(len(source)):
                target[:] = source[: len(target)]
                self.advance(len(target))
                source = source[len(target) :]
