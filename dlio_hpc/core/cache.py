"""The page cache: what to do so that reading reaches the storage."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.core.loaders.loader import STRETCH
from dlio_hpc.order import Order
from dlio_hpc.plan import share
from dlio_hpc.workload import Workload

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def drop(path: str) -> None:
    """Ask this node's kernel to forget the file's clean pages (posix_fadvise(2)); a file that is not there has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # whoever reads it will say so
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def files_of(node: "Intracomm", workload: Workload, order: Order, first: int, last: int) -> Iterator[int]:
    """Numbers of the files that this rank should drop, so that its node forgets what its ranks will read.

    Its own files; where any sample of any file may come next, the node's ranks share out all files.
    """
    shuffle = workload.reader.shuffle
    if shuffle.files and shuffle.samples:
        yield from range(*share(workload.dataset.files, node.size, node.rank))
        return
    latest = -1
    for begin in range(first, last, STRETCH):
        samples = order.samples(begin, min(begin + STRETCH, last))
        for number in np.unique(samples // np.uint64(workload.dataset.samples_per_file)).tolist():
            if number != latest:
                yield number
            latest = number
