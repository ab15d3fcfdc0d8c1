"""The file that HDF5 writes to. HDF5 does not survive a write that fails: each object that is let go of
afterwards fails again, and its clean-up at the end of the process may crash. So it is told that all went well.
"""

import io
from pathlib import Path
from typing import Any


class Outlet(io.FileIO):
    """A new file. The first fault of a write is kept, what comes after it is dropped; check() raises it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, "w+b")
        self._fault: OSError | None = None

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        done = 0
        while done < len(view) and self._fault is None:
            try:
                done += super().write(view[done:]) or 0
            except OSError as fault:
                self._fault = fault
        return len(view)

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except OSError as fault:
            self._fault = self._fault or fault
            return size or 0

    def check(self) -> None:
        """Raise the first fault, if there was one."""
        if self._fault is not None:
            raise self._fault
