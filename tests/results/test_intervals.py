"""Intervals of time have a union, an overlap with others, and amounts per bin."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.results import intervals

_INTERVALS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 60)), max_size=40)


def _times(drawn: list[tuple[int, int]]) -> Any:
    begins = np.array([begin for begin, _ in drawn], float)
    return np.stack([begins, begins + np.array([length for _, length in drawn], float)])


def _seconds(drawn: list[tuple[int, int]]) -> set[int]:
    """The whole seconds that are covered."""
    return {second for begin, length in drawn for second in range(begin, begin + length)}


@given(_INTERVALS)
def test_a_union_covers_the_same_time_once(drawn: list[tuple[int, int]]) -> None:
    begins, ends = covered = intervals.union(_times(drawn))
    assert intervals.length(covered) == len(_seconds(drawn))
    assert (begins[1:] > ends[:-1]).all()


@given(_INTERVALS, _INTERVALS)
def test_what_of_intervals_lies_within_others(drawn: list[tuple[int, int]], others: list[tuple[int, int]]) -> None:
    inner, outer = intervals.union(_times(drawn)), intervals.union(_times(others))
    expected = len(_seconds(drawn) & _seconds(others))
    assert intervals.within(inner, outer.T) == pytest.approx(expected)


@given(_INTERVALS, st.integers(1, 50))
def test_bins_hold_all_there_is_and_each_its_part(drawn: list[tuple[int, int]], bins: int) -> None:
    begins, ends = times = _times(drawn)
    weights = np.arange(1.0, len(drawn) + 1)
    edges = np.linspace(-5, 1100, bins + 1)
    amounts = intervals.binned(times, weights, edges)
    assert amounts.sum() == pytest.approx(weights.sum())
    for number, (low, high) in enumerate(pairwise(edges.tolist())):
        part = 0.0
        for begin, end, weight in zip(begins, ends, weights, strict=True):
            if end > begin:
                part += weight * max(0.0, min(end, high) - max(begin, low)) / (end - begin)
            elif low <= begin < high:
                part += weight
        assert amounts[number] == pytest.approx(part, abs=1e-6)


@given(_INTERVALS, st.integers(0, 100))
def test_joined_intervals_lose_no_time(drawn: list[tuple[int, int]], gap: int) -> None:
    union = intervals.union(_times(drawn))
    joined = intervals.joined(union, gap)
    covered = ((joined[:, 1] - joined[:, 0]) * joined[:, 2]).sum()
    assert covered == pytest.approx(intervals.length(union))
    assert (joined[1:, 0] - joined[:-1, 1] > gap).all()
