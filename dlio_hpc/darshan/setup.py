"""The setup of libdarshan for a run: its configuration file and the ranks' variables.

What Darshan does with its settings (darshan-runtime's documentation and source, 3.4 to 3.5) is said where it matters.
"""

import os
import re
import sys
from collections.abc import Iterable

from dlio_hpc.files import rundir
from dlio_hpc.plan import darshan_needs
from dlio_hpc.plan.plan import Plan, Run

# Of each read of the markers' file; no other has so many.
MARKER_BYTES = 1777
CONFIG, PROBE, VERDICT = "darshan.conf", "probe.json", "verdict.json"
# Which modules are filtered by name; HEATMAP has names of its own.
_MODULES = "POSIX,STDIO,MPI-IO,DXT_POSIX,DXT_MPIIO"
# A libdarshan before 3.4 reads no configuration file. DARSHAN_EXCLUDE_DIRS names the folders that it does not record
# and replaces its built-in list, which is _SYSTEM.
_SYSTEM = ("/etc/", "/dev/", "/usr/", "/bin/", "/boot/", "/lib/", "/opt/", "/sbin/", "/sys/", "/proc/", "/var/")
# MiB of memory for the records and the compressed trace, whose limits are compiled in.
_EARLY_POOL_MIB = 8


def marker_path(directory: str, run: Run) -> str:
    """Of the small file that core and Darshan both see read (see clocks): with the log, since data may be read-only."""
    return os.path.join(directory, rundir.RUNS, rundir.run_name(run.number, run.name), rundir.DARSHAN, "clock")


def early_variables() -> dict[str, str]:
    """Environment variables of ranks under a libdarshan before 3.4. $excluded: the folders of excluded()."""
    return {"DARSHAN_MODMEM": str(_EARLY_POOL_MIB), "DARSHAN_EXCLUDE_DIRS": "$excluded"}


def excluded(plan: Plan, python: Iterable[str]) -> str:
    """Value of DARSHAN_EXCLUDE_DIRS: folders of the system and of Python's modules (`python`), except those that
    contain paths to be recorded. Folders with a comma are left out, because the comma separates folders.
    """
    wanted = [run_path for run in plan.runs for run_path in (run.dataset, run.outputs)] + [plan.directory]
    folders = [
        *_SYSTEM,
        *(os.path.join(folder, "") for folder in python if folder.startswith("/") and "," not in folder),
    ]
    left_out = [folder for folder in folders if not any(f"{path}/".startswith(folder) for path in wanted)]
    return ",".join(dict.fromkeys(left_out))


def python_folders() -> list[str]:
    """Folders of the running interpreter, and those that it imports from."""
    return [sys.prefix, sys.base_prefix, *sys.path]


def config(plan: Plan, run: Run) -> str:
    """darshan.conf: one setting a line, the modules last; what is not the run's own data leaves no record.

    MODMEM must hold each module compressed: less than the trace has, and the whole log may be lost. NAME_INCLUDE is
    stronger than NAME_EXCLUDE.
    """
    need = darshan_needs.memory(plan, run)
    wanted = [f"{expression(folder)}/" for folder in (run.dataset, run.outputs)] + [
        f"{expression(marker_path(plan.directory, run))}$"
    ]
    included = [f"NAME_INCLUDE ^{path} {_MODULES}" for path in wanted]
    lines = [
        "MOD_ENABLE DXT_POSIX,DXT_MPIIO",
        f"MAX_RECORDS {need.records} POSIX,MPI-IO,STDIO",
        f"MAX_RECORDS {need.trace_kib} DXT_POSIX,DXT_MPIIO  # KiB of trace",
        f"MODMEM {need.pool_mib}",
        f"NAMEMEM {need.names_mib}",
        f"NAME_EXCLUDE . {_MODULES}",
        *included,
    ]
    return "\n".join(lines) + "\n"


def variables() -> dict[str, str]:
    """Of the ranks, as double-quoted words of the job script's function that knows $1, the run's Darshan folder, and
    $2, its log. A log that is there already is not replaced, so its name is new at every attempt.

    DXT_ENABLE_IO_TRACE is how libraries before 3.4 are asked for traces, which read no configuration file.
    """
    return {
        "DARSHAN_LOGFILE": "$1/$2",
        "DARSHAN_CONFIG_PATH": f"$1/{CONFIG}",
        "DARSHAN_MMAP_LOGPATH": f"$1/{rundir.LIVE}",
        "DARSHAN_DISABLE_SHARED_REDUCTION": "1",
        "DXT_ENABLE_IO_TRACE": "1",
    }


def expression(path: str) -> str:
    """A POSIX extended regular expression for `path`, as Darshan's configuration file takes it: no blank ends the word,
    no comma the expression, and backslash means something else before letters.
    """
    return "".join(map(_letter, path))


def _letter(letter: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_/-]", letter) or ord(letter) > 127:
        return letter
    if letter in "\\^":
        return "\\" + letter
    return "." if letter.isspace() or letter == "," else f"[{letter}]"
