"""The rates of wrong verdicts on nights whose truth is known.

Nights are drawn with a seed and judged one after another, as a facility does, by the functions that `compare` uses.
"""

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Literal, NamedTuple

import numpy as np

from dlio_hpc.analysis.quantiles import Floats
from dlio_hpc.verdict import change_detection, detection_plan, night_series, regression
from dlio_hpc.verdict.detection_plan import WantedDetection
from dlio_hpc.verdict.regression import Compared
from dlio_hpc.verdict.variation import ASSUMED, NightSpread
from tests.bench import noise_models, parallel, study_rates
from tests.bench.noise_models import BUILT_WITH, Noise
from tests.bench.study_rates import Table

Array = np.ndarray[Any, Any]
Kind = Literal["step", "drift"]
_KINDS: tuple[Kind, ...] = ("step", "drift")
_MONDAY = date(2026, 6, 1)


class Judged(NamedTuple):
    """Verdict on a night. night: its index. place: index of its night in the series of nights."""

    night: int
    compared: Compared
    state: change_detection.State


def course(
    nights: Array,
    tolerance: float = 0.05,
    reference: int = 0,
    first: int = 1,
    site: NightSpread = ASSUMED,
    among: int = 1,
) -> Iterator[Judged]:
    """Yield the verdict on the last job of each night. nights: samples/s, shape (nights, jobs, repeats). reference:
    index of the night whose first job is the baseline. first: index of the first night that is judged. site: knowledge
    about the variation between nights from elsewhere. among: number of measurements of the site.
    """
    jobs: list[night_series.JobLevel] = []
    before, states = np.zeros(0), [change_detection.START]
    for night, runs in enumerate(np.log(nights)):
        jobs += [night_series.job(_MONDAY + timedelta(days=night), values) for values in runs]
        place = min(reference, night) * len(runs)
        series = night_series.of(jobs, place if night > reference else None)
        states = _followed(series, states, before, site)
        before = series.values
        if night < max(first, reference + 1):
            continue
        judged = change_detection.course(states[-1], series.values, night_series.prior(series, site), series.extra)
        yield Judged(night, regression.compared(judged, series.place(place), tolerance, among), states[-1])


def _followed(
    series: night_series.NightSeries, states: list[change_detection.State], before: Floats, site: NightSpread
) -> list[change_detection.State]:
    """Follow a series from the first night whose value has changed. states: before the first night, and after each
    night of the earlier series. before: values of that series. Return the states of this series.
    """
    prior, values = night_series.prior(series, site), series.values
    count = min(len(before), len(values))
    is_changed = before[:count] != values[:count]
    same = int(np.argmax(is_changed)) if is_changed.any() else count
    states = states[: same + 1]
    for night in range(same, len(values)):
        states.append(change_detection.next_state(states[-1], values[: night + 1], prior, series.extra[: night + 1]))
    return states


class Rates(NamedTuple):
    """Rates of verdicts without a change. Alarms count the beginnings of outcomes. regressions, improvements: alarms a
    year. regression_nights: nights a year with a regression. passes: share of nights. holding: share of the intervals
    that contain the true difference. worst: most alarms of a regression in one series and year.
    """

    regressions: float
    improvements: float
    regression_nights: float
    passes: float
    holding: float
    worst: float


