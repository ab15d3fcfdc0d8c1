"""Whole jobs run on the shipped profile of Theta as a user runs them; Cobalt and aprun are stand-ins, MPI is real."""

import json
import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.batch import job_watch
from dlio_hpc.config import site
from tests.conftest import BIN, Run
from tests.support.standins import batch, cobalt, libdarshan
from tests.support.standins.login import Login, library, record, state_text, states, text, write

SAMPLES, SAMPLE_BYTES, EPOCHS = 30, 12_000, 2
# Where no host may be renamed, two nodes would be one.
NODES = 2 if batch.may_rename() else 1
HOSTS = ["nid03834", "nid03835"][:NODES] if NODES == 2 else [os.uname().nodename]


class Theta(Login):
    """Jobs have `folder` as their home."""

    def __init__(self, run: Run, folder: Path, **policy: Any) -> None:
        super().__init__(
            run,
            folder,
            ("-s", "theta", "-q", "debug-cache-quad", "-d", "data", "-S", "site.darshan=null", "-S", "site.probe=null"),
        )
        cobalt.install(folder / "bin", self.state, **{"home": folder, "grace": 1.0, "strict": True} | policy)


@pytest.fixture
def theta(run: Run, tmp_path: Path) -> Theta:
    return Theta(run, tmp_path)


@pytest.mark.job
def test_two_nodes_with_four_ranks_each_through_aprun(theta: Theta, small: Path) -> None:
    setup = 'tr "\\0" "\\n" < /proc/$$/environ > script.environ; env > script.env'
    job = theta.waited(
        small, "-N", NODES, "--ppn", 4, "-A", "proj", "--repeat", 2, "-S", f"site.preload=[{library()}]",
        "-S", f"site.setup={json.dumps([setup])}", "--archive", "kept",
    )  # fmt: skip
    directory = Path(job["directory"])
    assert job["state"] == "completed"
    assert job["batch_id"] == "527001"
    assert [entry["name"] for entry in job["runs"]] == ["00-generate", "01-measure-1", "02-measure-2"]
    for entry in job["runs"][1:]:
        result = entry["result"]
        assert (result["ranks"], result["nodes"], result["ranks_per_node"]) == (4 * NODES, NODES, 4)
        assert result["hosts"] == HOSTS
        assert result["summary"]["samples"] == SAMPLES * EPOCHS
        assert result["summary"]["bytes_read"] == SAMPLES * SAMPLE_BYTES * EPOCHS
    calls = [json.loads(line) for line in text(theta.state / "aprun.jsonl").splitlines()]
    place = ["aprun", "-n", str(4 * NODES), "-N", "4", "-d", "32", "-j", "2", "-cc", "depth"]
    variables = ["OMP_NUM_THREADS=32", f"LD_PRELOAD={library()}"]
    for number, call in enumerate(calls):
        core = [str(BIN / "python3"), "-m", "mpi4py", "-m", "dlio_hpc.core", "plan.json", "--run", str(number)]
        assert call[: len(place)] == place
        assert call[len(place) : -len(core)] == [word for variable in variables for word in ("-e", variable)]
        assert call[-len(core) + 1 :] == core[1:]
    assert len(calls) == 3
    ranks = json.loads((directory / "environment.json").read_bytes())["variables"]
    assert (ranks["LD_PRELOAD"], ranks["OMP_NUM_THREADS"]) == (library(), "32")
    for name in ("script.environ", "script.env"):
        assert "COBALT_JOBID=527001" in text(directory / name)
        assert "LD_PRELOAD" not in text(directory / name), "preloaded for the ranks alone"
    assert "--mode script --jobname small-" in text(directory / "job.cobaltlog")
    assert f"-n {NODES} -t 60 -o job.out -e job.err --debuglog job.cobaltlog" in text(directory / "job.cobaltlog")
    assert text(directory / "exit_status") == "0\n"


