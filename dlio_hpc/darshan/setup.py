"""Setup of libdarshan for a run: its configuration file and the environment variables of the ranks.

Statements about Darshan in this module are based on the documentation and source of darshan-runtime 3.4 and 3.5.
"""

import os
import re
import sys
from collections.abc import Iterable

from dlio_hpc.files import rundir
from dlio_hpc.plan import darshan_needs
from dlio_hpc.plan.plan import Plan, Run

# Bytes of each read of the marker file. No other read has this size.
MARKER_BYTES = 1777
CONFIG, PROBE, VERDICT = "darshan.conf", "probe.json", "verdict.json"
# Modules whose records are filtered by file name. Records of HEATMAP do not have the names of files.
_MODULES = "POSIX,STDIO,MPI-IO,DXT_POSIX,DXT_MPIIO"
# Folders that a libdarshan before 3.4 does not record by default. Such a library reads no configuration file, and its
# environment variable DARSHAN_EXCLUDE_DIRS replaces this list.
_SYSTEM = ("/etc/", "/dev/", "/usr/", "/bin/", "/boot/", "/lib/", "/opt/", "/sbin/", "/sys/", "/proc/", "/var/")
# Memory in MiB that a libdarshan before 3.4 gets for records and compressed traces. Constants in the library limit the
# number of records and the size of traces.
_EARLY_POOL_MIB = 8


def marker_path(directory: str, run: Run) -> str:
    """Return the path of the marker file (see clock_alignment). The file is next to the log, because the dataset's
    folder may be read-only.
    """
    return os.path.join(directory, rundir.RUNS, rundir.run_name(run.number, run.name), rundir.DARSHAN, "clock")


def early_variables() -> dict[str, str]:
    """Return the environment variables for ranks under a libdarshan before 3.4. One of their values is $excluded, a
    shell variable that the job script sets to the value of excluded().
    """
    return {"DARSHAN_MODMEM": str(_EARLY_POOL_MIB), "DARSHAN_EXCLUDE_DIRS": "$excluded"}


def excluded(plan: Plan, python: Iterable[str]) -> str:
    """Return the value of DARSHAN_EXCLUDE_DIRS: folders in which Darshan records nothing. These are folders of the
    system and the folders `python`, from which Python imports modules. There are two exceptions. A folder is not
    excluded if it contains a path that Darshan must record. A Python folder is not excluded if its path has a comma,
    because the comma separates folders.
    """
    wanted = [run_path for run in plan.runs for run_path in (run.dataset, run.outputs)] + [plan.directory]
    folders = [
        *_SYSTEM,
        *(os.path.join(folder, "") for folder in python if folder.startswith("/") and "," not in folder),
    ]
    left_out = [folder for folder in folders if not any(f"{path}/".startswith(folder) for path in wanted)]
    return ",".join(dict.fromkeys(left_out))


def python_folders() -> list[str]:
    """Return the folders of the running interpreter and the folders from which it imports."""
    return [sys.prefix, sys.base_prefix, *sys.path]


def config(plan: Plan, run: Run) -> str:
    """Return the content of darshan.conf. Each line is a setting, followed by the modules that the setting applies to,
    if any. Only the dataset, the outputs and the marker file of the run are recorded.

    MODMEM must be large enough for each compressed module. If MODMEM is smaller than the trace, the whole log may be
    lost. NAME_INCLUDE takes precedence over NAME_EXCLUDE.
    """
    need = darshan_needs.memory(plan, run)
    wanted = [f"{expression(folder)}/" for folder in (*dataset_folders(run), run.outputs)] + [
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


def dataset_folders(run: Run) -> tuple[str, ...]:
    """Return the paths of the dataset's folder by which its files may be opened: the path in the plan and, if that path
    contains links, the path without links. HDF5 opens the files that it writes by the path without links.
    """
    return tuple(dict.fromkeys((run.dataset, os.path.realpath(run.dataset))))


def variables() -> dict[str, str]:
    """Return the environment variables of the ranks. The job script expands the values in double quotes. In the values,
    $1 is the run's Darshan folder, and $2 is the name of the log. The log of each attempt has a new name, because
    Darshan does not replace an existing log.

    DXT_ENABLE_IO_TRACE enables traces in versions of libdarshan before 3.4, which do not read a configuration file.
    """
    return {
        "DARSHAN_LOGFILE": "$1/$2",
        "DARSHAN_CONFIG_PATH": f"$1/{CONFIG}",
        "DARSHAN_MMAP_LOGPATH": f"$1/{rundir.LIVE}",
        "DARSHAN_DISABLE_SHARED_REDUCTION": "1",
        "DXT_ENABLE_IO_TRACE": "1",
    }


def expression(path: str) -> str:
    """Return a POSIX extended regular expression that matches `path` in Darshan's configuration file. Three things must
    not occur in the expression: a blank, which would end the word; a comma, which would end the expression; and a
    backslash before a letter, whose meaning depends on the implementation. A blank or comma in `path` is matched by
    ".".
    """
    return "".join(map(_letter, path))


def _letter(letter: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_/-]", letter) or ord(letter) > 127:
        return letter
    if letter in "\\^":
        return "\\" + letter
    return "." if letter.isspace() or letter == "," else f"[{letter}]"
