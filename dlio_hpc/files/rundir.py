"""Names of the files in a job's directory and in the folder of archives, and functions to write and lock files safely.
No other module defines these names.
"""

import fcntl
import fnmatch
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dlio_hpc.base.errors import about
from dlio_hpc.files import safe_folders

# End of the names of archives.
ARCHIVE_SUFFIX = ".tar.zst"
PLAN = "plan.json"
SCRIPT = "job.sh"
JOB = "job.json"
DATASET = "dlio-dataset.json"
STUDY = "study.json"
STDOUT = "job.out"
STDERR = "job.err"
COBALT_LOG = "job.cobaltlog"
EXIT_STATUS = "exit_status"
SETUP_FAILURES = "setup_failures"
STOP = "stop"
TERMINATED = "terminated"
ATTEMPTS = "attempts"
LAYOUT = "layout"
DARSHAN = "darshan"
LIVE = "live"
WORKERS = "workers"
BEFORE, AFTER = "before.yaml", "after.yaml"
ENVIRONMENT = "environment.json"
MANIFEST = "manifest.json"
RUNS = "runs"
PYTHON_ENVIRONMENT = "python-environment.tar"
RESULT = "result.json"
PROBE = "probe.json"
TIMELINE = "timeline.h5"
ERROR = "error.json"
HANGS = "hangs"
TF_PROFILE = "tf-profile"
# Folder beside the directories of jobs: the Python environments that jobs unpack on their nodes.
PYTHON_ENVIRONMENTS = "python-environments"
# Folder beside the directories of jobs: the indices of existing datasets.
DATASET_INDEXES = "dataset-indexes"
# Names in the folder of archives, not in a job's directory.
HISTORY, HISTORY_LOCK, BASELINES, ENTRIES = "history.db", "history.lock", "baselines", "entries"
# Files of jobs and of archives that cannot be made again.
RECORDS = (PLAN, SCRIPT, JOB, STUDY, EXIT_STATUS, ENVIRONMENT, MANIFEST, RESULT, PROBE, TIMELINE, ERROR, HISTORY)
# Maximum size in bytes of a JSON document of a job, an archive or a study. The plan of a study with 10,000 points is
# smaller.
LARGEST_DOCUMENT = 64 << 20
# Glob pattern of job directories in a folder of jobs. Incomplete directories have names that begin with a dot.
JOBS = f"[!.]*/{JOB}"
DATASETS = f"*/{DATASET}"
# Flags for opening lock files: links are not followed, and pipes do not block.
_LOCKED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def layout_name(when: str, place: int) -> str:
    """Return the file name of a layout record, such as before.yaml, or before-2.yaml for the second dataset of a job.
    when: before.yaml or after.yaml. place: index of the dataset in the job.
    """
    return when if not place else f"-{place + 1}.".join(when.rsplit(".", 1))


# Explanation of the names of runs, for the legend of a table.
RUN_NAMES = (
    "Names of runs: a number in the order of execution, and what the run does (generate: writes the dataset; warmup: "
    "not part of the results; measure: part of the results), with the number of the repeat."
)


def run_name(number: int, name: str) -> str:
    """Return the folder name of a run, such as 01-measure. For up to 100 runs, names sort in the order in which the
    runs are executed.
    """
    return f"{number:02}-{name}"


def run_directory(job: Path, number: int, name: str) -> Path:
    return job / RUNS / run_name(number, name)


def spare(job: Path) -> Path:
    """Return the folder on this node for the results and the exit status of a job whose own directory is full."""
    return Path(os.environ.get("TMPDIR") or "/tmp", f"dlio-hpc-{os.getuid()}", job.name)


def keep_spare(job: Path, name: str, content: bytes) -> Path | None:
    """Write a file of a job to the spare folder of this node. Return its path, or None if this is not possible."""
    path = spare(job) / name
    try:
        spare(job).parent.mkdir(mode=0o700, exist_ok=True)
        if not _is_own(spare(job).parent):
            return None
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError:
        return None
    return path


def spare_content(job: Path, name: str) -> bytes | None:
    """Return the content of a file of a job in the spare folder of this node, or None if there is none."""
    path = spare(job) / name
    try:
        return safe_folders.content(path, LARGEST_DOCUMENT) if _is_own(spare(job).parent) else None
    except OSError:
        return None


def spare_names(runs: Iterable[tuple[int, str]]) -> list[str]:
    """Return the names of the files that a job may have in the spare folder. runs: numbers and names of its runs."""
    return [EXIT_STATUS, *(f"{RUNS}/{run_name(number, name)}/{RESULT}" for number, name in runs)]


def take_spare(job: Path, runs: Iterable[tuple[int, str]]) -> None:
    """Copy files of a job that are only in the spare folder of this node to the job's directory."""
    for name in spare_names(runs):
        if not (job / name).exists() and (content := spare_content(job, name)) is not None:
            write(job / name, content)


