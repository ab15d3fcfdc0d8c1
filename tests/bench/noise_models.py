"""Results of nightly jobs whose truth is known: models of their noise, and true courses of the level.

BUILT_WITH holds the models that methods are made and tuned with. SET_ASIDE holds other parameters of the same kinds. It
serves for a single look at finished methods.
"""

from typing import Any, Literal, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
# Share of slow runs in "slow runs".
_SLOW_RUNS = 0.05
# Smallest factor of a normally distributed run. Rates are positive.
_SMALLEST = 0.05
# Logarithm of the slow level divided by the usual level, for two states.
_SLOW_STATE = float(np.log(1 - 0.15))


class Noise(NamedTuple):
    """Noise of nightly results. All sizes are fractions: 0.02 is 2 %.

    within: standard deviation of a run in its job. kind: distribution of a run's rate. "normal": around 1. "slow runs":
    normal, but 1 run in 20 takes twice as long. between: standard deviation of the logarithm of the effect of a night.
    between_jobs: the same of a job. jobs: number of jobs of a night. autoregression: coefficient AR(1) of the effect of
    a night. fall_in_job: the last run of a job is slower than the first by this. slow_nights: share of nights in the
    slow state, whose level is 15 % lower. state_length: mean number of nights after which the state is drawn again.
    weekend: Saturdays and Sundays are faster by this.
    """

    within: float
    kind: Literal["normal", "lognormal", "slow runs"] = "normal"
    between: float = 0.0
    between_jobs: float = 0.0
    jobs: int = 1
    autoregression: float = 0.0
    fall_in_job: float = 0.0
    slow_nights: float = 0.0
    state_length: float = 1.0
    weekend: float = 0.0


BUILT_WITH = {
    "runs 1 %": Noise(0.01),
    "runs 3 %": Noise(0.03),
    "runs 10 %": Noise(0.10),
    "runs 30 %": Noise(0.30),
    "lognormal 10 %": Noise(0.10, "lognormal"),
    "slow runs, 2 %": Noise(0.02, "slow runs"),
    "runs 2 %, nights 5 %": Noise(0.02, between=0.05),
    "4 % fall in a job": Noise(0.02, between=0.02, fall_in_job=0.04),
    "two states, 30 % slow": Noise(0.02, slow_nights=0.3),
    "autoregression 0.5": Noise(0.02, between=0.05, autoregression=0.5),
    "weekends 8 % faster": Noise(0.02, between=0.03, weekend=0.08),
    "three jobs a night": Noise(0.02, between=0.04, between_jobs=0.03, jobs=3),
}

SET_ASIDE = {
    "runs 2 %": Noise(0.02),
    "runs 5 %": Noise(0.05),
    "runs 20 %": Noise(0.20),
    "lognormal 25 %": Noise(0.25, "lognormal"),
    "slow runs, 5 %": Noise(0.05, "slow runs"),
    "runs 1 %, nights 3 %": Noise(0.01, between=0.03),
    "runs 3 %, nights 8 %": Noise(0.03, between=0.08),
    "8 % fall in a job": Noise(0.02, between=0.02, fall_in_job=0.08),
    "two states, 15 % slow, 3 nights": Noise(0.02, slow_nights=0.15, state_length=3),
    "two states, 50 % slow, 3 nights": Noise(0.02, slow_nights=0.5, state_length=3),
    "autoregression 0.3": Noise(0.02, between=0.05, autoregression=0.3),
    "autoregression 0.7": Noise(0.02, between=0.05, autoregression=0.7),
    "weekends 5 % faster": Noise(0.02, between=0.03, weekend=0.05),
    "five jobs a night": Noise(0.02, between=0.04, between_jobs=0.03, jobs=5),
}


def draw(noise: Noise, levels: Array, repeats: int, series: int, seed: int) -> Array:
    """Return samples/s of shape (series, nights, jobs, repeats). levels: true logarithms, of shape (nights,). The first
    night is a Monday.
    """
    random = np.random.default_rng(seed)
    nights = len(levels)
    of_nights = levels + _night_effects(noise, random, series, nights) + _states(noise, random, series, nights)
    of_nights = of_nights + np.log1p(noise.weekend) * (np.arange(nights) % 7 >= 5)
    of_jobs = of_nights[:, :, None] + noise.between_jobs * random.standard_normal((series, nights, noise.jobs))
    fall = np.log1p(-noise.fall_in_job * np.linspace(0, 1, repeats))
    runs = _runs(noise, random, (series, nights, noise.jobs, repeats))
    return np.asarray(np.exp(of_jobs[..., None] + fall) * runs)


def _night_effects(noise: Noise, random: np.random.Generator, series: int, nights: int) -> Array:
    """Return logarithms. Their standard deviation is the same for each night, the first included."""
    effects = noise.between * random.standard_normal((series, nights))
    rest = np.sqrt(1 - noise.autoregression**2)
    for night in range(1, nights):
        effects[:, night] = noise.autoregression * effects[:, night - 1] + rest * effects[:, night]
    return effects


def _states(noise: Noise, random: np.random.Generator, series: int, nights: int) -> Array:
    """Return logarithms of the level of each night's state."""
    is_drawn = random.random((series, nights)) < 1 / noise.state_length
    is_drawn[:, 0] = True
    is_slow = random.random((series, nights)) < noise.slow_nights
    newest = np.maximum.accumulate(np.where(is_drawn, np.arange(nights), 0), axis=1)
    return np.asarray(_SLOW_STATE * np.take_along_axis(is_slow, newest, axis=1))


def _runs(noise: Noise, random: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Return factors of the rates of runs."""
    z = noise.within * random.standard_normal(shape)
    if noise.kind == "lognormal":
        return np.exp(z)
    slow = 1.0 + (random.random(shape) < _SLOW_RUNS) * (noise.kind == "slow runs")
    return np.asarray(np.maximum(1 + z, _SMALLEST) / slow)


def flat(nights: int) -> Array:
    """Return the logarithms of levels without any change."""
    return np.zeros(nights)


def step(nights: int, at: int, size: float) -> Array:
    """Return the logarithms of levels that change at a night. size: relative change, such as -0.1."""
    return np.asarray(np.log1p(size) * (np.arange(nights) >= at))


def drift(nights: int, begin: int, end: int, size: float) -> Array:
    """Return the logarithms of levels that change evenly. begin: last night of the old level. end: first night of the
    new level. size: relative change, such as -0.1.
    """
    return np.asarray(np.log1p(size) * np.clip((np.arange(nights) - begin) / (end - begin), 0, 1))


def outlier(nights: int, at: int, size: float) -> Array:
    """Return the logarithms of levels of which one night differs. size: relative change, such as -0.1."""
    return np.asarray(np.log1p(size) * (np.arange(nights) == at))
