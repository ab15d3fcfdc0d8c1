"""Under Darshan, prevent a thread from opening a file while another thread closes one.

When a file is closed, its descriptor number first becomes free, and only then does Darshan forget the number
(darshan-posix.c, 3.5). If another thread opens a file in between, the new file gets this number, and Darshan loses
track of the new file. Without Darshan, no thread waits.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any


@functools.cache
def is_watched() -> bool:
    """Return whether libdarshan is loaded in this process. LD_PRELOAD is not evidence, because the loader skips a
    library that it cannot load.
    """
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any("libdarshan" in line for line in maps)
    except OSError:
        return False


class _Gate:
    """A lock that admits either any number of threads that open files, or one thread that closes a file. A process has
    only one such lock, because all its threads share the same descriptors.
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
        """Wait until no thread is opening a file. There is an exception: if garbage collection closes a file while the
        calling thread opens another one, do not wait, because the thread would wait for itself.
        """
        with self._free:
            if not getattr(self._mine, "is_opening", False):
                self._free.wait_for(lambda: not self._opening)
            yield


_gate = _Gate()
_NO_GATE: AbstractContextManager[None] = nullcontext()


def opening() -> AbstractContextManager[None]:
    """Return a context manager; a file must be opened in its `with` block."""
    return _gate.opening() if is_watched() else _NO_GATE


def closing() -> AbstractContextManager[None]:
    """Return a context manager; a file must be closed in its `with` block."""
    return _gate.closing() if is_watched() else _NO_GATE


@contextmanager
def opened(path: str, mode: str, buffering: int = -1, opener: Callable[[str, int], int] | None = None) -> Iterator[Any]:
    """Open a file with open() for a `with` block and close it at the end of the block."""
    with opening():
        file = open(path, mode, buffering=buffering, opener=opener)  # noqa: SIM115 - closed below
    try:
        yield file
    finally:
        with closing():
            file.close()
