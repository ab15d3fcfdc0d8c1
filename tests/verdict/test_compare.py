"""Verdicts are right on jobs whose truth is known: single nights, and histories with a step, a drift or an outlier."""

import math
import shutil
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.analysis import students_t
from dlio_hpc.base.nights import night_of
from dlio_hpc.files import archive
from dlio_hpc.records import job_outcome
from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.reports import history_rows, regression_rows, verdict_banners
from dlio_hpc.verdict import (
    baseline_comparison,
    baselines,
    comparison,
    history,
    history_entry,
    regression,
    site_spread,
    trend,
)
from dlio_hpc.verdict.baseline_comparison import Judgement, Terms, Verdict
from dlio_hpc.verdict.history_entry import Entry
from tests.conftest import Run
from tests.support import nights, studies

BASE = nights.entry(0, [100.0, 100.5, 99.6])
# Nights before the baseline that differ by 0.3 %.
QUIET = [nights.entry(night - 20, [100 * math.exp(0.003 * math.sin(9 * night))] * 3) for night in range(20)]


def _judge(job: Entry, *earlier: Entry, **terms: object) -> Verdict:
    """Compare the job with BASE. The history contains QUIET and `earlier`."""
    return _judge_without_history(job, *QUIET, *earlier, **terms)


def _judge_without_history(job: Entry, *earlier: Entry, **terms: object) -> Verdict:
    """Compare the job with BASE. The history contains `earlier` alone."""
    judged = _judgement([job], *earlier, **terms)
    (verdict,) = judged.verdicts
    assert judged.exit_code == verdict.exit_code
    return verdict


def _judgement(jobs: Sequence[Entry], *earlier: Entry, **terms: object) -> Judgement:
    return baseline_comparison.judge(jobs, [BASE, *earlier, *jobs], [nights.accepted(BASE)], Terms(**terms))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("values", "outcome", "code"),
    [
        ([99.8, 100.1, 100.3], "pass", 0),
        ([95.0, 95.2, 94.9], "regression", 1),
        ([105.0, 105.2, 104.9], "improved", 0),
        ([90.0, 100.0, 110.0], "inconclusive", 5),
        ([99.0, 99.1, 98.9], "pass", 0),
        ([90.0, 97.0, 101.0], "inconclusive", 5),
    ],
)
def test_repeats_against_repeats(values: list[float], outcome: str, code: int) -> None:
    verdict = _judge(nights.entry(1, values))
    assert (verdict.outcome, verdict.exit_code) == (outcome, code)
    assert verdict.ratio == pytest.approx(np.median(values) / 100.0, rel=0.003)
    low, ratio, high = verdict.low, verdict.ratio, verdict.high
    assert low is not None
    assert ratio is not None
    assert high is not None
    assert low <= ratio <= high
    assert verdict.reference == "nightly-000-000000"


def test_of_times_less_is_better() -> None:
    slower = _judge(nights.entry(1, [95.0, 95.2, 94.9]), metrics=("wall_s",))
    assert slower.outcome == "regression"
    assert slower.ratio == pytest.approx(0.95, rel=0.003)
    assert "% worse than the 21 nights at the level of nightly-000-000000 (" in slower.why
    assert "such a night happens by chance less than once in 10 years" in slower.why


def test_the_tolerance_is_one_sided_and_can_be_chosen() -> None:
    job = nights.entry(1, [97.0, 97.1, 96.9])
    assert _judge(job).outcome == "regression"
    assert _judge(job, tolerance=0.05).outcome == "pass"
    assert _judge(nights.entry(1, [103.0, 103.1, 102.9]), tolerance=0.05).outcome == "pass"


def test_advice_makes_a_verdict_conclusive() -> None:
    job = nights.entry(1, [97.0, 100.0, 104.0])
    verdict = _judge(job)
    assert verdict.outcome == "inconclusive"
    more, allowed = verdict.advice
    assert more.startswith("1 more night would give a decision; more repeats on the same night do not")
    tolerance = float(allowed.split()[1].rstrip("%")) / 100
    assert _judge(job, tolerance=tolerance).outcome == "pass"
    later = nights.entry(2, [100.0, 100.1, 100.2])
    assert _judge(later, job).outcome == "pass"


def test_a_job_without_a_history_rests_on_an_assumption_about_nights() -> None:
    verdict = _judge_without_history(nights.entry(1, [95.0, 95.2, 94.9]))
    assert (verdict.outcome, verdict.exit_code) == ("inconclusive", 5)
    assert "nights are assumed to differ by 5." in verdict.why
    assert verdict.noise is not None
    assert verdict.noise_source == "assumed"
    half = students_t.quantile(0.95, 10) * math.sqrt(2) * math.log1p(verdict.noise)
    assert verdict.high is not None
    assert verdict.ratio is not None
    assert math.log(verdict.high / verdict.ratio) == pytest.approx(half)
    assert _judge_without_history(nights.entry(1, [70.0, 70.2, 69.9])).outcome == "regression"


