"""Whole jobs run on the local site as a user runs them."""

import itertools
import json
import math
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dlio_hpc.base.errors import InfrastructureError, InvalidRun
from dlio_hpc.core import content
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.files import rundir
from tests.conftest import BIN, Run
from tests.support.standins.login import library

SAMPLES, SAMPLE_BYTES, EPOCHS = 30, 12_000, 2


def _submit(run: Run, workload: Path, *options: object, code: int = 0) -> Any:
    done = run("dlio-submit", workload, "-s", "local", "--wait", "--json", *options)
    assert done.code == code, done.err
    return done.job


def _result(job: Any, kind: str = "measure") -> Any:
    (result,) = [entry["result"] for entry in job["runs"] if entry["kind"] == kind]
    return result


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("batch", [1, 4, 30])
def test_every_sample_and_byte_is_read_once_an_epoch(run: Run, small: Path, ranks: int, batch: int) -> None:
    job = _submit(run, small, "--ppn", ranks, "-S", f"reader.batch_size={batch}")
    result = _result(job)
    assert job["state"] == "completed"
    assert result["ranks"] == ranks
    assert result["summary"]["samples"] == SAMPLES * EPOCHS
    assert result["summary"]["bytes_read"] == SAMPLES * SAMPLE_BYTES * EPOCHS == result["dataset"]["bytes"] * EPOCHS
    for epoch in result["epochs"]:
        assert epoch["samples"] == SAMPLES
        assert epoch["bytes_read"] == SAMPLES * SAMPLE_BYTES
        assert epoch["steps"] == math.ceil(math.ceil(SAMPLES / ranks) / batch)
        assert 0.001 < epoch["wait_s"] + epoch["compute_s"] + epoch["sync_s"] <= epoch["wall_s"]
    assert result["faults"] == []


def test_everything_the_contract_promises_lies_in_the_directory(run: Run, small: Path) -> None:
    job = _submit(run, small, "--repeat", 2, "--warmup", 1)
    directory, archive = Path(job["directory"]), Path(job["archive"])
    assert {path.name for path in directory.iterdir()} == {
        "plan.json", "job.sh", "job.json", "job.out", "job.err", "exit_status", "runs", "environment.json",
        "layout", "manifest.json",
    }  # fmt: skip
    assert sorted(path.name for path in (directory / "runs").iterdir()) == [
        "00-generate", "01-warmup", "02-measure-1", "03-measure-2",
    ]  # fmt: skip
    assert (directory / "exit_status").read_text() == "0\n"
    assert [run["kind"] for run in job["runs"]] == ["generate", "warmup", "measure", "measure"]
    states = [sighting["state"] for sighting in json.loads((directory / "job.json").read_bytes())["states"]]
    assert states[:2] == ["planned", "submitted"]
    assert states[-1] == "completed"
    assert archive == directory.parent / "archive" / f"{job['job']}.tar.zst"
    for where in (directory, archive):
        shown = run("dlio-hpc", "report", where, "--json")
        assert shown.code == 0
        assert shown.job["runs"] == job["runs"]
        table = run("dlio-hpc", "report", where)
        assert table.code == 0
        for word in ("02-measure-1", "samples/s", "AU", "wait", "compute", "sync", "p99", str(archive)):
            assert word in table.out
        assert max(len(line) for line in table.out.splitlines()[1:] if str(directory.parent.parent) not in line) <= 100
    assert run("dlio-hpc", "archive", "verify", archive).code == 0
    assert f"{job['job']}/plan.json" in run("dlio-hpc", "archive", "list", archive).out
    assert run("dlio-hpc", "archive", "extract", archive, "--to", "out").code == 0
    extracted = directory.parent.parent / "out" / job["job"]
    assert run("dlio-hpc", "report", extracted, "--json").job["runs"] == job["runs"]


def test_the_timeline_holds_every_step_of_every_rank(run: Run, small: Path) -> None:
    job = _submit(run, small, "--ppn", 3)
    result = _result(job)
    with h5py.File(Path(job["directory"]) / "runs" / "01-measure" / "timeline.h5") as file:
        steps = {name: np.array(column) for name, column in file["steps"].items()}
        counts = np.array(file["read_latency/counts"])
        assert file["ranks/clock_offset"][:].tolist() == [0, 0, 0], "one kernel, one clock"
    assert steps["wait"].shape == (3, EPOCHS, result["epochs"][0]["steps"])
    assert steps["bytes"].sum() == result["summary"]["bytes_read"]
    assert steps["samples"].sum() == result["summary"]["samples"]
    assert counts.sum() == result["summary"]["reads"] == SAMPLES * EPOCHS
    ends = steps["start"] + steps["wait"] + steps["compute"] + steps["sync"]
    assert ends.max() == pytest.approx(result["summary"]["wall_s"])
    assert steps["wait"].mean() == pytest.approx(result["summary"]["wait_s"]["mean"])
    assert (steps["compute"] >= 0.001).all()


def test_a_dataset_that_a_run_reads_is_not_removed_from_elsewhere(run: Run, small: Path) -> None:
    generated = _result(_submit(run, small, "-d", "data", "--generate", "only"), "generate")["generated"]
    folder = Path(generated["dataset"])
    started = run("dlio-submit", small, "-s", "local", "-d", "data", "--quiet", "-S", "compute.time=200ms",
                  "-S", "train.epochs=60", "-S", "reader.batch_size=1")  # fmt: skip
    assert started.code == 0
    removal = ("dlio-hpc", "datasets", "remove", folder, "--dry-run")
    end = time.monotonic() + 60
    while not dataset_folder.is_being_read(folder):
        assert time.monotonic() < end, "the run holds no lock"
        time.sleep(0.1)
    assert "needs the dataset" in run(*removal).err
    elsewhere = run(*removal, "-o", "nowhere")
    assert (elsewhere.code, "a job is reading the dataset" in elsewhere.err) == (2, True)
    assert run("dlio-hpc", "cancel", "--all").code == 0
    run("dlio-hpc", "wait")
    assert run(*removal).code == 0


