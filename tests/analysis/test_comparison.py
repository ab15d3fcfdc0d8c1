"""Findings are compared with a made-up truth: differences are found, and noise is called noise."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.analysis.study import best_setting, file_system_pairs, main_effects, ratios, replicates
from dlio_hpc.analysis.study.best_setting import Comparison, Finding
from dlio_hpc.analysis.study.job_spread import JobSpread
from dlio_hpc.analysis.study.scaling import scalings
from dlio_hpc.base import units
from dlio_hpc.plan.study import Study
from dlio_hpc.verdict import acceptance
from dlio_hpc.verdict.criteria_file import Criteria, Criterion
from tests.bench import study_rates
from tests.support import studies
from tests.support.judged import KEY, repeats

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def _drawn_once() -> Iterator[None]:
    """The effect of noise depends on the design alone, not on the measurements, so that studies share their draws."""
    with study_rates.simulated_once():
        yield


def _threads(folder: Path, points: int, repeat: int, **rest: Any) -> Study:
    """The reference is the second point: demo has two read threads."""
    values = ",".join(str(number + 1) for number in range(points))
    return studies.make(folder, studies.asked("demo", f"reader.read_threads={values}", **rest), repeat=repeat)


def _found(made: Study, logs: Array, **figures: Any) -> Finding:
    """logs: (points, repeats); nan: not measured."""
    rates = np.exp(logs)
    there = {place: float(rate) for place, rate in np.ndenumerate(rates) if not np.isnan(rate)}
    values = studies.measured(made, lambda *place: there.get(place), **figures)
    (finding,) = best_setting.findings(made, values)
    return finding


def _compared(made: Study, logs: Array) -> Comparison:
    (comparison,) = _found(made, logs).comparisons
    return comparison


def _often(made: Study, sd: float, truth: Array, seed: int, draws: int = 200) -> list[Comparison]:
    random = np.random.default_rng(seed)
    return [_compared(made, truth[:, None] + random.normal(0, sd, (len(truth), made.repeat))) for _ in range(draws)]


def _verdicts(comparison: Comparison) -> list[str]:
    return [point.verdict for point in comparison.points]


def _share(comparisons: list[Comparison], holds: Callable[[Comparison], bool]) -> float:
    return sum(map(holds, comparisons)) / len(comparisons)


def test_parameters_with_too_many_values_have_no_effects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four values are as many as this limit allows, and one more than the next."""
    logs = np.array([[0.0, 0.01], [0.1, 0.11], [0.2, 0.21], [0.3, 0.31]])
    monkeypatch.setattr(main_effects, "_MOST_LEVELS", 4)
    ranking = _compared(_threads(tmp_path, 4, 2), logs).ranking
    assert ranking is not None
    assert len(ranking.effects[0].levels) == 4
    monkeypatch.setattr(main_effects, "_MOST_LEVELS", 3)
    assert _compared(_threads(tmp_path, 4, 2), logs).ranking is None


def test_a_point_alone_has_no_effects(tmp_path: Path) -> None:
    made = _threads(tmp_path, 3, 2)
    fit: Any = None
    assert main_effects.analysis(made.parts[0], made.points[:1], fit, 1) is None


@pytest.mark.parametrize(("sd", "repeat"), [(0.02, 3), (0.03, 3), (0.05, 5)])
def test_a_point_that_is_a_fifth_slower_is_found(tmp_path: Path, sd: float, repeat: int) -> None:
    made = _threads(tmp_path, 5, repeat)
    for slow in (1, 3):
        truth = np.where(np.arange(5) == slow, np.log(0.8), 0.0)
        comparisons = _often(made, sd, truth, seed=slow)
        rate = sum(comparison.points[slow].verdict == "slower" for comparison in comparisons) / len(comparisons)
        assert rate >= 0.95, rate
        best = _share(comparisons, lambda comparison: comparison.recommended == 1)
        assert best < 0.05 if slow == 1 else best >= 0.95, "keep the reference exactly where it is good"
        beyond = _share(comparisons, lambda comparison: comparison.gain is not None and comparison.gain.is_beyond_noise)
        assert beyond >= 0.95 if slow == 1 else beyond <= 0.05, beyond


