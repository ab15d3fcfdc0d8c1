"""The native loader: reader threads fill reused buffers ahead of the training loop, in the order of the epoch."""

import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.compute import emulate
from dlio_hpc.core.formats.format import SampleReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders import threads
from dlio_hpc.core.loaders.loader import Batch, in_steps
from dlio_hpc.core.loaders.threads import Task, Threads
from dlio_hpc.dataset.sample_layout import Places, SampleLayout
from dlio_hpc.dataset.sample_order import Order


class NativeLoader:
    """Loader with `read_threads` threads. Normally a thread reads whole batches. If files are read as streams, each
    file belongs to one thread, and a thread reads the samples of a batch that are in its files. `prefetch` batches are
    read ahead. If prefetch is 0, a batch is read only when the training loop needs it. In this case, if there is one
    thread, the training loop itself reads the batch; if there are several threads, each thread reads a part of the
    batch.

    steps: number of steps of an epoch. The number of batches that are read ahead is never larger.
    """

    def __init__(self, workload: Workload, reader: SampleReader, steps: int) -> None:
        self._reader = reader
        self._layout = SampleLayout(workload.dataset)
        self._batch_size = workload.reader.batch_size
        self._ahead = min(workload.reader.batches_ahead, steps)
        self._keeps_open = workload.reader.keep_open
        self._threads = threads.of(workload)
        self._preprocessing = Preprocessing(workload) if workload.reader.preprocess_time else None
        try:
            self._buffers = deque(
                buffers.allocate(self._batch_size, workload.row_bytes) for _ in range(self._ahead + 1)
            )
        except MemoryError as fault:
            raise ConfigError(
                f"{self._ahead + 1} batches of {self._batch_size} samples do not fit in memory; "
                "lower reader.prefetch or reader.batch_size"
            ) from fault

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        batches = in_steps(order, self._layout, first, last, steps, self._batch_size)
        if self._threads is None:
            for places in batches:
                yield _complete(self._read(places, _cut(self._buffers[0], len(places))))
        elif not self._ahead:
            for places in batches:
                buffer = _cut(self._buffers[0], len(places))
                yield _collect(self._threads.submit(self._read, places, buffer), places, buffer)
        else:
            yield from self._read_ahead(self._threads, batches)
        if not self._keeps_open:
            self._reader.close()

    def _read_ahead(self, threads: Threads, batches: Iterator[Places]) -> Iterator[Batch]:
        pending: deque[tuple[list[Task[Batch]], Places, Buffer, Buffer]] = deque()
        free = self._buffers.copy()

        def submit() -> None:
            for places in batches:
                whole = free.popleft()
                buffer = _cut(whole, len(places))
                pending.append((threads.submit(self._read, places, buffer), places, buffer, whole))
                return

        for _ in range(self._ahead):
            submit()
        while pending:
            tasks, places, buffer, whole = pending.popleft()
            submit()
            yield _collect(tasks, places, buffer)
            free.append(whole)

    def _read(self, places: Places, buffer: Buffer) -> Batch:
        tally = Tally()
        self._reader.read(places, buffer, tally)
        if self._preprocessing is None:
            return Batch(places, buffer.rows, tally)
        return Batch(places, buffer.rows, tally, self._preprocessing.begin(len(places)))

    def close(self) -> None:
        if self._threads is not None:
            self._threads.close()
        if self._keeps_open:
            self._reader.close()
        if self._preprocessing is not None:
            self._preprocessing.close()


def _cut(buffer: Buffer, samples: int) -> Buffer:
    """Return the first rows of a buffer, one row per sample."""
    return buffer if samples == len(buffer.views) else buffer.part(slice(samples))


def _complete(batch: Batch) -> Batch:
    """Wait until the preprocessing of a batch has ended, and return the batch."""
    if batch.preprocessed:
        batch.tally.preprocess_s += sum(part.result() for part in batch.preprocessed)
    return batch


def _collect(tasks: list[Task[Batch]], places: Places, buffer: Buffer) -> Batch:
    """Wait for the threads that read the parts of a batch, and return the whole batch."""
    if len(tasks) == 1:
        return _complete(tasks[0].result())
    tally = Tally()
    for task in tasks:
        tally.merge(_complete(task.result()).tally)
    return Batch(places, buffer.rows, tally)


class Preprocessing:
    """Emulated preprocessing. Each batch is divided among `preprocess_threads` threads, which sleep or spin as
    `compute.mode` selects.
    """

    def __init__(self, workload: Workload) -> None:
        self._count = workload.reader.preprocess_threads
        self._time = workload.reader.preprocess_time
        self._mode = workload.compute.mode
        self._threads = ThreadPoolExecutor(self._count, "preprocess")

    def begin(self, samples: int) -> "list[Future[float]]":
        """Start preprocessing a batch of `samples` samples. Return a future for each thread that takes part. The result
        of a future is the number of seconds that the thread spent.
        """
        parts = min(self._count, samples)
        shares = [samples // parts + (part < samples % parts) for part in range(parts)]
        return [self._threads.submit(preprocess, share * self._time, self._mode) for share in shares]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def preprocess(seconds: float, mode: str) -> float:
    """Sleep or spin for `seconds`. Return the seconds that passed."""
    started = now()
    if mode == "spin":
        emulate(seconds, mode)
    else:
        time.sleep(seconds)
    return now() - started
