"""Files that replace others are noticed: archives and plans of other jobs, damaged indices, and changed datasets."""

import hashlib
import os
import random
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base.errors import ConfigError, Incomplete, InfrastructureError, InvalidRun
from dlio_hpc.batch import job_record
from dlio_hpc.dataset import dataset_scan, sample_index
from dlio_hpc.files import archive, rundir
from dlio_hpc.records import job_outcome
from dlio_hpc.results import run_result
from tests.conftest import Run
from tests.core.test_stopped_runs import _plan
from tests.support import existing, recordings


@pytest.fixture(autouse=True)
def _forgotten() -> Any:
    existing.forget()
    yield
    existing.forget()


def _left(folder: Path, name: str) -> Path:
    """Leave the directory of a finished job."""
    made = structs.replace(_plan(folder), job=name, directory=str(folder / name))
    recordings.leave(folder / name, made, recordings.merged(made))
    return folder / name


def test_an_archive_in_the_place_of_another_is_noticed(run: Run, tmp_path: Path) -> None:
    names = ("demo-20260102-030405-0a1b2c", "demo-20260102-030405-0a1b2d")
    for name in names:
        archive.create(_left(tmp_path, name), tmp_path / f"{name}.tar.zst")
    first, second = (tmp_path / f"{name}.tar.zst" for name in names)
    assert archive.faults(first) == []
    first.write_bytes(second.read_bytes())
    (fault,) = archive.faults(first)
    assert fault == f"it contains job {names[1]}: another job's archive was put in its place, or it was renamed"
    assert run("dlio-hpc", "archive", "verify", first).code == 3
    with pytest.raises(InvalidRun, match="it contains job"):
        job_outcome.load_archive(first)
    copy = tmp_path / "before-the-upgrade.tar.zst"
    copy.write_bytes(second.read_bytes())
    assert archive.faults(copy) == [], "an archive may have any other name"
    of_study = tmp_path / "tune-20260102-030405-0a1b2c-12.tar.zst"
    of_study.write_bytes(second.read_bytes())
    assert len(archive.faults(of_study)) == 1


