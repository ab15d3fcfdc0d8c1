"""A cache of open files that all threads of a rank share."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

from dlio_hpc.core.io_counters import Tally

_MOST = 64


class Closable(Protocol):
    """Any object with a close() method."""

    def close(self) -> object: ...


H = TypeVar("H", bound=Closable)


class HandleCache(Generic[H]):
    """Cache of the 64 most recently used files. opened: function that opens the file with a given number. A file that a
    thread is using is not closed.
    """

    def __init__(self, opened: Callable[[int, Tally], H]) -> None:
        self._opened = opened
        self._lock = threading.Lock()
        self._entries: OrderedDict[int, _Entry[H]] = OrderedDict()

    @contextmanager
    def use(self, number: int, tally: Tally) -> Iterator[H]:
        """Open file `number` if it is not open, and yield it. It stays open at least until the end of the
        `with` block.
        """
        with self._lock:
            entry = self._entries.pop(number, None) or _Entry()
            self._entries[number] = entry
            entry.users += 1
        try:
            yield entry.handle(lambda: self._opened(number, tally), tally)
        finally:
            with self._lock:
                entry.users -= 1
                if len(self._entries) > _MOST:
                    self._evict()

    def close(self) -> None:
        """Close all files. A later use of a file opens it again."""
        with self._lock:
            for entry in self._entries.values():
                entry.close()
            self._entries.clear()

    def _evict(self) -> None:
        for number, entry in list(self._entries.items())[: len(self._entries) - _MOST]:
            if not entry.users:
                entry.close()
                del self._entries[number]


class _Entry(Generic[H]):
    """Cache entry of a file. The first thread that needs the file opens it; meanwhile other threads that need the same
    file wait.
    """

    def __init__(self) -> None:
        self.users = 0
        self._lock = threading.Lock()
        self._handle: H | None = None

    def handle(self, opened: Callable[[], H], tally: Tally) -> H:
        if self._handle is None:
            with self._lock:
                if self._handle is None:
                    self._handle = opened()
                    tally.opens += 1
        return self._handle

    def close(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None
