"""The series of nights, and the variation between nights, on data whose truth is known."""

import math
from datetime import date, timedelta

import numpy as np
import pytest

from dlio_hpc.verdict import night_series, outlying_runs, variation
from dlio_hpc.verdict.night_series import JobLevel
from dlio_hpc.verdict.variation import ASSUMED, NightSpread

_MONDAY = date(2026, 6, 1)


def _job(night: int, *values: float) -> JobLevel:
    return night_series.job(_MONDAY + timedelta(days=night), np.array(values))


def test_few_runs_have_their_median_and_more_have_the_mean_without_far_runs() -> None:
    assert outlying_runs.level(np.array([0.1, 0.2, 0.9])) == 0.2
    assert outlying_runs.level(np.array([0.1, 0.11, 0.12, 0.13, 0.9])) == pytest.approx(0.115)
    assert outlying_runs.level(np.array([0.1, 0.1, 0.1, 0.1, 0.9])) == pytest.approx(0.1)


def test_jobs_of_a_night_count_together_except_the_newest() -> None:
    jobs = [_job(0, 0.1, 0.1), _job(0, 0.3, 0.3), _job(1, 0.5, 0.5), _job(2, 0.2, 0.2), _job(2, 0.8, 0.8)]
    series = night_series.of(jobs)
    assert series.values == pytest.approx([0.2, 0.5, 0.8])
    assert series.jobs == (range(2), range(2, 3), range(3, 5))
    assert [series.place(job) for job in range(5)] == [0, 0, 1, 2, 2]
    # A usual night has two jobs in two of three cases: a third of the variance between jobs is missing in its mean.
    between = (0.1**2 * 2 + 0.3**2 * 2) / 2
    assert series.extra[-1] == pytest.approx(between / 3)


def test_jobs_after_the_reference_are_another_night() -> None:
    jobs = [_job(0, 0.1), _job(1, 0.2), _job(1, 0.6)]
    assert night_series.of(jobs).jobs == (range(1), range(1, 3))
    assert night_series.of(jobs, 1).jobs == (range(1), range(1, 2), range(2, 3))


def test_a_scattered_night_has_more_variance() -> None:
    jobs = [_job(night, 0.1, 0.11, 0.12) for night in range(9)] + [_job(9, -0.5, 0.1, 0.7)]
    series = night_series.of(jobs)
    assert list(series.extra[:9]) == [0] * 9
    assert series.extra[9] == pytest.approx(math.pi / 2 * 0.36 / 3)


def test_a_run_that_does_not_count_for_the_level_does_not_scatter_its_night() -> None:
    usual = [_job(night, 0.1, 0.11, 0.12, 0.13, 0.14) for night in range(6)]
    slow = _job(6, 0.1, 0.11, 0.12, 0.13, -0.6)
    assert slow.level == pytest.approx(0.115)
    assert slow.runs == 4
    assert slow.variance == pytest.approx(0.0005 / 3)
    assert max(night_series.of([*usual, slow]).extra) < 1e-4


def test_many_far_runs_count_for_the_level() -> None:
    """Two of five slow runs are no exceptions, but one in ten is."""
    usual = [_job(night, 0.1, 0.11, 0.12, 0.13, 0.14) for night in range(20)]
    slow = [_job(20 + night, 0.11, 0.12, 0.13, -0.9, -0.8) for night in range(5)]
    assert night_series.of([*usual, *slow[:1]]).values[-1] == pytest.approx(0.12)
    series = night_series.of([*usual, *slow])
    assert series.values[0] == pytest.approx(0.12)
    assert series.values[-1] == pytest.approx(np.mean([0.11, 0.12, 0.13, -0.9, -0.8]))
    one_of_three = [_job(night, 0.1, 0.12, -0.9) for night in range(9)]
    assert night_series.of(one_of_three).values[-1] == pytest.approx((0.1 + 0.12 - 0.9) / 3)
    one_of_ten = [_job(night, *np.linspace(0.1, 0.2, 9), -0.9) for night in range(9)]
    assert night_series.of(one_of_ten).values[-1] == pytest.approx(0.15)


def test_a_night_with_fewer_runs_varies_more() -> None:
    many = [_job(night, *(0.05 * (-1) ** run for run in range(10))) for night in range(9)]
    series = night_series.of([*many, _job(9, 0.0)])
    of_run = 0.05**2 * 10 / 9
    share = (9 * 0.1 + 1) / 10
    assert list(series.extra[:9]) == [0] * 9
    assert series.extra[9] == pytest.approx(math.pi / 2 * of_run * (1 - share), rel=0.1)


def test_a_rerun_of_one_night_does_not_widen_the_others() -> None:
    jobs = [_job(0, 0.0), _job(1, -1.4), _job(1, 0.0), *(_job(night, 0.01 * (night % 3)) for night in range(2, 20))]
    assert night_series.of(jobs).extra[-1] == 0


