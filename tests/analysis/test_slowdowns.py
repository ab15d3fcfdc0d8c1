"""Slowdown of loads by other loads, from made-up rates: its size, its interval, its words, and the fairness."""

import random
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.analysis.study import slowdowns
from dlio_hpc.analysis.study.point_measurement import Measured
from dlio_hpc.analysis.study.slowdowns import Slowdown, Verdict
from dlio_hpc.config import site, workload
from dlio_hpc.core import neighbours
from dlio_hpc.core.neighbours import EpochTimes
from dlio_hpc.plan import study
from dlio_hpc.plan.mix import MixKeys
from dlio_hpc.plan.study import JobRequest, PartRequest, Point, Study
from dlio_hpc.reports import slowdown_rows
from dlio_hpc.results.run_result import Distribution, MixSummary
from tests.support import studies

# Samples/s of a point in a repeat.
Rate = Callable[[Point, int], float]


def _study(tmp_path: Path, *names: str, repeat: int = 5, pairs: bool = False, equal: bool = False) -> Study:
    machine = structs.replace(site.load("local"), ranks_per_node=len(names))
    parts = [
        PartRequest(
            workload.draft("demo", (f"dataset.files={2 if equal else number + 2}",)), machine, name=name, mix="busy",
            share=1 / len(names),
        )
        for number, name in enumerate(names)
    ]  # fmt: skip
    request = JobRequest(tmp_path / "runs", data=tmp_path / "data", seed=5, repeat=repeat)
    return study.make("mixed", parts, request, study.About(mixes=MixKeys(pairs=pairs)))


def _measured(made: Study, rate: Rate, overlap: float = 1.0, **figures: Any) -> list[Measured]:
    listed = []
    for point in made.points:
        assert point.load is not None
        for repeat in range(made.repeat):
            value = rate(point, repeat)
            mix = MixSummary(point.load.name, point.load.others, 0.0, 10.0, (0.0, 9.0), overlap, value)
            summary = studies.summary(2 * value, mix=mix, **figures)  # the rate of the whole run is another one
            listed.append(Measured(point.number, repeat, "job", "run", "", "", summary))
    return listed


def _main(made: Study, measured: list[Measured]) -> list[Slowdown]:
    return [one for one in slowdowns.of_study(made, measured) if one.is_main]


def _noisy(slow: dict[str, float], noise: float = 0.01, drift: float = 0.5) -> Rate:
    """Return rates with noise, and with a drift that all launches of a repeat share. slow: slowdown of each load."""
    rng = random.Random(7)
    levels = {repeat: 1 + drift * rng.random() for repeat in range(100)}

    def rate(point: Point, repeat: int) -> float:
        assert point.load is not None
        factor = slow[point.load.name] if point.load.others else 1.0
        return 100 * levels[repeat] / factor * (1 + noise * rng.uniform(-1, 1))

    return rate


def test_a_slowdown_is_found_although_the_rate_drifts(tmp_path: Path) -> None:
    made = _study(tmp_path, "train", "storm")
    train, storm = _main(made, _measured(made, _noisy({"train": 2.1, "storm": 1.0})))
    assert (train.load, train.others, train.metric, train.pairs) == ("train", ("storm",), "common_samples_per_s", 5)
    assert train.slowdown == pytest.approx(2.1, rel=0.01)
    assert train.low is not None
    assert train.high is not None
    assert 2.0 < train.low < train.slowdown < train.high < 2.2
    assert (train.verdict, storm.verdict) == ("slower", "same")
    text = slowdown_rows.verdict([train, storm])
    assert text.startswith("storm slows train by 2.1")
    assert f"({train.low:.3g} to {train.high:.3g})" in text


def test_no_slowdown_is_found_where_there_is_none(tmp_path: Path) -> None:
    """At most 5 in 100 studies may show a slowdown; the relevance limit makes it rarer here."""
    made = _study(tmp_path, "one", "two")
    wrong = 0
    for seed in range(40):
        rng = random.Random(seed)
        measured = _measured(made, lambda _point, _repeat, rng=rng: 100 * (1 + 0.05 * rng.uniform(-1, 1)))  # type: ignore[misc]
        wrong += any(one.verdict != "same" for one in _main(made, measured))
    assert wrong <= 5


def test_a_slowdown_too_small_to_matter_is_none(tmp_path: Path) -> None:
    made = _study(tmp_path, "one", "two")
    for factor, verdict in ((1.015, "same"), (1.03, "slower"), (1 / 1.03, "faster")):
        one, _ = _main(made, _measured(made, _noisy({"one": factor, "two": 1.0}, noise=0.001)))
        assert one.low is not None
        assert one.high is not None
        assert (one.low - 1) * (one.high - 1) > 0
        assert one.verdict == verdict


