"""A cache of open files that all threads of a rank share."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from dlio_hpc.core.clock import now
from dlio_hpc.core.io_counters import Tally

# Number of open files above which the cache closes files that no thread has pinned.
_MOST = 64
# Number of files that a thread pins.
PINNED = 32


class Closable(Protocol):
    """Any object with a close() method."""

    def close(self) -> object: ...


H = TypeVar("H", bound=Closable)


class HandleCache(Generic[H]):
    """Cache of the 64 most recently used files. opened: function that opens the file with a given number.
    by_library: whether a library opens the files, and reads a part of them meanwhile. most: number of files that stay
    open, if it is not 64.

    A thread pins the last 32 files that it requested. A pinned file is not closed, so a thread may use a file until the
    thread has requested 32 other files. A thread needs no lock for a file that it has already pinned.
    """

    def __init__(self, opened: Callable[[int, Tally], H], by_library: bool = False, most: int = _MOST) -> None:
        self._opened = opened
        self._by_library = by_library
        self._most = most
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _Entry[H]] = OrderedDict()
        self._pins: _Pins[H] = _Pins()

    def get(self, number: int, tally: Tally) -> H:
        """Return file `number`. Open it if it is not open, and count this in `tally`."""
        pins = self._pins.handles
        handle = pins.pop(number, None)
        if handle is None:
            handle = self._pinned(number, pins, tally)
        pins[number] = handle  # the last in the order
        return handle

    def _pinned(self, number: int, pins: dict[int, H], tally: Tally) -> H:
        """Pin file `number`. If the thread has pinned too many files, unpin the least recently used one."""
        oldest = next(iter(pins)) if len(pins) >= PINNED else None
        with self._lock:
            entry = self._entries.get(number)
            if entry is None:
                entry = self._entries[number] = _Entry()
            else:
                self._entries.move_to_end(number)
            entry.pins += 1
            if oldest is not None:
                del pins[oldest]
                self._entries[oldest].pins -= 1
            if len(self._entries) > self._most:
                self._evict(tally)
        try:
            return entry.handle(lambda: self._opened(number, tally), tally, self._by_library)
        except BaseException:
            with self._lock:
                entry.pins -= 1
            raise

    def close(self) -> None:
        """Close all files. No thread may be using a file at that time. A later use of a file opens it again."""
        with self._lock:
            for entry in self._entries.values():
                entry.close()
            self._entries.clear()
            self._pins = _Pins()

    def _evict(self, tally: Tally) -> None:
        for number, entry in list(self._entries.items())[: len(self._entries) - self._most]:
            if not entry.pins:
                started = now()
                entry.close()
                (tally.handle if self._by_library else tally.close)(started)
                del self._entries[number]


class _Pins(threading.local, Generic[H]):
    """Files that a thread has pinned, by number, in the order in which the thread last asked for them."""

    def __init__(self) -> None:
        self.handles: dict[int, H] = {}


class _Entry(Generic[H]):
    """Cache entry of a file. The first thread that needs the file opens it; meanwhile other threads that need the same
    file wait. pins: number of threads that have pinned the file.
    """

    def __init__(self) -> None:
        self.pins = 0
        self._lock = threading.Lock()
        self._handle: H | None = None

    def handle(self, opened: Callable[[], H], tally: Tally, by_library: bool) -> H:
        if self._handle is None:
            with self._lock:
                if self._handle is None:
                    started = now()
                    self._handle = opened()
                    if by_library:
                        tally.handle(started)
                        tally.opens += 1
                    else:
                        tally.open(started)
        return self._handle

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None
