import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.core import buffers


@given(samples=st.integers(1, 40), width=st.integers(1, 300_000))
@settings(max_examples=60, deadline=None)
def test_rows_are_aligned_and_apart(samples: int, width: int) -> None:
    buffer = buffers.allocate(samples, width)
    assert buffer.rows.shape == (samples, width)
    unit = 4096 if width >= 4096 else 64
    for number, row in enumerate(buffer.rows):
        assert row.ctypes.data % unit == 0
        row[:] = number
    for number, ((view,), row) in enumerate(zip(buffer.views, buffer.rows, strict=True)):
        assert len(view) == width
        assert view[0] == view[-1] == number
        view[0] = 255 - number
        assert row[0] == 255 - number


def test_a_part_of_a_buffer_is_the_same_memory() -> None:
    buffer = buffers.over(np.zeros((7, 5), np.uint8))
    part = buffer.part(slice(1, 6, 2))
    for (view,) in part.views:
        view[:] = b"\x01" * 5
    assert buffer.rows.sum(axis=1).tolist() == [0, 5, 0, 5, 0, 5, 0]
    assert part.rows.sum() == 15


def test_large_memory_begins_at_a_huge_page() -> None:
    assert buffers.allocate(4, 1 << 20).rows.ctypes.data % (2 << 20) == 0


def test_too_much_memory_is_refused() -> None:
    with pytest.raises(MemoryError):
        buffers.allocate(1 << 20, 1 << 42)