@pytest.mark.parametrize(
    ("points", "repeat", "slow"), [(5, 3, 1), (5, 3, 2), (5, 5, 1), (2, 3, 1), (2, 5, 1), (20, 3, 4)]
)
def test_two_percent_under_five_percent_of_noise_are_noise(tmp_path: Path, points: int, repeat: int, slow: int) -> None:
    made = _threads(tmp_path, points, repeat)
    truth = np.where(np.arange(points) == slow, np.log(0.98), 0.0)
    comparisons = _often(made, 0.05, truth, seed=42)
    rate = _share(comparisons, lambda comparison: comparison.gain is not None and not comparison.gain.is_beyond_noise)
    assert rate >= 0.95, rate
    kept = _share(comparisons, lambda comparison: comparison.recommended == comparison.reference)
    assert kept >= 0.95, kept


@pytest.mark.parametrize(("points", "repeat"), [(2, 3), (5, 3), (5, 2), (12, 5), (30, 3)])
def test_false_alarms_are_one_in_twenty_however_many_points(tmp_path: Path, points: int, repeat: int) -> None:
    """The rate covers any claim: a point called slower, or a parameter said to matter."""
    comparisons = _often(_threads(tmp_path, points, repeat), 0.05, np.zeros(points), seed=1, draws=300)
    slower = _share(comparisons, lambda comparison: "slower" in _verdicts(comparison))
    matters = _share(
        comparisons, lambda comparison: bool(comparison.ranking and comparison.ranking.effects[0].is_beyond_noise)
    )
    assert slower <= 0.085, slower  # 0.05 and what 300 draws may add to it, one in two hundred times
    assert matters <= 0.085, matters


def test_intervals_hold_the_truth(tmp_path: Path) -> None:
    """All ratios of a part hold jointly in 95 of 100 draws: to the best, to the reference, and the gain."""
    truth = np.array([0.0, -0.1, -0.02, 0.05, 0.0])
    comparisons = _often(_threads(tmp_path, 5, 3), 0.05, truth, seed=9, draws=400)

    def holds(comparison: Comparison) -> bool:
        second = max(
            (point for point in comparison.points if point.point != comparison.best), key=lambda point: point.to_best
        )
        ratios = []
        for place, point in enumerate(comparison.points):
            other = second.point if place == comparison.best else comparison.best
            ratios.append((truth[place] - truth[other], point.low, point.high))
            ratios.append((truth[place] - truth[1], point.reference_low, point.reference_high))
        assert comparison.gain is not None
        ratios.append((truth[comparison.best] - truth[1], comparison.gain.low, comparison.gain.high))
        return all(low is None or low <= np.exp(true) <= high for true, low, high in ratios)

    assert _share(comparisons, holds) >= 0.93, _share(comparisons, holds)


def _scalings(made: Study, logs: Array, seed: int, draws: int = 300, shifts: float = 0.0) -> Iterator[Finding]:
    """Draw findings of a scaling study. logs: true value of each point. shifts: sd of a round's shift of all points of
    a job.
    """
    random = np.random.default_rng(seed)
    jobs = np.array([point.nodes for point in made.points])
    for _ in range(draws):
        rounds = random.normal(0, shifts, (jobs.max() + 1, made.repeat))
        yield _found(made, logs[:, None] + rounds[jobs] + random.normal(0, 0.05, (len(logs), made.repeat)))


@pytest.mark.parametrize(
    ("settings", "repeat", "shifts"), [("1", 3, 0.0), ("1", 5, 0.1), ("1,2,4", 3, 0.0), ("1,2,4", 3, 0.1)]
)
def test_intervals_of_a_part_with_scales_hold_the_truth(
    tmp_path: Path, settings: str, repeat: int, shifts: float
) -> None:
    """Speed-ups and settings on each scale hold jointly, also where rounds shift all points of a job."""
    axes = [f"reader.read_threads={settings}"] if "," in settings else []
    made = studies.make(tmp_path, studies.asked("demo", *axes, nodes=(1, 2, 4), ranks_per_node=(2,)), repeat=repeat)
    truth = np.array([np.log(point.ranks**0.9) + 0.02 * sum(point.places.values()) for point in made.points])
    held = linear = 0
    for finding in _scalings(made, truth, seed=3, shifts=shifts):
        ratios = [
            (truth[step.point] - truth[scaling.steps[0].point], step.low, step.high)
            for scaling in finding.scalings
            for step in scaling.steps
        ]
        ratios += [
            (truth[point.point] - truth[compared.reference or 0], point.reference_low, point.reference_high)
            for compared in finding.comparisons
            for point in compared.points
        ]
        held += all(low is None or high is None or low <= np.exp(true) <= high for true, low, high in ratios)
        linear += not any(step.is_above for scaling in finding.scalings for step in scaling.steps)
    assert held >= 0.92 * 300, held
    assert linear >= 0.95 * 300, "what scales by less than linear is never called more"


