"""Folders that commands work in, put back to what they were before every fault; and the commands themselves."""

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
    """A command that has ended; code None: it was ended, since it had not ended by itself in time."""

    command: tuple[str, ...]
    code: int | None
    out: str

    @property
    def killed(self) -> bool:
        return self.code is not None and self.code < 0


class Ground:
    """live: the folder whose path plans and jobs hold. Names in it: data, runs, archive."""

    def __init__(self, folder: Path) -> None:
        self.live, self._kept = folder / "live", folder / "kept"
        self.data, self.runs, self.archive = (self.live / name for name in ("data", "runs", "archive"))
        self.live.mkdir(parents=True)

    def keep(self) -> None:
        """Keep what lies there now for restore()."""
        shutil.copytree(self.live, self._kept, symlinks=True)

    def restore(self) -> None:
        """End what still works there, and put everything back."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._is_here(process):
                    os.kill(int(process.name), signal.SIGKILL)
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self._kept, self.live, symlinks=True)

    def _is_here(self, process: Path) -> bool:
        """Whether a process works in the folder, as ranks do, or was given a path in it."""
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
    """A command in a session of its own, which ends with it where it takes too long."""
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
    """This process's, without settings of ours and of MPI's, and with the variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DLIO_HPC_", "FAULTS_", "PMI"))}
    return kept | variables


def end_session(leader: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def taken(log: Path) -> str:
    """The text of a file, which is removed."""
    text = log.read_text(errors="replace")
    log.unlink()
    return text
