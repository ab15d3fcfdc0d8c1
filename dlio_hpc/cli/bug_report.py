"""Reports of bugs in dlio-hpc: one line on stderr, and a file with the traceback and the command."""

import os
import platform
import shlex
import sys
import tempfile
import time
import traceback
from pathlib import Path

from dlio_hpc import __version__
from dlio_hpc.base import log_file, units
from dlio_hpc.base.errors import Unexpected, classified


def reported(program: str, arguments: list[str], fault: Exception) -> Unexpected:
    """Write the traceback of `fault` and the command to a file in the folder of jobs. If this is not possible, write
    them to a file in the folder for temporary files. If this is not possible either, write them to stderr. Return an
    error. Its message, one line, says where the traceback and the command are.
    """
    command = shlex.join([program, *arguments])
    trace = "".join(traceback.format_exception(fault))
    text = (
        f"command    {command}\n"
        f"directory  {_working_directory()}\n"
        f"time       {units.utc_now()}\n"
        f"version    dlio-hpc {__version__}, Python {platform.python_version()}, {platform.platform()}\n\n{trace}"
    )
    log_file.record("traceback", trace)
    line = str(classified(fault)).partition("\n")[0]
    place = _kept(text)
    if place is None:
        print(text, file=sys.stderr)
    where = "the traceback is above" if place is None else f"its traceback and the command are in {place}"
    return Unexpected(f"{line}; {where}")


def _kept(text: str) -> Path | None:
    """Write the text to a new file, and return the path of the file. Return None if no folder is writable. Only the
    owner may read the file, because the command may contain private data.
    """
    for folder in _folders():
        path = folder.absolute() / f"dlio-hpc-bug-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        try:
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
                file.write(text.encode(errors="backslashreplace").decode())
        except OSError:
            continue
        return path
    return None


def _folders() -> list[Path]:
    runs = Path(os.environ.get("DLIO_HPC_RUNS") or "dlio-runs")
    try:
        return [runs, Path(tempfile.gettempdir())]
    except OSError:
        return [runs]


def _working_directory() -> str:
    try:
        return os.getcwd()
    except OSError:
        return "was deleted"
