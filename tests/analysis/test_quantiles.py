"""Median, quantiles and scale of few values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.analysis import quantiles

_VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=9)


@settings(deadline=None)
@given(_VALUES)
def test_the_median_is_that_of_numpy(values: list[float]) -> None:
    assert quantiles.median(np.array(values)) == pytest.approx(float(np.median(values)), rel=1e-12, abs=1e-300)


@settings(deadline=None)
@given(_VALUES, st.floats(0, 1))
def test_a_quantile_is_that_of_numpy(values: list[float], share: float) -> None:
    expected = float(np.quantile(values, share))
    assert quantiles.quantile(np.array(values), share) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=3, max_size=9), st.floats(1e3, 1e9))
def test_a_far_value_does_not_change_the_scale_much(values: list[float], far: float) -> None:
    assert quantiles.mad(np.array([*values, far])) <= 1.4826 * 10


def test_the_scale_of_normal_values_is_their_standard_deviation() -> None:
    values = np.random.default_rng(7).normal(100.0, 5.0, 20_000)
    assert quantiles.mad(values) == pytest.approx(5.0, rel=0.02)
    assert quantiles.mad(np.array([])) == 0
