"""Folders that commands work in, which are restored before every fault; and the commands themselves."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

BIN = Path(sys.executable).parent


class Done(NamedTuple):
    """A command that has ended. code None: it did not end in time and was killed."""

    command: tuple[str, ...]
    code: int | None
    out: str

    @property
    def killed(self) -> bool:
        return self.code is not None and self.code < 0


class Ground:
    """live: the folder whose path plans and jobs hold. It has the folders data, runs and archive."""

    def __init__(self, folder: Path) -> None:
        self.live, self._kept = folder / "live", folder / "kept"
        self.data, self.runs, self.archive = (self.live / name for name in ("data", "runs", "archive"))
        self.live.mkdir(parents=True)

    def keep(self) -> None:
        """Keep the content of the folder for restore()."""
        shutil.copytree(self.live, self._kept, symlinks=True)

    def restore(self) -> None:
        """Kill the processes that still work in the folder, and restore its content."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._is_here(process):
                    os.kill(int(process.name), signal.SIGKILL)
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self._kept, self.live, symlinks=True)

    def _is_here(self, process: Path) -> bool:
        """Tell whether a process works in the folder, as ranks do, or has a path in it among its arguments."""
        cwd = os.readlink(process / "cwd")
        return Path(cwd.removesuffix(" (deleted)")).is_relative_to(self.live) or (
            os.fsencode(self.live) in (process / "cmdline").read_bytes()
        )

    @property
    def job(self) -> Path:
        """The directory of the only job."""
        (plan,) = self.runs.glob("*/plan.json")
        return plan.parent

    @property
    def dataset(self) -> Path:
        """The folder of the only dataset."""
        (folder,) = (path for path in self.data.iterdir() if path.is_dir())
        return folder


def run(command: Sequence[str | Path], folder: Path, variables: dict[str, str], patience_s: float) -> Done:
    """Run a command in a session of its own; the session is killed if the command takes too long."""
    arguments = tuple(map(str, command))
    log = folder / ".output"
    with log.open("wb") as out:
        process = subprocess.Popen(
            arguments, cwd=folder, env=environment(variables), stdin=subprocess.DEVNULL, stdout=out, stderr=out,
            start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(patience_s)
        except subprocess.TimeoutExpired:
            code = None
        if code is None:
            end_session(process.pid)
            process.wait()
    return Done(arguments, code, taken(log))


def environment(variables: dict[str, str]) -> dict[str, str]:
    """Return the environment of this process without the settings of dlio-hpc and MPI, and with the variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DLIO_HPC_", "FAULTS_", "PMI"))}
    return kept | variables


def end_session(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def taken(log: Path) -> str:
    """Return the text of a file and remove the file."""
    text = log.read_text(errors="replace")
    log.unlink()
    return text
