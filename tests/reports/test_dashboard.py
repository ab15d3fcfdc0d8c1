"""The dashboard says what the verdicts say, and what is not known."""

import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import get_args

import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.nights import night_of
from dlio_hpc.files.archive import SUFFIX
from dlio_hpc.records.outcomes import OUTCOMES
from dlio_hpc.reports import banner, dashboard, html_page, sparkline
from dlio_hpc.reports.dashboard import Facility, Unread
from dlio_hpc.reports.page import Board, Card, NightState, Page
from dlio_hpc.verdict import baseline_comparison, baselines, history, newest_jobs
from tests.conftest import Run
from tests.support import facilities, nights, studies

LAST = 83
NOW = nights.day(LAST).replace("T02", "T09")


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return facilities.facility(tmp_path_factory.mktemp("facility"), LAST)


def _page(archives: Path, now: str = NOW, site: str | None = None, since: str = "") -> Page:
    entries = history.entries(archives)
    listed = [entry for entry in entries if site in (None, entry.site) and entry.ended >= since]
    rows = newest_jobs.of(archives, listed, entries)
    return dashboard.of_facility(Facility("archive", now, rows, len(listed), lambda _: ""))


def _cards(page: Page) -> dict[str, Card]:
    boards = [block for section in page.sections for block in section.blocks if isinstance(block, Board)]
    return {card.title: card for board in boards for card in board.cards}


def test_the_first_sentence_counts_and_names_what_is_not_good(archives: Path) -> None:
    opening = _page(archives).banner
    assert opening.state == "bad"
    assert opening.text.startswith("Last night 2026-11-23: 1 of 3 suites good, 1 of 3 other workloads good. ")
    assert "good. nightly on local: regression; " in opening.text, "a suite is watched, a failed trial is not"
    assert "Also: resnet50 on aurora (failed), unet3d on polaris (not measured)." in opening.text
    assert opening.text.endswith("Not run that night: weekend on local (last 2026-11-21).")


def test_a_regression_comes_first_if_nothing_failed(archives: Path) -> None:
    opening = _page(archives, site="local").banner
    assert opening.text.startswith("Last night 2026-11-23: 1 of 3 suites good. nightly on local: regression; ")


def test_each_state_has_its_card(archives: Path) -> None:
    states = {title: card.state for title, card in _cards(_page(archives)).items()}
    assert states == {
        "resnet50 on aurora": "failed", "bert on aurora": "inconclusive", "nightly on local": "regression",
        "checkpoints on local": "good", "weekend on local": "not measured", "unet3d on polaris": "not measured",
        "cosmoflow on polaris": "good",
    }  # fmt: skip
    assert set(states.values()) == set(get_args(NightState))


def test_states_agree_with_the_banners_of_compare() -> None:
    for outcome, meaning in OUTCOMES.items():
        expected = banner.state_of(meaning.exit_code)
        state = dashboard.STATES[outcome]
        assert expected == ("bad" if state in ("failed", "regression") else state)


def test_verdicts_are_those_of_compare(archives: Path, run: Run) -> None:
    """The card of a workload has the outcome, the difference and the interval of `dlio-hpc compare`."""
    entry = [job for job in history.entries(archives) if job.job.startswith("cosmoflow")][-1]
    (verdict,) = run("dlio-hpc", "compare", entry.job, "--archive", archives, "--json").json["verdicts"]
    (line,) = _cards(_page(archives))["cosmoflow on polaris"].lines
    assert (line.state, verdict["outcome"]) == ("good", "pass")
    assert line.change == f"{100 * (verdict['ratio'] - 1):+.1f} %"
    assert line.interval == f"{100 * (verdict['low'] - 1):+.1f} % to {100 * (verdict['high'] - 1):+.1f} %"


def test_a_suite_is_judged_with_its_own_tolerance_and_criteria(archives: Path, run: Run) -> None:
    (row,) = (row for row in newest_jobs.of(archives, *[history.entries(archives)] * 2) if row.name == "nightly")
    assert row.kind == "suite"
    first = run("dlio-hpc", "report", archives.parent / row.newest.study).out.splitlines()[0]
    assert first == f"Bad: {_cards(_page(archives))['nightly on local'].summary}"
    assert row.judgement is not None
    assert {verdict.tolerance for verdict in row.judgement.verdicts} == {0.05}


def test_nothing_ran_is_said_first(archives: Path) -> None:
    opening = _page(archives, now=nights.day(LAST + 4), site="polaris").banner
    assert opening.state == "not measured"
    lead = (
        "Nothing ran since 2026-11-23 02:00 UTC (4.0 days), as far as jobs are archived. That night: 1 of 2 workloads"
    )
    assert opening.text.startswith(lead)


