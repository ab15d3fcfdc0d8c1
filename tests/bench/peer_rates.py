"""False alarms of other tools on nightly results, and how soon they find a step.

A method looks at the results up to a night, each night. It alarms if it says that the newest level is slower than the
reference or than the level before. A night counts as a single value, the median of its runs, as the other tools have no
nights of several runs. Methods of change detection name the same change in each further night, so a false change
counts as an alarm in many nights.

Kernel change detection of the package ruptures is not compared. It is another method than E-divisive means, and it has
no test of significance.
"""

import importlib
import statistics
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from tests.bench.noise_models import BUILT_WITH, Array, Noise, draw, flat, step
from tests.bench.study_rates import Table

# From the results so far, of shape (nights, jobs, repeats), to whether the method alarms in the last night.
Method = Callable[[Array], bool]
SERIES = 100
REPEATS = 3
NIGHTS = 60
# Number of nights before a step, and largest number of nights until it is found.
_BEFORE = 20
_LOOKS = 30
STEPS = (-0.10, -0.05)
# Tolerance of ReFrame and of asv. It is the default of asv.
_TOLERANCE = 0.05


class MethodRates(NamedTuple):
    """What a method says. alarm_nights: false alarm nights a year. alarmed_series: share of series without a change
    that have an alarm in any night. nights_to_find: median number of nights until a step is found, for each of STEPS;
    infinite if most are not found, None if the method alarms in the night before the step in all series.
    """

    alarm_nights: float
    alarmed_series: float
    nights_to_find: tuple[float | None, ...]


def peers() -> dict[str, Method | None]:
    """Return the methods of other tools by name. None: the tool is not installed."""
    makers = {
        "ReFrame": _reframe,
        "asv": _asv,
        "E-divisive means": _e_divisive,
        "Otava": _otava,
    }
    return {name: _if_installed(make) for name, make in makers.items()}


def _if_installed(make: Callable[[], Method]) -> Method | None:
    try:
        return make()
    except ImportError:
        return None


def _levels(history: Array) -> Array:
    return np.asarray(np.median(history, axis=(1, 2)))


def _reframe() -> Method:
    """Compare with the first night as the reference, tolerance 5 %."""
    sanity = importlib.import_module("reframe.utility.sanity")
    errors = importlib.import_module("reframe.core.exceptions")

    def is_slower(history: Array) -> bool:
        levels = _levels(history)
        try:
            sanity.evaluate(sanity.assert_reference(float(levels[-1]), float(levels[0]), -_TOLERANCE, None))
        except errors.SanityError:
            return True
        return False

    return is_slower


def _asv() -> Method:
    """Detect steps of the time per sample. asv names a regression if the latest level is worse than an earlier one."""
    detect: Any = importlib.import_module("asv.step_detect")

    def is_slower(history: Array) -> bool:
        steps = detect.detect_steps((1 / _levels(history)).tolist())
        return detect.detect_regressions(steps, _TOLERANCE)[2] is not None

    return is_slower


def _e_divisive() -> Method:
    """Test change points by permutations, with the defaults of MongoDB's signal-processing-algorithms."""
    package = "signal_processing_algorithms.energy_statistics.energy_statistics"
    energy: Any = importlib.import_module(package)

    def is_slower(history: Array) -> bool:
        levels = _levels(history)
        np.random.seed(len(levels))  # the package draws permutations from the global generator
        changes = sorted(energy.e_divisive(levels))
        if not changes:
            return False
        *_, before, after = np.split(levels, changes)
        return bool(after.mean() < before.mean())

    return is_slower


def _otava() -> Method:
    """Test change points by Student's t, with the defaults of Apache Otava, which was Hunter."""
    analysis: Any = importlib.import_module("otava.analysis")

    def is_slower(history: Array) -> bool:
        changes, _ = analysis.compute_change_points(_levels(history).tolist())
        return bool(changes) and bool(changes[-1].stats.mean_2 < changes[-1].stats.mean_1)

    return is_slower


def rates(method: Method, noise: Noise, series: int, seed: int) -> MethodRates:
    """Return the rates of a method. series: number of drawn series. The same noise is drawn with and without a step."""
    alarms = np.array(
        [
            [method(values[:count]) for count in range(2, NIGHTS + 1)]
            for values in _drawn(noise, flat(NIGHTS), series, seed)
        ]
    )
    is_quiet = ~alarms[:, _BEFORE - 2]
    finds = []
    for size in STEPS:
        drawn = _drawn(noise, step(NIGHTS, _BEFORE, size), series, seed)[is_quiet]
        finds.append(statistics.median(_nights_to_find(method, values) for values in drawn) if len(drawn) else None)
    return MethodRates(365 * float(alarms.mean()), float(alarms.any(axis=1).mean()), tuple(finds))


def _drawn(noise: Noise, levels: Array, series: int, seed: int) -> Array:
    return draw(noise, levels, REPEATS, series, seed)


def _nights_to_find(method: Method, values: Array) -> float:
    """Return 1 if the first night after the step alarms."""
    return next((night for night in range(1, _LOOKS + 1) if method(values[: _BEFORE + night])), np.inf)


def tables(methods: Mapping[str, Method | None], series: int = SERIES, seed: int = 1) -> list[Table]:
    """Return a table for each rate: a row for each noise model, a column for each method. methods: by name; None: not
    installed.
    """
    cells: dict[str, list[tuple[str, ...]]] = {
        noise: [_cells(method, BUILT_WITH[noise], series, seed) for method in methods.values()] for noise in BUILT_WITH
    }
    titles = (
        f"False alarm nights a year, in the first {NIGHTS} nights",
        f"Series without a change that have an alarm within {NIGHTS} nights",
        *(f"Nights until a step of {100 * size:g} % is found after {_BEFORE} nights, median" for size in STEPS),
    )
    return [
        Table(title, ("noise", *methods), [(noise, *(cell[place] for cell in row)) for noise, row in cells.items()])
        for place, title in enumerate(titles)
    ]


def _cells(method: Method | None, noise: Noise, series: int, seed: int) -> tuple[str, ...]:
    if method is None:
        return ("not installed",) * (2 + len(STEPS))
    of_method = rates(method, noise, series, seed)
    finds = (_nights_text(nights) for nights in of_method.nights_to_find)
    return (f"{of_method.alarm_nights:.1f}", f"{100 * of_method.alarmed_series:.0f} %", *finds)


def _nights_text(nights: float | None) -> str:
    if nights is None:
        return "-"
    return f"{nights:g}" if np.isfinite(nights) else f"> {_LOOKS}"


def bench() -> None:
    for table in tables(peers()):
        print(f"\n{table.title}\n\n| {' | '.join(table.header)} |\n|{'---|' * len(table.header)}")
        for row in table.rows:
            print(f"| {' | '.join(row)} |")
