"""Loader with PyTorch's DataLoader: worker processes read whole batches, in the order of the epoch."""

import itertools
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError
from dlio_hpc.config.reader_keys import deals_files
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.darshan_workers import WorkerLogs
from dlio_hpc.core.formats import format_table
from dlio_hpc.core.formats.format import Paths, SampleReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders import pytorch_workers
from dlio_hpc.core.loaders.loader import Batch, SampleOrder, in_steps
from dlio_hpc.core.loaders.native import preprocess
from dlio_hpc.core.procfs import process_io
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.sample_order import Indices


class PyTorchLoader:
    """Loader with `read_threads` worker processes, or without workers if prefetch is 0. Each epoch starts new workers,
    as DataLoader does by default.

    With each batch, a worker returns the tally of the reads of this batch. The timestamps in the tally need no
    conversion, because all processes of a node share one clock. worker_logs: Darshan's logs of the workers; None if
    Darshan does not record them.
    """

    def __init__(self, workload: Workload, paths: Paths, worker_logs: WorkerLogs | None = None) -> None:
        try:
            from torch.utils.data import DataLoader
        except ImportError as fault:
            raise ConfigError(
                "reader.loader=pytorch needs PyTorch, which is not installed; run pip install torch"
            ) from fault
        self._workload = workload
        self._layout = SampleLayout(workload.dataset)
        self._dataset = _Samples(workload, paths)
        self._worker_logs = worker_logs
        self._epochs = 0
        keys = workload.reader
        workers = keys.worker_processes
        options: dict[str, Any] = {"num_workers": workers}
        if workers:
            options |= {
                "prefetch_factor": -(-keys.batches_ahead // workers),
                "multiprocessing_context": keys.multiprocessing_context,
            }
        self._data_loader = partial(DataLoader, self._dataset, collate_fn=_as_it_is, **options)

    def epoch(self, order: SampleOrder, first: int, last: int, steps: int) -> Iterator[Batch]:
        size = self._workload.reader.batch_size
        if deals_files(self._workload.dataset, self._workload.reader):
            workers = max(1, self._workload.reader.worker_processes)
            order, first, last = _Dealt.of(order, self._layout, first, last, size, workers), 0, last - first
        requested, expected = itertools.tee(in_steps(order, self._layout, first, last, steps, size))
        sampler = (places.sample.tolist() for places in requested if len(places))
        batches = self._started(sampler)
        while (got := _next(batches)) is not None:
            rows, tally, fault = got
            if fault is not None:
                raise fault
            yield Batch(next(expected), rows.numpy(), tally)
        self._dataset.close()
        for places in expected:
            yield Batch(places, np.empty((0, self._workload.row_bytes), np.uint8), Tally())

    def _started(self, sampler: Iterator[list[int]]) -> Iterator[Any]:
        """Start the workers of an epoch. Return the iterator over their batches."""
        self._epochs += 1
        logs = self._worker_logs
        if not self._workload.reader.worker_processes:
            return iter(self._data_loader(batch_sampler=sampler))
        try:
            with nullcontext() if logs is None else logs.recorded(), pytorch_workers.started():
                begin = pytorch_workers.begin(None if logs is None else logs.named(self._epochs))
                return iter(self._data_loader(batch_sampler=sampler, worker_init_fn=begin))
        except RuntimeError as fault:
            raise pytorch_workers.explained(fault) from fault

    def close(self) -> None:
        """Do nothing, because the workers end with the iteration."""


class _Dealt(NamedTuple):
    """The order of samples in an epoch in which each worker reads whole files. numbers: numbers of the samples of this
    rank. ascending: whether the samples of a batch are read in ascending order.
    """

    numbers: Indices
    ascending: bool

    def samples(self, first: int, last: int) -> Indices:
        """Return the numbers of the samples at positions `first` to `last` (exclusive)."""
        return self.numbers[first:last]

    @classmethod
    def of(cls, order: SampleOrder, layout: SampleLayout, first: int, last: int, size: int, workers: int) -> "_Dealt":
        """Deal the files of a rank to its workers, and return the order of their samples. DataLoader gives the batches
        to the workers in turn. The batches of a worker are from its own files, until a worker has no full batch left.
        The samples that are left are read file by file. size: samples per batch.
        """
        numbers = order.samples(first, last)
        files = layout.of(numbers).file
        worker = np.cumsum(np.diff(files, prepend=files[:1]) != 0) % workers
        counts = np.bincount(worker, minlength=workers)
        by_worker = np.argsort(worker, kind="stable")
        within = np.empty(len(numbers), np.int64)
        within[by_worker] = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
        turns = np.minimum(within // size, counts.min() // size)
        return cls(numbers[np.lexsort((within, worker, turns))], order.ascending)


class _Samples:
    """Map-style dataset of PyTorch. Each worker process opens its own reader. DataLoader requests a whole batch per
    call.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._workload = workload
        self._layout = SampleLayout(workload.dataset)
        self._paths = paths
        self._reader: SampleReader | None = None
        self._buffer: Buffer | None = None

    def __len__(self) -> int:
        return self._workload.dataset.samples

    def __getitems__(self, samples: list[int]) -> tuple[Any, Tally, DlioError | None]:
        """Read a batch. Return three values: the rows of the batch, the counts of the reads, and None. If the read
        fails, return None, the counts and the error; the training loop then raises this error unchanged.
        """
        import torch

        tally = Tally()
        is_worker = torch.utils.data.get_worker_info() is not None
        try:
            # Memory is allocated here, because a later failure, outside this function, would not be reported.
            rows, buffer = self._shared(len(samples)) if is_worker else self._reused(len(samples))
            if self._reader is None:
                # When a worker ends, the kernel adds all counts of the worker, including those of its start-up, to
                # those of its parent.
                before = process_io() if is_worker else None
                tally.fetched = before.fetched if before is not None else 0
                self._reader = format_table.reader(self._workload, self._paths, None)
            places = self._layout.of(np.array(samples, np.uint64))
            self._reader.read(places, buffer, tally)
        except DlioError as fault:
            return None, tally, fault
        except (RuntimeError, MemoryError) as fault:
            message = f"PyTorch has no memory for a batch: {fault}; enlarge /dev/shm, or lower batch_size or prefetch"
            return None, tally, InfrastructureError(message)
        if self._workload.reader.preprocess_time:
            seconds = len(samples) * self._workload.reader.preprocess_time
            tally.preprocess_s += preprocess(seconds, self._workload.compute.mode)
        return rows, tally, None

    def _shared(self, samples: int) -> tuple[Any, Buffer]:
        """Return a tensor in new shared memory, and the rows of the tensor as a buffer. A worker passes a batch to the
        training loop in such a tensor. The memory is allocated as shared memory, as in torch's default_collate, because
        share_memory_() would copy the tensor later.
        """
        import torch

        width = self._workload.row_bytes
        storage = torch.UntypedStorage._new_shared(samples * width)
        tensor = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (samples, width))
        return tensor, buffers.over(tensor.numpy())

    def _reused(self, samples: int) -> tuple[Any, Buffer]:
        """Return the first `samples` rows of the reused buffer in two forms that share memory: as a tensor, and as a
        buffer. Without workers, every batch is
        read into the same buffer, because the training loop requests a batch only after it has used the previous batch.
        """
        import torch

        if self._buffer is None:
            self._buffer = buffers.allocate(self._workload.reader.batch_size, self._workload.row_bytes)
        part = self._buffer.part(slice(samples))
        return torch.from_numpy(part.rows), part

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _next(batches: Iterator[Any]) -> Any:
    """Return the next batch of DataLoader, or None at its end. Raise InfrastructureError if DataLoader fails, for
    example because a worker was killed.
    """
    try:
        return next(batches, None)
    except pytorch_workers.FAULTS as fault:
        raise pytorch_workers.explained(fault) from fault


def _as_it_is(batch: Any) -> Any:
    return batch
