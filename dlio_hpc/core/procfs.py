"""Kernel counters of this process, this thread and the node, from proc(5) and cgroups(7)."""

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Bytes to read from /proc/PID/io. The file is always smaller, so one call reads all of it.
_LONGEST = 1024


class IO(NamedTuple):
    """Read counters of a process or thread. requested: bytes that read calls returned, from any source (rchar). calls:
    number of read calls (syscr). fetched: bytes that the kernel fetched from storage (read_bytes), without page cache
    hits. asking: size in bytes of the text that procfs returned for this reading of the counters. These bytes are not
    yet in `requested`; the next reading includes them.
    """

    requested: int
    calls: int
    fetched: int
    asking: int

    def since(self, before: "IO") -> "IO":
        """Return the increase of the counters since an earlier reading, `before`. Reading the counters is itself a
        counted call. The increase leaves out the call that read `before` and the bytes of this call.
        """
        requested = self.requested - before.requested - before.asking
        return IO(requested, self.calls - before.calls - 1, self.fetched - before.fetched, 0)


class PageFaults(NamedTuple):
    """Page faults of a thread. major: those that waited for storage. minor: those whose page was in memory."""

    major: int
    minor: int


def page_faults() -> PageFaults:
    """Return the page faults of the calling thread since its start (getrusage(2))."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return PageFaults(usage.ru_majflt, usage.ru_minflt)


def process_io() -> IO | None:
    """Return the counters of all threads of this process since its start, or None if the kernel does not
    report them.
    """
    return _io("/proc/self/io")


def thread_io() -> IO | None:
    """Return the counters of the calling thread since its start, or None if the kernel does not report them. The procfs
    file of the counters is kept open, because Darshan may lose track of a file that is opened while another thread
    closes one.
    """
    mine = getattr(_threads, "mine", None)
    try:
        if mine is None or mine.process != os.getpid():
            mine = _threads.mine = _Open("/proc/thread-self/io")
        return _parsed(os.pread(mine.descriptor, _LONGEST, 0))
    except OSError:
        return None


class ForeignThreads:
    """Threads of this process that Python did not start, such as threads of libraries. Their procfs files stay open,
    because opening them takes most of the time of reading them.
    """

    def __init__(self) -> None:
        self._opened: dict[int, _Open] = {}

    def io(self) -> dict[int, IO]:
        """Return the counters of each thread since its start, by the number of the thread. Threads that end meanwhile
        are left out.
        """
        known = {thread.native_id for thread in threading.enumerate()}
        try:
            numbers = [int(name) for name in os.listdir("/proc/self/task")]
        except OSError:
            return {}
        before, self._opened = self._opened, {}
        counters = {number: self._thread_io(number, before.get(number)) for number in numbers if number not in known}
        return {number: counter for number, counter in counters.items() if counter is not None}

    def _thread_io(self, number: int, file: "_Open | None") -> IO | None:
        """Return the counters of a thread. file: its procfs file, if that was opened before."""
        try:
            if file is None or file.process != os.getpid():
                file = _Open(f"/proc/self/task/{number}/io")
            counters = _parsed(os.pread(file.descriptor, _LONGEST, 0))
        except OSError:
            return None
        self._opened[number] = file
        return counters


class _Open:
    """A file in procfs that stays open until its thread ends. A forked process opens its own file."""

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


class ExcludedIO:
    """Context manager that counts the bytes that the kernel fetches from storage for the calling thread inside the
    `with` block, so that they can be excluded from the bytes fetched for samples.
    """

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
        """Return the bytes counted since the previous call of this method."""
        fetched, self._fetched = self._fetched, 0
        return fetched


def cpu_seconds() -> tuple[float, float] | None:
    """Return two sums over all CPUs of the node since the node started: the seconds in which a CPU was busy, and the
    seconds that a hypervisor stole. Return None if the kernel does not report them.
    """
    try:
        ticks = [int(field) for field in text("/proc/stat").splitlines()[0].split()[1:9]]
        user, nice, system, _idle, _iowait, irq, softirq, steal = ticks
    except (IndexError, ValueError):
        return None
    tick = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / tick, steal / tick


def load() -> float | None:
    """Return the load average of the last minute (tasks that run or wait for storage), or None if the kernel does not
    report it.
    """
    try:
        return float(text("/proc/loadavg").split()[0])
    except (IndexError, ValueError):
        return None


def stalled(resource: str) -> float | None:
    """Return the seconds since the node started in which at least one task was stalled on `resource`: cpu, io or memory
    (pressure stall information). Return None if the kernel does not report it.
    """
    for line in text(f"/proc/pressure/{resource}").splitlines():
        total = line.rpartition("total=")[2]
        if line.startswith("some ") and total.isdigit():
            return int(total) / 1e6
    return None


def physical_memory() -> int:
    """Return the bytes of memory of this node."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def memory() -> int:
    """Return the bytes of memory, page cache included, that this job may use on this node. This is the memory of the
    node, or the limit of the job's control group if the limit is lower. The limit is memory.max in version 2 of
    cgroups(7), and memory.limit_in_bytes in version 1.
    """
    limits = [physical_memory()]
    for controllers, group in _groups("memory"):
        value = text(str(group / ("memory.limit_in_bytes" if controllers else "memory.max")))
        limits += [int(value)] if value.isdigit() else []
    return min(limits)


def _groups(controller: str) -> Iterator[tuple[str, Path]]:
    """Yield the control groups of this process that may limit a resource, from the innermost to the outermost. For each
    group, yield its controllers, which are empty in version 2 of cgroups(7), and its folder.
    """
    for line in text("/proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = Path("/sys/fs/cgroup", controllers)
        group = root / path.lstrip("/")
        yield from ((controllers, folder) for folder in (group, *group.parents) if folder.is_relative_to(root))


def quota_periods() -> tuple[int, int] | None:
    """Return two numbers of periods of the CPU quota since the control group of this process was made: the number of
    periods in which the group ran, and the number of periods in which the group used up its quota and was stopped. If
    several groups have a quota, return the numbers of the group that was stopped most often. Return None if the kernel
    reports no such numbers.
    """
    counts = []
    for _, group in _groups("cpu"):
        values = dict(line.split(maxsplit=1) for line in text(str(group / "cpu.stat")).splitlines())
        with suppress(KeyError, ValueError):
            counts.append((int(values["nr_throttled"]), int(values["nr_periods"])))
    return max(counts)[::-1] if counts else None


def text(path: str) -> str:
    """Return the text of a file in procfs or sysfs, or an empty string if it cannot be read."""
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
