"""Intervals of medians and of their differences."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.analysis import robust

_VALUES = st.lists(st.floats(-5, 5), min_size=2, max_size=9)


@pytest.mark.parametrize(
    ("df", "exact"), [(1, 6.3138), (2, 2.92), (3, 2.3534), (4, 2.1318), (10, 1.8125), (60, 1.6706)]
)
def test_quantiles_of_students_distribution(df: int, exact: float) -> None:
    assert robust.t_quantile(df) == pytest.approx(exact, rel=0.01)


@settings(deadline=None)
@given(_VALUES, _VALUES)
def test_a_difference_lies_in_its_interval_and_changes_its_sign_with_its_sides(
    one: list[float], other: list[float]
) -> None:
    difference, back = robust.difference(one, other), robust.difference(other, one)
    if min(len(one), len(other)) < robust.FEWEST:
        assert difference.low is difference.high is None
        return
    assert difference.low is not None
    assert difference.high is not None
    assert difference.low <= difference.value <= difference.high
    assert back.value == -difference.value
    assert difference == robust.difference(one, other)
    assert min(one) - max(other) <= difference.low
    assert difference.high <= max(one) - min(other)


def test_three_repeats_differ_if_none_overlap() -> None:
    """Six values have twenty splits into two groups of three; the end of the interval matches that probability."""
    apart = robust.difference([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert apart.high is not None
    assert apart.high == -1.0
    meet = robust.difference([1.0, 2.0, 4.5], [4.0, 5.0, 6.0])
    assert meet.high == 0.5
