"""A login node: our commands with a stand-in's on PATH, and helpers that read the files in jobs' directories."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from ctypes.util import find_library
from pathlib import Path
from typing import Any

from tests.conftest import BIN, Outcome, Run
from tests.support.standins.batch import Book


class Login:
    """`usual`: options of every submission. `folder` holds the programs of the stand-in in bin, its memory in state.
    `hold`: the batch system's option for a job that does not start by itself.
    """

    def __init__(self, run: Run, folder: Path, usual: tuple[object, ...], hold: str = "-h") -> None:
        self.folder, self.state, self.hold = folder, folder / "state", hold
        self.environment = {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        self._run, self.usual = run, usual

    def __call__(self, *command: object, **environment: str) -> Outcome:
        return self._run(*command, **self.environment | environment)

    def submit(self, workload: Path, *options: object) -> Outcome:
        return self("dlio-submit", workload, *self.usual, "--json", *options)

    def waited(self, workload: Path, *options: object, code: int = 0) -> Any:
        done = self.submit(workload, "--wait", *options)
        assert done.code == code, done.err
        return done.job

    def taken(self, workload: Path, *options: object) -> Path:
        """Submit a job. Return the directory of the job, which the batch system has."""
        done = self.submit(workload, *options)
        assert done.code == 0, done.err
        return Path(done.job["directory"])

    def held(self, workload: Path, *options: object) -> Path:
        """Submit a job that does not start by itself."""
        return self.taken(workload, "-J", self.hold, *options)

    def started(self, workload: Path, *options: object) -> Path:
        """Submit a job and wait until it runs its measured steps, a second each."""
        directory = self.taken(workload, "-S", "compute.time=1s", "-S", "train.epochs=60", *options)
        until(lambda: "01-measure 1/" in text(directory / "job.out"))
        return directory

    def watcher(self, directory: Path) -> "subprocess.Popen[str]":
        """Start dlio-hpc wait, which goes on by itself."""
        return subprocess.Popen(
            [BIN / "dlio-hpc", "wait", directory, "--json"], cwd=self.folder, env=os.environ | self.environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def tell(self, *command: object) -> str:
        """Return the output of a command of the batch system."""
        environment = os.environ | self.environment
        done = subprocess.run([*map(str, command)], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    def jobs(self) -> Any:
        """Return the batch system's memory of the jobs."""
        return Book(str(self.state)).read()["jobs"]

    def forget(self, directory: Path, status: str | None) -> None:
        """Reset the job to its record right after the submission, with `status` in exit_status. The word `terminated`
        after it stands for the mark of a signal.
        """
        before = record(directory)
        write(directory, before | {"states": before["states"][:2]})
        for name in ("exit_status", "terminated"):
            (directory / name).unlink(missing_ok=True)
        if status is not None:
            code, _, mark = status.partition(" ")
            (directory / "exit_status").write_text(code)
            (directory / (mark or "exit_status")).touch()


def until(holds: Callable[[], object], patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def record(directory: Path) -> Any:
    return json.loads((directory / "job.json").read_bytes())


def write(directory: Path, content: Any) -> None:
    (directory / "job.json").write_text(json.dumps(content))


def states(directory: Path) -> list[str]:
    return [sighting["state"] for sighting in record(directory)["states"]]


def state_text(directory: Path) -> str:
    """Return the batch system's own text for the job's newest state."""
    return str(record(directory)["states"][-1].get("text", ""))


def library() -> str:
    """Return a library that does no harm when it is preloaded."""
    name = find_library("m")
    (first, *_) = [path for folder in ("/lib", "/usr/lib") for path in Path(folder).glob(f"*-linux-gnu/{name}")]
    return str(first)


def outage(login: Login, directory: Path, workload: Path, go: Path, complaint: str) -> None:
    """Check that nothing is lost or guessed while the batch system is down. The job runs and ends with a failure once
    `go` exists. complaint: the stand-in's error message.
    """
    (login.state / "down").touch()
    blind = login("dlio-hpc", "status", directory)
    assert blind.code == 6
    assert f"{directory.name}  running" in blind.out, "as it was last seen"
    assert complaint in blind.err
    assert "states may be out of date" in blind.err
    assert login("dlio-hpc", "cancel", directory).code == 6
    refused = login.submit(workload)
    assert refused.code == 6
    assert complaint in refused.err
    watcher = login.watcher(directory)
    assert watcher.stderr is not None
    message = ""
    while "asking again" not in message:
        message = watcher.stderr.readline()
    go.touch()
    (login.state / "down").unlink()
    out, err = watcher.communicate(timeout=60)
    assert watcher.returncode == 6, err
    assert json.loads(out)["jobs"][0]["state"] == "failed"
    (stray,) = (path.parent for path in directory.parent.glob("*/job.json") if path.parent != directory)
    assert record(stray)["batch_id"] is None
    assert "cancelled before it was submitted" in login("dlio-hpc", "cancel", stray).out


def slowness(login: Login, workload: Path) -> None:
    """Check the commands with a batch system that takes a second for each answer."""
    (login.state / "slow").write_text("1")
    directory = login.held(workload)
    start = time.monotonic()
    assert "queued" in login("dlio-hpc", "status", directory).out
    assert time.monotonic() - start > 1


# States of a job that the batch system has forgotten, by the content of its file exit_status; None: no file.
_BY_EXIT_STATUS = {
    "0\n": "completed", "124\n": "timeout", "143\n": "failed", "143\n terminated": "cancelled", "3\n": "failed",
    None: "lost",
}  # fmt: skip


def exit_status_decides(login: Login, directory: Path, other: Path) -> None:
    """Check that the file exit_status tells how a job ended that the batch system has forgotten. other: a job that it
    knows.
    """
    for status, state in _BY_EXIT_STATUS.items():
        login.forget(directory, status)
        shown = login("dlio-hpc", "status", other, directory)
        known = "invalid" if status == "3\n" else state  # the exit code of an invalid run
        assert f"{directory.name}  {known} " in shown.out, status
        assert f"{other.name}  queued " in shown.out, "known beside one that is not"
        assert (shown.code, shown.err) == (0, "")
    (directory / "exit_status").write_text("0\n")
    assert "completed" in login("dlio-hpc", "status", directory).out, "what was lost has turned up"


def found_by_its_name(login: Login, directory: Path, cancel: Sequence[str], purge: Sequence[str]) -> None:
    """Check that a submission that was not written down is found while the job is queued and after it has ended, and
    not after the batch system has forgotten it. cancel, purge: commands.
    """
    before = record(directory)
    for state in ("queued", "cancelled"):
        write(directory, before | {"batch_id": None, "states": before["states"][:1]})
        until(lambda state=state: state in login("dlio-hpc", "status", directory).out)  # type: ignore[misc]
        assert record(directory)["batch_id"] == before["batch_id"]
        if state == "queued":
            login.tell(*cancel)
    login.tell(*purge)
    write(directory, before | {"batch_id": None, "states": before["states"][:1]})
    waited = login("dlio-hpc", "wait", directory)
    assert waited.code == 7
    assert "was never submitted to the batch system" in waited.err