def test_weekends_are_taken_out_when_they_are_significant() -> None:
    random = np.random.default_rng(1)
    levels = [0.08 * (night % 7 >= 5) + random.normal(0, 0.01) for night in range(28)]
    series = night_series.of([_job(night, level) for night, level in enumerate(levels)])
    assert series.weekend == pytest.approx(0.08, abs=0.012)
    assert series.values[5::7].mean() == pytest.approx(series.values[2::7].mean(), abs=0.015)
    two_weekends = night_series.of([_job(night, level) for night, level in enumerate(levels[:14])])
    assert two_weekends.weekend == pytest.approx(0.08, abs=0.02)
    assert night_series.of([_job(night, level) for night, level in enumerate(levels[:13])]).weekend is None
    noise = random.normal(0, 0.02, 28)
    assert night_series.of([_job(night, level) for night, level in enumerate(noise)]).weekend is None


def test_nights_stay_unusually_scattered_if_there_are_many_of_them() -> None:
    usual = [_job(night, 0.0, 0.011, 0.02) for night in range(8)]
    series = night_series.of([*usual, *(_job(8 + night, 0.0, 0.4, 0.7) for night in range(6))])
    assert list(series.extra > 0.01) == [False] * 8 + [True] * 6


def test_prior_knowledge_is_at_least_what_runs_explain() -> None:
    series = night_series.of([_job(night, 0.0, 0.3, 0.6) for night in range(3)])
    assert series.runs == pytest.approx(math.pi / 2 * 0.09 / 3)
    assert night_series.prior(series, ASSUMED).sd == pytest.approx(math.sqrt(0.05**2 + series.runs))
    assert night_series.prior(series, NightSpread(0.02, 30, "site")).sd == pytest.approx(math.sqrt(series.runs))
    assert night_series.prior(series, NightSpread(0.5, 30, "site")).sd == 0.5


def test_the_assumption_fades_with_the_nights_but_the_site_does_not() -> None:
    own = NightSpread(0.01, 4)
    weight = 10 * (1 - 4 / variation.ENOUGH)
    mixed = variation.combined(own, ASSUMED)
    assert mixed.df == pytest.approx(4 + weight)
    assert mixed.sd == pytest.approx(math.sqrt((4 * 0.01**2 + weight * 0.05**2) / (4 + weight)))
    assert variation.combined(NightSpread(0.01, 10), ASSUMED) == NightSpread(0.01, 10)
    assert variation.combined(NightSpread(0.01, 10), NightSpread(0.03, 30, "site")).sd == pytest.approx(
        math.sqrt((10 * 0.01**2 + 30 * 0.03**2) / 40)
    )


def test_differences_show_the_variation_of_nights_whose_level_changes() -> None:
    random = np.random.default_rng(2)
    values = np.concatenate([random.normal(0, 0.03, 200), random.normal(-0.5, 0.03, 200)])
    spread = variation.of_differences(values)
    assert spread.sd == pytest.approx(0.03, rel=0.1)
    assert spread.df == pytest.approx(2 * 399 / 3)
    assert variation.of_differences(values[:1]) == NightSpread(0.0, 0)


def test_measurements_of_a_site_that_agree_know_more() -> None:
    alike = variation.of_site([NightSpread(0.03, 20), NightSpread(0.031, 10), NightSpread(0.029, 15)])
    assert alike.source == "site"
    assert alike.sd == pytest.approx(0.03, rel=0.03)
    assert alike.df == 30
    unlike = variation.of_site([NightSpread(0.01, 20), NightSpread(0.08, 10), NightSpread(0.02, 15)])
    assert unlike.sd == pytest.approx(math.sqrt((20 * 0.01**2 + 10 * 0.08**2 + 15 * 0.02**2) / 45))
    assert 4 < unlike.df < 6
    assert variation.of_site([NightSpread(0.03, 20)])._replace(sd=0.03) == NightSpread(0.03, 10, "site")
    assert variation.of_site([NightSpread(0.03, 2)]) == ASSUMED
    assert variation.of_site([]) == ASSUMED


def test_the_usual_variance_of_a_run_comes_from_jobs_of_two_runs_as_well() -> None:
    """Three jobs of two runs: the median variance is far above their mean, which is then the usual one."""
    jobs = [_job(0, 0.1, 0.1), _job(1, 0.1, 0.3), _job(2, 0.1, 0.1), _job(3, 0.2)]
    assert night_series._usual(jobs) == pytest.approx(min(0.02 / 3, 0.0))
    wide = [_job(0, 0.1, 0.2), _job(1, 0.1, 0.3), _job(2, 0.1, 0.5), _job(3, 0.2)]
    assert night_series._usual(wide) == pytest.approx((0.005 + 0.02 + 0.08) / 3)
    assert night_series._usual([_job(0, 0.1), _job(1, 0.7)]) == 0.0


def test_a_night_without_a_weekday_near_it_differs_from_nothing() -> None:
    values = np.array([0.5, 0.1, 0.2, 0.3])
    differences, has_weekdays = night_series._from_weekdays(values, np.array([True] * 4))
    assert not has_weekdays.any()
    assert differences.tolist() == [0.0] * 4
    alone, _ = night_series._from_weekdays(np.array([0.5, 0.1]), np.array([False, True]))
    assert alone.tolist() == pytest.approx([0.0, -0.4])


def test_three_degrees_of_freedom_tell_something_about_a_site() -> None:
    spreads = [NightSpread(0.05, df, "nights") for df in (2.9, 3.0)]
    assert [variation.is_usable(spread) for spread in (*spreads, NightSpread(0.0, 9, "nights"))] == [False, True, False]
