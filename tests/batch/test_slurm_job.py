"""Whole jobs run on a real Slurm of four virtual nodes, which starts here from Debian's packages."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from ctypes.util import find_library
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from dlio_hpc.batch import jobscript
from dlio_hpc.config import shipped, site, workload
from tests.batch import test_environment_archive
from tests.conftest import BIN, Outcome, Run
from tests.support import boxed_ranks, cluster, planning, throttle
from tests.support.boxed_ranks import Boxed
from tests.support.cluster import Cluster
from tests.support.node_files import processes, ranks, shared
from tests.support.standins import libdarshan
from tests.support.standins.login import until

SAMPLES, SAMPLE_BYTES, EPOCHS = 30, 12_000, 2
# Many jobs share these nodes: not --exclusive, and half the CPUs of a rank's share.
_SHARED = ("-S", "site.job_options=[]")


@pytest.fixture
def on_slurm(run: Run, slurm: Cluster) -> Run:
    def call(*arguments: object, **environment: str) -> Outcome:
        return run(*arguments, **slurm.environment | environment)

    return call


def _submit(on_slurm: Run, workload: Path, *options: object, code: int = 0) -> Any:
    done = on_slurm("dlio-submit", workload, "-s", "slurm", "-d", "data", "-t", "5m", "--wait", "--json", *options)
    assert done.code == code, done.err
    return done.job


@pytest.mark.parametrize("mode", ["posix", "torch_distributed"])
def test_checkpoints_are_read_by_the_next_node(on_slurm: Run, tmp_path: Path, mode: str) -> None:
    workload = tmp_path / "big.yaml"
    workload.write_text(
        "name: big\ncheckpoint: {model: llama3_8b, writes: 2, reads: 2, keep: 2, reorder: 1, verify: true, "
        f"transfer_size: 64 KiB, mode: {mode}}}\n"
    )
    job = _submit(on_slurm, workload, "-N", 2, "--ppn", 2, "--dataset-size", "24MB")
    result = job["runs"][-1]["result"]
    assert result["hosts"] == ["n1", "n2"]
    saved, restored = result["summary"]["checkpoint"], result["summary"]["restored"]
    assert (saved["count"], restored["count"]) == (2, 2)
    if mode == "posix":
        assert restored["bytes_read"] == saved["bytes_written"]
        assert 46e6 < restored["bytes_read"] <= 48e6
    else:
        # The files have headers, and each of the four ranks reads .metadata.
        assert 46e6 < saved["bytes_written"] < restored["bytes_read"] < 62e6
    assert restored["verify_s"] > 0, "each rank read the files of the rank with its number on the other node"
    report = on_slurm("dlio-hpc", "report", job["archive"]).out
    assert report.count("no effect") == (mode != "posix"), "transfer_size alone, which a library ignores"


def test_a_run_on_two_nodes_is_shown_on_the_login_node(on_slurm: Run, small: Path) -> None:
    directory = _started(on_slurm, small, "-N", 2, "--ppn", 2, *_SHARED, "-S", "reader.batch_size=1")
    shown = on_slurm("dlio-hpc", "top", directory, "--json", "--every", "0.5")
    assert shown.code == 0, shown.err
    runs = [job["run"] for job in map(json.loads, shown.out.splitlines()) if job["run"] is not None]
    assert max(one["ranks"] for one in runs) == 4
    assert list(directory.glob("runs/*/live")) == []
    assert runs[-1]["done"] > 0
    assert runs[-1]["compute"] > 0.2, "a second in each step, beside other tests"


def _started(on_slurm: Run, workload: Path, *options: object) -> Path:
    """Return the directory of a job that runs its measured steps, a second each unless `options` differ."""
    options = ("-S", "compute.time=1s", *options)
    done = on_slurm("dlio-submit", workload, "-s", "slurm", "-d", "data", "-t", "5m", "--json", *options)
    assert done.code == 0, done.err
    directory = Path(done.job["directory"])
    assert done.job["batch_id"].isdigit()
    _until(lambda: "01-measure 1/" in _text(directory / "job.out"))
    return directory


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


_until = partial(until, patience_s=180)


def _states(directory: Path) -> list[str]:
    return [sighting["state"] for sighting in json.loads((directory / "job.json").read_bytes())["states"]]


def test_two_nodes_with_four_ranks_each_through_srun(on_slurm: Run, small: Path) -> None:
    job = _submit(on_slurm, small, "-N", 2, "--warmup", 1, "--repeat", 2)
    assert job["state"] == "completed"
    assert [entry["name"] for entry in job["runs"]] == ["00-generate", "01-warmup", "02-measure-1", "03-measure-2"]
    result = job["runs"][-1]["result"]
    assert (result["ranks"], result["nodes"], result["ranks_per_node"]) == (8, 2, 4)
    assert result["hosts"] == ["n1", "n2"]
    assert result["summary"]["samples"] == SAMPLES * EPOCHS
    assert result["summary"]["bytes_read"] == SAMPLES * SAMPLE_BYTES * EPOCHS
    assert 0 < result["gap_s"] < 30
    directory = Path(job["directory"])
    assert {"planned", "submitted", "completed"} <= set(_states(directory))
    assert on_slurm("dlio-hpc", "archive", "verify", job["archive"]).code == 0
    nodes = json.loads((directory / "environment.json").read_bytes())["nodes"]
    assert [node["host"] for node in nodes] == ["n1", "n2"]


def test_packages_are_imported_on_every_node(on_slurm: Run, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "torch.py").write_text(
        "import os\nif os.environ['SLURM_PROCID'] == '1':\n    raise ImportError('no libtorch.so here')\n"
    )
    options = ("-N", 2, "--ppn", 2, "-S", "reader.loader=pytorch")
    broken = ("-S", f"site.rank_environment.PYTHONPATH={tmp_path}")
    (error,) = (run["error"] for run in _submit(on_slurm, small, *_SHARED, *options, *broken, code=2)["runs"])
    assert "pytorch cannot be used on " in error["message"]
    assert "no libtorch.so here" in error["message"]
    assert not (tmp_path / "data").exists()
    job = _submit(on_slurm, small, *_SHARED, *options)
    assert "== packages\npytorch can be used on 2 of 2 nodes\n" in Path(job["directory"], "job.out").read_text()


def test_ranks_run_from_an_environment_on_their_node(on_slurm: Run, small: Path, tmp_path: Path) -> None:
    options = test_environment_archive.staging_options(tmp_path)
    job = _submit(on_slurm, small, *_SHARED, "-N", 2, "--ppn", 2, *options)
    assert job["state"] == "completed"
    test_environment_archive.check_staged(tmp_path, Path(job["directory"]))


def test_ranks_on_two_nodes_run_in_an_image(on_slurm: Run, small: Path, boxed: Boxed) -> None:
    options = ("-N", 2, "--ppn", 2, *boxed(), *boxed_ranks.VARIABLES)
    job = _submit(on_slurm, small, *_SHARED, *options)
    assert job["runs"][-1]["result"]["hosts"] == ["n1", "n2"]
    boxed_ranks.check(Path(job["directory"]))


def test_what_is_preloaded_reaches_the_ranks_alone(on_slurm: Run, small: Path) -> None:
    library = _library()
    setup = 'tr "\\0" "\\n" < /proc/$$/environ > script.environ; env > script.env'
    job = _submit(
        on_slurm, small, "-S", f"site.preload=[{library}]", "-S", "site.rank_environment={OMP_NUM_THREADS: '3'}",
        "-S", f"site.setup={json.dumps([setup])}",
    )  # fmt: skip
    directory = Path(job["directory"])
    ranks = json.loads((directory / "environment.json").read_bytes())["variables"]
    assert ranks["LD_PRELOAD"] == library
    assert ranks["OMP_NUM_THREADS"] == "3"
    for name in ("script.environ", "script.env"):
        assert "LD_PRELOAD" not in (directory / name).read_text()


def test_darshan_reaches_ranks_on_two_nodes(on_slurm: Run, small: Path, tmp_path: Path) -> None:
    _submit(on_slurm, small, "--generate", "only")
    darshan = ("-S", f"site.darshan={libdarshan.install(tmp_path / 'lib')}", "-S", libdarshan.rank_environment())
    setup = ("-S", f"site.setup={json.dumps(['env > script.env'])}")
    job = _submit(on_slurm, small, "-N", 2, *darshan, *setup)
    verdict, total = job["runs"][-1]["darshan"], SAMPLES * SAMPLE_BYTES * EPOCHS
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": total, "core": total, "planned": total}
    assert "DARSHAN_" not in (Path(job["directory"]) / "script.env").read_text()
    analysis = on_slurm("dlio-hpc", "report", job["archive"], "--json").job["runs"][-1]["analysis"]
    assert [rank["bytes_read"] > 0 for rank in analysis["by_rank"]] == [True] * 8


def _library() -> str:
    name = find_library("m")
    (first, *_) = [path for folder in ("/lib", "/usr/lib") for path in Path(folder).glob(f"*-linux-gnu/{name}")]
    return str(first)


def test_a_launcher_that_leaves_ranks_alone_is_noticed(on_slurm: Run, small: Path) -> None:
    """Without the process manager of the MPI library, srun starts each rank as a job of its own, and ends with 0."""
    job = _submit(on_slurm, small, "-S", "site.launcher.mpi=none", code=6)
    assert job["state"] == "failed"
    assert "the plan is for 4 ranks, but MPI started 1" in job["runs"][0]["error"]["message"]


def test_the_time_limit_is_announced_and_the_job_stops_cleanly(on_slurm: Run, small: Path) -> None:
    """Slurm's signal comes up to half a minute late here, and so does its check of the limit of a minute."""
    slow = ("-N", 2, "-t", "60s", "-S", "train.epochs=40", "-S", "reader.preprocess_time=1")
    done = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", "--wait", "--json", *slow)
    assert done.code == 7, done.err
    assert done.job["state"] == "timeout"
    directory = Path(done.job["directory"])
    assert (directory / "exit_status").read_text() == "124\n"
    assert "time limit near, 15 s left: stopping" in (directory / "job.out").read_text()
    summary = done.job["runs"][-1]["result"]["summary"]
    assert 0 < summary["steps"] < summary["steps_planned"]
    assert "stopped before the time limit" in on_slurm("dlio-hpc", "report", done.job["archive"]).out


