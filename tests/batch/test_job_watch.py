"""A job is watched until it ends or nothing more is learned of it."""

import os
import time
from pathlib import Path

import pytest
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.command import Unanswered
from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.batch import job_record, job_state, job_watch
from dlio_hpc.batch.job_record import Job, Sighting
from dlio_hpc.files import rundir
from tests.support import studies


def _job(current: str, scheduler: str = "slurm", since: float = 0.0) -> Job:
    sighting = Sighting(current, units.utc(time.time() - since))  # type: ignore[arg-type]
    return Job("one", "one", "slurm", scheduler, "here", "sbatch job.sh", "7", (sighting,))  # type: ignore[arg-type]


def _watched(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *looks: job_state.JobSnapshot,
    limits: tuple[float, float] = (0.3, 0.3),
) -> list[job_watch.Watched]:
    """Watch a job whose snapshots are `looks`, the last one repeated for ever."""
    left = list(looks)
    (folder / "job.json").touch()
    monkeypatch.setattr(job_record, "load", lambda _: looks[0].job)

    def refresh_all(_paths: list[Path], ask: bool) -> list[job_state.JobSnapshot]:
        look = left[0] if not ask or len(left) == 1 else left.pop(0)
        return [look if ask else look._replace(fault=None)]  # files alone tell no fault

    monkeypatch.setattr(job_state, "refresh_all", refresh_all)
    monkeypatch.setattr(job_watch, "_ASK_FIRST_S", 0.15)
    monkeypatch.setattr(job_watch, "_LOST_S", limits[0])
    monkeypatch.setattr(job_watch, "_SILENT_S", limits[1])
    return list(job_watch.watch([folder]))


def test_a_job_of_which_nothing_is_learned_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The controller has purged the job, and accounting does not answer."""
    silent = job_state.JobSnapshot(tmp_path, _job("running"), Unanswered("sacct ended with 1"))
    began = time.monotonic()
    *before, last = _watched(monkeypatch, tmp_path, silent)
    assert time.monotonic() - began > 0.3
    assert before
    assert not any(one.is_final for one in before)
    assert (last.is_final, last.job.state, str(last.fault)) == (True, "running", "sacct ended with 1")


def test_an_answer_now_and_then_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    silent = job_state.JobSnapshot(tmp_path, _job("running"), Unanswered("no answer"))
    answered = job_state.JobSnapshot(tmp_path, _job("running"), None)
    ended = job_state.JobSnapshot(tmp_path, _job("completed"), None)
    sightings = _watched(monkeypatch, tmp_path, silent, answered, silent, answered, ended, limits=(0.3, 0.25))
    assert [one.is_final for one in sightings] == [False] * 4 + [True]


@pytest.mark.parametrize(("scheduler", "waits"), [("slurm", True), ("local", False)])
def test_a_lost_job_is_looked_for_a_while(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, scheduler: str, waits: bool
) -> None:
    """NFS shows new files late. Processes of this computer exist or do not."""
    lost = job_state.JobSnapshot(tmp_path, _job("lost", scheduler), None)
    turned_up = job_state.JobSnapshot(tmp_path, _job("completed", scheduler), None)
    last = _watched(monkeypatch, tmp_path, lost, turned_up, limits=(60, 60))[-1]
    assert last.job.state == ("completed" if waits else "lost")
    old = job_state.JobSnapshot(tmp_path, _job("lost", scheduler, since=3600), None)
    assert len(_watched(monkeypatch, tmp_path, old, limits=(60, 60))) == 1


def test_a_job_that_can_never_run_is_given_with_the_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stuck = job_state.JobSnapshot(tmp_path, _job("queued"), None, "Can Never Run: no such node")
    (last,) = _watched(monkeypatch, tmp_path, stuck)
    assert isinstance(last.fault, InfrastructureError)
    assert "Can Never Run: no such node" in str(last.fault)
    assert last.is_final


def test_a_job_ended_when_its_script_did_and_not_when_somebody_looked(tmp_path: Path) -> None:
    """The night of a job in the history follows from this time."""
    studies.write(studies.make(tmp_path, repeat=1, name="late"), lambda *_: 100.0)
    folder = tmp_path / "late"
    record = job_record.load(folder)
    running = structs.replace(record.states[0], state="running", time="2026-11-21T02:00:00Z")
    job_record.save(folder, structs.replace(record, states=(running,)))
    status = folder / rundir.EXIT_STATUS
    status.write_text("0\n")
    os.utime(status, (units.timestamp("2026-11-21T03:10:00Z"),) * 2)
    (look,) = job_state.refresh_all([folder])
    assert (look.job.state, look.job.states[-1].time) == ("completed", "2026-11-21T03:10:00Z")
    assert job_record.load(folder) == look.job
    for moment in ("2026-11-21T01:59:59Z", units.utc(time.time() + 3600)):
        job_record.save(folder, structs.replace(record, states=(running,)))
        os.utime(status, (units.timestamp(moment),) * 2)
        (look,) = job_state.refresh_all([folder])
        assert abs(units.timestamp(look.job.states[-1].time) - time.time()) < 60, "another clock is not believed"


def test_a_pipe_in_place_of_the_exit_status_does_not_stop_the_command(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / rundir.EXIT_STATUS)
    assert job_state.exit_status(tmp_path) is None
