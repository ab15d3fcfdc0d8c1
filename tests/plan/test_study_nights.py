"""A study is measured on several nights (dlio-submit --nights): its plan, its submission and its resumption."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.batch import submission
from dlio_hpc.batch.schedulers import common
from dlio_hpc.batch.schedulers.scheduler import After
from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS
from dlio_hpc.config import scheduler_facts, site, workload
from dlio_hpc.plan import night_chain, packing
from dlio_hpc.plan.night_chain import NightJob
from dlio_hpc.plan.plan import Plan
from dlio_hpc.plan.planned import Planned
from dlio_hpc.plan.study import Study
from dlio_hpc.verdict import history_entry
from dlio_hpc.verdict.history_entry import Entry
from tests.conftest import Run
from tests.support import nights as histories
from tests.support import planning, studies
from tests.support.standins.login import record, until

DAY = 86400


def _parts(folder: Path, repeat: int = 2, count: int = 3, **request: Any) -> Study:
    """Return a study of three parts with three points, one and two."""
    parts = (
        structs.replace(studies.asked("demo", "reader.read_threads=1,2,4"), name="a"),
        structs.replace(studies.asked("demo"), name="b"),
        structs.replace(studies.asked("demo", "reader.batch_size=2,8"), name="c"),
    )
    return studies.make(folder, *parts, repeat=repeat, nights=count, **request)


def _seconds(times: dict[int, str], since: float) -> dict[int, float | None]:
    return {night: units.timestamp(text) - since if text else None for night, text in times.items()}


def test_repeats_are_numbered_through_the_nights(tmp_path: Path) -> None:
    made = _parts(tmp_path)
    jobs = packing.plans(made)
    assert (made.repeat, made.nights) == (6, 3)
    assert [job.job for job in jobs] == [f"tune-night{night}-{night}" for night in (1, 2, 3)]
    assert [(job.night, job.nights) for job in jobs] == [(1, 3), (2, 3), (3, 3)]
    for job in jobs:
        units_of_night = sorted((run.point, run.repeat) for run in job.runs if run.point is not None)
        repeats = (2 * job.night - 2, 2 * job.night - 1)
        assert units_of_night == [(point, repeat) for point in range(6) for repeat in repeats]
    begins = {job.night: job.begins for job in jobs}
    assert _seconds(begins, units.timestamp(made.created)) == {1: None, 2: DAY, 3: 2 * DAY}


def test_a_night_may_have_several_jobs(tmp_path: Path) -> None:
    asked = studies.asked("demo", "reader.read_threads=1,2,4", nodes=(1, 2))
    jobs = packing.plans(studies.make(tmp_path, asked, repeat=1, nights=2, every=units.Walltime(3600)))
    assert [job.job for job in jobs] == [f"tune-night{night}-{number}" for number, night in enumerate((1, 1, 2, 2), 1)]
    assert [job.begins == "" for job in jobs] == [True, True, False, False]
    assert jobs[2].begins == jobs[3].begins


def test_a_single_point_on_several_nights_is_a_study(tmp_path: Path) -> None:
    assert studies.make(tmp_path, repeat=1).is_plain
    made = studies.make(tmp_path, repeat=1, nights=2)
    assert not made.is_plain
    assert [job.runs[-1].repeat for job in packing.plans(made)] == [0, 1]


def test_a_study_of_an_earlier_version_has_one_night(tmp_path: Path) -> None:
    content = serialization.plain(studies.make(tmp_path, repeat=3))
    del content["nights"], content["every"]
    earlier = serialization.convert(content, Study, "study.json")
    assert (earlier.nights, earlier.night(2)) == (1, 1)
    assert [job.job for job in packing.plans(earlier)] == ["tune"]


def test_the_jobs_of_a_study_are_known_by_their_names(tmp_path: Path) -> None:
    made = _parts(tmp_path)
    for night, number in ((1, 1), (3, 12)):
        assert night_chain.job_number("tune", night_chain.job_name(made, night, number)) == number
        assert night_chain.job_night("tune", night_chain.job_name(made, night, number)) == night
    assert night_chain.job_number("tune", "tune-7") == 7
    assert [night_chain.job_night("tune", name) for name in ("tune-7", "tune", "tuned-night2-7", "tune-generate")] == [
        0
    ] * 4
    assert [night_chain.job_number("tune", name) for name in ("tune-night2", "tune-nightly-7", "tune", "tuned-7")] == [
        None
    ] * 4


# Jobs of a study of five nights that began at 0, the missing nights, the current hour, and the hours at which the
# nights begin; None: at once.
_KEPT = [NightJob(night, (night - 1) * DAY, counts=True) for night in (1, 2, 4, 5)]
_LOST = NightJob(3, 2 * DAY, counts=False)
RESUMED = [
    ("lost while later nights wait", [*_KEPT, _LOST], [3], 71, {3: 120}),
    ("lost an hour ago", [*_KEPT, _LOST], [3], 49, {3: None}),
    ("cancelled before it began", [*_KEPT, _LOST], [3], 40, {3: 48}),
    ("all is over", [*_KEPT, _LOST], [3], 130, {3: None}),
    ("the last night has just been", [*_KEPT, _LOST], [3], 100, {3: 120}),
    ("never submitted", _KEPT[:2], [3, 4, 5], 25, {3: 48, 4: 72, 5: 96}),
    ("all failed, long ago", [NightJob(1, 0, counts=False)], [1, 2], 500, {1: None, 2: 524}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "wanted", "hour", "begins"), [row[1:] for row in RESUMED], ids=[row[0] for row in RESUMED]
)
def test_missing_nights_begin(
    tmp_path: Path, jobs: list[NightJob], wanted: list[int], hour: int, begins: dict[int, int | None]
) -> None:
    times = night_chain.resumed(_parts(tmp_path, count=5), wanted, jobs, float(hour * 3600))
    hours = {night: None if second is None else second / 3600 for night, second in _seconds(times, 0.0).items()}
    assert hours == begins


def _later(name: str, folder: Path, *job_options: str, begins: str = "2099-11-28T01:00:00Z") -> Plan:
    request = planning.Request(runs=folder, data=folder, nodes=128, job_options=job_options)
    made = planning.make(workload.load("null"), site.load(name), request)
    return structs.replace(made, night=2, nights=3, begins=begins)


@pytest.fixture
def berlin(time_zone: Callable[[str], None]) -> None:
    time_zone("Europe/Berlin")


COMMANDS = [
    ("slurm", " sbatch --parsable --begin=2099-11-28T02:00:00 --dependency=afterany:7 "),
    ("pbs", " qsub -a 209911280200.00 -W depend=afterany:7 job.sh"),
    ("flux", " flux batch --dependency=begin-time:4099510800 --dependency=afterany:7 job.sh"),
    ("local", "local_successor.py --begin=4099510800 7 -- timeout "),
]


def test_each_batch_system_with_begin_times_is_among_the_commands() -> None:
    lacking = {name for name, facts in scheduler_facts.SCHEDULERS.items() if facts.has_begin_time} - dict(
        COMMANDS
    ).keys()
    assert not lacking, f"add to COMMANDS: {sorted(lacking)}"


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(("name", "text"), COMMANDS)
def test_the_submit_command_sets_the_begin_time(tmp_path: Path, name: str, text: str) -> None:
    scheduler = SCHEDULERS[name]
    assert text in scheduler.command(_later(name, tmp_path), After((), ("7",)))
    over = scheduler.command(_later(name, tmp_path, begins="2020-01-01T00:00:00Z"), After())
    assert "2020" not in over, "a time that has passed is left out"
    assert "begin" not in scheduler.command(_later(name, tmp_path, begins=""), After())


@pytest.mark.usefixtures("berlin")
def test_no_local_time_comes_twice() -> None:
    """On 2027-10-31 the clocks go back from 03:00 to 02:00, at 01:00 UTC; on 2027-03-28 they go forward from 02:00."""
    shown = {}
    for utc in (
        "10-30T23:59:00",
        "10-31T00:00:00",
        "10-31T00:30:00",
        "10-31T01:30:00",
        "10-31T02:00:00",
        "03-28T01:30:00",
    ):
        moment = units.timestamp(f"2027-{utc}Z")
        local = common.local_time(moment)
        assert local.replace(fold=0).timestamp() == local.replace(fold=1).timestamp() >= moment
        shown[utc] = f"{local:%H:%M}"
    assert list(shown.values()) == ["01:59", "03:00", "03:00", "03:00", "03:00", "03:30"]


OWN = [
    ("slurm", "--begin=now+1hour"), ("slurm", "-b 16:00"), ("slurm", "--exclusive --beg=16:00"), ("pbs", "-a 1600"),
    ("pbs", "-W Execution_Time=1795651250"), ("flux", "--begin-time=+1h"), ("flux", "--dependency=begin-time:9"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "option"), OWN)
def test_a_begin_time_of_the_user_is_refused(tmp_path: Path, name: str, option: str) -> None:
    with pytest.raises(ConfigError, match="sets a begin time; it cannot be used with --nights"):
        SCHEDULERS[name].command(_later(name, tmp_path, option), After())
    SCHEDULERS[name].command(_later(name, tmp_path, option, begins=""), After())


@pytest.mark.parametrize("option", ["--dependency=afterany:f1", "--begin"])
def test_other_options_are_no_begin_times(tmp_path: Path, option: str) -> None:
    SCHEDULERS["flux" if "any" in option else "pbs"].command(
        _later("flux" if "any" in option else "pbs", tmp_path, option), After()
    )


def test_nothing_is_written_with_a_begin_time_of_the_user(run: Run, tmp_path: Path) -> None:
    options = ("-s", "slurm", "-d", "data", "--nights", 2, "-J", "--begin=16:00")
    dry = run("dlio-submit", "demo", *options, "--dry-run")
    assert (dry.code, "a job option (--begin) sets a begin time" in dry.err) == (2, True)
    assert not (tmp_path / "dlio-runs").exists()


REFUSED = [
    (("--nights", 2, "--generate", "only"), "--nights: --generate only measures nothing"),
    (("--every", "24h"), "--every sets the time between nights: give --nights 2 or more"),
    (("--nights", 2, "--every", "24"), "found '24'; give the unit, such as 24h"),
    (("--nights", 0), "found '0'; use a whole number of at least 1"),
    (("--nights", 300), "the study needs 300 jobs, more than 200; increase --time, or vary fewer values, or measure"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_cannot_be_is_refused(run: Run, options: tuple[object, ...], message: str) -> None:
    done = run("dlio-submit", "demo", "-s", "local", "-d", "data", "--dry-run", *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_cobalt_has_no_begin_times(run: Run) -> None:
    options = ("-s", "theta", "-d", "data", "-N", 128, "-A", "x", "--nights", 2)
    done = run("dlio-submit", "demo", *options, "--dry-run")
    assert done.code == 2
    assert "submit the study once a night from cron" in done.err
    assert "dlio-submit would refuse: --nights: Cobalt" in run("dlio-hpc", "estimate", "demo", *options).err


def test_the_first_night_waits_for_no_other_job(tmp_path: Path) -> None:
    made = _parts(tmp_path)
    with pytest.raises(ConfigError, match="--after: it is not known when the first night could begin"):
        submission.start(Planned(made, packing.plans(made)), [tmp_path], print, print)


def test_the_plan_shows_the_nights_and_their_cost(run: Run) -> None:
    options = ("demo", "-s", "slurm", "-d", "data", "--repeat", 2)
    dry = run("dlio-submit", *options, "--nights", 3, "--every", "1d", "--dry-run")
    assert "1 point, 6 measurements in 3 jobs" in dry.err
    assert "night 1 of 3: 1 job\n" in dry.err
    assert len(re.findall(r"night [23] of 3, begins \d{4}-\d\d-\d\d \d\d:\d\d \S+: 1 job\n", dry.err)) == 2
    once, thrice = (run("dlio-hpc", "estimate", *options, *more, "--json").json for more in ((), ("--nights", 3)))
    assert thrice["total"]["limit_node_hours"] == 3 * once["total"]["limit_node_hours"]
    assert thrice["total"]["bytes_read"] == 3 * once["total"]["bytes_read"]
    assert thrice["total"]["space"] == once["total"]["space"], "datasets are generated once"
    assert "1 point x 6 in 3 nights on slurm" in run("dlio-hpc", "estimate", *options, "--nights", 3).out


@pytest.mark.job
def test_nights_on_the_local_site_with_one_that_is_lost(run: Run, small: Path) -> None:
    usual = (small, "-s", "local", "-d", "data", "--ppn", 1, "--repeat", 2, "--nights", 3)
    done = run("dlio-submit", *usual, "--every", "1h", "--json")
    assert done.code == 0, done.err
    first, second, third = (Path(job["directory"]) for job in done.json["jobs"])
    until(lambda: "completed" in run("dlio-hpc", "status", first).out)
    waiting = run("dlio-hpc", "status", done.json["study"]).out
    assert len(re.findall(r"^   \S+ +queued  ", waiting, re.MULTILINE)) == 2
    assert len(re.findall(r"night [23] of 3, begins ", waiting)) == 2
    (state, *_) = list(run("dlio-hpc", "status", second, "--json").json["jobs"])
    assert (state["night"], state["nights"], state["begins"]) == (2, 3, record(second)["begins"])
    assert run("dlio-hpc", "cancel", second).code == 0
    until(lambda: "cancelled" in run("dlio-hpc", "status", second).out)
    again = run("dlio-submit", "--resume", done.json["study"], "--json")
    assert again.code == 0, again.err
    (new,) = (Path(job["directory"]) for job in again.json["jobs"] if job["state"] not in ("completed", "cancelled")
              and Path(job["directory"]) != third)  # fmt: skip
    assert new.name.endswith("-night2-4")
    assert record(new)["begins"] == record(second)["begins"], "the night has not begun, and keeps its time"
    assert sorted(
        run_["repeat"] for run_ in json.loads((new / "plan.json").read_bytes())["runs"] if run_["point"] == 0
    ) == [2, 3]
    assert run("dlio-hpc", "cancel", new, third).code == 0


@pytest.mark.job
def test_a_study_of_two_nights_is_waited_for_and_archived_as_one(run: Run, small: Path) -> None:
    done = run(
        "dlio-submit",
        small,
        "-s",
        "local",
        "-d",
        "data",
        "--ppn",
        1,
        "--nights",
        2,
        "--every",
        "4s",
        "--wait",
        "--json",
    )
    assert done.code == 0, done.err
    study_name = done.json["study"]
    assert done.json["missing"] == []
    (point,) = done.json["points"]
    assert [one["repeat"] for one in point["measurements"]] == [0, 1]
    jobs = [f"{study_name}-night1-1", f"{study_name}-night2-2"]
    assert [one["job"] for one in point["measurements"]] == jobs
    first, second = (Path("dlio-runs", job["job"]) for job in done.json["jobs"])
    assert (first.name, second.name) == tuple(jobs)
    entries = run("dlio-hpc", "history", "--json").json["jobs"]
    assert {entry["job"] for entry in entries} == set(jobs)
    second_result, generated = done.json["jobs"][1]["runs"][-1]["result"], done.json["jobs"][1]["runs"][0]["result"]
    begins = record(Path(done.json["jobs"][1]["directory"]))["begins"]
    assert second_result["started"] >= begins.replace("Z", ".000Z")
    assert generated["generated"]["reused"], "datasets are generated in the first night"


def test_a_measurement_keeps_its_job_when_jobs_are_merged() -> None:
    jobs = [
        histories.entry(night, [100.0], job=f"s-{night}", study="s",
                        measurements=(histories.measurement(night, 100.0, job=f"s-{night}"),))
        for night in (1, 2)
    ]  # fmt: skip
    (merged,) = history_entry.together(jobs)
    assert [run.job for run in merged.measurements] == ["s-1", "s-2"]
    assert merged.job == "s"


def test_an_entry_of_an_earlier_version_has_no_job_in_its_measurements() -> None:
    content = serialization.plain(histories.entry(1, [100.0]))
    for run in content["measurements"]:
        del run["job"]
    earlier = serialization.convert(content, Entry, "entry")
    assert [run.job for run in earlier.measurements] == [""]
    assert earlier.measurements[0].key.digest == histories.KEY.digest
