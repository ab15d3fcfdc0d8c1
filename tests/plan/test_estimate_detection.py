"""dlio-hpc estimate --detect: the noise of a history, and the plan that is printed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from dlio_hpc import __version__
from dlio_hpc.files import filesystem
from dlio_hpc.plan import planned
from dlio_hpc.plan.options import Options
from dlio_hpc.plan.planned import Planned
from dlio_hpc.verdict import comparable_versions, history, measured_noise, settings_digest
from dlio_hpc.verdict.history_entry import Entry, Key
from dlio_hpc.verdict.measured_noise import KnownNoise
from tests.conftest import Run
from tests.support import nights

# The folder of the datasets that tests.support.nights.measurement() names.
_DATA = Path("/scratch/data")
_DEMO = ("estimate", "demo", "-s", "local", "-d", _DATA)


def _plan(workload: str = "demo") -> Planned:
    return planned.draft(Options(workload=workload, site="local", data=_DATA))


def _key(workload: str = "demo") -> Key:
    (job,) = _plan(workload).jobs
    run = job.runs[-1]
    version = comparable_versions.since(__version__)
    digest = settings_digest.of(run.workload)
    return Key("local", "ext4 /scratch", "none", job.nodes, job.ranks_per_node, workload, digest, version)


def _of_key(made: Sequence[Entry], key: Key) -> list[Entry]:
    """Return the jobs as if they had measured this key."""
    return [
        nights.entry(
            night, [run.metrics["samples_per_s"] for run in entry.measurements], key, job=f"{key.workload}-{night}"
        )
        for night, entry in enumerate(made)
    ]


def _noise(entries: Sequence[Entry]) -> KnownNoise:
    (job,) = _plan().jobs
    site = measured_noise.site_history(sorted(entries, key=lambda entry: entry.ended), "local")
    (known,) = measured_noise.of_run(site, job, job.runs[-1], ("samples_per_s",))
    return known


def test_the_noise_is_that_of_the_measurement() -> None:
    known = _noise(_of_key(nights.entries([100.0] * 60, 0.02, 0.04, seed=3), _key()))
    assert known.noise.nights == pytest.approx(0.04, rel=0.25)
    assert known.noise.runs == pytest.approx(0.02, rel=0.2)
    assert (known.nights_from, known.runs_from, known.shown_by) == ("measurement", "measurement", 60)
    assert known.history == 60


def test_the_nights_since_a_change_are_the_reference() -> None:
    levels = [100.0] * 30 + [70.0] * 12
    assert _noise(_of_key(nights.entries(levels, 0.01, 0.02), _key())).history == 12


def test_few_nights_are_completed_by_the_site() -> None:
    few = _of_key(nights.entries([100.0] * 3, 0.02, 0.04), _key())
    others = _of_key(nights.entries([100.0] * 40, 0.01, 0.08, seed=2), _key("cosmoflow"))
    known = _noise([*few, *others])
    assert (known.nights_from, known.runs_from, known.shown_by, known.history) == ("site", "measurement", 1, 3)
    assert known.noise.nights == pytest.approx(0.08, rel=0.25)
    without = _noise(others)
    assert (without.nights_from, without.runs_from, without.history) == ("site", "site", 0)
    assert without.noise.runs == pytest.approx(0.01, rel=0.2)


def test_without_a_history_the_noise_is_assumed() -> None:
    known = _noise([])
    assert (known.nights_from, known.runs_from, known.shown_by, known.history) == ("assumed", "assumed", 0, 0)
    assert (known.noise.nights, known.noise.runs) == (0.05, 0.02)


@pytest.mark.parametrize(
    "change",
    [{"settings": "0" * 12}, {"nodes": 2}, {"ranks_per_node": 3}, {"workload": "other"}, {"version": "0.0.1"}],
)
def test_another_measurement_is_not_that_of_the_plan(change: dict[str, Any]) -> None:
    key = structs.replace(_key(), **change)
    assert _noise(_of_key(nights.entries([100.0] * 20, 0.02, 0.04), key)).nights_from == "site"


@pytest.mark.parametrize(
    ("data", "file_system", "nights_from"),
    [
        ("/scratch/data", "nfs /home", "measurement"),
        ("/scratch/other", "ext4 /scratch", "measurement"),
        ("/scratch/other", "nfs /home", "site"),
    ],
)
def test_a_measurement_in_another_folder_counts_on_the_same_file_system(
    monkeypatch: pytest.MonkeyPatch, data: str, file_system: str, nights_from: str
) -> None:
    monkeypatch.setattr(filesystem, "of", lambda _: filesystem.FileSystem("ext4", "/scratch"))
    key = structs.replace(_key(), file_system=file_system)
    made = _of_key(nights.entries([100.0] * 20, 0.02, 0.04), key)
    moved = [
        structs.replace(entry, measurements=tuple(structs.replace(run, data=data) for run in entry.measurements))
        for entry in made
    ]
    assert _noise(moved).nights_from == nights_from


def test_cached_runs_and_other_sites_show_nothing() -> None:
    made = nights.entries([100.0] * 20, 0.02, 0.04)
    values = [[run.metrics["samples_per_s"] for run in entry.measurements] for entry in made]
    cached = [nights.entry(night, runs, _key(), "cached") for night, runs in enumerate(values)]
    assert _noise([*cached, *made]).nights_from == "assumed"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    for entry in _of_key(nights.entries([100.0] * 31, 0.02, 0.04, seed=3), _key()):
        history.enter(folder, entry)
    return folder


def test_the_first_sentence_is_the_answer(run: Run, archive: Path) -> None:
    done = run("dlio-hpc", *_DEMO, "--archive", archive, "--detect", "10%", "--repeat", 3, "--json")
    assert done.code == 0, done.err
    made = done.json["detection"]
    (row,) = (row for row in made["campaigns"] if row["is_answer"])
    assert (row["repeats"], row["nights_before"]) == (3, 0)
    shown = " ".join(run("dlio-hpc", *_DEMO, "--archive", archive, "--detect", "10%", "--repeat", 3).out.split())
    assert shown.startswith(made["answer"])
    assert made["answer"].startswith(
        f"A drop of 10 % is found {row['nights']} nights after it happens with 3 repeats a job (80 % power;"
    )
    assert "(31 nights of this measurement)" in shown
    assert "31 nights of the history at the present level" in shown
    assert [entry["nights"] for entry in made["smallest"]] == [1, 3, 10]


def test_the_table_marks_the_cheapest_and_the_fastest(run: Run, archive: Path) -> None:
    rows = run("dlio-hpc", *_DEMO, "--archive", archive, "--detect", "10%", "--json").json["detection"]["campaigns"]
    assert [row["repeats"] for row in rows] == [1, 3, 5, 10]
    cheapest, fastest = (next(row for row in rows if row[mark]) for mark in ("is_cheapest", "is_fastest"))
    assert cheapest["node_hours"] == min(row["node_hours"] for row in rows)
    assert fastest["nights"] == min(row["nights"] for row in rows)
    assert cheapest["is_answer"], "no number of repeats was chosen"
    assert all(row["node_hours"] >= row["nights"] * row["node_hours_a_night"] for row in rows), (
        "the first night generates"
    )
    assert [row["repeats"] for row in run(
        "dlio-hpc", *_DEMO, "--archive", archive, "--detect", "10%", "--repeat", 4, "--json"
    ).json["detection"]["campaigns"]] == [1, 3, 4, 5, 10]  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
def test_the_plan_fits_a_terminal(run: Run, columns: int) -> None:
    out = run("dlio-hpc", *_DEMO, "--detect", "10%", "--error", "1%", COLUMNS=str(columns)).out
    assert max(map(len, out.splitlines())) <= 100
    assert "nights before" in out
    assert "nights are assumed to differ by 5 % (no history shows it); runs of a job are assumed to" in " ".join(
        out.split()
    )
    assert "a regression is reported only if compare says that it happens by chance once in" in " ".join(out.split())


def test_a_drop_that_is_too_small_is_said_first(run: Run, archive: Path) -> None:
    out = run("dlio-hpc", *_DEMO, "--archive", archive, "--detect", "2%").out
    first = " ".join(out.split())
    assert first.startswith(
        "A drop of 2 % is not found within 60 nights (80 % power): the smallest drop that is found is"
    )
    assert "judge the jobs with dlio-hpc compare --tolerance 1%; with the usual 2 %, such drops may pass" in first


def test_a_suite_with_criteria_says_how_many_nights_they_need(run: Run) -> None:
    options = ("estimate", "nightly", "-s", "local", "-d", "data", "--detect", "10%")
    made = run("dlio-hpc", *options, "--json").json["detection"]
    assert made["criterion_nights"] >= 2
    out = " ".join(run("dlio-hpc", *options).out.split())
    assert f"{made['criterion_nights']} nights make the 96 % interval of a value narrower than +/- 10 %" in out
    assert "the noisiest of 3 measurements" in out
    (row,) = (row for row in made["campaigns"] if row["is_answer"])
    assert row["repeats"] == 5, "the number in the suite"


def test_a_job_that_is_too_long_for_its_time_limit_is_marked(run: Run) -> None:
    options = ("estimate", "demo", "-s", "slurm", "-d", "data", "-S", "compute.time=100s", "-t1h", "--detect", "20%")
    rows = [line for line in run("dlio-hpc", *options).out.splitlines() if "needs --time" in line]
    assert rows


def test_without_detect_nothing_changes(run: Run) -> None:
    done = run("dlio-hpc", *_DEMO, DLIO_HPC_TOLERANCE="5%")
    assert done.code == 0
    assert "at most" in done.out
    assert json.loads(run("dlio-hpc", *_DEMO, "--json").out)["detection"] is None


REFUSED: list[tuple[tuple[object, ...], str]] = [
    (("--detect", "0%"), "expected more than 0 and less than 100 %"),
    (("--detect", "100%"), "expected more than 0 and less than 100 %"),
    (("--detect", "5"), "found '5'; use a share such as 90% or 0.9"),
    (("--detect", "95%"), "--detect 95%: expected less than 90%"),
    (("--power", "90%"), "--power has an effect only with --detect; add the size of a drop: --detect 5%"),
    (("--error", "5%"), "--error has an effect only with --detect"),
    (("--tolerance", "5%"), "--tolerance has an effect only with --detect"),
    (("--detect", "5%", "--power", "99.99%"), "--power 99.99%: expected at most 99%"),
    (("--detect", "5%", "--power", "4%", "--error", "5%"), "--power 4%: expected more than --error, which is 5%"),
    (("--detect", "5%", "--error", "0.1%"), "--error 0.1%: expected at least 0.5%"),
    (("--detect", "5%", "--tolerance", "5%"), "--tolerance 5%: expected less than --detect, which is 5%"),
    (("--detect", "5%", "--nights", 3), "the number of nights is the result; leave --nights out"),
    (("--detect", "5%", "--generate", "only"), "with --generate only, nothing is measured"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED)
def test_what_makes_no_sense_is_refused(run: Run, options: tuple[object, ...], message: str) -> None:
    done = run("dlio-hpc", "estimate", "demo", "-s", "local", *options)
    assert done.code == 2
    assert message in " ".join(done.err.split())


def test_two_file_systems_are_compared_in_one_job(run: Run) -> None:
    done = run("dlio-hpc", "estimate", "demo", "-s", "local", "--ab", "a", "b", "--detect", "5%")
    assert done.code == 2
    assert "--ab compares file systems in one job, --detect compares nights" in " ".join(done.err.split())