def test_a_result_of_another_plan_is_invalid(tmp_path: Path) -> None:
    folder = _left(tmp_path, "demo-20260102-030405-0a1b2c")
    outcome = job_outcome.load(folder)
    assert job_outcome.run_fault(outcome, outcome.runs[-1]) is None, "a result without a digest is of an old version"
    (path,) = folder.glob("runs/*/result.json")
    result = run_result.decode(path.read_bytes(), "")
    digest = hashlib.sha256((folder / rundir.PLAN).read_bytes()).hexdigest()
    run_result.write(path, structs.replace(result, plan_sha256=digest))
    outcome = job_outcome.load(folder)
    assert job_outcome.run_fault(outcome, outcome.runs[-1]) is None
    changed = (folder / rundir.PLAN).read_bytes().replace(b'"batch_size": 4', b'"batch_size": 8')
    assert changed != (folder / rundir.PLAN).read_bytes()
    (folder / rundir.PLAN).write_bytes(changed)
    outcome = job_outcome.load(folder)
    fault = job_outcome.run_fault(outcome, outcome.runs[-1])
    assert isinstance(fault, InvalidRun)
    assert f"was made from another plan.json, whose SHA-256 begins with {digest[:12]}" in str(fault)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"run": "77-other"}, "its result.json is from the run 77-other"),
        ({"kind": "generate"}, "its result.json is from a run of kind generate"),
        ({"kind": "warmup"}, "its result.json is from a run of kind warmup"),
        ({"summary": None}, "its result.json has no summary"),
    ],
)
def test_a_result_of_another_run_is_invalid(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    """The result of one repeat that is copied to the others would count as many without any noise."""
    folder = _left(tmp_path, "demo-20260102-030405-0a1b2c")
    (path,) = folder.glob("runs/*/result.json")
    result = run_result.decode(path.read_bytes(), "")
    run_result.write(path, structs.replace(result, **change))
    outcome = job_outcome.load(folder)
    reported = job_outcome.run_fault(outcome, outcome.runs[-1])
    assert isinstance(reported, InvalidRun)
    assert fault in str(reported)


def test_the_exit_code_and_the_steps_count_whatever_the_record_says(tmp_path: Path) -> None:
    """The disk was full when the end of the job should have been recorded, or files were changed later."""
    folder = _left(tmp_path, "demo-20260102-030405-0a1b2c")
    outcome = job_outcome.load(folder)
    outcome = outcome._replace(runs=[run for run in outcome.runs if run.result is not None])
    assert job_outcome.fault(outcome) is None
    record = structs.replace(outcome.job, states=outcome.job.states[:1])
    assert not record.ended
    for code, kind in (
        (0, None),
        (None, None),
        (6, InfrastructureError),
        (3, InvalidRun),
        (124, Incomplete),
        (143, Incomplete),
    ):
        fault = job_outcome.fault(outcome._replace(job=record, exit_status=code))
        assert (None if fault is None else type(fault)) is kind, code
    (run,) = outcome.runs
    assert run.result is not None
    assert run.result.summary is not None
    summary = structs.replace(run.result.summary, cut_short="11 of 32 steps")
    short = run._replace(result=structs.replace(run.result, summary=summary))
    fault = job_outcome.fault(outcome._replace(runs=[short]))
    assert isinstance(fault, Incomplete)
    assert "stopped close to its time limit during 01-measure: 11 of 32 steps" in str(fault)


def test_a_damaged_archive_and_that_of_another_job_are_kept(run: Run, tmp_path: Path) -> None:
    """They may be the only copies of what is in them."""
    first, second = (_left(tmp_path / "runs", f"demo-20260102-030405-0a1b2{letter}") for letter in "cd")
    target = tmp_path / "runs/archive" / f"{first.name}.tar.zst"
    archive.create(second, target)
    for number, content in ((1, target.read_bytes()), (2, target.read_bytes()[:-1])):
        target.write_bytes(content)
        done = run("dlio-hpc", "collect", first)
        kept = target.with_name(f"{target.name}.damaged-{number}")
        assert f"it is kept as {kept}" in " ".join(done.err.split())
        assert kept.read_bytes() == content
        assert archive.faults(target) == []
    assert job_outcome.load_archive(target).job.job == first.name


@pytest.mark.parametrize("name", ["runs", "result.json", rundir.PLAN])
def test_a_file_that_is_a_link_is_not_left_out_of_an_archive(run: Run, tmp_path: Path, name: str) -> None:
    folder = _left(tmp_path / "runs", "demo-20260102-030405-0a1b2c")
    (path,) = folder.glob("runs/*/result.json") if name == "result.json" else [folder / name]
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    done = run("dlio-hpc", "collect", folder)
    assert done.code == 2
    assert f"{path} is a link" in " ".join(done.err.split())
    assert not list(tmp_path.glob("runs/archive/*.zst"))


def test_a_job_with_the_record_of_another_is_invalid(tmp_path: Path) -> None:
    folder = _left(tmp_path, "demo-20260102-030405-0a1b2c")
    record = job_record.load(folder)
    job_record.save(folder, structs.replace(record, job="demo-20260102-030405-ffffff"))
    with pytest.raises(InvalidRun, match=r"is of job demo-20260102-030405-0a1b2c, but job.json of job"):
        job_outcome.load(folder)


@pytest.mark.parametrize("name", ["../../elsewhere", "a/b", "..", ""])
def test_a_job_whose_name_leads_elsewhere_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    folder = _left(tmp_path / "runs", "demo-20260102-030405-0a1b2c")
    path = folder / rundir.JOB
    path.write_bytes(path.read_bytes().replace(b"demo-20260102-030405-0a1b2c", name.encode()))
    done = run("dlio-hpc", "collect", folder)
    assert done.code == 3, done.err
    assert "is not the name of a job" in done.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


def test_a_folder_that_claims_to_be_another_job_replaces_no_archive(run: Run, tmp_path: Path) -> None:
    job = _left(tmp_path / "runs", "demo-20260102-030405-0a1b2c")
    (job / rundir.EXIT_STATUS).write_text("0\n")
    assert run("dlio-hpc", "collect", job).code == 0
    (target,) = (tmp_path / "runs/archive").glob("*.tar.zst")
    before = target.read_bytes()
    (forged,) = job.glob("runs/*/result.json")
    sound = forged.read_bytes()
    (job / "attempts/7").mkdir(parents=True)
    (job / "attempts/7/job.out").write_text("again")
    forged.write_bytes(sound.replace(b'"faults": []', b'"faults": [] '))
    assert forged.read_bytes() != sound
    done = run("dlio-hpc", "collect", job)
    assert "has changed since it was archived" in done.err
    assert target.read_bytes() == before, "the archived result is in no attempt of the folder"
    kept = job / "attempts/7" / forged.relative_to(job)
    kept.parent.mkdir(parents=True)
    kept.write_bytes(sound)
    assert "the job ran again after it was archived" in run("dlio-hpc", "collect", job).err
    assert target.read_bytes() != before


def test_each_flipped_bit_of_an_index_is_named(tmp_path: Path) -> None:
    """One file after the other gets random flips; none reaches the ranks as a wrong offset or an IndexError."""
    existing.records(tmp_path / "data", existing.payloads())
    made = existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("tfrecord", "*"))
    assert made.dataset.scan is not None
    folder = Path(made.dataset.scan.index)
    chance = random.Random(7)
    for path in sorted(folder.iterdir()):
        sound = path.read_bytes()
        for _ in range(16):
            flipped = bytearray(sound)
            flipped[chance.randrange(len(flipped))] ^= 1 << chance.randrange(8)
            path.write_bytes(flipped)
            existing.forget()
            with pytest.raises(ConfigError, match=r"is corrupted: .*; remove it and submit the workload again"):
                sample_index.opened(str(folder))
        path.write_bytes(sound)
        existing.forget()
        assert sample_index.opened(str(folder)).files == len(existing.COUNTS)
        path.unlink()
        existing.forget()
        with pytest.raises(ConfigError):
            sample_index.opened(str(folder))
        path.write_bytes(sound)