# Logarithms of samples/s of three repeats on one, two and four ranks: FFN of fig. 15, as one laptop measured it.
_FFN = np.array([[0.0, 0.28, -0.28], [0.55, 0.31, 0.43], [1.1, 0.75, 0.55]])


def test_a_ratio_has_one_interval_wherever_it_stands(tmp_path: Path) -> None:
    for axes in ([], ["reader.read_threads=1,2,4"]):
        made = studies.make(tmp_path, studies.asked("demo", *axes, nodes=(1,), ranks_per_node=(1, 2, 4)))
        logs = np.concatenate([_FFN] * (3 if axes else 1)) + np.random.default_rng(2).normal(0, 0.01, (3, 1))[0]
        finding = _found(made, logs + np.random.default_rng(1).normal(0, 0.05, logs.shape))
        known: dict[tuple[int, int], set[tuple[float, float]]] = {}

        def note(one: int, other: int, low: float | None, high: float | None) -> None:
            if low is not None and high is not None:
                ratio = (one, other, low, high) if one < other else (other, one, 1 / high, 1 / low)
                known.setdefault(ratio[:2], set()).add((round(ratio[2], 9), round(ratio[3], 9)))  # noqa: B023

        for scaling in finding.scalings:
            for step in scaling.steps:
                note(step.point, scaling.steps[0].point, step.low, step.high)
        for compared in finding.comparisons:
            assert compared.reference is not None
            assert compared.gain is not None
            second = max(
                (point for point in compared.points if point.point != compared.best),
                key=lambda point: point.to_best,
            )
            note(compared.best, compared.reference, compared.gain.low, compared.gain.high)
            for point in compared.points:
                note(
                    point.point,
                    second.point if point.point == compared.best else compared.best,
                    point.low,
                    point.high,
                )
                note(point.point, compared.reference, point.reference_low, point.reference_high)
        assert known
        assert all(len(intervals) == 1 for intervals in known.values()), known
        assert bool(finding.comparisons) == bool(axes), "numbers of ranks are no settings"


def test_drift_over_rounds_is_no_effect_and_hides_none(tmp_path: Path) -> None:
    made = _threads(tmp_path, 5, 3)
    random = np.random.default_rng(3)
    drift = np.log([1.0, 1.15, 1.3])
    flat, slow = np.zeros(5), np.where(np.arange(5) == 3, np.log(0.8), 0.0)
    for truth, wanted in ((flat, 0.05), (slow, 1.0)):
        comparisons = [_compared(made, truth[:, None] + drift + random.normal(0, 0.03, (5, 3))) for _ in range(200)]
        rate = _share(comparisons, lambda comparison: comparison.points[3].verdict == "slower")
        assert rate <= wanted if wanted < 1 else rate >= 0.95, rate
        assert all(
            comparison.noise.is_blocked and comparison.noise.drift == pytest.approx(0.3, abs=0.12)
            for comparison in comparisons
        )
        noise = np.mean([comparison.noise.sd for comparison in comparisons])
        assert noise == pytest.approx(0.03, abs=0.005)


def test_ratios_are_those_of_the_medians(tmp_path: Path) -> None:
    """One of three measurements was slow: the ratio is that of the medians in the table, and lies in its interval."""
    logs = np.log([[100.0, 102.0, 101.0], [130.0, 41.0, 131.0], [90.0, 92.0, 91.0]])
    for metric in ("samples_per_s", "wall_s"):
        finding = _found(_threads(tmp_path, 3, 3, metric=metric), logs if metric == "samples_per_s" else -logs)
        (comparison,) = finding.comparisons
        medians = {point.point: point.metrics[finding.metric].median for point in finding.points}
        for judged in comparison.points:
            assert judged.to_reference is not None
            assert comparison.reference is not None
            ratio = medians[judged.point] / medians[comparison.reference]
            assert judged.to_reference == pytest.approx(ratio if metric == "samples_per_s" else 1 / ratio)
            assert judged.reference_low is None or judged.reference_low <= judged.to_reference
            assert judged.reference_high is None or judged.to_reference <= judged.reference_high
        assert comparison.best == max(medians, key=lambda point: medians[point] * (1 if metric != "wall_s" else -1))
        to_best = [101 / 130, 130 / 101, 91 / 130] if metric == "samples_per_s" else [91 / 101, 91 / 130, 101 / 91]
        assert [judged.to_best for judged in comparison.points] == pytest.approx(to_best), (
            "the best, to the second best"
        )