def test_other_measurements_of_the_site_show_how_much_nights_differ() -> None:
    """A quiet site needs no assumption about nights."""
    other = structs.replace(nights.KEY, nodes=8)
    noted = [nights.entry(night, [50 * math.exp(0.002 * math.sin(9 * night))], other) for night in range(-30, 0)]
    verdict = _judge_without_history(nights.entry(1, [95.0, 95.2, 94.9]), *noted)
    assert verdict.outcome == "regression"
    assert "other measurements of the site differ by 0." in verdict.why


def _suites(count: int, last: int = 0) -> list[Entry]:
    """Return other measurements of the site, each on ten nights, which differ by a few percent. last: newest night."""
    keys = [structs.replace(nights.KEY, nodes=8 + number) for number in range(count)]
    return [
        nights.entry(night, [50 * math.exp(0.03 * math.sin(9 * night + number))] * 3, key, job=f"{key.nodes}-{night}")
        for number, key in enumerate(keys)
        for night in range(last - 9, last + 1)
    ]


def test_among_many_measurements_only_rarer_differences_are_regressions() -> None:
    job = nights.entry(1, [87.0, 87.5, 86.5])
    among = _judge_without_history(job, *_suites(40))
    assert among.outcome == "inconclusive"
    assert "such a night happens by chance once a year, too often among the site's 41 measurements" in among.why
    alone = _judge_without_history(job, *_suites(40, last=-20))
    assert alone.outcome == "regression"
    assert "too often" not in alone.why
    assert alone.a_year == pytest.approx(among.a_year, rel=0.05)
    assert _judge_without_history(nights.entry(1, [80.0, 80.5, 79.5]), *_suites(40)).outcome == "regression"


@pytest.mark.parametrize(("last", "outcome"), [(0, "inconclusive"), (-20, "regression")])
def test_the_history_reckons_with_the_same_measurements(last: int, outcome: str) -> None:
    job = nights.entry(1, [87.0, 87.5, 86.5])
    blocks = history_rows.blocks([BASE, job, *_suites(40, last)], [nights.accepted(BASE)], "samples_per_s")
    own = next(block for block in blocks if block.key == nights.KEY)
    opening = verdict_banners.of_history([own], "samples_per_s")
    verdict = _judge_without_history(job, *_suites(40, last))
    assert (verdict.outcome, opening.state) == (outcome, "bad" if outcome == "regression" else "inconclusive")
    assert verdict.why.replace("than", "than baseline") in opening.text


def test_measurements_of_a_single_night_do_not_count_as_nightly_ones() -> None:
    sweep = [entry for entry in _suites(40) if entry.ended.startswith(nights.day(0)[:10])]
    assert len(sweep) == 40
    assert site_spread.among(sweep, BASE) == 1
    assert site_spread.among(_suites(40), nights.entry(1, [100.0])) == 41
    assert site_spread.among(_suites(40), nights.entry(9, [100.0])) == 1
    spread_out = [nights.entry(night, [100.0], structs.replace(nights.KEY, nodes=8)) for night in (0, 6)]
    assert [site_spread.among(spread_out, nights.entry(night, [100.0])) for night in (7, 8)] == [2, 1]


def test_one_repeat_is_enough_with_a_history() -> None:
    quiet = [nights.entry(night, [100.0 + 0.3 * (-1) ** night]) for night in range(1, 12)]
    assert _judge_without_history(nights.entry(20, [95.0])).outcome == "inconclusive"
    assert _judge_without_history(nights.entry(20, [95.0]), *quiet).outcome == "regression"
    assert _judge_without_history(nights.entry(20, [100.1]), *quiet).outcome == "pass"


def test_nights_that_differ_make_what_one_night_shows_uncertain() -> None:
    """The job's repeats agree, but earlier nights were as slow."""
    random = np.random.default_rng(4)
    loud = [nights.entry(night, [100 * float(np.exp(random.normal(0, 0.05)))] * 3) for night in range(1, 15)]
    verdict = _judge_without_history(nights.entry(20, [95.0, 95.1, 94.9]), *loud)
    assert verdict.outcome == "inconclusive"
    assert verdict.noise is not None
    assert verdict.noise_source == "nights"
    assert verdict.noise == pytest.approx(0.05, rel=0.5)
    assert verdict.low is not None
    assert verdict.high is not None
    assert verdict.low < 0.98 < verdict.high


