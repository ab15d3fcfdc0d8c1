"""The training loop of one rank: wait for the batch, compute, synchronise; each timed by itself."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dlio_hpc import dataset, folders
from dlio_hpc.core import cache, clock, disturbance
from dlio_hpc.core.arrival import Arrivals
from dlio_hpc.core.checkpoint import Checkpoints, Saved
from dlio_hpc.core.compute import check_cores, draw, emulate
from dlio_hpc.core.disturbance import Meter
from dlio_hpc.core.kernel import Apart
from dlio_hpc.core.loaders import open_loader
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.core.measures import ASKED, BYTES, COLUMNS, COMPUTED, READY, SAMPLES, STARTED, SYNCED, Floats, ReadLog
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.sidefiles import Counts, SideFiles
from dlio_hpc.core.stop import Stop
from dlio_hpc.core.tally import Tally
from dlio_hpc.core.verification import Verification
from dlio_hpc.order import Order
from dlio_hpc.plan import Run, positions
from dlio_hpc.workload import Workload

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Recording(NamedTuple):
    """Record of one rank. steps: (steps of all epochs, columns), as in measures; fewer than planned when the job's time
    was over. arrivals: (epochs begun, columns), as in arrival. checkpoints: (n, 7), epoch, steps done in it, seconds
    that training stood still, and the fields of Saved. verified: (epochs begun, 2), seconds of comparing, and samples
    that were compared. counts: of all batches. disturbances: (epochs begun + 1, columns), as in disturbance; the last
    row is for all epochs together.
    """

    steps: Floats
    reads: ReadLog
    arrivals: Floats
    checkpoints: Floats
    verified: Floats
    counts: Tally
    side_files: Counts
    disturbances: Floats


def train(
    comm: "Intracomm",
    run: Run,
    ranks_on_node: int,
    progress: Progress,
    stop: Stop,
    around: AbstractContextManager[None],
) -> Recording:
    """All epochs of a run on this rank, or as many steps as there is time for. around: entered before the first epoch,
    when all is open, and left after the last.
    """
    from mpi4py import MPI

    workload = run.workload
    check_cores(workload, ranks_on_node)
    first, last = positions(workload, comm.size, comm.rank, ranks_on_node)
    loader = open_loader(comm, run, ranks_on_node)
    apart = Apart()
    loop = _Loop(
        comm,
        workload,
        _Recorder(run, progress),
        Checkpoints(run, workload.checkpoint, comm.rank) if workload.checkpoint else None,
        SideFiles(run, comm.rank, apart),
        Verification(workload, partial(dataset.file_path, run)),
        apart,
        stop,
    )
    node: Intracomm = comm.Split_type(MPI.COMM_TYPE_SHARED)  # type: ignore[assignment]
    forget = _Forgetting(node, run) if workload.reader.drop_cache else None
    arrivals = Arrivals(node, run, comm.size // node.size)
    meter = Meter(speaks=node.rank == 0)
    loop.side_files.due("start")
    apart.taken()
    try:
        with around:
            begun = meter.read()
            for epoch in range(workload.train.epochs):
                order = Order(workload.dataset, workload.reader, epoch, comm.rank, comm.size)
                if forget:
                    forget(order, first, last)
                    clock.barrier(comm)  # ranks of a node forget for each other
                arrivals.look(order, first, last)
                before = meter.read()
                clock.barrier(comm)
                arrivals.begin()
                stopped = loop.epoch(epoch, loader.epoch(order, first, last, run.steps_per_epoch))
                loop.record.arrived(arrivals.end(apart.taken() + loop.record.started_others()))
                loop.record.disturbed(disturbance.between(before, meter.read()))
                if stopped:
                    break
            loop.record.disturbed(disturbance.between(begun, meter.read()))
            loop.side_files.due("end")
            clock.barrier(comm)
    finally:
        loop.side_files.close()
        if loop.checkpoints:
            loop.checkpoints.close()
        loader.close()
        if comm.rank == 0:
            folders.discard(run.outputs)
    return loop.record.recording(loop.side_files.counts())


class _Loop(NamedTuple):
    """What a rank's steps need."""

    comm: "Intracomm"
    workload: Workload
    record: "_Recorder"
    checkpoints: Checkpoints | None
    side_files: SideFiles
    verification: Verification
    apart: Apart
    stop: Stop

    def epoch(self, epoch: int, batches: Iterator[Batch]) -> bool:
        """All steps of an epoch; True when the time was over before the last."""
        rows = self.record.steps[epoch]
        rows[:, ASKED] = draw(self.workload.compute.time, len(rows), self.comm.rank, epoch)
        for number, row in enumerate(rows):
            row[STARTED] = clock.now()
            if not number:
                self.side_files.due("epoch")
            self.side_files.due("step")
            batch = next(batches)
            row[READY] = clock.now()
            emulate(row[ASKED], self.workload.compute.mode)
            row[COMPUTED] = clock.now()
            stopped = self.stop.barrier()
            row[SYNCED] = clock.now()
            self.record.step(epoch, row, batch)
            self.verify(epoch, batch)
            if stopped and (epoch, number + 1) != (self.workload.train.epochs - 1, len(rows)):
                return True
            self.save(epoch, number)
        next(batches, None)  # the epoch's files are closed
        return False

    def verify(self, epoch: int, batch: Batch) -> None:
        """Compare the batch, between two steps. Where whole samples are compared, a barrier follows, so that the time
        does not count as sync of other ranks.
        """
        started = clock.now()
        compared = self.verification(batch)
        if self.verification.is_whole:
            clock.barrier(self.comm)
        self.record.verified[epoch] += clock.now() - started, compared

    def save(self, epoch: int, number: int) -> None:
        """A checkpoint, if one is due after this step."""
        if not self.checkpoints or not self.checkpoints.is_due(epoch * self.record.steps.shape[1] + number + 1):
            return
        started = clock.now()
        with self.apart:
            saved = self.checkpoints.save()
        clock.barrier(self.comm)
        self.record.checkpoint(epoch, clock.now() - started, saved)