def test_a_missing_cell_does_not_let_drift_in(tmp_path: Path) -> None:
    made = _threads(tmp_path, 5, 3)
    random = np.random.default_rng(4)
    drift = np.log([1.0, 1.15, 1.3])
    comparisons = []
    for _ in range(200):
        logs = drift + random.normal(0, 0.02, (5, 3))
        logs[2, 2] = np.nan  # without rounds, this point would be a tenth slower
        comparisons.append(_compared(made, logs))
    rate = _share(comparisons, lambda comparison: "slower" in _verdicts(comparison))
    assert rate <= 0.085, rate
    ratios = [comparison.points[2].to_reference or 0 for comparison in comparisons]
    assert np.mean(ratios) == pytest.approx(1, abs=0.01)


def test_without_rounds_in_common_drift_counts_as_noise(tmp_path: Path) -> None:
    logs = np.full((4, 4), np.nan)
    logs[:2, :2], logs[2:, 2:] = 0.01 * np.arange(4).reshape(2, 2), 0.3
    comparison = _compared(_threads(tmp_path, 4, 4), logs)
    assert not comparison.noise.is_blocked
    assert comparison.noise.df == 4


@pytest.mark.parametrize("repeat", [1, 2])
def test_of_a_single_repeat_nothing_is_claimed(tmp_path: Path, repeat: int) -> None:
    logs = np.zeros((3, repeat))
    logs[0], logs[:, 1:] = 2.0, np.nan
    comparison = _compared(_threads(tmp_path, 3, repeat), logs)
    assert set(_verdicts(comparison)) == {"unknown"}
    assert comparison.noise.sd is None
    assert comparison.best == 0
    assert comparison.recommended is None
    assert comparison.gain is not None
    assert comparison.gain.ratio == pytest.approx(np.exp(2))
    assert (comparison.gain.low, comparison.gain.confidence, comparison.gain.is_beyond_noise) == (None, None, False)
    assert comparison.ranking is not None
    assert not comparison.ranking.effects[0].is_beyond_noise


def test_repeats_that_agree_to_the_last_digit_prove_nothing(tmp_path: Path) -> None:
    for logs in (np.zeros((3, 3)), np.repeat([[0.0], [1.0], [2.0]], 3, axis=1)):
        comparison = _compared(_threads(tmp_path, 3, 3), logs)
        assert comparison.noise.sd is None
        assert comparison.recommended is None
        assert set(_verdicts(comparison)) == {"unknown"}


def test_one_point_or_none_is_compared_with_nothing(tmp_path: Path) -> None:
    made = _threads(tmp_path, 3, 3)
    assert _found(made, np.full((3, 3), np.nan)).comparisons == ()
    alone = np.full((3, 3), np.nan)
    alone[1] = 0.0
    finding = _found(made, alone)
    assert finding.comparisons == ()
    assert [point.n for point in finding.points] == [3]
    plain = studies.make(tmp_path)
    (finding,) = best_setting.findings(plain, studies.measured(plain, lambda *_: 5.0))
    assert finding.comparisons == ()
    assert finding.points[0].labels == {}


def test_a_figure_that_nobody_knows_is_said_to_be_unknown(tmp_path: Path) -> None:
    made = _threads(tmp_path, 3, 3, metric="io_time_s")
    finding = _found(made, np.random.default_rng(1).normal(0, 0.02, (3, 3)), io_time_s=None)
    assert finding.comparisons == ()
    assert finding.unusable is not None
    assert "TensorFlow" in finding.unusable
    assert "io_time_s" not in finding.points[0].metrics
    finding = _found(made, np.random.default_rng(1).normal(0, 0.02, (3, 3)))
    assert len(finding.comparisons) == 1
    (other,) = best_setting.findings(made, studies.measured(made, lambda *_: 5.0, io_time_s=None), "samples_per_s")
    assert other.metric == "samples_per_s"
    assert len(other.comparisons) == 1


@pytest.mark.parametrize("metric", ["wall_s", "io_time_s"])
def test_of_times_less_is_better(tmp_path: Path, metric: Any) -> None:
    logs = np.random.default_rng(1).normal(0, 0.01, (3, 3)) + np.array([[0.5], [0.0], [0.0]])
    comparison = _compared(_threads(tmp_path, 3, 3, metric=metric), logs)
    assert comparison.best == 0
    assert _verdicts(comparison) == ["best", "slower", "slower"]
    assert comparison.gain is not None
    assert comparison.gain.is_beyond_noise
    assert comparison.gain.ratio == pytest.approx(np.exp(0.5), rel=0.03)
    assert comparison.gain.low is not None
    assert 1 < comparison.gain.low < comparison.gain.ratio


