"""The library of faults. It is compiled here and given to a program through its environment."""

import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.faults.fault import CLASSES, Fault, Hit

_SOURCE = Path(__file__).with_name("library.c")
_COUNTS = struct.Struct(f"{CLASSES}q")


def compiler() -> str | None:
    """Return the C compiler of this machine; None if it has none."""
    return shutil.which(os.environ.get("CC") or "cc")


class Library:
    """The compiled library in a folder, with the files to which it writes its counts and hits."""

    def __init__(self, folder: Path) -> None:
        self.path, self._state, self._log = folder / "faults.so", folder / "state", folder / "log"
        program = compiler()
        assert program is not None
        options = ["-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
        subprocess.run([program, *options, "-o", str(self.path), str(_SOURCE), "-ldl"], check=True)

    def environment(self, below: Sequence[Path], program: str, fault: Fault | None) -> dict[str, str]:
        """Return the variables of a program whose calls on files below some folders are counted, and which meets the
        fault at one of them. program: text in the command line of the processes that may be hit.
        """
        self._state.write_bytes(bytes(_COUNTS.size))
        self._log.unlink(missing_ok=True)
        variables = {
            "LD_PRELOAD": str(self.path),
            "FAULTS_BELOW": ":".join(map(str, below)),
            "FAULTS_STATE": str(self._state),
            "FAULTS_LOG": str(self._log),
            "FAULTS_PROGRAM": program,
            "FAULTS_ACTION": "count",
        }
        if fault is None:
            return variables
        return variables | {
            "FAULTS_ACTION": fault.kind.action,
            "FAULTS_ERRNO": str(fault.kind.number),
            "FAULTS_CALLS": str(fault.kind.calls),
            "FAULTS_NTH": str(fault.nth),
            "FAULTS_LASTING": str(int(fault.lasting)),
            "FAULTS_RANK": "" if fault.rank is None else str(fault.rank),
        }

    def counts(self) -> tuple[int, ...]:
        """Return the calls so far, by their classes."""
        counts: tuple[int, ...] = _COUNTS.unpack(self._state.read_bytes())
        return counts

    def hits(self) -> list[Hit]:
        """Return the calls that met the fault, in their order."""
        if not self._log.exists():
            return []
        lines = self._log.read_text(errors="surrogateescape").splitlines()
        return [Hit(*line.split(" ", 1)) for line in lines if " " in line]