@pytest.mark.parametrize(
    ("lows", "outcome", "begin"),
    [
        ([0.88], "inconclusive", "12.4 % worse on the newest night than before; as good as the 33 nights"),
        ([0.97], "pass", "0.4 % worse than the 36 nights"),
        (
            [0.92, 0.92],
            "inconclusive",
            "8.5 % worse on the newest 2 nights than before; 1.7 % worse than the 34 nights",
        ),
    ],
)
def test_unusually_bad_newest_nights_do_not_pass(lows: list[float], outcome: str, begin: str) -> None:
    """The mean of the newest nights alone would hide them."""
    logs = [0.06 * math.sin(9 * night) + (0.02 if night > 28 else 0.0) for night in range(1, 40)]
    usual = [nights.entry(night, [100 * math.exp(log)] * 3) for night, log in enumerate(logs, 1)]
    bad = [nights.entry(40 + number, [100 * low] * 3) for number, low in enumerate(lows)]
    verdict = _judge_without_history(bad[-1], *usual, *bad[:-1], tolerance=0.05)
    assert verdict.outcome == outcome
    assert verdict.newest > 2
    assert verdict.why.startswith(begin)
    assert ("newest" in verdict.why) == (verdict.advice == ("the next nights show whether the level has changed",))


def _of(logs: Sequence[float]) -> list[Entry]:
    """Return a job a night. logs: logarithms of its level, relative to 100 samples/s."""
    return [nights.entry(night, [100 * math.exp(log)] * 3) for night, log in enumerate(logs)]


def _against(made: Sequence[Entry], baseline: int, job: int = -1) -> Verdict:
    """Compare a job with a baseline among these jobs, with a tolerance of 5 %."""
    terms = Terms(tolerance=0.05)
    (verdict,) = baseline_comparison.judge([made[job]], made, [nights.accepted(made[baseline])], terms).verdicts
    return verdict


def test_a_drop_that_begins_with_the_baseline_does_not_pass() -> None:
    """The baseline is a bad night at the old level, or the first night at the new one: nobody can tell."""
    noise = [0.03 * math.sin(9 * night) for night in range(90)]
    made = _of([log - 0.08 * (night == 29) - 0.105 * (night >= 30) for night, log in enumerate(noise)])
    verdict = _against(made, 29)
    assert verdict.outcome == "inconclusive"
    assert "the latest change: " in verdict.why
    assert "accept a later night as the baseline" in verdict.advice[0]
    assert _against(made, 20).outcome == "regression"
    assert _against(made, 40).outcome == "pass"


def test_a_baseline_that_is_older_than_the_jobs_that_are_used_keeps_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trend, "MOST", 40)
    monkeypatch.setattr(trend, "_NEAR_REFERENCE", 15)
    made = _of([0.02 * math.sin(9 * night) - 0.16 * (night >= 12) for night in range(100)])
    verdict = _against(made, 0)
    assert verdict.outcome == "regression"
    assert verdict.before == 12
    assert verdict.trend is not None
    assert len(verdict.trend.nights) == 1 + 15 + 40 + 1


def test_an_earlier_outage_does_not_hide_a_drop() -> None:
    logs = [0.02 * math.sin(9 * night) for night in range(66)]
    outage = [log - 0.7 * (20 <= night < 25) - 0.22 * (night >= 56) for night, log in enumerate(logs)]
    assert _against(_of(outage), 0).outcome == "regression"
    bad_night = [log - 0.9 * (night == 10) - 0.22 * (night >= 56) for night, log in enumerate(logs)]
    assert _against(_of(bad_night), 0).outcome == "regression"


def test_invalid_jobs_are_no_nights_of_the_history() -> None:
    bad = [nights.entry(1 + night, [50.0] * 3, fault="the dataset changed", exit_code=3) for night in range(4)]
    verdict = _judge(nights.entry(6, [100.0, 100.2, 99.8]), *bad)
    assert (verdict.outcome, verdict.newest) == ("pass", 1)
    assert verdict.trend is not None
    assert not {night.job for night in verdict.trend.nights} & {entry.job for entry in bad}


def test_a_difference_of_weekends_that_is_taken_out_is_said() -> None:
    is_weekend = [night_of(nights.day(night)).weekday() > 4 for night in range(60)]
    made = _of([0.01 * math.sin(9 * night) - 0.1 * weekend for night, weekend in enumerate(is_weekend)])
    assert "; weekends are 9.5 % worse, which is taken out" in _against(made, 1).why
    assert "weekends" not in _against(made[:10], 1).why


