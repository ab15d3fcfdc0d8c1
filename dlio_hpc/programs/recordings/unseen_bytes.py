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
    usual = data.usual
    unseen = total - sum(_bytes(read, data, usual) for read in data.reads if begin <= read.time <= end)
    if unseen < max(_LEAST, _MUCH * total):
        return None
    return (
        f"of {format_size(total)} that its processes read in the passes, {format_size(unseen)} were read by calls that "
        "are not recorded, such as those of a library in C++"
    )


def counted(ranks: Sequence[RankRecording], begin: float, end: float) -> int | None:
    """Return the bytes that all processes of the program read between two times; None if the kernel did not count. Of a
    rank with workers, these are the bytes of the workers that began their work between the two times: the kernel adds
    them to those of the rank's own process when they end.
    """
    counts = []
    for rank in ranks:
        workers = [process for process in rank.processes if _work_begin(process) is not None]
        counts += [_read_by_worker(process, begin, end) for process in workers]
        counts += [_read_between(process, begin, end) for process in rank.processes if not workers]
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _work_begin(process: ProcessRecording) -> float | None:
    """Return when a worker of a loader began its work, or None if the process is none."""
    return next((event.time for event in process.events if event.kind == "worker"), None)


def _moved(process: ProcessRecording) -> list[tuple[float, int]]:
    """Return times, and the bytes that the process had read by then."""
    return [(event.time, event.values[0]) for event in process.events if event.kind == "moved"]


def _read_by_worker(process: ProcessRecording, begin: float, end: float) -> int | None:
    """Return the bytes that a worker read, without modules that it read before it began its work. Return 0 if it did
    not begin between the two times.
    """
    started = _work_begin(process)
    counts = [(time, size) for time, size in _moved(process) if started is not None and time >= started]
    if started is None or not counts:
        return None
    return counts[-1][1] - counts[0][1] if begin <= started <= end else 0


def _bytes(read: Read, data: RecordedData, usual: int) -> int:
    """Return the bytes of a read: of its result, or of the file, if a whole file was read or opened. usual: size of a
    file whose size is unknown.
    """
    if read.place is not None or read.library.startswith("pandas"):
        return read.size or 0
    size = data.files.get(read.path)
    if size is None and read.size is not None:
        return read.size
    return (size or usual) if read.is_first else 0


def _read_between(process: ProcessRecording, begin: float, end: float) -> int | None:
    """Return the bytes that a process read between two times, from the counts nearest to them."""
    counts = _moved(process)
    if not counts:
        return None
    first = 0 if process.process.begun >= begin else min(counts, key=lambda count: abs(count[0] - begin))[1]
    return min(counts, key=lambda count: abs(count[0] - end))[1] - first
