"""Counters of reads."""

import pytest

from dlio_hpc.core.io_counters import Tally


def test_bytes_are_moved_to_overhead_and_never_back() -> None:
    tally = Tally()
    tally.add(0.0, 100)
    tally.move_to_overhead(30)
    tally.move_to_overhead(0)
    assert (tally.bytes_read, tally.overhead_bytes) == (70, 30)
    with pytest.raises(ValueError, match="7 bytes fewer than its samples have"):
        tally.move_to_overhead(-7)
    assert (tally.bytes_read, tally.overhead_bytes) == (70, 30)
