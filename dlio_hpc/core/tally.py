"""What reading did: counted and timed at the very call where the bytes arrive."""

import os
from array import array

from dlio_hpc.core.clock import now
from dlio_hpc.errors import InfrastructureError, InvalidRun


class Tally:
    """The reads of one batch, made by one thread; nothing here is shared."""

    def __init__(self) -> None:
        self.bytes_read = 0
        self.overhead_bytes = 0
        self.opens = 0
        self.starts = array("d")
        self.ends = array("d")

    def open(self, path: str) -> int:
        """A descriptor to read `path`; InvalidRun when it cannot be opened."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as fault:
            raise InvalidRun(
                f"cannot open {path}: {fault.strerror}; was the dataset removed or never generated?"
            ) from fault
        self.opens += 1
        return descriptor

    def read(self, descriptor: int, buffer: memoryview, offset: int, transfer_size: int, path: str) -> None:
        """Fill `buffer` from `offset` on, in requests of `transfer_size`; InvalidRun when the file ends too soon."""
        done, wanted = 0, len(buffer)
        while done < wanted:
            started = now()
            try:
                count = os.preadv(descriptor, [buffer[done : done + transfer_size]], offset + done)
            except OSError as fault:
                raise InfrastructureError(f"cannot read {path} at byte {offset + done}: {fault.strerror}") from fault
            self.add(started, count)
            if not count:
                raise InvalidRun(
                    f"{path} ends at byte {os.fstat(descriptor).st_size}, "
                    f"a sample was expected from {offset} to {offset + wanted}: the file is cut short; "
                    "remove the dataset's folder and generate it again"
                )
            done += count

    def add(self, started: float, count: int) -> None:
        """One request that began at `started`, has just ended and brought `count` bytes of samples."""
        self.starts.append(started)
        self.ends.append(now())
        self.bytes_read += count
