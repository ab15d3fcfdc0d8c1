"""Files that are read through io_uring(7): all requests of a batch are in flight at the same time."""

import os
import threading
from collections.abc import Callable, Iterator
from ctypes import addressof, c_char
from itertools import pairwise

import numpy as np

from dlio_hpc.core.files import OpenFiles, ReadRequests
from dlio_hpc.core.handle_cache import PINNED
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.io_uring import Ring

# Maximum number of requests in flight per thread.
MOST_IN_FLIGHT = 4096


class RingFiles(OpenFiles):
    """Cache of the open files of a dataset, like OpenFiles, but read through a ring per thread."""

    def __init__(self, paths: Callable[[int], str], transfer_size: int, direct: bool, in_flight: int) -> None:
        super().__init__(paths, transfer_size, direct)
        self._in_flight = min(in_flight, MOST_IN_FLIGHT)
        self._local = threading.local()
        self._rings: list[Ring] = []

    def fetch(self, reads: ReadRequests, tally: Tally) -> None:
        """Make all requests. If few files are requested, all requests are in flight at the same time."""
        for group in _of_few_files(reads):
            self._fetch_together(group, tally)

    def _fetch_together(self, reads: ReadRequests, tally: Tally) -> None:
        numbers, offsets, views = self._pieces(reads)
        get = self._kept.get
        sizes = [len(view) for view in views]
        starts, ends, counts = self._ring().read(
            np.array([get(number, tally).descriptor for number in numbers]),
            np.array([addressof(c_char.from_buffer(view)) for view in views]),
            np.array(sizes),
            np.array(offsets),
        )
        tally.starts.extend(starts.tolist())
        tally.ends.extend(ends.tolist())
        received: list[int] = counts.tolist()
        failed = np.flatnonzero(counts < 0)
        if len(failed):
            first = failed[0]
            fault = OSError(-received[first], os.strerror(-received[first]))
            raise get(numbers[first], tally).failed(offsets[first], fault)
        tally.count_all(received)
        if received != sizes:
            for count, number, offset, view in zip(received, numbers, offsets, views, strict=True):
                if count < len(view):
                    get(number, tally).read([view], offset, self._transfer_size, tally, count)

    def _pieces(self, reads: ReadRequests) -> tuple[list[int], list[int], list[memoryview]]:
        """Divide requests so that each request fills only one view and is not larger than the transfer size. Return
        three lists with an element per request: numbers of files, offsets, and views.
        """
        if max(reads.sizes) <= self._transfer_size and all(len(views) == 1 for views in reads.views):
            return reads.files, reads.offsets, [view for (view,) in reads.views]
        numbers, offsets, pieces = [], [], []
        for number, begin, _, views in zip(*reads, strict=True):
            offset = begin
            for view in views:
                for at in range(0, len(view), self._transfer_size):
                    numbers.append(number)
                    offsets.append(offset + at)
                    pieces.append(view[at : at + self._transfer_size])
                offset += len(view)
        return numbers, offsets, pieces

    def _ring(self) -> Ring:
        """Return the ring of the calling thread. Raise ConfigError if the kernel refuses io_uring."""
        ring: Ring | None = getattr(self._local, "ring", None)
        if ring is None:
            ring = self._local.ring = Ring(self._in_flight)
            self._rings.append(ring)
        return ring

    def close(self) -> None:
        super().close()
        self._local = threading.local()
        while self._rings:
            self._rings.pop().close()


def _of_few_files(reads: ReadRequests) -> Iterator[ReadRequests]:
    """Divide requests into successive groups. The files of a group are few enough to be open at the same time."""
    bounds, files = [0], set[int]()
    for place, file in enumerate(reads.files):
        if file not in files and len(files) == PINNED:
            bounds.append(place)
            files.clear()
        files.add(file)
    for first, last in pairwise([*bounds, len(reads.files)]):
        if first < last:
            part = slice(first, last)
            yield ReadRequests(reads.files[part], reads.offsets[part], reads.sizes[part], reads.views[part])