def test_a_job_is_compared_with_a_newer_baseline_alone() -> None:
    made = _of([0.01 * math.sin(9 * night) - 0.22 * (night < 20) for night in range(60)])
    verdict = _against(made, 50, job=10)
    assert verdict.outcome == "regression"
    assert verdict.ratio == pytest.approx(0.8, rel=0.03)


def test_unlike_keys_are_refused_with_the_difference_named() -> None:
    key = structs.replace(nights.KEY, nodes=4, version="1.1.0")
    verdict = _judge(nights.entry(1, [100.0, 100.1, 99.9], key))
    assert (verdict.outcome, verdict.exit_code, verdict.ratio) == ("not_comparable", 2, None)
    assert "differs in nodes: 2 / 4; version of dlio-hpc: 0.1.0 / 1.1.0" in verdict.why
    forced = _judge(nights.entry(1, [100.0, 100.1, 99.9], key), force=True)
    assert forced.outcome == "pass"
    assert forced.warnings == (
        "the configurations differ: nodes: 2 / 4",
        "the configurations differ: version of dlio-hpc: 0.1.0 / 1.1.0",
    )
    job, known = nights.entry(1, [100.0, 100.1, 99.9], key), [nights.accepted(BASE)]
    banner = verdict_banners.of_judgement(baseline_comparison.judge([job], [BASE, *QUIET], known, Terms(force=True)))
    assert banner.text.startswith(
        "Compared because of --force, although the settings differ (nodes: 2 / 4, version of dlio-hpc: 0.1.0 / 1.1.0): "
    )


def test_differing_settings_are_named_by_their_keys() -> None:
    key = structs.replace(nights.KEY, settings="999999999999")
    job = nights.entry(1, [100.0], key, workloads={key.settings: {"name": "cosmoflow", "reader": {"batch_size": 8}}})
    assert "reader.batch_size: 4 / 8" in _judge(job).why


def test_without_a_baseline_there_is_nothing_to_compare_with() -> None:
    judged = baseline_comparison.judge([BASE], [BASE], [])
    assert (judged.outcome, judged.exit_code) == ("not_comparable", 2)
    assert "dlio-hpc baseline accept nightly-000" in judged.verdicts[0].advice[0]


@pytest.mark.parametrize("storage", ["cached", "unknown"])
def test_what_was_not_of_the_storage_is_never_compared_silently(storage: str) -> None:
    job = nights.entry(1, [100.0, 100.1, 99.9], storage=storage)
    verdict = _judge(job)
    assert (verdict.outcome, verdict.exit_code, verdict.ratio) == ("cached", 4, None)
    forced = _judge(job, force=True, tolerance=0.3)
    assert forced.outcome == "pass"
    assert len(forced.warnings) == 1
    judged = baseline_comparison.judge([job], [BASE, *QUIET], [nights.accepted(BASE)], Terms(force=True))
    banner = verdict_banners.of_judgement(judged)
    assert banner.state == "not measured"
    assert "Compared because of --force: " in banner.text
    against = Terms(against=baseline_comparison.references(job))
    (other,) = baseline_comparison.judge([BASE], [], [], against).verdicts
    assert other.outcome == "cached"
    assert other.why.startswith("nightly-001: ")
    cached = nights.accepted(job, warnings=("the storage was not measured",))
    (third,) = baseline_comparison.judge([BASE], [], [cached]).verdicts
    assert third.warnings == ("the baseline was accepted despite: the storage was not measured",)


@pytest.mark.parametrize(("code", "outcome"), [(3, "invalid"), (7, "incomplete"), (6, "infrastructure"), (70, "bug")])
def test_faulty_runs_and_jobs_are_not_compared(code: int, outcome: str) -> None:
    made = nights.entry(1, [100.0, 100.1, 99.9])
    bad = structs.replace(made.measurements[0], fault="it went wrong", exit_code=code)
    faulty = _judge(structs.replace(made, measurements=(bad, *made.measurements[1:])))
    assert (faulty.outcome, faulty.exit_code, faulty.ratio) == (outcome, code, None)
    judged = baseline_comparison.judge(
        [structs.replace(made, fault="a node died", exit_code=code)], [BASE, *QUIET], [nights.accepted(BASE)]
    )
    assert [verdict.outcome for verdict in judged.verdicts] == ["pass", outcome]
    assert judged.exit_code == code
    empty = structs.replace(made, measurements=(), fault="a node died", exit_code=code)
    assert _judge(empty).outcome == outcome


