"""The training loop of one rank: wait for the batch, compute, synchronise; each timed by itself."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlio_hpc.core import clock, dataset
from dlio_hpc.core.checkpoint import Checkpoints, Saved
from dlio_hpc.core.compute import check_cores, draw, emulate
from dlio_hpc.core.formats import FORMATS
from dlio_hpc.core.loaders.native import Batch, NativeLoader
from dlio_hpc.core.measures import ASKED, BYTES, COLUMNS, COMPUTED, READY, SAMPLES, STARTED, SYNCED, Floats, ReadLog
from dlio_hpc.core.order import Order
from dlio_hpc.core.progress import Progress
from dlio_hpc.plan import Run, share

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Recording(NamedTuple):
    """What one rank saw. steps: (epochs, steps, columns), as in measures. storage_bytes: an epoch each, -1 where the
    kernel does not tell. checkpoints: (n, 7), epoch, steps done in it, seconds that training stood still, and the
    fields of Saved.
    """

    steps: Floats
    reads: ReadLog
    storage_bytes: Floats
    checkpoints: Floats
    opens: int
    overhead_bytes: int


def train(comm: "Intracomm", run: Run, ranks_on_node: int, progress: Progress) -> Recording:
    """All epochs of a run on this rank."""
    workload = run.workload
    epochs = workload.train.epochs
    first, last = share(workload.dataset.samples, comm.size, comm.rank)
    reader = FORMATS[workload.dataset.format].reader(workload, lambda number: dataset.file_path(run, number))
    loader = NativeLoader(workload, reader, run.steps_per_epoch)
    ahead = workload.reader.batches_ahead
    check_cores(workload.compute, ranks_on_node, workload.reader.read_threads if ahead else 0)
    checkpoints = Checkpoints(run, workload.checkpoint, comm.rank) if workload.checkpoint else None
    record = _Recorder(epochs, run.steps_per_epoch, ahead, progress)
    clock.barrier(comm)
    try:
        for epoch in range(epochs):
            fetched = storage_bytes()
            order = Order(workload.dataset, workload.reader.shuffle, epoch)
            batches = loader.epoch(order, first, last, run.steps_per_epoch)
            record.steps[epoch, :, ASKED] = draw(workload.compute.time, run.steps_per_epoch, comm.rank, epoch)
            for row in record.steps[epoch]:
                row[STARTED] = clock.now()
                batch = next(batches)
                row[READY] = clock.now()
                emulate(row[ASKED], workload.compute.mode)
                row[COMPUTED] = clock.now()
                clock.barrier(comm)
                row[SYNCED] = clock.now()
                record.step(epoch, row, batch)
                if checkpoints and checkpoints.is_due(record.steps_of(epoch)):
                    started = clock.now()
                    saved = checkpoints.save()
                    clock.barrier(comm)
                    record.checkpoint(epoch, clock.now() - started, saved)
            next(batches, None)  # the epoch's files are closed
            if fetched >= 0:
                record.storage_bytes[epoch] = storage_bytes() - fetched
    finally:
        loader.close()
        if checkpoints:
            checkpoints.remove()
    return record.recording()


class _Recorder:
    """Takes down every step, between its end and the start of the next."""

    def __init__(self, epochs: int, steps: int, ahead: int, progress: Progress) -> None:
        self.steps = np.zeros((epochs, steps, COLUMNS))
        self.storage_bytes = np.full(epochs, -1.0)
        self._reads = ReadLog()
        self._opens = self._overhead_bytes = self._done = 0
        self._checkpoints: list[tuple[float, ...]] = []
        self._ahead = ahead
        self._progress = progress

    def step(self, epoch: int, row: Floats, batch: Batch) -> None:
        row[SAMPLES], row[BYTES] = len(batch.rows), batch.tally.bytes_read
        self._opens += batch.tally.opens
        self._overhead_bytes += batch.tally.overhead_bytes
        self._done += 1
        if self._reads.add(batch.tally.starts, batch.tally.ends):
            # A batch that is still being read was asked for `ahead` steps ago at the earliest.
            asked = self._rows()[-max(self._ahead, 1) :]
            self._reads.fold(self._rows(), float(asked[0, STARTED]))
        self._progress.show(self._done, self.steps[..., 0].size, "steps", f"epoch {epoch + 1} of {len(self.steps)}")

    def steps_of(self, epoch: int) -> int:
        """Steps done in the running epoch."""
        return self._done - epoch * self.steps.shape[1]

    def checkpoint(self, epoch: int, pause_s: float, saved: Saved) -> None:
        self._checkpoints.append((epoch, self.steps_of(epoch), pause_s, *saved))

    def _rows(self) -> Floats:
        """The steps done so far, in order of time."""
        return self.steps.reshape(-1, self.steps.shape[-1])[: self._done]

    def recording(self) -> Recording:
        self._reads.fold(self._rows())
        checkpoints = np.array(self._checkpoints, float).reshape(-1, 7)
        return Recording(
            self.steps, self._reads, self.storage_bytes, checkpoints, self._opens, self._overhead_bytes
        )  # fmt: skip


def storage_bytes() -> int:
    """Bytes that the kernel has fetched from storage for this process, readahead included; -1 where it does not tell.

    proc(5), /proc/pid/io: read_bytes. Pages that lay in the page cache are not in it.
    """
    try:
        with open("/proc/self/io", encoding="ascii") as file:
            return int(file.read().split("\nread_bytes:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        return -1
