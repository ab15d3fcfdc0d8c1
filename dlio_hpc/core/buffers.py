"""Memory for the samples of a batch. Rows are aligned: the kernel copies from the page cache to aligned memory two to
three times faster, and O_DIRECT needs alignment.
"""

import mmap
from contextlib import suppress
from ctypes import addressof, c_char
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
    view = _mapped(samples * stride)
    rows = np.frombuffer(view, np.uint8).reshape(samples, stride)[:, :width]
    return Buffer(rows, [[view[begin : begin + width]] for begin in range(0, samples * stride, stride)])


def _mapped(size: int) -> memoryview:
    """Return `size` bytes of new memory. Large memory begins at the start of a huge page."""
    is_large = size >= _HUGE_PAGE
    try:
        memory = mmap.mmap(-1, size + _HUGE_PAGE if is_large else size)
    except (OSError, OverflowError) as fault:
        raise MemoryError(str(fault)) from fault
    if not is_large:
        return memoryview(memory)
    with suppress(OSError):  # a kernel without huge pages
        memory.madvise(mmap.MADV_HUGEPAGE)
    begin = -addressof(c_char.from_buffer(memory)) % _HUGE_PAGE
    return memoryview(memory)[begin : begin + size]


def over(rows: Rows) -> Buffer:
    """Return a buffer that uses existing memory. rows: contiguous, shape (samples, bytes)."""
    count, width = rows.shape
    view = rows.reshape(-1).data
    return Buffer(rows, [[view[begin : begin + width]] for begin in range(0, count * width, width)])