def test_what_is_compared_by_force_has_the_history_of_its_kind() -> None:
    """Runs that all read from memory, as on a laptop, are similar enough to show the noise between nights."""
    made = [nights.entry(night, [100.0], job=f"stored-{night}") for night in range(9)]
    drawn = nights.entries([100.0] * 9, 0.005)
    cached = [
        nights.entry(night, [run.metrics["samples_per_s"] for run in entry.measurements], storage="cached")
        for night, entry in enumerate(drawn)
    ]
    (verdict,) = baseline_comparison.judge(
        cached[-1:], [*made, *cached], [nights.accepted(cached[0])], Terms(force=True)
    ).verdicts
    assert verdict.noise is not None
    assert verdict.trend is not None
    assert [night.job for night in verdict.trend.nights] == [entry.job for entry in cached]


def test_cases_for_ci_systems() -> None:
    made = nights.entry(1, [100.0, 100.1, 99.9])
    late = structs.replace(
        made.measurements[0], fault="job x stopped close to its time limit before this run", exit_code=7
    )
    jobs = [made, nights.entry(2, [90.0, 90.1, 89.9]), nights.entry(3, [100.0], storage="cached")]
    jobs += [
        structs.replace(made, study="other", measurements=(late,)),
        structs.replace(BASE, measurements=(), fault="x", exit_code=7),
    ]
    judged = baseline_comparison.judge(jobs, [BASE, *QUIET], [nights.accepted(BASE)])
    cases = [regression_rows.case(verdict, 1.0) for verdict in judged.verdicts]
    assert [(case.kind, case.type) for case in cases] == [
        ("pass", ""), ("failure", "regression"), ("error", "cached"), ("error", "timeout"), ("error", "incomplete"),
    ]  # fmt: skip
    assert "reference: nightly-000" in cases[1].text


def test_several_datasets_of_one_key_are_not_mixed_up() -> None:
    made = nights.entry(1, [100.0, 50.0])
    elsewhere = structs.replace(made.measurements[1], data="/scratch/other")
    judged = baseline_comparison.judge(
        [structs.replace(made, measurements=(made.measurements[0], elsewhere))], [], [nights.accepted(BASE)]
    )
    assert [verdict.outcome for verdict in judged.verdicts] == ["not_comparable"] * 2
    assert judged.verdicts[0].advice == ("dlio-hpc report nightly-001",)


def test_a_metric_that_is_missing_or_0_cannot_be_compared() -> None:
    assert "is unknown or 0" in _judge(nights.entry(1, [100.0]), metrics=("au",)).why


def test_the_worst_comes_first() -> None:
    order = ["bug", "invalid", "infrastructure", "incomplete", "cached", "regression", "inconclusive", "not_comparable"]
    assert [outcome for outcome in OUTCOMES if outcome != "fail"][:8] == order
    good, bad = nights.entry(1, [100.0, 100.1, 99.9]), nights.entry(2, [90.0, 90.1, 89.9])
    judged = baseline_comparison.judge([good, bad], [BASE, *QUIET], [nights.accepted(BASE)])
    assert (judged.outcome, judged.exit_code, judged.text) == ("regression", 1, "1 regression, 1 pass")


# Histories ------------------------------------------------------------------------------------------------------------


def _last(made: list[Entry], base: int = 0, **terms: object) -> Verdict:
    (verdict,) = baseline_comparison.judge([made[-1]], made, [nights.accepted(made[base])], Terms(**terms)).verdicts  # type: ignore[arg-type]
    return verdict


def test_a_step_in_noise_is_found_by_the_history_and_named() -> None:
    """No single night shows a small step under 3 % of noise."""
    made = nights.entries([100.0] * 30 + [95.5] * 30, 0.03, 0.01)
    verdict = _last(made, 5)
    assert verdict.outcome == "regression"
    assert verdict.shift is not None
    assert verdict.shift.kind == "step"
    assert abs(int(verdict.shift.since.removeprefix("nightly-")) - 30) <= 2
    assert verdict.shift.ratio == pytest.approx(0.955, abs=0.015)
    assert verdict.shift.since in verdict.why


def test_a_drift_is_named_as_one() -> None:
    made = nights.entries(list(np.linspace(100, 94, 50)), 0.01, 0.005)
    verdict = _last(made)
    assert verdict.outcome == "regression"
    assert verdict.shift is not None
    assert verdict.shift.kind == "drift"
    assert verdict.shift.ratio == pytest.approx(0.94, abs=0.015)


def test_an_outlier_is_named_and_is_no_change() -> None:
    levels = [100.0] * 40
    levels[25] = 80.0
    verdict = _last(nights.entries(levels, 0.01))
    assert verdict.outcome in ("pass", "inconclusive")
    assert verdict.trend is not None
    assert verdict.trend.shifts == ()
    assert verdict.trend.outliers == ("nightly-025",)