def test_little_overlap_and_a_single_pair_are_unknown(tmp_path: Path) -> None:
    made = _study(tmp_path, "one", "two")
    for overlap, verdict in ((0.79, "unknown"), (0.8, "slower")):
        measured = _measured(made, _noisy({"one": 3.0, "two": 3.0}), overlap)
        assert {one.verdict for one in _main(made, measured)} == {verdict}
    apart = _measured(made, _noisy({"one": 3.0, "two": 3.0}), 0.5)
    assert "ran together for only 50 % of the time" in slowdown_rows.verdict(_main(made, apart))
    single = _study(tmp_path, "one", "two", repeat=1)
    judged = _main(single, _measured(single, _noisy({"one": 3.0, "two": 3.0})))
    assert {(one.verdict, one.low) for one in judged} == {("unknown", None)}
    assert "--repeat 4" in slowdown_rows.verdict(judged)


def test_pairs_of_different_jobs_are_not_compared(tmp_path: Path) -> None:
    made = _study(tmp_path, "one", "two")
    measured = _measured(made, _noisy({"one": 2.0, "two": 2.0}))
    moved = [one._replace(job="other") if one.point == 0 and one.repeat < 2 else one for one in measured]
    one, two = _main(made, moved)
    assert (one.pairs, two.pairs) == (3, 5)


def test_who_suffers_from_whom_is_known_from_pairs(tmp_path: Path) -> None:
    made = _study(tmp_path, "one", "two", "three", pairs=True)

    def rate(point: Point, repeat: int) -> float:
        assert point.load is not None
        is_hit = point.load.name == "one" and "three" in point.load.others
        return (50 if is_hit else 100) + repeat % 2 + 0.1 * point.number

    judged = {(one.load, one.others): one.verdict for one in _main(made, _measured(made, rate))}
    assert len(judged) == 9
    ((title, header, rows),) = slowdown_rows.matrices(slowdowns.of_study(made, _measured(made, rate)))
    assert title == "busy: who is slowed down by whom"
    assert sorted(header[1:]) == ["by one", "by three", "by two"]
    table = {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in rows}
    assert table["one"]["by three"] == "1.98 x"
    assert table["one"]["by two"] == "no (1.00 x)"
    assert table["three"]["by three"] == "-"
    assert [key for key, verdict in judged.items() if verdict == "slower"] == [
        ("one", ("three",)), ("one", ("two", "three")),
    ]  # fmt: skip


def _judged(load: str, *others: str, slowdown: float, high: float, verdict: Verdict = "slower") -> Slowdown:
    return Slowdown(
        "busy", load, others, "common_samples_per_s", True, 4, 100.0, 100 / slowdown, slowdown, 0.9 * slowdown, high,
        1.0, verdict,
    )  # fmt: skip


def test_the_verdict_names_each_victim_once_by_its_simplest_cause() -> None:
    """c slows a nearly as much as b and c together. Of d it is not known, of e it is known that nothing slows it."""
    rows = [
        _judged("a", "b", slowdown=1.1, high=1.2),
        _judged("a", "c", slowdown=2.9, high=3.1),
        _judged("a", "b", "c", slowdown=3.0, high=3.2),
        _judged("b", "a", slowdown=8.5, high=9.6),
        _judged("b", "a", "c", slowdown=12.34, high=13.0),
        _judged("d", "a", slowdown=1.2, high=1.7, verdict="same"),
        _judged("e", "a", slowdown=1.0, high=1.1, verdict="same"),
    ]
    assert slowdown_rows.verdict(rows) == (
        "a and c slow b by 12.3 x (11.1 to 13). c slows a by 2.90 x (2.61 to 3.1). Too noisy for d. No difference "
        "for e."
    )
    cells = {tuple(one.others): slowdown_rows._cell(one) for one in rows if one.load in "de"}
    assert cells == {("a",): "no (1.00 x)"}
    assert slowdown_rows._cell(rows[5]) == "? (1.20 x)"


def test_a_load_whose_queue_grows_is_named(tmp_path: Path) -> None:
    made = _study(tmp_path, "one", "two")
    measured = _measured(made, lambda _point, _repeat: 100.0)
    queued = [
        one._replace(summary=structs.replace(one.summary, inference=SimpleNamespace(is_sustained=one.repeat > 1)))
        for one in measured
        if made.points[one.point].part == "one"
    ]
    (text,) = slowdown_rows.queues(made, [*queued, *measured])
    assert text.startswith("one: the queue of requests grows in 4 of 10 runs")
    assert not slowdown_rows.queues(made, measured)