def test_a_warning_while_the_dataset_is_written(on_slurm: Run, slurm: Cluster, small: Path, tmp_path: Path) -> None:
    """The rank that hears the warning ends all; srun returns the code of those that were killed for it."""
    many = ("-N", 2, "-S", "dataset.files=20000", "--json", "-t", "10m")
    directory = Path(on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", *many).job["directory"])
    _until(lambda: "00-generate " in _text(directory / "job.out"))
    slurm.tell("scancel", "-b", "-s", "USR1", json.loads((directory / "job.json").read_bytes())["batch_id"])
    waited = on_slurm("dlio-hpc", "wait", directory, "--json")
    assert (waited.code, waited.job["state"]) == (7, "timeout")
    assert "the time limit is near" in waited.job["runs"][0]["error"]["message"]


def test_variables_of_the_shell_do_not_change_the_job(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    stray = {
        "SBATCH_PARTITION": "batch",
        "SBATCH_TIMELIMIT": "3",
        "SBATCH_JOB_NAME": "mine",
        "SQUEUE_PARTITION": "batch",
    }
    options = ("-q", "standard", "-t", "5m", "-J", "--begin=now+1hour", "--json")
    job = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", *options, **stray).job
    assert slurm.tell("squeue", "-h", "-o", "%P %l %j", "-j", job["batch_id"]) == f"standard 5:00 {job['job']}"
    assert "queued" in on_slurm("dlio-hpc", "status", job["directory"], **stray).out
    assert on_slurm("dlio-hpc", "cancel", job["directory"]).code == 0


def test_why_a_job_ended_is_not_guessed_while_slurm_does_not_answer(
    on_slurm: Run, slurm: Cluster, small: Path, tmp_path: Path
) -> None:
    """Exit code 137 is a KILL; only Slurm knows who sent it."""
    options = ("-S", "site.setup=['exit 137']", "--json")
    directory = Path(on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", *options).job["directory"])
    _until((directory / "exit_status").exists)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "squeue").write_text("#!/bin/sh\necho Unable to contact slurm controller >&2; exit 1\n")
    (tmp_path / "bin" / "squeue").chmod(0o755)
    blind = on_slurm("dlio-hpc", "status", directory, PATH=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert blind.code == 6
    assert f"{directory.name}  failed" not in blind.out
    _until(lambda: f"{directory.name}  failed " in on_slurm("dlio-hpc", "status", directory).out)
    assert "(FAILED NonZeroExitCode)" in on_slurm("dlio-hpc", "status", directory).out


def test_a_job_is_not_cancelled_in_the_middle_of_its_submission(on_slurm: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sbatch").write_text('#!/bin/sh\nsleep 3; exec /usr/bin/sbatch "$@"\n')
    (tmp_path / "bin" / "sbatch").chmod(0o755)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(
            on_slurm, "dlio-submit", small, "-s", "slurm", "-d", "data", "-S", "compute.time=1s", "--json",
            PATH=f"{tmp_path}/bin:{os.environ['PATH']}",
        )  # fmt: skip
        _until(lambda: list(tmp_path.glob("dlio-runs/*/job.json")))
        time.sleep(0.5)
        assert "planned" in on_slurm("dlio-hpc", "status").out
        assert "cancelling" in on_slurm("dlio-hpc", "cancel", "--all").out
    assert slow.result().code == 0
    (directory,) = (path.parent for path in tmp_path.glob("dlio-runs/*/job.json"))
    waited = on_slurm("dlio-hpc", "wait", directory, "--json")
    assert (waited.code, waited.job["state"]) == (7, "cancelled")
    assert json.loads((directory / "job.json").read_bytes())["cancel_asked"]


KILLED = [
    "slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have been OOM Killed.",
    "slurmstepd-n2: error: StepId=9.0 exceeded memory limit (428302336 > 52428800), being killed",
    "slurmstepd-n2: error: Exceeded job memory limit",
]


@pytest.mark.parametrize("message", KILLED, ids=["cgroup", "OverMemoryKill", "OverMemoryKill of a job"])
def test_a_rank_that_is_killed_for_its_memory(on_slurm: Run, small: Path, message: str) -> None:
    """The job prints what slurmstepd prints when it fails a step; these nodes limit no memory."""
    options = ("-S", f"site.setup={json.dumps([f'echo {message!r} >&2', 'exit 1'])}", "--wait", "--json")
    done = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", *options)
    assert done.job["state"] == "out_of_memory"
    assert done.code == 6


def test_a_job_cancelled_after_its_warning_is_cancelled(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    options = ("-S", "compute.time=20s", "-t", "5m", "--json")
    directory = Path(on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", *options).job["directory"])
    _until((directory / "runs" / "01-measure").exists)
    slurm.tell("scancel", "-b", "-s", "USR1", json.loads((directory / "job.json").read_bytes())["batch_id"])
    _until((directory / "stop").exists)
    assert on_slurm("dlio-hpc", "cancel", directory).code == 0
    assert on_slurm("dlio-hpc", "wait", directory, "--json").job["state"] == "cancelled"


def test_a_limit_that_was_raised_is_the_limit(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    """A job cancelled after its first limit is not over its time."""
    pause = "touch begun; for second in {1..300}; do sleep 1; done"
    options = ("-t", "1m", "-S", f"site.setup={json.dumps([pause])}", *_SHARED, "--json")
    directory = Path(on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", *options).job["directory"])
    _until((directory / "begun").exists)
    batch_id = json.loads((directory / "job.json").read_bytes())["batch_id"]
    slurm.tell("scontrol", "update", f"jobid={batch_id}", "timelimit=10")
    time.sleep(62)
    slurm.tell("scancel", batch_id)
    _until((directory / "exit_status").exists)
    assert _text(directory / "exit_status") == "143\n"
    _until(lambda: "  cancelled  " in on_slurm("dlio-hpc", "status", directory).out)


def test_a_job_that_is_requeued_is_live_again(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    """Results of its first attempt are kept apart, in the directory and in the archive."""
    job = _submit(on_slurm, small, "-J", "--requeue", *_SHARED)
    directory = Path(job["directory"])
    batch_id = json.loads((directory / "job.json").read_bytes())["batch_id"]
    first = (directory / "runs/01-measure/result.json").read_bytes()
    _until(lambda: "JobState=COMPLETED " in slurm.tell("scontrol", "show", "job", batch_id))  # not COMPLETING
    assert slurm.tell("scontrol", "requeue", batch_id) == ""
    # Slurm starts a requeued job after two minutes. slurmd refuses a job that starts in the second in which it ended.
    assert slurm.tell("scontrol", "update", f"jobid={batch_id}", "starttime=now+2") == ""
    _until((directory / "attempts/1/exit_status").exists)
    waited = on_slurm("dlio-hpc", "wait", directory, "--json")
    assert (waited.code, waited.job["state"]) == (0, "completed")
    assert (directory / "attempts/1/runs/01-measure/result.json").read_bytes() == first
    assert (directory / "runs/01-measure/result.json").read_bytes() != first
    assert "the job ran again after it was archived" in waited.err
    listed = on_slurm("dlio-hpc", "archive", "list", job["archive"]).out
    assert "attempts/1/runs/01-measure/result.json" in listed
    assert _text(directory / "job.out").count("== 01-measure") == 2


def test_a_job_that_slurm_suspended_is_no_measurement(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    """Its ranks get SIGSTOP, and SIGCONT four seconds later. The watcher sees the state, too."""
    keys = ("-S", "train.epochs=12", "-S", "compute.time=200 ms", "--ppn", 2, "-N", 2)
    done = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", "-t", "5m", "--json", *keys)
    directory = Path(done.job["directory"])
    batch_id = json.loads((directory / "job.json").read_bytes())["batch_id"]
    _until(lambda: "== 01-measure" in _text(directory / "job.out"))
    time.sleep(3)  # until the ranks are in their steps, which take 5 s
    assert slurm.tell("scontrol", "suspend", batch_id) == ""
    assert "SUSPENDED" in on_slurm("dlio-hpc", "status", directory).out
    time.sleep(4)
    assert slurm.tell("scontrol", "resume", batch_id) == ""
    waited = on_slurm("dlio-hpc", "wait", directory, "--json")
    assert (waited.code, waited.job["state"]) == (7, "completed")
    report = on_slurm("dlio-hpc", "report", directory)
    assert report.code == 7
    assert report.out.startswith("Not measured: Incomplete: 01-measure is not a measurement: "), report.out[:200]
    (stop, *_) = waited.job["runs"][-1]["result"]["summary"]["interruptions"]
    assert (stop["kind"], stop["ranks"]) == ("stopped", 4)
    assert 3 < stop["seconds"] < 30
    states = json.loads((directory / "job.json").read_bytes())["states"]
    assert [state["text"] for state in states if state.get("suspended")] == ["SUSPENDED"]


def test_a_job_cancelled_behind_our_back(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    directory = _started(on_slurm, small)
    slurm.tell("scancel", json.loads((directory / "job.json").read_bytes())["batch_id"])
    waited = on_slurm("dlio-hpc", "wait", directory, "--json")
    assert (waited.code, waited.job["state"]) == (7, "cancelled")


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize("is_cancelled", [True, False], ids=["cancelled", "a rank is killed"])
def test_a_job_leaves_nothing_on_its_nodes(on_slurm: Run, small: Path, tmp_path: Path, is_cancelled: bool) -> None:
    """If a rank is killed, all nodes are cleared. Slurm starts nothing more in a job that it cancels: the first node is
    cleared then, and the other nodes by the next job.
    """
    recorder, log = tmp_path / "python", tmp_path / "log"
    recorder.write_text(f'#!/bin/sh\necho "$SLURMD_NODENAME $2" >> {log}\nexec {sys.executable} "$@"\n')
    recorder.chmod(0o755)
    directory = _started(on_slurm, small, "-N", 2, "--ppn", 2, *_SHARED, "-S", f"site.python={recorder}")
    left = shared(directory)
    assert left
    if is_cancelled:
        assert on_slurm("dlio-hpc", "cancel", directory).code == 0
    else:
        os.kill(ranks(directory)[0], signal.SIGKILL)
    _until((directory / "exit_status").exists)
    _until(lambda: not processes(directory))
    assert not [path for path in left if path.exists()]
    nodes = [node["host"] for node in json.loads((directory / "environment.json").read_bytes())["nodes"]]
    cleared = {line.split()[0] for line in _text(log).splitlines() if line.endswith("node_leftovers.py")}
    assert cleared == set(nodes[:1] if is_cancelled else nodes)


def test_a_node_that_goes_down(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    directory = _started(on_slurm, small, "-N", 2)
    try:
        slurm.tell("scontrol", "update", "nodename=n2", "state=down", "reason=test")
        waited = on_slurm("dlio-hpc", "wait", directory, "--json")
        assert waited.job["state"] == "node_fail"
        assert waited.code == 6
        assert "NODE_FAIL" in on_slurm("dlio-hpc", "status", directory).out
    finally:
        slurm.tell("scontrol", "update", "nodename=n2", "state=resume")
        slurm.wait_until(lambda: slurm.tell("sinfo", "-h", "-n", "n2", "-p", "debug", "-o", "%t") == "idle")


def test_limits_of_the_profile_are_checked_before_slurm_is_asked(on_slurm: Run, small: Path, tmp_path: Path) -> None:
    queues = "site.queues={tiny: {nodes: 1, walltime: {1: 0:05:00}, jobs: 1}}"
    for options, message in (
        (("-q", "tiny", "-N", 2), "--nodes 2: queue tiny of site slurm allows at most 1 per job"),
        (("-q", "tiny", "-t", "6m"), "--time 0:06:00: queue tiny of site slurm allows at most 0:05:00 for 1 node"),
        (("-S", "site.account_required=true"), "requires an account: --account NAME"),
        (("-S", "site.cpus=8", "-S", "site.depth=4"), "the ranks of a node need 16, but site slurm has 8"),
    ):
        done = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", "-t", "5m", "-S", queues, *options)
        assert done.code == 2
        assert message in done.err
    assert not (tmp_path / "dlio-runs").exists()
    waiting = ("dlio-submit", small, "-s", "slurm", "-d", "data", "-t", "5m", "-S", queues, "-q", "tiny",
               "-J", "--begin=now+1hour")  # fmt: skip
    assert on_slurm(*waiting).code == 0
    second = on_slurm(*waiting)
    assert second.code == 2
    assert "queue tiny of site slurm allows 1 job per user; you have 1" in second.err
    assert len(list((tmp_path / "dlio-runs").iterdir())) == 1
    qos = "site.queues={mine: {jobs: 1, options: [--partition=tiny]}, tiny: {jobs: 1}}"
    third = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", "-t", "5m", "-S", qos, "-q", "tiny")
    assert third.code == 2
    cancelled = on_slurm("dlio-hpc", "cancel", "--all")
    assert (cancelled.code, cancelled.out.count("cancelling")) == (0, 1)
    assert on_slurm("dlio-hpc", "cancel", "--all").out == "", "what has ended is left alone"


_STUDY = ("-s", "slurm", "-d", "data", "-S", "site.job_options=[]", "--seed", 3, "--json")


def test_sweeps_make_requests_of_the_sizes_asked_for(on_slurm: Run, small: Path) -> None:
    for kind, sweep, samples in (
        ("npz", "reader.transfer_size=4000,12000", {4000: 3, 12000: 1}),
        ("hdf5", "dataset.chunk=4000,12000", {4000: 3, 12000: 1}),
    ):
        done = on_slurm("dlio-submit", small, *_STUDY, "-S", f"dataset.format={kind}", "-N", 2, "-P", sweep, "--wait")
        assert done.code == 0, done.err
        (job,) = done.json["jobs"]
        assert [entry["kind"] for entry in job["runs"]].count("generate") == (1 if kind == "npz" else 2)
        plan_ = json.loads(Path(job["directory"], "plan.json").read_bytes())
        for run_, entry in zip(plan_["runs"], job["runs"], strict=True):
            if run_["point"] is None:
                continue
            size = int(plan_["titles"][str(run_["point"])].partition("=")[2].split()[0])
            with h5py.File(Path(job["directory"], "runs", entry["name"], "timeline.h5")) as file:
                counts, edges = (
                    np.array(file["request_sizes/counts"]).sum(axis=0),
                    np.array(file["request_sizes/edges"]),
                )
            (place,) = np.flatnonzero(counts)
            assert edges[place] <= size < edges[place + 1]
            assert counts[place] == SAMPLES * EPOCHS * samples[size]
        assert done.json["missing"] == []


def test_a_scaling_study_is_a_chain_of_jobs_on_one_dataset(on_slurm: Run, small: Path) -> None:
    done = on_slurm("dlio-submit", small, *_STUDY, "-N", "1,2,4", "--ppn", 2, "--weak", "--repeat", 2, "--wait")
    assert done.code == 0, done.err
    jobs = done.json["jobs"]
    assert [job["state"] for job in jobs] == ["completed"] * 3
    measured = [entry["result"] for job in jobs for entry in job["runs"] if entry["kind"] == "measure"]
    assert [result["nodes"] for result in measured] == [1, 1, 2, 2, 4, 4]
    assert {result["summary"]["steps"] for result in measured} == {2}, "as many as eight ranks have"
    assert len({result["dataset"]["path"] for result in measured}) == 1
    commands = [json.loads(Path(job["directory"], "job.json").read_bytes())["command"] for job in jobs]
    assert "dependency" not in commands[0]
    for number, command in enumerate(commands[1:], 1):
        assert f"--dependency=afterany:{':'.join(job['batch_id'] for job in jobs[:number])} " in command
    spans = [(job["runs"][0]["result"]["started"], job["runs"][-1]["result"]["ended"]) for job in jobs]
    assert spans == sorted(spans)
    assert all(ended <= started for (_, ended), (started, _) in pairwise(spans)), "never two at a time"


def test_a_study_whose_first_job_is_killed_goes_on_and_is_resumed(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    options = ("-P", "reader.shuffle.seed=1..3", "-S", "compute.time=1s", "-S", "site.warning_time=1", "-t", "75s",
               "-S", "site.expected_rates.launch=20s")  # fmt: skip
    done = on_slurm("dlio-submit", small, *_STUDY, *options)
    assert done.code == 0, done.err
    first, _ = done.json["jobs"]
    _until(lambda: list(Path(first["directory"]).glob("runs/*measure/result.json")))
    slurm.tell("scancel", first["batch_id"])
    waited = on_slurm("dlio-hpc", "wait", done.json["study"], "--json")
    assert waited.code == 7
    assert [job["state"] for job in waited.json["jobs"]] == ["cancelled", "completed"]
    collected = on_slurm("dlio-hpc", "collect", done.json["study"])
    assert collected.code == 7
    assert "1 of 3 measurements are missing" in collected.err
    again = on_slurm("dlio-submit", "--resume", done.json["study"], "--wait", "--json")
    assert again.code == 0, again.err
    assert [len(job["runs"]) for job in again.json["jobs"]][-1] == 2, "what was missing, and finding the dataset"
    assert again.json["missing"] == []


def test_old_against_new_names_the_slow_node(on_slurm: Run, small: Path, tmp_path: Path) -> None:
    """One node takes 20 ms more for each read from the new file system alone."""
    customized = tmp_path / "slow" / "sitecustomize.py"
    customized.parent.mkdir()
    customized.write_text(throttle.below(tmp_path / "new", node="n2"))
    done = on_slurm(
        "dlio-submit", small, "-s", "slurm", "-t", "5m", "-N", 4, "--ppn", 1,
        "--ab", tmp_path / "old", tmp_path / "new",
        "-S", f"site.environment={{PYTHONPATH: {customized.parent}}}", "-S", "compute.time=0", "--wait", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    (job,) = done.json["jobs"]
    assert len(job["runs"]) == 2 + 8
    old, new = done.json["stragglers"]
    slowest = new["nodes"][0]
    assert slowest["name"] == "n2"
    assert slowest["is_straggler"]
    assert slowest["ratio"] < 0.5
    assert len(old["nodes"]) == len(new["nodes"]) == 4
    assert done.json["effects"][0]["better"] == "A"


def test_a_study_with_a_job_that_writes_its_datasets_first(on_slurm: Run, small: Path) -> None:
    options = ("--generate", "separate", "-P", "dataset.format=npz,tfrecord", "-N", "1,2", "--ppn", 2, "--wait")
    done = on_slurm("dlio-submit", small, *_STUDY, *options)
    assert done.code == 0, done.err
    write, *read = done.json["jobs"]
    assert [entry["kind"] for entry in write["runs"]] == ["generate", "generate"]
    assert {entry["kind"] for job in read for entry in job["runs"]} == {"measure"}
    command = json.loads(Path(read[1]["directory"], "job.json").read_bytes())["command"]
    assert f"--dependency=afterok:{write['batch_id']},afterany:{read[0]['batch_id']} " in command


def _kill_submitter(slurm: Cluster, small: Path, cwd: Path) -> Path:
    command: list[str | Path] = [BIN / "dlio-submit", small, "-s", "slurm", "-d", "data", "-t", "5m", "--wait"]
    submitter = subprocess.Popen(
        [*command, "-N", "2", "-S", "compute.time=1s", "-S", "train.epochs=25"],
        cwd=cwd, env=os.environ | slurm.environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    _until(lambda: any("01-measure 1/" in _text(out) for out in cwd.glob("dlio-runs/*/job.out")))
    submitter.send_signal(signal.SIGKILL)
    submitter.wait()
    (out,) = cwd.glob("dlio-runs/*/job.out")
    return out.parent


def test_a_job_outlives_its_submitter_and_a_restart_of_the_controller(
    on_slurm: Run, slurm: Cluster, small: Path, tmp_path: Path
) -> None:
    directory = _kill_submitter(slurm, small, tmp_path)
    with slurm.without_controller():
        blind = on_slurm("dlio-hpc", "status", directory)
        assert blind.code == 6
        assert "running" in blind.out, "as it was last seen"
        assert "states may be out of date" in blind.err
        assert on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data").code == 6
        watcher = subprocess.Popen(
            [BIN / "dlio-hpc", "wait", directory, "--json"], cwd=tmp_path, env=os.environ | slurm.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        time.sleep(2)
    out, err = watcher.communicate(timeout=100)
    assert watcher.returncode == 0, err
    assert json.loads(out)["jobs"][0]["state"] == "completed"


def test_a_job_that_slurm_has_forgotten(on_slurm: Run, slurm: Cluster, small: Path, tmp_path: Path) -> None:
    """A job with an exit_status is completed; a job without one is lost."""
    directory = Path(_submit(on_slurm, small)["directory"])
    slurm.stop_controller()
    slurm.start_controller(forget=True)
    slurm.wait_until(lambda: slurm.tell("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D") == "4")
    record = json.loads((directory / "job.json").read_bytes())
    record["states"] = record["states"][:2]
    (directory / "job.json").write_text(json.dumps(record))
    assert "completed" in on_slurm("dlio-hpc", "status", directory).out
    (directory / "job.json").write_text(json.dumps(record))
    (directory / "exit_status").rename(directory / "hidden")
    assert "lost" in on_slurm("dlio-hpc", "status", directory).out
    record = json.loads((directory / "job.json").read_bytes())
    assert record["states"][-1]["state"] == "lost"
    record["states"][-1]["time"] = "2026-01-01T00:00:00Z"  # files of NFS would be here by now
    (directory / "job.json").write_text(json.dumps(record))
    lost = on_slurm("dlio-hpc", "wait", directory, "--json")
    assert (lost.code, lost.job["state"]) == (7, "lost")
    (directory / "hidden").rename(directory / "exit_status")
    assert "completed" in on_slurm("dlio-hpc", "status", directory).out, "what was lost has turned up"


def _batch_id(directory: Path) -> str:
    return str(json.loads((directory / "job.json").read_bytes())["batch_id"])


def test_a_job_that_got_the_id_of_ours_is_left_alone(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    """slurmctld has lost its state, and gives the id to somebody else's job."""
    directory = Path(_submit(on_slurm, small)["directory"])
    slurm.stop_controller()
    slurm.start_controller(forget=True, last=int(_batch_id(directory)))
    slurm.wait_until(lambda: slurm.tell("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D") == "4")
    (directory / "exit_status").unlink()
    record = json.loads((directory / "job.json").read_bytes())
    record["states"] = record["states"][:2]
    (directory / "job.json").write_text(json.dumps(record))
    assert slurm.tell("sbatch", "--job-name=foreign", "--wrap=sleep 100").endswith(_batch_id(directory))
    assert f"{directory.name}  lost " in on_slurm("dlio-hpc", "status", directory).out
    assert "had already ended, lost" in on_slurm("dlio-hpc", "cancel", directory).out
    left = slurm.tell("squeue", "-h", "-j", _batch_id(directory), "-o", "%j %T").split()
    assert left[0] == "foreign"
    assert left[1] in ("PENDING", "CONFIGURING", "RUNNING")
    slurm.tell("scancel", _batch_id(directory))


def test_the_reason_of_today_is_shown(on_slurm: Run, slurm: Cluster, small: Path) -> None:
    done = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", "-J", "--begin=now+1hour", "--json")
    directory = Path(done.job["directory"])
    _until(lambda: "(PENDING BeginTime) for 0:00:" in on_slurm("dlio-hpc", "status", directory).out)
    slurm.tell("scontrol", "hold", _batch_id(directory))
    held = on_slurm("dlio-hpc", "status", directory).out
    assert "  queued  " in held
    assert "queued (PENDING JobHeldAdmin) for 0:00:00" in held
    assert "an administrator holds the job; ask the facility" in held
    slurm.tell("scontrol", "release", _batch_id(directory))
    slurm.tell("scontrol", "uhold", _batch_id(directory))
    assert f"release it: scontrol release {_batch_id(directory)}" in on_slurm("dlio-hpc", "status", directory).out
    assert _states(directory) == ["planned", "submitted", "queued"]
    on_slurm("dlio-hpc", "cancel", directory)


def test_a_rank_that_was_killed_is_a_failure_after_slurm_has_forgotten_it(
    on_slurm: Run, slurm: Cluster, small: Path
) -> None:
    """srun ends with 143, as a script that was cancelled does."""
    directory = _started(on_slurm, small, "-S", "train.epochs=100")
    ranks = [int(path.name) for path in Path("/proc").glob("[0-9]*") if _is_rank(path, directory)]
    os.kill(ranks[0], signal.SIGTERM)
    _until((directory / "exit_status").exists)
    assert (directory / "exit_status").read_text() == "143\n"
    slurm.stop_controller()
    slurm.start_controller(forget=True)
    slurm.wait_until(lambda: slurm.tell("sinfo", "-h", "-p", "debug", "-t", "idle", "-o", "%D") == "4")
    assert f"{directory.name}  failed " in on_slurm("dlio-hpc", "status", directory).out


def _is_rank(process: Path, directory: Path) -> bool:
    try:
        arguments = (process / "cmdline").read_bytes().split(b"\0")
        return (process / "cwd").samefile(directory) and b"dlio_hpc.core" in arguments and b"python" in arguments[0]
    except OSError:
        return False


def test_ranks_get_the_variables_of_the_script_without_those_of_the_shell(on_slurm: Run, small: Path) -> None:
    """With --export=NONE, Slurm tells srun to pass on no variables."""
    variable = "site.environment={OMP_NUM_THREADS: '3'}"
    job = _submit(on_slurm, small, "-J", "--export=NONE", "-S", variable)
    ranks = json.loads(Path(job["directory"], "environment.json").read_bytes())["variables"]
    assert ranks["OMP_NUM_THREADS"] == "3"


def test_fifty_jobs_submitted_at_once(on_slurm: Run, slurm: Cluster, tmp_path: Path) -> None:
    command = ("dlio-submit", "null", "-s", "slurm", "-d", "data", "-t", "5m", "--ppn", 1, *_SHARED, "-o", "many",
               "-S", "train.steps=2")  # fmt: skip
    with ThreadPoolExecutor(50) as pool:
        done = list(pool.map(lambda _: on_slurm(*command), range(50)))
    assert [outcome.code for outcome in done] == [0] * 50
    waited = on_slurm("dlio-hpc", "wait", "-o", "many", "--json", "--quiet")
    assert waited.code == 0, waited.err
    assert len(waited.json["jobs"]) == 50
    assert len({job["batch_id"] for job in waited.json["jobs"]}) == 50
    assert {job["state"] for job in waited.json["jobs"]} == {"completed"}
    assert len(list((tmp_path / "many" / "archive").glob("*.tar.zst"))) == 50


NASTY = ["x; touch owned", "$(touch owned)", "a'b\"c", "-n --help", "ü\t|&<>"]


@pytest.mark.parametrize("nasty", NASTY)
def test_nasty_names_of_folders_do_no_harm(on_slurm: Run, small: Path, tmp_path: Path, nasty: str) -> None:
    job = _submit(on_slurm, small, "-o", f"./{nasty}", "-d", f"./data {nasty}")
    assert job["state"] == "completed"
    assert not list(tmp_path.rglob("owned"))


@pytest.mark.parametrize("name", ["50%j", "a\\b"])
def test_folders_of_which_slurm_makes_something_else_are_refused(on_slurm: Run, small: Path, name: str) -> None:
    done = on_slurm("dlio-submit", small, "-s", "slurm", "-d", "data", "-o", name)
    assert done.code == 2
    assert "choose another folder" in done.err


@pytest.mark.parametrize(
    "name", [name for name in shipped.names(shipped.SITES) if site.load(name).scheduler == "slurm"]
)
def test_slurm_takes_the_script_of_every_shipped_site(slurm: Cluster, tmp_path: Path, name: str) -> None:
    profile = site.load(name)
    for queue in profile.queues or [None]:
        request = planning.Request(runs=tmp_path, data=tmp_path, nodes=2, account="proj", queue=queue)
        script = tmp_path / "job.sh"
        script.write_text(jobscript.render(planning.make(workload.load("demo"), profile, request)))
        answer = slurm.tell("sbatch", "--test-only", str(script))
        assert "to start at" in answer, answer
        assert " on nodes n" in answer


def test_the_preflight_on_slurm(on_slurm: Run, small: Path) -> None:
    done = on_slurm("dlio-hpc", "check", small, "-s", "slurm", "-d", "data", "-N", 2)
    assert done.code == 0, done.out + done.err
    assert "to start at" in done.out
    assert "4 ranks on 2 nodes, started by srun, communicated" in done.out
    wrong = on_slurm(
        "dlio-hpc", "check", small, "-s", "slurm", "-d", "data", "-q", "nope", "-S", "site.preload=[/no.so]"
    )
    assert wrong.code == 2
    faults = [line for line in wrong.out.splitlines() if line.startswith("fault")]
    assert len(faults) == 3, "the launch is the third"
    assert "invalid partition specified: nope" in faults[0]
    assert "preload: /no.so: No such file or directory" in faults[1]
    assert "launch" in faults[2]
    alone = on_slurm("dlio-hpc", "check", small, "-s", "slurm", "-d", "data", "-S", "site.launcher.mpi=none")
    assert alone.code == 6
    assert "2 ranks did not run (failed): the plan is for 2 ranks, but MPI started 1" in alone.out


def test_a_profile_is_written_from_what_is_found(on_slurm: Run, small: Path, tmp_path: Path) -> None:
    assert on_slurm("dlio-hpc", "sites", "new", "mine").code == 0
    profile = on_slurm("dlio-hpc", "sites", "./mine.yaml", "--json").json
    assert (profile["scheduler"], profile["queue"], profile["cpus"]) == ("slurm", "debug", cluster.CPUS)
    assert profile["queues"]["tiny"] == {
        "nodes": 1, "walltime": {"1": "0:05:00"}, "min_walltime": None, "jobs": None, "options": [],
    }  # fmt: skip
    assert profile["launcher"]["mpi"] == "pmi2"
    assert on_slurm("dlio-hpc", "sites", "new", "mine").code == 2
    job = on_slurm("dlio-submit", small, "-s", "./mine.yaml", "-d", "data", "-t", "5m", "--wait", "--json").job
    assert job["state"] == "completed"


def test_a_local_job_runs_inside_srun(slurm: Cluster, small: Path, tmp_path: Path) -> None:
    submission: list[str | Path] = [
        BIN / "dlio-submit",
        small,
        "-s",
        "local",
        "--ppn",
        "2",
        "-t",
        "1m",
        "-d",
        "data",
        "--wait",
        "--json",
    ]
    done = _inside_srun(slurm, tmp_path, *submission)
    assert done.returncode == 0, done.stderr
    assert "note: this shell has variables of Slurm (SLURM_JOB_ID=" in done.stderr
    (job,) = json.loads(done.stdout)["jobs"]
    result = job["runs"][-1]["result"]
    assert (job["state"], result["ranks"], result["hosts"]) == ("completed", 2, [os.uname().nodename])
    checked = _inside_srun(slurm, tmp_path, BIN / "dlio-hpc", "check", small, "-s", "local", "-d", "data")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "2 ranks, started by mpiexec, communicated with each other" in checked.stdout


def _inside_srun(slurm: Cluster, folder: Path, *command: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["srun", "-N1", "-n1", *map(str, command)], cwd=folder, env=os.environ | slurm.environment, check=False,
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
