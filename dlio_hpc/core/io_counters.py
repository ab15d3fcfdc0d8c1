"""What reading did: counted and timed at the very call where the bytes arrive."""

from array import array

from dlio_hpc.core.clock import now

UNKNOWN = -1


class Tally:
    """The reads of one batch, made by one thread or process; nothing here is shared.

    bytes_read: of samples. overhead_bytes: what came beside them. requests: to the system. starts, ends: of what was
    timed, which is every request, or every call of a library that makes its requests by itself. sizes: bytes that each
    of those brought, UNKNOWN for a library's call. hints: what MPI-IO works with. fetched: what the kernel got from
    storage for another process than the training one before it read at all.
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
        """One request that began at `started`, has just ended and brought `count` bytes of samples."""
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(count)
        self.requests += 1
        self.bytes_read += count

    def timed(self, started: float) -> None:
        """A call that began at `started` and has just ended; its requests and bytes are counted elsewhere."""
        self.ends.append(now())
        self.starts.append(started)
        self.sizes.append(UNKNOWN)

    def beside(self, count: int) -> None:
        """So many of the bytes that were read are none of samples."""
        self.bytes_read -= count
        self.overhead_bytes += count

    def count(self, other: "Tally") -> None:
        """Take in another batch's numbers, not its times."""
        self.bytes_read += other.bytes_read
        self.overhead_bytes += other.overhead_bytes
        self.requests += other.requests
        self.opens += other.opens
        self.fetched += other.fetched
        self.preprocess_s += other.preprocess_s
        self.hints = other.hints or self.hints

    def merge(self, other: "Tally") -> None:
        """Take in another batch's numbers and times."""
        self.count(other)
        self.starts.extend(other.starts)
        self.ends.extend(other.ends)
        self.sizes.extend(other.sizes)