class _Forgetting:
    """Before an epoch: this node's kernel forgets what its ranks will read."""

    def __init__(self, node: "Intracomm", run: Run) -> None:
        self._node = node
        self._run = run

    def __call__(self, order: Order, first: int, last: int) -> None:
        for number in cache.files_of(self._node, self._run.workload, order, first, last, self._run.steps_per_epoch):
            cache.drop(dataset.file_path(self._run, number))


class _Recorder:
    """Takes down every step, between its end and the start of the next."""

    def __init__(self, run: Run, progress: Progress) -> None:
        epochs = run.workload.train.epochs
        self.steps = np.zeros((epochs, run.steps_per_epoch, COLUMNS))
        self.verified = np.zeros((epochs, 2))
        self._arrivals: list[tuple[float, ...]] = []
        self._disturbances: list[Floats] = []
        self._started_others = 0
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
        if self._reads.add(batch.tally):
            # A batch that is still being read was asked for `ahead` steps ago at the earliest.
            asked = self._rows()[-max(self._ahead, 1) :]
            self._reads.fold(self._rows(), float(asked[0, STARTED]))
        self._progress.show(self._done, self.steps[..., 0].size, "steps", f"epoch {epoch + 1} of {len(self.steps)}")

    def checkpoint(self, epoch: int, pause_s: float, saved: Saved) -> None:
        self._checkpoints.append((epoch, self._done - epoch * self.steps.shape[1], pause_s, *saved))

    def started_others(self) -> int:
        """Bytes that the kernel got from storage so that other processes could start, since the last question."""
        seen, self._started_others = self._started_others, self._counts.fetched
        return self._started_others - seen

    def arrived(self, columns: tuple[float, ...]) -> None:
        self._arrivals.append(columns)

    def disturbed(self, columns: Floats) -> None:
        self._disturbances.append(columns)

    def _rows(self) -> Floats:
        """The steps done so far, in order of time."""
        return self.steps.reshape(-1, self.steps.shape[-1])[: self._done]

    def recording(self, side_files: Counts) -> Recording:
        self._reads.fold(self._rows())
        checkpoints = np.array(self._checkpoints, float).reshape(-1, 7)
        arrivals = np.array(self._arrivals)
        verified, disturbances = self.verified[: len(arrivals)], np.array(self._disturbances)
        return Recording(
            self._rows(), self._reads, arrivals, checkpoints, verified, self._counts, side_files, disturbances
        )