def test_the_dataset_is_what_numpy_reads_and_is_made_once(run: Run, small: Path, tmp_path: Path) -> None:
    first = _result(_submit(run, small, "-d", "data", "--generate", "only"), "generate")["generated"]
    assert not first["reused"]
    files = sorted(Path(first["dataset"]).glob("*.npz"))
    assert [file.name for file in files] == [f"{number:08}.npz" for number in range(6)]
    assert first["bytes_written"] == sum(file.stat().st_size for file in files)
    stream = b"".join(map(bytes, content.pieces(0, SAMPLES * SAMPLE_BYTES)))
    assert b"".join(np.load(file)["x"].tobytes() for file in files) == stream
    stamps = [file.stat().st_mtime_ns for file in files]
    again = _result(_submit(run, small, "-d", "data", "-S", "reader.batch_size=2"), "generate")["generated"]
    assert again["reused"]
    assert [file.stat().st_mtime_ns for file in files] == stamps
    other = _result(_submit(run, small, "-d", "data", "-S", "dataset.files=5"), "generate")["generated"]
    assert other["dataset"] != first["dataset"], "another geometry has a folder of its own"


def test_a_generation_that_was_interrupted_is_done_again(run: Run, small: Path) -> None:
    folder = Path(_result(_submit(run, small, "-d", "data", "--generate", "only"), "generate")["generated"]["dataset"])
    mark = folder / "dlio-dataset.json"
    mark.write_text(mark.read_text().replace('"complete": true', '"complete": false'))
    os.truncate(folder / "00000003.npz", 100)
    done = run("dlio-submit", small, "-d", "data", "--generate", "never", "--wait")
    assert done.code == 2
    assert "is unfinished; complete it with --generate auto" in done.err
    assert _submit(run, small, "-d", "data")["state"] == "completed"


def test_a_dataset_that_does_not_fit_is_refused(run: Run, small: Path) -> None:
    folder = Path(_result(_submit(run, small, "-d", "data", "--generate", "only"), "generate")["generated"]["dataset"])
    mark = folder / "dlio-dataset.json"
    whole = mark.read_text()
    fingerprint = json.loads(whole)["fingerprint"]
    mark.write_text(whole.replace(fingerprint, "0" * 12).replace('"files": 6', '"files": 7'))
    job = _submit(run, small, "-d", "data", code=2)
    assert job["state"] == "failed"
    message = job["runs"][0]["error"]["message"]
    assert (
        "is not the one that this workload needs: files is 7 in the dataset and 6 in the plan. Choose another --data, "
        "or remove that folder" in message
    )
    mark.unlink()
    assert (
        "holds files but no dlio-dataset.json"
        in _submit(run, small, "-d", "data", code=2)["runs"][0]["error"]["message"]
    )
    assert len(list(folder.iterdir())) == 6, "nothing of what lay there was touched"


def test_without_a_dataset_never_says_what_there_is(run: Run, small: Path) -> None:
    refused = run("dlio-submit", small, "-d", "data", "--generate", "never", "--wait")
    assert (refused.code, "(the folder does not exist); generate it with --generate auto" in refused.err) == (2, True)
    made = _result(_submit(run, small, "-d", "data", "--generate", "only"), "generate")["generated"]["dataset"]
    refused = run("dlio-submit", small, "-d", "data", "--generate", "never", "-S", "dataset.files=7")
    assert refused.code == 2
    assert len(list(small.parent.glob("dlio-runs/*/job.json"))) == 1, "only the job that generated"
    assert f"existing: {Path(made).name}" in refused.err


def test_a_rank_that_fails_ends_all_and_its_outputs_are_kept(run: Run, small: Path) -> None:
    folder = Path(_result(_submit(run, small, "-d", "data", "--generate", "only"), "generate")["generated"]["dataset"])
    os.truncate(folder / "00000005.npz", 5000)
    started = time.monotonic()
    done = run("dlio-submit", small, "-d", "data", "--wait", "--json", "-S", "compute.time=50ms")
    assert time.monotonic() - started < 60
    assert done.code == 3
    assert done.job["state"] == "failed"
    error = done.job["runs"][-1]["error"]
    assert error["kind"] == "InvalidRun"
    assert f"{folder}/00000005.npz ends at byte 5000" in error["message"]
    assert 0 <= error["rank"] < 4
    assert "failed on rank" in done.err
    assert run("dlio-hpc", "archive", "verify", done.job["archive"]).code == 0
    report = run("dlio-hpc", "report", done.job["archive"])
    assert report.code == 3
    assert "ends at byte 5000" in report.out
    assert f"rank {error['rank']} on" in (Path(done.job["directory"]) / "job.err").read_text()


def test_missing_data_file(run: Run, small: Path) -> None:
    folder = Path(_result(_submit(run, small, "-d", "data", "--generate", "only"), "generate")["generated"]["dataset"])
    (folder / "00000002.npz").unlink()
    job = _submit(run, small, "-d", "data", code=3)
    assert f"cannot read {folder}/00000002.npz: No such file or directory" in job["runs"][-1]["error"]["message"]
    (folder / "00000000.npz").unlink()
    job = _submit(run, small, "-d", "data", code=3)
    message = job["runs"][0]["error"]["message"]
    assert "00000000.npz is missing. A server or a mount may be down" in message
    assert "datasets verify" in message
    assert "remove" not in message, "a brick that is down keeps the files"


def test_a_full_file_system_is_refused_before_writing(run: Run, small: Path) -> None:
    done = run("dlio-submit", small, "-S", "dataset.samples_per_file=1000000000000", "--generate", "only")
    assert (done.code, done.out) == (2, "")
    assert "free; choose another --data or a smaller --dataset-size" in done.err
    assert not [*small.parent.glob("dlio-runs/*/plan.json")]


def test_a_data_directory_that_cannot_be_written_when_the_job_runs(run: Run, small: Path) -> None:
    job = _submit(run, small, "-d", "data", "-S", "site.setup=[touch ../../data]", code=6)
    assert "cannot use " in job["runs"][0]["error"]["message"]


