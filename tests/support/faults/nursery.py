"""A process that has imported what the commands import, and forks one process for each command, since the start takes
most of the time of a short command. python -m tests.support.faults.nursery REQUESTS ANSWERS (descriptors).

A request is a line of JSON: program, arguments, folder, environment, output. The answer has two lines: the id of the
process, and its exit code as subprocess has it.
"""

import ctypes
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mpi4py

from tests.support.faults.ground import BIN

_CORE = ["-m", "mpi4py", "-m", "dlio_hpc.core"]
_MODULES = (
    "h5py", "msgspec", "numpy", "pandas", "rich.console", "rich.progress", "rich.table", "sqlite3", "yaml", "zstandard",
    "dlio_hpc.core.run", "dlio_hpc.core.__main__", "dlio_hpc.core.merge", "dlio_hpc.core.loaders.native",
    "dlio_hpc.cli.submit", "dlio_hpc.cli.jobs", "dlio_hpc.cli.report", "dlio_hpc.cli.history", "dlio_hpc.cli.archive",
    "dlio_hpc.cli.datasets", "dlio_hpc.batch.collect", "dlio_hpc.batch.submit", "dlio_hpc.verdict.history",
    "dlio_hpc.reports.job_page",
    "dlio_hpc.reports.terminal", "dlio_hpc.reports.examined_runs", "dlio_hpc.reports.history_page",
)  # fmt: skip


def program(command: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the name and the arguments of a verb, or of a rank that is alone; None for other commands."""
    if command[0] in {str(BIN / "dlio-hpc"), str(BIN / "dlio-submit")}:
        return Path(command[0]).name, list(command[1:])
    if command[0] == sys.executable and list(command[1 : 1 + len(_CORE)]) == _CORE:
        return "core", list(command[1 + len(_CORE) :])
    return None


class Nursery:
    """Starts the process and talks to it. library: the library of faults, if commands are to meet some."""

    def __init__(self, library: Path | None = None) -> None:
        preload = {} if library is None else {"LD_PRELOAD": str(library)}
        requests, self._requests = os.pipe()
        answers, out = os.pipe()
        self._answers = os.fdopen(answers)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.faults.nursery", str(requests), str(out)],
            env={**os.environ, **preload, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL, pass_fds=(requests, out),
        )  # fmt: skip
        os.close(requests)
        os.close(out)

    def start(self, name: str, arguments: list[str], folder: Path, environment: dict[str, str], output: Path) -> int:
        """Return the id of the command's process, which leads a session of its own."""
        request = {
            "program": name, "arguments": arguments, "folder": str(folder), "environment": environment,
            "output": str(output),
        }  # fmt: skip
        os.write(self._requests, json.dumps(request).encode() + b"\n")
        return int(self._answers.readline())

    def code(self) -> int:
        """Return the exit code of the command that was started last, once it has ended."""
        return int(self._answers.readline())

    @property
    def descriptor(self) -> int:
        """The descriptor that is readable when code() returns at once."""
        return self._answers.fileno()

    def close(self) -> None:
        os.close(self._requests)
        self._process.wait()
        self._answers.close()


def main() -> None:
    """Answer requests until there are no more. A forked command ends with its own exit."""
    mpi4py.rc.initialize = False
    importlib.import_module("mpi4py.MPI")
    for module in _MODULES:
        importlib.import_module(module)
    requests, answers = os.fdopen(int(sys.argv[1])), int(sys.argv[2])
    for line in requests:
        pid = os.fork()
        if not pid:
            requests.close()
            os.close(answers)
            _run(json.loads(line))
            return
        os.write(answers, f"{pid}\n".encode())
        os.write(answers, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())


def _run(request: dict[str, Any]) -> None:
    """Run the command in a new session, with its own environment, folder and output."""
    os.setsid()
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    sys.argv = [request["program"], *request["arguments"]]
    if "FAULTS_STATE" in os.environ:
        ctypes.CDLL(None).faults_begin()
    if request["program"] == "core":
        from mpi4py import MPI

        from dlio_hpc.core.__main__ import main as core

        MPI.Init()
        core(request["arguments"])
        MPI.Finalize()
        return
    from dlio_hpc.cli import command_line

    (command_line.submit_main if request["program"] == "dlio-submit" else command_line.main)()


if __name__ == "__main__":
    main()
