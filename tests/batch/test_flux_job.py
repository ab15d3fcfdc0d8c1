"""Whole jobs run on Flux as a user runs them: on a stand-in with real ranks, or on the Flux of DLIO_HPC_FLUX."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome, Run
from tests.support import brokers
from tests.support.standins import batch, flux
from tests.support.standins.login import (
    Login,
    exit_status_decides,
    found_by_its_name,
    library,
    outage,
    record,
    state_text,
    states,
    text,
    until,
)

SAMPLES, SAMPLE_BYTES, EPOCHS = 30, 12_000, 2
IS_REAL = brokers.PREFIX is not None
# Where no host may be renamed, two nodes would be one.
NODES = 2 if batch.may_rename() else 1
HOSTS = ["n1", "n2"][:NODES] if NODES == 2 else [os.uname().nodename]
# The brokers of the tests have more cores than this computer, which Flux says for each job.
_UNBOUND = "site.launcher.bind=off"
standin = pytest.mark.skipif(IS_REAL, reason="what a site decides, or what cannot be had on demand")


class Flux(Login):
    """Two queues of two nodes each: debug, the default one, and batch."""

    def __init__(self, run: Run, folder: Path, real: brokers.Brokers | None, **policy: Any) -> None:
        super().__init__(run, folder, ("-s", "flux", "-d", "data", "-S", _UNBOUND), hold="--urgency=0")
        if real is not None:
            self.environment = dict(real.environment)
        else:
            flux.install(folder / "bin", self.state, **policy)

    @staticmethod
    def setup(*lines: str) -> tuple[str, str]:
        return "-S", f"site.setup={json.dumps(lines)}"

    def ended(self, directory: Path, code: int) -> Any:
        """Wait for the job to end, and return it."""
        waited: Outcome = self("dlio-hpc", "wait", directory, "--json", "--quiet")
        assert waited.code == code, waited.err
        return waited.job


@pytest.fixture
def on_flux(run: Run, tmp_path: Path, real_flux: brokers.Brokers | None) -> Flux:
    return Flux(run, tmp_path, real_flux)


@pytest.mark.job
def test_two_nodes_with_four_ranks_each_through_flux_run(on_flux: Flux, small: Path) -> None:
    job = on_flux.waited(
        small, "-N", NODES, "--ppn", 4, "-A", "proj", "--repeat", 2, "-S", f"site.preload=[{library()}]",
        *Flux.setup("env > script.env"), "--archive", "kept",
    )  # fmt: skip
    directory = Path(job["directory"])
    assert job["state"] == "completed"
    assert job["batch_id"].startswith("f")
    assert states(directory)[:2] == ["planned", "submitted"]
    assert [entry["name"] for entry in job["runs"]] == ["00-generate", "01-measure-1", "02-measure-2"]
    for entry in job["runs"][1:]:
        result = entry["result"]
        assert (result["ranks"], result["nodes"], result["ranks_per_node"]) == (4 * NODES, NODES, 4)
        assert result["hosts"] == HOSTS
        assert result["summary"]["samples"] == SAMPLES * EPOCHS
        assert result["summary"]["bytes_read"] == SAMPLES * SAMPLE_BYTES * EPOCHS
    asked = on_flux.tell("flux", "jobs", "-no", "{name}|{queue}|{nnodes}|{duration}|{bank}", job["batch_id"])
    assert asked == f"{job['job']}|debug|{NODES}|1800.0|proj\n"
    ranks = json.loads((directory / "environment.json").read_bytes())["variables"]
    assert ranks["LD_PRELOAD"] == library()
    assert ranks["FLUX_JOB_NNODES"] == str(NODES)
    script = text(directory / "script.env")
    assert "FLUX_ENCLOSING_ID=" in script
    assert "LD_PRELOAD" not in script, "preloaded for the ranks alone"
    again = on_flux("dlio-hpc", "collect", directory)
    assert "already archived" in again.err
    assert "has changed since" not in again.err


def test_a_job_that_can_never_run(on_flux: Flux, small: Path) -> None:
    """Flux accepts the job if the queue has no limit, and ends it at once."""
    directory = on_flux.taken(small, "-N", 9, "-q", "batch")
    assert on_flux.ended(directory, 6)["state"] == "failed"
    assert state_text(directory) == "FAILED unsatisfiable request: need 9 exclusive node(s), only 2 eligible"


# 29 steps of half a second: with the start of the ranks they take longer than the 15 s until the notice.
_LONG = ("-t", "20s", "--ppn", 1, "-S", "reader.batch_size=30", "-S", "compute.time=0.5", "-S", "train.epochs=29")


@pytest.mark.job
def test_a_job_asks_for_the_time_that_is_left(on_flux: Flux, small: Path) -> None:
    on_flux.waited(small, "--generate", "only", "--ppn", 1)
    job = on_flux.waited(small, "-N", NODES, *_LONG, code=7)
    directory = Path(job["directory"])
    assert job["state"] == "timeout"
    assert text(directory / "exit_status") == "124\n"
    assert "time limit near, 5 s left: stopping" in text(directory / "job.out")
    summary = job["runs"][-1]["result"]["summary"]
    assert 0 < summary["steps"] < summary["steps_planned"]


@pytest.mark.job
def test_a_limit_that_was_raised_is_the_jobs(on_flux: Flux, small: Path) -> None:
    directory = on_flux.taken(small, *_LONG)
    batch_id = record(directory)["batch_id"]
    until(lambda: on_flux.tell("flux", "jobs", "-no", "{status}", batch_id) == "RUN\n")
    on_flux.tell("flux", "update", batch_id, "duration=+60s")
    assert on_flux.ended(directory, 0)["state"] == "completed"
    assert "time limit near" not in text(directory / "job.out")


def test_a_job_that_is_ended_at_its_limit(on_flux: Flux, small: Path) -> None:
    """The job ignores the notice; Flux sends ALRM to the script and its processes, and KILL five seconds later."""
    directory = on_flux.taken(small, "-t", "15s", *Flux.setup("sleep 60"))
    assert on_flux.ended(directory, 7)["state"] == "timeout"
    assert text(directory / "exit_status") == "124\n"


# The brokers of a job start in its time.
ENDS = [
    ("exit 7", "failed", "FAILED exit 7"),
    ("kill -9 $$", "failed", "FAILED exit 137"),
    ("trap '' ALRM HUP TERM; sleep 60 & wait; wait; sleep 60", "timeout", "TIMEOUT resource allocation expired"),
    ("trap '' USR1; trap 'exit 0' ALRM HUP; sleep 60 & wait", "completed", ""),
]


def test_how_jobs_end(on_flux: Flux, small: Path) -> None:
    """The last job ends by itself with exit code 0 as its time is over, without a result."""
    directories = [
        on_flux.taken(small, "-t", "20s", "-q", ("debug", "batch")[number % 2], *Flux.setup(line))
        for number, (line, *_) in enumerate(ENDS)
    ]
    waited = on_flux("dlio-hpc", "wait", *directories, "--json", "--quiet")
    assert [job["state"] for job in waited.json["jobs"]] == [state for _, state, _ in ENDS]
    assert waited.code == 6
    for directory, (_, _, why) in zip(directories, ENDS, strict=True):
        assert why in state_text(directory)
    assert on_flux("dlio-hpc", "report", directories[-1]).code == 3


def test_what_depends_on_a_job_that_never_ran(on_flux: Flux, small: Path) -> None:
    first = on_flux.held(small)
    second = on_flux.taken(small, "--after", first.name)
    on_flux.tell("flux", "cancel", record(first)["batch_id"])
    assert on_flux.ended(second, 7)["state"] == "cancelled"
    assert state_text(second).endswith("job never started")


def test_flux_cannot_be_reached(on_flux: Flux, small: Path) -> None:
    go = on_flux.folder / "go"
    directory = on_flux.taken(small, *Flux.setup(f"until [ -e {go} ]; do sleep 0.05; done; exit 9"))
    until(lambda: "running" in on_flux("dlio-hpc", "status", directory).out)
    if IS_REAL:
        nowhere = {"FLUX_URI": "local:///nowhere"}
        blind = on_flux("dlio-hpc", "status", directory, **nowhere)
        assert blind.code == 6
        assert "Unable to connect to Flux" in blind.err
        assert on_flux("dlio-hpc", "cancel", directory, **nowhere).code == 6
        on_flux("dlio-hpc", "cancel", directory)
        assert on_flux.ended(directory, 7)["state"] == "cancelled"
    else:
        outage(on_flux, directory, small, go, "Unable to connect to Flux")


_PURGE = ("flux", "job", "purge", "-f", "--num-limit=0")


def test_what_is_known_of_a_job_that_was_purged(on_flux: Flux, small: Path) -> None:
    directory, other = on_flux.held(small), on_flux.held(small)
    on_flux.tell("flux", "cancel", record(directory)["batch_id"])
    until(lambda: "CANCELED" in on_flux.tell("flux", "jobs", "-no", "{status}", record(directory)["batch_id"]))
    on_flux.tell(*_PURGE)
    exit_status_decides(on_flux, directory, other)
    on_flux.tell("flux", "cancel", record(other)["batch_id"])


def test_a_submission_that_was_not_written_down_is_found_by_its_name(on_flux: Flux, small: Path) -> None:
    directory = on_flux.held(small)
    found_by_its_name(on_flux, directory, cancel=["flux", "cancel", record(directory)["batch_id"]], purge=_PURGE)


@pytest.mark.job
def test_the_preflight_on_flux(on_flux: Flux, small: Path) -> None:
    options = (small, "-s", "flux", "-d", "data", "-N", 2, "-S", _UNBOUND)
    done = on_flux("dlio-hpc", "check", *options, "-q", "debug")
    assert done.code == 0, done.out + done.err
    assert "queue debug is enabled and started" in done.out
    assert "4 ranks on 2 nodes, started by flux, communicated" in done.out
    wrong = on_flux("dlio-hpc", "check", *options, "-q", "nope", "--no-launch", "-S", "site.preload=[/no.so]")
    assert wrong.code == 2
    faults = [line for line in wrong.out.splitlines() if line.startswith("fault")]
    assert len(faults) == 2
    assert "queue nope is not defined" in faults[0]
    assert "preload: /no.so: No such file" in faults[1]
    bogus = on_flux("dlio-hpc", "check", *options, "--no-launch", "-J", "--bogus")
    assert (bogus.code, "unrecognized arguments: --bogus" in bogus.out) == (2, True)


def test_a_queue_that_takes_no_jobs(on_flux: Flux, small: Path) -> None:
    on_flux.tell("flux", "queue", "disable", "-q", "batch", "-m", "maintenance")
    try:
        done = on_flux("dlio-hpc", "check", small, "-s", "flux", "-d", "data", "-q", "batch", "--no-launch")
        assert done.code == 2
        assert "queue batch is not enabled" in done.out
        refused = on_flux.submit(small, "-q", "batch")
        assert (refused.code, "job submission to batch is disabled: maintenance" in refused.err) == (2, True)
    finally:
        on_flux.tell("flux", "queue", "enable", "-q", "batch")


def test_a_profile_is_written_from_what_is_found(on_flux: Flux, small: Path) -> None:
    assert on_flux("dlio-hpc", "sites", "new", "here").code == 0
    profile = on_flux("dlio-hpc", "sites", "./here.yaml", "--json").json
    assert (profile["scheduler"], profile["launcher"]["kind"], profile["cpus"]) == ("flux", "flux", 8)
    assert profile["queue"] == "debug"
    assert profile["queues"]["debug"] == {
        "nodes": 2, "walltime": {"1": "1:00:00"}, "min_walltime": None, "jobs": None, "options": [],
    }  # fmt: skip
    shown = on_flux("dlio-submit", small, "-s", "./here.yaml", "-d", "data", "-q", "batch", "-t", "5m", "--dry-run")
    assert shown.code == 0
    assert "# flux: --queue=batch\n" in shown.out


@pytest.mark.skipif(NODES == 1, reason="no host may be renamed")
@pytest.mark.parametrize(("node", "rank"), [(4, "shell rank 1"), (3, "rank 2")])
def test_a_node_is_lost(run: Run, tmp_path: Path, small: Path, node: int, rank: str) -> None:
    """A job that loses its first node loses its script; if it loses another one, the script goes on and its ranks fail.
    The test starts a Flux of its own, as lost nodes do not return.
    """
    instance = brokers.Brokers(tmp_path) if IS_REAL else None
    if instance is not None:
        instance.start()
    on_flux = Flux(run, tmp_path, instance)
    try:
        directory = on_flux.started(small, "-N", 2, "-q", "batch")
        if instance is not None:
            instance.lose(node)
        else:
            (on_flux.state / "lost").write_text(f"n{node}")
        assert on_flux.ended(directory, 6)["state"] == "node_fail"
        assert state_text(directory) == f"FAILED node failure on n{node} ({rank})"
    finally:
        if instance is not None:
            instance.stop()
