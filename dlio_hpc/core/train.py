"""The training loop of a rank: wait for a batch, compute, synchronise. Each of these phases is timed separately."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import Incomplete
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import cache_accounting, clock, kv_record, node_activity, output_folder, own_cost
from dlio_hpc.core.auxiliary_files import AuxiliaryFiles, Counts
from dlio_hpc.core.checkpoint import COLUMNS as CHECKPOINTED
from dlio_hpc.core.checkpoint import Checkpoints
from dlio_hpc.core.checkpoint_modes.parts import Saved
from dlio_hpc.core.compute import FixedPace, check_cores, draw, emulate
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.distributions import (
    ASKED,
    BYTES,
    COLUMNS,
    COMPUTED,
    READY,
    SAMPLES,
    STARTED,
    SYNCED,
    Floats,
    ReadLog,
)
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.evaluation import COLUMNS as EVALUATED
from dlio_hpc.core.evaluation import EPOCH, EvaluationPasses
from dlio_hpc.core.io_counters import PhaseRecord, Tally
from dlio_hpc.core.kv_record import InferenceRecord
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.core.loaders.loader_choice import open_loader
from dlio_hpc.core.node_activity import Meter
from dlio_hpc.core.page_cache_drop import PageCacheDrop
from dlio_hpc.core.procfs import ExcludedIO
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.restore import COLUMNS as RESTORED
from dlio_hpc.core.restore import restore
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.rank_shares import positions
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.live_state import Phase

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


# Columns of Recording.phases.
BEGAN, ENDED, OPERATIONS, TOTAL_S, LONGEST_S = range(5)
PHASE_COLUMNS = 5
Integers = npt.NDArray[np.int64]


class Recording(NamedTuple):
    """Measurements of a rank. Shapes of arrays are in parentheses.

    steps (steps of all epochs, columns): distributions.py defines the columns of a step; there are fewer steps than
    planned if time ran out. reads: statistics of the reads. arrivals (epochs started, columns): cache_accounting.py
    defines the columns. checkpoints, restored, evaluated (n, columns): checkpoint.py, restore.py and evaluation.py
    define the columns. verified (epochs started, 2): seconds spent on comparing contents, and number of samples
    compared. own_s: seconds that dlio-hpc itself took: the seconds that own_cost.py computes, and OWN_S of all
    checkpoints. counts: totals of all batches. disturbances (epochs started + 1, columns): disturbance.py defines the
    columns; the last row is for all epochs together. phases (steps, columns): operations of a metadata workload; the
    columns are the fields of PhaseRecord without the histogram; no rows for other workloads. latencies (steps, bins):
    their histograms. served (epochs, columns) and served_times (epochs, kinds, bins): records of an inference workload;
    kv_record.py defines the columns and kinds; no rows for other workloads. stopped: whether time ran out before the
    end of the run.
    """

    steps: Floats
    reads: ReadLog
    arrivals: Floats
    checkpoints: Floats
    restored: Floats
    evaluated: Floats
    verified: Floats
    own_s: float
    counts: Tally
    auxiliary_files: Counts
    disturbances: Floats
    phases: Floats
    latencies: Integers
    served: Floats
    served_times: Integers
    stopped: bool


def train(
    comm: "Intracomm",
    run: Run,
    ranks_on_node: int,
    progress: Progress,
    stop: Stop,
    around: AbstractContextManager[None],
    watch: "Callable[[Recorder], None]" = lambda _: None,
) -> Recording:
    """Run the steps of all epochs on this rank, or as many steps as fit before the time limit. around: context manager
    that is entered before the first epoch, after the loader has been opened, and left after the last epoch. watch:
    function that is called before the first step, with the recorder of the steps as argument.
    """
    from mpi4py import MPI

    workload = run.workload
    check_cores(workload, ranks_on_node)
    first, last = positions(workload, comm.size, comm.rank, ranks_on_node)
    loader = open_loader(comm, run, ranks_on_node, stop=stop)
    apart = ExcludedIO()
    loop = _Loop(
        comm,
        workload,
        Recorder(run, progress, stop.epochs(run)),
        _checkpoints(comm, run, ranks_on_node),
        AuxiliaryFiles(run, comm.rank, apart),
        Verification(workload, dataset_folder.containers(run.stored)),
        apart,
        stop,
        FixedPace(workload.compute.interval) if workload.compute.interval is not None else None,
    )
    watch(loop.record)
    _assemble(comm, run)
    node: Intracomm = comm.Split_type(MPI.COMM_TYPE_SHARED)  # type: ignore[assignment]
    drop_cache = PageCacheDrop(node, run) if workload.reader.drop_cache else None
    arrivals = cache_accounting.of_samples(node, run, comm.size // node.size)
    evaluation = _evaluation(comm, node, run, ranks_on_node)
    meter = Meter(speaks=node.rank == 0)
    loop.auxiliary_files.due("start")
    apart.taken()
    try:
        with around:
            begun = meter.read()
            for epoch in range(len(loop.record.steps)):
                order, started = Order(workload.dataset, workload.reader, epoch, comm.rank, comm.size), clock.now()
                if drop_cache:
                    drop_cache(order, first, last)
                    clock.barrier(comm)  # ranks of a node drop files for each other
                arrivals.look(partial(cache_accounting.some_files, run, order, first, last, node.size))
                before = meter.read()
                arrivals.begin()
                stop.begin(epoch)  # no rank reads before the node's counters have been read
                if epoch:  # the wall time begins after the preparation of the first epoch
                    loop.record.prepared(clock.now() - started)
                stopped = loop.epoch(epoch, loader.epoch(order, first, last, run.steps_per_epoch)) or loop.ends(epoch)
                loop.end_epoch(epoch, arrivals)
                loop.record.disturbed(node_activity.between(before, meter.read()))
                if not stopped:
                    loop.record.keep(loop.auxiliary_files.counts())
                loop.record.stopped = stopped or (evaluation is not None and loop.evaluate(epoch, evaluation))
                if loop.record.stopped:
                    break
            else:
                if loop.checkpoints:
                    loop.record.phase = "restore"
                    loop.record.restored, loop.record.stopped = restore(comm, node, run, loop.checkpoints, stop)
            loop.record.disturbed(node_activity.between(begun, meter.read()))
            loop.auxiliary_files.due("end")
            clock.barrier(comm)
    finally:
        for opened in (loop.auxiliary_files, loop.checkpoints, loader, evaluation):
            if opened is not None:
                opened.close()
    return loop.record.recording(loop.auxiliary_files.counts(), workload)


def _assemble(comm: "Intracomm", run: Run) -> None:
    """Wait for all ranks. Rank 0 makes the folder of checkpoints and auxiliary files first. The loader of a metadata or
    an inference workload makes its folder itself.
    """
    if run.workload.writes_outputs and not run.workload.has_own_loader:
        output_folder.make_for_all(comm, run.outputs)
    clock.assemble(comm)


def _checkpoints(comm: "Intracomm", run: Run, ranks_on_node: int) -> Checkpoints | None:
    keys = run.workload.checkpoint
    if keys is None:
        return None
    return Checkpoints(run, keys, comm.rank, comm.size, keys.reorder * ranks_on_node, comm)


def _evaluation(comm: "Intracomm", node: "Intracomm", run: Run, ranks_on_node: int) -> EvaluationPasses | None:
    keys = run.workload.evaluation
    if keys is None or run.evaluation is None:
        return None
    return EvaluationPasses(comm, node, run.evaluation, ranks_on_node, keys.every_epochs)


class _Loop(NamedTuple):
    """The objects that all steps of a rank use."""

    comm: "Intracomm"
    workload: Workload
    record: "Recorder"
    checkpoints: Checkpoints | None
    auxiliary_files: AuxiliaryFiles
    verification: Verification
    apart: ExcludedIO
    stop: Stop
    pace: FixedPace | None = None

    @property
    def is_asynchronous(self) -> bool:
        return self.workload.checkpoint is not None and self.workload.checkpoint.asynchronous

    def epoch(self, epoch: int, batches: Iterator[Batch]) -> bool:
        """Run the steps of an epoch. Return True if time ran out before the last step of the run, otherwise False."""
        rows, self.record.phase = self.record.steps[epoch], "steps"
        rows[:, ASKED] = draw(self.workload.compute.time, len(rows), self.comm.rank, epoch)
        cells, now, mode = rows.reshape(-1).data, clock.now, self.workload.compute.mode
        for number in range(len(rows)):
            row = cells[number * COLUMNS : (number + 1) * COLUMNS]
            row[STARTED] = now()
            if not number:
                self.auxiliary_files.due("epoch")
            self.auxiliary_files.due("step")
            batch = next(batches)
            row[READY] = now()
            if self.pace is not None:
                row[ASKED] = self.pace.rest(row[STARTED], row[READY])
            emulate(row[ASKED], mode)
            row[COMPUTED] = now()
            stopped = self.stop.barrier()
            row[SYNCED] = now()
            if stopped and self.stop.is_cut():
                self.require_a_phase()
                self.stop.mark(epoch)
                return True
            self.record.step(epoch, row, batch)
            self.verify(epoch, row[SYNCED], batch)
            if stopped and (epoch, number + 1) != (len(self.record.steps) - 1, len(rows)):
                self.stop.mark(epoch)
                return True
            if self.checkpoints:
                self.save(epoch, number)
        next(batches, None)  # ends the iteration, which closes the epoch's files
        return False

    def ends(self, epoch: int) -> bool:
        """Tell the other loads of a mix if this was the last planned epoch. Return whether all loads end now, although
        this load could start again.
        """
        self.stop.mark(epoch)
        if epoch + 1 == self.workload.train.epochs:
            self.stop.planned_end()
        return self.workload.train.epochs <= epoch + 1 < len(self.record.steps) and self.stop.barrier()

    def require_a_phase(self) -> None:
        """Raise Incomplete on rank 0 if no phase or epoch is complete. The exception ends all ranks."""
        if not self.record.done and self.comm.rank == 0:
            part, less = ("epoch", "a shorter inference.time") if self.workload.inference else ("phase", "fewer files")
            why = "other loads of the mix have ended" if self.stop.ends_with_mix() else "the time limit is near"
            raise Incomplete(f"{why}, and no {part} is complete; give the run more time, or {less}")

    def evaluate(self, epoch: int, passes: EvaluationPasses) -> bool:
        """Run an evaluation pass if one follows this epoch. Return whether time ran out before the last step of the
        run.
        """
        if not passes.is_due(epoch):
            return False
        self.record.phase = "evaluation"
        row, stopped = passes.evaluate(epoch, self.stop)
        self.record.evaluated(row)
        return stopped

    def verify(self, epoch: int, synced: float, batch: Batch) -> None:
        """Compare a batch with the generated contents, after its step. If whole samples are compared, a barrier
        follows. Without this barrier, other ranks would count the time of the comparison as synchronisation of the next
        step. synced: timestamp of the end of the step.
        """
        started = clock.now()
        compared = self.verification(batch)
        if self.verification.is_whole:
            clock.barrier(self.comm)
        self.record.after_step(epoch, started - synced, clock.now() - started, compared)

    def end_epoch(self, epoch: int, arrivals: cache_accounting.Arrivals) -> None:
        """Compare the beginnings of samples that have not been compared yet, and record how many bytes came from
        storage.
        """
        started = clock.now()
        self.verification.finish()
        self.record.after_step(epoch, 0.0, clock.now() - started, 0)
        columns = arrivals.end(self.apart.taken() + self.record.other_processes_fetched())
        self.record.arrived(columns, arrivals.from_storage(columns))

    def save(self, epoch: int, number: int) -> None:
        """Write a checkpoint if one is due after this step, and record its time. The pause is the longest pause of any
        rank, without the time in which that rank makes or compares contents. The remaining time is a cost of dlio-hpc.
        """
        assert self.checkpoints is not None
        if not self.checkpoints.is_due(epoch * self.record.steps.shape[1] + number + 1):
            return
        started, self.record.phase = clock.now(), "checkpoint"
        with self.apart:
            saved = self.checkpoints.begin() if self.is_asynchronous else self.checkpoints.save()
        pause_s = clock.longest(self.comm, max(0.0, clock.now() - started - self.checkpoints.own_s))
        self.record.checkpoint(epoch, pause_s, clock.now() - started - pause_s, saved)
        self.record.phase = "steps"


class _Kept(NamedTuple):
    """Counts of a recorder at the end of an epoch. epochs: number of epochs that had ended."""

    epochs: int
    reads: ReadLog
    counts: Tally
    bookkeeping_s: float
    auxiliary_files: Counts


class Recorder:
    """Recorder of the steps of a rank. It is called after the end of a step and before the start of the next step.

    Another thread may call finished() while a step hangs, and read `phase`, `done` and `steps`. phase: current activity
    of the rank. epochs: largest number of epochs; None: those of the workload.
    """

    def __init__(self, run: Run, progress: Progress, epochs: int | None = None) -> None:
        epochs = run.workload.train.epochs if epochs is None else epochs
        self.steps = np.zeros((epochs, run.steps_per_epoch, COLUMNS))
        self._verified = np.zeros((epochs, 2))
        self._verified_of: list[Any] = [row.data for row in self._verified]  # assignments to a memory view are fast
        self._bookkeeping_s = 0.0
        self._arrivals: list[tuple[float, ...]] = []
        self._phases: list[PhaseRecord] = []
        self._served: list[InferenceRecord] = []
        self._evaluated: list[Floats] = []
        self._disturbances: list[Floats] = []
        self._other_processes_fetched = 0
        self._from_storage = 0.0
        self.phase: Phase = "start"
        self._reads = ReadLog()
        self._counts = Tally()
        self.done, self._planned = 0, run.workload.train.epochs * run.steps_per_epoch
        self._checkpoints: list[tuple[float, float, float, float, Saved | Future[Saved]]] = []
        self.restored = np.empty((0, RESTORED))
        self.stopped = False
        # The barriers of a step keep ranks less than an epoch apart: the last two ends of epochs have one in common.
        self._kept: deque[_Kept] = deque(maxlen=2)
        reader = run.workload.reader
        self._ahead = 2 * reader.batches_ahead + reader.read_threads  # frameworks round up and buffer again
        self._progress, self._unit = progress, run.workload.steps_in_words

    def step(self, epoch: int, row: memoryview, batch: Batch) -> None:
        row[SAMPLES], row[BYTES] = len(batch.rows), batch.tally.bytes_read
        self._counts.count(batch.tally)
        if batch.tally.phase is not None:
            self._phases.append(batch.tally.phase)
        if batch.tally.served is not None:
            self._served.append(batch.tally.served)
        self.done += 1
        if self._reads.add(batch.tally):
            # Batches that are still being read were requested at most `ahead` steps ago.
            asked = self._rows()[-max(self._ahead, 1) :]
            self._reads.fold(self._rows(), float(asked[0, STARTED]))
        planned = -(-self.done // self._planned) * self._planned  # a load of a mix may start again
        if self._progress.is_due(self.done, planned):
            self._progress.show(
                self.done, planned, self._unit, f"epoch {epoch + 1} of {planned // self.steps.shape[1]}"
            )

    def after_step(self, epoch: int, bookkeeping_s: float, verify_s: float, compared: int) -> None:
        """Record the seconds that the loop spent after a step, and the number of samples that were compared."""
        self._bookkeeping_s += bookkeeping_s
        verified = self._verified_of[epoch]
        verified[0] += verify_s
        verified[1] += compared

    def prepared(self, seconds: float) -> None:
        """Record the seconds between two epochs in which dlio-hpc dropped the page cache and read counters."""
        self._bookkeeping_s += seconds

    def checkpoint(self, epoch: int, pause_s: float, own_s: float, saved: "Saved | Future[Saved]") -> None:
        """Record a checkpoint. own_s: seconds that the loop spent on the checkpoint in addition to the pause."""
        self._checkpoints.append((epoch, self.done - epoch * self.steps.shape[1], pause_s, own_s, saved))

    def other_processes_fetched(self) -> int:
        """Return the number of bytes that the kernel fetched from storage during the start of worker processes. Only
        bytes since the previous call of this method are counted.
        """
        before, self._other_processes_fetched = self._other_processes_fetched, self._counts.fetched
        return self._other_processes_fetched - before

    def arrived(self, columns: tuple[float, ...], from_storage: float) -> None:
        """Record the arrivals of an epoch that has ended. columns: result of Arrivals.end(). from_storage: bytes of the
        epoch that came from storage.
        """
        self._arrivals.append(columns)
        self._from_storage += from_storage

    def from_storage(self) -> tuple[int | None, int]:
        """Return two numbers for the epochs that have ended: the bytes that came from storage, and the bytes of
        samples. If it is unknown which bytes came from storage, return None and 0.
        """
        epochs, arrived = len(self._arrivals), self._from_storage
        if not epochs or math.isnan(arrived):
            return None, 0
        return int(arrived), int(self.steps[:epochs, :, BYTES].sum())

    def evaluated(self, row: Floats) -> None:
        self._evaluated.append(row)

    def disturbed(self, columns: Floats) -> None:
        self._disturbances.append(columns)

    def keep(self, auxiliary_files: Counts) -> None:
        """Save the current counts, because an epoch has ended."""
        counts = copy(self._counts)
        kept = _Kept(len(self._disturbances), self._reads.copy(), counts, self._bookkeeping_s, auxiliary_files)
        self._kept.append(kept)

    def finished(self, workload: Workload) -> "dict[int, Recording]":
        """Return the recordings at the last two ends of an epoch. Each recording contains all epochs that had ended by
        then; its key is the number of these epochs. Checkpoints that are still being written in the background are left
        out.
        """
        return {kept.epochs: self._finished(kept, workload) for kept in list(self._kept)}

    def _finished(self, kept: _Kept, workload: Workload) -> Recording:
        epochs, reads = kept.epochs, kept.reads.copy()
        steps = self.steps[:epochs].reshape(-1, COLUMNS)
        reads.fold(steps)
        saved = [row for row in list(self._checkpoints) if row[0] < epochs]
        rows = [(*row[:-1], *_figures(row[-1])) for row in saved[: _written(saved)]]
        phases = self._phases[: len(steps)]
        waited_s = reads.waited_s + sum(phase.total_s for phase in phases)
        own_s = own_cost.seconds(workload, steps, waited_s, kept.auxiliary_files.time_s, kept.bookkeeping_s)
        own_s += sum(row[3] for row in rows)
        passes = [row for row in list(self._evaluated) if row[EPOCH] < epochs]
        spans = np.array(self._disturbances[:epochs])
        return Recording(
            steps, reads, np.array(self._arrivals[:epochs]), np.array(rows, float).reshape(-1, CHECKPOINTED),
            self.restored, np.array(passes).reshape(-1, EVALUATED), self._verified[:epochs], own_s, kept.counts,
            kept.auxiliary_files, np.vstack([spans, node_activity.together(spans)]),
            *_phases(phases), *_served(self._served[:epochs]), True,
        )  # fmt: skip

    def _rows(self) -> Floats:
        """Return the steps done so far, in order of time, shape (steps, columns)."""
        return self.steps.reshape(-1, self.steps.shape[-1])[: self.done]

    def recording(self, auxiliary_files: Counts, workload: Workload) -> Recording:
        steps = self._rows()
        self._reads.fold(steps)
        waited_s = self._reads.waited_s + sum(phase.total_s for phase in self._phases)
        own_s = own_cost.seconds(workload, steps, waited_s, auxiliary_files.time_s, self._bookkeeping_s)
        own_s += sum(own for _, _, _, own, _ in self._checkpoints)
        rows = [(*row, *_figures(saved)) for *row, saved in self._checkpoints]
        checkpoints = np.array(rows, float).reshape(-1, CHECKPOINTED)
        arrivals = np.array(self._arrivals)
        verified, disturbances = self._verified[: len(arrivals)], np.array(self._disturbances)
        evaluated = np.array(self._evaluated).reshape(-1, EVALUATED)
        return Recording(
            steps, self._reads, arrivals, checkpoints, self.restored, evaluated, verified, own_s, self._counts,
            auxiliary_files, disturbances, *_phases(self._phases), *_served(self._served), self.stopped,
        )  # fmt: skip


def _phases(records: Sequence[PhaseRecord]) -> tuple[Floats, Integers]:
    """Return the fields `phases` and `latencies` of Recording."""
    if not records:
        return np.empty((0, PHASE_COLUMNS)), np.empty((0, 0), np.int64)
    table = [(one.began, one.ended, one.operations, one.total_s, one.longest_s) for one in records]
    return np.array(table, float), np.array([one.histogram for one in records])


def _served(records: Sequence[InferenceRecord]) -> tuple[Floats, Integers]:
    """Return the fields `served` and `served_times` of Recording."""
    if not records:
        return np.empty((0, kv_record.COLUMNS)), np.empty((0, kv_record.KINDS, 0), np.int64)
    return np.array([one.columns for one in records]), np.array([one.histograms for one in records])


def _written(saved: "list[tuple[float, float, float, float, Saved | Future[Saved]]]") -> int:
    """Return the number of checkpoints before the first one that is not yet written."""
    for number, (*_, one) in enumerate(saved):
        if not isinstance(one, Saved) and (not one.done() or one.exception() is not None):
            return number
    return len(saved)


def _figures(saved: "Saved | Future[Saved]") -> tuple[float, float, float, int]:
    """Return the columns of a checkpoint that are known after it is written."""
    known = saved if isinstance(saved, Saved) else saved.result()
    return known.write_s, known.fsync_s, known.read_s, known.bytes
