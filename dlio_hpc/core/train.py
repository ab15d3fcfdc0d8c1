"""The training loop of one rank: wait for the batch, compute, synchronise; each timed by itself."""

import shutil
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlio_hpc.core import cache, clock, dataset
from dlio_hpc.core.checkpoint import Checkpoints, Saved
from dlio_hpc.core.compute import check_cores, draw, emulate
from dlio_hpc.core.kernel import IO, Apart, process_io
from dlio_hpc.core.loaders import open_loader
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.core.measures import ASKED, BYTES, COLUMNS, COMPUTED, READY, SAMPLES, STARTED, SYNCED, Floats, ReadLog
from dlio_hpc.core.order import Order
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.sidefiles import Counts, SideFiles
from dlio_hpc.core.tally import Tally
from dlio_hpc.plan import Run, positions

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Recording(NamedTuple):
    """What one rank saw. steps: (epochs, steps, columns), as in measures. storage_bytes: an epoch each, -1 where the
    kernel does not tell. checkpoints: (n, 7), epoch, steps done in it, seconds that training stood still, and the
    fields of Saved. counts: of all batches.
    """

    steps: Floats
    reads: ReadLog
    storage_bytes: Floats
    checkpoints: Floats
    counts: Tally
    side_files: Counts


def train(comm: "Intracomm", run: Run, ranks_on_node: int, progress: Progress) -> Recording:
    """All epochs of a run on this rank."""
    workload = run.workload
    check_cores(workload, ranks_on_node)
    first, last = positions(workload, comm.size, comm.rank, ranks_on_node)
    loader = open_loader(comm, run, ranks_on_node)
    checkpoints = Checkpoints(run, workload.checkpoint, comm.rank) if workload.checkpoint else None
    apart = Apart()
    side_files = SideFiles(run, comm.rank, apart)
    forget = _Forgetting(comm, run) if workload.reader.drop_cache else None
    record = _Recorder(run, progress)
    side_files.due("start")
    apart.taken()
    try:
        for epoch in range(workload.train.epochs):
            order = Order(workload.dataset, workload.reader, epoch, comm.rank)
            if forget:
                forget(order, first, last)
            clock.barrier(comm)
            fetched = process_io()
            batches = loader.epoch(order, first, last, run.steps_per_epoch)
            record.steps[epoch, :, ASKED] = draw(workload.compute.time, run.steps_per_epoch, comm.rank, epoch)
            for number, row in enumerate(record.steps[epoch]):
                row[STARTED] = clock.now()
                if not number:
                    side_files.due("epoch")
                side_files.due("step")
                batch = next(batches)
                row[READY] = clock.now()
                emulate(row[ASKED], workload.compute.mode)
                row[COMPUTED] = clock.now()
                clock.barrier(comm)
                row[SYNCED] = clock.now()
                record.step(epoch, row, batch)
                if checkpoints and checkpoints.is_due(epoch * run.steps_per_epoch + number + 1):
                    started = clock.now()
                    with apart:
                        saved = checkpoints.save()
                    clock.barrier(comm)
                    record.checkpoint(epoch, clock.now() - started, saved)
            next(batches, None)  # the epoch's files are closed
            record.fetched(epoch, fetched, process_io(), apart.taken())
        side_files.due("end")
        clock.barrier(comm)
    finally:
        side_files.close()
        loader.close()
        if comm.rank == 0:
            shutil.rmtree(run.outputs, ignore_errors=True)
    return record.recording(side_files.counts())


class _Forgetting:
    """Before an epoch: this node's kernel forgets what its ranks will read."""

    def __init__(self, comm: "Intracomm", run: Run) -> None:
        from mpi4py import MPI

        self._node: Intracomm = comm.Split_type(MPI.COMM_TYPE_SHARED)  # type: ignore[assignment]
        self._run = run

    def __call__(self, order: Order, first: int, last: int) -> None:
        for number in cache.files_of(self._node, self._run.workload, order, first, last):
            cache.drop(dataset.file_path(self._run, number))


class _Recorder:
    """Takes down every step, between its end and the start of the next."""

    def __init__(self, run: Run, progress: Progress) -> None:
        epochs = run.workload.train.epochs
        self.steps = np.zeros((epochs, run.steps_per_epoch, COLUMNS))
        self._storage_bytes = np.full(epochs, -1.0)
        self._reads = ReadLog()
        self._counts = Tally()
        self._done = 0
        self._checkpoints: list[tuple[float, ...]] = []
        reader = run.workload.reader
        self._ahead = 2 * reader.batches_ahead + reader.read_threads  # the frameworks round up, and buffer once more
        self._progress = progress

    def step(self, epoch: int, row: Floats, batch: Batch) -> None:
        row[SAMPLES], row[BYTES] = len(batch.rows), batch.tally.bytes_read
        self._counts.count(batch.tally)
        self._done += 1
        if self._reads.add(batch.tally.starts, batch.tally.ends):
            # A batch that is still being read was asked for `ahead` steps ago at the earliest.
            asked = self._rows()[-max(self._ahead, 1) :]
            self._reads.fold(self._rows(), float(asked[0, STARTED]))
        self._progress.show(self._done, self.steps[..., 0].size, "steps", f"epoch {epoch + 1} of {len(self.steps)}")

    def checkpoint(self, epoch: int, pause_s: float, saved: Saved) -> None:
        self._checkpoints.append((epoch, self._done - epoch * self.steps.shape[1], pause_s, *saved))

    def fetched(self, epoch: int, before: IO | None, after: IO | None, apart: int) -> None:
        """What the kernel brought from storage in an epoch, without what side files and checkpoints read."""
        if before is not None and after is not None:
            self._storage_bytes[epoch] = after.fetched - before.fetched - apart

    def _rows(self) -> Floats:
        """The steps done so far, in order of time."""
        return self.steps.reshape(-1, self.steps.shape[-1])[: self._done]

    def recording(self, side_files: Counts) -> Recording:
        self._reads.fold(self._rows())
        checkpoints = np.array(self._checkpoints, float).reshape(-1, 7)
        return Recording(
            self.steps, self._reads, self._storage_bytes, checkpoints, self._counts, side_files
        )  # fmt: skip
