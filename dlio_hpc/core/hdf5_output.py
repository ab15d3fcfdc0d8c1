"""Output file for HDF5 that hides write errors from the library.

HDF5 does not recover from a failed write. Each object that HDF5 releases afterwards fails again, and the clean-up of
HDF5 at the end of the process may crash.
"""

import io
from pathlib import Path
from typing import Any


class Outlet(io.FileIO):
    """A new file that keeps its first write error for check() and discards all data written after that error."""

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
        """Raise the first write error; do nothing if there was none."""
        if self._fault is not None:
            raise self._fault
