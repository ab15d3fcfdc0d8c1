"""Changes are detected where they are, in series whose truth is known."""

import math
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.verdict import change_detection, level_estimates
from dlio_hpc.verdict.change_detection import Changes
from dlio_hpc.verdict.level_estimates import CourseSpread
from dlio_hpc.verdict.variation import ASSUMED, NightSpread


def _series(levels: npt.ArrayLike, noise: float, seed: int = 1) -> npt.NDArray[np.float64]:
    values = np.asarray(levels, np.float64)
    return values + np.random.default_rng(seed).normal(0, noise, len(values))


def _changes(values: npt.ArrayLike, prior: NightSpread = ASSUMED) -> Changes:
    array = np.asarray(values, np.float64)
    state = change_detection.followed(array, prior)
    return change_detection.described(state, change_detection.course(state, array, prior))


def test_a_step_is_detected_where_it_is() -> None:
    values = _series([0.0] * 20 + [-0.05] * 10, 0.01)
    detected = _changes(values)
    (change,) = detected.changes
    assert (change.kind, change.at) == ("step", 20)
    assert change.earliest <= 20 <= change.latest <= change.earliest + 2
    assert change.size == pytest.approx(-0.05, abs=0.01)
    assert change.certainty > 0.8
    assert change.a_year < 0.05
    assert list(detected.levels) == [detected.levels[0]] * 20 + [detected.levels[-1]] * 10


def test_a_drift_is_no_step() -> None:
    drift = np.concatenate([np.zeros(20), np.linspace(-0.005, -0.1, 20), np.full(7, -0.1)])
    (change,) = _changes(_series(drift, 0.008)).changes
    assert change.kind == "drift"
    assert change.at == pytest.approx(20, abs=4)
    assert change.until == pytest.approx(39, abs=4)
    assert change.earliest <= 20 <= change.latest
    assert change.size == pytest.approx(-0.1, abs=0.02)
    assert change.certainty > 0.7


def test_a_drift_that_lasts_ends_with_the_newest_night() -> None:
    detected = _changes(_series(np.concatenate([np.zeros(20), np.linspace(-0.005, -0.1, 20)]), 0.008))
    (change,) = detected.changes
    assert (change.kind, change.until) == ("drift", 39)
    assert detected.levels[-1] == pytest.approx(-0.1, abs=0.02)
    assert detected.levels[10] == pytest.approx(0.0, abs=0.01)


def test_the_level_moves_evenly_from_the_first_night_of_a_drift_to_its_last() -> None:
    detected = _changes(_series(np.concatenate([np.zeros(20), np.linspace(-0.005, -0.1, 20)]), 0.004))
    (change,) = detected.changes
    assert change.until is not None
    moves = np.diff(detected.levels[change.at - 1 : change.until + 1])
    assert len(moves) == change.until - change.at + 1 > 10
    assert moves == pytest.approx(np.full(len(moves), change.size / len(moves)))


def test_a_fault_that_was_mended_is_two_steps() -> None:
    values = _series([0.0] * 15 + [-0.08] * 10 + [0.0] * 15, 0.01)
    detected = _changes(values)
    assert [(change.kind, change.at) for change in detected.changes] == [("step", 15), ("step", 25)]
    assert detected.changes[0].size == pytest.approx(-detected.changes[1].size, abs=0.02)


def test_one_bad_night_is_an_outlier_and_no_change() -> None:
    values = _series([0.0] * 30, 0.01)
    values[17] -= 0.2
    detected = _changes(values)
    assert detected.changes == ()
    assert detected.outliers == (17,)
    state = change_detection.followed(values)
    assert change_detection.course(state, values).spread.sd < 0.015


def test_a_bad_newest_night_is_a_change_until_the_next_night_is_good() -> None:
    values = _series([0.0] * 31, 0.01, seed=2)
    values[29] -= 0.2
    (change,) = _changes(values[:30]).changes
    assert (change.kind, change.at) == ("step", 29)
    assert _changes(values).changes == ()


def test_a_night_is_no_change_if_earlier_nights_were_as_bad() -> None:
    values = _series([0.0] * 30, 0.01, seed=2)
    values[[7, 17, 29]] -= 0.2
    assert _changes(values).changes == ()


