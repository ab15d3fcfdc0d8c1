"""Memory for the samples of a batch. Rows are aligned: the kernel copies from the page cache to aligned memory two to
three times faster, and O_DIRECT needs alignment.
"""

import mmap
from contextlib import suppress
from typing import NamedTuple

import numpy as np

from dlio_hpc.core.content import Rows

# Alignment of rows of at least a page, and of shorter rows (a cache line).
PAGE, LINE = 4096, 64
_HUGE_PAGE = 2 << 20


class Buffer(NamedTuple):
    """Memory of several samples. rows: a row of bytes per sample, shape (samples, bytes of the largest sample). views:
    for each row, a list that holds only the memory view of the row; preadv(2) takes such a list.
    """

    rows: Rows
    views: list[list[memoryview]]

    def part(self, which: slice) -> "Buffer":
        """Return the rows with the indices `which`."""
        return Buffer(self.rows[which], self.views[which])


def allocate(samples: int, width: int) -> Buffer:
    """Allocate aligned memory for `samples` rows of `width` bytes. Raise MemoryError if there is not enough memory. The
    kernel is asked for huge pages.
    """
    unit = PAGE if width >= PAGE else LINE
    stride = -(-width // unit) * unit
    try:
        memory = mmap.mmap(-1, samples * stride)
    except (OSError, OverflowError) as fault:
        raise MemoryError(str(fault)) from fault
    if len(memory) >= _HUGE_PAGE:
        with suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    rows = np.frombuffer(memory, np.uint8).reshape(samples, stride)[:, :width]
    view = memoryview(memory)
    return Buffer(rows, [[view[begin : begin + width]] for begin in range(0, samples * stride, stride)])


def over(rows: Rows) -> Buffer:
    """Return a buffer of memory that exists already. rows: contiguous, shape (samples, bytes)."""
    count, width = rows.shape
    view = rows.reshape(-1).data
    return Buffer(rows, [[view[begin : begin + width]] for begin in range(0, count * width, width)])