def test_the_simplest_of_the_best_is_recommended(tmp_path: Path) -> None:
    """The reference has 2 threads and batch 4; of two equally good points, the one that changes less is recommended."""
    part = studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8")
    made = studies.make(tmp_path, part, repeat=3)
    names = [tuple(made.labels(point).values()) for point in made.points]
    truth = np.array([np.log(1.5) * (name in {("4", "4"), ("4", "8")}) for name in names])
    comparisons = _often(made, 0.02, truth, seed=2, draws=50)
    assert names[made.parts[0].reference] == ("2", "4")
    simplest = names.index(("4", "4"))
    assert _share(comparisons, lambda comparison: comparison.recommended == simplest) >= 0.9


def test_what_matters_is_ranked_first(tmp_path: Path) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8", "reader.preprocess_threads=1,2")
    made = studies.make(tmp_path, part, repeat=3)
    threads = np.array([point.places["reader.read_threads"] for point in made.points])
    batch = np.array([point.places["reader.batch_size"] for point in made.points])
    logs = np.log(1.3) * threads + np.log(1.1) * batch + 0.2 * (threads == 2) * batch
    values = logs[:, None] + np.random.default_rng(1).normal(0, 0.02, (12, 3))
    ranking = _compared(made, values).ranking
    assert ranking is not None
    assert [effect.keys for effect in ranking.effects] == [
        ("reader.read_threads",), ("reader.batch_size",), ("reader.preprocess_threads",)
    ]  # fmt: skip
    first, second, third = ranking.effects
    assert (first.best, first.worst) == ("4", "1")
    assert first.ratio == pytest.approx(1.3**2 * np.exp(0.1), rel=0.03)
    assert second.ratio == pytest.approx(1.1 * np.exp(0.2 / 3), rel=0.03)
    assert first.is_beyond_noise
    assert second.is_beyond_noise
    assert not third.is_beyond_noise
    assert ranking.interaction is not None
    assert ranking.interaction > 0.01
    assert ranking.has_interaction
    assert ranking.interaction_confidence is not None
    assert ranking.interaction_confidence > 0.99
    assert sum(effect.share for effect in ranking.effects) + ranking.interaction == pytest.approx(1)
    values[5] = np.nan
    holed = _compared(made, values).ranking
    assert holed is not None
    assert holed.effects[0].keys == ("reader.read_threads",)


def test_interaction_is_unknown_without_noise_or_freedom(tmp_path: Path) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8")
    once = _compared(studies.make(tmp_path, part, repeat=1), np.arange(6.0)[:, None] ** 2 / 10).ranking
    assert once is not None
    assert len(once.effects) == 2
    assert (once.interaction, once.interaction_confidence, once.has_interaction) == (None, None, False)


def test_a_change_that_pairs_of_points_do_not_show_follows_from_the_effects(tmp_path: Path) -> None:
    """The reference has 2 threads and batch 4. Four threads are better by a fifth; single points do not show it."""
    part = studies.asked(
        "demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8,16", "reader.preprocess_threads=1,2"
    )
    made = studies.make(tmp_path, part, repeat=2)
    truth = np.array([np.log(1.2) * (point.places["reader.read_threads"] == 2) for point in made.points])
    for comparison in _often(made, 0.06, truth, seed=5, draws=20):
        assert comparison.change is not None
        assert comparison.recommended is not None
        assert comparison.change.settings == {"reader.read_threads": "4"}
        assert tuple(made.labels(made.points[comparison.recommended]).values()) == ("4", "4", "1")
        assert 1 < comparison.change.low < comparison.change.ratio < comparison.change.high


def test_two_settings_are_changed_together_if_their_effects_add_up(tmp_path: Path) -> None:
    """Four threads are better by a fifth than the two of the reference, and batch 8 by a tenth than batch 4."""
    part = studies.asked("demo", "reader.read_threads=1,2,4", "reader.batch_size=4,8")
    made = studies.make(tmp_path, part, repeat=3)
    threads = np.array([point.places["reader.read_threads"] for point in made.points])
    batch = np.array([point.places["reader.batch_size"] for point in made.points])
    truth = np.log(1.2) * (threads == 2) + np.log(1.1) * batch
    comparison = _compared(made, truth[:, None] + np.random.default_rng(3).normal(0, 0.01, (6, 3)))
    assert comparison.change is not None
    assert comparison.change.settings == {"reader.read_threads": "4", "reader.batch_size": "8"}
    assert comparison.change.ratio == pytest.approx(1.2 * 1.1, rel=0.02)


