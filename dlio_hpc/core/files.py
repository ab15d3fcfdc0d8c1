"""Files that are read with preadv(2). All threads of a rank share the file descriptors. Each request is counted when it
returns.
"""

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterable
from ctypes import addressof, c_char
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError, InvalidRun
from dlio_hpc.config.reader_keys import BLOCK
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.clock import now
from dlio_hpc.core.dataset_faults import irregular, unopened, unplanned
from dlio_hpc.core.handle_cache import HandleCache
from dlio_hpc.core.io_counters import Tally

# Maximum number of buffers in a preadv call on Linux (UIO_MAXIOV).
MOST_VIEWS = 1024


class ReadRequests(NamedTuple):
    """Read requests. Each list has one element per request. files: numbers of the files. offsets: offsets in the file
    in bytes. sizes: sizes in bytes. views: memory views, at most 1024, which are filled in order.
    """

    files: list[int]
    offsets: list[int]
    sizes: list[int]
    views: list[list[memoryview]]

    @classmethod
    def single(cls, file: int, offset: int, views: list[memoryview]) -> "ReadRequests":
        """Return a single request, which fills `views`."""
        return cls([file], [offset], [sum(map(len, views))], [views])


class OpenFile(NamedTuple):
    """An open file. path: its path, for messages. direct: whether it is open with O_DIRECT."""

    path: str
    descriptor: int
    direct: bool = False

    def read(self, views: list[memoryview], offset: int, transfer_size: int, tally: Tally, done: int = 0) -> None:
        """Fill `views` with the bytes of the file that start at `offset`, in requests of `transfer_size` bytes. Raise
        InvalidRun if the file ends before the views are full. done: number of bytes that are already in the views.
        """
        wanted = sum(map(len, views))
        expected = offset, offset + wanted
        if self.direct and not _fit_for_direct(views, offset):
            self._read_blocks(views, offset, transfer_size, tally)
            return
        if not done and wanted <= transfer_size:
            done = self._request(views, offset, expected, tally)
        cursor = _Cursor(views)
        cursor.advance(done)
        while done < wanted:
            if self.direct and done % BLOCK:
                raise self._too_short(expected)
            count = self._request(cursor.window(transfer_size), offset + done, expected, tally)
            cursor.advance(count)
            done += count

    def _read_blocks(self, views: list[memoryview], offset: int, transfer_size: int, tally: Tally) -> None:
        """Fill `views` with O_DIRECT: read whole blocks into an aligned buffer, and copy the wanted bytes from the
        buffer.
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
        count = self.ask(views, offset, tally)
        if not count:
            raise self._too_short(wanted)
        return count

    def ask(self, views: list[memoryview], offset: int, tally: Tally) -> int:
        """Make one request, and return the number of bytes that it returned."""
        started = now()
        try:
            count = os.preadv(self.descriptor, views, offset)
        except OSError as fault:
            raise self.failed(offset, fault) from fault
        tally.add(started, count)
        return count

    def failed(self, offset: int, fault: OSError) -> DlioError:
        """Return the error for a request at `offset` that failed."""
        return irregular(self.path, fault) or InfrastructureError(
            f"cannot read {self.path} at byte {offset}: {fault.strerror}"
        )

    def _too_short(self, wanted: tuple[int, int]) -> InvalidRun:
        return unplanned(
            f"{self.path} ends at byte {os.fstat(self.descriptor).st_size}, but data were expected from byte "
            f"{wanted[0]} to {wanted[1]}: the file is truncated"
        )

    def find_end(self, offset: int, tally: Tally) -> None:
        """Request a byte at `offset`, the end of the file. A program that reads a file until no data are left makes the
        same request.
        """
        self.ask([memoryview(bytearray(1))], offset, tally)

    def close(self) -> None:
        """Close the file. Errors are ignored, because nothing was written."""
        with darshan_fd_gate.closing():
            try:  # noqa: SIM105 - suppress() takes as long as the call
                os.close(self.descriptor)
            except OSError:
                pass


def open_file(path: str, direct: bool = False) -> OpenFile:
    """Open a file for reading, with O_DIRECT if `direct` is True. Raise InvalidRun if the file does not exist or is not
    a regular file, InfrastructureError if it cannot be opened, and ConfigError if its file system does not support
    O_DIRECT.
    """
    try:
        with darshan_fd_gate.opening():
            return OpenFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if direct else 0)), direct)
    except OSError as fault:
        if fault.errno == errno.EINVAL and direct and irregular(path, fault) is None:
            raise ConfigError(f"the file system of {path} has no O_DIRECT; set reader.direct=false") from fault
        raise unopened(path, fault) from fault


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
    """Cache of the open files of a dataset, by file number. Files are read in requests of at most `transfer_size`
    bytes. once: if True, files are not kept open: each request opens its file and closes it. It is True if the key
    reader.reopen is set, or if each file holds one sample in one array, because an epoch then needs each file only
    once.
    """

    def __init__(
        self, paths: Callable[[int], str], transfer_size: int, direct: bool = False, once: bool = False
    ) -> None:
        self._paths = paths
        self._kept: HandleCache[OpenFile] = HandleCache(lambda number, _: open_file(paths(number), direct))
        self._transfer_size = transfer_size
        self._direct = direct
        self._once = once
        self._is_watched = darshan_fd_gate.is_watched()

    def fetch(self, reads: ReadRequests, tally: Tally) -> None:
        """Read all requests in order."""
        if not reads.files:
            return
        is_small = not self._direct and max(reads.sizes) <= self._transfer_size
        if self._once and is_small and not self._is_watched:
            self._fetch_small_files(reads, tally)
        elif self._once:
            self._fetch_once(reads, is_small, tally)
        elif is_small:
            self._fetch_small(lambda number: self._kept.get(number, tally), reads, tally)
        else:
            for number, offset, _, views in zip(*reads, strict=True):
                self._kept.get(number, tally).read(views, offset, self._transfer_size, tally)

    def _fetch_once(self, reads: ReadRequests, is_small: bool, tally: Tally) -> None:
        for number, offset, size, views in zip(*reads, strict=True):
            started = now()
            file = open_file(self._paths(number), self._direct)
            tally.open(started)
            try:
                count = file.ask(views, offset, tally) if is_small else 0
                if count < size:
                    file.read(views, offset, self._transfer_size, tally, count)
            finally:
                started = now()
                file.close()
                tally.close(started)

    def _fetch_small_files(self, reads: ReadRequests, tally: Tally) -> None:
        """Open, read and close a file for each read request. The loop has as few statements as possible, because a few
        statements take more time than opening a file in memory.
        """
        preadv, opening, closing, flags = os.preadv, os.open, os.close, os.O_RDONLY | os.O_CLOEXEC
        counts: list[int] = []
        start, end, counted = tally.starts.append, tally.ends.append, counts.append
        opened, closed = tally.opened.append, tally.closed.append
        for number, offset, _, views in zip(*reads, strict=True):
            path, descriptor = self._paths(number), -1
            began = now()
            try:
                descriptor = opening(path, flags)
                started = now()
                count = preadv(descriptor, views, offset)
            except OSError as fault:
                if descriptor < 0:
                    raise unopened(path, fault) from fault
                file = OpenFile(path, descriptor)
                file.close()
                raise file.failed(offset, fault) from fault
            ended = now()
            try:  # noqa: SIM105 - suppress() takes as long as the call
                closing(descriptor)
            except OSError:  # nothing was written
                pass
            opened((began, started))
            closed((ended, now()))
            start(started)
            end(ended)
            counted(count)
        tally.opens += len(counts)
        tally.count_all(counts)
        if counts != reads.sizes:
            self._fetch_rests(reads, counts, tally)

    def _fetch_rests(self, reads: ReadRequests, counts: list[int], tally: Tally) -> None:
        """Open the files again whose requests returned fewer bytes than wanted, and read the rest. counts: number of
        bytes that each request returned.
        """
        for count, number, offset, size, views in zip(counts, *reads, strict=True):
            if count < size:
                with contextlib.closing(open_file(self._paths(number))) as file:
                    file.read(views, offset, self._transfer_size, tally, count)

    def _fetch_small(self, get: Callable[[int], OpenFile], reads: ReadRequests, tally: Tally) -> None:
        """Perform read requests that need one call each. The loop has as few statements as possible, because a few
        statements take more time than a small request. get: function that returns the file with a given number.
        """
        preadv = os.preadv
        counts: list[int] = []
        start, end, counted = tally.starts.append, tally.ends.append, counts.append
        current, offset = -1, 0
        try:
            for number, offset, views in zip(reads.files, reads.offsets, reads.views, strict=True):
                if number != current:
                    file = get(number)
                    current, descriptor = number, file.descriptor
                started = now()
                count = preadv(descriptor, views, offset)
                end(now())
                start(started)
                counted(count)
        except OSError as fault:
            raise file.failed(offset, fault) from fault
        tally.count_all(counts)
        if counts != reads.sizes:
            for count, number, offset, size, views in zip(counts, *reads, strict=True):
                if count < size:
                    get(number).read(views, offset, self._transfer_size, tally, count)

    def find_end(self, number: int, offset: int, tally: Tally) -> None:
        """Request a byte at `offset`, the end of file `number`. A program that reads a file until no data are left
        makes the same request.
        """
        self._kept.get(number, tally).find_end(offset, tally)

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


def _fit_for_direct(views: list[memoryview], offset: int) -> bool:
    """Return whether O_DIRECT can read into `views` without a copy. It can if offset, sizes and addresses are multiples
    of the block size.
    """
    return offset % BLOCK == 0 and all(
        len(view) % BLOCK == 0 and addressof(c_char.from_buffer(view)) % BLOCK == 0 for view in views
    )


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
        while size > 0 and number < len(self._views) and len(window) < MOST_VIEWS:
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
