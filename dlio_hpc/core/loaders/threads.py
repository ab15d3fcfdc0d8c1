"""Reader threads, and the division of batches among them."""

from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

import numpy as np

from dlio_hpc.config.reader_keys import by_streams
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.content import Rows
from dlio_hpc.core.sample_layout import Samples

T = TypeVar("T")
Read = Callable[[Samples, Rows], T]


class Threads(Protocol):
    """Interface of pools of threads that read batches in the order in which the batches are submitted."""

    def submit(self, read: Read[T], samples: Samples, rows: Rows) -> list[Future[T]]:
        """Divide a batch into parts, and have threads read the parts. Return a future per part, without waiting. read:
        function that reads samples into their rows.
        """

    def close(self) -> None:
        """Cancel reads that have not started."""


def of(workload: Workload) -> Threads | None:
    """Return the reader threads that the workload configures, or None if the training loop itself reads."""
    keys = workload.reader
    if keys.read_threads > 1 and by_streams(workload.dataset, keys):
        return Lanes(workload)
    if keys.batches_ahead:
        return Pool(keys.read_threads, 1)
    return Pool(keys.read_threads, keys.read_threads) if keys.read_threads > 1 else None


class Pool:
    """Pool of `count` threads. A batch is divided into `parts` parts. Each part is read by the next free thread."""

    def __init__(self, count: int, parts: int) -> None:
        self._threads = ThreadPoolExecutor(count, "reader")
        self._parts = parts

    def submit(self, read: Read[T], samples: Samples, rows: Rows) -> list[Future[T]]:
        parts = zip(np.array_split(samples, self._parts), np.array_split(rows, self._parts), strict=True)
        return [self._threads.submit(read, *part) for part in parts]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


class Lanes:
    """Reader threads, each of which reads its own files, as with num_parallel_reads of TFRecordDataset. The threads
    take turns: each new file is assigned to the next thread. Only one thread reads a file, because the requests of
    several threads to a file would be out of order.
    """

    def __init__(self, workload: Workload) -> None:
        dataset, keys = workload.dataset, workload.reader
        self._samples_per_file = np.uint64(dataset.samples_per_file)
        self._threads = [ThreadPoolExecutor(1, f"reader-{number}") for number in range(keys.read_threads)]
        self._begun = 0
        self._lanes: OrderedDict[int, ThreadPoolExecutor] = OrderedDict()
        # Maximum number of files that a batch may need. Files that were last used before these files have been read to
        # their ends.
        self._most = keys.files_in_turn(dataset) + keys.batch_size

    def submit(self, read: Read[T], samples: Samples, rows: Rows) -> list[Future[T]]:
        files = samples // self._samples_per_file
        futures = []
        for file in dict.fromkeys(files.tolist()):
            # The indices are evenly spaced if files are read in turn, and adjacent if samples are sorted.
            places = np.flatnonzero(files == file)
            part = slice(places[0], places[-1] + 1, places[1] - places[0] if len(places) > 1 else 1)
            futures.append(self._lane(file).submit(read, samples[part], rows[part]))
        return futures

    def _lane(self, file: int) -> ThreadPoolExecutor:
        if file not in self._lanes:
            self._lanes[file] = self._threads[self._begun % len(self._threads)]
            self._begun += 1
        self._lanes.move_to_end(file)
        if len(self._lanes) > self._most:
            self._lanes.popitem(last=False)
        return self._lanes[file]

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)