def test_a_trial_beside_the_suites_does_not_change_the_state(tmp_path: Path) -> None:
    """A user of a shared archive tries the demo, which reads from memory."""
    archives = tmp_path / "archive"
    facilities.suite(archives, "nightly", LAST, [90.0, 200.0])
    history.take_in(archives)
    facilities.workload(archives, "demo", "local", [LAST], storage="cached")
    opening = _page(archives).banner
    assert opening.state == "good"
    assert ": 1 of 1 suite good, 0 of 1 other workload good. demo on local: " in opening.text
    baselines.accept(archives, facilities.workload(archives, "resnet", "local", [LAST - 1]), "quiet", force=True)
    facilities.workload(archives, "resnet", "local", [LAST], storage="cached")
    assert _page(archives).banner.state == "not measured", "the facility watches it: it has a baseline"


def test_a_study_with_the_name_of_a_suite_does_not_hide_it(archives: Path, tmp_path: Path) -> None:
    kept = tmp_path / "archive"
    facilities.suite(kept, "nightly", LAST - 1, [90.0, 200.0])
    name, points = "nightly-20261123-020000-0000ff", studies.asked("demo", "reader.batch_size=4,8")
    made = studies.make(tmp_path, points, repeat=3, name=name, archive=kept)
    studies.write(made, lambda point, repeat: 100.0)
    facilities.archived(tmp_path / f"{made.study}-1", kept, LAST)
    history.take_in(kept)
    rows = newest_jobs.of(kept, *[history.entries(kept)] * 2)
    assert sorted(row.kind for row in rows) == ["study", "suite"]


def test_a_card_has_the_values_of_criteria_that_are_not_met(tmp_path: Path) -> None:
    archives = tmp_path / "archive"
    facilities.suite(archives, "nightly", LAST, [90.0, 200.0], least=150.0)
    history.take_in(archives)
    (card,) = _cards(_page(archives)).values()
    (note,) = [note for note in card.notes if "asked:" in note]
    assert card.state == "failed"
    assert re.search(r"batch_size=4.*: 90 /s \(.*\); asked: samples/s >= 150 /s\.$", note), note


def test_a_card_says_that_its_baseline_was_forced(tmp_path: Path) -> None:
    archives = tmp_path / "archive"
    first = facilities.workload(archives, "resnet", "local", [LAST - 1], storage="cached")
    baselines.accept(archives, first, "quiet", force=True)
    facilities.workload(archives, "resnet", "local", [LAST])
    (card,) = _cards(_page(archives)).values()
    assert [note for note in card.notes if note.startswith("Note: the baseline was accepted despite: ")]


@pytest.mark.parametrize(("nights_run", "is_expected"), [([LAST - 5, LAST - 4], True), ([LAST - 4], False)])
def test_a_watched_workload_that_stops_is_reported(tmp_path: Path, nights_run: list[int], is_expected: bool) -> None:
    """A single acceptance measurement is not expected again."""
    archives = tmp_path / "archive"
    baselines.accept(archives, facilities.workload(archives, "resnet", "local", nights_run), "quiet", force=True)
    facilities.suite(archives, "nightly", LAST, [90.0, 200.0])
    history.take_in(archives)
    opening = _page(archives).banner
    assert (opening.state == "not measured") == is_expected
    assert ("Not run that night: resnet on local (last 2026-11-19)." in opening.text) == is_expected
    assert ("0 of 1 other workload good" in opening.text) == is_expected


def test_a_cancelled_job_of_a_watched_workload_is_not_without_baseline(tmp_path: Path) -> None:
    archives = tmp_path / "archive"
    entry = facilities.workload(archives, "resnet", "local", range(LAST - 3, LAST))
    baselines.accept(archives, entry, "quiet", force=True)
    unknown = {"fault": "no result", "exit_code": 7, "metrics": {}, "storage": None}
    lost = [structs.replace(run, **unknown) for run in entry.measurements]
    how = {"fault": "cancelled", "exit_code": 7, "state": "cancelled", "measurements": tuple(lost)}
    facilities.workload(archives, "resnet", "local", [LAST], **how)
    page = _page(archives)
    (card,) = _cards(page).values()
    assert page.banner.state == "not measured"
    assert {line.change for line in card.lines} == {"not compared"}


def test_an_end_in_the_future_is_no_last_night(archives: Path) -> None:
    """The clock of a login node was wrong when it collected a job."""
    opening = _page(archives, now=nights.day(LAST - 1)).banner
    assert opening.state == "bad"
    assert "Cannot be read: " in opening.text
    assert "Last night 2026-11-23" not in opening.text


def test_gaps_are_shown_and_said(archives: Path) -> None:
    lines = _cards(_page(archives))["nightly on local"].lines
    assert lines[0].nights == "30 nights to 2026-11-23; no run on 11-03, 11-12, 11-21 and 1 more"
    assert lines[0].spark.count('class="gap"') == 4
    (line,) = _cards(_page(archives))["unet3d on polaris"].lines
    assert line.nights.endswith("; not from storage on 11-23")
    assert line.spark.count('class="ring"') == 1