def test_a_change_with_the_same_size_and_time_is_noticed(tmp_path: Path) -> None:
    existing.records(tmp_path / "data", existing.payloads())
    made = existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("tfrecord", "*"))
    path = tmp_path / "data/part-00.tfrecord"
    dataset_scan.check_unchanged(str(tmp_path / "data"), made.dataset)
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    while int(os.stat(path).st_ctime) == int(before.st_ctime):
        path.write_bytes(content)  # jobs compare whole seconds
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    with pytest.raises(InvalidRun, match="has changed since the dataset was scanned"):
        dataset_scan.check_unchanged(str(tmp_path / "data"), made.dataset)
    again = existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("tfrecord", "*"))
    assert again.dataset.scan is not None
    assert made.dataset.scan is not None
    assert again.dataset.scan.index != made.dataset.scan.index


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_chunks_that_were_never_written_are_read_by_the_library(tmp_path: Path, compression: str | None) -> None:
    for number, rows in enumerate((8, 8, 5)):
        (tmp_path / "data").mkdir(exist_ok=True)
        with h5py.File(tmp_path / f"data/{number}.h5", "w") as file:
            stored = file.create_dataset("x", (8, 16, 4), "f4", chunks=(1, 16, 4), compression=compression)
            stored[:rows] = np.ones((rows, 16, 4))
    with pytest.raises(
        ValueError, match="because chunks of them were never written; only the library of their format reads them"
    ):
        existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("hdf5", "*", mode="posix"))
    made = existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("hdf5", "*", mode="framework"))
    assert made.dataset.scan is not None
    assert made.dataset.scan.needs_library
    assert made.dataset.samples == 24


@pytest.mark.job
def test_a_job_reads_hdf5_files_that_lack_chunks(run: Run, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    for number in range(4):
        with h5py.File(tmp_path / f"data/{number}.h5", "w") as file:
            stored = file.create_dataset("x", (8, 32, 32), "f4", chunks=(1, 32, 32))
            stored[: 8 - number] = np.random.default_rng(number).random((8 - number, 32, 32))
    (tmp_path / "read.yaml").write_text(
        "name: read\ndataset: {format: hdf5, existing: '*.h5'}\nreader: {mode: framework, batch_size: 4}\n"
        "compute: {time: 0}\ntrain: {epochs: 1}\n"
    )
    done = run("dlio-submit", "read.yaml", "-s", "local", "--ppn", 2, "--wait", "--json", "-d", tmp_path / "data")
    assert done.code == 0, done.err
    assert done.job["runs"][-1]["result"]["summary"]["samples"] == 32
