"""Program of test_checkpoint_modes.py: a checkpoint is written and read through a framework while calls of the file
system fail. It runs with the library of faults in LD_PRELOAD. The framework is imported once; each fault has a forked
process.

Usage: python -m tests.support.checkpoint_faults FOLDER MODE KINDS CALLS. It prints a JSON line for each fault that hit
a call: kind, nth, function, path, code, message. The first lines are of files that are damaged between writing and
reading.
"""

import ctypes
import errno
import importlib
import json
import os
import shutil
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dlio_hpc.base.errors import classified
from dlio_hpc.config import site
from dlio_hpc.config.workload import load
from dlio_hpc.core.checkpoint import Checkpoints
from dlio_hpc.files import safe_folders
from dlio_hpc.plan.plan import Run
from tests.support import planning
from tests.support.faults.fault import KINDS, PATH, Fault, Kind
from tests.support.faults.library import Library

# Kinds of faults whose cause must be named, and short reads and writes.
DISK = {name: kind for name, kind in KINDS.items() if kind.number or kind.action == "short"}
DISK["EROFS"] = Kind("EROFS", "fail", errno.EROFS, PATH)
_ALONE: Any = SimpleNamespace(rank=0, size=1, allgather=lambda value: [value], bcast=lambda value: value)
_IMPORTS = {"torch": ("torch",), "torch_distributed": ("torch.distributed.checkpoint",), "keras": ("keras", "h5py")}


def made(folder: Path, mode: str) -> Run:
    """Return a run whose checkpoints have two files of two tensors each."""
    keys = f"checkpoint={{files: [70000, 3000], mode: {mode}, reads: 1, verify: true}}"
    plan = planning.make(load("demo", (keys,)), site.load("local"), planning.Request(folder, data=folder))
    return plan.runs[-1]


def _write_and_read(run: Run, meets: Callable[[], None], damage: Callable[[Path], None] | None = None) -> None:
    assert run.workload.checkpoint is not None
    checkpoints = Checkpoints(run, run.workload.checkpoint, 0, 1, 0, _ALONE)
    meets()
    checkpoints.save()
    checkpoints.save()  # overwrites the first
    checkpoints.forget()
    if damage is not None:
        damage(Path(checkpoints.paths(2)[0]))
    checkpoints.restore(2)


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _change(path: Path) -> None:
    path.write_bytes(bytes(1000) + path.read_bytes()[1000:])


# What happens to the rank's file between writing and reading.
DAMAGES = {"missing": Path.unlink, "truncated": _halve, "changed": _change, "empty": lambda path: path.write_bytes(b"")}


def _in_a_process(action: Callable[[], None], out: Path) -> None:
    """Fork a process that performs an action and leaves its exit code and message in a file."""
    process = os.fork()
    if process:
        _, status = os.waitpid(process, 0)
        assert status == 0, f"the process ended with {status}"
        return
    code, message = 0, ""
    try:
        action()
    except Exception as fault:  # noqa: BLE001 - it is what the test looks at
        known = classified(fault)
        code, message = known.exit_code, str(known) if code != 70 else traceback.format_exc()
    except BaseException:  # noqa: BLE001
        code, message = 70, traceback.format_exc()
    out.write_text(json.dumps([code, message]))
    os._exit(0)


def main(folder: Path, mode: str, kinds: list[str], calls: int) -> None:
    library, run = Library(folder), made(folder, mode)
    warnings.simplefilter("ignore")
    for name in _IMPORTS[mode]:
        importlib.import_module(name)
    shared, out = ctypes.CDLL(None), folder / "out"

    def attempt(fault: Fault | None, damage: Any = None) -> tuple[int, str]:
        safe_folders.discard(run.outputs)

        def begin() -> None:
            os.environ.update(library.environment([Path(run.outputs)], "", fault))
            shared.faults_begin()

        _in_a_process(lambda: _write_and_read(run, begin, damage), out)
        code, message = json.loads(out.read_text())
        return code, message

    assert (whole := attempt(None)) == (0, ""), whole
    counts = library.counts()
    for name, damage in DAMAGES.items():
        code, message = attempt(None, damage)
        print(json.dumps({"kind": name, "nth": 0, "function": "", "path": "", "code": code, "message": message}))
    for name in kinds:
        kind = DISK[name]
        count = counts[kind.calls]
        for nth in sorted({max(1, count * place // calls) for place in range(1, calls + 1)}):
            code, message = attempt(Fault(kind, nth, lasting=name in {"ENOSPC", "EDQUOT", "EROFS"}))
            if hits := library.hits():
                row = {"kind": name, "nth": nth, "function": hits[0].function, "path": hits[0].path}
                print(json.dumps({**row, "code": code, "message": message}), flush=True)
    shutil.rmtree(run.outputs, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3].split(","), int(sys.argv[4]))