def test_an_unknown_difference_is_called_unknown(archives: Path) -> None:
    failed = _cards(_page(archives))["resnet50 on aurora"].lines[-1]
    assert (failed.latest, failed.change, failed.interval) == ("unknown", "unknown", "unknown")
    (old,) = _cards(_page(archives))["bert on aurora"].lines
    assert (old.change, old.interval) == ("no baseline", "unknown")


def test_a_suite_whose_archive_is_gone_is_judged_like_a_job_and_says_so(archives: Path, tmp_path: Path) -> None:
    entries = [entry for entry in history.entries(archives) if entry.study.startswith("checkpoints")]
    (row,) = newest_jobs.of(tmp_path, entries, entries)
    assert (row.kind, row.suite) == ("unknown", None)
    assert row.note.startswith("judged without the criteria and tolerance of a suite: ")
    assert SUFFIX in row.note


def test_a_failed_night_is_a_cross_and_the_window_ends_at_the_last_night() -> None:
    entries = [nights.entry(night, [100.0] * 3) for night in range(4)]
    entries[2] = nights.entry(2, [], measurements=(), fault="no node", exit_code=6, state="failed")
    last = night_of(nights.day(5))
    shown = sparkline.nights(entries, nights.KEY, "samples_per_s", last, 90.0)
    assert sparkline.described(shown) == "6 nights to 2026-09-06; no run on 09-05, 09-06; no result on 09-03"
    drawn = sparkline.svg(shown)
    assert [drawn.count(f'class="{name}"') for name in ("gap", "cross", "ring", "base")] == [2, 1, 0, 1]
    assert "from 90 to 100.0, latest 100.0" in drawn


def test_most_nights_are_left_out() -> None:
    entries = [nights.entry(night, [100.0] * 3) for night in range(50)]
    shown = sparkline.nights(entries, nights.KEY, "samples_per_s", night_of(nights.day(49)), None)
    assert len(shown.days) == sparkline.MOST
    alone = sparkline.nights(entries[:1], nights.KEY, "samples_per_s", night_of(nights.day(0)), None)
    assert "1 night to 2026-09-01" in sparkline.svg(alone)


@pytest.fixture
def _chicago(time_zone: Callable[[str], None]) -> None:
    time_zone("CST6CDT")


@pytest.mark.usefixtures("_chicago")
def test_a_night_lasts_from_local_noon_to_noon() -> None:
    ended = ["2026-11-23T17:59:00Z", "2026-11-23T18:01:00Z", "2026-11-24T05:00:00Z", "2026-11-24T17:59:00Z"]
    assert [str(night_of(moment)) for moment in ended] == ["2026-11-23", *["2026-11-24"] * 3]
    assert str(night_of("2026-07-01T17:01:00Z")) == "2026-07-02", "daylight saving time"


def test_a_study_is_listed_and_not_judged(archives: Path, tmp_path: Path) -> None:
    made = studies.make(tmp_path, studies.asked("demo", "reader.batch_size=4,8"), repeat=2, name="tune")
    studies.write(made, lambda *_: 100.0)
    folder = tmp_path / "archive"
    facilities.archived(tmp_path / "tune-1", folder, LAST + 3)
    history.take_in(folder)
    entries = history.entries(folder)
    (row,) = newest_jobs.of(folder, entries, entries)
    assert (row.kind, row.outcome) == ("study", None)
    known = history.entries(archives)
    rows = [row, *newest_jobs.of(archives, known, known)]
    shown = dashboard.of_facility(
        Facility("archive", nights.day(LAST + 3), rows, 1, lambda name: f"studies/{name}.html")
    )
    lead = (
        "Only studies ran since 2026-11-23 02:00 UTC (3.0 days), as far as jobs are archived. That night: 1 of 3 suites"
    )
    assert shown.banner.text.startswith(lead)
    html = html_page.render(shown).replace("<wbr>", "")
    assert '<a href="studies/tune.html">tune</a>' in html


def test_no_jobs_are_no_good_news(tmp_path: Path) -> None:
    opening = dashboard.of_facility(Facility("archive", NOW, [], 0, lambda _: "")).banner
    assert (opening.state, opening.text) == ("not measured", "No job has a verdict.")
    unread = [Unread("x", "is damaged")]
    opening = dashboard.of_facility(Facility("archive", NOW, [], 0, lambda _: "", (), unread)).banner
    assert (opening.state, opening.text) == ("bad", "No job has a verdict. Cannot be read: x.")