def _kill_submitter(small: Path, cwd: Path) -> Path:
    """Kill dlio-submit --wait with -9 as soon as a measured step is done; return the job's directory."""
    before = list(cwd.glob("dlio-runs/*/job.out"))
    submitter = subprocess.Popen(
        [BIN / "dlio-submit", small, "-s", "local", "--wait", "-S", "compute.time=1s"],
        cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        outs = [out for out in cwd.glob("dlio-runs/*/job.out") if out not in before]
        if outs and "01-measure 1/" in outs[0].read_text():
            break
        time.sleep(0.02)
    submitter.kill()
    submitter.wait()
    return outs[0].parent


def test_a_job_survives_its_submitter_and_is_collected_later(run: Run, small: Path, tmp_path: Path) -> None:
    directory = _kill_submitter(small, tmp_path)
    assert not (directory / "exit_status").exists(), "the job goes on"
    early = run("dlio-hpc", "collect", directory)
    assert early.code == 7
    assert "is running; collect it when it has ended" in early.err
    reported = run("dlio-hpc", "report", directory)
    assert (reported.code, reported.out.startswith("Not measured: Incomplete: ")) == (7, True), reported.out
    assert "running" in run("dlio-hpc", "status", directory).out
    waited = run("dlio-hpc", "wait", directory.name, "--json")
    assert waited.code == 0
    assert _result(waited.job)["summary"]["samples"] == SAMPLES * EPOCHS
    archive = Path(waited.job["archive"])
    before = archive.read_bytes()
    for _ in range(2):
        again = run("dlio-hpc", "collect", directory)
        assert again.code == 0
        assert "already archived" in again.err
        assert archive.read_bytes() == before
    archive.unlink()
    assert run("dlio-hpc", "collect").code == 0
    assert archive.read_bytes() == before, "the same files give the same archive"
    archive.write_bytes(before[:-40])
    assert "is not an archive of this job, or damaged" in run("dlio-hpc", "collect", directory).err
    assert archive.read_bytes() == before
    assert archive.with_name(f"{archive.name}.damaged-1").read_bytes() == before[:-40], "it may be the only copy"


def test_a_job_that_is_run_again_by_hand_is_not_collected_before_it_ends(run: Run, small: Path) -> None:
    job = _submit(run, small, "-S", "compute.time=500 ms")
    directory = Path(job["directory"])
    again = subprocess.Popen(["bash", "job.sh"], cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while (directory / "exit_status").exists():
        time.sleep(0.02)
    early = run("dlio-hpc", "collect", directory)
    assert again.poll() is None
    assert early.code == 7
    again.wait()
    assert run("dlio-hpc", "collect", directory).code == 0
    assert "attempts/1/runs/01-measure/result.json" in run("dlio-hpc", "archive", "list", job["archive"]).out


def test_an_interrupt_ends_the_watching_and_not_the_job(run: Run, small: Path, tmp_path: Path) -> None:
    directory = _kill_submitter(small, tmp_path)
    # The tests themselves may run in the background, where a shell has interrupts ignored.
    command: list[str | Path] = ["env", "--default-signal=INT", BIN / "dlio-hpc", "wait", directory]
    watcher = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert watcher.stderr is not None
    assert "running" in watcher.stderr.readline()
    watcher.send_signal(signal.SIGINT)
    _, err = watcher.communicate(timeout=30)
    assert watcher.returncode == 7
    assert "stopped watching; the job continues" in err
    assert "Traceback" not in err
    assert run("dlio-hpc", "wait", directory).code == 0


def test_a_job_can_be_cancelled(run: Run, small: Path, tmp_path: Path) -> None:
    directory = _kill_submitter(small, tmp_path)
    assert "cancelling" in run("dlio-hpc", "cancel", directory).out
    waited = run("dlio-hpc", "wait", directory, "--json")
    assert waited.code == 7
    assert waited.job["state"] == "cancelled"
    assert (directory / "exit_status").read_text() == "143\n"
    assert not _ranks_of(directory)
    assert "had already ended, cancelled" in run("dlio-hpc", "cancel", directory).out


def test_a_job_stops_cleanly_before_its_time_limit(run: Run, small: Path) -> None:
    slow = ("-S", "reader.preprocess_time=0.4", "-S", "reader.prefetch=0", "--repeat", 2, "--warmup", 1)
    done = run("dlio-submit", small, "--wait", "--json", "-t", "8s", *slow, "-S", "train.epochs=20")
    assert done.code == 7
    assert done.job["state"] == "timeout"
    assert (Path(done.job["directory"]) / "exit_status").read_text() == "124\n"
    assert [entry["name"] for entry in done.job["runs"]] == ["00-generate", "01-warmup"], "nothing was started any more"
    result = done.job["runs"][1]["result"]
    summary = result["summary"]
    assert 0 < summary["steps"] < summary["steps_planned"] == 40
    assert summary["samples"] == sum(epoch["samples"] for epoch in result["epochs"]) < SAMPLES * 20
    assert summary["bytes_read"] == summary["samples"] * SAMPLE_BYTES
    assert result["faults"] == []
    assert run("dlio-hpc", "archive", "verify", done.job["archive"]).code == 0
    table = run("dlio-hpc", "report", done.job["archive"])
    assert table.code == 7
    assert f"stopped before the time limit: {summary['steps']} of 40 steps" in table.out
    with h5py.File(Path(done.job["directory"]) / "runs" / "01-warmup" / "timeline.h5") as file:
        waits = np.array(file["steps/wait"])
    assert np.isfinite(waits).sum() == 4 * summary["steps"], "four ranks"


@pytest.mark.parametrize(
    ("name", "keys", "done"),
    [
        (
            "reads.yaml",
            ("checkpoint={files: [64 KiB], writes: 1, reads: 100000000}",),
            r"\d+ of 100000000 checkpoints read",
        ),
        (
            "small.yaml",
            ("evaluation={files: 300, time: {mean: 0.2}}", "checkpoint={reads: 1}", "train.epochs=1"),
            r"\d+ of \d+ samples of the evaluation passes, 0 of 1 checkpoints read",
        ),
        (
            "small.yaml",
            ("evaluation={files: 300, time: {mean: 0.2}}", "train.epochs=2"),
            r"\d+ of \d+ steps, \d+ of \d+ samples",
        ),
    ],
)
def test_a_job_that_is_still_reading_at_its_time_limit_is_incomplete(
    run: Run, small: Path, name: str, keys: tuple[str, ...], done: str
) -> None:
    (small.parent / "reads.yaml").write_text("name: reads\ncheckpoint: {writes: 1}\n")
    settings = [word for key in ("compute.time=1 ms", *keys) for word in ("-S", key)]
    job = run("dlio-submit", small.with_name(name), "--ppn", 2, "-t", "10s", *settings, "--wait", "--json")
    assert (job.code, job.job["state"]) == (7, "timeout"), job.err
    assert (Path(job.job["directory"]) / "exit_status").read_text() == "124\n"
    result = job.job["runs"][-1]["result"]
    assert result["faults"] == []
    summary = result["summary"]
    assert re.match(done, summary["cut_short"])
    reads = summary["restored"]["bytes_read"] if name == "reads.yaml" else summary["evaluation"]["bytes_read"]
    assert reads > 0, "figures of what was done"
    report = run("dlio-hpc", "report", job.job["archive"])
    assert report.code == 7
    assert report.out.startswith("Not measured: Incomplete: ")
    assert f"stopped before the time limit: {summary['cut_short']}" in " ".join(report.out.split())


def test_a_generation_that_takes_too_long_is_incomplete(run: Run, small: Path) -> None:
    done = run(
        "dlio-submit",
        small,
        "--wait",
        "--json",
        "-t",
        "4s",
        "--generate",
        "only",
        "-S",
        "dataset.files=200000",
        "-d",
        "data",
    )
    assert done.code == 7
    assert done.job["state"] == "timeout"
    assert "the time limit is near" in done.job["runs"][0]["error"]["message"]


def test_ranks_that_hear_nothing_are_ended_at_the_limit(run: Run, small: Path) -> None:
    """A step takes half a minute: the ranks miss the early warning and are ended at the limit."""
    options = ("-t", "4s", "-S", "reader.preprocess_time=30s", "-S", "reader.prefetch=0")
    done = run("dlio-submit", small, "--wait", "--json", *options)
    assert done.code == 7
    assert done.job["state"] == "timeout"
    assert not _ranks_of(Path(done.job["directory"]))


def test_a_job_whose_folder_is_taken_away_does_not_end_the_watching(run: Run, small: Path, tmp_path: Path) -> None:
    kept, gone = (
        Path(run("dlio-submit", small, "-s", "local", "-S", "compute.time=1s", "--json").job["directory"]) for _ in "ab"
    )
    watcher = subprocess.Popen(
        [BIN / "dlio-hpc", "wait", kept, gone, "--json"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    time.sleep(3)
    gone.rename(tmp_path / "elsewhere")
    out, err = watcher.communicate(timeout=60)
    assert [job["state"] for job in json.loads(out)["jobs"]] == ["completed"]
    assert watcher.returncode == 7
    assert f"{gone} was removed" in err
    assert run("dlio-hpc", "cancel", tmp_path / "elsewhere").code == 0


def test_a_warning_in_the_last_step_changes_nothing(run: Run, small: Path) -> None:
    """The file stop appears during the only step."""
    late = "(while [ ! -e runs/01-measure ]; do sleep 0.05; done; sleep 1.2; echo late > stop) &"
    setup = "-S", f"site.setup={json.dumps([late])}"
    options = ("-S", "train={epochs: 1, steps: 1}", "-S", "compute.time=2s", "-S", "checkpoint={every_steps: 1}")
    job = _submit(run, small, *setup, *options, "-t", "20s")
    assert job["state"] == "completed"
    assert _result(job)["summary"]["checkpoint"]["count"] == 1


def test_a_file_system_that_refuses_the_exit_status_is_asked_again(run: Run, small: Path) -> None:
    """The stand-in for sleep removes the obstacle before the second attempt."""
    lines = ["mkdir .exit_status.tmp", 'sleep() { rmdir "$job/.exit_status.tmp"; }']
    job = _submit(run, small, "-d", "data", "-S", f"site.setup={json.dumps(lines)}")
    assert job["state"] == "completed"
    assert "Is a directory" in Path(job["directory"], "job.err").read_text()


def test_a_second_signal_does_not_lose_the_exit_status(run: Run, small: Path) -> None:
    """The signal arrives while the script writes the file; a trap of the site would end the script."""
    lines = ["trap 'exit 7' HUP", 'mv() { kill -HUP $$; command mv "$@"; }', "exit 7"]
    job = _submit(run, small, "-d", "data", "-S", f"site.setup={json.dumps(lines)}", code=6)
    assert job["state"] == "failed"
    assert (Path(job["directory"]) / "exit_status").read_text() == "7\n"


def test_a_job_without_an_exit_status_is_lost_and_names_its_messages(run: Run, small: Path) -> None:
    """The script can write its exit status nowhere, so that it is unknown whether it came to its end."""
    lines = ["mkdir .exit_status.tmp", "sleep() { :; }", "spare=/dev/null/spare"]
    done = run("dlio-submit", small, "-s", "local", "-d", "data", "-S", f"site.setup={json.dumps(lines)}", "--wait")
    assert done.code == 7
    assert "ended as lost" in done.err
    assert "see job.err and job.out in " in done.err


def test_a_profile_for_a_computer_without_a_batch_system(run: Run, small: Path, tmp_path: Path) -> None:
    """Slurm's commands may be installed here; without a controller that answers, they do not count. The configuration
    names a port of nobody: without a configuration, Slurm's commands wait for one for a minute.
    """
    settings = tmp_path / "slurm.conf"
    settings.write_text(
        "ClusterName=none\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\nAuthType=auth/none\n"
        "NodeName=n1\nPartitionName=p Nodes=n1\n"
    )
    alone = {"SLURM_CONF": str(settings), "PATH": f"{BIN}:/usr/bin:/bin"}
    assert run("dlio-hpc", "sites", "new", "laptop", **alone).code == 0
    text = (tmp_path / "laptop.yaml").read_text()
    assert "scheduler: local" in text
    assert "# MPI of" in text
    assert "MPICH Version" in text
    assert run("dlio-submit", small, "-s", "./laptop.yaml", "-d", "data", "--wait").code == 0
    assert run("dlio-hpc", "sites", "new", "a b").code == 2
    again = run("dlio-hpc", "sites", "new", "laptop", **alone)
    assert again.code == 2
    assert "laptop.yaml already exists" in again.err
    shown = run("dlio-hpc", "sites", "new", "other", "--to", "-", **alone)
    assert shown.out.startswith("# other: written by dlio-hpc")


def test_generating_first_needs_a_queue(run: Run, small: Path, tmp_path: Path) -> None:
    done = run("dlio-submit", small, "-s", "local", "--generate", "separate")
    assert done.code == 2
    assert "site local has no queue to hold a job" in done.err
    assert not (tmp_path / "dlio-runs").exists()
    job = run("dlio-submit", small, "-s", "local", "--json").job["directory"]
    done = run("dlio-submit", small, "-s", "local", "--after", job)
    assert done.code == 2 or "submitted" in done.err, "unless the first has ended"
    assert run("dlio-hpc", "wait", job).code == 0


def test_runs_that_cannot_fit_into_the_time_are_refused(run: Run, small: Path, tmp_path: Path) -> None:
    done = run("dlio-submit", small, "-t", "4s", "-S", "compute.time=1s", "--warmup", 1, "--repeat", 5)
    assert done.code == 2
    assert "the runs of this job compute for at least 0:00:24" in done.err
    assert "fewer runs (--repeat, --warmup)" in done.err
    assert not (tmp_path / "dlio-runs").exists()
    tight = run("dlio-submit", small, "-t", "28s", "-S", "compute.time=1s", "--repeat", 5, "--dry-run", "-v")
    assert tight.code == 0


def test_gaps_between_runs_are_recorded(run: Run, small: Path) -> None:
    results = [entry["result"] for entry in _submit(run, small, "--warmup", 1, "--repeat", 2)["runs"]]
    assert results[0]["gap_s"] is None
    for before, after in itertools.pairwise(results):
        assert 0 < after["gap_s"] < 30
        assert before["ended"] < after["started"]


def test_a_job_that_was_killed_outright_is_lost(run: Run, small: Path, tmp_path: Path) -> None:
    directory = _kill_submitter(small, tmp_path)
    group = int(json.loads((directory / "job.json").read_bytes())["batch_id"].split(".")[0])
    os.killpg(group, signal.SIGKILL)
    deadline = time.monotonic() + 20
    while "lost" not in run("dlio-hpc", "status", directory).out and time.monotonic() < deadline:
        time.sleep(0.1)
    lost = run("dlio-hpc", "wait", directory, "--json")
    assert lost.code == 7
    assert lost.job["state"] == "lost"
    assert lost.job["archive"]


def _ranks_of(directory: Path) -> list[int]:
    """Wait a little for processes that work in the job's directory to end; return those that remain."""
    pids: list[int] = []
    for _ in range(50):
        pids = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if Path(os.readlink(process / "cwd")) == directory:
                    pids.append(int(process.name))
            except OSError:
                continue
        if not pids:
            break
        time.sleep(0.1)
    return pids


def test_the_script_can_be_run_again_by_hand(run: Run, small: Path) -> None:
    job = _submit(run, small)
    directory = Path(job["directory"])
    first = json.loads((directory / "runs/01-measure/result.json").read_bytes())
    done = subprocess.run(["bash", directory / "job.sh"], capture_output=True, text=True, check=True, cwd="/")
    assert "01-measure" in done.stdout
    second = json.loads((directory / "runs/01-measure/result.json").read_bytes())
    assert second["summary"]["samples"] == first["summary"]["samples"]
    assert second["summary"]["wall_s"] != first["summary"]["wall_s"]
    generated = json.loads((directory / "runs/00-generate/result.json").read_bytes())["generated"]
    assert generated["reused"]


@pytest.mark.job
def test_the_null_workload_reads_nothing(run: Run) -> None:
    job = _submit(run, Path("null"), "--ppn", 2, "-S", "dataset.files=10")
    summary = _result(job)["summary"]
    assert (summary["samples"], summary["reads"], summary["bytes_read"], summary["opens"]) == (1000, 1000, 0, 0)
    assert [entry["kind"] for entry in job["runs"]] == ["measure"]
    assert summary["au"] < 0.5


def test_framework_mode_counts_what_numpy_really_reads(run: Run, small: Path) -> None:
    job = _submit(run, small, "--ppn", 2, "-S", "reader.mode=framework", "-S", "reader.shuffle={}")
    summary = _result(job)["summary"]
    assert summary["samples"] == SAMPLES * EPOCHS
    assert summary["bytes_read"] >= SAMPLES * SAMPLE_BYTES * EPOCHS
    assert summary["overhead_bytes_read"] > 0


def test_drop_last_and_steps_read_less_and_say_so(run: Run, small: Path) -> None:
    summary = _result(_submit(run, small, "-S", "reader.drop_last=true"))["summary"]
    assert summary["samples"] == 4 * 4 * EPOCHS, "a step of four samples on four ranks of seven"
    summary = _result(_submit(run, small, "-S", "train.steps=1"))["summary"]
    assert summary["samples"] == 16 * EPOCHS


def test_a_wrong_number_of_ranks_is_noticed(run: Run, small: Path) -> None:
    job = _submit(run, small)
    core: list[str | Path] = [BIN / "python", "-m", "mpi4py", "-m", "dlio_hpc.core", "plan.json", "--run", "1"]
    for command in (core, [BIN / "mpiexec", "-n", "2", *core]):
        done = subprocess.run(command, cwd=job["directory"], capture_output=True, text=True, check=False)
        assert done.returncode == 6
        assert "the plan is for 4 ranks, but MPI started" in done.stderr
        assert "Traceback" not in done.stderr


# A rank that cannot read one of its modules; hydra numbers ranks so.
_BROKEN = """
import os, runpy, sys

class Broken:
    def find_spec(self, name, *_):
        if name == "dlio_hpc.core.run" and os.environ["PMI_RANK"] == "1":
            raise OSError(116, "Stale file handle", "/shared/run.py")

sys.meta_path.insert(0, Broken())
sys.argv = ["core", "plan.json", "--run", "1"]
runpy.run_module("dlio_hpc.core", run_name="__main__")
"""


def test_a_rank_that_does_not_start_ends_the_others(run: Run, small: Path) -> None:
    """The other ranks would wait in MPI_Init for ever."""
    job = _submit(run, small)
    command: list[str | Path] = [BIN / "mpiexec", "-n", "4", BIN / "python", "-c", _BROKEN]
    done = subprocess.run(command, cwd=job["directory"], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode != 0
    assert "does not start: /shared/run.py: Stale file handle" in done.stderr
    assert "Traceback" not in done.stderr


def test_names_and_paths_that_bite(run: Run, small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a 'b' \"c\" $(touch owned)\nd"
    folder.mkdir()
    job = _submit(run, small, "-S", "name='x; touch owned'", "-d", folder / "da ta", "-o", folder / "ru ns")
    assert job["state"] == "completed"
    assert Path(job["directory"]).parent == folder / "ru ns"
    assert not list(tmp_path.rglob("owned"))
    assert run("dlio-hpc", "report", job["archive"]).code == 0


def _generated(run: Run, small: Path, *options: object) -> Path:
    job = _submit(run, small, "-d", "data", "--generate", "only", *options)
    return Path(_result(job, "generate")["generated"]["dataset"])


def _site(run: Run, tmp_path: Path, **changes: str) -> Path:
    """The local site with lines replaced: launcher options by key."""
    text = run("dlio-hpc", "sites", "local").out
    for key, value in changes.items():
        lines = [
            f"{line.split(key + ':')[0]}{key}: {value}" if f"{key}:" in line else line for line in text.splitlines()
        ]
        text = "\n".join(lines)
    path = tmp_path / "site.yaml"
    path.write_text(text)
    return path


def test_a_job_that_started_nothing_is_not_a_success(run: Run, small: Path, tmp_path: Path) -> None:
    done = run("dlio-submit", small, "-s", _site(run, tmp_path, command="/bin/true"), "--wait", "--json")
    assert done.code == 3
    assert done.job["state"] == "completed"
    assert "00-generate, 01-measure left no result" in done.err


def test_a_failing_rank_does_not_wait_for_threads_that_are_stuck(run: Run, small: Path) -> None:
    options = ("-S", "reader.shuffle={}", "-S", "reader.batch_size=5")
    folder = _generated(run, small)
    os.truncate(folder / "00000000.npz", 5000)
    (folder / "00000001.npz").unlink()
    os.mkfifo(folder / "00000001.npz")  # opening it never returns, as with a storage server that is gone
    started = time.monotonic()
    job = _submit(run, small, "-d", "data", "--ppn", 2, *options, code=3)
    assert time.monotonic() - started < 30
    assert "00000000.npz ends at byte 5000" in job["runs"][-1]["error"]["message"]


def _process_below(leader: int, name: str) -> int:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            command, fields = (
                (entry / "comm").read_text().strip(),
                (entry / "stat").read_text().rpartition(")")[2].split(),
            )
        except OSError:
            continue
        if command == name and int(fields[3]) == leader:
            return int(entry.name)
    raise AssertionError(f"no {name} in session {leader}")


def _leader(directory: Path) -> int:
    return int(json.loads((directory / "job.json").read_bytes())["batch_id"].split(".")[0])


def test_a_job_lives_as_long_as_any_of_its_processes(run: Run, small: Path, tmp_path: Path) -> None:
    directory = _kill_submitter(small, tmp_path)
    os.kill(_leader(directory), signal.SIGKILL)
    assert "running" in run("dlio-hpc", "status", directory).out
    assert run("dlio-hpc", "collect", directory).code == 7
    waited = run("dlio-hpc", "wait", directory, "--json")
    assert waited.code == 0
    assert waited.job["state"] == "completed"


def test_ranks_without_a_script_can_be_cancelled(run: Run, small: Path, tmp_path: Path) -> None:
    directory = _kill_submitter(small, tmp_path)
    os.kill(_process_below(_leader(directory), "bash"), signal.SIGKILL)
    assert "running" in run("dlio-hpc", "status", directory).out
    assert "cancelling" in run("dlio-hpc", "cancel", directory).out
    assert not _ranks_of(directory)
    assert "cancelled" in run("dlio-hpc", "status", directory).out, "as it was asked to be"


def test_a_lost_job_that_turns_up_is_believed(run: Run, small: Path) -> None:
    directory = Path(_submit(run, small)["directory"])
    record = json.loads((directory / "job.json").read_bytes())
    record["states"][-1]["state"] = "lost"
    (directory / "job.json").write_text(json.dumps(record))
    assert "completed" in run("dlio-hpc", "status", directory).out


def test_two_jobs_that_need_one_dataset_make_it_once(run: Run, small: Path, tmp_path: Path) -> None:
    options = ["-d", "data", "-S", "dataset.files=300", "--json"]
    command: list[object] = ["dlio-submit", small, "-s", "local", *options]
    directories = [run(*command).job["directory"] for _ in range(2)]
    results = [run("dlio-hpc", "wait", directory, "--json") for directory in directories]
    assert [done.code for done in results] == [0, 0]
    assert sorted(_result(done.job, "generate")["generated"]["reused"] for done in results) == [False, True]


def test_setup_lines_may_move_and_fail(run: Run, small: Path, tmp_path: Path) -> None:
    moved = _site(
        run, tmp_path, setup="['cd /', 'export FROM_SETUP=1', '[ -d /nope ] && echo', 'f() { false; :; }', f]"
    )
    done = run("dlio-submit", small, "-s", moved, "--wait", "--json")
    assert done.code == 0
    assert not any("site.setup" in note for note in done.job["notes"])
    failing = _site(run, tmp_path, setup="['exit 5']")
    done = run("dlio-submit", small, "-s", failing, "--wait", "--json")
    assert done.code == 6
    assert done.job["state"] == "failed"
    assert "site.setup: the line 'exit 5' failed with exit status 5" in done.err


def test_setup_lines_that_fail_are_reported(run: Run, small: Path, tmp_path: Path) -> None:
    lines = ["cd /nope", "f() { false; return 3; }", "f 1", "module-nope load x", "false", "false", "export A=1"]
    done = run("dlio-submit", small, "-s", "local", "-S", f"site.setup={json.dumps(lines)}", "--wait")
    assert done.code == 0, done.err
    assert "But site.setup: the line 'cd /nope' failed with exit status 1, and 3 more lines failed" in done.out
    (job,) = (tmp_path / "dlio-runs").glob("*/job.json")
    expected = [
        "site.setup: the line 'cd /nope' failed with exit status 1",
        "site.setup: the line 'f 1' failed with exit status 3",
        "site.setup: the line 'module-nope load x' failed with exit status 127 (no such command)",
        "site.setup: the line 'false' failed with exit status 1",
    ]
    for place in (job.parent, *(tmp_path / "dlio-runs" / "archive").glob("*.tar.zst")):
        notes = run("dlio-hpc", "report", place, "--json").job["notes"]
        assert [note for note in notes if "site.setup" in note] == expected
    assert "the line 'f 1' failed with exit status 3." in run("dlio-hpc", "status").out
    checked = run("dlio-hpc", "check", small, "-s", "local", "-S", "site.setup=[cd /nope]")
    assert checked.code == 0
    assert "note   setup         site.setup: the line 'cd /nope' failed with exit status 1" in checked.out


@pytest.mark.parametrize("lines", [["set -e", "cd /nope"], ["set -u", "echo $NOPE"]])
def test_a_setup_line_that_ends_the_job_is_reported_once(run: Run, small: Path, lines: list[str]) -> None:
    done = run("dlio-submit", small, "-s", "local", "-S", f"site.setup={json.dumps(lines)}", "--wait")
    assert done.code == 6
    first = done.out.splitlines()[0]
    assert first.count(f"site.setup: the line '{lines[1]}' failed with exit status 1") == 1, first
    assert "No such file or directory" in first or "NOPE: unbound variable" in first
    assert "dlio-hpc report" not in first


def test_a_library_that_is_missing_where_the_ranks_start_ends_the_job(run: Run, small: Path, tmp_path: Path) -> None:
    """The loader of the system would only warn, and start the ranks without it."""
    mine = shutil.copy(library(), tmp_path / "mine.so")
    options = ("-S", f"site.preload=[{mine}]", "-S", f"site.setup=[rm {mine}]")
    done = run("dlio-submit", small, "-s", "local", *options, "--wait")
    assert done.code == 6
    assert f"site.preload: {mine}: No such file or directory on " in done.out.splitlines()[0]


def test_the_first_line_has_the_last_line_of_the_output(run: Run, small: Path) -> None:
    done = run("dlio-submit", small, "-s", "local", "-S", "site.launcher.options=[--nope]", "--wait")
    assert done.code == 6
    assert "ended as failed (exit status 255): " in done.out.splitlines()[0]
    assert "; see job.err and job.out in " in done.out.splitlines()[0]


def test_secrets_stay_out_of_the_record(run: Run, small: Path) -> None:
    done = run("dlio-submit", small, "--wait", "--json", SLURM_JWT="topsecret", SLURM_JOB_ID="77", OMP_NUM_THREADS="3")
    text = (Path(done.job["directory"]) / "environment.json").read_text()
    assert "topsecret" not in text
    variables = json.loads(text)["variables"]
    assert (variables["SLURM_JOB_ID"], variables["OMP_NUM_THREADS"]) == ("77", "3")
    assert variables["OPENBLAS_NUM_THREADS"] == "1"


def test_what_was_left_out_is_said(run: Run, small: Path) -> None:
    job = _submit(run, small, "--ppn", 3, "-S", "reader.drop_last=true")
    summary = _result(job)["summary"]
    assert summary["samples_left_out"] == 6 * EPOCHS
    assert "left out  6 samples per epoch (reader.drop_last)" in run("dlio-hpc", "report", job["archive"]).out


def _hold_without_an_archive(run: Run, job: dict[str, Any]) -> None:
    """Check that a result that was changed after collecting is refused if the archive is damaged or missing, too."""
    directory, archive = job["directory"], Path(job["archive"])
    content = archive.read_bytes()
    for damaged, why in ((content[:2000], "is damaged"), (None, "is missing")):
        archive.unlink()
        if damaged is not None:
            archive.write_bytes(damaged)
        changed = run("dlio-hpc", "report", directory)
        assert (changed.code, why in changed.out) == (InvalidRun.exit_code, True), changed.out
        collected = run("dlio-hpc", "collect", directory)
        assert (collected.code, why in collected.err) == (InvalidRun.exit_code, True), collected.err
        assert archive.exists() == (damaged is not None), "the damaged archive is where it was"
    archive.write_bytes(content)


def test_a_result_that_was_changed_after_collecting_is_invalid(run: Run, small: Path) -> None:
    job = _submit(run, small)
    assert run("dlio-hpc", "report", job["directory"]).code == 0
    (result,) = Path(job["directory"]).glob("runs/*-measure/result.json")
    sound = result.read_bytes()
    result.write_bytes(sound + b"\n")
    changed = run("dlio-hpc", "report", job["directory"])
    assert changed.code == InvalidRun.exit_code
    assert "result.json was changed after the job was collected; its archive has the original" in changed.out
    assert run("dlio-hpc", "report", job["archive"]).code == 0
    _hold_without_an_archive(run, job)
    result.write_bytes(sound)
    subprocess.run(["bash", Path(job["directory"]) / "job.sh"], capture_output=True, check=True)
    assert run("dlio-hpc", "report", job["directory"]).code == 0, "the job ran again"


def test_a_job_whose_batch_id_was_not_recorded_was_accepted(run: Run, small: Path) -> None:
    """A full disk can keep the batch id from being recorded; the script then fails as well."""
    directory = Path(_submit(run, small)["directory"])
    record = json.loads((directory / "job.json").read_bytes())
    (directory / "job.json").write_text(json.dumps(record | {"batch_id": None, "states": record["states"][:1]}))
    (directory / "exit_status").write_text("1\n")
    for result in directory.glob("runs/*/result.json"):
        result.unlink()
    failed = run("dlio-hpc", "report", directory)
    assert failed.code == InfrastructureError.exit_code, failed.out
    assert "was not accepted" not in failed.out
    assert "failed (exit status 1)" in failed.out


def test_a_rerun_after_collecting_is_noticed(run: Run, small: Path) -> None:
    job = _submit(run, small)
    (Path(job["directory"]) / "note").write_text("by hand")
    before = Path(job["archive"]).read_bytes()
    changed = run("dlio-hpc", "collect", job["directory"])
    assert changed.code == 0
    assert "has changed since it was archived; to archive it again, remove" in changed.err
    assert Path(job["archive"]).read_bytes() == before
    subprocess.run(["bash", Path(job["directory"]) / "job.sh"], capture_output=True, check=True)
    again = run("dlio-hpc", "collect", job["directory"])
    assert again.code == 0
    assert "the job ran again after it was archived" in again.err
    assert "attempts/1/runs/01-measure/result.json" in run("dlio-hpc", "archive", "list", job["archive"]).out


def test_a_job_that_could_not_be_started_has_failed(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = run("dlio-submit", small, "-s", "local", PATH=str(tmp_path / "bin"))
    assert done.code == 6
    assert "cannot start the job script with timeout(1)" in done.err
    assert "failed" in run("dlio-hpc", "status").out


def test_one_broken_job_does_not_hide_the_others(run: Run, small: Path, tmp_path: Path) -> None:
    good = _submit(run, small)["job"]
    sound = (tmp_path / "dlio-runs" / good / "job.json").read_bytes()
    broken = {
        "cut": b'{"job": ',
        "letters": b'{"job": "\xff"}',
        "empty": b"{}",
        "unknown": sound.replace(b'"local"', b'"cray"'),
        "stateless": sound[: sound.index(b'"states"')] + b'"states": []}',
        "odd": sound.replace(b'"completed"', b'"running"'),
    }
    for name, written in broken.items():
        (tmp_path / "dlio-runs" / name).mkdir()
        (tmp_path / "dlio-runs" / name / "job.json").write_bytes(written)
    for verb in ("status", "collect"):
        done = run("dlio-hpc", verb)
        assert done.code == 3
        assert good in done.out + done.err
        for name in ("cut", "letters", "empty", "unknown", "stateless"):
            assert f"dlio-runs/{name}/job.json" in done.err
    assert run("dlio-hpc", "report", tmp_path / "dlio-runs" / "odd").code == 2


def test_a_submission_that_was_interrupted_can_be_cancelled(run: Run, small: Path) -> None:
    directory = Path(_submit(run, small)["directory"])
    record = json.loads((directory / "job.json").read_bytes())
    record["batch_id"], record["states"] = None, record["states"][:1]
    (directory / "job.json").write_text(json.dumps(record))
    (directory / "exit_status").unlink()
    begun = (directory / "job.out").read_bytes()
    (directory / "job.out").unlink()
    waited = run("dlio-hpc", "wait", directory)
    assert waited.code == 7
    assert "was never submitted to the batch system" in waited.err
    (directory / "job.out").write_bytes(begun)
    assert "lost" in run("dlio-hpc", "status", directory).out, "it was begun, and there is no process of it"
    (directory / "job.json").write_text(json.dumps(record))
    (directory / "job.out").unlink()
    assert "cancelled before it was submitted" in run("dlio-hpc", "cancel", directory).out
    assert "cancelled" in run("dlio-hpc", "status", directory).out


def test_a_rerun_that_fails_is_no_old_success(run: Run, small: Path) -> None:
    directory = Path(_submit(run, small)["directory"])
    plan = (directory / "plan.json").read_bytes()
    (directory / "plan.json").write_bytes(plan.replace(b'"schema": 1', b'"schema": 1, "bogus": 2', 1))
    command: list[str | Path] = ["bash", directory / "job.sh"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 3
        assert "unknown key 'bogus'" in done.stderr
        assert "Traceback" not in done.stderr
    (directory / "plan.json").write_bytes(plan)
    report = run("dlio-hpc", "report", directory)
    assert report.code == 6
    assert re.search("^state +failed", report.out, re.MULTILINE)
    assert "samples/s" not in report.out


def test_collecting_all_passes_over_what_still_runs(run: Run, small: Path, tmp_path: Path) -> None:
    done = _submit(run, small)["job"]
    directory = _kill_submitter(small, tmp_path)
    collected = run("dlio-hpc", "collect")
    assert collected.code == 0
    assert f"{directory.name}: running, not collected yet" in collected.err
    assert f"already archived: {tmp_path}/dlio-runs/archive/{done}.tar.zst" in collected.err
    assert run("dlio-hpc", "wait", directory).code == 0


def test_waiting_for_anothers_dataset_is_said(run: Run, small: Path, tmp_path: Path) -> None:
    folder = _generated(run, small)
    with rundir.locked_file(dataset_folder.lock_file(folder)):
        job = run("dlio-submit", small, "-s", "local", "-d", "data", "--json").job
        out = Path(job["directory"]) / "job.out"
        deadline = time.monotonic() + 30
        while "waiting for another job that generates" not in out.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert f"waiting for another job that generates {folder}" in out.read_text()
    assert run("dlio-hpc", "wait", job["directory"]).code == 0


_STALE = {
    "Slurm": {
        "SLURM_JOB_ID": "77",
        "SLURM_JOB_NODELIST": "nid[1-2]",
        "SLURM_NODELIST": "nid[1-2]",
        "SLURM_NNODES": "2",
    },
    "PMIx": {"PMIX_NAMESPACE": "slurm.pmix.77.0", "PMIX_RANK": "0"},
    "PMI": {"PMI_FD": "77", "PMI_RANK": "0", "PMI_SIZE": "2", "MPIR_CVAR_PMI_VERSION": "2"},
    "PBS": {"PBS_NODEFILE": "/missing", "PBS_JOBID": "12.server", "PBS_ENVIRONMENT": "PBS_BATCH"},
    "Flux": {"FLUX_URI": "local:///missing", "FLUX_JOB_ID": "123"},
    "Cobalt": {"COBALT_NODEFILE": "/missing"},
    "hydra": {"HYDRA_LAUNCHER": "slurm", "HYDRA_HOST_FILE": "/missing", "HYDRA_RMK": "pbs", "MPIEXEC_TIMEOUT": "1"},
}


@pytest.mark.job
@pytest.mark.parametrize("system", _STALE)
def test_variables_of_a_surrounding_job_are_ignored_and_told(run: Run, small: Path, system: str) -> None:
    stale = _STALE[system]
    kept = {"OMPI_MCA_btl": "self", "PMIX_MCA_gds": "hash"}
    dump = ("-S", "site.setup=['env > setup.env']")
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, *dump, "--wait", "--json", **stale, **kept)
    assert done.code == 0, done.err
    (note,) = [line for line in done.err.splitlines() if "ignores them" in line]
    name = next(iter(stale))
    name = {"PMI_FD": "PMI_RANK", "FLUX_URI": "FLUX_JOB_ID", "PBS_NODEFILE": "PBS_JOBID"}.get(name, name)
    name = {"HYDRA_LAUNCHER": "HYDRA_HOST_FILE"}.get(name, name)
    assert note.startswith(f"note: this shell has variables of {system} ({name}={stale[name]}), as inside a job;")
    result = _result(done.job)
    assert (result["ranks"], result["hosts"]) == (2, [os.uname().nodename])
    directory = Path(done.job["directory"])
    variable_names = {line.partition("=")[0] for line in (directory / "setup.env").read_text().splitlines()}
    assert not variable_names & stale.keys()
    assert variable_names >= kept.keys()
    variables = json.loads((directory / "environment.json").read_bytes())["variables"]
    recorded = [name for name in stale if name.startswith(("SLURM", "PBS", "FLUX", "COBALT", "PMIX", "HYDRA"))]
    assert [variables[name] for name in recorded] == [stale[name] for name in recorded]
    assert not [name for name in variables if "SURROUNDING" in name]


@pytest.mark.job
def test_a_script_that_is_run_by_hand_ignores_variables_of_a_surrounding_job(run: Run, small: Path) -> None:
    directory = Path(_submit(run, small, "--ppn", 2)["directory"])
    stale = {name: value for variables in _STALE.values() for name, value in variables.items()}
    done = subprocess.run(["bash", directory / "job.sh"], env=os.environ | stale, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.job
def test_the_preflight_names_variables_of_a_surrounding_job(run: Run, small: Path) -> None:
    done = run("dlio-hpc", "check", small, "-s", "local", **_STALE["PBS"])
    assert done.code == 0, done.out + done.err
    assert "of PBS (PBS_JOBID=12.server), as inside a job; the local job runs on this node alone" in done.out
    assert "2 ranks, started by mpiexec, communicated with each other" in done.out


def test_settings_are_no_surrounding_job(run: Run, small: Path) -> None:
    settings = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_TIME_FORMAT": "relative", "OMPI_MCA_btl": "self"}
    done = run("dlio-hpc", "check", small, "-s", "local", "--no-launch", **settings)
    assert "as inside a job" not in done.out


def test_the_launcher_of_a_batch_system_keeps_the_variables_of_its_job(run: Run, small: Path) -> None:
    own = run("dlio-submit", small, "-s", "local", "--dry-run")
    assert "SLURM_*" in own.out
    options = ("-S", "site.launcher.kind=srun", "-S", "site.launcher.command=sh")
    other = run("dlio-submit", small, "-s", "local", "--dry-run", *options)
    assert other.code == 0, other.err
    assert "unset" not in other.out
