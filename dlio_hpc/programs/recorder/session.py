"""Recording of this process: its start, its description, the files that Python opens, and its end."""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import sys
import threading
from os import access as _access
from typing import Any, Callable

from . import hooks
from .recording import PROCESSES, VERSION, EventWriter

# Set by the user, or by `dlio-hpc record`: folder of the recordings; anything to store hashes in place of names.
FOLDER, ANONYMOUS = "DLIO_HPC_RECORD", "DLIO_HPC_RECORD_ANONYMOUS"
# Variables that launchers set: rank, number of ranks.
_RANKS = (
    ("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"),
    ("PMIX_RANK", "PMIX_SIZE"), ("PALS_RANKID", "PALS_SIZE"), ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"), ("ALPS_APP_PE", "ALPS_APP_SIZE"),
)  # fmt: skip
# Variables that name the job.
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "COBALT_JOBID", "FLUX_JOB_ID")
# Commands of dlio-hpc, which are no programs to be recorded.
_OUR_OWN = ("dlio-hpc", "dlio-submit")
# Files that Python or the system opens for itself.
_NO_DATA = (".py", ".pyc", ".pyi", ".so", ".pth")
_PACKAGES = ("/site-packages/", ".dist-info/", ".egg-info/")
# File system in memory to which programs stage data.
_MEMORY = "/dev/shm/"
# Longest ending of a file that is stored as it is.
_ENDING = 9
_SYSTEM = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/lib", "/usr/share/", "/lib/")


