"""A job's directory and the folder of archives: every file name in them is spelled here and nowhere else, and how files
get there safely.
"""

import fcntl
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlio_hpc.errors import about
from dlio_hpc.files import safe_folders

PLAN = "plan.json"
SCRIPT = "job.sh"
JOB = "job.json"
STUDY = "study.json"
STDOUT = "job.out"
STDERR = "job.err"
COBALT_LOG = "job.cobaltlog"
EXIT_STATUS = "exit_status"
STOP = "stop"
ATTEMPTS = "attempts"
LAYOUT = "layout"
DARSHAN = "darshan"
LIVE = "live"
BEFORE, AFTER = "before.yaml", "after.yaml"
ENVIRONMENT = "environment.json"
MANIFEST = "manifest.json"
RUNS = "runs"
RESULT = "result.json"
TIMELINE = "timeline.h5"
ERROR = "error.json"
TF_PROFILE = "tf-profile"
# Beside the archives, not in a job's directory.
HISTORY, HISTORY_LOCK, BASELINES = "history.db", "history.lock", "baselines"
# No JSON document of a job, an archive or a study has more bytes; the plan of a study with 10,000 points has less.
LARGEST_DOCUMENT = 64 << 20
# Jobs' directories below a folder of jobs: none that is still being made, whose name begins with a dot.
JOBS = f"[!.]*/{JOB}"
# A link or a pipe in the place of a file that is locked is neither followed nor waited for.
_LOCKED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def layout_name(when: str, place: int) -> str:
    """Of the record on a job's dataset: before.yaml or after.yaml, and before-2.yaml for the second one."""
    return when if not place else f"-{place + 1}.".join(when.rsplit(".", 1))


def run_name(number: int, name: str) -> str:
    """Such as 01-measure: by the order in which they are executed."""
    return f"{number:02}-{name}"


def run_directory(job: Path, number: int, name: str) -> Path:
    return job / RUNS / run_name(number, name)


def attempts(job: Path) -> list[Path]:
    """Folders with what earlier attempts of a requeued or repeated job left."""
    return list((job / ATTEMPTS).glob("[0-9]*"))


def xplane_name(rank: int) -> str:
    """What TensorFlow's profiler saw of a rank, in the folder TF_PROFILE of the run."""
    return f"rank-{rank}.xplane.pb"


# A file that is being written, or the rest of it: its name, the process and the host that write it.
_TEMPORARY = re.compile(r"[.](?P<name>.+)[.](?P<pid>\d+)-[0-9a-f]{8}@(?P<host>.+)[.]tmp")


def temporary_name(name: str) -> str:
    """A hidden name for what becomes `name`, which nobody else can foretell."""
    return f".{name}.{os.getpid()}-{os.urandom(4).hex()}@{os.uname().nodename}.tmp"


def rest_of(name: str) -> str | None:
    """The name of the file for which a temporary one of this name was made; None for any other name."""
    match = _TEMPORARY.fullmatch(name)
    return match["name"] if match else None


def is_being_written(name: str) -> bool:
    """May the process that made a temporary file still write to it? Those of other hosts may."""
    match = _TEMPORARY.fullmatch(name)
    return match is not None and (match["host"] != os.uname().nodename or Path(f"/proc/{match['pid']}").exists())


def matching(folder: Path, pattern: str) -> Iterator[Path]:
    """Files and folders below a folder, sorted, as Path.glob() gives them; OSError where one may not be looked at,
    which Path.glob() passes over.
    """
    first, _, rest = pattern.partition("/")
    names = [first]
    try:
        if set(first) & set("*?["):
            names = sorted(name for name in os.listdir(folder) if fnmatch.fnmatchcase(name, first))
        else:
            os.lstat(folder / first)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if rest:
            yield from matching(folder / name, rest)
        else:
            yield folder / name


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file to write to, which becomes `path` whole, on disk, or not at all; `path` itself where that is a
    device or a pipe.

    The file is new, and is given by its descriptor: in a folder that others write to as well, a link that they put in
    the place of its name leads nowhere.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    name = temporary_name(path.name)
    with about(path, alias=name):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(name, flags, 0o666, dir_fd=folder)
            try:
                place = safe_folders.held(descriptor)
                with about(path, alias=place):
                    yield place
                os.fsync(descriptor)
                os.rename(name, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(name, dir_fd=folder)
                raise
            finally:
                safe_folders.close(descriptor)
            os.fsync(folder)
        finally:
            safe_folders.close(folder)


def write(path: Path, content: bytes) -> None:
    """`content` at `path`, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def is_locked(directory: Path) -> bool:
    """Is somebody in the block of locked() just now?"""
    with locked_now(directory / PLAN) as is_mine:
        return not is_mine


@contextmanager
def locked_now(path: Path) -> Iterator[bool]:
    """As locked_file(), for who does not want to wait: False in the block where somebody else is in it."""
    with _lockable(path) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_mine = True
        except BlockingIOError:
            is_mine = False
        except OSError:
            is_mine = True  # a file system without locks
        yield is_mine


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """One process at a time in the block, for all that ask for the same job's directory."""
    with locked_file(directory / PLAN):
        yield


@contextmanager
def locked_file(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """One process at a time in the block, for all that ask for `path`; who has to wait calls `on_wait` first. False in
    the block where the file was removed meanwhile: somebody else may be in it with a new one.

    Where the file system knows no locks, nobody waits.
    """
    with _lockable(path) as descriptor:
        with suppress(OSError):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                on_wait()
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        with about(path):
            is_still = _is_still(path, descriptor)
        yield is_still


def _is_still(path: Path, descriptor: int) -> bool:
    """Is the file that was opened the one that lies there? A folder stands in for a file that cannot be opened."""
    opened = os.fstat(descriptor)
    try:
        return stat.S_ISDIR(opened.st_mode) or os.path.samestat(opened, os.stat(path))
    except OSError:
        return False


@contextmanager
def _lockable(path: Path) -> Iterator[int]:
    """A file open for writing: NFS locks no other, and Lustre's locks on folders do not reach other nodes. Open for
    reading where it is another user's; the folder, where it is missing or may not even be read.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | _LOCKED)
    except OSError:
        descriptor = _readable(path)
    try:
        yield descriptor
    finally:
        safe_folders.close(descriptor)


def _readable(path: Path) -> int:
    try:
        return os.open(path, os.O_RDONLY | _LOCKED)
    except OSError:
        return os.open(path.parent, os.O_RDONLY)
