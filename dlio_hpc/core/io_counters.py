"""Counts and times of reads, taken at the call that returns the bytes."""

from array import array

from dlio_hpc.core.clock import now

UNKNOWN = -1


class Tally:
    """Reads of one batch, made by one thread or process. It is not shared.

    bytes_read: bytes of samples. overhead_bytes: other bytes read with them. requests: requests to the system. starts,
    ends: timestamps of each request, or of each call of a library that makes its own requests. sizes: bytes that each
    of them returned, UNKNOWN for a library call. hints: hints in use by MPI-IO. fetched: bytes that the kernel fetched
    from storage for a process other than the training process before that process read samples.
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
        """Count a request that began at `started`, has just ended and returned `count` bytes of samples."""
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(count)
        self.requests += 1
        self.bytes_read += count

    def timed(self, started: float) -> None:
        """Time a call that began at `started` and has just ended. Its requests and bytes are counted elsewhere."""
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(UNKNOWN)

    def move_to_overhead(self, count: int) -> None:
        """Count `count` of the bytes read as overhead instead of samples."""
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
