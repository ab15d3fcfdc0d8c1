"""Metadata jobs are killed in each of their phases: their state, the next job, and what dlio-hpc clean removes."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from dlio_hpc.files import rundir
from dlio_hpc.results.phases import PHASES
from tests.conftest import Run, ahead

_JOB = (
    "dlio-submit", "metadata_tree", "-s", "local", "--ppn", 2, "-d", "data", "-S", "metadata.files=200",
    "-S", "metadata.width=8", "-S", "train.epochs=1",
)  # fmt: skip
# A change of the ranks: in one phase, they go slowly after ten operations, and each leaves a file with its pid as name.
_SLOW = """\
import sys
if "dlio_hpc.core" in " ".join(sys.orig_argv):
    import os, time
    import dlio_hpc.core.metadata_operations as operations
    usual = operations.of
    def of(phase, keys):
        operate = usual(phase, keys)
        def slowly(paths, took):
            for number, path in enumerate(paths):
                operate([path], took)
                if number == 9:
                    os.close(os.open(os.path.join({ranks!r}, str(os.getpid())), os.O_CREAT))
                if number >= 9:
                    time.sleep(0.2)
        return slowly if phase == {phase!r} else operate
    operations.of = of
"""


def _wait(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def _status(pid: int) -> list[str]:
    """Return the fields of proc(5), stat, from the state on; nothing if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _lives(pid: int) -> bool:
    return (_status(pid) or "X")[0] not in "ZX"


def _in_session(leader: int) -> set[int]:
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return {pid for pid in pids if (status := _status(pid)) and int(status[3]) == leader and _lives(pid)}


def _kill(pids: Iterable[int]) -> None:
    """Kill processes, of which none notices that others are gone."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            os.kill(pid, number)
    _wait(lambda: not any(map(_lives, pids)))


def _held(tmp_path: Path, run: Run, phase: str) -> tuple[Path, set[int]]:
    """Submit a job, wait until its ranks are in a phase, and return its directory and the pids of its ranks."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "ranks").mkdir()
    change = _SLOW.format(phase=phase, ranks=str(tmp_path / "ranks"))
    (tmp_path / "broken" / "sitecustomize.py").write_text(change)
    sent = run(*_JOB, **ahead(tmp_path / "broken"))
    assert sent.code == 0, sent
    _wait(lambda: len(os.listdir(tmp_path / "ranks")) == 2)
    (directory,) = (tmp_path / "dlio-runs").glob("metadata_tree-*")
    return directory, set(map(int, os.listdir(tmp_path / "ranks")))


def _leader(directory: Path) -> int:
    return int(json.loads((directory / "job.json").read_text())["batch_id"].partition(".")[0])


def _paths(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.job
@pytest.mark.parametrize("phase", PHASES)
def test_a_job_that_is_killed_in_a_phase(tmp_path: Path, run: Run, phase: str) -> None:
    directory, ranks = _held(tmp_path, run, phase)
    data, outside = tmp_path / "data", tmp_path / "outside"
    outputs = data / f"outputs-{directory.name}"
    assert run("dlio-hpc", "clean").out == "nothing to remove\n", "the job is running"
    _kill(ranks | _in_session(_leader(directory)))
    left = _paths(outputs)
    assert len(left) > 2 * 64
    outside.mkdir()
    (outside / "kept").touch()
    (data / "kept").touch()
    (data / "outputs-other").symlink_to(outside)
    line = f"{outputs}: files of job {directory.name}, which was killed\n"
    assert run("dlio-hpc", "clean", "--dry-run").out == f"would remove {line}", "nobody has asked for its state yet"

    (job,) = run("dlio-hpc", "status", directory, "--json").json["jobs"]
    assert job["state"] == "lost"
    waited = run("dlio-hpc", "wait", directory)
    assert (waited.code, "ended as lost" in waited.err, waited.out[:12]) == (7, True, "Not measured"), waited
    assert run("dlio-hpc", "report", directory).code == 7

    again = run(*_JOB, "--wait", "--json")
    assert (again.code, again.job["state"]) == (0, "completed"), again
    (summary,) = (one["result"]["summary"]["metadata"] for one in again.job["runs"])
    assert {one["phase"]: one["operations"] for one in summary} == dict.fromkeys(PHASES, 400) | {"readdir": 128}
    assert _paths(outputs) == left, "another job leaves them alone"

    for path in (outputs / "0" / "notes.txt", outputs / "0" / "f1.0"):
        path.touch()
    (outputs / "link").symlink_to(outside)
    for option in (["--dry-run"], []):
        refused = run("dlio-hpc", "clean", *option)
        assert (refused.code, refused.out) == (2, ""), refused
        assert refused.err.rstrip().endswith("Move these files away: 0/f1.0, 0/notes.txt, link")
    assert left < _paths(outputs)
    for path in (outputs / "0" / "notes.txt", outputs / "0" / "f1.0", outputs / "link"):
        path.unlink()
    cleaned = run("dlio-hpc", "clean")
    assert (cleaned.code, cleaned.out) == (0, f"removed {line}"), cleaned
    assert sorted(os.listdir(data)) == ["kept", "outputs-other"]
    assert os.listdir(outside) == ["kept"]


@pytest.mark.job
@pytest.mark.parametrize(("victims", "state", "code"), [("a rank", "failed", 6), ("the script", "lost", 7)])
def test_a_job_of_which_a_part_is_killed(tmp_path: Path, run: Run, victims: str, state: str, code: int) -> None:
    """The other processes end as well, so clean removes no folder in which a rank still works."""
    directory, ranks = _held(tmp_path, run, "create")
    _kill([min(ranks)] if victims == "a rank" else _in_session(_leader(directory)))
    waited = run("dlio-hpc", "wait", directory, "--json")
    (job,) = waited.json["jobs"]
    assert (waited.code, job["state"]) == (code, state), waited
    _wait(lambda: not any(map(_lives, ranks)) and not rundir.is_running(directory))
    assert run("dlio-hpc", "clean").code == 0
    assert os.listdir(tmp_path / "data") == []
