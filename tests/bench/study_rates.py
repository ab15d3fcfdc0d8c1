"""The rates of wrong statements in reports of studies whose truth is known.

Measurements are drawn with a seed and given to the functions that make the reports. A statement is wrong if an interval
does not contain the true ratio, or if a difference is stated where there is none.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest import mock

import numpy as np
from msgspec import structs

from dlio_hpc.analysis.study import best_setting, file_system_pairs, replicates, scaling
from dlio_hpc.analysis.study.best_setting import Comparison
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.plan.study import Study
from tests.bench import parallel
from tests.support import studies

Array = np.ndarray[Any, Any]
# Number of noise-only simulations for a critical value. The reports use more; fewer change critical values by some
# percent.
_SIMULATIONS = 4000
# Number of ranks of the first number of nodes.
_RANKS = 2


class Table(NamedTuple):
    """A table of rates. header: headings of the columns. rows: cells, as text."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


class Noise(NamedTuple):
    """Noise of a single measurement. kind: distribution of the rate. sd: relative standard deviation. "slow runs":
    normally distributed, but 1 run in 20 is twice as slow.
    """

    kind: Literal["normal", "lognormal", "slow runs"]
    sd: float

    def draw(self, random: Any, *shape: int) -> Array:
        """Return logarithms of rates whose true value is 0."""
        z = random.standard_normal(shape)
        if self.kind == "lognormal":
            return np.asarray(self.sd * z)
        logs = np.log(np.maximum(1 + self.sd * z, 0.05))
        return np.asarray(logs - np.log(2) * (random.random(shape) < 0.05) * (self.kind == "slow runs"))

    def __str__(self) -> str:
        return f"{self.kind} {100 * self.sd:g} %"


class Pairs(NamedTuple):
    """A comparison of two file systems. settings: number of settings. pairs: number of pairs of each setting. noise: of
    the settings; the first applies to the first setting, and so on, and the last to all further settings. ratio: true
    ratio of B to A, of every setting.
    """

    settings: int
    pairs: int
    noise: tuple[Noise, ...]
    ratio: float = 1.0


class Scales(NamedTuple):
    """A scaling study without any deviation from ideal scaling. scales: number of scales. jobs: number of jobs of each
    scale. repeats: number of measurements in each job. between, within: standard deviation between jobs and between the
    measurements of a job. settings: number of settings.
    """

    scales: int
    jobs: int
    repeats: int
    between: float = 0.05
    within: float = 0.02
    settings: int = 1


class Settings(NamedTuple):
    """A study of settings on one number of ranks. levels: number of values of each parameter. effects: logarithm of the
    effect of each value of the first parameter; its first value is the reference. noise: of a measurement. repeats:
    number of measurements of each point. jobs: which jobs made the measurements; "split rounds": two jobs, of which the
    second begins in the middle of a round. between: standard deviation between jobs.
    """

    levels: tuple[int, ...]
    repeats: int
    noise: Noise = Noise("lognormal", 0.10)
    effects: tuple[float, ...] = ()
    jobs: Literal["one job", "a job per setting", "split rounds"] = "one job"
    between: float = 0.0


Cell = Pairs | Scales | Settings
# Share of the drawn studies for which a statement is true, by the name of the statement.
Rates = dict[str, float]


def rates(cell: Cell, draws: int, seed: int = 1) -> Rates:
    """Return the rates of statements in the reports of so many drawn studies."""
    random = np.random.default_rng(seed)
    judges: dict[type, Callable[[Any, Any], Iterator[str]]] = {
        Pairs: _of_pairs, Scales: _of_scales, Settings: _of_settings
    }  # fmt: skip
    counts: Counter[str] = Counter()
    with simulated_once():
        for _ in range(draws):
            counts.update(set(judges[type(cell)](cell, random)))
    return {name: count / draws for name, count in counts.items()} | {"draws": float(draws)}


@contextlib.contextmanager
def simulated_once(simulations: int = _SIMULATIONS) -> Iterator[None]:
    """Let studies of the same design share their noise-only simulations, which depend on the design alone."""
    kept: dict[Any, Any] = {}

    def once(name: str) -> Callable[..., Any]:
        original = getattr(replicates, name)

        def call(*designed: Any) -> Any:
            fits = designed[0] if isinstance(designed[0], list) else designed
            key = (name, tuple((fit.counts.tobytes(), fit.weights.tobytes(), fit.df) for fit in fits))
            if key not in kept:
                made = original(*designed)
                kept[key] = list(made) if name == "estimates" else made
            return kept[key]

        return call

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(replicates, "_DRAWS", simulations))
        for name in ("ranges", "estimates"):
            stack.enter_context(mock.patch.object(replicates, name, once(name)))
        yield


_SUMMARY = studies.summary(1.0)


def measured(number: int, repeat: int, job: str, log: float) -> Measured:
    """Return a measurement of a point. log: logarithm of its samples/s."""
    return Measured(number, repeat, job, "run", "", "", structs.replace(_SUMMARY, samples_per_s=float(np.exp(log))))


