"""Serialise opening and closing of files under Darshan: no thread opens a file while another thread closes a file.

Darshan drops the number of a descriptor after the real close (darshan-posix.c, 3.5). A file that is opened in between
has the same number, and Darshan loses track of it. Without Darshan no thread waits.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any


@functools.cache
def is_watched() -> bool:
    """Return whether libdarshan is loaded in this process. LD_PRELOAD is no proof: the loader skips a library that it
    cannot load.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any("libdarshan" in line for line in maps)
    except OSError:
        return False


class _Gate:
    """Lock that lets many threads open files at once, or one thread close a file. Descriptors belong to the process, so
    there is a single gate.
    """

    def __init__(self) -> None:
        self._free = threading.Condition()
        self._opening = 0
        self._mine = threading.local()

    @contextmanager
    def opening(self) -> Iterator[None]:
        with self._free:
            self._opening += 1
        self._mine.is_opening = True
        try:
            yield
        finally:
            self._mine.is_opening = False
            with self._free:
                self._opening -= 1
                self._free.notify_all()

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Wait until no thread opens a file. A thread that is opening a file itself does not wait: garbage collection
        may close a file at any time.
        """
        with self._free:
            if not getattr(self._mine, "is_opening", False):
                self._free.wait_for(lambda: not self._opening)
            yield


_gate = _Gate()


def opening() -> AbstractContextManager[None]:
    """Return the context in which a file is opened."""
    return _gate.opening() if is_watched() else nullcontext()


def closing() -> AbstractContextManager[None]:
    """Return the context in which a file is closed."""
    return _gate.closing() if is_watched() else nullcontext()


@contextmanager
def opened(path: str, mode: str, buffering: int = -1, opener: Callable[[str, int], int] | None = None) -> Iterator[Any]:
    """Open a file with open() for a `with` block, and close it afterwards."""
    with opening():
        file = open(path, mode, buffering=buffering, opener=opener)  # noqa: SIM115 - closed below
    try:
        yield file
    finally:
        with closing():
            file.close()
