"""The training loop of one rank: wait for the batch, compute, synchronise; each timed by itself."""

from array import array
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.core import clock, dataset
from dlio_hpc.core.compute import emulate
from dlio_hpc.core.formats import FORMATS
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.core.order import Order
from dlio_hpc.core.progress import Progress
from dlio_hpc.plan import Run, share

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

Floats = npt.NDArray[np.float64]

# The columns of a step: four instants of this rank's clock, then samples and bytes that arrived.
STARTED, READY, COMPUTED, SYNCED, SAMPLES, BYTES = range(6)


class Recording(NamedTuple):
    """What one rank saw. steps: (epochs, steps, 6). reads: (2, n), begin and end of each. storage_bytes: an epoch each,
    -1 where the kernel does not tell.
    """

    steps: Floats
    reads: Floats
    storage_bytes: Floats
    opens: int
    overhead_bytes: int


def train(comm: "Intracomm", run: Run, progress: Progress) -> Recording:
    """All epochs of a run on this rank."""
    workload = run.workload
    epochs = workload.train.epochs
    first, last = share(workload.dataset.samples, comm.size, comm.rank)
    reader = FORMATS[workload.dataset.format].reader(workload, lambda number: dataset.file_path(run, number))
    loader = NativeLoader(workload, reader)
    steps = np.zeros((epochs, run.steps_per_epoch, 6))
    storage = np.full(epochs, -1.0)
    starts, ends = array("d"), array("d")
    opens = overhead = 0
    clock.barrier(comm)
    try:
        for epoch in range(epochs):
            fetched = storage_bytes()
            order = Order(workload.dataset, workload.reader.shuffle, epoch)
            batches = loader.epoch(order, first, last, run.steps_per_epoch)
            for step, row in enumerate(steps[epoch]):
                row[STARTED] = clock.now()
                rows, tally = next(batches)
                row[READY] = clock.now()
                emulate(workload.compute.time)
                row[COMPUTED] = clock.now()
                clock.barrier(comm)
                row[SYNCED] = clock.now()
                row[SAMPLES], row[BYTES] = len(rows), tally.bytes_read
                starts.extend(tally.starts)
                ends.extend(tally.ends)
                opens, overhead = opens + tally.opens, overhead + tally.overhead_bytes
                progress.show(
                    epoch * run.steps_per_epoch + step + 1,
                    epochs * run.steps_per_epoch,
                    "steps",
                    f"epoch {epoch + 1} of {epochs}",
                )
            next(batches, None)  # the epoch's files are closed
            if fetched >= 0:
                storage[epoch] = storage_bytes() - fetched
    finally:
        loader.close()
    return Recording(steps, np.array([starts, ends]), storage, opens, overhead)


def storage_bytes() -> int:
    """Bytes that the kernel has fetched from storage for this process, readahead included; -1 where it does not tell.

    proc(5), /proc/pid/io: read_bytes. Pages that lay in the page cache are not in it.
    """
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            return int(file.read().split("\nread_bytes:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return -1
