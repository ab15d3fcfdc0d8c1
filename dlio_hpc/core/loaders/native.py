"""The native loader: reader threads fill reused buffers ahead of the training loop, in the order of the epoch."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from dlio_hpc.core.formats.format import Reader, Rows, Samples
from dlio_hpc.core.order import Order
from dlio_hpc.core.tally import Tally
from dlio_hpc.errors import ConfigError
from dlio_hpc.workload import Workload

# Positions whose samples are computed at once: 64 KiB of numbers.
_STRETCH = 8192


class Batch(NamedTuple):
    """One step's samples, a row each, valid until the next batch is asked for; and what reading them did."""

    rows: Rows
    tally: Tally


class NativeLoader:
    """`read_threads` take a batch each; `prefetch` batches are read ahead, 0 leaves reading to the caller.

    `steps`: of an epoch; there is no reading further ahead.
    """

    def __init__(self, workload: Workload, reader: Reader, steps: int) -> None:
        self._reader = reader
        self._batch_size = workload.reader.batch_size
        self._ahead = min(workload.reader.batches_ahead, steps)
        self._threads = ThreadPoolExecutor(workload.reader.read_threads, "reader") if self._ahead else None
        shape = (self._batch_size, workload.dataset.sample.size)
        try:
            self._buffers = deque(np.empty(shape, np.uint8) for _ in range(self._ahead + 1))
        except MemoryError as fault:
            raise ConfigError(
                f"{self._ahead + 1} batches of {self._batch_size} samples do not fit in memory; "
                "lower reader.prefetch or reader.batch_size"
            ) from fault

    def epoch(self, order: Order, first: int, last: int, steps: int) -> Iterator[Batch]:
        """`steps` batches over the positions `first` to `last` of `order`; the last ones may be short, or empty."""
        batches = self._batches(order, first, last, steps)
        if self._threads is None:
            for samples in batches:
                yield self._read(samples, self._buffers[0])
        else:
            yield from self._read_ahead(self._threads, batches)
        self._reader.close()

    def _batches(self, order: Order, first: int, last: int, steps: int) -> Iterator[Samples]:
        """Each step's sample numbers; the order is asked for many steps at a time, which costs hardly more than one."""
        size = self._batch_size
        stretch = max(1, _STRETCH // size) * size
        for begin in range(first, first + steps * size, stretch):
            samples = order.samples(min(begin, last), min(begin + stretch, last))
            for at in range(0, min(stretch, first + steps * size - begin), size):
                yield samples[at : at + size]

    def _read_ahead(self, threads: ThreadPoolExecutor, batches: Iterator[Samples]) -> Iterator[Batch]:
        pending: deque[tuple[Future[Batch], Rows]] = deque()
        free = self._buffers.copy()

        def submit() -> None:
            for samples in batches:
                buffer = free.popleft()
                pending.append((threads.submit(self._read, samples, buffer), buffer))
                return

        for _ in range(self._ahead):
            submit()
        while pending:
            future, buffer = pending.popleft()
            submit()
            yield future.result()
            free.append(buffer)

    def _read(self, samples: Samples, buffer: Rows) -> Batch:
        tally = Tally()
        rows = buffer[: len(samples)]
        self._reader.read(samples, rows, tally)
        return Batch(rows, tally)

    def close(self) -> None:
        """Let the threads end; what they have not begun is dropped."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
