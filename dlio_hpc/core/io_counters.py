"""Counts and times of reads. They are taken at the call that returns the bytes."""

from array import array

from dlio_hpc.core.clock import now

UNKNOWN = -1


class Tally:
    """Counts and times of the reads of a batch. Each one belongs to a single thread or process.

    bytes_read: bytes of samples. overhead_bytes: other bytes that were read with them. requests: requests to the
    operating system. starts, ends: timestamps of each request, or of each call of a library that makes its own
    requests. sizes: bytes that each of these returned, UNKNOWN for a library call. hints: MPI-IO hints in effect.
    fetched: if another process than the training process reads, the bytes that the kernel fetched from storage for it
    before it read samples.
    """

    __slots__ = (
        "bytes_read",
        "ends",
        "fetched",
        "hints",
        "opens",
        "overhead_bytes",
        "preprocess_s",
        "requests",
        "sizes",
        "starts",
    )

    def __init__(self) -> None:
        self.bytes_read = 0
        self.overhead_bytes = 0
        self.requests = 0
        self.opens = 0
        self.fetched = 0
        self.preprocess_s = 0.0
        self.hints: dict[str, str] = {}
        self.starts = array("d")
        self.ends = array("d")
        self.sizes = array("q")

    def add(self, started: float, count: int) -> None:
        """Count a request that began at `started`, ends now and returned `count` bytes of samples."""
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(count)
        self.requests += 1
        self.bytes_read += count

    def timed(self, started: float) -> None:
        """Record the times of a library call that began at `started` and ends now. Its requests and bytes are counted
        elsewhere.
        """
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(UNKNOWN)

    def move_to_overhead(self, count: int) -> None:
        """Move `count` bytes from bytes_read to overhead_bytes."""
        self.bytes_read -= count
        self.overhead_bytes += count

    def count(self, batch: "Tally") -> None:
        """Add the counts of another batch, without its timestamps."""
        self.bytes_read += batch.bytes_read
        self.overhead_bytes += batch.overhead_bytes
        self.requests += batch.requests
        self.opens += batch.opens
        self.fetched += batch.fetched
        self.preprocess_s += batch.preprocess_s
        self.hints = batch.hints or self.hints

    def merge(self, batch: "Tally") -> None:
        """Add the counts and timestamps of another batch."""
        self.count(batch)
        self.starts.extend(batch.starts)
        self.ends.extend(batch.ends)
        self.sizes.extend(batch.sizes)