def test_the_page_has_colour_and_word_of_each_state(archives: Path) -> None:
    html = html_page.render(_page(archives))
    assert '<meta name="generator" content="dlio-hpc">' in html, "a page that the next night may replace"
    template = html[html.index("<style>") : html.index("</style>")]
    for state in get_args(NightState):
        assert f".badge.{state.replace(' ', '-')}" in template
        assert re.search(
            rf'class="badge {state.replace(" ", "-")}"><span aria-hidden="true">.</span> {state}</span>', html
        )


def test_history_writes_the_dashboard_unless_jobs_are_chosen(archives: Path, run: Run, tmp_path: Path) -> None:
    def title(*options: str) -> str:
        done = run("dlio-hpc", "history", "--archive", archives, "--html", "h.html", *options)
        assert done.code == 0, done.err
        assert "History of" in done.out, "the terminal lists the jobs"
        (heading,) = re.findall("<h1>(.*)</h1>", unescape((tmp_path / "h.html").read_text()))
        return str(heading)

    assert title() == title("--site", "local") == title("--since", "2026-11-01") == "Dashboard"
    chosen = (["--metric", "wall_s"], ["--workload", "demo"], ["nightly*"], ["--state", "failed"])
    assert [title(*options) for options in chosen] == ["History of time", *["History of samples/s"] * 3]


def test_since_limits_what_is_listed_and_not_what_is_compared(archives: Path) -> None:
    whole, recent = _cards(_page(archives)), _cards(_page(archives, since=nights.day(LAST - 1)))
    assert "bert on aurora" not in recent
    for old, new in zip(whole["nightly on local"].lines, recent["nightly on local"].lines, strict=True):
        assert (old.state, old.change, old.interval) == (new.state, new.change, new.interval)


def test_several_jobs_of_a_night_count_once() -> None:
    entries = [nights.entry(0, [100.0] * 3), nights.entry(0, [90.0] * 3, job="second")]
    shown = sparkline.nights(entries, nights.KEY, "samples_per_s", night_of(nights.day(0)), None)
    assert [mark.value for mark in shown.marks.values()] == [90.0]


def test_the_standing_has_the_verdict_of_judge(tmp_path: Path) -> None:
    for entry in nights.entries([100.0] * 10 + [80.0], 0.002):
        history.enter(tmp_path, entry)
    entries = history.entries(tmp_path)
    baselines.accept(tmp_path, entries[0], "quiet", force=True)
    (row,) = newest_jobs.of(tmp_path, entries, entries)
    active = baselines.active(baselines.read(tmp_path))
    assert row.judgement == baseline_comparison.judge([entries[-1]], entries, active)
    assert (row.outcome, str(row.night)) == ("regression", units.utc(units.timestamp(entries[-1].ended))[:10])


def test_jobs_of_other_ranks_or_settings_have_rows_of_their_own(tmp_path: Path) -> None:
    """A failure of one configuration is not hidden by a later job of another."""
    small = nights.KEY
    large = structs.replace(small, nodes=64)
    failed = nights.entry(LAST, [], job="cosmoflow-20261124-020000-000001", fault="a node failed", exit_code=6)
    planned = nights.measurement(0, 1.0, structs.replace(large, file_system="unknown", layout="unknown"))
    lost = structs.replace(planned, fault="no result", exit_code=6, metrics={}, storage=None)
    before = nights.entry(LAST - 1, [100.0], large, job="cosmoflow-20261123-020000-000002")
    later = nights.entry(LAST, [100.0], small, job="cosmoflow-20261124-030000-000003")
    for entry in (before, structs.replace(failed, measurements=(lost,)), later):
        history.enter(tmp_path, entry)
    entries = history.entries(tmp_path)
    rows = {row.name: row for row in newest_jobs.of(tmp_path, entries, entries)}
    assert sorted(name.partition(", settings")[0] for name in rows) == [
        "cosmoflow, 2 x 4 ranks", "cosmoflow, 64 x 4 ranks",
    ]  # fmt: skip
    of_large = next(row for name, row in rows.items() if "64 x" in name)
    assert [job.fault for job in of_large.jobs] == [None, "a node failed"]
    assert {run.key for job in of_large.jobs for run in job.measurements} == {large}, "the place of the failed job"


def test_places_that_no_job_knew_stay_unknown(tmp_path: Path) -> None:
    unknown = structs.replace(nights.KEY, file_system="unknown")
    history.enter(tmp_path, nights.entry(0, [1.0], unknown))
    assert history.entries(tmp_path)[0].measurements[0].key == unknown
    elsewhere = nights.measurement(0, 1.0, data="/elsewhere")
    history.enter(tmp_path, nights.entry(1, [1.0], measurements=(elsewhere,)))
    assert history.entries(tmp_path)[0].measurements[0].key == unknown
    assert history.entries(tmp_path)[1].measurements[0].key == nights.KEY