@pytest.mark.job
def test_darshan_reaches_the_ranks_alone(theta: Theta, small: Path) -> None:
    """Darshan's variables pass through aprun -e; the probe's two ranks share a node."""
    theta.waited(small, "--generate", "only")
    darshan = ("-S", f"site.darshan={libdarshan.install(theta.folder / 'lib')}", "-S", libdarshan.rank_environment())
    setup = ("-S", f"site.setup={json.dumps(['env > script.env'])}")
    job = theta.waited(small, "-N", NODES, "--ppn", 4, *darshan, *setup)
    directory, total = Path(job["directory"]), SAMPLES * SAMPLE_BYTES * EPOCHS
    verdict = job["runs"][-1]["darshan"]
    assert (verdict["faults"], verdict["differences"], verdict["why_not"]) == ([], [], None)
    assert verdict["bytes"] == {"darshan": total, "core": total, "planned": total}
    calls = [json.loads(line) for line in text(theta.state / "aprun.jsonl").splitlines()][-3:]
    assert [call[:5] for call in calls] == [
        ["aprun", "-n", "2", "-N", "2"], *([["aprun", "-n", str(4 * NODES), "-N", "4"]] * 2),
    ]  # fmt: skip
    for call, folder in zip(calls, ("darshan", "runs/00-generate/darshan", "runs/01-measure/darshan"), strict=True):
        given = dict(word.split("=", 1) for option, word in pairwise(call) if option == "-e")
        assert given["LD_PRELOAD"].endswith("/lib/libdarshan.so")
        assert Path(given["DARSHAN_LOGFILE"]).parent == directory / folder
    assert "DARSHAN_" not in text(directory / "script.env")


@pytest.mark.job
def test_what_cobalt_writes_at_the_end_is_archived_too(run: Run, small: Path, tmp_path: Path) -> None:
    theta = Theta(run, tmp_path, cleanup=1.5)
    job = theta.waited(small, "--archive", "kept")
    directory = Path(job["directory"])
    assert states(directory)[:2] == ["planned", "submitted"]
    assert states(directory)[-1] == "completed"
    assert theta("dlio-hpc", "archive", "verify", job["archive"]).code == 0
    theta.tell("cqwait", job["batch_id"])
    again = theta("dlio-hpc", "collect", directory)
    assert "already archived" in again.err
    # Fails as long as collect does not wait for what the batch system writes after the script's end.
    assert "has changed since" not in again.err
    assert theta("dlio-hpc", "archive", "extract", job["archive"], "--to", "out").code == 0
    assert "exit code of 0" in text(theta.folder / "out" / job["job"] / "job.cobaltlog")
    assert "Application 9888541 resources" in text(theta.folder / "out" / job["job"] / "job.out")


@pytest.mark.job
def test_a_job_is_told_of_its_limit_by_a_timer_of_its_own(run: Run, small: Path, tmp_path: Path) -> None:
    """A job of 90 s is told after 68 s. Here time passes ten times as fast. Cobalt gives two minutes."""
    theta = Theta(run, tmp_path, minute=6.0)
    (tmp_path / "fast").write_text('sleep() { command sleep "$(( $1 / 10 ))"; }\n')
    job = theta.waited(
        small, "-t", "90s", "-N", NODES, "-J", f"--env BASH_ENV={tmp_path / 'fast'}", "-S", "compute.time=0.2",
        "-S", "train.epochs=100", code=7,
    )  # fmt: skip
    directory = Path(job["directory"])
    assert job["state"] == "timeout"
    assert text(directory / "exit_status") == "124\n"
    assert "time limit near, 22 s left: stopping" in text(directory / "job.out")
    summary = job["runs"][-1]["result"]["summary"]
    assert 0 < summary["steps"] < summary["steps_planned"]
    assert "stopped before the time limit" in theta("dlio-hpc", "report", job["archive"]).out


@pytest.mark.job
def test_a_job_that_is_ended_at_its_limit(run: Run, small: Path, tmp_path: Path) -> None:
    """The minute ends before the script's timer does; exit_status says cancelled, Cobalt's log says why."""
    theta = Theta(run, tmp_path, minute=4.0)
    job = theta.waited(small, "-t", "1m", "-S", "compute.time=0.5", "-S", "train.epochs=20", code=7)
    directory = Path(job["directory"])
    assert job["state"] == "timeout"
    assert text(directory / "exit_status") == "143\n"
    assert state_text(directory) == "maximum execution time exceeded"


FORGOTTEN = [
    ("0\n", "", "completed", ""),
    ("124\n", "", "timeout", ""),
    ("143\n", "Info: maximum execution time exceeded; initiating job termination", "timeout", "maximum execution time"),
    ("3\n", "Info: task completed normally with an exit code of 3; initiating", "failed", ""),
    ("137\n", "Info: task completed normally with an exit code of 137; initiating", "failed", "exit code of 137"),
    ("3\n", "", "failed", ""),
    ("143\n", "", "failed", ""),
    ("143\n terminated", "", "cancelled", ""),
    (None, "Info: maximum execution time exceeded; initiating job termination", "timeout", "maximum execution time"),
    (None, "Info: user delete requested with signal SIGTERM by user root", "cancelled", "user delete requested"),
    (None, "Info: task completed normally with an exit code of 137; initiating", "failed", "exit code of 137"),
    (None, "", "lost", "no longer knows"),
]


