"""Drawn results of nights have the moments that their models state."""

import numpy as np
import pytest

from tests.bench.noise_models import BUILT_WITH, SET_ASIDE, Noise, draw, drift, flat, outlier, step

_ALL = [pytest.param(noise, id=name) for name, noise in [*BUILT_WITH.items(), *SET_ASIDE.items()]]


@pytest.mark.parametrize("noise", _ALL)
def test_shape_and_seed(noise: Noise) -> None:
    values = draw(noise, flat(7), 4, 3, 11)
    assert values.shape == (3, 7, noise.jobs, 4)
    assert np.all(values > 0)
    assert np.array_equal(values, draw(noise, flat(7), 4, 3, 11))
    assert not np.array_equal(values, draw(noise, flat(7), 4, 3, 12))


def test_the_tables_share_no_model() -> None:
    assert not set(BUILT_WITH.values()) & set(SET_ASIDE.values())


@pytest.mark.parametrize("sd", [0.01, 0.03, 0.1])
def test_normal_runs(sd: float) -> None:
    values = draw(Noise(sd), flat(50), 5, 400, 1)
    assert values.mean() == pytest.approx(1, abs=5 * sd / np.sqrt(values.size))
    assert values.std() == pytest.approx(sd, rel=0.02)


def test_lognormal_runs() -> None:
    logs = np.log(draw(Noise(0.25, "lognormal"), flat(50), 5, 400, 1))
    assert logs.mean() == pytest.approx(0, abs=0.005)
    assert logs.std() == pytest.approx(0.25, rel=0.02)


def test_one_run_in_20_takes_twice_as_long() -> None:
    values = draw(Noise(0.02, "slow runs"), flat(50), 5, 400, 1)
    is_slow = values < 0.75
    assert is_slow.mean() == pytest.approx(0.05, abs=0.005)
    assert values[is_slow].mean() == pytest.approx(0.5, abs=0.001)
    assert values[~is_slow].mean() == pytest.approx(1, abs=0.001)


@pytest.mark.parametrize("autoregression", [0.0, 0.5, 0.7])
def test_night_effects(autoregression: float) -> None:
    """A night's mean of 100 runs of 2 % adds 0.2 % to its effect of 5 %."""
    logs = np.log(draw(Noise(0.02, between=0.05, autoregression=autoregression), flat(60), 100, 400, 1))
    nights = logs.mean(axis=(2, 3))
    assert nights[:, 0].std() == pytest.approx(0.05, rel=0.15)
    assert nights[:, -1].std() == pytest.approx(0.05, rel=0.15)
    assert nights.std() == pytest.approx(0.05, rel=0.05)
    assert logs.std(axis=3, ddof=1).mean() == pytest.approx(0.02, rel=0.02)
    coefficient = np.corrcoef(nights[:, :-1].ravel(), nights[:, 1:].ravel())[0, 1]
    assert coefficient == pytest.approx(autoregression, abs=0.03)


def test_jobs_of_a_night() -> None:
    logs = np.log(draw(BUILT_WITH["three jobs a night"], flat(50), 100, 400, 1))
    jobs = logs.mean(axis=3)
    assert jobs.std(axis=2, ddof=1).mean() == pytest.approx(0.03 * 0.886, rel=0.03)  # 0.886: expected sd of 3 values
    covariance = np.cov(jobs[:, :, 0].ravel(), jobs[:, :, 1].ravel())[0, 1]
    assert np.sqrt(covariance) == pytest.approx(0.04, rel=0.05)


@pytest.mark.parametrize("fall", [0.04, 0.08])
def test_fall_in_a_job(fall: float) -> None:
    runs = draw(Noise(0.02, between=0.02, fall_in_job=fall), flat(50), 5, 400, 1).mean(axis=(0, 1, 2))
    assert runs / runs[0] == pytest.approx(1 - fall * np.arange(5) / 4, abs=0.002)


@pytest.mark.parametrize(("share", "length"), [(0.3, 1), (0.15, 3), (0.5, 3)])
def test_two_states(share: float, length: float) -> None:
    """A state is drawn again with the probability 1 / length. It correlates with that of the next night by the rest."""
    noise = Noise(0.001, slow_nights=share, state_length=length)
    values = draw(noise, flat(60), 3, 2000, 1).mean(axis=(2, 3))
    is_slow = values < 0.92
    assert values[is_slow].mean() == pytest.approx(0.85, abs=0.001)
    assert values[~is_slow].mean() == pytest.approx(1, abs=0.001)
    assert is_slow.mean() == pytest.approx(share, abs=0.01)
    coefficient = np.corrcoef(is_slow[:, :-1].ravel(), is_slow[:, 1:].ravel())[0, 1]
    assert coefficient == pytest.approx(1 - 1 / length, abs=0.02)


def test_weekends() -> None:
    days = draw(BUILT_WITH["weekends 8 % faster"], flat(70), 5, 400, 1).mean(axis=(0, 2, 3)).reshape(10, 7).mean(axis=0)
    assert days[:5] == pytest.approx(np.ones(5), abs=0.005)
    assert days[5:] == pytest.approx(np.full(2, 1.08), abs=0.005)


def test_courses() -> None:
    assert np.exp(flat(3)).tolist() == [1, 1, 1]
    assert np.exp(step(4, 2, -0.1)) == pytest.approx([1, 1, 0.9, 0.9])
    assert np.exp(outlier(4, 1, -0.1)) == pytest.approx([1, 0.9, 1, 1])
    course = drift(7, 1, 4, -0.1)
    assert course[:2].tolist() == [0, 0]
    assert np.exp(course[4:]) == pytest.approx([0.9, 0.9, 0.9])
    assert np.diff(course[1:5]) == pytest.approx(np.full(3, np.log(0.9) / 3))


def test_draws_follow_the_course() -> None:
    values = draw(BUILT_WITH["runs 3 %"], step(10, 4, -0.1), 3, 500, 1).mean(axis=(0, 2, 3))
    assert values == pytest.approx(np.exp(step(10, 4, -0.1)), abs=0.005)
