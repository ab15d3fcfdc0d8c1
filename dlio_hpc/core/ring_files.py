"""Files that are read through io_uring(7): all requests of a batch are in flight at the same time."""

import os
import threading
from collections.abc import Callable, Iterator
from ctypes import addressof, c_char
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from dlio_hpc.core.files import OpenFile, OpenFiles, Reads
from dlio_hpc.core.handle_cache import PINNED
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.io_uring import Ring

# Maximum number of requests in flight per thread.
MOST_IN_FLIGHT = 4096


class _Piece(NamedTuple):
    """A request. offset: bytes from the start of the file. view: memory that it fills."""

    file: OpenFile
    offset: int
    view: memoryview


class RingFiles(OpenFiles):
    """Cache of the open files of a dataset, like OpenFiles, but read through a ring per thread."""

    def __init__(self, paths: Callable[[int], str], transfer_size: int, direct: bool, in_flight: int) -> None:
        super().__init__(paths, transfer_size, direct)
        self._in_flight = min(in_flight, MOST_IN_FLIGHT)
        self._local = threading.local()
        self._rings: list[Ring] = []

    def fetch(self, reads: Reads, tally: Tally) -> None:
        """Read all requests, at the same time if they are for few files."""
        for group in _of_few_files(reads):
            self._fetch_together(group, tally)

    def _fetch_together(self, reads: Reads, tally: Tally) -> None:
        pieces = list(self._pieces(reads, tally))
        descriptors, addresses, lengths, offsets = np.array(
            [(piece.file.descriptor, _address(piece.view), len(piece.view), piece.offset) for piece in pieces], np.int64
        ).T
        starts, ends, counts = self._ring().read(descriptors, addresses, lengths, offsets)
        tally.starts.extend(starts.tolist())
        tally.ends.extend(ends.tolist())
        received: list[int] = counts.tolist()
        for count, piece in zip(received, pieces, strict=True):
            if count < 0:
                raise piece.file.failed(piece.offset, OSError(-count, os.strerror(-count)))
        tally.count_all(received)
        for count, piece in zip(received, pieces, strict=True):
            if count < len(piece.view):
                piece.file.read([piece.view], piece.offset, self._transfer_size, tally, count)

    def _pieces(self, reads: Reads, tally: Tally) -> Iterator[_Piece]:
        """Yield the requests, none of which is larger than the transfer size."""
        for number, begin, _, views in zip(*reads, strict=True):
            file, offset = self._kept.get(number, tally), begin
            for view in views:
                for at in range(0, len(view), self._transfer_size):
                    yield _Piece(file, offset + at, view[at : at + self._transfer_size])
                offset += len(view)

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


def _of_few_files(reads: Reads) -> Iterator[Reads]:
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
            yield Reads(reads.files[part], reads.offsets[part], reads.sizes[part], reads.views[part])


def _address(view: memoryview) -> int:
    return addressof(c_char.from_buffer(view))