def test_jobs_that_share_points_differ_without_effect_on_the_settings(tmp_path: Path) -> None:
    """The second job, which begins within the second round, is 30 % faster."""
    made = _threads(tmp_path, 4, 3)
    noise = np.random.default_rng(6).normal(0, 0.01, (4, 3))
    measured = [
        measurement._replace(job="tune-2" if measurement.point + 4 * measurement.repeat > 5 else "tune-1")
        for measurement in studies.measured(
            made, lambda point, repeat: float(np.exp(noise[point, repeat] + 0.3 * (point + 4 * repeat > 5)))
        )
    ]
    (comparison,) = best_setting.findings(made, measured)[0].comparisons
    assert set(_verdicts(comparison)) == {"best", "same as best"}
    assert comparison.noise.sd == pytest.approx(0.01, abs=0.01)
    assert not comparison.noise.includes_jobs


def test_settings_in_jobs_of_their_own_include_the_difference_between_jobs(tmp_path: Path) -> None:
    made = _threads(tmp_path, 2, 3)
    noise = np.random.default_rng(7).normal(0, 0.005, (2, 3))
    measured = [
        measurement._replace(job=f"tune-{measurement.point}")
        for measurement in studies.measured(made, lambda *place: float(np.exp(noise[place] + 0.06 * place[0])))
    ]
    (comparison,) = best_setting.findings(made, measured)[0].comparisons
    assert comparison.noise.includes_jobs
    assert set(_verdicts(comparison)) == {"best", "same as best"}, "jobs may differ by 6 %"


def test_what_moves_together_is_one_and_what_cannot_be_told_is_none(tmp_path: Path) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2,4", "reader.preprocess_threads=2,4,8", zipped=True)
    values = np.log([[1.0], [1.2], [1.5]]) + np.random.default_rng(1).normal(0, 0.02, (3, 3))
    ranking = _compared(studies.make(tmp_path, part), values).ranking
    assert ranking is not None
    (effect,) = ranking.effects
    assert effect.keys == ("reader.read_threads", "reader.preprocess_threads")
    assert effect.best == "4, 8"
    square = studies.make(tmp_path, studies.asked("demo", "reader.read_threads=1,2", "reader.preprocess_threads=2,4"))
    values = np.vstack((values, values[:1]))
    values[[1, 2]] = np.nan  # the diagonal alone
    ranking = _compared(square, values).ranking
    assert ranking is not None
    assert (ranking.effects, ranking.interaction) == ((), None)


@pytest.mark.parametrize("weak", [False, True])
def test_scaling_is_against_the_fewest_ranks(tmp_path: Path, weak: bool) -> None:
    part = studies.asked("demo", "reader.read_threads=1,2", nodes=(1, 2, 4), ranks_per_node=(2,), weak=weak)
    made = studies.make(tmp_path, part)
    random = np.random.default_rng(5)
    truth = np.array([np.log(point.ranks**0.9 * (1 + point.places["reader.read_threads"])) for point in made.points])
    finding = _found(made, truth[:, None] + random.normal(0, 0.02, (6, 3)))
    assert [scaling.kind for scaling in finding.scalings] == ["weak" if weak else "strong"] * 2
    assert [scaling.labels for scaling in finding.scalings] == [{"reader.read_threads": threads} for threads in "12"]
    for scaling in finding.scalings:
        assert [(step.ranks, step.ideal) for step in scaling.steps] == [(2, 1), (4, 2), (8, 4)]
        first, _, last = scaling.steps
        assert (first.speed_up, first.low, first.efficiency) == (1, None, 1)
        assert last.low is not None
        assert last.high is not None
        assert last.low < 4**0.9 < last.high
        assert last.efficiency == last.speed_up / 4
        assert not scaling.noise.includes_jobs, "it is that of the runs of a job"
    assert [(scale.nodes, len(scale.points)) for scale in finding.comparisons] == [(1, 2), (2, 2), (4, 2)]
    assert all(scale.reference is not None for scale in finding.comparisons)


