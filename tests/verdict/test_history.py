"""The history loses nothing to many writers, a killed writer, or old and damaged files; archives alone rebuild it."""

import csv
import io
import json
import multiprocessing
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base import serialization, units
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.files import archive, rundir
from dlio_hpc.records import job_outcome
from dlio_hpc.verdict import baseline_comparison, baselines, history, history_database, history_entry, run_groups, trend
from dlio_hpc.verdict.history import Where
from dlio_hpc.verdict.history_entry import Entry
from tests.conftest import Run
from tests.support import nights, studies


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Archives of two jobs, two points each, made as collect makes them."""
    runs = tmp_path / "runs"
    made = studies.make(runs, studies.asked("demo", "reader.batch_size=4,8", ranks_per_node=(1, 2)), repeat=2)
    studies.write(made, lambda point, repeat: 100.0 + 10 * point + repeat)
    for job in sorted(runs.glob("tune-*")):
        archive.create(job, runs / "archive" / f"{job.name}.tar.zst")
    return runs / "archive"


def test_what_was_entered_comes_back_and_entering_again_changes_nothing(tmp_path: Path) -> None:
    made = nights.entries([100.0, 101.0, 99.0], 0.01)
    for entry in reversed(made):
        history.enter(tmp_path, entry)
    before = history.export(tmp_path)
    history.enter(tmp_path, made[1])
    assert history.entries(tmp_path) == tuple(made)
    assert history.export(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == [rundir.HISTORY, rundir.HISTORY_LOCK]


def test_archives_are_taken_in_once_and_say_the_same_as_directories(folder: Path) -> None:
    taken = history.take_in(folder)
    assert taken == (("tune-1", "tune-2"), ())
    assert history.take_in(folder) == ((), ())
    for entry in history.entries(folder):
        assert entry == history_entry.of(job_outcome.load(folder.parent / entry.job))
        assert [
            measurement.metrics["samples_per_s"] for measurement in entry.measurements if measurement.kind == "measure"
        ]


def test_archives_and_decisions_alone_make_the_same_history_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    history.take_in(folder)
    first, second = history.entries(folder)
    (one, *_) = baselines.accept(folder, first, "it is good")
    baselines.accept(folder, second, "it is better")
    baselines.retire(folder, one.id, "it was not")
    history.take_in(folder)
    exported = history.export(folder)
    assert exported.count(b"\n") == 2 + 4 + 1
    (folder / rundir.HISTORY).unlink()
    assert history.rebuild(folder).jobs == ("tune-1", "tune-2")
    assert history.export(folder) == exported
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for path in folder.glob("*.tar.zst"):
        shutil.copy(path, elsewhere)
    history.take_in(elsewhere)
    assert history.export(elsewhere) == b"".join(exported.splitlines(keepends=True)[:2])
    shutil.copytree(folder / rundir.BASELINES, elsewhere / rundir.BASELINES)
    history.take_in(elsewhere)
    assert history.export(elsewhere) == exported


def test_an_archive_that_was_made_anew_is_read_anew(folder: Path) -> None:
    history.take_in(folder)
    path = folder / "tune-1.tar.zst"
    result = next((folder.parent / "tune-1" / rundir.RUNS).glob("*measure*/result.json"))
    result.write_bytes(result.read_bytes().replace(b'"samples_per_s": 1', b'"samples_per_s": 2', 1))
    path.unlink()
    archive.create(folder.parent / "tune-1", path)
    assert history.take_in(folder).jobs == ("tune-1",)
    assert history.entries(folder)[0] == history_entry.of(job_outcome.load(path))


def test_what_is_no_jobs_archive_is_told_and_stops_nothing(folder: Path) -> None:
    (folder / "broken.tar.zst").write_bytes(b"no archive")
    (folder / rundir.BASELINES).mkdir()
    (folder / rundir.BASELINES / "x.json").write_text("{")
    taken = history.take_in(folder)
    assert taken.jobs == ("tune-1", "tune-2")
    assert [("broken.tar.zst" in note or "x.json" in note) for note in taken.notes] == [True, True]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 5)), max_size=6))
def test_filters_find_what_a_person_would(made: list[tuple[str, int, int]]) -> None:
    import tempfile

    from msgspec import structs

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (site, count, night) in enumerate(made):
            key = structs.replace(nights.KEY, site=site, nodes=count)
            history.enter(folder, nights.entry(night, [100.0], key, job=f"job-{number}"))
        entries = history.entries(folder, Where(site="a", nodes=2, since="2026-09-02", until="2026-09-04"))
        wanted = [n for n, (site, count, night) in enumerate(made) if (site, count) == ("a", 2) and 1 <= night <= 3]
        assert sorted(entry.job for entry in entries) == [f"job-{number}" for number in wanted]
        assert len(history.entries(folder, Where(job="job-*"))) == len(made)


def _write(folder: Path, writer: int, count: int) -> None:
    for number in range(count):
        history.enter(folder, nights.entry(number, [100.0 + number], job=f"w{writer}-{number:03}"))


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(tmp_path, writer, 25)) for writer in range(8)]
    for process in writers:
        process.start()
    for process in writers:
        process.join()
    assert [process.exitcode for process in writers] == [0] * 8
    assert {entry.job for entry in history.entries(tmp_path)} == {f"w{w}-{n:03}" for w in range(8) for n in range(25)}


def test_a_writer_that_is_killed_in_the_middle_leaves_a_good_history(tmp_path: Path) -> None:
    history.enter(tmp_path, nights.entry(0, [100.0]))
    program = f"""