def test_a_scattered_night_is_no_change() -> None:
    values = _series([0.0] * 30, 0.01, seed=2)
    values[29] -= 0.1
    extra = np.zeros(30)
    assert change_detection.followed(values, ASSUMED, extra).alarms
    extra[29] = 0.05**2
    assert not change_detection.followed(values, ASSUMED, extra).alarms


def test_correlated_nights_need_more_evidence() -> None:
    independent = CourseSpread(0.05, 100)
    correlated = independent._replace(correlation=0.5)
    assert correlated.error(1) == pytest.approx(independent.error(1)) == pytest.approx(0.05**2)
    # The mean of four values with correlations 0.5, 0.25 and 0.125 at distances of 1, 2 and 3 nights.
    assert correlated.error(4) == pytest.approx(0.05**2 * (4 + 2 * (3 * 0.5 + 2 * 0.25 + 0.125)) / 16)


@pytest.mark.parametrize(("t", "df", "p"), [(2.0, 5, 0.0509697), (-3.0, 20, 0.0035360), (1.0, 2, 0.2113249)])
def test_deviates_are_as_rare_as_students_t(t: float, df: float, p: float) -> None:
    z = change_detection.deviate(t * 0.1, 0.01, df)
    assert np.sign(z) == np.sign(t)
    assert NormalDist().cdf(-abs(z)) == pytest.approx(p, rel=0.1)


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8])
def test_short_and_flat_histories_have_no_changes(count: int) -> None:
    detected = _changes(np.zeros(count))
    assert detected.changes == ()
    assert detected.outliers == ()
    assert len(detected.levels) == count


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from([0.0, 0.01, -0.3, 0.31, -0.32, 0.6]), min_size=5, max_size=60), st.integers(0, 9))
def test_alarms_are_in_order_of_time(values: list[float], seed: int) -> None:
    series = _series(values, 0.01, seed)
    alarms = [alarm.at for alarm in change_detection.followed(series).alarms]
    assert alarms == sorted(set(alarms))
    assert len(_changes(series).levels) == len(values)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(-300, 300), min_size=8, max_size=40))
def test_changes_do_not_depend_on_the_level_or_the_direction(values: list[int]) -> None:
    one = np.array(values, np.float64) / 1024
    detected, shifted, turned = _changes(one), _changes(one + 8), _changes(-one)
    places = [(change.kind, change.at) for change in detected.changes]
    assert places == [(change.kind, change.at) for change in shifted.changes]
    assert places == [(change.kind, change.at) for change in turned.changes]
    assert len(detected.levels) == len(values)
    assert all(0 <= change.earliest <= change.at <= change.latest < len(values) for change in detected.changes)


def test_a_large_step_is_detected_in_three_nights_and_a_single_night_is_none() -> None:
    random = np.random.default_rng(3)
    detected = [bool(_changes(random.normal(0, 0.01, 20) - 0.1 * (np.arange(20) >= 17)).changes) for _ in range(100)]
    alone = [bool(_changes(random.normal(0, 0.01, 20) - 0.15 * (np.arange(20) == 9)).changes) for _ in range(100)]
    assert sum(detected) >= 95
    assert sum(alone) <= 10


USUAL_NIGHTS = np.log(np.array([20.0, 20.2, 19.8, 20.1, 19.9, 20.3, 19.7, 20.2, 20.0, 19.9]))


def test_single_far_nights_are_no_change_once_there_was_one() -> None:
    first = np.append(np.tile(USUAL_NIGHTS, 3), np.log(10.0))
    assert change_detection.followed(first).alarms[-1].newest == 1
    again = np.concatenate([first, USUAL_NIGHTS, [np.log(11.0)]])
    assert change_detection.followed(again).labels[-1] == 0
    assert len(change_detection.followed(np.append(again, np.log([11.0, 11.2]))).alarms) > len(
        change_detection.followed(again).alarms
    ), "several nights are a change"


