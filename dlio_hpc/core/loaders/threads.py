"""Reader threads, and the division of batches among them."""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dlio_hpc.config.reader_keys import by_streams
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.dataset.sample_layout import Places

T = TypeVar("T")
Read = Callable[[Places, Buffer], T]


class Task(Generic[T]):
    """A read that a thread makes. This class does as little as possible, because a batch of one small sample is read in
    a few microseconds, and a concurrent.futures.Future would take longer than the read.
    """

    __slots__ = ("_buffer", "_fault", "_finished", "_places", "_read", "_result")

    def __init__(self, read: Read[T], places: Places, buffer: Buffer) -> None:
        self._read = read
        self._places = places
        self._buffer = buffer
        self._fault: BaseException | None = None
        self._result: T
        self._finished = threading.Lock()
        self._finished.acquire()

    def run(self) -> None:
        """Read, and wake the thread that waits for the result."""
        try:
            self._result = self._read(self._places, self._buffer)
        except BaseException as fault:  # noqa: BLE001 - result() raises it again
            self._fault = fault
        self._finished.release()

    def result(self) -> T:
        """Wait for the end of the read. Return the result of the read, or raise its error. This method may be called
        only once.
        """
        self._finished.acquire()
        if self._fault is not None:
            raise self._fault
        return self._result


class TaskQueue:
    """Queue of reads for `count` threads."""

    def __init__(self, count: int, name: str) -> None:
        self._tasks: SimpleQueue[Task[Any] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        get = self._tasks.get
        while (task := get()) is not None:
            task.run()
            del task  # its result may hold memory that is needed for the next batch

    def submit(self, read: Read[T], places: Places, buffer: Buffer) -> Task[T]:
        """Have the next free thread read `places` into `buffer`."""
        task = Task(read, places, buffer)
        self._tasks.put(task)
        return task

    def close(self) -> None:
        """Cancel reads that have not started, and let the threads end."""
        try:
            while True:
                self._tasks.get_nowait()
        except Empty:
            pass
        for _ in self._threads:
            self._tasks.put(None)


class Threads(Protocol):
    """Interface of groups of reader threads. Batches are read in the order in which they are submitted."""

    def submit(self, read: Read[T], places: Places, buffer: Buffer) -> list[Task[T]]:
        """Divide a batch into parts, and have threads read the parts. Return a task per part, without waiting. read:
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
        self._queue: TaskQueue = TaskQueue(count, "reader")
        self._parts = parts

    def submit(self, read: Read[T], places: Places, buffer: Buffer) -> list[Task[T]]:
        if self._parts == 1:
            return [self._queue.submit(read, places, buffer)]
        bounds = [len(places) * part // self._parts for part in range(self._parts + 1)]
        slices = [slice(first, last) for first, last in itertools.pairwise(bounds)]
        return [self._queue.submit(read, places.part(part), buffer.part(part)) for part in slices]

    def close(self) -> None:
        self._queue.close()


class Lanes:
    """Reader threads, each of which reads its own files, as with num_parallel_reads of TFRecordDataset. Each new file
    is assigned to the next thread in turn. Only one thread reads a file, because requests of several threads to the
    same file would be out of order.
    """

    def __init__(self, workload: Workload) -> None:
        dataset, keys = workload.dataset, workload.reader
        self._queues: list[TaskQueue] = [TaskQueue(1, f"reader-{number}") for number in range(keys.read_threads)]
        self._begun = 0
        self._lanes: OrderedDict[int, TaskQueue] = OrderedDict()
        # Maximum number of files that a batch may need. Files that were last used before these files have been read to
        # their ends.
        self._most = keys.files_in_turn(dataset) + keys.batch_size

    def submit(self, read: Read[T], places: Places, buffer: Buffer) -> list[Task[T]]:
        files = places.file
        tasks = []
        for file in dict.fromkeys(files.tolist()):
            lane = self._lane(file)
            parts = _even_slices(np.flatnonzero(files == file).tolist())
            tasks += [lane.submit(read, places.part(part), buffer.part(part)) for part in parts]
        return tasks

    def _lane(self, file: int) -> TaskQueue:
        if file not in self._lanes:
            self._lanes[file] = self._queues[self._begun % len(self._queues)]
            self._begun += 1
        self._lanes.move_to_end(file)
        if len(self._lanes) > self._most:
            self._lanes.popitem(last=False)
        return self._lanes[file]

    def close(self) -> None:
        for queue in self._queues:
            queue.close()


def _even_slices(indices: list[int]) -> Iterator[slice]:
    """Yield slices that together select `indices`, which are in ascending order. A single slice suffices if indices are
    evenly spaced (files are read in turn) or adjacent (samples are sorted). Several slices are needed if files have
    different numbers of samples.
    """
    first = 0
    while first < len(indices):
        step = indices[first + 1] - indices[first] if first + 1 < len(indices) else 1
        last = first + 1
        while last < len(indices) and indices[last] - indices[last - 1] == step:
            last += 1
        yield slice(indices[first], indices[last - 1] + 1, step)
        first = last
