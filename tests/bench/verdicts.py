"""The rates of wrong verdicts: false alarms and misses in 1,000 draws of each history whose truth is known."""

from collections import Counter
from typing import NamedTuple

import numpy as np

from dlio_hpc.records.outcomes import Outcome
from dlio_hpc.verdict import change_detection, regression
from dlio_hpc.verdict.trend import Night
from tests import nights

DRAWS = 1000


class Scenario(NamedTuple):
    """levels: the logarithm of the true rate of each night; two levels are the baseline and the job. noise: of a
    repeat. between: noise that the repeats of a night share. is_worse: whether the last night is worse by more than
    the tolerance. most: false alarms or misses that 1,000 draws may have.
    """

    name: str
    levels: tuple[float, ...]
    noise: float
    between: float
    repeats: int
    is_worse: bool
    most: int


class Rates(NamedTuple):
    """missed: outcomes pass and improved, which are wrong where the night is worse. false_alarms: outcome regression,
    which is wrong where it is not. An inconclusive outcome is neither.
    """

    outcomes: Counter[Outcome]

    @property
    def missed(self) -> int:
        return self.outcomes["pass"] + self.outcomes["improved"]

    @property
    def false_alarms(self) -> int:
        return self.outcomes["regression"]


def _flat(nights_: int) -> tuple[float, ...]:
    return (0.0,) * nights_


def _step(before: int, after: int, drop: float) -> tuple[float, ...]:
    return (*_flat(before), *(float(np.log(1 - drop)),) * after)


def _drift(count: int, drop: float) -> tuple[float, ...]:
    return tuple(float(level) for level in np.linspace(0, np.log(1 - drop), count))


def _outlier(count: int, place: int, drop: float) -> tuple[float, ...]:
    levels = list(_flat(count))
    levels[place] = float(np.log(1 - drop))
    return tuple(levels)


SINGLE = [
    Scenario("no change, 1 % noise, 3 repeats", _flat(2), 0.01, 0, 3, False, 20),
    Scenario("no change, 1 % noise, 5 repeats", _flat(2), 0.01, 0, 5, False, 10),
    Scenario("no change, 6 % noise, 3 repeats", _flat(2), 0.06, 0, 3, False, 70),
    Scenario("no change, 6 % noise, 5 repeats", _flat(2), 0.06, 0, 5, False, 40),
    Scenario("3 % drop, 1 % noise, 3 repeats", _step(1, 1, 0.03), 0.01, 0, 3, True, 140),
    Scenario("3 % drop, 1 % noise, 5 repeats", _step(1, 1, 0.03), 0.01, 0, 5, True, 70),
    Scenario("3 % drop, 6 % noise, 3 repeats", _step(1, 1, 0.03), 0.06, 0, 3, True, 50),
    Scenario("3 % drop, 6 % noise, 5 repeats", _step(1, 1, 0.03), 0.06, 0, 5, True, 30),
]
HISTORIES = [
    Scenario("40 nights, no change, 1 % noise", _flat(40), 0.01, 0, 3, False, 30),
    Scenario("40 nights, no change, 6 % noise", _flat(40), 0.06, 0, 3, False, 70),
    Scenario("40 nights, no change, 1 %, nights differ by 2 %", _flat(40), 0.01, 0.02, 3, False, 70),
    Scenario("20 + 10 nights, 3 % step, 1 % noise", _step(20, 10, 0.03), 0.01, 0, 3, True, 40),
    Scenario("30 + 30 nights, 3 % step, 6 % noise", _step(30, 30, 0.03), 0.06, 0, 3, True, 30),
    Scenario("30 + 30 nights, 3 % step, 1 %, nights 2 %", _step(30, 30, 0.03), 0.01, 0.02, 3, True, 60),
    Scenario("40 nights, drift to -6 %, 1 % noise", _drift(40, 0.06), 0.01, 0, 3, True, 10),
    Scenario("40 nights, one of them -15 %, 1 % noise", _outlier(40, 30, 0.15), 0.01, 0, 3, False, 30),
]


def rates(scenario: Scenario, seed: int = 1) -> Rates:
    """Judge the last night against the first, which is the baseline. The nights between them are the history."""
    return Rates(Counter(_outcome(series) for series in _drawn(scenario, seed)))


def _drawn(scenario: Scenario, seed: int) -> list[list[Night]]:
    logs = np.tile(np.array(scenario.levels), (DRAWS, 1))
    values = nights.draw(logs, scenario.noise, scenario.between, scenario.repeats, seed).tolist()
    days = [nights.day(night) for night in range(len(scenario.levels))]
    return [
        [
            Night(f"night-{number}", day, tuple(repeats))
            for number, (day, repeats) in enumerate(zip(days, series, strict=True))
        ]
        for series in values
    ]


def _outcome(series: list[Night]) -> Outcome:
    return regression.weigh(series, series[0], "samples_per_s", 0.02).outcome


def bench() -> None:
    print(
        f"\nverdicts on {DRAWS} draws each, tolerance 2 %; the last night against the first\n"
        f"{'truth':50}{'pass':>6}{'impr.':>6}{'regr.':>6}{'inc.':>6}  wrong",
        flush=True,
    )
    for scenario in [*SINGLE, *HISTORIES]:
        scenario_rates = rates(scenario)
        counts = [scenario_rates.outcomes[name] for name in ("pass", "improved", "regression", "inconclusive")]
        wrong = f"{100 * scenario_rates.missed / DRAWS:.1f} % missed" if scenario.is_worse else (
            f"{100 * scenario_rates.false_alarms / DRAWS:.1f} % false alarms"
        )  # fmt: skip
        print(f"{scenario.name:50}{''.join(f'{count:6}' for count in counts)}  {wrong}", flush=True)
    for noise, between in ((0.01, 0.0), (0.06, 0.0), (0.01, 0.02)):
        alarms = _alarms(noise, between)
        name = f"60 nights looked at each night, {100 * noise:g} % noise, nights {100 * between:g} %"
        print(f"{name}: the history changed by chance in {alarms} of {DRAWS}", flush=True)


def _alarms(noise: float, between: float) -> int:
    """Count the series without any change in which a change is detected, looking at each night."""
    count, alarms = 60, 0
    for values in nights.draw(np.zeros((DRAWS, count)), noise, between, 3, 7):
        logs = np.log(np.median(values, axis=1))
        alarms += any(change_detection.find(logs[:night]).changes for night in range(8, count + 1))
    return alarms
