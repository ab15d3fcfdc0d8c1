"""Time at which a program reads its dataset: at its start, or during its steps."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.programs.files.extents import Reads
from dlio_hpc.programs.files.file_stats import FileStats

Floats = npt.NDArray[np.float64]

# Bytes that are read in a burst are read far faster than others: by this share of all bytes more than they would be at
# an even rate. Above the second limit, they may be.
BURST, MAYBE = 0.3, 0.1
# Fewest files whose counters show when the bytes of a dataset were read: those of a single file have two times.
_FILES = 8


class ReadingTime(NamedTuple):
    """Times at which a dataset was read. times: end of each read, in seconds since the program began. sizes: bytes of
    each read. Without a trace, all reads of a file have one entry together. is_clear: whether these values show which
    bytes were read late.
    """

    first: float
    last: float
    times: Floats
    sizes: Floats
    is_clear: bool

    def late(self, least: float = BURST) -> float:
        """Return the share of the bytes that were read after an initial burst, or 0 if there is no such burst. least:
        share of all bytes. A burst must have at least this share more than reads at an even rate would have.
        """
        order = np.argsort(self.times, kind="stable")
        share = np.cumsum(self.sizes[order]) / max(float(self.sizes.sum()), 1.0)
        ahead = share - (self.times[order] - self.first) / max(self.last - self.first, 1e-9)
        burst = int(np.argmax(ahead))
        return 1 - float(share[burst]) if ahead[burst] > least else 0.0

    def after(self, time: float) -> float:
        """Return the share of the bytes that were read after `time`, in seconds since the program began."""
        return float(self.sizes[self.times > time].sum() / max(self.sizes.sum(), 1.0))


def of(data: Sequence[FileStats], reads: Reads | None) -> ReadingTime | None:
    """Return the times at which a dataset was read, or None if the log does not show them. reads: traced reads, or None
    to use counters alone. Bytes that were read through STDIO are added to the traced reads.
    """
    rows = [
        (*file.read_s, file.buffered_read if reads is not None else file.bytes_read)
        for file in data
        if file.read_s is not None and (reads is None or file.buffered_read)
    ]
    begins, ends, sizes = np.array(rows, np.float64).reshape(-1, 3).T
    if reads is not None:
        begins, ends = np.append(begins, reads.start), np.append(ends, reads.end)
        sizes = np.append(sizes, reads.length)
    if not len(ends):
        return None
    is_clear = reads is not None or len(ends) >= _FILES
    return ReadingTime(float(begins.min()), float(ends.max()), ends, sizes, is_clear)