def test_what_is_known_of_a_job_that_cobalt_has_forgotten(
    theta: Theta, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file exit_status decides; Cobalt's log gives the reason for a failure."""
    monkeypatch.setattr(job_watch, "_LOST_S", 2.0)
    directory = theta.held(small)
    log = text(directory / "job.cobaltlog")
    with batch.Book(str(theta.state)).change() as content:
        content["jobs"].clear()
    for status, line, state, why in FORGOTTEN:
        theta.forget(directory, status)
        (directory / "job.cobaltlog").write_text(f"{log}{line}\n")
        known = "invalid" if status == "3\n" else state  # the exit code of an invalid run
        assert f"{directory.name}  {known} " in theta("dlio-hpc", "status", directory).out, (status, line)
        assert why in state_text(directory)
    assert theta("dlio-hpc", "wait", directory).code == 7
    (directory / "exit_status").write_text("0\n")
    assert "completed" in theta("dlio-hpc", "status", directory).out, "what was lost has turned up"


def test_a_submission_that_never_arrived(theta: Theta, small: Path) -> None:
    directory = theta.held(small)
    before = record(directory)
    theta.tell("qdel", before["batch_id"])
    write(directory, before | {"batch_id": None, "states": before["states"][:1]})
    waited = theta("dlio-hpc", "wait", directory)
    assert waited.code == 7
    assert "was never submitted to the batch system" in waited.err


@pytest.mark.parametrize("queue", site.load("theta").queues)
def test_every_queue_of_the_profile_takes_its_script(theta: Theta, small: Path, queue: str) -> None:
    """The stand-in refuses attributes that are not documented, to catch typing errors."""
    fewest = site.load("theta").queues[queue].fewest_nodes
    directory = theta.held(small, "-q", queue, "-N", fewest, "-t", "1h", "-A", "proj")
    assert theta("dlio-hpc", "cancel", directory).code == 0


def test_attributes_are_joined_into_one_line(theta: Theta, small: Path) -> None:
    theta.held(small, "-J", "--attrs ssds=required:ssd_size=128", "-J", "--attrs=filesystems=home,theta-fs0")
    (job,) = theta.jobs().values()
    assert job["attrs"] == {
        "mcdram": "cache", "numa": "quad", "ssds": "required", "ssd_size": "128", "filesystems": "home,theta-fs0",
    }  # fmt: skip


@pytest.mark.job
def test_the_preflight_on_theta(theta: Theta, small: Path) -> None:
    options = (small, "-s", "theta", "-q", "debug-cache-quad", "-d", "data", "-N", 2)
    done = theta("dlio-hpc", "check", *options, "-S", "site.darshan=null")
    assert done.code == 0, done.out + done.err
    assert "queue debug-cache-quad is running" in done.out
    assert "4 ranks on 2 nodes, started by aprun, communicated" in done.out
    wrong = theta("dlio-hpc", "check", *options, "-q", "nope", "--no-launch")
    assert wrong.code == 2
    faults = [line for line in wrong.out.splitlines() if line.startswith("fault")]
    assert len(faults) == 1
    assert "queue nope is not defined; defined queues: " in faults[0]
    library = "/soft/perftools/darshan/darshan-3.1.8/lib/libdarshan.so"
    assert re.search(rf"note +Darshan +{library}: No such file .*: runs have no Darshan log", wrong.out)


def test_a_profile_is_written_from_what_is_found(theta: Theta, small: Path) -> None:
    """The stand-in alone is on PATH, as Slurm there would come first."""
    assert theta("dlio-hpc", "sites", "new", "here", PATH=str(theta.folder / "bin")).code == 0
    profile = theta("dlio-hpc", "sites", "./here.yaml", "--json").json
    assert (profile["scheduler"], profile["launcher"]["kind"]) == ("cobalt", "aprun")
    assert profile["queues"]["debug-flat-quad"]["walltime"] == {"1": "1:00:00"}
    shown = theta("dlio-submit", small, "-s", "./here.yaml", "-d", "data", "-q", "debug-cache-quad", "--dry-run")
    assert shown.code == 0
    assert "#COBALT -q debug-cache-quad\n" in shown.out
