"""Files that are read as streams: consecutive requests of the same size, up to the end of the file.

Only one thread at a time may read a stream; different threads may read different streams. A block is kept in memory
until all of its bytes have been requested. If records are requested in order, one block of each file is kept. Otherwise
all blocks of a file may be kept.
"""

from collections.abc import Callable

import numpy as np

from dlio_hpc.core.content import Rows
from dlio_hpc.core.files import OpenFiles, ReadRequests
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.io_counters import Tally


class Streams:
    """Streams of several files. file_size: function that returns the size of the file with a given number. whole: if
    True, a file is read from start to end before any of its bytes are delivered. If False, the file is read from the
    first requested byte on, as far as needed.
    """

    def __init__(self, paths: Paths, file_size: Callable[[int], int], block_size: int, whole: bool) -> None:
        self._files = OpenFiles(paths, block_size)
        self._file_size = file_size
        self._block_size = block_size
        self._whole = whole
        self._open: dict[int, _Stream] = {}
        self._free: list[Rows] = []

    def read(self, number: int, offset: int, views: list[memoryview], tally: Tally) -> None:
        """Read into `views` the bytes of file `number` that start at `offset`. If a block is no longer kept in memory,
        its bytes are read from the file again.
        """
        for view in views:
            done = 0
            while done < len(view):
                done += self._take(number, offset + done, view[done:], tally)
            offset += len(view)

    def _take(self, number: int, offset: int, view: memoryview, tally: Tally) -> int:
        """Fill the beginning of `view` with the bytes of the file that start at `offset`. All these bytes are from a
        single block. Return their number, which may be less than the length of `view`.
        """
        stream = self._open.get(number)
        if stream is None or not stream.has(offset):
            begin = 0 if self._whole else offset
            stream = self._open[number] = _Stream(begin, self._file_size(number), self._block_size)
        while stream.next <= offset or (self._whole and stream.next < stream.end):
            length = min(self._block_size, stream.end - stream.next)
            if stream.next == offset and length <= len(view) and not self._whole:  # no later read needs it
                self._fetch(number, stream, view[:length], tally)
                self._forget(number, stream)
                return length
            block = stream.blocks[stream.next] = _Block(self._memory(), length)
            self._fetch(number, stream, block.memory[:length].data, tally)
        begin = stream.block_of(offset)
        block = stream.blocks[begin]
        part = block.memory[offset - begin : block.length].data[: len(view)]
        view[: len(part)] = part
        block.left -= len(part)
        if block.left <= 0:
            self._free.append(stream.blocks.pop(begin).memory)
            self._forget(number, stream)
        return len(part)

    def _forget(self, number: int, stream: "_Stream") -> None:
        """Remove the stream if its whole file has been read and no block is kept in memory."""
        if stream.next == stream.end and not stream.blocks:
            del self._open[number]

    def _fetch(self, number: int, stream: "_Stream", view: memoryview, tally: Tally) -> None:
        self._files.fetch(ReadRequests.single(number, stream.next, [view]), tally)
        stream.next += len(view)
        if stream.next == stream.end:
            self._files.find_end(number, stream.end, tally)

    def _memory(self) -> Rows:
        try:
            return self._free.pop()
        except IndexError:  # another thread may have taken the last block
            return np.empty(self._block_size, np.uint8)

    def close(self) -> None:
        """Discard all blocks and close all files."""
        self._open.clear()
        self._free.clear()
        self._files.close()


class _Stream:
    """Stream of a file from byte `begin` to byte `end`. next: offset up to which the file has been read. blocks: blocks
    that are kept in memory, by the offset of their first byte.
    """

    def __init__(self, begin: int, end: int, block_size: int) -> None:
        self.begin = self.next = begin
        self.end = end
        self.blocks: dict[int, _Block] = {}
        self._block_size = block_size

    def block_of(self, offset: int) -> int:
        """Return the offset of the first byte of the block that contains the byte at `offset`."""
        return offset - (offset - self.begin) % self._block_size

    def has(self, offset: int) -> bool:
        """Return True if the byte at `offset` is in a block that is kept in memory, or if the stream has not read the
        byte yet. Return False if the byte must be read from the file again.
        """
        return offset >= self.next or (offset >= self.begin and self.block_of(offset) in self.blocks)


class _Block:
    """A block of `length` bytes of a file. left: number of its bytes that have not been delivered yet."""

    def __init__(self, memory: Rows, length: int) -> None:
        self.memory = memory
        self.left = self.length = length
