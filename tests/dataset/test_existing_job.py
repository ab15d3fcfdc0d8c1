"""Jobs that read existing files: nothing is written to them, and every byte is counted."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base import serialization, units
from dlio_hpc.config import site
from dlio_hpc.dataset import sample_index
from dlio_hpc.files import rundir
from dlio_hpc.results.run_result import Result, Summary
from tests.conftest import Outcome, Run
from tests.support import existing, planning, straced
from tests.support.standins import libdarshan

pytestmark = pytest.mark.job

_RANKS = 2


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Return a workload that reads existing files, with the data directory `data`."""
    existing.forget()
    existing.images(tmp_path / "data")
    path = tmp_path / "photos.yaml"
    path.write_text(
        "name: photos\n"
        "dataset: {format: raw}\n"
        "reader: {batch_size: 2, read_threads: 2, shuffle: {files: true, samples: true}}\n"
        "train: {epochs: 2}\n"
    )
    return path


def _state(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Return inode, size and time of the last change of everything below a folder."""
    return {
        str(path.relative_to(folder)): (status.st_ino, status.st_size, status.st_mtime_ns)
        for path in [folder, *folder.rglob("*")]
        if (status := path.lstat())
    }


def _submit(run: Run, photos: Path, *options: object, glob: str = "**/*.*") -> Outcome:
    return run("dlio-submit", photos, "-s", "local", "--ppn", _RANKS, "-d", "data", "--existing", glob, *options)


def test_a_job_reads_images_and_leaves_them_alone(run: Run, photos: Path, tmp_path: Path) -> None:
    before = _state(tmp_path / "data")
    done = _submit(run, photos, "--wait", "--json")
    assert done.code == 0, done.err
    assert "existing dataset: 11 files with 11 samples" in done.err
    (of_run,) = done.job["runs"]
    result = of_run["result"]
    summary, dataset = result["summary"], result["dataset"]
    total = sum(path.stat().st_size for path in (tmp_path / "data").rglob("*.*"))
    assert (summary["samples"], summary["bytes_read"], summary["reads"]) == (22, 2 * total, 22)
    assert (summary["samples_verified"], result["faults"]) == (0, [])
    assert (dataset["files"], dataset["samples"], dataset["bytes"]) == (11, 11, total)
    assert dataset["is_existing"]
    assert dataset["path"] == str(tmp_path / "data")
    assert any("contents are not verified" in note for note in done.job["notes"])
    assert _state(tmp_path / "data") == before
    again = _submit(run, photos, "--wait")
    assert again.code == 0
    assert "scanned" not in again.err, "the index of the first submission is used"
    assert "existing, contents not compared: 11 files x 1 sample" in " ".join(again.out.split())
    assert "--dataset-size" not in again.out, "no advice that cannot be followed"
    assert len(list((tmp_path / "dlio-runs" / rundir.DATASET_INDEXES).iterdir())) == 1
    os.utime(tmp_path / "data" / "class0" / "00.jpg", ns=(1, 1))
    assert "existing dataset: 11 files" in _submit(run, photos, "--dry-run").err, "a changed file is noticed"
    removed = run("dlio-hpc", "datasets", "remove", "--data", tmp_path, "data", "--yes")
    assert removed.code != 0
    assert len(_state(tmp_path / "data")) == len(before)


def test_a_dry_run_writes_nothing(run: Run, photos: Path, tmp_path: Path) -> None:
    before = _state(tmp_path)
    done = _submit(run, photos, "--dry-run")
    assert done.code == 0
    assert "note: existing dataset: its contents are not verified" in done.err
    assert run("dlio-hpc", "estimate", photos, "-s", "local", "-d", "data", "--existing", "**").code == 0
    assert _state(tmp_path) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--dataset-size", "1MiB"), "an existing dataset keeps its size"),
        (("--generate", "only"), "--generate only: an existing dataset is read as it is and never generated"),
        (("--generate", "separate"), "--generate separate: an existing dataset"),
        (("-S", "dataset.format=tfrecord"), "is a JPEG image, but the workload reads tfrecord"),
        (("-S", "dataset.format=csv"), "format=csv"),
        (("-S", "dataset.file_access=shared"), "file_access=shared needs files=1, not 11"),
        (("-S", "reader.verify_content=all"), "set verify_content=none"),
        (("-S", "dataset.auxiliary_files=[{name: a, bytes: 9}]"), "set auxiliary_files: []"),
        (("-S", "dataset.existing.sample_bytes=7"), "is not a multiple of dataset.existing.sample_bytes"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, photos: Path, options: tuple[str, ...], words: str) -> None:
    done = _submit(run, photos, *options, "--dry-run")
    assert done.code == 2
    assert words in done.err


def test_folders_and_patterns_that_hold_nothing(run: Run, photos: Path) -> None:
    assert "no file in" in _submit(run, photos, glob="*.tfrecord").err
    done = run("dlio-submit", photos, "-s", "local", "-d", "nowhere", "--existing", "*")
    assert (done.code, "the folder does not exist" in done.err) == (2, True)
    done = run("dlio-submit", photos, "-s", "local", "--ab", "data", "data2", "--existing", "*")
    assert (done.code, "--ab: existing datasets" in done.err) == (2, True)


def test_files_that_vanish_before_the_job_starts(run: Run, photos: Path, tmp_path: Path) -> None:
    spoiled = tmp_path / "spoil.sh"
    spoiled.write_text(f"rm -f {tmp_path}/data/class1/01.png\n")
    done = _submit(run, photos, "-S", f"site.setup=[sh {spoiled}]", "--wait")
    assert done.code == 3, done.err
    errors = "".join(path.read_text() for path in (tmp_path / "dlio-runs").glob("photos-*/job.err"))
    assert "class1/01.png is missing" in errors
    assert "submit the workload again" in errors


def test_a_checkpoint_goes_to_the_folder_of_runs(run: Run, photos: Path, tmp_path: Path) -> None:
    before = _state(tmp_path / "data")
    done = _submit(run, photos, "-S", "checkpoint={files: [1000]}", "--wait", "--json")
    assert done.code == 0, done.err
    assert done.job["runs"][0]["result"]["summary"]["checkpoint"]["count"] == 2
    assert any("written to the folder of runs" in note for note in done.job["notes"])
    assert _state(tmp_path / "data") == before


def test_a_study_of_existing_files_is_resumed_unless_they_changed(run: Run, photos: Path, tmp_path: Path) -> None:
    sweep = ("-P", "reader.batch_size=1,2", "--repeat", "2")
    done = _submit(run, photos, *sweep, "--wait")
    assert done.code == 0, done.err
    (job,) = (path.parent for path in (tmp_path / "dlio-runs").glob("photos-*/plan.json"))
    study = next(path.parent for path in (tmp_path / "dlio-runs").glob("photos-*/study.json") if path.parent != job)
    shutil.rmtree(job)
    shutil.rmtree(tmp_path / "dlio-runs" / "archive")
    shutil.rmtree(tmp_path / "dlio-runs" / rundir.DATASET_INDEXES)
    existing.forget()
    os.utime(tmp_path / "data" / "class0" / "00.jpg", ns=(1, 1))
    refused = run("dlio-submit", "--resume", study)
    assert (refused.code, "have changed since the study was submitted" in refused.err) == (2, True)


def test_baselines_know_the_files_and_not_the_index(run: Run, photos: Path, tmp_path: Path) -> None:
    """The same files have the same measurement key, wherever the jobs are."""
    shutil.copytree(tmp_path / "data", tmp_path / "other")
    settings = []
    for data, runs, spoil in (("data", "one", False), ("other", "two", False), ("data", "three", True)):
        if spoil:
            (tmp_path / "data" / "class0" / "more.jpg").write_bytes(b"\xff\xd8\xff more")
        done = run(
            "dlio-submit", photos, "-s", "local", "-d", data, "-o", runs, "--existing", "**", "--wait",
        )  # fmt: skip
        assert done.code == 0, done.err
        history = run("dlio-hpc", "history", "--runs", runs, "--json")
        (job,) = history.json["jobs"] if isinstance(history.json, dict) else history.json
        settings.append(_key(job))
    assert settings[0] == settings[1] != settings[2]


def _key(job: Any) -> str:
    (measurement,) = job["measurements"]
    return str(measurement["key"]["settings"])


def test_darshan_counts_the_same_bytes(run: Run, photos: Path, tmp_path: Path) -> None:
    """Files in different folders may have the same name."""
    shutil.copytree(tmp_path / "data" / "class0", tmp_path / "data" / "class2")
    library = libdarshan.install(tmp_path / "lib")
    darshan = ("-S", f"site.darshan={library}", "-S", libdarshan.rank_environment(""))
    done = _submit(run, photos, *darshan, "--wait", "--json")
    assert done.code == 0, done.err
    verdict = done.job["runs"][0]["darshan"]
    total = 2 * sum(path.stat().st_size for path in (tmp_path / "data").rglob("*.*"))
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": total, "core": total, "planned": total}
    shutil.rmtree(tmp_path / "dlio-runs" / rundir.DATASET_INDEXES)
    existing.forget()
    report = run("dlio-hpc", "report", done.job["archive"], "--json")
    assert report.code == 0, "a report needs no index"
    assert len(report.job["runs"][0]["analysis"]["files"]) == 17


def test_the_preflight_writes_nothing_to_the_data(run: Run, photos: Path, tmp_path: Path) -> None:
    done = run("dlio-hpc", "check", photos, "-s", "local", "-d", "data", "--existing", "**", "--no-launch")
    assert done.code == 0, done.out
    assert "the folders for runs and archives are writable" in done.out
    assert not (tmp_path / "dlio-runs").exists()


def _counted(folder: Path, kind: str, **keys: Any) -> tuple[Summary, int, list[int]]:
    """Trace a run. Return its summary, the bytes of the dataset, and the bytes of each read of its files."""
    straced.needed()
    existing.forget()
    made = existing.unscanned(kind, "**/*.*", **keys)
    request = planning.Request(folder, data=folder / "data", walltime=units.walltime("1h"), ranks_per_node=_RANKS)
    plan = planning.make(made, site.load("local"), request)
    (folder / rundir.PLAN).write_bytes(serialization.encode(plan))
    (measure,) = plan.runs
    assert measure.workload.dataset.scan is not None
    sample_index.write(measure.workload.dataset.scan.index)
    straced.core(folder, _RANKS, measure.number, folder / "seen.darshan")
    written = rundir.run_directory(folder, measure.number, measure.name) / rundir.RESULT
    summary = serialization.decode(written.read_bytes(), Result, str(written)).summary
    assert summary is not None
    traces = [trace for rank in range(_RANKS) for trace in straced._traces(folder, rank)]
    reads = [row[1] for trace in traces if trace.path.startswith(f"{measure.dataset}/") for row in trace.reads]
    return summary, measure.workload.dataset.size, reads


@pytest.mark.strace
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("kind", ["raw", "tfrecord"])
def test_reads_and_bytes_are_those_that_strace_sees(tmp_path: Path, kind: str, mode: str) -> None:
    if kind == "raw":
        existing.images(tmp_path / "data")
    else:
        existing.records(tmp_path / "data", existing.payloads())
    summary, size, reads = _counted(tmp_path, kind, mode=mode, batch_size=3, shuffle={"files": True, "samples": True})
    assert summary.reads == len(reads)
    assert summary.bytes_read + summary.overhead_bytes_read == sum(reads)
    assert summary.bytes_read == size


@pytest.mark.strace
def test_streams_read_each_record_once(tmp_path: Path) -> None:
    existing.records(tmp_path / "data", existing.payloads())
    summary, size, reads = _counted(tmp_path, "tfrecord", mode="framework", transfer_size="512", batch_size=3)
    assert summary.reads == len(reads)
    assert summary.bytes_read + summary.overhead_bytes_read == sum(reads)
    assert size <= summary.bytes_read < size + 2 * 512 * len(existing.COUNTS)