import os, signal, sys
from pathlib import Path
from dlio_hpc.verdict import history, history_database
from tests.support import nights
with history_database.writing(Path({str(tmp_path)!r})) as db:
    db.execute("DELETE FROM jobs")
    db.execute("DELETE FROM runs")
    print("here", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=Path.cwd())
    assert (done.stdout, done.returncode) == ("here\n", -signal.SIGKILL)
    history.enter(tmp_path, nights.entry(1, [100.0]))
    assert [entry.job for entry in history.entries(tmp_path)] == ["nightly-000", "nightly-001"]


def test_an_older_schema_is_brought_up_with_its_data_kept(tmp_path: Path) -> None:
    made = nights.entries([100.0, 101.0], 0.01)
    path = tmp_path / rundir.HISTORY
    with sqlite3.connect(path) as old:
        history_database._STEPS[0](old)
        for entry in made:
            content = history_database.canonical(entry)
            old.execute(
                "INSERT INTO jobs VALUES (?, '', 'theta', 'completed', '', ?, 0, ?)", (entry.job, entry.ended, content)
            )
        old.execute("PRAGMA user_version = 1")
    old.close()
    assert history.entries(tmp_path, Where(nodes=2)) == tuple(made)
    with sqlite3.connect(path) as new:
        assert new.execute("PRAGMA user_version").fetchone() == (history_database.SCHEMA,)
        assert new.execute("SELECT count(*) FROM runs").fetchone() == (6,)
    new.close()


def _saving(outputs: str, night: int = 0, **rest: Any) -> Entry:
    """Return a job whose workload only writes checkpoints. outputs: the file system of the checkpoints."""
    key = structs.replace(nights.KEY, workload="llama3_8b", file_system="none", outputs=outputs)
    made = nights.entry(night, [100.0, 101.0, 102.0], key, **rest)
    runs = [
        structs.replace(run, metrics={"checkpoint_write_MBps": run.metrics["samples_per_s"]})
        for run in made.measurements
    ]
    work = {"name": "llama3_8b", "dataset": {"format": "null"}, "checkpoint": {"writes": 10}}
    return structs.replace(made, measurements=tuple(runs), workloads={key.settings: work})


