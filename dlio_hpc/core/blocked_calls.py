"""System calls in which threads of a rank wait. The calls are read from proc(5), which does not slow the threads
down.
"""

import os
import platform
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.core import procfs


class _Arguments(NamedTuple):
    """Positions of the arguments of a system call; None if the call has no such argument. If the call has both a
    descriptor and a path, the path is relative to the folder that the descriptor refers to.
    """

    descriptor: int | None = None
    path: int | None = None
    offset: int | None = None


_FILE, _PATH, _AT, _RANGE = _Arguments(0), _Arguments(None, 0), _Arguments(0, 1), _Arguments(0, None, 3)
# System calls that wait for a file system: number on x86_64, number on aarch64, arguments. Source: unistd_64.h and
# unistd.h of Linux. Numbers above 424 are the same on all architectures. -1: the architecture does not have the call.
_CALLS: dict[str, tuple[int, int, _Arguments]] = {
    "read": (0, 63, _FILE), "write": (1, 64, _FILE), "readv": (19, 65, _FILE), "writev": (20, 66, _FILE),
    "pread64": (17, 67, _RANGE), "pwrite64": (18, 68, _RANGE), "preadv": (295, 69, _RANGE),
    "pwritev": (296, 70, _RANGE), "preadv2": (327, 286, _RANGE), "pwritev2": (328, 287, _RANGE),
    "sendfile": (40, 71, _Arguments(1)), "copy_file_range": (326, 285, _FILE), "io_uring_enter": (426, 426, _FILE),
    "open": (2, -1, _PATH), "openat": (257, 56, _AT), "openat2": (437, 437, _AT), "creat": (85, -1, _PATH),
    "close": (3, 57, _FILE), "fsync": (74, 82, _FILE), "fdatasync": (75, 83, _FILE), "msync": (26, 227, _Arguments()),
    "munmap": (11, 215, _Arguments()), "sync_file_range": (277, 84, _FILE), "fallocate": (285, 47, _FILE),
    "fadvise64": (221, 223, _FILE), "lseek": (8, 62, _FILE),
    "stat": (4, -1, _PATH), "lstat": (6, -1, _PATH), "fstat": (5, 80, _FILE), "newfstatat": (262, 79, _AT),
    "statx": (332, 291, _AT), "access": (21, -1, _PATH), "faccessat": (269, 48, _AT), "faccessat2": (439, 439, _AT),
    "readlink": (89, -1, _PATH), "readlinkat": (267, 78, _AT), "statfs": (137, 43, _PATH), "fstatfs": (138, 44, _FILE),
    "getdents": (78, -1, _FILE), "getdents64": (217, 61, _FILE), "truncate": (76, 45, _PATH),
    "ftruncate": (77, 46, _FILE), "rename": (82, -1, _PATH), "renameat": (264, 38, _AT),
    "renameat2": (316, 276, _AT), "mkdir": (83, -1, _PATH), "mkdirat": (258, 34, _AT), "rmdir": (84, -1, _PATH),
    "unlink": (87, -1, _PATH), "unlinkat": (263, 35, _AT),
}  # fmt: skip
_BY_NUMBER = {
    row[1 if platform.machine() == "aarch64" else 0]: (name, row[2])
    for name, row in _CALLS.items()
    if platform.machine() in {"x86_64", "aarch64"}
}
# Kinds of files that programs wait for although storage answers: devices and kernel files.
_NO_STORAGE = ("/dev/", "/proc/", "/sys/")
_AT_WORKING_DIRECTORY = -100
_LONGEST_PATH = 4096


class Call(NamedTuple):
    """System call in which a thread waits. name: name of the call, such as pread64; "a page fault" if the thread waits
    for a page of a mapped file. path: path of the file; empty if it is unknown. offset: offset in the file in bytes;
    None if the call has no offset.
    """

    name: str
    path: str
    offset: int | None

    @property
    def text(self) -> str:
        path = f" of {self.path}" if self.path else ""
        return self.name + path + ("" if self.offset is None else f" at byte {self.offset}")


def unblock(call: Call) -> None:
    """If the call opens a pipe, which waits for a writer and possibly for ever, let it return. Whoever made the call
    then finds that the file is not a regular file.
    """
    with suppress(OSError):
        if call.name in _OPENS and stat.S_ISFIFO(os.stat(call.path).st_mode):
            os.close(os.open(call.path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC))


_OPENS = {"open", "openat", "openat2"}


class Waiting(NamedTuple):
    """System call in which a thread waits, and a mark. If the thread makes the same call again, the mark is
    different.
    """

    mark: tuple[object, ...]
    call: Call