# Parameters of the demo workload; the first value of each is the reference.
_KEYS = {
    "reader.read_threads": (2, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
    "reader.batch_size": (4, 2, 8, 16),
    "reader.preprocess_threads": (1, 2, 3, 4),
}


def _axes(levels: Sequence[int]) -> list[str]:
    return [
        f"{key}={','.join(map(str, values[:count]))}"
        for (key, values), count in zip(_KEYS.items(), levels, strict=False)
        if count > 1
    ]


@functools.cache
def study(levels: tuple[int, ...], repeats: int, nodes: tuple[int, ...] = (1,), is_ab: bool = False) -> Study:
    """Return a study that varies parameters of the demo workload. levels: number of values of each parameter."""
    rest: dict[str, Any] = {"folders": ("/old", "/new")} if is_ab else {"nodes": nodes, "ranks_per_node": (_RANKS,)}
    return studies.make(Path("/runs"), studies.asked("demo", *_axes(levels), **rest), repeat=repeats)


def _of_pairs(cell: Pairs, random: Any) -> Iterator[str]:
    made = study((cell.settings,), cell.pairs, is_ab=True)
    noises = [cell.noise[min(setting, len(cell.noise) - 1)] for setting in range(cell.settings)]
    logs = np.stack([noise.draw(random, 2, cell.pairs) for noise in noises])
    logs[:, 1] += np.log(cell.ratio)
    runs = [
        measured(point.number, repeat, "tune-1", logs[point.number // 2, point.number % 2, repeat])
        for point in made.points
        for repeat in range(cell.pairs)
    ]
    effects = file_system_pairs.effects(made, runs)
    intervals = [(effect.low, effect.high) for effect in effects]
    if all(low is None or high is None or low <= cell.ratio <= high for low, high in intervals):
        yield "all intervals hold"
    if any(effect.better for effect in effects):
        yield "a setting is named"  # or all of them together
    if any(effect.better == "A" for effect in effects):
        yield "B is slower: exit 1"


def _of_scales(cell: Scales, random: Any) -> Iterator[str]:
    made = study((cell.settings,), cell.jobs * cell.repeats, tuple(2**scale for scale in range(cell.scales)))
    between = random.normal(0, cell.between, (cell.scales, cell.jobs))
    runs = []
    for point in made.points:
        scale = point.nodes.bit_length() - 1
        for repeat in range(made.repeat):
            job = repeat // cell.repeats
            log = np.log(point.ranks) + between[scale, job] + random.normal(0, cell.within)
            runs.append(measured(point.number, repeat, f"tune-{scale}-{job}", log))
    curves = scaling.scalings(made, made.parts[0], runs, 1)
    steps = [step for curve in curves for step in curve.steps[1:]]
    if all(step.low is None or step.high is None or step.low <= step.ideal <= step.high for step in steps):
        yield "all intervals hold"
    if any(step.is_below or step.is_above for step in steps):
        yield "differs from ideal"
    if all(step.low is not None for step in steps):
        yield "noise is known"


def _of_settings(cell: Settings, random: Any) -> Iterator[str]:
    made = study(cell.levels, cell.repeats)
    logs = cell.noise.draw(random, len(made.points), cell.repeats)
    shifts = random.normal(0, cell.between, (len(made.points), 2)) if cell.between else np.zeros((len(made.points), 2))
    runs, truth = [], np.zeros(len(made.points))
    half = len(made.points) // 2
    for point in made.points:
        truth[point.number] = _truth(made, cell, point.number)
        for repeat in range(cell.repeats):
            job = _job(cell, point.number, repeat, half)
            log = truth[point.number] + logs[point.number, repeat] + shifts[job]
            runs.append(measured(point.number, repeat, f"tune-{job[0]}-{job[1]}", log))
    (finding,) = best_setting.findings(made, runs)
    yield from _statements(made, cell, finding.comparisons[0], truth)


def _job(cell: Settings, point: int, repeat: int, half: int) -> tuple[int, int]:
    if cell.jobs == "a job per setting":
        return point, 0
    if cell.jobs == "split rounds":  # a job ends in the middle of a round
        return 0, int(repeat > cell.repeats // 2 or (repeat == cell.repeats // 2 and point >= half))
    return 0, 0


def _truth(made: Study, cell: Settings, number: int) -> float:
    (key, *_) = made.points[number].places
    return cell.effects[made.points[number].places[key]] if cell.effects else 0.0


def _statements(made: Study, cell: Settings, comparison: Comparison, truth: Array) -> Iterator[str]:
    reference = comparison.reference
    assert reference is not None
    intervals = [
        (truth[judged.point] - truth[reference], judged.reference_low, judged.reference_high)
        for judged in comparison.points
    ]
    if all(low is None or high is None or low <= np.exp(true) <= high for true, low, high in intervals):
        yield "all intervals hold"
    ranking = comparison.ranking
    if ranking is not None and ranking.interaction is not None:
        yield "interaction is named"
    if ranking is not None and any(effect.is_beyond_noise for effect in ranking.effects):
        yield "an effect is named"
    if any(judged.verdict == "slower" for judged in comparison.points):
        yield "a setting is named slower"
    if comparison.recommended not in (reference, None):
        yield "a change is recommended"
    usual = made.points[reference].places
    (key, *_) = usual
    if cell.effects:
        wanted = usual | {key: int(np.argmax(cell.effects))}
        if comparison.recommended is not None and made.points[comparison.recommended].places == wanted:
            yield "the right change is recommended"


_NOISES = (
    *(Noise("normal", sd) for sd in (0.01, 0.03, 0.1, 0.3)),
    Noise("lognormal", 0.1),
    Noise("slow runs", 0.03),
    Noise("slow runs", 0.1),
)
_FIFTH = float(np.log(1.2))


_JOBS: tuple[Literal["one job", "a job per setting", "split rounds"], ...] = (
    "one job", "a job per setting", "split rounds"
)  # fmt: skip


class _Asked(NamedTuple):
    """A table of rates. heads: names of the first columns. statements: statements whose rates are in the other columns.
    cells: text of the first columns of each row, and the cell.
    """

    title: str
    heads: tuple[str, ...]
    statements: tuple[str, ...]
    cells: list[tuple[tuple[str, ...], Cell]]


def _asked() -> list[_Asked]:
    return [
        _Asked(
            "Settings without any difference: wrong statements",
            ("points", "repeats", "noise"),
            ("interaction is named", "an effect is named", "a change is recommended"),
            [
                ((" x ".join(map(str, levels)), str(repeats), "10 %"), Settings(levels, repeats))
                for levels in ((2, 2), (3, 3, 3))
                for repeats in (2, 3, 4, 5)
            ],
        ),
        _Asked(
            "One value of one of three parameters is better by 20 %, noise 10 %",
            ("points", "repeats", "effects"),
            ("an effect is named", "a change is recommended", "the right change is recommended"),
            [
                (("3 x 3 x 3", "2", name), Settings((3, 3, 3), 2, effects=effects))
                for name, effects in (("one value", (0.0, 0.0, _FIFTH)), ("rising", (0.0, _FIFTH / 2, _FIFTH)))
            ],
        ),
        _Asked(
            "Settings without any difference, jobs differ by 5 %, runs by 2 %",
            ("points", "repeats", "jobs"),
            ("all intervals hold", "a setting is named slower", "a change is recommended"),
            [
                (
                    (" x ".join(map(str, levels)), str(repeats), jobs),
                    Settings(levels, repeats, Noise("lognormal", 0.02), jobs=jobs, between=0.05),
                )
                for levels, repeats in (((4,), 3), ((3, 3), 2))
                for jobs in _JOBS
            ],
        ),
        _Asked(
            "Two file systems without a difference",
            ("settings", "pairs", "noise"),
            ("all intervals hold", "a setting is named", "B is slower: exit 1"),
            [
                ((str(settings), str(pairs), str(noise)), Pairs(settings, pairs, (noise,)))
                for noise in _NOISES
                for settings in (1, 2, 6, 12)
                for pairs in (2, 3, 5, 8)
            ],
        ),
        _Asked(
            "Two file systems without a difference, one setting of noise 10 %, others 2 %",
            ("settings", "pairs"),
            ("all intervals hold", "a setting is named", "B is slower: exit 1"),
            [
                ((str(settings), str(pairs)), Pairs(settings, pairs, (Noise("normal", 0.1), Noise("normal", 0.02))))
                for settings in (2, 6, 12)
                for pairs in (2, 3, 4, 8)
            ],
        ),
        _Asked(
            "Ideal scaling, jobs differ by 5 %",
            ("scales", "settings", "jobs of a scale", "repeats in a job", "noise in a job"),
            ("all intervals hold", "differs from ideal"),
            [
                (
                    (*map(str, (scales, settings, jobs, repeats)), f"{100 * within:g} %"),
                    Scales(scales, jobs, repeats, within=within, settings=settings),
                )
                for within in (0.02, 0.1)
                for scales in (2, 4)
                for settings in (1, 2)
                for jobs, repeats in ((1, 2), (1, 3), (1, 5), (2, 1), (2, 3), (3, 2), (5, 3))
            ],
        ),
    ]


def tables(draws: int, seed: int) -> list[Table]:
    """Return the tables of rates. draws: number of drawn studies of each row."""
    return [_table(asked, draws, seed) for asked in _asked()]


def _table(asked: _Asked, draws: int, seed: int) -> Table:
    of_cells = parallel.mapped(functools.partial(rates, draws=draws, seed=seed), [cell for _, cell in asked.cells], 1)
    rows = [
        (*texts, *(f"{100 * of_cell.get(statement, 0):.1f} %" for statement in asked.statements))
        for (texts, _), of_cell in zip(asked.cells, of_cells, strict=True)
    ]
    return Table(asked.title, (*asked.heads, *asked.statements), rows)
