"""Removal of the shared memory and the temporary files that killed processes leave on a node.

MPI libraries, Python's multiprocessing and TensorFlow remove their files when a process ends by itself, but not when it
is killed. If a run fails or is ended, the job script then runs this file by its path on each node. The file imports
only the standard library. Ranks call clear() before MPI_Init: under Slurm, MPICH names its segment after job and step,
and does not start if an earlier job left a segment of this name.

A file is removed if its name is known here, it belongs to this user, and no live process needs it. In doubt, a file is
kept: if processes of another PID namespace may use it, or if several nodes may share its folder.
"""

import errno
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

_SHM = "/dev/shm"
# Seconds for which a segment without a mark is left alone, because a process may be about to open it. See mark().
_YOUNG_S = 60.0
# The permission that marks a segment. No library sets it.
_MARK = stat.S_IXUSR
# Seconds in which killed ranks disappear.
_PATIENCE_S = 1.0
# Seconds by which the clock of file systems may be behind that of processes.
_TICK_S = 1.0
# Kinds of file systems that belong to one node.
_LOCAL = {"tmpfs", "ramfs", "rootfs", "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "overlay"}
# Inode numbers of the initial PID and IPC namespaces (include/linux/proc_ns.h of Linux).
_INITIAL_PID, _INITIAL_IPC = 0xEFFFFFFC, 0xEFFFFFFF
# A line of /proc/PID/maps: major and minor device number, inode number, path.
_MAPPED = re.compile(rb"^\S+ \S+ \S+ ([0-9a-f]+):([0-9a-f]+) (\d+) +(/.*)$", re.MULTILINE)
# Segments of MPICH, of Open MPI 5 (sm) and 4 (vader), of Open MPI's windows (osc), of UCX.
_SEGMENT = re.compile(r"(?:mpich_shm_|sm_segment\.|vader_segment\.|osc_(?:sm|rdma|ucx)\.|ucx_shm_posix_).+")
# Folders of Open MPI, named after the process that made them: ompi.PID (5.0), prterun.HOST.PID.UID (PRRTE), and pid.PID
# in ompi.HOST.UID (4.1).
_SESSION = re.compile(r"ompi\.(\d+)|prte(?:run|d)?(?:\.session)?\..+\.(\d+)\.\d+|pid\.(\d+)")
_SESSIONS = re.compile(r"ompi\..+\.\d+")


def mark(folder: str = _SHM) -> None:
    """Mark the segments that this rank maps. A marked segment may be removed as soon as no process maps it. Call this
    after MPI_Init, when no process is about to open a segment. The mark is a bit of the file mode. The modification
    time cannot serve as the mark, because the kernel changes it whenever a rank writes to a new page. folder: folder of
    shared memory.
    """
    with suppress(OSError):
        for path in {os.fsdecode(path) for *_, path in _MAPPED.findall(_content("/proc/self/maps"))}:
            if os.path.dirname(path) == folder and _SEGMENT.fullmatch(os.path.basename(path)):
                with suppress(OSError):
                    os.chmod(path, stat.S_IMODE(os.lstat(path).st_mode) | _MARK)


def clear(shm: str = _SHM, temporary: Iterable[str] | None = None) -> None:
    """Remove files that dead processes of this user left. shm: folder of shared memory. temporary: folders of temporary
    files; None for the folders that this process uses.
    """
    if not _sees_all_processes():
        return
    if temporary is None:
        temporary = {os.path.realpath(folder) for folder in (os.environ.get("TMPDIR") or "/tmp", "/tmp")}
    folders = [folder for folder in (shm, *temporary) if _is_of_node(folder)]
    files = [(file, judge) for folder in folders for file in _own(folder) if (judge := _judge(file.name))]
    if not files:
        return
    processes = _Processes()  # read after the files are listed: it shows who has opened them
    for file, is_left in files:
        with suppress(OSError):
            if is_left(file, processes):
                _remove(file)


class _File:
    """A file or folder. identity: major and minor device number, and inode number. changed: its modification time."""

    def __init__(self, path: str) -> None:
        status = os.lstat(path)
        self.path, self.name = path, os.path.basename(path)
        self.owner, self.mode, self.changed = status.st_uid, status.st_mode, status.st_mtime
        self.is_folder = stat.S_ISDIR(status.st_mode)
        self.identity = os.major(status.st_dev), os.minor(status.st_dev), status.st_ino


class _Processes:
    """The live processes. numbers: process ids of all processes. The following fields include only processes that this
    user may examine. mapped: identities of the files that these processes map. paths: paths of the files that they map
    or have open. first_proxy: time when the oldest hydra proxy started; infinite if there is no hydra proxy.
    """

    def __init__(self) -> None:
        self.numbers = _numbers()
        self.mapped: set[tuple[int, int, int]] = set()
        self.paths: set[str] = set()
        self.first_proxy = float("inf")
        for number in self.numbers:
            with suppress(OSError):
                self._add(f"/proc/{number}")

    def _add(self, folder: str) -> None:
        for major, minor, inode, path in _MAPPED.findall(_content(f"{folder}/maps")):
            self.mapped.add((int(major, 16), int(minor, 16), int(inode)))
            self.paths.add(os.fsdecode(path))
        for name in os.listdir(f"{folder}/fd"):
            with suppress(OSError):  # closed meanwhile
                self.paths.add(os.readlink(f"{folder}/fd/{name}"))
        if _content(f"{folder}/comm").startswith(b"hydra_"):
            self.first_proxy = min(self.first_proxy, _start(folder))

    def use(self, file: _File) -> bool:
        """Return whether a process maps the file or has it open. If `file` is a folder, check the files in the
        folder.
        """
        if file.is_folder:
            return any(path.startswith(f"{file.path}/") for path in self.paths)
        return file.identity in self.mapped or file.path in self.paths


def _is_left_segment(file: _File, processes: _Processes) -> bool:
    is_complete = bool(file.mode & _MARK) or time.time() - file.changed > _YOUNG_S
    return is_complete and not processes.use(file)


def _is_left_semaphore(file: _File, processes: _Processes) -> bool:
    """Return True if no process maps a semaphore of Python's multiprocessing. This also holds for new semaphores:
    sem_open(3) of glibc gives a semaphore its name only after mapping it.
    """
    return not processes.use(file)


def _is_left_topology(file: _File, processes: _Processes) -> bool:
    """Return whether the hydra proxy that wrote the file has ended. The file describes the topology of the node for
    ranks.
    """
    return file.changed + _TICK_S < processes.first_proxy


def _is_left_session(file: _File, processes: _Processes) -> bool:
    match = _SESSION.fullmatch(file.name)
    numbers = map(int, filter(None, match.groups())) if match else ()
    return file.is_folder and processes.numbers.isdisjoint(numbers) and not processes.use(file)


def _is_left_source(_: _File, processes: _Processes) -> bool:
    """Return True if no process has loaded TensorFlow. A process with TensorFlow may read the sources that AutoGraph
    wrote until the process ends.
    """
    return not any("tensorflow" in path for path in processes.paths)


def _are_left_sockets(file: _File, _: _Processes) -> bool:
    """Return whether a folder of Python's multiprocessing holds only sockets without listeners, and at least one. An
    empty folder may belong to a process that is about to make a socket.
    """
    paths = [os.path.join(file.path, name) for name in os.listdir(file.path)] if file.is_folder else []
    return bool(paths) and all(map(_is_dead_socket, paths))


def _is_dead_socket(path: str) -> bool:
    """Return whether a file is a socket without a listener."""
    import socket  # takes long, and is rarely needed

    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    rows = [line.split(maxsplit=7) for line in _content("/proc/net/unix").splitlines()]
    if [os.fsencode(path)] in [row[7:] for row in rows]:  # it has a listener, which a connection would disturb
        return False
    with socket.socket(socket.AF_UNIX) as client:
        client.setblocking(False)
        return client.connect_ex(path) == errno.ECONNREFUSED


_JUDGES: tuple[tuple[re.Pattern[str], Callable[[_File, _Processes], bool]], ...] = (
    (_SEGMENT, _is_left_segment),
    (re.compile(r"sem\.mp-.+"), _is_left_semaphore),
    (re.compile(r"hydra_hwloc_xmlfile_.+"), _is_left_topology),
    (_SESSION, _is_left_session),
    (re.compile(r"__autograph_generated_file.+\.py"), _is_left_source),
    (re.compile(r"pymp-.+"), _are_left_sockets),
)


def _judge(name: str) -> Callable[[_File, _Processes], bool] | None:
    """Return the function that decides whether a file with this name is left over, or None for an unknown name."""
    return next((judge for pattern, judge in _JUDGES if pattern.fullmatch(name)), None)


def _own(folder: str) -> Iterator[_File]:
    """Yield the files and folders of this user in `folder`, including those inside a folder of Open MPI 4."""
    with suppress(OSError):
        for name in os.listdir(folder):
            with suppress(OSError):  # removed meanwhile
                file = _File(os.path.join(folder, name))
                if file.owner == os.geteuid():
                    yield file
                    if file.is_folder and _SESSIONS.fullmatch(name):
                        yield from _own(file.path)


def _remove(file: _File) -> None:
    if file.is_folder:
        import shutil

        shutil.rmtree(file.path)
    else:
        os.unlink(file.path)


def _sees_all_processes() -> bool:
    """Return whether /proc shows all processes that may use files of this user: this process is in the initial PID
    namespace, or in a container with shared memory of its own.
    """
    with suppress(OSError):
        is_initial = os.stat("/proc/self/ns/pid").st_ino == _INITIAL_PID
        return is_initial or os.stat("/proc/self/ns/ipc").st_ino != _INITIAL_IPC
    return False


def _is_of_node(folder: str) -> bool:
    """Return whether a folder is on a file system that belongs to this node alone."""
    kind, longest = b"", -1
    with suppress(OSError):
        for line in _content("/proc/self/mounts").splitlines():
            _, mount, mounted = line.split()[:3]
            point = os.fsdecode(mount).rstrip("/")
            if (folder == point or folder.startswith(f"{point}/")) and len(point) >= longest:
                kind, longest = mounted, len(point)
    return os.fsdecode(kind) in _LOCAL


def _numbers() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def _start(folder: str) -> float:
    """Return the time when a process started, in seconds since 1970 (field 22 of proc_pid_stat(5))."""
    ticks = int(_content(f"{folder}/stat").rpartition(b")")[2].split()[19])
    boot = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return boot + ticks / os.sysconf("SC_CLK_TCK")


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _has_ranks(job: str) -> bool:
    """Return whether a rank of the job, or a process forked by a rank, is still alive on this node. job: directory of
    the job.
    """
    for number in _numbers():
        with suppress(OSError):
            if os.readlink(f"/proc/{number}/cwd") == job and b"dlio_hpc.core" in _content(f"/proc/{number}/cmdline"):
                return True
    return False


def main(job: str) -> None:
    """Wait until the killed ranks of a job have disappeared, and clear the node. job: directory of the job."""
    deadline = time.monotonic() + _PATIENCE_S
    while _has_ranks(os.path.realpath(job)) and time.monotonic() < deadline:
        time.sleep(0.02)
    clear()


if __name__ == "__main__":
    main(sys.argv[1])