def waiting() -> list[Waiting]:
    """Return the calls in which threads of this process and of its child processes wait for storage. The calling thread
    is left out. Return an empty list if the kernel does not show calls.
    """
    processes = os.getpid(), *_children(os.getpid())
    threads = [(process, thread) for process in processes for thread in _numbers(f"/proc/{process}/task")]
    threads = [place for place in threads if place[1] != threading.get_native_id()]
    return [one for one in (_of_thread(*place) for place in threads) if one is not None]


def _children(process: int) -> Iterator[int]:
    for thread in _numbers(f"/proc/{process}/task"):
        yield from map(int, procfs.text(f"/proc/{process}/task/{thread}/children").split())


def _numbers(folder: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(folder) if name.isdigit())
    except OSError:
        return []


def _of_thread(process: int, thread: int) -> Waiting | None:
    """Return the call in which a thread waits for storage, or None if the thread does not wait for storage."""
    task = f"/proc/{process}/task/{thread}"
    line = procfs.text(f"{task}/syscall")
    number, *arguments = [field for field in line.split() if line[0] in "-0123456789"] or [""]
    if number == "-1":
        is_waiting = procfs.text(f"{task}/stat").rpartition(")")[2].split()[:1] == ["D"]
        return Waiting((process, thread, line), Call("a page fault", "", None)) if is_waiting else None
    if not number or int(number) not in _BY_NUMBER:
        return None  # it runs, or it waits for something else than storage
    name, places = _BY_NUMBER[int(number)]
    values = [int(argument, 16) for argument in arguments]
    path, position = _file(process, places, values)
    if path is None or path.startswith(_NO_STORAGE):
        return None
    done = [row for row in procfs.text(f"{task}/io").splitlines() if row.startswith("sysc")]
    offset = values[places.offset] if places.offset is not None else None
    if name in {"read", "write", "readv", "writev"} and position.isdigit():
        offset = int(position)
    return Waiting((process, thread, line, path, position, *done), Call(name, path, offset))


def _file(process: int, places: _Arguments, values: list[int]) -> tuple[str | None, str]:
    """Return two values for a call: the path of its file, and the position in the file of its descriptor. The path is
    empty if it is unknown, and None if the descriptor is a pipe or a socket.
    """
    path, position = "", ""
    if places.path is not None:
        path = _string(process, values[places.path])
    if places.descriptor is None or path.startswith("/"):
        return path, position
    descriptor = values[places.descriptor] & 0xFFFFFFFF
    if descriptor == _AT_WORKING_DIRECTORY & 0xFFFFFFFF:
        return os.path.join(_link(f"/proc/{process}/cwd") or "", path), position
    folder = _link(f"/proc/{process}/fd/{descriptor}")
    if folder is None:
        return path, position  # close() has removed the descriptor already
    if "io_uring" in folder:
        return "", position
    if not folder.startswith("/"):
        return None, position
    position = procfs.text(f"/proc/{process}/fdinfo/{descriptor}").partition("\n")[0].partition("\t")[2]
    return os.path.join(folder, path) if path else folder, position


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def _string(process: int, address: int) -> str:
    """Return the text at an address in the memory of a process, or an empty string if the text cannot be read. The
    memory is read through a file in proc(5), because a thread may have freed the memory meanwhile.
    """
    try:
        with Path(f"/proc/{process}/mem").open("rb", buffering=0) as memory:
            memory.seek(address)
            return os.fsdecode((memory.read(_LONGEST_PATH) or b"").partition(b"\0")[0])
    except (OSError, OverflowError, ValueError):
        return ""


class Since:
    """Record of how long each thread has waited in the same call. clock: function that returns the time in seconds.
    look: function that returns the calls in which threads wait now.
    """

    def __init__(self, clock: Callable[[], float], look: Callable[[], list[Waiting]] = waiting) -> None:
        self._clock, self._look = clock, look
        self._first: dict[tuple[object, ...], float] = {}

    def longest(self) -> tuple[Call, float] | None:
        """Read the calls again. Return the call in which a thread has waited longest, and the seconds for which the
        thread is known to wait. Return None if no thread waits.
        """
        now, calls = self._clock(), self._look()
        self._first = {one.mark: self._first.get(one.mark, now) for one in calls}
        if not calls:
            return None
        longest = min(calls, key=lambda one: self._first[one.mark])
        return longest.call, now - self._first[longest.mark]

    def forget(self) -> None:
        """Forget the calls, because the threads have made progress."""
        self._first = {}
