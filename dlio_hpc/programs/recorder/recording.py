"""File of a recorded process: one JSON array per line. The first line describes the process, and the others are events.

An event is [seconds since the start of the process, kind, values...]. Events are kept in memory for at most half a
second and then appended to the file, so a killed process loses at most half a second. If the file reaches _ROOM bytes,
frequent events are only counted. The counts are written at growing intervals; each interval is twice as long as the
previous one.
"""

from __future__ import annotations

import errno
import itertools
import math
import os
import resource
import sys
import time
from collections import deque
from json import dumps
from os.path import getsize, isfile
from types import FrameType
from typing import Any

# Bytes of a file from which on frequent events are only counted, and from which on nothing more is written.
_ROOM, _MOST = 8 << 20, 12 << 20
# Number of files whose sizes are stored.
_SIZED = 256
# Seconds, and number of events, after which events are written.
_LATE_S, _MANY = 0.5, 256
# Kinds of events that happen for each step, batch, file or call.
FREQUENT = frozenset({"batch", "step", "fetch", "read", "write", "open", "file", "train_batch", "test_batch"})
# Kinds of events after which the kernel's counts of bytes are written immediately. A pass is between two of them.
_COUNTED = frozenset({"pass", "end_of_pass", "worker", "fetcher", "epoch_begin", "epoch_end", "test_begin"})
# Version of the format, and folder of a recording that contains the files of its processes.
VERSION, PROCESSES = 1, "processes"
# Folder of the recorder, and beginnings of the names of files of Python's own library.
_OWN = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PYTHON = (os.path.dirname(os.path.abspath(os.__file__)) + os.sep, "<frozen ")
# Libraries whose functions the recorder calls.
_LIBRARIES = frozenset({
    "torch", "tensorflow", "keras", "jax", "jaxlib", "numpy", "h5py", "zarr", "PIL", "pandas", "pyarrow", "lmdb",
    "webdataset", "orbax", "mpi4py", "horovod", "cupy",
})  # fmt: skip
# Tests of a program may replace functions of modules. The recorder keeps those of its start.
clock, _open = time.monotonic, open


def say(text: str) -> None:
    """Write a line to stderr, if stderr is still the file of the start of the process. A program may close it and open
    another file with the same number.
    """
    try:
        if _identity() != _STDERR:
            return
        sys.stderr.write(f"dlio-hpc record: {text}\n")
    except Exception as fault:  # closed, or replaced by an object of the program's own
        if is_of_program(fault):
            raise


def is_of_program(fault: BaseException) -> bool:
    """Return whether the exception `fault` is meant for the program, and not a fault of the recorder. A signal may
    arrive while the recorder works, and another thread may send an exception. An exception that an object of the
    program raises when the recorder reads it is a fault of the recorder.
    """
    place, frame = fault.__traceback__, None
    while place is not None:
        if frame is not None and _is_handler(place.tb_frame, frame):
            return True
        frame, place = place.tb_frame, place.tb_next
    is_own = frame is not None and frame.f_globals.get("__package__") == __package__
    if frame is None or not (is_own or _is_python(frame.f_code.co_filename)):
        return False
    # Python makes an exception that a thread sends without arguments. Faults of its own functions have some.
    return not _is_known(type(fault)) or not (fault.args or isinstance(fault, MemoryError))


def _is_handler(frame: FrameType, interrupted: FrameType) -> bool:
    """Return whether a frame belongs to a signal handler or to a tracer. Python passes the interrupted frame to these
    functions.
    """
    for value in frame.f_locals.values():
        if any(part is interrupted for part in (value if type(value) is tuple else [value])):
            return True
    return False


def _is_known(kind: type) -> bool:
    """Return whether Python or a recorded library defines an exception class."""
    name = kind.__module__
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return name in sys.builtin_module_names or _is_python(file) or name.partition(".")[0] in _LIBRARIES


def _is_python(file: str) -> bool:
    """Return whether a file belongs to Python's own library."""
    return file.startswith(_PYTHON) and "-packages" not in file


def _described(fault: BaseException) -> str:
    """Return the type of a fault and the line of the recorder. The text of the fault is not returned, because it may
    contain data of the program. The name of a type that the program defines may contain such data as well.
    """
    place, line = fault.__traceback__, ""
    while place is not None:
        file = place.tb_frame.f_code.co_filename
        if file.startswith(_OWN):
            line = f" at {os.path.basename(file)}:{place.tb_lineno}"
        place = place.tb_next
    return (type(fault).__name__ if _is_known(type(fault)) else "an exception of the program") + line


def _moved() -> tuple[int, int] | None:
    """Return the bytes that the process has read and written in system calls, as the kernel counts them, or None."""
    try:
        with _open("/proc/self/io", "rb") as file:
            rows = dict(line.split(b": ") for line in file.read().splitlines())
        return int(rows[b"rchar"]), int(rows[b"wchar"])
    except (OSError, KeyError, ValueError) as fault:  # a kernel without accounting, or a container that hides it
        if is_of_program(fault):
            raise
        return None


def _largest() -> float:
    """Return the maximum size of a file that this process may write. A larger file ends the process by a signal."""
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit


def _identity() -> tuple[int, int] | None:
    """Return the device and the inode of the file that stderr refers to, or None if there is no stderr."""
    try:
        facts = os.fstat(2)
    except OSError:
        return None
    return facts.st_dev, facts.st_ino


_STDERR = _identity()


