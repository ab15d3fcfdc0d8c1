"""Rates of methods follow from what they say, and the tools that are installed find a clear step."""

import numpy as np
import pytest

from tests.bench import peer_rates
from tests.bench.noise_models import BUILT_WITH, Array, Noise, draw, flat, step
from tests.bench.peer_rates import Method

_QUIET = Noise(0.0001)


def _falls(history: Array) -> bool:
    return bool(np.median(history[-1]) < 0.93 * np.median(history[0]))


def test_a_threshold_finds_the_step_that_is_beyond_it() -> None:
    assert peer_rates.rates(_falls, _QUIET, 4, 1) == (0, 0, (1, np.inf))


def test_alarms_of_each_night_are_counted() -> None:
    """Nothing is said of steps if the night before alarms, too."""
    assert peer_rates.rates(lambda history: True, _QUIET, 4, 1) == (365, 1, (None, None))


def test_alarms_of_single_nights_are_counted() -> None:
    """Alarms in nights 30 and 40 of the 59 nights that have an earlier one."""
    of_method = peer_rates.rates(lambda history: len(history) in (30, 40), _QUIET, 4, 1)
    assert of_method.alarm_nights == pytest.approx(365 * 2 / 59)
    assert of_method.alarmed_series == 1
    assert of_method.nights_to_find == (10, 10)


def test_methods_receive_jobs_and_repeats() -> None:
    shapes = set()

    def method(history: Array) -> bool:
        shapes.add(history.shape[1:])
        return False

    peer_rates.rates(method, BUILT_WITH["three jobs a night"], 2, 1)
    assert shapes == {(3, peer_rates.REPEATS)}


def test_tables() -> None:
    methods: dict[str, Method | None] = {"ours": _falls, "absent": None}
    tables = peer_rates.tables(methods, series=2)
    assert len(tables) == 2 + len(peer_rates.STEPS)
    for table in tables:
        assert table.header == ("noise", "ours", "absent")
        assert [row[0] for row in table.rows] == list(BUILT_WITH)
        assert {row[2] for row in table.rows} == {"not installed"}
    assert [table.rows[0][1] for table in tables] == ["0.0", "0 %", "1", "> 30"]


def test_installed_tools_tell_slower_from_faster() -> None:
    installed = {name: method for name, method in peer_rates.peers().items() if method is not None}
    assert "ReFrame" in installed
    for levels, is_slower in ((flat(30), False), (step(30, 20, -0.1), True), (step(30, 20, 0.1), False)):
        (history,) = draw(Noise(0.002), levels, 3, 1, 7)
        assert {name: method(history) for name, method in installed.items()} == dict.fromkeys(installed, is_slower)
