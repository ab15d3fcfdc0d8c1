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
