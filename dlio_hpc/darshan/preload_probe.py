"""Do libdarshan and the ranks' MPI belong together? Two ranks show it, before anything depends on them."""

import subprocess
import time
from pathlib import Path

from dlio_hpc.darshan import log_reader
from dlio_hpc.darshan.log_verdict import Probe
from dlio_hpc.errors import DlioError

_PATIENCE_S, _GRACE_S = 120.0, 10.0


def probe(library: str, path: Path, command: list[str], ranks: int) -> Probe:
    """Run `command`, which starts so many `ranks` under `library` with their log at `path`."""
    started = time.monotonic()
    version, why_not = "", None
    try:
        with open(library, "rb"):
            pass
        version, why_not = _tried(path, command, ranks)
    except OSError as fault:
        why_not = f"{library}: {fault.strerror} on this node"
    return Probe(library, version, why_not, time.monotonic() - started)


def _tried(path: Path, command: list[str], ranks: int) -> tuple[str, str | None]:
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, said = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return "", f"{ranks} rank(s) under it did not end within {_PATIENCE_S:.0f} s"
    if process.returncode:
        return "", f"{ranks} rank(s) under it ended with exit code {process.returncode}: {_last(said)}"
    if not path.exists():
        return "", f"{ranks} rank(s) under it left no log: {_last(said)}"
    try:
        found = log_reader.load(path, trace=False)
    except DlioError as fault:
        return "", str(fault)
    if found.job.ranks != ranks:
        return found.job.library, (
            f"its log is of {found.job.ranks} process(es), not of {ranks} ranks: it was built for another MPI"
        )
    return found.job.library, None


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"
