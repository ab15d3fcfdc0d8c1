"""Evaluation passes: steps over a second dataset between two epochs, without checkpoints. Their time is not part of the
training time.
"""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.core import cache_accounting, clock
from dlio_hpc.core.compute import draw, emulate
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.distributions import Floats
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.loaders.loader_choice import open_loader
from dlio_hpc.core.page_cache_drop import PageCacheDrop
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.rank_shares import positions
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Columns of the record of a pass. EPOCH: index of the epoch that it follows. TOOK_S: seconds for which training waits,
# with the preparation of the page cache and the end of worker processes. WALL_S: seconds from the start of the first
# step to the end of the last, as for an epoch. The columns after the first nine are those of cache_accounting.py.
EPOCH, TOOK_S, WALL_S, WAIT_S, COMPUTE_S, SYNC_S, STEPS, SAMPLES, BYTES, ARRIVALS = range(10)
COLUMNS = ARRIVALS + cache_accounting.COLUMNS


class EvaluationPasses:
    """Evaluation passes of a rank. node: communicator of the ranks on this node. run: evaluation run."""

    def __init__(self, comm: "Intracomm", node: "Intracomm", run: Run, ranks_on_node: int, every: int) -> None:
        self._comm, self._run, self._every = comm, run, every
        self._positions = positions(run.workload, comm.size, comm.rank, ranks_on_node)
        self._loader = open_loader(comm, run, ranks_on_node)
        self._verification = Verification(run.workload, dataset_folder.containers(run.stored))
        self._drop_cache = PageCacheDrop(node, run) if run.workload.reader.drop_cache else None
        self._arrivals = cache_accounting.of_samples(node, run, comm.size // node.size)
        self._ranks_of_node = node.size

    def is_due(self, epoch: int) -> bool:
        """Return whether an evaluation pass follows the epoch with index `epoch`."""
        return (epoch + 1) % self._every == 0

    def evaluate(self, epoch: int, stop: Stop) -> tuple[Floats, bool]:
        """Run the steps of an evaluation pass. Return the record of the pass, and whether time ran out before the last
        step of the pass. Raise InvalidRun if a sample differs from the generated contents.
        """
        begun = clock.now()
        first, last = self._positions
        order = Order(self._run.workload.dataset, self._run.workload.reader, epoch, self._comm.rank, self._comm.size)
        if self._drop_cache is not None:
            self._drop_cache(order, first, last)
            clock.barrier(self._comm)
        self._arrivals.look(partial(cache_accounting.some_files, self._run, order, first, last, self._ranks_of_node))
        self._arrivals.begin()
        clock.barrier(self._comm)  # no rank reads before the node's counters have been read
        row, stopped = self._steps(epoch, order, stop)
        self._verification.finish()
        row[ARRIVALS:] = self._arrivals.end(0)
        row[TOOK_S] = clock.now() - begun
        return row, stopped

    def _steps(self, epoch: int, order: Order, stop: Stop) -> tuple[Floats, bool]:
        row, stopped = np.zeros(COLUMNS), False
        compute, planned = self._run.workload.compute, self._run.steps_per_epoch
        batches = self._loader.epoch(order, *self._positions, planned)
        begun = synced = clock.now()
        for asked in draw(compute.time, planned, self._comm.rank, epoch):
            started = clock.now()
            batch = next(batches)
            ready = clock.now()
            emulate(asked, compute.mode)
            computed = clock.now()
            stopped = stop.barrier()
            synced = clock.now()
            row[WAIT_S : SYNC_S + 1] += ready - started, computed - ready, synced - computed
            row[STEPS : BYTES + 1] += 1, len(batch.rows), batch.tally.bytes_read
            self._verification(batch)
            if stopped:
                break
        else:
            next(batches, None)  # ends the iteration, which closes the files
        row[EPOCH], row[WALL_S] = epoch, synced - begun
        return row, stopped and row[STEPS] < planned

    def close(self) -> None:
        self._loader.close()
