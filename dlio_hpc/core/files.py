"""Open files of one rank, shared by its threads: no file is opened more often than the order of samples asks."""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dlio_hpc.core.tally import Tally

_MOST = 64


class OpenFiles:
    """The files used last, 64 of them; a file in use stays open."""

    def __init__(self, paths: Callable[[int], str]) -> None:
        self._paths = paths
        self._lock = threading.Lock()
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()

    @contextmanager
    def descriptor(self, number: int, tally: Tally) -> Iterator[tuple[int, str]]:
        """The descriptor and path of file `number`, valid within the block."""
        with self._lock:
            file = self._open.pop(number, None) or _OpenFile(self._paths(number))
            self._open[number] = file
            file.users += 1
        try:
            yield file.descriptor(tally), file.path
        finally:
            with self._lock:
                file.users -= 1
                self._evict()

    def close(self) -> None:
        """Close every file; the next use opens it anew."""
        with self._lock:
            for file in self._open.values():
                file.close()
            self._open.clear()

    def _evict(self) -> None:
        for number, file in list(self._open.items())[: max(0, len(self._open) - _MOST)]:
            if not file.users:
                file.close()
                del self._open[number]


class _OpenFile:
    """Opened by the first thread that needs it, while others that need the same one wait and the rest go on."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self._lock = threading.Lock()
        self._descriptor = -1

    def descriptor(self, tally: Tally) -> int:
        if self._descriptor < 0:
            with self._lock:
                if self._descriptor < 0:
                    self._descriptor = tally.open(self.path)
        return self._descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
