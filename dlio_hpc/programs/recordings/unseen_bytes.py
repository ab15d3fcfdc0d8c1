"""Bytes that the processes of a program read without a recorded call, by the kernel's count."""

from collections.abc import Sequence

from dlio_hpc.base.units import format_size
from dlio_hpc.programs.recordings.recorded_files import Read, RecordedData
from dlio_hpc.programs.recordings.recorded_program import RankRecording
from dlio_hpc.programs.recordings.recording_files import ProcessRecording

# Share of the bytes of the passes, and least bytes, from which on what was not recorded is worth a word.
_MUCH, _LEAST = 0.25, 1 << 20


def note(ranks: Sequence[RankRecording], data: RecordedData, begin: float, end: float) -> str | None:
    """Return a sentence on the bytes that were read between `begin` and `end` without a recorded call, or None if they
    are few or the kernel did not count. Compressed data have more bytes than the kernel counts, and hide others.
    """
    total = counted(ranks, begin, end)
    if total is None:
        return None
    unseen = total - sum(_bytes(read, data) for read in data.reads if begin <= read.time <= end)
    if unseen < max(_LEAST, _MUCH * total):
        return None
    return (
        f"of {format_size(total)} that its processes read in the passes, {format_size(unseen)} were read by calls that "
        "are not recorded, such as those of a library in C++"
    )


def counted(ranks: Sequence[RankRecording], begin: float, end: float) -> int | None:
    """Return the bytes that all processes of the program read between two times; None if the kernel did not count."""
    counts = [_read_between(process, begin, end) for rank in ranks for process in rank.processes]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _bytes(read: Read, data: RecordedData) -> int:
    """Return the bytes of a read: of its result, or of the file, if a whole file was read or opened."""
    size = data.files.get(read.path)
    if read.place is not None or read.library.startswith("pandas") or size is None:
        return read.size or 0
    return size if read.is_first else 0


def _read_between(process: ProcessRecording, begin: float, end: float) -> int | None:
    """Return the bytes that a process read between two times, from the counts nearest to them. What a worker reads
    before it begins its work, such as modules, is left out.
    """
    counts = [(event.time, event.values[0]) for event in process.events if event.kind == "moved"]
    if not counts:
        return None
    started = [event.time for event in process.events if event.kind == "worker"]
    begin = max(begin, *started[:1]) if started else begin
    is_later = process.process.begun >= begin
    first = 0 if is_later else min(counts, key=lambda count: abs(count[0] - begin))[1]
    return int(min(counts, key=lambda count: abs(count[0] - end))[1] - first)