def without_change(noise: Noise, repeats: int, series: int, seed: int = 1) -> Rates:
    """Return the rates for series of nights without a change, which are judged every night for a year. The first night
    is the baseline, and the tolerance is 5 %. Noise whose series must be followed anew every night is judged in a
    quarter of the series and a third of the nights.
    """
    is_slow = noise.weekend > 0 or noise.jobs > 1
    series, nights = (max(1, series // 4), 120) if is_slow else (series, 365)
    counts = np.array([year.counts for year in _years(noise, repeats, series, nights, seed)])
    years = nights / 365
    regressions, improvements, regression_nights, passes, holding = counts.mean(axis=0)
    return Rates(
        regressions=regressions / years,
        improvements=improvements / years,
        regression_nights=regression_nights / years,
        passes=passes / (nights - 1),
        holding=holding / (nights - 1),
        worst=float(counts[:, 0].max()) / years,
    )


class _Year(NamedTuple):
    """Verdicts on a series without a change. counts: of alarms of a regression, alarms of an improvement, nights with a
    regression, nights that pass, and intervals that contain the true difference. chances: rarest chance that each alarm
    states.
    """

    counts: tuple[int, ...]
    chances: list[float]


@functools.cache
def _years(noise: Noise, repeats: int, series: int, nights: int, seed: int) -> list[_Year]:
    """Return the verdicts on each series. Two tables use them."""
    drawn = noise_models.draw(noise, noise_models.flat(nights), repeats, series, seed)
    return parallel.mapped(_year, list(drawn))


def _year(nights: Array) -> _Year:
    verdicts = [judged.compared for judged in course(nights)]
    outcomes = [verdict.outcome for verdict in verdicts]
    begins = [now for now, before in zip(outcomes, ["", *outcomes], strict=False) if now != before]
    holding = sum(verdict.difference.low <= 0 <= verdict.difference.high for verdict in verdicts)
    counts = (
        begins.count("regression"),
        begins.count("improved"),
        outcomes.count("regression"),
        outcomes.count("pass"),
        holding,
    )
    return _Year(counts, _stated(verdicts))


# Chances by which alarms are counted: at most this number a year.
CHANCES = (1.0, 0.5, 0.2, 0.1)


def of_chances(noise: Noise, series: int, seed: int = 1) -> list[float]:
    """Return how many alarms a year state that they happen by chance at most as often as CHANCES, on any of their
    nights, in series without a change. True statements are as frequent as they say.
    """
    stated = [chance for year in _years(noise, 3, series, 365, seed) for chance in year.chances]
    # Alarms are regressions or improvements; a statement is about one of the two.
    return [sum(chance <= most for chance in stated) / series / 2 for most in CHANCES]


def _stated(verdicts: Sequence[Compared]) -> list[float]:
    """Return the rarest chance that each alarm states."""
    chances: list[float] = []
    before = ""
    for outcome, chance in ((verdict.outcome, verdict.a_year) for verdict in verdicts):
        if outcome in ("regression", "improved") and chance is not None:
            chances = [*chances, chance] if outcome != before else [*chances[:-1], min(chances[-1], chance)]
        before = outcome
    return chances


class Finding(NamedTuple):
    """How a drop is found. median: number of nights until it is a regression. within: share of series in which it is
    found within 3 nights, and within 10. passed: share of series that pass on the night on which the newest nights that
    are compared first are all nights after the drop.
    """

    median: float
    within: tuple[float, float]
    passed: float


# Nights after a drop that are judged, and the number that stands for a drop that is not found.
_FURTHER, _NEVER = 40, 99


def of_drop(
    noise: Noise, repeats: int, history: int, change: float, series: int, seed: int = 2, tolerance: float = 0.05
) -> Finding:
    """Return how a drop is found. history: number of nights before it. change: ratio, such as -0.1. A series in which
    the drop is not found within 40 nights counts as 99 nights.
    """
    nights, passed = _found_in(noise, repeats, history, change, series, seed, tolerance).T
    return Finding(
        float(np.median(nights)), (float((nights <= 3).mean()), float((nights <= 10).mean())), float(passed.mean())
    )


def nights_until_found(
    noise: Noise,
    repeats: int,
    history: int,
    change: float,
    series: int,
    seed: int = 2,
    tolerance: float = 0.05,
    further: int = _FURTHER,
) -> Array:
    """Return the number of nights in which each series shows a drop, or 99. further: number of nights after the drop.
    The other parameters are those of of_drop().
    """
    nights: Array = _found_in(noise, repeats, history, change, series, seed, tolerance, further)[:, 0]
    return nights


def _found_in(
    noise: Noise,
    repeats: int,
    history: int,
    change: float,
    series: int,
    seed: int,
    tolerance: float,
    further: int = _FURTHER,
) -> Array:
    """Return the results of _found_after() for each series, of shape (series, 2)."""
    levels = noise_models.step(history + further, history, change)
    drawn = noise_models.draw(noise, levels, repeats, series, seed)
    task = functools.partial(_found_after, history=history, tolerance=tolerance)
    return np.array(parallel.mapped(task, list(drawn)))


def _found_after(nights: Array, history: int, tolerance: float) -> tuple[int, bool]:
    """Return the number of nights until a drop is a regression, and whether the first night passes that is compared
    with nights after the drop alone.
    """
    after, passes = _NEVER, None
    for judged in course(nights, tolerance, first=history):
        since = judged.night - history + 1
        if passes is None and len(judged.compared.levels.newest) <= since:
            passes = judged.compared.outcome == "pass"
        if judged.compared.outcome == "regression":
            after = min(after, since)
        if after < _NEVER and passes is not None:
            break
    return after, bool(passes)


class Described(NamedTuple):
    """How changes are described. right: share of series in which the change is of the true kind. date: median number of
    nights between the true and the stated first night. holding: share of series whose range of dates contains the true
    first night.
    """

    right: float
    date: float
    holding: float


def of_changes(kind: Kind, noise: float, series: int, seed: int = 3) -> Described:
    """Return how a change of -15 % after 40 nights is described 40 nights later. kind: "step", or "drift" of 25 nights.
    noise: between nights.
    """
    levels = noise_models.step(80, 40, -0.15) if kind == "step" else noise_models.drift(80, 39, 64, -0.15)
    drawn = noise_models.draw(Noise(0.01, between=noise), levels, 3, series, seed)
    results = np.array(parallel.mapped(functools.partial(_described, kind=kind), list(drawn)))
    return Described(float(results[:, 0].mean()), float(np.median(results[:, 1])), float(results[:, 2].mean()))


def _described(nights: Array, kind: Kind) -> tuple[bool, int, bool]:
    values = np.median(np.log(nights[:, 0]), axis=1)
    state = change_detection.followed(values)
    changes = change_detection.described(state, change_detection.course(state, values)).changes
    downward = [change for change in changes if change.size < 0]
    if not downward:
        return False, _NEVER, False
    first = min(downward, key=lambda change: abs(change.at - 40))
    return first.kind == kind and len(downward) == 1, abs(first.at - 40), first.earliest <= 40 <= first.latest


def accepted_step(series: int, seed: int = 4) -> float:
    """Return the share of series with a regression in the 60 nights after a drop of 10 % that is accepted on its third
    night. Nights differ by 5 %, runs by 2 %.
    """
    drawn = noise_models.draw(BUILT_WITH["runs 2 %, nights 5 %"], noise_models.step(93, 30, -0.1), 3, series, seed)
    return float(np.mean(parallel.mapped(_alarms_after_acceptance, list(drawn))))


def _alarms_after_acceptance(nights: Array) -> bool:
    return any(judged.compared.outcome == "regression" for judged in course(nights, reference=32))


def of_suites(suites: int, among: int, sites: int, seed: int = 5) -> tuple[float, float]:
    """Return the number of regressions that begin a night, of all suites of a site together, without a change: in the
    first 10 nights, and in the first 60. Nights differ by 5 %, runs by 2 %, and suites do not depend on each other.
    among: number of measurements with which verdicts reckon.
    """
    levels = noise_models.flat(60)
    drawn = noise_models.draw(BUILT_WITH["runs 2 %, nights 5 %"], levels, 3, suites * sites, seed)
    begins = np.array(parallel.mapped(functools.partial(_begins, among=among), list(drawn))).sum(axis=0) / sites
    return float(begins[1:10].mean()), float(begins[1:].mean())


def _begins(nights: Array, among: int) -> list[bool]:
    outcomes = ["", *(judged.compared.outcome for judged in course(nights, among=among))]
    return [
        False,
        *(now == "regression" != before for now, before in zip(outcomes[1:], outcomes, strict=False)),
    ]


def tables(series: int, models: Mapping[str, Noise] = BUILT_WITH) -> Iterator[Table]:
    """Yield the tables of rates. series: number of drawn series of each row; twice as many for a drop, and half as many
    for nights of 5 and 10 repeats without a change.
    """
    usual = BUILT_WITH["runs 2 %, nights 5 %"]
    drops = [
        (name, str(history), f"{100 * change:.0f} %", of_drop(noise, 3, history, change, 2 * series))
        for name, noise in (("runs 2 %, nights 5 %", usual), ("runs 3 %", BUILT_WITH["runs 3 %"]))
        for history in (3, 8, 20, 60)
        for change in (-0.02, -0.05, -0.1, -0.2)
    ]
    yield _drops(drops)
    yield _planned(series)
    kinds = [(kind, f"{100 * noise:g} %", of_changes(kind, noise, series)) for kind in _KINDS for noise in (0.02, 0.05)]
    yield _changes(kinds)
    yield _accepted(series)
    yield _suites(series)
    yield _chances(series)
    flat = [
        (name, str(repeats), without_change(noise, repeats, series if repeats == 3 else max(1, series // 2)))
        for name, noise in models.items()
        for repeats in (3, 5, 10)
    ]
    yield _without_change(flat)


def _without_change(rows: list[tuple[str, str, Rates]]) -> Table:
    header = ("noise", "repeats", "regressions", "improvements", "nights", "worst year", "pass", "intervals hold")
    cells: list[tuple[str, ...]] = [
        (
            name,
            repeats,
            f"{rates.regressions:.2f}",
            f"{rates.improvements:.2f}",
            f"{rates.regression_nights:.1f}",
            f"{rates.worst:.0f}",
            f"{100 * rates.passes:.0f} %",
            f"{100 * rates.holding:.1f} %",
        )
        for name, repeats, rates in rows
    ]
    return Table("A year of nights without a change, tolerance 5 %", header, cells)


def _drops(rows: list[tuple[str, str, str, Finding]]) -> Table:
    header = ("noise", "nights before", "drop", "median nights", "found in 3", "found in 10", "pass meanwhile")
    cells: list[tuple[str, ...]] = [
        (
            *names,
            f"{finding.median:g}" if finding.median < _NEVER else f"> {_FURTHER}",
            *(f"{100 * share:.0f} %" for share in finding.within),
            f"{100 * finding.passed:.0f} %",
        )
        for *names, finding in rows
    ]
    return Table("A drop, 3 repeats, tolerance 5 %", header, cells)


def _planned(series: int) -> Table:
    """Return the nights that a plan states until 80 % of the series show a drop, and those of simulated campaigns."""
    known = {"runs 2 %, nights 5 %": (0.05, 0.02), "runs 3 %": (0.0, 0.03)}
    cells = []
    for name, (between, runs) in known.items():
        for history, drop in itertools.product((8, 20, 60), (0.07, 0.1, 0.2)):
            wanted = WantedDetection(drop, 0.8, None, min(0.05, drop / 2))
            made = detection_plan.campaign(detection_plan.CampaignNoise(between, runs, ASSUMED), 3, history, wanted)
            until = nights_until_found(
                BUILT_WITH[name], 3, history, -drop, series, 5, wanted.tolerance, detection_plan.MOST
            )
            simulated = int(np.quantile(until, wanted.power, method="inverted_cdf"))
            planned = None if made is None else made.nights
            cells.append((name, str(history), f"-{100 * drop:.0f} %", _at_most(planned), _at_most(simulated)))
    header = ("noise", "nights before", "drop", "planned nights", "simulated nights")
    return Table("A drop that 80 % of campaigns find, 3 repeats, tolerance 5 % or half of the drop", header, cells)


def _at_most(nights: int | None) -> str:
    return f"> {detection_plan.MOST}" if nights is None or nights > detection_plan.MOST else str(nights)


def _changes(rows: Sequence[tuple[str, str, Described]]) -> Table:
    header = ("kind", "nights differ by", "right kind", "date off by (median)", "range holds")
    cells = [
        (*names, f"{100 * result.right:.0f} %", f"{result.date:g}", f"{100 * result.holding:.0f} %")
        for *names, result in rows
    ]
    return Table("A change of -15 % after 40 nights, described 40 nights later", header, cells)


def _accepted(series: int) -> Table:
    rate = f"{100 * accepted_step(series):.1f} %"
    return Table("A drop of 10 %, accepted on its third night", ("regression in 60 nights",), [(rate,)])


def _suites(series: int) -> Table:
    header = ("verdicts reckon with", "first 10 nights", "first 60 nights")
    cells = [
        (
            f"{among} measurement{'s' if among > 1 else ''}",
            *(f"{rate:.3f}" for rate in of_suites(30, among, max(1, series // 6))),
        )
        for among in (1, 30)
    ]
    return Table("30 suites a night without a change: regressions that begin a night, of all suites", header, cells)


def _chances(series: int) -> Table:
    header = ("noise", *(f"at most {chance:g} a year" for chance in CHANCES))
    cells = [
        (name, *(f"{rate:.2f}" for rate in of_chances(BUILT_WITH[name], series)))
        for name in ("runs 2 %, nights 5 %", "runs 10 %", "two states, 30 % slow", "autoregression 0.5")
    ]
    return Table("Alarms a year without a change, by the chance that they state", header, cells)


def bench() -> None:
    """Print the rates of all methods as tables in Markdown."""
    for table in [*tables(50), *study_rates.tables(1000, 1)]:
        print(f"\n{table.title}\n\n| {' | '.join(table.header)} |\n|{'---|' * len(table.header)}")
        for row in table.rows:
            print(f"| {' | '.join(row)} |", flush=True)
