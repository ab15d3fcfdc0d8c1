"""Bytes that the processes of a program read without a recorded call, according to the kernel's counters."""

from collections.abc import Sequence

from dlio_hpc.base.units import format_size
from dlio_hpc.programs.recordings import read_counts
from dlio_hpc.programs.recordings.recorded_files import Read, RecordedData
from dlio_hpc.programs.recordings.recorded_program import RankRecording

# Share of the bytes of the passes, and least bytes, from which on what was not recorded is worth a word.
_MUCH, _LEAST = 0.25, 1 << 20


def note(ranks: Sequence[RankRecording], data: RecordedData, begin: float, end: float) -> str | None:
    """Return a sentence on the bytes that were read between `begin` and `end` without a recorded call. Return None if
    these bytes are few, or if the kernel did not count. Recorded reads of compressed data have more bytes than the
    kernel counts, and may therefore hide other reads.
    """
    counts = [count for rank in ranks for count in read_counts.of(rank)]
    if not counts:
        return None
    total = sum(count.between(begin, end) for count in counts)
    usual = data.usual
    unseen = total - sum(_bytes(read, data, usual) for read in data.reads if begin <= read.time <= end)
    if unseen < max(_LEAST, _MUCH * total):
        return None
    return (
        f"the kernel counted {format_size(total)} in the passes; {format_size(unseen)} of them do not belong to "
        "recorded reads, but to other loaders, to libraries that read more than was requested, or to "
        "calls that are not recorded"
    )


def _bytes(read: Read, data: RecordedData, usual: int) -> int:
    """Return the bytes of a read: the bytes of its result or, if a whole file was read or opened, the size of the file.
    usual: size to use for a file of unknown size.
    """
    if read.place is not None or read.library.startswith("pandas"):
        return read.size or 0
    size = data.files.get(read.path)
    if size is None and read.size is not None:
        return read.size
    return (size or usual) if read.is_first else 0