def test_scaling_efficiency_is_that_of_an_acceptance_test(tmp_path: Path) -> None:
    """Reports and acceptance tests have one definition: medians of samples/s per rank, against the fewest ranks, and
    among these the fewest nodes.
    """
    made = studies.make(tmp_path, studies.asked("demo", nodes=(1, 2), ranks_per_node=(2, 4)), repeat=4)
    rates = {(1, 2): [100, 101, 40, 103], (1, 4): [170, 172, 168, 30], (2, 2): [190, 191, 90, 192], (2, 4): [300] * 4}
    logs = np.log([rates[point.nodes, point.ranks_per_node] for point in made.points])
    (scaling,) = _found(made, logs + np.arange(4) * 1e-6).scalings
    groups = [
        repeats("samples_per_s", [rate * (1 + at * 1e-6) for at, rate in enumerate(values)],
                key=structs.replace(KEY, nodes=nodes, ranks_per_node=per_node))
        for (nodes, per_node), values in rates.items()
    ]  # fmt: skip
    entries = [structs.replace(entry, job=f"job-{at}", study=f"job-{at}") for at, entry in enumerate(groups)]
    criterion = Criterion(min_scaling_efficiency=units.LeastShare(0.1))
    accepted = acceptance.judge(Criteria(name="c", criteria={"scaling": criterion}), entries)
    judged = {check.group.split(", ")[-1]: check.value for check in accepted.checks if check.value is not None}
    assert judged == {
        f"{step.nodes} x {step.ranks_per_node} ranks": pytest.approx(step.efficiency, rel=1e-5)
        for step in scaling.steps
    }


def test_where_only_nodes_and_ranks_vary_nothing_is_best(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("demo", nodes=(1, 2), ranks_per_node=(2, 4)))
    finding = _found(made, np.log([[1.0], [1.3], [1.3], [2.2]]) + np.random.default_rng(1).normal(0, 0.01, (4, 3)))
    assert finding.comparisons == ()
    (scaling,) = finding.scalings
    assert [(step.nodes, step.ranks) for step in scaling.steps] == [(1, 2), (1, 4), (2, 4), (2, 8)]
    assert [step.is_below for step in scaling.steps] == [False, True, True, True]
    assert scaling.noise.df == 8


def test_settings_are_compared_on_each_of_two_file_systems_by_itself(tmp_path: Path) -> None:
    """Settings are compared within each file system; the file systems are compared by pairs elsewhere."""
    folders = (str(tmp_path / "a"), str(tmp_path / "b"))
    alone = studies.make(tmp_path, studies.asked("demo", folders=folders))
    random = np.random.default_rng(1)
    assert _found(alone, random.normal(0, 0.02, (2, 3))).comparisons == ()
    both = studies.make(tmp_path, studies.asked("demo", "reader.read_threads=1,2,4", folders=folders))
    logs = np.array(
        [0.5 * (point.data == folders[1]) + 0.3 * point.places["reader.read_threads"] for point in both.points]
    )
    a, b = _found(both, logs[:, None] + random.normal(0, 0.02, (6, 3))).comparisons
    assert (a.data, b.data) == folders
    for compared in (a, b):
        assert {both.points[point.point].data for point in compared.points} == {compared.data}
        assert compared.gain is not None
        assert compared.gain.ratio == pytest.approx(np.exp(0.3), rel=0.1)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_least_squares_are_what_numpy_finds(data: st.DataObject) -> None:
    """Estimates and errors of differences match numpy's solution of the full design, for any cells."""
    points, rounds = data.draw(st.integers(2, 5)), data.draw(st.integers(1, 4))
    cells = data.draw(st.lists(st.booleans(), min_size=points * rounds, max_size=points * rounds))
    there = np.array(cells).reshape(points, rounds)
    there[:, 0] |= ~there.any(axis=1)
    place, of_round = np.nonzero(there)
    values = np.random.default_rng(1).normal(0, 1, len(place)) + of_round
    fit = replicates.fit(place, of_round, values)
    design = np.equal.outer(place, np.arange(points)).astype(float)
    if fit.spread.size:
        known = np.unique(of_round)[1:]
        design = np.column_stack((design, np.equal.outer(of_round, known)))
    solution = np.linalg.lstsq(design, values, rcond=None)[0]
    assert np.diff(fit.values) == pytest.approx(np.diff(solution[:points]))
    assert fit.df == len(values) - np.linalg.matrix_rank(design)
    if fit.df > 0:
        residuals = values - design @ solution
        assert fit.sd == pytest.approx(np.sqrt((residuals**2).sum() / fit.df))
    covariance = np.linalg.inv(design.T @ design)
    expected = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    assert fit.difference_sd(0, 1) == pytest.approx(expected)


