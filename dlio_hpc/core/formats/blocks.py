"""Files read in blocks of one size from their begin on, as a buffered stream does, shared by a rank's threads.

Who reads its last block finds the file's end with one more request, as a stream does that reads until nothing comes. A
block is forgotten as soon as all of it was taken; of those taken in part, which are few where samples come in the
order of their files, the last ones are kept.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable

import numpy as np

from dlio_hpc.core.content import Rows
from dlio_hpc.core.files import OpenFiles, Request
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.tally import Tally

_MOST_KEPT = 32


class Blocks:
    """Blocks of `block_size` of files whose length `file_size` knows by their number."""

    def __init__(self, paths: Paths, file_size: Callable[[int], int], block_size: int) -> None:
        self._files = OpenFiles(paths, block_size)
        self._file_size = file_size
        self._block_size = block_size
        self._lock = threading.Lock()
        self._blocks: OrderedDict[tuple[int, int], _Block] = OrderedDict()
        self._free: list[Rows] = []

    def read(self, number: int, offset: int, views: list[memoryview], tally: Tally) -> None:
        """Bytes of file `number` from `offset` on into `views`."""
        for view in views:
            done = 0
            while done < len(view):
                index, begin = divmod(offset + done, self._block_size)
                length = self._length(number, index)
                if begin or len(view) - done < length:
                    done += self._take((number, index), begin, view[done:], tally)
                else:  # a block that nobody else needs a part of
                    self._fetch(number, offset + done, view[done : done + length], tally)
                    done += length
            offset += len(view)

    def _take(self, key: tuple[int, int], begin: int, view: memoryview, tally: Tally) -> int:
        """As much of a block, from its byte `begin` on, as there is and fits."""
        with self._lock:
            block = self._blocks.pop(key, None) or _Block(self._memory(), self._length(*key))
            self._blocks[key] = block
        data = block.data(lambda memory: self._fetch(key[0], key[1] * self._block_size, memory, tally))
        part = data[begin : begin + len(view)]
        view[: len(part)] = part
        with self._lock:
            block.left -= len(part)
            if block.left == 0:  # nobody looks at it any more: its memory serves the next
                self._blocks.pop(key, None)
                self._free.append(block.memory)
            elif len(self._blocks) > _MOST_KEPT:
                self._blocks.popitem(last=False)
        return len(part)

    def _fetch(self, number: int, offset: int, view: memoryview, tally: Tally) -> None:
        self._files.fetch([Request(number, offset, [view])], tally)
        if offset + len(view) == self._file_size(number):
            self._files.find_end(number, offset + len(view), tally)

    def _memory(self) -> Rows:
        return self._free.pop() if self._free else np.empty(self._block_size, np.uint8)

    def _length(self, number: int, index: int) -> int:
        return min(self._block_size, self._file_size(number) - index * self._block_size)

    def close(self) -> None:
        """Forget all blocks and close all files."""
        with self._lock:
            self._blocks.clear()
            self._free.clear()
        self._files.close()


class _Block:
    """Read by the first thread that needs it; others wait for it."""

    def __init__(self, memory: Rows, length: int) -> None:
        self.memory = memory
        self.left = self._length = length
        self._lock = threading.Lock()
        self._is_read = False

    def data(self, fetch: Callable[[memoryview], None]) -> memoryview:
        with self._lock:
            if not self._is_read:
                fetch(self.memory[: self._length].data)
                self._is_read = True
        return self.memory[: self._length].data