def start() -> None:
    """Begin to record this process, if the folder is set."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    folder = os.path.abspath(folder)
    names = Names(bool(os.environ.get(ANONYMOUS)))
    script = _script(names)
    if os.path.basename(script) in _OUR_OWN or script.startswith("-m dlio_hpc"):
        return
    recording = EventWriter(folder, names.label(os.uname().nodename), lambda begun: _process(begun, names, script))
    recording.add("start")
    recording.flush()
    _watch(recording, names, folder)
    hooks.install(hooks.Context(recording, names.of_path, names.label))
    atexit.register(recording.end)
    _end_of_children(recording)


class Names:
    """Path and object names in their recorded form. is_anonymous: whether names are replaced by hashes. In a path, each
    part is replaced separately, and the extension is kept.
    """

    def __init__(self, is_anonymous: bool) -> None:
        self.is_anonymous = is_anonymous
        self._salt = os.environ.get(ANONYMOUS, "").encode()

    def of_path(self, path: Any) -> str:
        """Return an absolute path in its recorded form. Raise TypeError for an object that is not a path, such as a
        stream.
        """
        text = os.path.abspath(os.fsdecode(path)).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
        if not self.is_anonymous:
            return text
        parts = text.split("/")
        return "/".join(self._hidden(part, place == len(parts)) for place, part in enumerate(parts, 1))

    def label(self, name: str) -> str:
        """Return the name of a node, a program, a class or a function in its recorded form."""
        return self._hash(name) if self.is_anonymous else name

    def _hidden(self, part: str, is_last: bool) -> str:
        stem, ending = os.path.splitext(part) if is_last else (part, "")
        return self._hash(stem) + (ending if len(ending) <= _ENDING else "")

    def _hash(self, text: str) -> str:
        return text and hashlib.sha256(self._salt + text.encode("utf-8", "replace")).hexdigest()[:12]


def _process(begun: float, names: Names, script: str) -> dict[str, Any]:
    """Describe the process. Its arguments are not recorded, except for the script. Its environment variables are not
    recorded, except for the variables of ranks and jobs.
    """
    return {
        "format": "dlio-hpc recording",
        "version": VERSION,
        "host": names.label(os.uname().nodename),
        "process": os.getpid(),
        "parent": os.getppid(),
        "begun": begun,
        "python": platform.python_version(),
        "script": script,
        "is_anonymous": names.is_anonymous,
        "rank": _of_launcher(),
        "job": next((os.environ[name] for name in _JOBS if name in os.environ), None),
    }


def _script(names: Names) -> str:
    """Return the script of this process, "-m NAME" for a module, or "-c"."""
    script = sys.argv[0] if getattr(sys, "argv", None) else ""
    if script == "-m":
        with open("/proc/self/cmdline", "rb") as file:
            return "-m " + names.label(_module(os.fsdecode(file.read()).split("\0")))
    return names.of_path(script) if script not in ("", "-c", "-") else script


def _module(arguments: list[str]) -> str:
    """Return the module of a command such as python -X dev -um NAME."""
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in ("-X", "-W", "--check-hash-based-pycs"):
            next(rest, "")
        elif argument.startswith("-") and not argument.startswith("--"):
            flags, is_module, name = argument.partition("m")
            if is_module and not set("XW") & set(flags):
                return name or next(rest, "")
    return ""


def _of_launcher() -> list[Any] | None:
    """Return rank, number of ranks and variable of this process, or None without a launcher."""
    for rank, size in _RANKS:
        number, count = os.environ.get(rank, ""), os.environ.get(size, "")
        if number.isdigit() and count.isdigit():
            return [int(number), int(count), rank]
    return None


def _watch(recording: EventWriter, names: Names, folder: str) -> None:
    """Record the data files that Python opens, and the processes that it starts. Use an audit hook."""
    busy = threading.local()
    actions = {"open": _opened(recording, names, folder), "subprocess.Popen": _started(recording, names)}

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        action = actions.get(event)
        if action is None or getattr(busy, "is_busy", False):
            return
        try:
            busy.is_busy = True
            action(*arguments)
        except Exception as fault:
            recording.fault(event, fault)
        finally:
            busy.is_busy = False

    sys.addaudithook(audit)


def _opened(recording: EventWriter, names: Names, folder: str) -> Callable[..., None]:
    homes = {os.path.abspath(prefix) for prefix in (sys.prefix, sys.base_prefix)}
    own = tuple(f"{home}/{part}/" for home in homes for part in ("lib", "lib64", "bin", "share", "include"))
    own += tuple(f"{folder}/{part}/" for part in (PROCESSES, "recorder"))

    def opened(path: Any, mode: Any, flags: Any) -> None:
        """Record an open. path: path of the file, or the number of the descriptor that is opened. mode: mode of open();
        None for os.open().
        """
        flag = flags if isinstance(flags, int) else 0
        if not isinstance(path, (str, bytes, os.PathLike)) or flag & os.O_DIRECTORY:
            return
        text = os.fsdecode(path)
        is_system = text.startswith(_SYSTEM) and not text.startswith(_MEMORY)
        if text.endswith(_NO_DATA) or is_system or set("\n\0") & set(text) or hooks.ADDRESS.match(text):
            return  # with line ends, it is a text
        text = os.path.abspath(text)
        if text.startswith(own) or any(part in text for part in _PACKAGES):
            return
        # A file that is opened to be read and written, and is neither made nor emptied, is data in most programs.
        makes = os.O_CREAT | os.O_TRUNC | os.O_APPEND
        is_written = bool(flag & os.O_WRONLY) or (isinstance(mode, str) and bool(set(mode) & set("wax")))
        is_written = is_written or bool(flag & os.O_RDWR and flag & makes)
        if not _is_there(os.path.dirname(text) if is_written else text):  # a text may be no path, but content
            return
        number = recording.file(text, names.of_path(text), is_written)
        if number is not None:
            recording.add("open", number, int(is_written))

    return opened


def _is_there(path: str) -> bool:
    """Return whether a file exists. This costs only a look-up of the name, like the look-up that an open makes."""
    return _access(path, os.F_OK)


def _started(recording: EventWriter, names: Names) -> Callable[..., None]:
    def started(executable: Any, arguments: Any, folder: Any, environment: Any) -> None:
        """Record the start of a process, and whether the environment of the process enables the recorder."""
        is_followed = environment is None or any(os.fsdecode(name) == FOLDER for name in environment)
        name = names.label(os.path.basename(os.fsdecode(executable or "")))
        recording.add("child", name, int(is_followed))

    return started


def _end_of_children(recording: EventWriter) -> None:
    """Write the remaining events at the end of a process of multiprocessing. Such a process does not run exit
    functions.
    """

    def imported(module: Any) -> None:
        module.register_after_fork(recording, lambda _: module.Finalize(None, recording.end, exitpriority=-1000))

    hooks.after_import("multiprocessing.util", imported)
