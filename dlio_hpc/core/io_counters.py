"""Counters and timestamps of reads, taken at the call that returns the bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.core import procfs
from dlio_hpc.core.clock import now

if TYPE_CHECKING:
    from dlio_hpc.core.kv_record import InferenceRecord

UNKNOWN = -1


class PhaseRecord(NamedTuple):
    """Operations that a rank made in a phase of a metadata workload. began, ended: timestamps. operations: number
    of operations. histogram: their latencies; distributions.py defines the bins. total_s, longest_s: sum and maximum of
    the latencies in seconds.
    """

    began: float
    ended: float
    operations: int
    histogram: npt.NDArray[np.int64]
    total_s: float
    longest_s: float


class Tally:
    """Counters and timestamps of the reads of a batch. An object is used by one thread or process only.

    bytes_read: bytes of samples. overhead_bytes: other bytes that were read with the samples. requests: number of
    requests to the operating system. starts, ends: timestamps of each request. If a library makes the requests, they
    are timestamps of each call of the library. opened, closed: start and end of each opening and each closing of a
    file by a call of the system. handled: start and end of each opening and closing by a library, which also reads
    meanwhile. opens: number of openings, timed or not. sizes:
    bytes that each request returned; UNKNOWN for a library call. hints: MPI-IO hints in effect. preprocess_s: seconds
    spent on preprocessing. fetched: bytes that the kernel fetched from storage for a worker process during its
    start-up, before the worker opened its first sample file. phase: operations of a phase of a metadata workload.
    served: record of an epoch of an inference workload.
    major_faults, minor_faults: page faults while samples were copied from mapped files; major ones waited for storage.
    """

    __slots__ = (
        "bytes_read",
        "closed",
        "ends",
        "fetched",
        "handled",
        "hints",
        "major_faults",
        "minor_faults",
        "opened",
        "opens",
        "overhead_bytes",
        "phase",
        "preprocess_s",
        "requests",
        "served",
        "sizes",
        "starts",
    )

    def __init__(self) -> None:
        self.bytes_read = 0
        self.overhead_bytes = 0
        self.requests = 0
        self.opens = 0
        self.major_faults = 0
        self.minor_faults = 0
        self.fetched = 0
        self.phase: PhaseRecord | None = None
        self.served: InferenceRecord | None = None
        self.preprocess_s = 0.0
        self.hints: dict[str, str] = {}
        self.starts: list[float] = []
        self.ends: list[float] = []
        self.sizes: list[int] = []
        self.opened: list[tuple[float, float]] = []
        self.closed: list[tuple[float, float]] = []
        self.handled: list[tuple[float, float]] = []

    def add(self, started: float, count: int) -> None:
        """Count a request that started at `started`, ends now and returned `count` bytes of samples."""
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(count)
        self.requests += 1
        self.bytes_read += count

    def count_all(self, counts: list[int]) -> None:
        """Count several requests, whose timestamps are recorded already. counts: bytes of samples that each request
        returned.
        """
        self.sizes.extend(counts)
        self.requests += len(counts)
        self.bytes_read += sum(counts)

    def open(self, started: float) -> None:
        """Count the opening of a file, which started at `started` and ends now."""
        self.opened.append((started, now()))
        self.opens += 1

    def close(self, started: float) -> None:
        """Record that the closing of a file started at `started` and ends now."""
        self.closed.append((started, now()))

    def handle(self, started: float) -> None:
        """Record that a library began to open or close a file at `started` and ends now."""
        self.handled.append((started, now()))

    def timed(self, started: float) -> None:
        """Record the timestamps of a library call that started at `started` and ends now. Its requests and bytes are
        counted elsewhere.
        """
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(UNKNOWN)

    def map(self, counts: list[int], before: procfs.PageFaults) -> None:
        """Count samples that were copied from mapped files, whose timestamps are recorded already. counts: bytes of
        each copy. before: page faults of this thread before the first copy.
        """
        after = procfs.page_faults()
        self.sizes.extend([UNKNOWN] * len(counts))
        self.bytes_read += sum(counts)
        self.major_faults += after.major - before.major
        self.minor_faults += after.minor - before.minor

    def move_to_overhead(self, count: int) -> None:
        """Move `count` bytes from bytes_read to overhead_bytes. Raise ValueError if `count` is negative, because the
        reader has then counted fewer bytes than its samples have.
        """
        if count < 0:
            raise ValueError(f"a reader counted {-count} bytes fewer than its samples have")
        self.bytes_read -= count
        self.overhead_bytes += count

    def count(self, batch: "Tally") -> None:
        """Add the counters of another tally, but not its timestamps and sizes."""
        self.bytes_read += batch.bytes_read
        self.overhead_bytes += batch.overhead_bytes
        self.requests += batch.requests
        self.opens += batch.opens
        self.major_faults += batch.major_faults
        self.minor_faults += batch.minor_faults
        self.fetched += batch.fetched
        self.preprocess_s += batch.preprocess_s
        self.hints = batch.hints or self.hints

    def merge(self, batch: "Tally") -> None:
        """Add the counters, timestamps and sizes of another tally."""
        self.count(batch)
        self.starts.extend(batch.starts)
        self.ends.extend(batch.ends)
        self.sizes.extend(batch.sizes)
        self.opened.extend(batch.opened)
        self.closed.extend(batch.closed)
        self.handled.extend(batch.handled)


@contextmanager
def looking_up(tally: Tally) -> Iterator[None]:
    """Count the bytes that a library reads inside the `with` block as overhead in `tally`, because it reads metadata
    there. The number of bytes is taken from the kernel's I/O counters of this thread. Nothing is counted if the block
    fails.
    """
    before, started = procfs.thread_io(), now()
    yield
    after = procfs.thread_io()
    tally.timed(started)
    if before is not None and after is not None:
        difference = after.since(before)
        tally.overhead_bytes += difference.requested
        tally.requests += difference.calls