def test_a_level_that_comes_back_is_the_earlier_one() -> None:
    spell = np.log(np.array([5.0, 8.0, 5.5, 15.0]))
    labels = change_detection.followed(np.concatenate([np.tile(USUAL_NIGHTS, 2), spell, USUAL_NIGHTS])).labels
    assert set(labels[:20]) == {0}
    assert set(labels[-8:]) == {0}


def test_a_step_begins_with_an_outlier_that_resembles_it() -> None:
    values = np.concatenate([np.tile(USUAL_NIGHTS, 3), USUAL_NIGHTS - 0.5])
    state = change_detection.State(np.repeat([0, 1], [31, 9]), (change_detection.Alarm(31, -50.0, 1, 40.0),))
    (change,) = change_detection.described(state, change_detection.course(state, values)).changes
    assert (change.at, change.earliest) == (30, 30)


def test_the_third_spell_of_the_same_length_and_size_is_usual() -> None:
    spell, begins = [-0.1] * 3, (30, 63, 96)
    counts = np.zeros(3)
    for seed in range(8):
        values = _series([*[0.0] * 30, *spell, *[0.0] * 30, *spell, *[0.0] * 30, *spell], 0.02, seed)
        for number, at in enumerate(begins):
            labels = change_detection.followed(values[: at + 3]).labels
            counts[number] += labels[-1] != labels[at - 1]
    first, second, third = counts
    assert first == 8
    assert second >= 7
    assert third <= 2


def test_levels_of_one_night_each_show_no_variation() -> None:
    """Only what is known beforehand remains."""
    known = NightSpread(0.03, 8.0, "site")
    alone = level_estimates.spread_of(np.array([1.0, 2.0, 5.0]), np.array([0, 1, 2]), known)
    assert (alone.sd, alone.df, alone.correlation) == (0.03, 8.0, 0.0)
    pair = level_estimates.spread_of(np.array([1.0, 1.2, 5.0]), np.array([0, 0, 1]), known)
    assert pair.df == 9.0
    assert pair.sd == pytest.approx(((8 * 0.03**2 + 2 * 0.1**2) / 9) ** 0.5)


@pytest.mark.parametrize("prior", [ASSUMED, NightSpread(0.02, 30, "site"), NightSpread(0.01, float("inf"), "given")])
@pytest.mark.parametrize("extra", [0.0, 1e-4])
def test_a_series_followed_as_a_whole_is_that_followed_night_by_night(prior: NightSpread, extra: float) -> None:
    """Quiet nights are recognised together; steps, spells, far nights and equal nights are not among them."""
    alarms = 0
    for seed in range(8):
        levels = np.zeros(60)
        levels[30:] = -0.05 * (seed % 3 == 0)
        levels[[10, 45]] += 0.3 * (seed % 2)
        values = _series(levels, 0.01 * (seed != 7), seed)
        more = np.where(np.arange(60) % 3 == 0, extra, 0.0)
        state = change_detection.START
        for night in range(len(values)):
            state = change_detection.next_state(state, values[: night + 1], prior, more)
        whole = change_detection.followed(values, prior, more)
        assert (list(whole.labels), whole.alarms) == (list(state.labels), state.alarms), seed
        alarms += len(whole.alarms)
    assert alarms


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.one_of(st.integers(-3, 3), st.sampled_from([400, -400])), min_size=2, max_size=40),
    st.sampled_from([ASSUMED, NightSpread(0.004, math.inf, "given"), NightSpread(0.02, 30, "site")]),
)
def test_estimates_before_each_night_are_the_estimates_of_each_beginning(steps: list[int], prior: NightSpread) -> None:
    values = np.array(steps) / 1000
    estimates = level_estimates.before_each_night(values, prior)
    changing = next((night for night in range(1, len(values)) if steps[night] != steps[0]), len(values))
    for night in (1, *range(changing + 1, len(values))):  # the correlation of equal values is a matter of rounding
        spread = level_estimates.spread_of(values[:night], np.zeros(night, np.int64), prior)
        level = level_estimates.level_of(values[:night], spread.sd)
        expected = (level, *spread, spread.error(night))
        assert [column[night] for column in estimates] == pytest.approx(expected, rel=1e-7, abs=1e-12)