def _is_own(folder: Path) -> bool:
    """Return whether a folder belongs to this user, and no other user may write to it."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def attempts(job: Path) -> list[Path]:
    """Return the folders that hold the results of earlier attempts of a job. A job has them if it was requeued or run
    again.
    """
    return list((job / ATTEMPTS).glob("[0-9]*"))


def xplane_name(rank: int) -> str:
    """Return the file name of a rank's TensorFlow profile. The file is in the folder TF_PROFILE of the run."""
    return f"rank-{rank}.xplane.pb"


# Pattern of the names of temporary files: final name, process that writes the file, host.
_TEMPORARY = re.compile(r"[.](?P<name>.+)[.](?P<pid>\d+)-[0-9a-f]{8}@(?P<host>.+)[.]tmp")


def temporary_name(name: str) -> str:
    """Return a hidden and unpredictable temporary name for a file or folder that will be renamed to `name`."""
    return f".{name}.{os.getpid()}-{os.urandom(4).hex()}@{os.uname().nodename}.tmp"


def rest_of(name: str) -> str | None:
    """Return the final name that a temporary name contains, or None if `name` is not a temporary name."""
    match = _TEMPORARY.fullmatch(name)
    return match["name"] if match else None


def is_being_written(name: str) -> bool:
    """Return whether the process that created a temporary file may still write to the file. If the process runs on
    another host, it cannot be checked; return True in that case.
    """
    match = _TEMPORARY.fullmatch(name)
    return match is not None and (match["host"] != os.uname().nodename or Path(f"/proc/{match['pid']}").exists())


def matching(folder: Path, pattern: str) -> Iterator[Path]:
    """Yield in sorted order the paths below a folder that match a pattern, like Path.glob(). Unlike Path.glob(), raise
    OSError if a folder is not readable.
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
    """Yield the path of a temporary file for new content. At the end of the `with` block, the temporary file is synced
    to disk and replaces `path` atomically; on an exception it is removed. If `path` is a device or a pipe, yield `path`
    itself.

    The temporary file is new and is accessed through its descriptor. A link that another user creates with the same
    name therefore has no effect.
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
                    safe_folders.let_group_read(descriptor, path.parent)
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
    """Write `content` to `path` atomically: after an interruption, the file has either the old or the new content."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def is_locked(directory: Path) -> bool:
    """Return whether another process holds the lock of a job's directory at this moment; see locked()."""
    with locked_now(directory / PLAN) as is_mine:
        return not is_mine


def is_running(directory: Path) -> bool:
    """Return whether the script of a job, or a process that it started, holds the lock of the script."""
    with locked_now(directory / SCRIPT) as is_mine:
        return not is_mine


@contextmanager
def locked_now(path: Path) -> Iterator[bool]:
    """Try to lock a file for the duration of the `with` block, without waiting. Yield True if this process got the
    lock, and False if another process holds it. On a file system without locks, yield True.
    """
    with _lockable(path) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_mine = True
        except BlockingIOError:
            is_mine = False
        except OSError:
            is_mine = True  # a file system without locks
        yield is_mine


# Seconds for which a reader of a dataset waits for a process that holds the lock.
_SHARING_S = 1.0


@contextmanager
def shared(path: Path) -> Iterator[None]:
    """Hold a shared lock on a file for the duration of the `with` block; locked_now() then yields False elsewhere. Hold
    no lock if the file cannot be opened, if another process holds its lock for longer than a second, or on a file
    system without locks.
    """
    descriptor, until = -1, time.monotonic() + _SHARING_S
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | _LOCKED)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except BlockingIOError:  # a process tests the lock, which takes milliseconds
                if time.monotonic() > until:
                    break
                time.sleep(0.01)
    try:
        yield
    finally:
        safe_folders.close(descriptor)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a job's directory for the duration of the `with` block. If another process holds the
    lock, wait.
    """
    with locked_file(directory / PLAN):
        yield


@contextmanager
def locked_file(path: Path, on_wait: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Hold the lock of the file `path` for the duration of the `with` block. If another process holds the lock, call
    `on_wait` and then wait. Yield True if `path` is still the locked file. Yield False if the file was removed or
    replaced meanwhile; another process may then hold the lock of a new file.

    On a file system without locks, do not wait.
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
    """Return whether the open file is still the file at `path`. If the folder was opened instead of the file, return
    True.
    """
    opened = os.fstat(descriptor)
    try:
        return stat.S_ISDIR(opened.st_mode) or os.path.samestat(opened, os.stat(path))
    except OSError:
        return False


@contextmanager
def _lockable(path: Path) -> Iterator[int]:
    """Open a file so that it can be locked, and yield its descriptor. The file is opened for writing, because NFS
    requires this for a lock. If writing is not allowed, the file is opened for reading. If the file is missing or not
    readable, its folder is opened instead. On Lustre, locks on folders do not reach other nodes.
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