class EventWriter:
    """Recording of this process. folder: folder of the recordings of all processes. host: name of the node in its
    recorded form. process: function that describes the process, given the time of its start. A forked child starts its
    own file. Faults of the recorder are written as events. If the file system does not accept an event, the recording
    ends with a line on stderr.
    """

    def __init__(self, folder: str, host: str, process: Any) -> None:
        self._folder, self._host, self._process = folder, host, process
        self._begin()
        os.register_at_fork(before=self.flush, after_in_child=self._begin)

    def _begin(self) -> None:
        self._events: deque[tuple[Any, ...]] = deque()
        self._writers: dict[str, object] = {}
        self._path, self._has_head = "", False
        self._bytes = 0
        self._counts: dict[str, list[float]] = {}
        self._next_counts_s = 10.0
        self._faults: set[str] = set()
        self._is_over = False
        self._files: dict[str, int] = {}
        self._written: dict[int, str] = {}
        self._numbers = itertools.count()
        self.begun = time.time()
        self._start = self._flushed = clock()

    def add(self, kind: str, *values: Any) -> None:
        """Add an event with the current time."""
        if self._is_over:
            return
        now = clock()
        if self._bytes >= _ROOM and kind in FREQUENT:
            self._count(kind, values, now)
            return
        self._events.append((round(now - self._start, 6), kind, *values))
        if now - self._flushed > _LATE_S or len(self._events) >= _MANY or kind in _COUNTED:
            self.flush()

    def file(self, path: str, name: str, is_written: bool = False) -> int | None:
        """Return the number of a file in this recording. name: path in its recorded form, which is written once. Sizes
        are stored only for the first files, because a stat of each of a million files would load the file system's
        metadata server. The size of a file that is read is stored when the file is first named, and the size of a file
        that is written at the end of the process. A full recording assigns no numbers to further files.
        """
        number = self._files.get(name)
        if number is None and self._bytes >= _ROOM:
            return None
        if number is None:
            number = next(self._numbers)
            is_sized = number < _SIZED and not is_written and isfile(path)
            self.add("file", number, name, getsize(path) if is_sized else None)
            self._files[name] = number  # if a signal ends this call earlier, the next one names the file
        if is_written and len(self._written) < _SIZED:
            self._written[number] = path
        return number

    def fault(self, place: str, fault: BaseException) -> None:
        """Record a fault of the recorder, once for each place. If the exception is meant for the program, raise it."""
        if is_of_program(fault):
            raise fault
        self.add_once("fault", place, _described(fault))

    def add_once(self, kind: str, place: str, text: str) -> None:
        """Add an event, but only once for each place."""
        if place not in self._faults:
            self._faults.add(place)
            self.add(kind, place, text)

    def _count(self, kind: str, values: tuple[Any, ...], now: float) -> None:
        count = self._counts.setdefault(kind, [0, 0.0])
        count[0] += 1
        if len(values) > 1 and isinstance(values[1], float):
            count[1] += values[1]
        if now - self._start > self._next_counts_s:
            self._next_counts_s = 2 * (now - self._start)
            self._add_counts()
            self.flush()

    def _add_counts(self) -> None:
        if self._counts:
            self._events.append((round(clock() - self._start, 6), "counts", self._counts))
            self._counts = {}

    def end(self) -> None:
        """Write the remaining events. It is called when the process ends by itself. Nothing is recorded afterwards."""
        if not self._is_over:
            for number, path in self._written.items():
                if isfile(path):
                    self.add("written", number, getsize(path))
            self._add_counts()
            self.add("end")
            self.flush()
            self._is_over = True

    def flush(self) -> None:
        """Append all events to the file. If another thread is writing, leave the events to that thread. An exception
        for the program may arrive after any call, so events that are taken are put back without a further call.
        """
        if self._is_over:
            return
        own = object()
        try:
            if self._writers.setdefault("own", own) is own:
                self._write_all()
        finally:
            if "own" in self._writers and self._writers["own"] is own:
                self._writers.clear()

    def _write_all(self) -> None:
        events: list[tuple[Any, ...]] = []
        try:
            # A single call, so that no exception comes between. Other threads may add more events.
            events.extend(itertools.starmap(self._events.popleft, itertools.repeat((), len(self._events))))
            self._write(events)
        except BaseException as fault:
            if not isinstance(fault, Exception) or is_of_program(fault):
                self._events.extendleft(reversed(events))
                raise
            self._is_over = True  # such as for a full disk: the program goes on
            say(f"the recording of process {os.getpid()} ends here: {fault}")

    def _write(self, events: list[tuple[Any, ...]]) -> None:
        self._flushed = clock()
        if not events and self._has_head:
            return
        moved = _moved()
        counts = [] if moved is None else [(round(self._flushed - self._start, 6), "moved", *moved)]
        lines = [dumps(event, separators=(",", ":"), default=str) for event in [*events, *counts]]
        self._path = self._path or self._new_path()
        if not self._has_head:
            lines.insert(0, dumps(self._process(self.begun), default=str))
        text = ("\n".join(lines) + "\n").encode("utf-8", "backslashreplace")
        if self._bytes + len(text) > _largest():
            raise OSError(errno.EFBIG, "files of this process are limited (RLIMIT_FSIZE)")
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, text)
        finally:
            self._has_head = True
            events.clear()
            os.close(descriptor)
        self._bytes += len(text)
        self._is_over = self._bytes > _MOST

    def _new_path(self) -> str:
        folder = os.path.join(self._folder, PROCESSES, self._host)
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, f"{os.getpid()}-{time.time_ns()}.jsonl")