def test_a_change_before_the_baseline_is_nobodys_regression() -> None:
    """A baseline after the change accepts the new level."""
    made = nights.entries([100.0] * 20 + [90.0] * 20, 0.005)
    assert _last(made, 5).outcome == "regression"
    verdict = _last(made, 25)
    assert verdict.outcome == "pass"
    assert verdict.trend is not None
    assert len(verdict.trend.shifts) == 1


def test_the_night_on_which_it_was_mended_is_fine() -> None:
    made = nights.entries([100.0] * 20 + [90.0] * 10 + [100.0], 0.005)
    assert _last(made[:-1]).outcome == "regression"
    assert _last(made).outcome == "pass"


def test_a_history_tells_of_a_step_without_any_baseline() -> None:
    made = nights.entries([100.0] * 20 + [90.0] * 10, 0.01)
    (verdict,) = baseline_comparison.judge([made[-1]], made, []).verdicts
    assert verdict.outcome == "regression"
    assert "% worse since nightly-020" in verdict.why
    assert verdict.advice == ()


def test_later_nights_other_keys_and_cached_ones_do_not_count() -> None:
    made = nights.entries([100.0] * 12, 0.005)
    other = structs.replace(nights.KEY, nodes=8)
    noise = [nights.entry(night, [10.0], other, job=f"other-{night}") for night in range(12)]
    noise += [nights.entry(night, [500.0], storage="cached", job=f"cached-{night}") for night in range(12)]
    later = [nights.entry(night, [50.0] * 3) for night in range(12, 24)]
    base = [nights.accepted(made[0])]
    alone = baseline_comparison.judge([made[-1]], made, base)
    assert baseline_comparison.judge([made[-1]], [*later, *noise, *made], base) == alone


# Commands -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    directory = tmp_path / "archive"
    directory.mkdir()
    made = nights.entries([100.0] * 20 + [94.0] * 10, 0.005)
    for entry in made:
        history.enter(directory, entry)
    baselines.accept(directory, made[2], "quiet night")
    return directory


def test_compare_on_the_command_line(tmp_path: Path, folder: Path, run: Run) -> None:
    good = run("dlio-hpc", "compare", "nightly-010", "--archive", folder)
    assert good.code == 0
    assert good.out.splitlines()[-1] == "pass"
    bad = run(
        "dlio-hpc", "compare", "nightly-029", "nightly-010", "--archive", folder, "--html", "c.html", "--figures", "f",
        "--junit", "j.xml", "--metric", "samples_per_s", "--metric", "wall_s",
    )  # fmt: skip
    assert bad.code == 1
    assert bad.out.splitlines()[-1] == "2 regression, 2 pass"
    assert "since nightly-020" in bad.out
    assert "…" not in bad.out
    assert len(list((tmp_path / "f").glob("*.svg"))) == 4
    assert "nightly-020" in (tmp_path / "c.html").read_text()
    (suite,) = ET.fromstring((tmp_path / "j.xml").read_bytes())
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "0")
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("type") == "regression"
    comparison = run("dlio-hpc", "compare", "nightly-029", "--archive", folder, "--json").json
    assert (comparison["outcome"], comparison["exit_code"]) == ("regression", 1)
    assert comparison["verdicts"][0]["shift"]["since"] == "nightly-020"
    assert run("dlio-hpc", "compare", "nightly-029", "--archive", folder, "--tolerance", "10 %").code in (0, 5)
    assert run("dlio-hpc", "compare", "nightly-029", "--archive", folder, "--baseline", "nightly-025").code in (0, 5)
    for arguments in (["nobody"], ["nightly-029", "--baseline", "nobody"], ["nightly-029", "--tolerance", "200%"]):
        assert run("dlio-hpc", "compare", *arguments, "--archive", folder).code == 2


def test_compare_takes_directories_archives_and_studies_alike(tmp_path: Path, run: Run) -> None:
    """The jobs read nothing, so that no cache is in question."""
    runs = tmp_path / "dlio-runs"
    for name, factor in (("before", 1.0), ("after", 0.7)):
        made = studies.make(runs, studies.asked("demo", "reader.batch_size=4,8"), repeat=3, name=name)
        studies.write(made, lambda point, repeat, by=factor: by * (200.0 + 100 * point + 0.2 * repeat))  # type: ignore[misc]
    assert run("dlio-hpc", "collect").code == 0
    assert run("dlio-hpc", "baseline", "accept", "before", "--message", "it is the first").out.count("before-1-") == 2
    for name in ("after", "dlio-runs/after-1", "after-1", "dlio-runs/archive/after-1.tar.zst"):
        done = run("dlio-hpc", "compare", name)
        assert (name, done.code, done.out.splitlines()[-1]) == (name, 1, "2 regression")
    assert run("dlio-hpc", "compare", "after-1", "--baseline", "after-1").code == 5
    assert archive.faults(runs / "archive" / "after-1.tar.zst") == []
    assert history_entry.of(job_outcome.load(runs / "after-1")) in history.entries(runs / "archive")