def test_older_jobs_have_checkpoints_on_an_unknown_file_system(tmp_path: Path) -> None:
    """Schema 3 did not record the file system of outputs. Keys of jobs without outputs keep their digest."""
    old, plain = _saving(""), nights.entry(1, [100.0])
    assert b"outputs" not in serialization.encode(plain.measurements[0].key)
    path = tmp_path / rundir.HISTORY
    with sqlite3.connect(path) as database:
        for step in history_database._STEPS[:3]:
            step(database)
        for entry in (old, plain):
            content = history_database.canonical(entry)
            database.execute(
                "INSERT INTO jobs VALUES (?, '', 'theta', 'completed', '', ?, 0, ?)", (entry.job, entry.ended, content)
            )
            history_database.enter_runs(database, entry)
        database.execute("PRAGMA user_version = 3")
    database.close()
    entries = history.entries(tmp_path)
    assert entries == (_saving("unknown"), plain)
    with sqlite3.connect(path) as new:
        keys = {key for (key,) in new.execute("SELECT key FROM runs")}
    new.close()
    assert keys == {entry.measurements[0].key.digest for entry in entries}


@pytest.mark.parametrize(
    ("there", "outcome"),
    [("lustre /scratch", "inconclusive"), ("nfs /home", "not_comparable"), ("unknown", "not_comparable")],
)
def test_checkpoints_on_another_file_system_are_not_compared(tmp_path: Path, there: str, outcome: str) -> None:
    (tmp_path / "archive").mkdir()
    accepted = baselines.accept(tmp_path / "archive", _saving(there), "as delivered")
    judged = baseline_comparison.judge([_saving("lustre /scratch", 1)], [], accepted)
    (verdict,) = judged.verdicts
    assert (verdict.outcome, verdict.metric) == (outcome, "checkpoint_write_MBps"), verdict.why
    if outcome == "not_comparable":
        assert f"differs in file system of the checkpoints: {there} / lustre /scratch" in verdict.why


def test_a_newer_schema_is_left_alone(tmp_path: Path) -> None:
    history.enter(tmp_path, nights.entry(0, [100.0]))
    with sqlite3.connect(tmp_path / rundir.HISTORY) as newer:
        newer.execute(f"PRAGMA user_version = {history_database.SCHEMA + 1}")
    newer.close()
    before = (tmp_path / rundir.HISTORY).read_bytes()
    with pytest.raises(ConfigError, match="written by a newer dlio-hpc"):
        history.enter(tmp_path, nights.entry(1, [100.0]))
    with pytest.raises(ConfigError, match="written by a newer dlio-hpc"):
        history.entries(tmp_path)
    assert (tmp_path / rundir.HISTORY).read_bytes() == before


