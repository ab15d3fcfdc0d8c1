"""Runs that are far from the others of their job."""

import numpy as np
import pytest

from dlio_hpc.verdict import outlying_runs


@pytest.mark.parametrize("count", range(3, 11))
def test_deviations_of_few_runs_are_scaled_to_their_standard_deviation(count: int) -> None:
    jobs = np.random.default_rng(count).normal(size=(20_000, count))
    from_median = np.abs(jobs - np.median(jobs, axis=1, keepdims=True))
    scale = outlying_runs._OF_MANY * outlying_runs._OF_FEW[count]
    assert float(np.median(from_median)) * scale == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize(("far", "is_rare"), [(0, True), (1, True), (3, True), (4, False)])
def test_three_of_twenty_far_runs_are_rare_and_four_are_not(far: int, is_rare: bool) -> None:
    near = np.tile([1.0, 1.01, 0.99, 1.02], 5)
    near[:far] += 3.0
    assert outlying_runs.are_far_runs_rare([near]) is is_rare


@pytest.mark.parametrize(("count", "limit"), [(5, 10.2), (6, 9.5), (7, 9.0), (8, 8.9), (9, 8.7), (10, 8.5), (12, 7.4)])
def test_a_run_is_far_from_five_standard_deviations_on(count: int, limit: float) -> None:
    """limit: five standard deviations of normally distributed runs, divided by the median of the deviations. Of fewer
    runs, this median is smaller.
    """
    for far, is_rare in ((limit - 0.1, True), (limit + 0.1, False)):
        pairs = [*[1.0] * (count // 2 - 1), far]
        runs = np.array([*pairs, *[0.0] * (count % 2), *[-value for value in pairs]])
        assert outlying_runs.are_far_runs_rare([runs]) is is_rare
