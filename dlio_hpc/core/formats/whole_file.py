"""Readers of whole files. All arrays of a file are loaded into memory even if only one sample is needed, as in
applications.
"""

import io
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.workload import Workload
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import unopened, unplanned
from dlio_hpc.core.formats import arrays
from dlio_hpc.core.formats.format import Paths, as_bytes
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Place, Places, SampleLayout

Array = npt.NDArray[Any]

# Largest buffer that Python's open() chooses (since Python 3.14).
_LARGEST = 8 << 20


class WholeFileReader:
    """Reader of whole files. Each thread keeps the arrays that it loaded last, so that consecutive samples of a file
    need one load.

    load: function that loads the arrays of the file at a path, in the order in which the workload reads them, and
    counts the reads in a tally. If the file is corrupted, the function raises the error that damaged() returns.
    """

    def __init__(self, workload: Workload, paths: Paths, load: Callable[[str, Tally], list[Array]]) -> None:
        self._dataset = workload.dataset
        self._parts = arrays.in_reading_order(workload)
        self._places = SampleLayout(workload.dataset)
        self._paths = paths
        self._load = load
        self._last = threading.local()

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        for place, row in zip(places, buffer.rows, strict=False):
            if getattr(self._last, "file", None) != place.file:
                self._last.file = None
                self._last.arrays = None  # frees the old arrays before the next are loaded
                self._last.arrays = self._loaded(place.file, tally)
                self._last.file = place.file
            self._copy(place, row, tally)

    def _copy(self, place: Place, row: Rows, tally: Tally) -> None:
        """Copy a sample from the loaded arrays, whose reads are counted already."""
        loaded: list[Rows] = self._last.arrays
        if not self._parts:
            row[: place.size] = loaded[0][place.offset : place.offset + place.size]
        for part, array in zip(self._parts, loaded, strict=False):
            part.of(row)[:] = array[place.within * part.size : (place.within + 1) * part.size]

    def _loaded(self, number: int, tally: Tally) -> list[Rows]:
        path = self._paths(number)
        try:
            loaded = self._load(path, tally)
        except OSError as fault:
            raise unopened(path, fault) from fault
        shapes = arrays.shapes(self._dataset, self._places, number)
        shapes = [shapes[part.number] for part in self._parts] or shapes
        dtype = np.dtype(self._dataset.sample.array_dtype)
        for array, shape in zip(loaded, shapes, strict=True):
            if array.shape != shape or array.dtype.str != dtype.str:
                raise unplanned(f"{path} holds {array.dtype} of shape {array.shape}, expected {dtype} of shape {shape}")
        return [as_bytes(array) for array in loaded]

    def close(self) -> None:
        self._last = threading.local()


def buffered(file: "CountedFile", size: int | None = None) -> io.BufferedReader:
    """Return a buffered reader of `file`. size: size of the buffer in bytes; None for the size that Python's open()
    would choose. Before Python 3.14, open() chooses the size that the file system recommends. From Python 3.14 on, the
    size is also at least io.DEFAULT_BUFFER_SIZE and at most 8 MiB.
    """
    if size is None:
        block = os.fstat(file.fileno()).st_blksize
        size = block if block > 1 and sys.version_info < (3, 14) else max(min(block, _LARGEST), io.DEFAULT_BUFFER_SIZE)
    return io.BufferedReader(file, size)


class CountedFile(io.FileIO):
    """File that counts every request to the operating system. tally: counters, which may be replaced by those of the
    next batch. fault: error of the last request that failed, or None. The error is kept because zipfile reports it as a
    corrupted file.
    """

    fault: OSError | None = None

    def __init__(self, path: str, tally: Tally, opener: Callable[[str, int], int] | None = None) -> None:
        started = now()
        with darshan_fd_gate.opening():
            super().__init__(path, opener=opener)
        tally.open(started)
        self.tally = tally

    def close(self) -> None:
        if self.closed:
            return
        started = now()
        with darshan_fd_gate.closing():
            super().close()
        self.tally.close(started)

    def readall(self) -> bytes:
        started = now()
        try:
            data = super().readall()
        except OSError as fault:
            self.fault = fault
            raise
        self.tally.add(started, len(data))
        self.tally.add(now(), 0)  # the request that found the end
        return data

    def readinto(self, buffer: Any) -> int:
        started = now()
        try:
            count = super().readinto(buffer) or 0
        except OSError as fault:
            self.fault = fault
            raise
        self.tally.add(started, count)
        return count
