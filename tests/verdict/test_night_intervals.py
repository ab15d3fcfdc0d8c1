"""Intervals over nights, and how many nights settle a limit."""

import math

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.verdict import measured_noise, night_intervals
from dlio_hpc.verdict.night_intervals import MOST
from dlio_hpc.verdict.variation import NightSpread
from tests.support import nights

_GIVEN = NightSpread(0.05, math.inf, "given")


def test_the_largest_number_of_nights_and_runs_is_reached() -> None:
    just, less = (night_intervals.half_width(_GIVEN, 1 / MOST) * factor for factor in (1.0001, 0.9999))
    assert night_intervals.nights_needed(_GIVEN, 2, _GIVEN, just) == MOST
    assert night_intervals.nights_needed(_GIVEN, 2, _GIVEN, less) is None
    of_runs = night_intervals.half_width(NightSpread(0.05, MOST - 1), 1 / MOST)
    assert night_intervals.runs_needed(_GIVEN, 2, of_runs * 1.0001) == MOST
    assert night_intervals.runs_needed(_GIVEN, 2, of_runs * 0.9999) is None


def test_runs_of_three_unequal_nights_have_their_degrees_of_freedom() -> None:
    runs = [np.array([0.0, 0.1, -0.1]), np.array([0.2, 0.0]), np.array([0.0, 0.1, 0.0, 0.1])]
    noise = night_intervals._noise_of_runs(runs)
    assert noise.df == 2 + 1 + 3
    squares = 0.02 + 0.02 + 0.01
    assert noise.sd == pytest.approx(math.sqrt(squares / 6))


def test_jobs_of_single_runs_show_no_noise_of_runs() -> None:
    single, several = np.array([0.3]), np.array([0.3, 0.5])
    assert measured_noise._of_jobs([single, single])[::2] == (0.0, False)
    noise, _, is_shown = measured_noise._of_jobs([single, several])
    assert is_shown
    assert noise == pytest.approx(math.sqrt(0.02))


def test_a_measurement_with_the_value_0_shows_no_noise() -> None:
    """A value of 0 has no logarithm."""
    made = [nights.entry(night, [50.0, 51.0 + night]) for night in range(3)]
    without = measured_noise._elsewhere(measured_noise.site_history(made, nights.KEY.site), None, "", "samples_per_s")
    stopped = nights.measurement(0, 50.0, metrics={"samples_per_s": 0.0})
    made.append(structs.replace(nights.entry(3, [50.0, 51.0]), measurements=(stopped, nights.measurement(1, 50.0))))
    known = measured_noise._elsewhere(measured_noise.site_history(made, nights.KEY.site), None, "", "samples_per_s")
    assert known.noise.runs == without.noise.runs > 0
