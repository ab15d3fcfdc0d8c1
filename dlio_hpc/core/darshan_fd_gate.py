"""Opening and closing files while Darshan watches: nobody opens one while another thread closes one.

Darshan drops a descriptor's number after the file was closed for real (darshan-posix.c, 3.5); a file that was opened in
between has the same number, and is lost sight of. Without Darshan nobody waits for anybody.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any


@functools.cache
def is_watched() -> bool:
    """Is libdarshan in this process? LD_PRELOAD alone does not say: what cannot be loaded is passed over."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any("libdarshan" in line for line in maps)
    except OSError:
        return False


class _Gate:
    """Many may open at once, or one may close. Descriptors are the process's, so there is one gate."""

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
        """A thread that comes here while it opens (what is garbage is closed at any time) does not wait for itself."""
        with self._free:
            if not getattr(self._mine, "is_opening", False):
                self._free.wait_for(lambda: not self._opening)
            yield


_gate = _Gate()


def opening() -> AbstractContextManager[None]:
    """Around what opens a file."""
    return _gate.opening() if is_watched() else nullcontext()


def closing() -> AbstractContextManager[None]:
    """Around what closes one."""
    return _gate.closing() if is_watched() else nullcontext()


@contextmanager
def opened(path: str, mode: str, buffering: int = -1, opener: Callable[[str, int], int] | None = None) -> Iterator[Any]:
    """open() within a block."""
    with opening():
        file = open(path, mode, buffering=buffering, opener=opener)  # noqa: SIM115 - closed below
    try:
        yield file
    finally:
        with closing():
            file.close()