def test_times_are_slowed_down_if_they_grow(tmp_path: Path) -> None:
    made = _study(tmp_path, "one", "two")
    measured = []
    for one in _measured(made, _noisy({"one": 1.0, "two": 1.0})):
        late = 0.004 if made.points[one.point].places["mix"] else 0.001
        p99 = Distribution(0.0, 0.0, 0.0, late * (1 + 0.01 * one.repeat), 1.0)
        measured.append(one._replace(summary=structs.replace(one.summary, read_latency_s=p99)))
    reads = [one for one in slowdowns.of_study(made, measured) if one.metric == "read_p99_s"]
    assert [one.slowdown for one in reads] == pytest.approx([4.0, 4.0])
    assert not any(one.is_main for one in reads)
    assert slowdown_rows.further(reads[0])[3:6] == ["1.02 ms", "4.08 ms", "4.00 x"]


@pytest.mark.parametrize(
    ("rates", "index"), [((1.0, 1.0, 1.0), 1.0), ((1.0, 0.5, 0.25), 0.7778), ((1.0, 1e-9, 1e-9), 1 / 3)]
)
def test_fairness_is_jains_index_of_equal_loads(tmp_path: Path, rates: tuple[float, ...], index: float) -> None:
    made = _study(tmp_path, "one", "two", "three", equal=True)
    share = dict(zip(("one", "two", "three"), rates, strict=True))
    measured = _measured(made, _noisy({name: 1 / rate for name, rate in share.items()}, noise=0.0))
    (fairness,) = slowdowns.fairness(made, measured)
    assert fairness.loads == ("one", "two", "three")
    assert fairness.index == pytest.approx(index, abs=1e-3)


def test_unequal_loads_have_no_fairness(tmp_path: Path) -> None:
    made = _study(tmp_path, "one", "two")
    assert slowdowns.fairness(made, _measured(made, lambda _point, _repeat: 100.0)) == ()


def test_a_study_without_a_mix_has_no_slowdowns(tmp_path: Path) -> None:
    made = studies.make(tmp_path)
    measured = studies.measured(made, lambda point, repeat: 100.0 + repeat)
    assert slowdowns.of_study(made, measured) == ()
    assert slowdowns.fairness(made, measured) == ()


def _times(per_epoch: int, *steps: tuple[float, float], epoch_ends: tuple[float, ...]) -> EpochTimes:
    """Return steps with 8 samples each. steps: start and end of each step."""
    starts, ends = np.array(steps).T
    return EpochTimes(starts, ends, np.full(len(starts), 8.0), np.array(epoch_ends), per_epoch)


def test_the_rate_counts_whole_epochs_without_the_time_between_them() -> None:
    """The first step of an epoch takes 4 s, the second 1 s. Between the epochs, 2 s pass."""
    once = _times(2, (0.0, 4.0), (4.0, 5.0), epoch_ends=(5.0,))
    assert neighbours.rate(once, 5.0) == pytest.approx(16 / 5)
    again = _times(2, (0.0, 4.0), (4.0, 5.0), (7.0, 11.0), (11.0, 12.0), (14.0, 18.0), epoch_ends=(5.0, 12.0, 18.0))
    assert neighbours.rate(again, 18.0) == pytest.approx(16 / 5), "the third epoch was cut"
    assert neighbours.rate(again, 11.5) == pytest.approx(16 / 5), "the second epoch ended later"
    slow = _times(2, (0.0, 4.0), (4.0, 5.0), (7.0, 12.0), (12.0, 17.0), epoch_ends=(5.0, 17.5))
    assert neighbours.rate(slow, 20.0) == pytest.approx(32 / 15.5), "a checkpoint at the end of an epoch counts"
    assert neighbours.rate(slow, 17.4) == pytest.approx(32 / 15.5), "clocks differ"
    assert neighbours.rate(slow, 17.2) == pytest.approx(16 / 5)


def test_without_a_whole_epoch_many_steps_have_a_rate_and_few_have_none() -> None:
    steps = [(float(number), number + 1.0) for number in range(25)]
    times = _times(100, *steps, epoch_ends=(25.0,))
    assert neighbours.rate(times, 20.0) == pytest.approx(8.0)
    assert neighbours.rate(times, 19.5) is None