@pytest.mark.parametrize("damage", [b"this is no database at all, and long enough to be read as one" * 20, None])
def test_a_damaged_history_is_told_and_made_anew(folder: Path, damage: bytes | None) -> None:
    history.take_in(folder)
    exported = history.export(folder)
    path = folder / rundir.HISTORY
    content = path.read_bytes()
    path.write_bytes(damage or content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(InfrastructureError, match=r"is corrupted .*dlio-hpc history --rebuild --archive"):
        history.entries(folder)
    history.rebuild(folder)
    assert history.export(folder) == exported


def test_network_file_systems_get_no_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dlio_hpc.files import filesystem

    def mode() -> str:
        with sqlite3.connect(tmp_path / rundir.HISTORY) as file:
            (journal,) = file.execute("PRAGMA journal_mode").fetchone()
        file.close()
        return str(journal)

    history.enter(tmp_path, nights.entry(0, [100.0]))
    assert mode() == "wal"
    monkeypatch.setattr(filesystem, "of", lambda path: filesystem.FileSystem("nfs"))
    history.enter(tmp_path, nights.entry(1, [100.0]))
    assert mode() == "delete"
    assert len(history.entries(tmp_path)) == 2


def test_who_may_not_write_reads_all_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder's history lacks one archive at first; then the folder has no history."""
    second = folder / "tune-2.tar.zst"
    kept = second.read_bytes()
    second.unlink()
    history.take_in(folder)
    second.write_bytes(kept)
    before = (folder / rundir.HISTORY).read_bytes()
    monkeypatch.setattr(history_database, "is_writable", lambda folder: False)
    assert [(entry.job, entry.fault, entry.exit_code) for entry in history.entries(folder)] == [
        ("tune-1", None, 0), ("tune-2", None, 0),
    ]  # fmt: skip
    assert (folder / rundir.HISTORY).read_bytes() == before
    (folder / rundir.HISTORY).unlink()
    assert [entry.job for entry in history.entries(folder)] == ["tune-1", "tune-2"]
    assert not (folder / rundir.HISTORY).exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_another_user_reads_a_folder_that_is_not_his(folder: Path) -> None:
    history.take_in(folder)
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        copy = shutil.copytree(folder, Path(name) / "archive")
        copy.chmod(0o755)
        assert _entries_for_nobody(copy) == "2\n"


def _entries_for_nobody(folder: Path) -> str:
    """Return the number of entries that another user reads."""
    reading = "from pathlib import Path\nfrom dlio_hpc.verdict import history\n"
    reading += f"import os; os.setuid(65534)\nprint(len(history.entries(Path({str(folder)!r}))))"
    return subprocess.run([sys.executable, "-c", reading], capture_output=True, text=True, check=True).stdout


def test_collect_enters_jobs_and_history_lists_them(tmp_path: Path, run: Run) -> None:
    """A user collects and lists jobs; then the file is lost and made again from the archives."""
    runs = tmp_path / "dlio-runs"
    studies.write(
        studies.make(runs, studies.asked("demo", "reader.batch_size=4,8"), repeat=3), lambda _, repeat: 200.0 + repeat
    )
    done = run("dlio-hpc", "collect")
    assert "not in the history" not in done.err
    folder = runs / "archive"
    with sqlite3.connect(folder / rundir.HISTORY) as file:
        assert file.execute("SELECT job FROM jobs").fetchall() == [("tune-1",)]
    file.close()
    exported = run("dlio-hpc", "history", "--export").out
    assert run("dlio-hpc", "collect").err.count("already archived") == 1
    assert run("dlio-hpc", "history", "--export").out == exported
    (folder / rundir.HISTORY).unlink()
    again = run("dlio-hpc", "history", "--rebuild", "--export")
    assert again.out == exported
    assert f"history rebuilt from 1 archive in {Path('dlio-runs/archive')}" in again.err
    shown = run("dlio-hpc", "history").out
    assert "demo on local, 1 x " in shown
    assert "201.0" in shown
    assert "…" not in shown


def test_a_history_that_cannot_be_written_fails_no_collect(tmp_path: Path, run: Run) -> None:
    runs = tmp_path / "dlio-runs"
    studies.write(studies.make(runs, studies.asked("demo", "reader.batch_size=4,8"), repeat=1), lambda *_: 200.0)
    (runs / "archive" / rundir.HISTORY).mkdir(parents=True)
    done = run("dlio-hpc", "collect")
    assert done.code == 0
    assert "note: the job is not in the history yet: " in done.err
    (runs / "archive" / rundir.HISTORY).rmdir()
    assert run("dlio-hpc", "history", "--json").json["jobs"][0]["job"] == "tune-1"


def test_history_as_json_csv_page_and_pictures(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    for entry in nights.entries([100.0] * 12 + [90.0] * 12, 0.01):
        history.enter(folder, entry)
    history.enter(folder, nights.entry(30, [], job="nothing", measurements=(), state="failed", fault="no node"))
    shown = " ".join(run("dlio-hpc", "history", "--archive", folder).out.split())
    assert shown.count("worse since nightly-012 (2026-09-13)") == 1
    rows = list(
        csv.DictReader(io.StringIO(run("dlio-hpc", "history", "nightly-00?", "--csv", "--archive", folder).out))
    )
    assert len(rows) == 30
    assert {row["nodes"] for row in rows} == {"2"}
    done = run("dlio-hpc", "history", "--archive", folder, "--html", "h.html", "--figures", "f", "--metric", "wall_s")
    assert "no node" in done.out
    assert {path.name for path in (tmp_path / "f").iterdir()} == {"history.png", "history.svg"}
    assert re.search(r"step -(9|10)\.\d %", (tmp_path / "f" / "history.svg").read_text())
    page = (tmp_path / "h.html").read_text()
    assert "worse since nightly-012" in page
    assert "<svg" in page
    chosen = run("dlio-hpc", "history", "--archive", folder, "--since", "2026-09-20", "--json").json["jobs"]
    assert len(chosen) == 6
    nothing = run("dlio-hpc", "history", "--archive", folder, "--site", "nowhere")
    assert nothing.code == 2
    assert "matches --site nowhere; it has 25 jobs" in nothing.err
    assert run("dlio-hpc", "history", "--since", "yesterday").code == 2
    assert run("dlio-hpc", "history", "--archive", "absent").code == 2
    assert json.loads(run("dlio-hpc", "history", "--archive", folder, "--export").out.splitlines()[0])["job"]["job"]


def test_a_history_that_may_not_be_written_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history.check_writable(tmp_path)
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ConfigError, match=r"cannot write to .*: Permission denied; the owner of the folder"):
        history.check_writable(tmp_path)


def test_a_copy_of_a_job_under_another_name_is_invalid(tmp_path: Path) -> None:
    """A night without a measurement is not good because a good night was copied."""
    good, copy = nights.entries([100.0, 100.0], 0.01)
    runs = tuple(structs.replace(run, metrics=of_good.metrics) for run, of_good in zip(
        copy.measurements, good.measurements, strict=True))  # fmt: skip
    forged = structs.replace(copy, created=good.created, measurements=runs)
    for entry in (good, forged):
        history.enter(tmp_path, entry)
    first, second = history.entries(tmp_path)
    assert (first.fault, second.exit_code) == (None, 3)
    assert second.fault == (
        "it has the same runs as nightly-000, at the same times: one of the two is a copy; remove the copy"
    )
    assert all(run.fault == second.fault for run in second.measurements)
    for change in ({"created": copy.created}, {"measurements": copy.measurements}):
        history.enter(tmp_path, structs.replace(forged, **change))
        assert all(entry.fault is None for entry in history.entries(tmp_path)), "a job of its own"


def test_a_job_whose_clock_was_wrong_has_no_place_among_the_nights() -> None:
    history_ = [nights.entry(night, [100.0 + night % 3]) for night in range(8)]
    late = history_entry.carried(nights.entry(8, [50.0], ended="2036-01-01T00:00:00Z"))
    assert late.is_invalid
    assert "ended at 2036-01-01T00:00:00Z: a clock was wrong" in (late.fault or "")
    group = run_groups.of(history_[0])[0]
    assert len(trend.nights([*history_, late], group, "samples_per_s")) == 8
    waited = nights.entry(8, [50.0], ended=units.utc(units.timestamp(nights.day(8)) + 366 * 86400))
    assert history_entry.carried(waited).fault is None


def test_a_history_without_permission_is_not_to_be_rebuilt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "history.db"
    path.touch()
    monkeypatch.setattr(os, "access", lambda place, _: place != path)
    with pytest.raises(InfrastructureError, match="Permission denied") as caught, history_database.explained(path):
        raise sqlite3.OperationalError("unable to open database file")
    assert f"cannot read {path}: " in str(caught.value)
    assert f"dlio-hpc archive share {tmp_path}" in str(caught.value)
    assert "--rebuild" not in str(caught.value)
