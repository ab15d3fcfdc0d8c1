"""Verdicts on nights are rarely wrong: rates in drawn series whose truth is known.

Each bound is about twice the rate that `make verdict-rates` shows, so that another seed keeps it.
"""

import pytest

from tests.bench import nightly_rates
from tests.bench.noise_models import BUILT_WITH

_USUAL = BUILT_WITH["runs 2 %, nights 5 %"]


@pytest.mark.parametrize(
    ("model", "most"),
    [("runs 1 %", 0.3), ("runs 2 %, nights 5 %", 2.0), ("autoregression 0.5", 5.0), ("two states, 30 % slow", 2.5)],
)
def test_a_year_without_a_change_has_few_alarms(model: str, most: float) -> None:
    rates = nightly_rates.without_change(BUILT_WITH[model], 3, 20, seed=99)
    assert rates.regressions <= most
    assert rates.improvements <= most
    assert rates.holding >= 0.8


def test_a_drop_of_10_percent_is_found_in_a_few_nights() -> None:
    finding = nightly_rates.of_drop(_USUAL, 3, 60, -0.1, 60, seed=99)
    assert finding.median <= 4
    assert finding.within[1] >= 0.9


def test_a_drop_of_5_percent_is_found_in_some_nights_and_does_not_pass() -> None:
    finding = nightly_rates.of_drop(_USUAL, 3, 60, -0.05, 60, seed=99)
    assert finding.median <= 16
    assert finding.passed <= 0.15


@pytest.mark.parametrize(("noise", "right"), [(0.02, 0.85), (0.05, 0.75)])
@pytest.mark.parametrize("kind", ["step", "drift"])
def test_steps_and_drifts_are_told_apart_and_dated(kind: nightly_rates.Kind, noise: float, right: float) -> None:
    described = nightly_rates.of_changes(kind, noise, 60, seed=99)
    assert described.right >= right
    assert described.date <= 5
    assert described.holding >= 0.7


def test_an_accepted_drop_is_quiet() -> None:
    assert nightly_rates.accepted_step(60, seed=99) <= 0.35


def test_thirty_suites_together_have_less_than_one_alarm_in_ten_nights() -> None:
    """Without regard to the other suites, the first nights have more alarms."""
    first, all_nights = nightly_rates.of_suites(30, 30, 4, seed=99)
    assert first <= 0.1
    assert all_nights <= 0.1
    assert nightly_rates.of_suites(30, 1, 4, seed=99)[1] > all_nights


def test_alarms_are_as_rare_as_they_state() -> None:
    """Alarms that state at most 0.2 a year occur 0.13 times a year: 10 in 40 years of two kinds, where more than 24
    have a probability of 1e-4.
    """
    rates = dict(zip(nightly_rates.CHANCES, nightly_rates.of_chances(_USUAL, 40, seed=99), strict=True))
    assert rates[1.0] <= 1.3
    assert rates[0.2] <= 0.3
    assert rates[0.1] <= 0.2
