"""Access pattern of a dataset from a trace: sizes and order of reads, concurrency, and number of passes."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.units import counted, format_size
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue, weaker
from dlio_hpc.programs.files.extents import Reads, Stretches, chosen, distinct, usual

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# A rule that holds for at least these shares of the bytes holds for most of the data, or for nearly all of the data.
_MOST, _NEARLY_ALL = 0.6, 0.9
# Limits of the correlation between the order of reads and their position. At or above the first limit, reads are
# sequential; below the second, they are random.
_IN_ORDER, _MIXED = 0.9, 0.6
# Buffer sizes of libraries. A request of such a size says nothing about samples.
_BUFFERS = {1 << shift for shift in range(12, 25)}
# Sizes of the buffers of tarfile, which are multiples of a block of 512 bytes.
_TAR_BUFFERS = {10240, 20480}
# Smallest number of requests of a file that is read as a stream.
_MANY_BLOCKS = 8
# Reads that take longer than this, on average, would overlap if several threads made them.
_SLOW_S = 100e-6
_PAGE, _LUSTRE = 4096, 4 << 20
# Smallest share of the turns at files that continue an earlier turn from which files are read in turn, and share below
# which they are not.
_RETURNS, _SELDOM = 0.3, 0.1
# Requests that differ by less than this share have about the same size. Smallest size of a sample that HDF5 reads
# through its sieve buffer; smaller distances are those of array elements.
_NEAR, _LEAST_SAMPLE = 0.05, 1024
_FEW_FILES, _FEW_SAMPLES = 4, 6
_LOOKED_AT = 4000
# Largest distance of a number of passes from a whole number, and share of the requests that were made as often, from
# which on passes are certain.
_WHOLE, _EXACT = 0.15, 0.9
# Largest difference between numbers of reads of files in passes, as a share of that of files that are drawn at random.
_EVEN = 0.5
# A rank does not read in passes if it reads some data again before it has read this part of its share.
_DRAWN = 0.4


class LogSample(NamedTuple):
    """Size of a sample. bytes: mean size. stdev: standard deviation of the size in bytes. whole: True if the reads do
    not show separate samples within files, so that a file is treated as one sample. hidden: True if the size is
    unknown, because files were read through a buffer. Requests of a buffer do not end where samples end.
    """

    bytes: DerivedValue
    stdev: int
    whole: bool
    hidden: bool


def sample(reads: Reads, parts: Stretches, streams: bool, loads_files: bool, is_tar: bool = False) -> LogSample:
    """Estimate the sample size. parts: the stretches (see extents) that the reads form. streams: whether files of this
    format are read from front to back through a buffer. is_tar: whether they are tar archives, which are read through
    two buffers, so that requests have several sizes. loads_files: whether a library loads whole files, in requests
    whose size the library chooses.
    """
    sizes = reads.sizes[np.unique(reads.file)]
    through = float(parts.bytes[parts.requests > 1].sum() / max(parts.bytes.sum(), 1))
    if streams and (is_tar or _is_buffered(reads)):
        return LogSample(DerivedValue(0, "unknown", "reads through a buffer do not show samples"), 0, False, True)
    if not loads_files and (size := _one_size(reads, parts)) is not None:
        return LogSample(size, 0, False, False)
    if not loads_files and (alike := _alike(reads)) is not None:
        return LogSample(alike, 0, False, False)
    whole = _covers(reads, parts)
    mean, spread = int(parts.bytes.mean()), int(parts.bytes.std())
    if whole >= _NEARLY_ALL or loads_files:
        mean, spread = int(sizes.mean()), int(sizes.std())
        evidence = f"{whole:.0%} of bytes were read as whole files; samples within a file cannot be told apart"
        evidence = "files are loaded whole, whatever their content" if loads_files else evidence
        return LogSample(DerivedValue(mean, "medium", evidence), _stdev(mean, spread), True, False)
    if through > _MOST or spread > 0.02 * mean:
        bytes_each = f"{format_size(mean)} +- {format_size(spread)}"
        evidence = f"{len(parts.bytes):,} stretches of adjacent reads, {bytes_each} each"
        return LogSample(DerivedValue(mean, "low", evidence), _stdev(mean, spread), False, False)
    evidence = f"most bytes were read in requests of {reads.usual:,} B"
    return LogSample(DerivedValue(reads.usual, "low", evidence), 0, False, False)


def places(reads: Reads, size: DerivedValue, share: float) -> int | None:
    """Return the number of samples in a file. The number is known only if each sample was read in one request, and if
    all samples were read. Otherwise return None. size: size of a sample. share: share of the files' bytes that was
    read.
    """
    alike = reads.length == size.value
    if share < _NEARLY_ALL or reads.length[alike].sum() < _NEARLY_ALL * reads.length.sum():
        return None
    once = distinct(chosen(reads, alike))
    files, bytes_read = int(np.count_nonzero(once)), int(once.sum())
    return round(bytes_read / int(size.value) / max(1, files))


def _stdev(mean: int, spread: int) -> int:
    return spread if spread > 0.02 * mean else 0


def is_stream(reads: Reads) -> bool:
    """Return whether each file is read from front to back in requests of one buffer size. Such requests do not show
    where samples end.
    """
    return _is_buffered(reads) and is_archive_stream(reads)


def is_archive_stream(reads: Reads) -> bool:
    """Return whether each file is read from front to back, and most requests have one buffer size. tarfile reads
    through two buffers, so that requests to tar archives have several sizes.
    """
    is_long = np.median(reads.sizes[np.unique(reads.file)]) >= _MANY_BLOCKS * reads.usual
    if reads.usual not in _BUFFERS | _TAR_BUFFERS or not is_long:
        return False
    process = np.zeros(len(reads.rank), np.int64) if reads.process is None else reads.process
    order = np.lexsort((reads.start, reads.file, process, reads.rank))
    file, offset = reads.file[order], reads.offset[order]
    same = file[1:] == file[:-1]
    goes_on = offset[1:] == offset[:-1] + reads.length[order][:-1]
    return bool(same.any() and goes_on[same].mean() >= _NEARLY_ALL)


def _is_buffered(reads: Reads) -> bool:
    """Return whether nearly all requests have the usual size, apart from the last request of each file."""
    last = reads.offset + reads.length >= reads.sizes[reads.file]
    return bool(((reads.length == reads.usual) | last).mean() >= _NEARLY_ALL)


def _one_size(reads: Reads, parts: Stretches) -> DerivedValue | None:
    """Return the sample size if most stretches (see extents) have the same size in bytes, in one or several requests.
    If no size prevails, or if the prevailing size is about the size of a file, return the result of _one_request().
    """
    size = usual(parts.bytes)
    pieces = parts.requests[parts.bytes == size]
    share, in_one = float(size * len(pieces) / parts.bytes.sum()), float((pieces == 1).mean())
    if share >= _MOST and size < _MOST * int(np.median(reads.sizes)) and len(pieces) > 1:
        evidence = f"{len(pieces):,} of {len(parts.bytes):,} stretches of adjacent reads have {size:,} B"
        if in_one < 1:
            evidence += f", in {np.median(pieces):.0f} requests each"
        if in_one < 1 and _within(parts)[0] >= _IN_ORDER:
            return DerivedValue(size, "low", f"{evidence}, one after the other")
        return DerivedValue(size, "high" if share >= _NEARLY_ALL else "medium", evidence)
    return _one_request(reads)


def _one_request(reads: Reads) -> DerivedValue | None:
    """Return the usual request size as the sample size. Return None if requests of this size read too small a share of
    all bytes, or if the median file is hardly larger than one request. The confidence is low if buffers often have this
    size.
    """
    share = float(reads.length[reads.length == reads.usual].sum() / reads.length.sum())
    count = float(np.median(reads.sizes)) / reads.usual
    if share < _MOST or count < 1.5:
        return None
    evidence = f"{share:.1%} of bytes were read in requests of {reads.usual:,} B, one after the other"
    strength: Confidence = "low" if reads.usual in _BUFFERS else "medium"
    return DerivedValue(reads.usual, strength, evidence + (", possibly a buffer size" if strength == "low" else ""))


def _alike(reads: Reads) -> DerivedValue | None:
    """Return the sample size if nearly all bytes were read in requests of about the same size, such as row groups or
    compressed records. Return None otherwise.
    """
    middle = float(np.median(np.repeat(reads.length, np.maximum(reads.length // max(reads.usual, 1), 1))))
    near = np.abs(reads.length - middle) <= _NEAR * middle
    share = float(reads.length[near].sum() / reads.length.sum())
    if share < _NEARLY_ALL or float(np.median(reads.sizes)) < 1.5 * middle:
        return None
    size = round(float(reads.length[near].mean()))
    evidence = f"{share:.0%} of bytes were read in requests of {size:,} B, give or take {_NEAR:.0%}"
    return DerivedValue(size, "low", evidence)


def sieved(reads: Reads, request: int) -> DerivedValue | None:
    """Return the sample size if HDF5 read contiguous samples that are smaller than its sieve buffer. request: size in
    bytes of the requests, which is the size of the sieve buffer. Requests start where samples start, so the distances
    between requests are multiples of the sample size. Return None if the distances have no suitable common divisor.
    """
    step = 0
    for file in np.unique(reads.file).tolist():
        offsets = np.unique(reads.offset[(reads.file == file) & (reads.length == request)])
        step = int(np.gcd.reduce(np.append(np.diff(offsets), step)))
    if not _LEAST_SAMPLE <= step < request:
        return None
    evidence = f"HDF5 reads {request:,} B at a time, at distances that are multiples of {step:,} B"
    return DerivedValue(step, "medium", evidence)


def _covers(reads: Reads, parts: Stretches) -> float:
    """Return a share of the bytes read: the part in stretches (see extents) that span most of their file."""
    size = reads.sizes[parts.file]
    return float(parts.bytes[parts.bytes >= 0.8 * size].sum() / max(parts.bytes.sum(), 1))


def transfer(lengths: Integers) -> DerivedValue:
    """Estimate `reader.transfer_size`: the request size that accounts for the most bytes read."""
    size = usual(lengths)
    count = int(np.count_nonzero(lengths == size))
    by_bytes = float(size * count / lengths.sum())
    evidence = f"{count:,} of {len(lengths):,} reads, {by_bytes:.1%} of bytes, are {size:,} B"
    level: Confidence = "high" if by_bytes >= _NEARLY_ALL else "medium" if by_bytes >= _MOST else "low"
    return DerivedValue(size, level, evidence)


def interleave(read: Reads | Stretches) -> DerivedValue:
    """Estimate `reader.interleave`, the number of files from which a rank, or each of its worker processes, reads
    alternately. A turn is a sequence of requests of a process to one file, which may be many. The estimate is the
    number of turns after which the process goes back to a file and continues where it stopped. read: the reads, for
    streamed formats; the stretches (see extents), for other formats, because threads may read pieces of one sample at
    the same time.
    """
    reader, file, begin, end = _by_reader(read)
    fresh = (np.diff(reader) != 0) | (np.diff(file) != 0)
    directly = int(np.count_nonzero(~fresh & (begin[1:] == end[:-1])))
    first = np.flatnonzero(np.concatenate(([True], fresh)))
    edges = np.minimum.reduceat(begin, first), np.maximum.reduceat(end, first)
    # Headers of records may be skipped, and pages read again.
    apart = _turns_apart(reader[first], file[first], *edges, slack=int(np.median(end - begin)) // 2)
    if directly + len(apart) < _FEW_FILES or len(np.unique(file)) < _FEW_FILES:
        return DerivedValue(None, "unknown", "too few reads continue a previous read of the file")
    back = len(apart) / len(first)
    if back < _RETURNS:
        share = directly / (directly + len(apart))
        level: Confidence = "high" if back < _SELDOM and share >= _NEARLY_ALL else "medium" if share > _MOST else "low"
        evidence = (
            f"of the reads that begin where an earlier read of the same file ended, {share:.0%} come immediately after "
            "that read"
        )
        return DerivedValue(None, level, evidence)
    count, requests = int(np.median(apart)), np.diff(np.append(first, len(end)))
    share, usual_turn = float((apart == count).mean()), int(np.median(requests))
    evidence = (
        f"a process goes back to a file and continues it in {back:.0%} of its turns of "
        f"{counted(usual_turn, 'read')}, after "
        f"{count} turns in {share:.0%} of the cases"
    )
    level = "high" if share > _MOST else "medium" if share > 0.3 else "low"
    if usual_turn > 1:  # a workload reads a single sample in a turn
        level = weaker(level, "medium" if (requests == usual_turn).mean() > _MOST else "low")
    return DerivedValue(count, level, evidence)


def _by_reader(read: Reads | Stretches) -> tuple[Integers, Integers, Integers, Integers]:
    """Return the process, the file, and the offsets of the beginning and the end of each read, by process and time."""
    end = read.offset + (read.length if isinstance(read, Reads) else read.bytes)
    process = read.process if isinstance(read, Reads) else None
    if process is None:  # input is sorted by rank, then by time
        return read.rank, read.file, read.offset, end
    reader = read.rank * (int(process.max(initial=0)) + 1) + process
    order = np.lexsort((read.start, reader))
    return reader[order], read.file[order], read.offset[order], end[order]


def _turns_apart(reader: Integers, file: Integers, begin: Integers, end: Integers, slack: int) -> Integers:
    """Return the distance in turns between each turn and the previous turn of the same process at the same file, for
    turns that continue where the previous one ended. begin, end: offsets at which turns begin and end. slack: tolerated
    gap or overlap of two turns in bytes.
    """
    order = np.lexsort((np.arange(len(reader)), file, reader))
    again = (np.diff(reader[order]) == 0) & (np.diff(file[order]) == 0)
    apart: Integers = np.diff(order)[again & (abs(begin[order][1:] - end[order][:-1]) <= slack)]
    return apart


def buffer(reads: Reads) -> DerivedValue:
    """Estimate the size of the buffer through which Python read the files. The estimate is the most frequent size of
    the first request to a file. There are two exceptions. If this size is the usual size of Python's buffer, the value
    is None. If this size is the size of a whole file, requests do not show the size of the buffer; the value is then
    the size that Lustre recommends.
    """
    first = reads.offset == 0
    values, counts = np.unique(reads.length[first], return_counts=True)
    size = int(values[np.argmax(counts)]) if len(values) else _PAGE
    if size <= _PAGE:
        return DerivedValue(
            None, "high", f"the first reads are {size:,} B, the size of Python's buffer on most file systems"
        )
    if size >= int(np.median(reads.sizes)):
        return DerivedValue(
            _LUSTRE,
            "low",
            f"the first reads are whole files of {size:,} B; assumed: the buffer size that Lustre recommends",
        )
    return DerivedValue(
        size, "high", f"the first reads are {size:,} B, the buffer size that Python uses on this file system"
    )


# Smallest share of the read time with several reads in flight that shows how many threads read.
_OVERLAP = 0.1


def threads(reads: Reads) -> DerivedValue:
    """Estimate `reader.read_threads`. If a rank has several processes, the estimate is their number. Otherwise, if the
    log has thread numbers, it is the number of threads of a rank. Otherwise, it is the number of reads that a rank has
    in flight at the same time.
    """
    ranks = np.unique(reads.rank)
    if (workers := reads.workers) > 1:
        evidence = f"{workers} processes of a rank read at the same time, according to their logs"
        return DerivedValue(workers, "high", evidence)
    if reads.thread.any():
        count = int(np.median([len(np.unique(reads.thread[reads.rank == rank])) for rank in ranks]))
        return DerivedValue(
            count, "high", f"{counted(count, 'thread')} of a rank read, according to Darshan's thread numbers"
        )
    peaks, shares = zip(*(_in_flight(reads, int(rank)) for rank in ranks), strict=True)
    peak, share = int(np.median(peaks)), float(np.mean(shares))
    if peak > 1:
        evidence = (
            f"up to {peak} reads of a rank were in flight at the same time; during {share:.0%} of its read time, there "
            "was more than one"
        )
        return DerivedValue(peak, "high" if share > 0.2 else "medium" if share > _OVERLAP else "low", evidence)
    evidence = "no two reads of a rank were in flight at the same time, but threads that never overlap look the same"
    return DerivedValue(1, "medium" if float((reads.end - reads.start).mean()) > _SLOW_S else "low", evidence)


def _in_flight(reads: Reads, rank: int) -> tuple[int, float]:
    """Return two values for a rank. The first is the largest number N for which at least N of its reads are in flight
    at the start of more than 2 % of its reads. The read that starts is included. The second value is the share of the
    rank's read time with more than one read in flight.
    """
    low, high = np.searchsorted(reads.rank, [rank, rank + 1])
    begin, end = reads.start[low:high], np.maximum(reads.end[low:high], reads.start[low:high])
    at = np.concatenate((begin, end))
    step = np.concatenate((np.ones(len(begin)), -np.ones(len(end))))
    order = np.lexsort((step, at))
    depth = np.cumsum(step[order])[:-1]
    width = np.diff(at[order])
    reached = depth[step[order][:-1] > 0]
    enough = [level for level in range(1, int(depth.max(initial=1)) + 1) if (reached >= level).sum() > len(begin) / 50]
    busy = float(width[depth > 0].sum())
    return max(enough, default=1), float(width[depth > 1].sum() / busy) if busy else 0.0


class Passes(NamedTuple):
    """Passes over a dataset. epochs: number of passes. shard: whether ranks read disjoint parts of the dataset. share:
    share of the files' bytes that was read. drawn: whether samples are drawn at random with replacement instead of once
    per epoch. times: number of times that a rank reads its data, not rounded. is_even: whether all files were read
    about equally often, as in passes over all files.
    """

    epochs: DerivedValue
    shard: DerivedValue
    share: float
    drawn: bool
    times: float
    is_even: bool = True


def passes(reads: Reads, parts: Stretches, ranks: int) -> Passes:
    """Estimate the number of passes over the dataset, and whether ranks read disjoint parts of the dataset."""
    once = distinct(reads)
    touched = np.unique(reads.file)
    total, unique = int(reads.length.sum()), max(int(once.sum()), 1)
    share = unique / max(int(reads.sizes[touched].sum()), 1)
    times = total / unique
    own = _own_share(reads, parts, unique)
    if ranks * own < _DRAWN and times > 1 and _is_random(parts, ranks):
        return _drawn(total, unique, times, own, share, ranks)
    is_own = own < 0.75 or ranks == 1
    passes_made = times if is_own else times / ranks
    epochs = max(1, round(passes_made))
    evidence = f"{format_size(total)} were read, {format_size(unique)} of them distinct: each byte {times:.3g} times"
    evidence += "" if is_own else f" by {ranks} ranks"
    exact = _share_made(reads, round(times))
    evidence += f"; {exact:.0%} of the requests were made {round(times)} times"
    apart = abs(passes_made - epochs)
    level: Confidence = "high" if apart < _WHOLE and exact > _EXACT else "medium" if apart < 0.2 else "low"
    often = np.bincount(reads.file, reads.length, len(reads.sizes))[touched] / np.maximum(reads.sizes[touched], 1)
    is_even = is_read_evenly(often)
    if not is_even:
        level = "low"
        evidence += f"; files were read {often.mean():.3g} times, give or take {often.std():.2g}, as if drawn at random"
    again = f"a rank reads {own:.0%} of the data before it reads any data a second time"
    about = again if ranks > 1 else "a single rank"
    return Passes(
        DerivedValue(epochs, level, evidence),
        DerivedValue(is_own, "unknown" if ranks == 1 else "medium" if is_even else "low", about),
        min(share, 1.0),
        False,
        passes_made,
        is_even,
    )


def _share_made(reads: Reads, times: int) -> float:
    """Return the share of the distinct requests that were made `times` times."""
    place = reads.file * (int(reads.offset.max()) + 1) + reads.offset
    return float((np.unique(place, return_counts=True)[1] == times).mean())


def is_read_evenly(times: Floats) -> bool:
    """Return whether all files were read about equally often. The tolerance is the square root of the mean, because the
    numbers differ by this much if files are drawn at random. times: number of times that each file was read.
    """
    return len(times) < _FEW_FILES or bool(times.std() < _EVEN * np.sqrt(times.mean()))


def _is_random(parts: Stretches, ranks: int) -> bool:
    """Return whether ranks read samples or whole files in random order, and repeat some of them before an epoch is
    over.
    """
    within, shown = _within(parts)
    if not shown:
        return _repeats(*_loads(parts), ranks)
    place = parts.file * (int(parts.offset.max()) + 1) + parts.offset
    return within < _MIXED and (ranks > 1 or _repeats(place, parts.rank, ranks))


def _loads(parts: Stretches) -> tuple[Integers, Integers]:
    """Return the file and the rank of each load of a file. A load is a read of the largest stretch of the file."""
    largest = np.lexsort((-parts.bytes, parts.file))
    once = largest[np.concatenate(([True], np.diff(parts.file[largest]) != 0))]
    offset = np.zeros(int(parts.file.max(initial=0)) + 1, np.int64)
    offset[parts.file[once]] = parts.offset[once]
    is_load = parts.offset == offset[parts.file]
    return parts.file[is_load], parts.rank[is_load]


def _repeats(place: Integers, rank: Integers, ranks: int) -> bool:
    """Return whether ranks repeat reads of the same place within an epoch about as often as if they drew from all
    places at random. A program that only inspects some data first repeats few places.
    """
    share = len(np.unique(place)) // ranks
    again = []
    for number in np.unique(rank).tolist():
        mine = place[rank == number][:share]
        again.append(1 - len(np.unique(mine)) / max(len(mine), 1))
    expected = 1 - ranks * (1 - np.exp(-1 / ranks))
    return share >= _FEW_FILES and float(np.median(again)) > 0.5 * float(expected)


def _drawn(total: int, unique: int, times: float, own: float, share: float, ranks: int) -> Passes:
    """Return the passes of a program whose ranks draw samples from the whole dataset. The number of epochs is chosen so
    that the workload reads as many bytes as the program.
    """
    evidence = (
        f"{format_size(total)} were read, {format_size(unique)} of them distinct: each byte {times:.3g} times; "
        f"a rank read some data a second time after {own:.0%} of all data"
    )
    return Passes(
        DerivedValue(
            max(1, round(times / ranks)),
            "low",
            f"{evidence}; samples are therefore drawn at random, not read in passes",
        ),
        DerivedValue(
            ranks == 1,
            "low" if ranks > 1 else "unknown",
            f"a rank reads some data again after it has read {own:.0%} of the dataset: it draws its samples from the "
            "whole dataset",
        ),
        min(share, 1.0),
        True,
        times / ranks,
    )


def _own_share(reads: Reads, parts: Stretches, unique: int) -> float:
    """Return how much of all distinct data a rank reads before it reads any stretch (see extents) a second time. The
    result is a share of `unique`, as the median over the ranks. Two stretches are the same only if they start at the
    same offset of the same file. A page that belongs to two samples is read with each of them, but this is not regarded
    as a second read. unique: bytes of all distinct data.
    """
    bytes_read = []
    for rank in np.unique(parts.rank).tolist():
        mine = parts.rank == rank
        place = parts.file[mine] * (int(parts.offset.max()) + 1) + parts.offset[mine]
        _, first = np.unique(place, return_index=True)
        fresh = np.zeros(len(place), bool)
        fresh[first] = True
        until = int(np.argmin(fresh)) if not fresh.all() else len(place)
        bytes_read.append(int(parts.bytes[mine][:until].sum()))
    return float(np.median(bytes_read)) / unique


def natural(names: list[str]) -> Integers:
    """Return the position of each name in natural order, where 2 comes before 10."""
    import re

    keys = [[(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)] for name in names]
    places = np.empty(len(names), np.int64)
    places[sorted(range(len(names)), key=lambda at: keys[at])] = np.arange(len(names))
    return places


def first_visits(values: Integers) -> Integers:
    """Return the distinct values in the order of their first occurrence."""
    _, first = np.unique(values, return_index=True)
    return values[np.sort(first)]


def correlation(values: Integers) -> float | None:
    """Return Spearman's correlation between `values` and their positions. Return None if there are too few values, or
    if all values are equal.
    """
    if len(values) < _FEW_FILES or np.ptp(values) == 0:
        return None
    ranks = np.argsort(np.argsort(values))
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def _within(parts: Stretches) -> tuple[float, int]:
    """Return two values. The first is the correlation between offset and time within a file, as the median over
    (rank, file) pairs. The second is the number of these pairs. If no file has enough samples for a correlation, the
    first value is the mean direction from one sample to the next (1: always forward, -1: always backward). If there are
    too few samples even for a direction, the second value is 0.
    """
    key = parts.rank * (int(parts.file.max(initial=0)) + 1) + parts.file
    at = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.concatenate(([True], np.diff(key[at]) != 0)))
    pieces = [first_visits(piece) for piece in np.split(parts.offset[at], edges[1:])[:_LOOKED_AT]]
    correlations = [correlation(piece) or 0.0 for piece in pieces if len(piece) >= _FEW_SAMPLES]
    if correlations:
        return float(np.median(correlations)), len(correlations)
    steps = np.concatenate([np.sign(np.diff(piece)) for piece in pieces]) if pieces else np.empty(0)
    return (float(steps.mean()), len(pieces)) if len(steps) >= 2 * _FEW_SAMPLES else (1.0, 0)
