"""Plans of campaigns that detect a drop: they agree with how nights are judged, and with simulated campaigns."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.verdict import change_detection, detection_plan, drawn_nights, outlying_runs, regression
from dlio_hpc.verdict.change_detection import EASED
from dlio_hpc.verdict.detection_plan import MOST, Campaign, CampaignNoise, WantedDetection
from dlio_hpc.verdict.variation import ASSUMED, NightSpread
from tests.bench import nightly_rates, noise_models
from tests.bench.noise_models import BUILT_WITH

_USUAL = CampaignNoise(0.05, 0.02, ASSUMED)
_QUIET = CampaignNoise(0.0, 0.03, ASSUMED)
_MODELS = {"runs 2 %, nights 5 %": _USUAL, "runs 3 %": _QUIET}


def _wanted(drop: float, error: float | None = None, power: float = 0.8, tolerance: float = 0.05) -> WantedDetection:
    return WantedDetection(drop, power, error, tolerance)


def _campaign(noise: CampaignNoise, repeats: int, history: int, wanted: WantedDetection) -> Campaign:
    made = detection_plan.campaign(noise, repeats, history, wanted)
    assert made is not None
    return made


@pytest.mark.parametrize(("history", "same"), [(5, 0.6), (20, 0.85), (60, 0.9)])
@pytest.mark.parametrize("prior", [ASSUMED, NightSpread(0.04, 12.0, "site")])
def test_drawn_nights_are_judged_as_compare_judges_them(history: int, same: float, prior: NightSpread) -> None:
    """The first regression of a series falls on the same night. Series that alarm before the drop are left out."""
    values = np.random.default_rng(history).normal(0, 0.05, (60, history + 15))
    values[:, history:] += math.log(0.85)
    evidence = np.array(list(drawn_nights.evidence(values, history, prior, 0.05))).T
    drawn = [int(np.argmax(row > -np.inf)) if row.max() > -np.inf else -1 for row in evidence]
    followed = [_first_regression(row, history, prior) for row in values]
    compared = [(first, other) for first, other in zip(drawn, followed, strict=True) if other is not None]
    assert len(compared) >= 40
    assert np.mean([first == other for first, other in compared]) >= same
    assert np.mean([abs(first - other) <= 1 for first, other in compared]) >= 0.85


def _first_regression(values: np.ndarray, history: int, prior: NightSpread) -> int | None:
    """Return the first night after the history with a regression, -1 without one; None if the history has an alarm."""
    state = change_detection.followed(values[:history], prior)
    if state.alarms:
        return None
    for night in range(history, len(values)):
        state = change_detection.next_state(state, values[: night + 1], prior)
        course = change_detection.course(state, values[: night + 1], prior)
        if regression.compared(course, 0, 0.05).outcome == "regression":
            return night - history
    return -1


@pytest.mark.parametrize("model", list(_MODELS))
@pytest.mark.parametrize(
    ("repeats", "history", "drop", "power"),
    [(3, 8, 0.1, 0.8), (3, 20, 0.1, 0.8), (10, 20, 0.1, 0.8), (3, 60, 0.07, 0.8), (3, 20, 0.07, 0.5), (3, 8, 0.2, 0.5)],
)
def test_simulated_campaigns_find_the_drop_in_the_planned_nights(
    model: str, repeats: int, history: int, drop: float, power: float
) -> None:
    made = _campaign(_MODELS[model], repeats, history, _wanted(drop, power=power))
    further = 2 * made.nights + 4
    until = nightly_rates.nights_until_found(BUILT_WITH[model], repeats, history, -drop, 80, 31, further=further)
    simulated = float(np.quantile(until, power, method="inverted_cdf"))
    assert made.nights <= max(simulated + 2, 1.5 * simulated)
    assert simulated <= max(made.nights + 2, 1.5 * made.nights)


def test_simulated_nights_without_a_drop_show_the_stated_error() -> None:
    made = _campaign(_USUAL, 3, 20, _wanted(0.1, tolerance=0.02))
    drawn = BUILT_WITH["runs 2 %, nights 5 %"]
    until = nightly_rates.nights_until_found(drawn, 3, 20, 0.0, 300, 32, 0.02, further=made.nights)
    assert abs(float((until <= made.nights).mean()) - made.error) <= 0.03


def test_a_wanted_error_needs_more_nights_and_rarer_evidence() -> None:
    usual, strict = (_campaign(_USUAL, 3, 20, _wanted(0.1, error, tolerance=0.02)) for error in (None, 0.01))
    assert usual.error > 0.02
    assert strict.error <= 0.01
    assert strict.nights > usual.nights
    assert usual.excess == -EASED < strict.excess
    assert strict.chance_a_year < usual.chance_a_year
    assert _campaign(_USUAL, 3, 20, _wanted(0.1, 0.5, tolerance=0.02)) == usual, "it never eases what compare does"


def test_a_short_history_needs_nights_before_the_drop() -> None:
    without, few = (_campaign(_USUAL, 3, history, _wanted(0.1, tolerance=0.02)) for history in (0, 4))
    assert without.before >= 5
    assert few.before in (1, 6, 16, 26)
    assert _campaign(_USUAL, 3, 5, _wanted(0.2)).before == 0


def test_a_small_drop_is_not_found_and_the_smallest_one_is() -> None:
    wanted = _wanted(0.03, tolerance=0.015)
    assert detection_plan.campaign(_USUAL, 3, 20, wanted) is None
    smallest = detection_plan.smallest(_USUAL, 3, 20, MOST, wanted)
    assert smallest is not None
    assert 0.03 < smallest < 0.08
    assert detection_plan.campaign(_USUAL, 3, 20, wanted._replace(drop=smallest)) is not None
    assert detection_plan.smallest(CampaignNoise(1.5, 0.0, NightSpread(1.5, 10, "site")), 3, 20, 1, wanted) is None


@settings(deadline=None, max_examples=5)
@given(st.floats(0.01, 0.08), st.integers(5, 40))
def test_fewer_nights_show_larger_drops_only(nights: float, history: int) -> None:
    noise = CampaignNoise(nights, 0.02, ASSUMED)
    drops = [detection_plan.smallest(noise, 3, history, count, _wanted(0.1)) for count in (1, 3, 10)]
    assert all(drop is not None and drop > 0.05 for drop in drops)
    assert drops == sorted(drops, reverse=True)  # type: ignore[type-var]


def test_more_repeats_help_if_runs_differ() -> None:
    one, ten = (_campaign(CampaignNoise(0.01, 0.06, ASSUMED), repeats, 20, _wanted(0.1)).nights for repeats in (1, 10))
    assert ten < one


@pytest.mark.parametrize("repeats", [1, 2, 3, 4, 5, 10])
def test_the_level_of_a_night_varies_as_that_of_drawn_runs(repeats: int) -> None:
    runs = np.log(noise_models.draw(BUILT_WITH["runs 2 %, nights 5 %"], np.zeros(1), repeats, 4000, 33))[:, 0, 0]
    levels = np.array([outlying_runs.level(values) for values in runs])
    assert _USUAL.of_level(repeats) == pytest.approx(levels.std(), rel=0.04)


def test_the_interval_of_a_criterion_narrows_with_the_nights() -> None:
    wide, narrow = (detection_plan.nights_of_interval(_USUAL, 3, width) for width in (0.1, 0.05))
    assert wide is not None
    assert narrow is not None
    assert 1 < wide < narrow
    assert detection_plan.nights_of_interval(_USUAL, 3, 0.005) is None