def test_a_study_that_is_not_whole(tmp_path: Path, run: Run) -> None:
    """One study lacks a run, one is still running, and one has a damaged archive."""
    runs, points = tmp_path / "dlio-runs", studies.asked("demo", "reader.batch_size=4,8")
    studies.write(studies.make(runs, points, repeat=1, name="cut"), lambda point, _: None if point else 1.0, "timeout")
    lacking = run("dlio-hpc", "compare", "cut", "cut", "--junit", "j.xml")
    assert lacking.code == 7
    assert "1 incomplete" in lacking.out
    assert lacking.err.count("cut: 1 of 2 measurements are missing\n") == 1
    assert "junit: j.xml\n" in lacking.err
    studies.write(studies.make(runs, points, name="live"), lambda _, __: 1.0, "running")
    going = run("dlio-hpc", "compare", "live")
    assert (going.code, "wait for its end" in going.err) == (7, True)
    studies.write(studies.make(runs, points, name="kept"), lambda _, __: 1.0)
    assert run("dlio-hpc", "collect", "kept").code == 0
    shutil.rmtree(runs / "kept-1")
    (runs / "archive" / "kept-1.tar.zst").write_bytes(b"nothing")
    damaged = run("dlio-hpc", "compare", "kept")
    assert (damaged.code, "kept-1.tar.zst is corrupted" in damaged.err) == (3, True)


def test_a_study_in_an_archive_that_lacks_a_job_is_not_whole(tmp_path: Path, run: Run) -> None:
    runs, points = tmp_path / "dlio-runs", studies.asked("demo", nodes=(1, 2))
    studies.write(studies.make(runs, points, name="two"), lambda point, repeat: 100.0 + point + 0.1 * repeat)
    assert run("dlio-hpc", "collect", "two").code == 0
    assert run("dlio-hpc", "baseline", "accept", "two", "--message", "first").code == 0
    kept = tmp_path / "kept"
    shutil.move(runs / "archive", kept)
    shutil.rmtree(runs)
    whole = run("dlio-hpc", "compare", "two", "--archive", kept)
    assert (whole.code, whole.out.count("itself, so nothing is compared") > 0) == (5, True), "it is the baseline"
    (kept / "two-2.tar.zst").rename(tmp_path / "away")
    gone = run("dlio-hpc", "compare", "two", "--archive", kept)
    assert (gone.code, "it is unknown whether two lacks measurements" in gone.err) == (5, True), gone
    assert run("dlio-hpc", "history", "--rebuild", "--archive", kept).code == 0
    part = run("dlio-hpc", "compare", "two", "--archive", kept)
    assert (part.code, "two: 3 of 6 measurements are missing" in part.err) == (7, True), part
    assert part.out.startswith("Not measured: ")


def test_what_is_missing_is_the_verdict_on_a_study() -> None:
    """A verdict on the jobs that are there would be Good."""
    judged = _judgement([nights.entry(1, [99.8, 100.1, 100.3])], *QUIET)
    assert judged.exit_code == 0
    whole = comparison.with_missing(judged, ["half: 1 of 2 measurements are missing"])
    assert (whole.outcome, whole.exit_code) == ("incomplete", 7)
    assert [(verdict.job, verdict.outcome) for verdict in whole.verdicts[1:]] == [("half", "incomplete")]
    assert whole.verdicts[-1].why == "1 of 2 measurements are missing"
    assert comparison.with_missing(whole, ["half: 1 of 2 measurements are missing"]) == whole
    assert comparison.with_missing(judged, []) == judged


def test_the_summary_counts_verdicts() -> None:
    assert baseline_comparison.summed([]) == Judgement((), "not_comparable", 2, "nothing to compare")


def test_outcomes_of_differences() -> None:
    def of(ratio: float, low: float, high: float, is_changed: bool = True) -> str:
        return regression.outcome_of(regression.LevelDifference(*map(math.log, (ratio, low, high))), 0.02, is_changed)

    assert of(0.97, 0.96, 0.99) == "regression"
    assert of(0.97, 0.96, 0.99, is_changed=False) == "inconclusive"
    assert of(0.97, 0.94, 1.01) == "inconclusive"
    assert of(0.985, 0.981, 0.995) == "pass"
    assert of(0.985, 0.975, 0.995) == "inconclusive"
    assert of(1.00, 0.90, 1.10) == "inconclusive"
    assert of(1.05, 0.985, 1.12) == "pass"
    assert of(1.05, 1.01, 1.09) == "improved"
    assert of(1.05, 1.01, 1.09, is_changed=False) == "pass"


