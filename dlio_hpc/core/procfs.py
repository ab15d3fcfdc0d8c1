"""What the kernel says of this process or thread, and of the node: proc(5), cgroups(7)."""

import os
import threading
from pathlib import Path
from typing import NamedTuple

# More than the file ever has; read in one call.
_LONGEST = 1024


class IO(NamedTuple):
    """requested: bytes that read calls brought, from wherever (rchar). calls: how many (syscr). fetched: bytes that the
    kernel got from storage for them (read_bytes); pages that lay in the page cache are not in it.
    asking: bytes that this very question brought, which the next one will count.
    """

    requested: int
    calls: int
    fetched: int
    asking: int

    def since(self, before: "IO") -> "IO":
        """What came between, without the call that asked for `before` and the bytes it brought."""
        requested = self.requested - before.requested - before.asking
        return IO(requested, self.calls - before.calls - 1, self.fetched - before.fetched, 0)


def process_io() -> IO | None:
    """All threads since the start; None where the kernel does not tell."""
    return _io("/proc/self/io")


def thread_io() -> IO | None:
    """The calling thread since its start, through a file that stays open: while one thread closes a file, Darshan may
    lose sight of what another opens.
    """
    mine = getattr(_threads, "mine", None)
    try:
        if mine is None or mine.process != os.getpid():
            mine = _threads.mine = _Open("/proc/thread-self/io")
        return _parsed(os.pread(mine.descriptor, _LONGEST, 0))
    except OSError:
        return None


class _Open:
    """Until the thread ends; a process that is forked has its own to open."""

    def __init__(self, path: str) -> None:
        self.process = os.getpid()
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        os.close(self.descriptor)


_threads = threading.local()


def _io(path: str) -> IO | None:
    try:
        with open(path, "rb", buffering=0) as file:
            return _parsed(file.read(_LONGEST))
    except OSError:
        return None


def _parsed(text: bytes) -> IO | None:
    try:
        fields = text.split()
        return IO(int(fields[1]), int(fields[5]), int(fields[9]), len(text))
    except (IndexError, ValueError):
        return None


class Apart:
    """What the kernel fetched for the calling thread within such blocks."""

    def __init__(self) -> None:
        self._fetched = 0
        self._before: IO | None = None

    def __enter__(self) -> None:
        self._before = thread_io()

    def __exit__(self, *_: object) -> None:
        after = thread_io()
        if self._before is not None and after is not None:
            self._fetched += after.fetched - self._before.fetched

    def taken(self) -> int:
        """Bytes since the last question."""
        fetched, self._fetched = self._fetched, 0
        return fetched


def cpu_seconds() -> tuple[float, float] | None:
    """CPU seconds of all CPUs since the node started: busy, and stolen by a hypervisor. None where the kernel does not
    report them.
    """
    try:
        ticks = [int(field) for field in text("/proc/stat").splitlines()[0].split()[1:9]]
        user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    except (IndexError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick


def load() -> float | None:
    """Load average of the last minute: tasks that run or wait for storage. None where the kernel does not report it."""
    try:
        return float(text("/proc/loadavg").split()[0])
    except (IndexError, ValueError):
        return None


def stalled(resource: str) -> float | None:
    """Seconds since the node started in which some task waited for cpu, io or memory (pressure stall information); None
    where the kernel does not report them.
    """
    for line in text(f"/proc/pressure/{resource}").splitlines():
        total = line.rpartition("total=")[2]
        if line.startswith("some ") and total.isdigit():
            return int(total) / 1e6
    return None


def memory() -> int:
    """Bytes of memory that this job may fill on this node, page cache and all: the node's, or its control group's limit
    (cgroups(7): memory.max of version 2, memory.limit_in_bytes of version 1).
    """
    limits = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for line in text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in ("", "memory"):
            continue
        root = Path("/sys/fs/cgroup", controllers)
        name = "memory.limit_in_bytes" if controllers else "memory.max"
        group = root / path.lstrip("/")
        told = [text(str(each / name)) for each in (group, *group.parents) if each.is_relative_to(root)]
        limits += [int(words) for words in told if words.isdigit()]
    return min(limits)


def text(path: str) -> str:
    """Of a file that the kernel makes up; empty where it cannot be read."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
