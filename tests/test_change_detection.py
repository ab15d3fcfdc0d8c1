"""Intervals and changes are right on histories whose truth is known; rates are of 1,000 draws."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.analysis import robust
from dlio_hpc.analysis.robust import RepeatNoise
from dlio_hpc.verdict import change_detection

_VALUES = st.lists(st.floats(-5, 5), min_size=2, max_size=9)


def _series(levels: npt.ArrayLike, noise: float, seed: int = 1) -> npt.NDArray[np.float64]:
    values = np.asarray(levels, np.float64)
    return values + np.random.default_rng(seed).normal(0, noise, len(values))


@pytest.mark.parametrize(
    ("df", "exact"), [(1, 6.3138), (2, 2.92), (3, 2.3534), (4, 2.1318), (10, 1.8125), (60, 1.6706)]
)
def test_quantiles_of_students_distribution(df: int, exact: float) -> None:
    assert robust.t_quantile(df) == pytest.approx(exact, rel=0.01)


@given(_VALUES, _VALUES)
def test_a_difference_lies_in_its_interval_and_turns_round_with_its_sides(one: list[float], other: list[float]) -> None:
    difference, back = robust.difference(one, other), robust.difference(other, one)
    if min(len(one), len(other)) < robust.FEWEST:
        assert difference.low is difference.high is None, "they tell no noise"
        return
    assert difference.low is not None
    assert difference.high is not None
    assert difference.low <= difference.value <= difference.high
    assert back.value == -difference.value
    assert difference == robust.difference(one, other)
    assert min(one) - max(other) <= difference.low
    assert difference.high <= max(one) - min(other)


def test_three_repeats_are_told_apart_when_none_overlaps() -> None:
    """Six values have twenty splits into two groups of three; the end of the interval matches that probability."""
    apart = robust.difference([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
    assert apart.high is not None
    assert apart.high == -1.0
    meet = robust.difference([1.0, 2.0, 4.5], [4.0, 5.0, 6.0])
    assert meet.high == 0.5


def test_noise_between_nights_widens_the_interval_and_stands_in_for_missing_repeats() -> None:
    values = [0.0, 0.001, 0.002]
    alone, with_nights = robust.difference(values, values), robust.difference(values, values, RepeatNoise(0.01, 30))
    assert alone.half is not None
    assert with_nights.half is not None
    assert with_nights.half > 0.02 > alone.half
    assert robust.difference([0.0], [0.0]).low is None
    single = robust.difference([0.0], [0.0], RepeatNoise(0.01, 30))
    assert single.high == pytest.approx(robust.t_quantile(30) * 0.01 * math.sqrt(2))


def test_noise_that_repeats_show_already_is_not_counted_twice() -> None:
    random = np.random.default_rng(1)
    one, other = random.normal(0, 0.05, 9), random.normal(0, 0.05, 9)
    known = robust.difference(one, other, RepeatNoise(0.001, 30))
    assert known == pytest.approx(robust.difference(one, other))


def test_a_step_is_found_where_it_is() -> None:
    detection = change_detection.find(_series([0.0] * 20 + [-0.05] * 10, 0.01))
    (change,) = detection.changes
    assert (change.kind, change.at) == ("step", 20)
    assert change.size == pytest.approx(-0.05, abs=0.01)
    assert detection.noise is not None
    assert detection.noise.sd == pytest.approx(0.01, rel=0.4)
    assert list(detection.levels) == [detection.levels[0]] * 20 + [detection.levels[-1]] * 10


def test_a_drift_is_no_step() -> None:
    detection = change_detection.find(_series(np.linspace(0, -0.1, 40), 0.008))
    (change,) = detection.changes
    assert (change.kind, change.at, change.until) == ("drift", 0, 39)
    assert change.size == pytest.approx(-0.1, abs=0.02)


def test_a_fault_that_was_mended_is_two_steps() -> None:
    detection = change_detection.find(_series([0.0] * 15 + [-0.08] * 10 + [0.0] * 15, 0.01))
    assert [(change.kind, change.at) for change in detection.changes] == [("step", 15), ("step", 25)]
    assert detection.changes[0].size == pytest.approx(-detection.changes[1].size, abs=0.02)


def test_one_bad_night_is_by_itself_and_no_change() -> None:
    values = _series([0.0] * 30, 0.01)
    values[17] -= 0.2
    detection = change_detection.find(values)
    assert detection.changes == ()
    assert detection.outliers == (17,)
    assert detection.noise is not None
    assert detection.noise.sd < 0.015


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_short_and_flat_histories_tell_nothing(count: int) -> None:
    detection = change_detection.find(np.zeros(count))
    assert detection.changes == ()
    assert detection.outliers == ()
    assert len(detection.levels) == count


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-300, 300), min_size=8, max_size=40))
def test_changes_do_not_hang_on_unit_or_level(values: list[int]) -> None:
    one = np.array(values, np.float64)
    detection, other = change_detection.find(one), change_detection.find(4 * one + 8)
    assert [(change.kind, change.at) for change in detection.changes] == [
        (change.kind, change.at) for change in other.changes
    ]
    assert len(detection.levels) == len(values)
    assert all(0 <= change.at < len(values) for change in detection.changes)


def test_equal_values_share_their_rank() -> None:
    assert list(change_detection._ranks(np.array([3.0, 1.0, 3.0, 2.0]))) == [3.5, 1.0, 3.5, 2.0]


def test_a_large_step_is_seen_in_three_nights_and_a_night_by_itself_is_none() -> None:
    random = np.random.default_rng(3)
    detected = [
        bool(change_detection.find(random.normal(0, 0.01, 20) - 0.1 * (np.arange(20) >= 17)).changes)
        for _ in range(100)
    ]
    alone = [
        bool(change_detection.find(random.normal(0, 0.01, 20) - 0.15 * (np.arange(20) == 9)).changes)
        for _ in range(100)
    ]
    assert sum(detected) >= 95
    assert sum(alone) <= 2
