"""Trial start of two ranks under libdarshan before the runs of a job, to check that libdarshan and MPI match."""

import subprocess
import time
from pathlib import Path

from dlio_hpc.base.errors import DlioError
from dlio_hpc.base.units import counted
from dlio_hpc.darshan import log_reader
from dlio_hpc.darshan.verdict_file import Probe

_PATIENCE_S, _GRACE_S = 120.0, 10.0


def probe(library: str, path: Path, command: list[str], ranks: int) -> Probe:
    """Run `command`, which starts `ranks` ranks under the libdarshan `library` and writes their log to `path`. Return
    the result. If the ranks fail, or leave no log with this number of ranks, the result says why libdarshan cannot be
    used.
    """
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
            _, errors = process.communicate(timeout=_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            try:
                process.wait(_GRACE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            return "", f"{counted(ranks, 'rank')} under libdarshan did not end within {_PATIENCE_S:.0f} s"
    if process.returncode:
        return (
            "",
            f"{counted(ranks, 'rank')} under libdarshan ended with exit code {process.returncode}: {_last(errors)}",
        )
    if not path.exists():
        return "", f"{counted(ranks, 'rank')} under libdarshan left no log: {_last(errors)}"
    try:
        log = log_reader.load(path, trace=False)
    except DlioError as fault:
        return "", str(fault)
    if log.job.ranks != ranks:
        return log.job.library, (
            f"the log has {counted(log.job.ranks, 'process')} instead of {ranks} ranks: libdarshan was not built for "
            "the ranks' MPI"
        )
    return log.job.library, None


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "no error message"