def test_critical_values_are_those_of_the_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 95 % with five points and df 20 they are Student's t, Dunnett's two-sided d (1964, table 2) and Tukey's q."""
    monkeypatch.setattr(replicates, "_DRAWS", 100_000)
    place = np.repeat(np.arange(5), 5)
    fit = replicates.fit(place, np.zeros(25, int), np.random.default_rng(1).normal(0, 1, 25))
    assert (fit.df, fit.spread.size) == (20, 0)
    pair, first = [(1, 0)], [(place, 0) for place in range(1, 5)]
    assert np.quantile(replicates.differences(1 / fit.counts, fit.df, pair), 0.95) == pytest.approx(2.086, abs=0.03)
    assert np.quantile(replicates.differences(1 / fit.counts, fit.df, first), 0.95) == pytest.approx(2.65, abs=0.03)
    assert np.quantile(replicates.ranges([fit]), 0.95) * np.sqrt(2) == pytest.approx(4.23, abs=0.04)
    assert (replicates.ranges([fit, fit]) >= replicates.ranges([fit])).mean() > 0.5
    assert np.quantile(replicates.ranges([fit, fit]), 0.95) > np.quantile(replicates.ranges([fit]), 0.95)


def test_draws_have_the_spread_of_the_design() -> None:
    """Draws of points that are all alike have the errors of differences of the design, with missing cells too."""
    there = np.ones((4, 3), bool)
    there[0, 2] = there[1, 0] = False
    place, of_round = np.nonzero(there)
    fit = replicates.fit(place, of_round, np.random.default_rng(1).normal(0, 1, len(place)))
    noise = np.concatenate([draws for (draws,), _ in replicates.estimates(fit)])
    for i, j in itertools.combinations(range(4), 2):
        assert np.std(noise[:, i] - noise[:, j]) == pytest.approx(fit.difference_sd(i, j), rel=0.03)
    assert (replicates.ranges([fit]) == replicates.ranges([fit])).all(), "seeded"


def test_points_of_different_jobs_have_the_variation_between_jobs() -> None:
    ones, none = np.ones(2), np.zeros((2, 0))
    fit = replicates.Fit(ones, ones, np.array([2, 2]), none, np.zeros((0, 0)), 0.1, 6, 0.0, runs_of_job=2)
    (made,) = replicates.widened([fit], JobSpread(0.05, 4.0))
    assert made.sd == pytest.approx((0.1**2 + 2 * 0.05**2) ** 0.5)
    alone = [fit._replace(runs_of_job=1)]
    assert replicates.widened(alone, JobSpread(0.05, 4.0)) == alone


def test_a_point_is_like_itself_without_an_interval(tmp_path: Path) -> None:
    fit = replicates.fit(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.array([0.0, 0.1, 0.5, 0.4]))
    (estimates,) = ratios.of_pairs([fit], 1)
    assert estimates.ratio(1, 1) == (1.0, None, None)
    apart = estimates.ratio(1, 0)
    assert apart.low is not None
    assert apart.high is not None
    assert apart.low < apart.value < apart.high


def test_a_measurement_without_samples_is_no_part_of_scaling(tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("demo", nodes=(1, 2), ranks_per_node=(2,)))
    whole = studies.measured(made, lambda point, repeat: 100.0 * (point + 1) + repeat)
    empty = [one._replace(repeat=9, summary=structs.replace(one.summary, samples_per_s=None)) for one in whole]
    (part,) = made.parts
    assert scalings(made, part, [*whole, *empty], 1) == scalings(made, part, whole, 1)


def test_settings_with_noise_of_their_own_are_combined_by_it() -> None:
    def group(setting: str, *ratios_of_pairs: float) -> file_system_pairs.MeasuredPairs:
        return file_system_pairs.MeasuredPairs(
            setting, "samples_per_s", [(100.0, 100.0 * ratio) for ratio in ratios_of_pairs]
        )

    alike = [group("a", 1.1, 1.12, 1.09), group("b", 1.2, 1.22, 1.19)]
    unlike = [alike[0], group("b", 1.2, 1.9, 0.9)]
    effects = {}
    for name, groups in {"alike": alike, "unlike": unlike}.items():
        for is_shared in (True, False):
            noise = file_system_pairs._noise(groups)._replace(is_shared=is_shared)
            effects[name, is_shared] = file_system_pairs._together(groups, noise, 0.05)
    assert [effects[name, True].noise is not None for name in ("alike", "unlike")] == [True, True]
    assert [effects[name, False].noise for name in ("alike", "unlike")] == [None, None]
    widths = {key: (effect.high or 0.0) - (effect.low or 0.0) for key, effect in effects.items()}
    assert widths["unlike", False] > 1.5 * widths["unlike", True], "fewer degrees of freedom"
