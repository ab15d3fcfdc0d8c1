"""The page cache of a node: drop files from the cache, so that reads reach the storage, and count the pages of files
that are in the cache.
"""

import ctypes
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.loaders.loader import STRETCH
from dlio_hpc.dataset import sample_index
from dlio_hpc.dataset.rank_shares import share
from dlio_hpc.dataset.sample_order import Order

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Bytes of a file that are mapped at a time (a window), and maximum number of windows per file.
_WINDOW, _WINDOWS = 4 << 20, 16


def drop(path: str) -> bool:
    """Drop the pages of a file from the page cache of this node (posix_fadvise(2)). The kernel does not drop pages that
    are not on storage yet. If pages are left, write them to storage (fdatasync(2)) and drop the pages again. Return
    whether pages were left. A missing file is ignored.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False  # reading the file reports the fault
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if not _pages(path, descriptor)[1]:
            return False
        with suppress(OSError):
            os.fdatasync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        return True
    finally:
        with suppress(OSError):
            os.close(descriptor)


def resident(paths: Sequence[str]) -> tuple[int, int]:
    """Return two numbers of pages of these files: the number of pages that were checked, and the number of checked
    pages that are in the page cache of this node (mincore(2)). For large files, only a sample of the pages is checked.
    Files that this user neither owns nor may write are skipped, because the kernel does not report their pages.
    """
    counts = [_resident(path) for path in paths]
    return sum(checked for checked, _ in counts), sum(cached for _, cached in counts)


def is_shown(path: str, status: os.stat_result) -> bool:
    """Return whether the kernel shows this user which pages of a file are in memory. The kernel shows this to root, to
    the owner of the file, and to users who may write the file.
    """
    return os.geteuid() in (0, status.st_uid) or os.access(path, os.W_OK)


def _resident(path: str) -> tuple[int, int]:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # O_NONBLOCK: a FIFO must not block
    except OSError:
        return 0, 0  # reading the file reports the fault
    try:
        return _pages(path, descriptor)
    finally:
        with suppress(OSError):
            os.close(descriptor)


def _pages(path: str, descriptor: int) -> tuple[int, int]:
    """Return the counts of resident() for an open file."""
    try:
        status = os.fstat(descriptor)
        if not is_shown(path, status):
            return 0, 0
        size = status.st_size
        step = max(_WINDOW, -(-size // _WINDOWS) // _WINDOW * _WINDOW)
        counts = [_in_memory(descriptor, at, min(_WINDOW, size - at)) for at in range(0, size, step)]
    except OSError:
        return 0, 0  # a file system without mmap
    return sum(checked for checked, _ in counts), sum(cached for _, cached in counts)


def _in_memory(descriptor: int, offset: int, length: int) -> tuple[int, int]:
    """Return the counts of resident() for a part of a file. The mapping ends with its last reference. It cannot be
    closed, because a frame that another thread inspects may still refer to it.
    """
    pages = -(-length // mmap.PAGESIZE)
    flags = np.zeros(pages, np.uint8)
    mapped = np.frombuffer(mmap.mmap(descriptor, length, mmap.MAP_SHARED, mmap.PROT_READ, offset=offset), np.uint8)
    address = ctypes.c_void_p(mapped.ctypes.data)
    if ctypes.CDLL(None).mincore(address, ctypes.c_size_t(length), flags.ctypes):
        return 0, 0
    return pages, int((flags & 1).sum())


def files_of(node: "Intracomm", workload: Workload, order: Order, first: int, last: int, steps: int) -> Iterator[int]:
    """Yield the numbers of the files that this rank must drop from the page cache. After all ranks of a node have
    dropped their files, the node caches no data that these ranks will read in the next `steps` steps.

    Normally a rank drops the files that it will read itself. There is one exception: if samples are shuffled across all
    files and each rank reads many samples, all files of the dataset are divided among the ranks of a node.
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
        for number in np.unique(sample_index.file_numbers(workload.dataset, samples)).tolist():
            if number != latest:
                yield number
            latest = number
