"""The nights of a study (dlio-submit --nights) are judged and listed as nights, not as repeats of one night."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.files import archive, rundir
from dlio_hpc.records import job_outcome
from dlio_hpc.reports import history_rows, monitoring
from dlio_hpc.verdict import (
    baseline_candidates,
    baseline_comparison,
    baselines,
    history,
    history_database,
    history_entry,
    newest_jobs,
    retention,
    run_groups,
    trend,
)
from dlio_hpc.verdict.baseline_comparison import Verdict
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.retention import Retention
from tests.conftest import Run
from tests.support import nights, studies

OTHER = structs.replace(nights.KEY, nodes=16)
VALUES = ([100.0, 101.0, 99.0], [104.0, 105.0], [97.0, 98.0, 96.0, 97.0])
JOBS = ["s-night1-1", "s-night2-2", "s-night3-3"]


def _job(
    night: int,
    number: int,
    values: Sequence[float | None],
    day: int | None = None,
    key: Key = nights.KEY,
    first: int | None = None,
    **rest: Any,
) -> Entry:
    """Return a job of the study `s`. values: of its repeats; None for a repeat that failed. day: on which it ended, by
    its number; None for that of the night. first: number of the first repeat; None for that of the night.
    """
    name, ended = f"s-night{night}-{number}", nights.day(night if day is None else day)
    begin = 10 * night if first is None else first
    runs = [
        nights.measurement(
            begin + place, 1.0 if value is None else value, key, job=name, started=ended, ended=ended,
            fault="the node died" if value is None else None, exit_code=0 if value is not None else 4,
        )
        for place, value in enumerate(values)
    ]  # fmt: skip
    fault: dict[str, Any] = {"fault": "a run failed", "exit_code": 4} if None in values else {}
    made = nights.entry(night, [], key, job=name, study="s", created=ended, ended=ended, **fault)
    return structs.replace(made, **{"night": night, "measurements": tuple(runs)} | rest)


@pytest.fixture
def study() -> list[Entry]:
    """Three nights with different numbers of repeats."""
    return [_job(night, night, values) for night, values in enumerate(VALUES, 1)]


def _values(entry: Entry, key: Key = nights.KEY) -> tuple[float, ...]:
    (group,) = [group for group in run_groups.of(entry) if group.key == key]
    return group.values("samples_per_s")


def _past(count: int = 12, level: float = 100.0) -> list[Entry]:
    """Return single jobs of the nights before the study."""
    return [nights.entry(-count + night, [level * factor]) for night, factor in enumerate([1.01, 0.99, 1.0] * 4)]


def _verdicts(*judged: Entry, history: Sequence[Entry], baseline: Entry) -> tuple[Verdict, ...]:
    return baseline_comparison.judge(judged, history, [nights.accepted(baseline)]).verdicts


# Merged jobs ----------------------------------------------------------------------------------------------------------


def test_each_night_is_an_entry_with_the_name_of_its_job(study: list[Entry]) -> None:
    merged = history_entry.together(study)
    assert [entry.job for entry in merged] == JOBS
    assert [_values(entry) for entry in merged] == [tuple(values) for values in VALUES]
    assert history_entry.together(merged) == merged


def test_the_jobs_of_a_study_that_is_split_are_one_entry_on_any_dates(study: list[Entry]) -> None:
    jobs = [structs.replace(job, job=f"s-{number}", night=0) for number, job in enumerate(study, 1)]
    (merged,) = history_entry.together(jobs)
    assert (merged.job, len(merged.measurements)) == ("s", 9)


def test_a_job_that_runs_again_on_its_night_is_merged_with_it() -> None:
    first, again = _job(2, 2, [100.0, None]), _job(2, 4, [102.0], first=21)
    merged = history_entry.together([_job(1, 1, [99.0]), first, structs.replace(again, created=nights.day(3))])
    assert [(entry.job, _values(entry), entry.fault) for entry in merged] == [
        ("s-night1-1", (99.0,), None), ("s-night2-2", (100.0, 102.0), None),
    ]  # fmt: skip


def test_a_repeat_that_runs_again_on_another_night_belongs_to_that_night() -> None:
    jobs = [_job(1, 1, [100.0, None]), _job(2, 2, [104.0, 105.0]), _job(1, 3, [90.0], day=5, first=11)]
    merged = history_entry.together(jobs)
    assert [(entry.job, _values(entry), entry.fault) for entry in merged] == [
        ("s-night1-1", (100.0,), None), ("s-night2-2", (104.0, 105.0), None), ("s-night1-3", (90.0,), None),
    ]  # fmt: skip


def test_a_night_that_was_run_again_as_a_whole_has_one_entry() -> None:
    jobs = [_job(1, 1, [None, None]), _job(2, 2, [104.0, 105.0]), _job(1, 3, [90.0, 91.0], day=5)]
    assert [entry.job for entry in history_entry.together(jobs)] == ["s-night2-2", "s-night1-3"]


def test_a_night_that_failed_stays_visible() -> None:
    early = _job(2, 2, [], fault="no node", exit_code=4)
    assert [(entry.job, entry.fault) for entry in history_entry.together([_job(1, 1, [100.0]), early])] == [
        ("s-night1-1", None), ("s-night2-2", "no node"),
    ]  # fmt: skip
    lost = history_entry.together([_job(1, 1, [100.0]), _job(2, 2, [104.0, None])])[1]
    assert (lost.fault, lost.exit_code) == ("a run failed", 4)


def test_several_jobs_of_a_night_are_one_entry() -> None:
    ahead = _job(1, 0, [], job="s-generate")
    jobs = [
        ahead,
        _job(1, 1, [100.0]),
        _job(1, 2, [50.0], key=OTHER),
        _job(2, 3, [101.0]),
        _job(2, 4, [51.0], key=OTHER),
    ]
    merged = history_entry.together(jobs)
    assert [(entry.job, _values(entry), _values(entry, OTHER)) for entry in merged] == [
        ("s-night1-1", (100.0,), (50.0,)), ("s-night2-3", (101.0,), (51.0,)),
    ]  # fmt: skip


# The history ----------------------------------------------------------------------------------------------------------


def test_the_history_gives_back_the_nights_of_jobs(study: list[Entry], tmp_path: Path) -> None:
    for entry in study:
        history.enter(tmp_path, entry)
    assert history.entries(tmp_path) == tuple(study)
    assert [entry.job for entry in history_entry.together(history.entries(tmp_path))] == JOBS


def test_an_earlier_version_told_the_night_by_the_name(study: list[Entry], tmp_path: Path) -> None:
    for entry in study:
        history.enter(tmp_path, entry)
    exported = history.export(tmp_path)
    with history_database.writing(tmp_path) as database:
        for entry in study:
            content = serialization.plain(entry)
            del content["night"]
            database.execute("UPDATE jobs SET document = ? WHERE job = ?", (serialization.encode(content), entry.job))
    assert [entry.night for entry in history.entries(tmp_path)] == [1, 2, 3]
    assert history.export(tmp_path) == exported


def test_archives_tell_the_night_of_a_job(tmp_path: Path) -> None:
    for count, night in ((2, [1, 2]), (1, [0])):
        made = studies.make(tmp_path / str(count), studies.asked("demo"), repeat=2, nights=count)
        studies.write(made, lambda *_: 100.0)
        folder = tmp_path / str(count) / "archive"
        for job in (tmp_path / str(count)).glob("tune*"):
            if (job / rundir.JOB).exists():
                archive.create(job, folder / f"{job.name}.tar.zst")
        history.take_in(folder)
        assert [entry.night for entry in history.entries(folder)] == night
        assert [
            history_entry.of(job_outcome.load_archive(path)).night for path in sorted(folder.glob("*.zst"))
        ] == night


def test_a_line_of_the_history_is_a_night(study: list[Entry]) -> None:
    (block,) = history_rows.blocks(study, [nights.accepted(study[0])], "samples_per_s")
    assert [(line.job, line.repeats, line.change) for line in block.lines] == [
        ("s-night1-1", "3", "+0.0 %"), ("s-night2-2", "2", "+4.5 %"), ("s-night3-3", "4", "-3.0 %"),
    ]  # fmt: skip
    assert block.lines[0].notes == ("baseline",)
    assert block.trend is not None
    assert block.trend.dates == 3


def test_monitoring_gets_a_night_at_a_time(study: list[Entry]) -> None:
    assert [measured.entry.job for measured in monitoring.medians(study, ())] == JOBS


def test_the_standing_has_the_nights_of_a_study(study: list[Entry], tmp_path: Path) -> None:
    (row,) = newest_jobs.of(tmp_path, study, study)
    assert [entry.job for entry in row.jobs] == list(row.members) == JOBS
    assert row.newest.job == JOBS[-1]


# Comparison -----------------------------------------------------------------------------------------------------------


def test_the_newest_night_is_judged_and_the_others_are_its_history(study: list[Entry]) -> None:
    past = _past()
    (verdict,) = _verdicts(*study, history=past, baseline=past[0])
    assert verdict.job == JOBS[-1]
    assert verdict.here is not None
    assert verdict.here.values == tuple(VALUES[-1])
    assert verdict.trend is not None
    assert [night.job for night in verdict.trend.nights] == [*(entry.job for entry in past), *JOBS]
    (archived,) = _verdicts(*study, history=[*past, *study], baseline=past[0])
    assert archived == verdict


def test_a_night_of_a_study_is_judged_by_what_was_before_it(study: list[Entry]) -> None:
    past = _past()
    (verdict,) = _verdicts(study[1], history=[*past, *study], baseline=past[0])
    assert verdict.trend is not None
    assert [night.job for night in verdict.trend.nights] == [*(entry.job for entry in past), *JOBS[:2]]


def test_a_night_is_compared_like_a_job_of_its_own(study: list[Entry]) -> None:
    """Three nights of one study, and three jobs with the same values, have the same numbers."""
    past = _past()
    singles = [structs.replace(job, study=job.job, night=0) for job in study]
    (verdict,) = _verdicts(*study, history=past, baseline=past[0])
    (single,) = _verdicts(singles[-1], history=[*past, *singles], baseline=past[0])
    assert (verdict.outcome, verdict.ratio, verdict.low, verdict.newest) == (
        single.outcome, single.ratio, single.low, single.newest,
    )  # fmt: skip


def test_a_drop_in_the_last_night_is_not_hidden_by_the_nights_before() -> None:
    past = [nights.entry(night, [100.0 * factor]) for night, factor in enumerate([1.005, 0.995, 1.0] * 4, -12)]
    study = [_job(1, 1, [100.0] * 3), _job(2, 2, [100.0] * 3), _job(3, 3, [70.0] * 3)]
    (verdict,) = _verdicts(*study, history=past, baseline=past[0])
    assert verdict.ratio == pytest.approx(0.7, abs=0.01)
    assert verdict.outcome == "regression"


def test_what_the_newest_night_lacks_is_judged_on_the_night_before() -> None:
    study = [_job(1, 1, [100.0]), _job(1, 2, [50.0], key=OTHER), _job(2, 3, [101.0])]
    verdicts = baseline_comparison.judge(study, [], []).verdicts
    assert [(verdict.job, verdict.key) for verdict in verdicts] == [("s-night2-3", nights.KEY), ("s-night1-1", OTHER)]


# Baselines ------------------------------------------------------------------------------------------------------------


def _accept(folder: Path, study: Sequence[Entry], **rest: Any) -> tuple[baselines.Accepted, ...]:
    *earlier, newest = history_entry.together(study)
    return baselines.accept(folder, newest, "it is good", earlier=earlier, **rest)


def test_the_newest_night_is_the_baseline(study: list[Entry], tmp_path: Path) -> None:
    (made,) = _accept(tmp_path, study)
    assert (made.group.job, made.group.values("samples_per_s")) == (JOBS[-1], tuple(VALUES[-1]))
    (verdict,) = baseline_comparison.judge([nights.entry(9, [98.0])], study, [made]).verdicts
    assert verdict.trend is not None
    assert [night.job for night in verdict.trend.nights] == [*JOBS, "nightly-009"], "no night is lost or counted twice"
    assert verdict.before + verdict.newest == 4
    assert baselines.named(baselines.baselines(baselines.read(tmp_path)), "s", tmp_path).accepted == made


def test_a_key_that_the_newest_night_lacks_gets_its_baseline_from_the_night_before(tmp_path: Path) -> None:
    study = [_job(1, 1, [100.0]), _job(1, 2, [50.0], key=OTHER), _job(2, 3, [101.0])]
    made = _accept(tmp_path, study)
    assert [(one.group.job, one.group.key) for one in made] == [("s-night2-3", nights.KEY), ("s-night1-1", OTHER)]
    assert baseline_candidates.left_out(history_entry.together(study)) == []


def test_a_failure_of_the_newest_night_is_an_objection(tmp_path: Path) -> None:
    study = [_job(1, 1, [100.0]), _job(2, 2, [None])]
    with pytest.raises(ConfigError, match="21-measure of s-night2-2 is not valid: the node died"):
        _accept(tmp_path, study)
    (made,) = _accept(tmp_path, study, force=True)
    assert made.group.job == "s-night1-1"


def test_a_baseline_of_all_nights_becomes_that_of_the_newest(study: list[Entry], tmp_path: Path) -> None:
    """Earlier versions accepted all nights of a study as one job."""
    runs = tuple(run for job in study for run in job.measurements)
    (all_nights,) = run_groups.of(structs.replace(study[-1], job="s", measurements=runs))
    old = structs.replace(nights.accepted(study[0]), id="s-123456", group=all_nights)
    path = tmp_path / rundir.BASELINES / "s-123456.json"
    path.parent.mkdir()
    path.write_bytes(serialization.encode(old))
    (carried,) = baselines.active(baselines.read(tmp_path))
    (newest,) = run_groups.of(study[-1])
    assert (carried.id, carried.group) == ("s-123456", newest)
    assert path.read_bytes() == serialization.encode(old)
    (verdict,) = baseline_comparison.judge([nights.entry(9, [98.0])], study, [carried]).verdicts
    assert verdict.trend is not None
    assert [night.job for night in verdict.trend.nights] == [*JOBS, "nightly-009"]


def test_other_baselines_of_studies_stay_as_they_are(study: list[Entry]) -> None:
    jobs = [structs.replace(job, job=f"s-{number}", night=0) for number, job in enumerate(study, 1)]
    runs = tuple(structs.replace(run, job=job.job) for job in jobs for run in job.measurements)
    (split,) = run_groups.of(structs.replace(study[-1], job="s", measurements=runs))
    assert run_groups.of_newest_night(split) == split
    (one_night,) = run_groups.of(study[0])
    assert run_groups.of_newest_night(one_night) == one_night


def test_retention_keeps_the_nights_of_a_baseline_together(study: list[Entry], tmp_path: Path) -> None:
    for entry in (nights.entry(0, [100.0]), *study):
        (tmp_path / f"{entry.job}.tar.zst").write_bytes(b"an archive")
        history.enter(tmp_path, entry)
    _accept(tmp_path, study)
    choice = retention.choose(tmp_path, Retention(0, 0))
    assert [entry.job for _, entry in choice.removed] == ["nightly-000"]
    assert choice.kept == {"active baseline": 3}


def test_commands_name_the_nights(study: list[Entry], tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    for entry in study:
        history.enter(folder, entry)
    accepted = run("dlio-hpc", "baseline", "accept", "s", "--archive", folder, "--message", "quiet nights")
    assert (accepted.code, accepted.out.startswith("accepted s-night3-3-")) == (0, True)
    later = _job(4, 4, [97.0] * 3)
    history.enter(folder, later)
    done = run("dlio-hpc", "compare", "s", "--archive", folder, "--json")
    (verdict,) = done.json["verdicts"]
    assert (verdict["job"], verdict["newest"] + verdict["before"]) == ("s-night4-4", 4)
    against = run("dlio-hpc", "compare", "s-night1-1", "--baseline", "s", "--archive", folder, "--json")
    assert against.json["verdicts"][0]["reference"] == "s-night4-4"
    listed = run("dlio-hpc", "history", "--archive", folder).out
    assert all(name in listed for name in (*JOBS, "s-night4-4"))
    assert run("dlio-hpc", "baseline", "retire", "s", "--archive", folder, "--message", "old").code == 0


def test_trends_are_those_of_nights(study: list[Entry]) -> None:
    (group,) = run_groups.of(study[0])
    series = trend.nights(history_entry.together(study), group, "samples_per_s")
    assert [len(night.values) for night in series] == [3, 2, 4]


def test_planned_nights_that_end_on_the_same_date_are_not_merged() -> None:
    study = [_job(1, 1, VALUES[0], day=1), _job(2, 2, VALUES[1], day=1)]
    assert [(entry.job, len(entry.measurements)) for entry in history_entry.together(study)] == [
        (JOBS[0], 3),
        (JOBS[1], 2),
    ]