def test_repeats_of_one_study_are_repeats_however_many_jobs_it_took() -> None:
    """Three jobs of one evening count as one night; a repeat that only one of them has is not missing."""
    one, two, three = (nights.entry(1, [value], job=f"s-{value}", study="s") for value in (100.0, 100.2, 99.8))
    apart = [
        structs.replace(entry, measurements=(structs.replace(entry.measurements[0], repeat=place),))
        for place, entry in enumerate((one, two, three))
    ]
    (verdict,) = baseline_comparison.judge(apart, [*QUIET, *apart], [nights.accepted(BASE)]).verdicts
    assert (verdict.job, verdict.outcome) == ("s", "pass")
    assert verdict.here is not None
    assert verdict.here.values == (100.0, 100.2, 99.8)
    bad = structs.replace(apart[0].measurements[0], fault="lost", exit_code=7)
    first = structs.replace(apart[0], job="s-0", measurements=(bad,), fault="cancelled", exit_code=7)
    (again,) = baseline_comparison.judge([first, *apart], [BASE, *QUIET], [nights.accepted(BASE)]).verdicts
    assert again.outcome == "pass"
    (lost,) = baseline_comparison.judge([first, *apart[1:]], [BASE, *QUIET], [nights.accepted(BASE)]).verdicts
    assert lost.outcome == "incomplete"


@pytest.mark.parametrize("code", [3, 6, 7])
def test_what_failed_before_its_layout_was_known_can_be_made_good(code: int) -> None:
    """The key of the failed run holds less than the key of the run that replaces it."""
    made = nights.entry(1, [100.0, 100.2, 99.8])
    key = structs.replace(nights.KEY, file_system="unknown", layout="unknown")
    early = structs.replace(made.measurements[0], key=key, fault="it went wrong", exit_code=code)
    first = structs.replace(made, job="first", created=nights.day(0), measurements=(early,), fault="x", exit_code=code)
    (verdict,) = baseline_comparison.judge([first, made], [BASE, *QUIET], [nights.accepted(BASE)]).verdicts
    assert verdict.outcome == "pass"
    other = structs.replace(early, repeat=7)
    judged = baseline_comparison.judge(
        [structs.replace(first, measurements=(other,)), made], [], [nights.accepted(BASE)]
    )
    assert judged.exit_code == code


def _with_checkpoints(night: int, bandwidth: float) -> Entry:
    made = nights.entry(night, [100.0 + 0.1 * (night % 3)] * 3)
    runs = [
        structs.replace(run, metrics={**run.metrics, "checkpoint_write_MBps": bandwidth}) for run in made.measurements
    ]
    return structs.replace(made, measurements=tuple(runs))


def test_slow_checkpoints_are_not_hidden_by_samples() -> None:
    past = [_with_checkpoints(night, 5000.0 + 5 * (night % 4)) for night in range(12)]
    slow = [_with_checkpoints(12 + night, 1000.0) for night in range(4)]
    judged = baseline_comparison.judge(slow[-1:], [*past, *slow], [nights.accepted(past[0])])
    assert [(verdict.metric, verdict.outcome) for verdict in judged.verdicts] == [
        ("samples_per_s", "pass"), ("checkpoint_write_MBps", "regression"),
    ]  # fmt: skip
    assert judged.exit_code == 1


def test_a_regression_begins_with_the_drop_that_lasts() -> None:
    """The larger drop after the baseline was made up for."""
    usual = [100.0, 101.0, 99.0, 100.5, 99.5]
    levels = [*usual * 2, 25.0, 24.0, 24.5, *usual * 3, *(0.7 * level for level in usual)]
    past = [nights.entry(night, [level] * 3) for night, level in enumerate(levels)]
    (verdict,) = baseline_comparison.judge(past[-1:], past, [nights.accepted(past[0])]).verdicts
    assert verdict.outcome == "regression"
    assert verdict.shift is not None
    assert verdict.shift.since == "nightly-028"
    assert verdict.ratio == pytest.approx(0.7, abs=0.02)


def test_jobs_of_another_study_that_ended_in_the_same_second_were_before() -> None:
    job, other = nights.entry(3, [1.0]), nights.entry(3, [1.0], job="other", study="other")
    assert baseline_comparison._is_before(other, job)
    assert not baseline_comparison._is_before(nights.entry(4, [1.0]), job)
    later = structs.replace(job, night=1)
    assert not baseline_comparison._is_before(later, later), "a night is not before itself"
