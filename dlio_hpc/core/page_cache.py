"""The page cache: what to do so that reading reaches the storage."""

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.loaders.loader import STRETCH
from dlio_hpc.plan.plan import share
from dlio_hpc.plan.sample_order import Order

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# What is looked at of a file at a time, and how often at most.
_WINDOW, _WINDOWS = 4 << 20, 16


def drop(path: str) -> None:
    """Ask this node's kernel to forget the file's clean pages (posix_fadvise(2)); a file that is not there has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # whoever reads it will say so
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        with suppress(OSError):
            os.close(descriptor)


def resident(paths: Sequence[str]) -> tuple[int, int]:
    """Pages of these files that were looked at, and those of them that lie in this node's memory; mincore(2). Of large
    files a few stretches are. (0, 0) where the kernel does not tell: of files that we may not write.
    """
    found = [_resident(path) for path in paths]
    return sum(looked for looked, _ in found), sum(there for _, there in found)


def _resident(path: str) -> tuple[int, int]:
    if not os.access(path, os.W_OK):
        return 0, 0
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # what is no file must not hold us up
    except OSError:
        return 0, 0  # whoever reads it will say so
    try:
        size = os.fstat(descriptor).st_size
        step = max(_WINDOW, -(-size // _WINDOWS) // _WINDOW * _WINDOW)
        found = [_in_memory(descriptor, at, min(_WINDOW, size - at)) for at in range(0, size, step)]
    except OSError:
        return 0, 0  # a file system without mmap
    finally:
        with suppress(OSError):
            os.close(descriptor)
    return sum(looked for looked, _ in found), sum(there for _, there in found)


def _in_memory(descriptor: int, offset: int, length: int) -> tuple[int, int]:
    pages = -(-length // mmap.PAGESIZE)
    flags = np.zeros(pages, np.uint8)
    with mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=offset) as mapped:
        view = np.frombuffer(mapped, np.uint8)
        address = view.ctypes.data
        del view  # or the mapping could not be closed
        if ctypes.CDLL(None).mincore(ctypes.c_void_p(address), ctypes.c_size_t(length), flags.ctypes):
            return 0, 0
    return pages, int((flags & 1).sum())


def files_of(node: "Intracomm", workload: Workload, order: Order, first: int, last: int, steps: int) -> Iterator[int]:
    """Numbers of the files that this rank should drop, so that its node forgets what its ranks will read in `steps`.

    Those that it reads itself; where any sample of any file may come next and they read many, all files, shared out
    among the node's ranks.
    """
    shuffle, files = workload.reader.shuffle, workload.dataset.files
    in_memory = workload.reader.load == "memory"
    most = workload.dataset.samples if in_memory else steps * workload.reader.batch_size  # the same for all ranks
    if shuffle.files and shuffle.samples and most > files // node.size:
        yield from range(*share(files, node.size, node.rank))
        return
    last = min(last, first + most)
    latest = -1
    for begin in range(first, last, STRETCH):
        samples = order.samples(begin, min(begin + STRETCH, last))
        for number in np.unique(samples // np.uint64(workload.dataset.samples_per_file)).tolist():
            if number != latest:
                yield number
            latest = number
