"""Reports of studies are rarely wrong: rates of wrong statements in drawn studies whose truth is known."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

from dlio_hpc.analysis.study import replicates
from tests.bench import study_rates
from tests.bench.study_rates import Noise, Pairs, Scales, Settings

# Each bound is exceeded with a probability below 1e-3 if the true rate is the one that the reports promise (5 % of
# wrong intervals, 2.5 % for one side), by the binomial distribution. Draws are seeded.
_DRAWS = 400


@pytest.mark.parametrize("pairs", [2, 4, 8])
def test_file_systems_without_a_difference_are_rarely_told_apart(pairs: int) -> None:
    rates = study_rates.rates(Pairs(6, pairs, (Noise("normal", 0.1),)), _DRAWS)
    assert rates.get("a setting is named", 0) <= 36 / _DRAWS
    assert rates.get("B is slower: exit 1", 0) <= 22 / _DRAWS
    assert rates["all intervals hold"] >= 1 - 36 / _DRAWS


@pytest.mark.parametrize("repeats", [2, 3, 5])
def test_speed_ups_from_one_job_of_each_scale_hold(repeats: int) -> None:
    """Jobs differ by 5 %, the runs of a job by 2 %."""
    rates = study_rates.rates(Scales(2, 1, repeats), _DRAWS)
    assert rates["all intervals hold"] >= 1 - 36 / _DRAWS
    assert rates.get("differs from ideal", 0) <= 36 / _DRAWS


@pytest.mark.parametrize("jobs", [2, 3])
def test_speed_ups_from_several_jobs_hold(jobs: int) -> None:
    rates = study_rates.rates(Scales(3, jobs, 2, between=0.1), _DRAWS)
    assert rates["all intervals hold"] >= 1 - 36 / _DRAWS
    assert rates["noise is known"] == 1


@pytest.mark.parametrize("repeats", [2, 5])
def test_noise_names_no_interaction_and_changes_no_setting(repeats: int) -> None:
    rates = study_rates.rates(Settings((3, 3, 3), repeats), _DRAWS)
    assert rates.get("interaction is named", 0) <= 22 / _DRAWS
    assert rates.get("a change is recommended", 0) <= 22 / _DRAWS


@pytest.mark.parametrize("effects", [(0.0, 0.0, 0.1823), (0.0, 0.0912, 0.1823)])
def test_one_effect_of_a_fifth_is_recommended(effects: tuple[float, ...]) -> None:
    """Noise of 10 %, two repeats. 400 draws of a rate of 95 % are below 363 with a probability below 1e-3."""
    rates = study_rates.rates(Settings((3, 3, 3), 2, effects=effects), _DRAWS)
    assert rates["the right change is recommended"] >= 363 / _DRAWS


@pytest.mark.parametrize("jobs", ["one job", "a job per setting", "split rounds"])
def test_differences_between_jobs_are_no_differences_between_settings(jobs: Any) -> None:
    rates = study_rates.rates(Settings((4,), 3, Noise("lognormal", 0.02), jobs=jobs, between=0.05), _DRAWS)
    assert rates["all intervals hold"] >= 1 - 36 / _DRAWS
    assert rates.get("a setting is named slower", 0) <= 36 / _DRAWS


def test_the_tables_have_a_cell_for_each_heading() -> None:
    for table in study_rates.tables(1, 1):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.header)}


def test_simulations_of_many_points_are_drawn_in_batches() -> None:
    """All of them at once would take gigabytes for a study of thousands of points."""
    tracemalloc.start()
    try:
        widest = replicates.differences(np.ones(1000), 10, [(0, 1), (2, 3)])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(widest) == replicates._DRAWS
    assert peak < 10 * 8 * replicates._AT_ONCE
