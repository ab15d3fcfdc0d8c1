"""How a dataset was read, out of a trace: in which pieces and order, by how many at once, how often."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.characterize.evidence import Confidence, Estimate
from dlio_hpc.analysis.log.extents import Reads, Stretches, chosen, distinct, usual
from dlio_hpc.units import format_size

Integers = npt.NDArray[np.int64]

# Shares of bytes from which on a rule is one.
_MOST, _NEARLY_ALL = 0.6, 0.9
# Correlation of order and place from which on it is sequential; and below which it is random.
_IN_ORDER, _MIXED = 0.9, 0.6
# What libraries read ahead with: a request of that size says nothing about samples.
_BUFFERS = {1 << shift for shift in range(12, 25)}
_PAGE, _LUSTRE = 4096, 4 << 20
_FEW_FILES, _FEW_SAMPLES = 4, 6
_LOOKED_AT = 4000
# Who comes to read something again after so small a part of his share does not read in passes.
_DRAWN = 0.4


class Sample(NamedTuple):
    """bytes, stdev: of one; whole: a file is one sample, as far as can be seen. hidden: read through a buffer that does
    not end where samples do.
    """

    bytes: Estimate
    stdev: int
    whole: bool
    hidden: bool


def sample(reads: Reads, parts: Stretches, streams: bool, loads_files: bool) -> Sample:
    """streams: the format is one that is read front to back through a buffer. loads_files: one that a library loads
    whole, in pieces of its own.
    """
    sizes = reads.sizes[np.unique(reads.file)]
    through = float(parts.bytes[parts.requests > 1].sum() / max(parts.bytes.sum(), 1))
    if streams and _is_buffered(reads):
        return Sample(Estimate(0, "unknown", "samples do not show in reads through a buffer"), 0, False, True)
    if not loads_files and (found := _one_size(reads, parts)) is not None:
        return Sample(found, 0, False, False)
    whole = _covers(reads, parts)
    mean, spread = int(parts.bytes.mean()), int(parts.bytes.std())
    if whole >= _NEARLY_ALL or loads_files:
        mean, spread = int(sizes.mean()), int(sizes.std())
        words = f"{whole:.0%} of bytes come by whole files; nothing in them is told apart"
        words = "a file is loaded whole, whatever it holds" if loads_files else words
        return Sample(Estimate(mean, "medium", words), _stdev(mean, spread), True, False)
    if through > _MOST or spread > 0.02 * mean:
        words = f"{len(parts.bytes):,} stretches of {format_size(mean)} +- {format_size(spread)}"
        return Sample(Estimate(mean, "low", words), _stdev(mean, spread), False, False)
    words = f"most bytes came in requests of {reads.usual:,} B"
    return Sample(Estimate(reads.usual, "low", words), 0, False, False)


def places(reads: Reads, size: Estimate, share: float) -> int | None:
    """Samples of a file, where each is a request and all of them were read; share: of the files' bytes."""
    alike = reads.length == size.value
    if share < _NEARLY_ALL or reads.length[alike].sum() < _NEARLY_ALL * reads.length.sum():
        return None
    once = distinct(chosen(reads, alike))
    files, bytes_read = int(np.count_nonzero(once)), int(once.sum())
    return round(bytes_read / int(size.value) / max(1, files))


def _stdev(mean: int, spread: int) -> int:
    return spread if spread > 0.02 * mean else 0


def _is_buffered(reads: Reads) -> bool:
    """All requests but the last of a file are of one size."""
    last = reads.offset + reads.length >= reads.sizes[reads.file]
    return bool(((reads.length == reads.usual) | last).mean() >= _NEARLY_ALL)


def _one_size(reads: Reads, parts: Stretches) -> Estimate | None:
    """Stretches alike: samples, each in one or more requests. None where there is no such size, or it is a file's."""
    size = usual(parts.bytes)
    pieces = parts.requests[parts.bytes == size]
    share, in_one = float(size * len(pieces) / parts.bytes.sum()), float((pieces == 1).mean())
    if share >= _MOST and size < _MOST * int(np.median(reads.sizes)) and len(pieces) > 1:
        words = f"{len(pieces):,} of {len(parts.bytes):,} stretches have {size:,} B"
        if in_one < 1:
            words += f", in {np.median(pieces):.0f} requests each"
        if in_one < 1 and _within(parts)[0] >= _IN_ORDER:
            return Estimate(size, "low", f"{words}, one behind the other")
        return Estimate(size, "high" if share >= _NEARLY_ALL else "medium", words)
    return _one_request(reads)


def _one_request(reads: Reads) -> Estimate | None:
    """Read front to back, a request may be a sample: when it is no buffer's size and there are several in a file."""
    share = float(reads.length[reads.length == reads.usual].sum() / reads.length.sum())
    count = float(np.median(reads.sizes)) / reads.usual
    if share < _MOST or count < 1.5:
        return None
    words = f"{share:.1%} of bytes came in requests of {reads.usual:,} B, one after the other"
    strength: Confidence = "low" if reads.usual in _BUFFERS else "medium"
    return Estimate(reads.usual, strength, words + (", which may be a buffer's size" if strength == "low" else ""))


def _covers(reads: Reads, parts: Stretches) -> float:
    """Share of stretches, by bytes, that are most of their file."""
    size = reads.sizes[parts.file]
    return float(parts.bytes[parts.bytes >= 0.8 * size].sum() / max(parts.bytes.sum(), 1))


def transfer(lengths: Integers) -> Estimate:
    """The usual request."""
    size = usual(lengths)
    count = int(np.count_nonzero(lengths == size))
    by_bytes = float(size * count / lengths.sum())
    words = f"{count:,} of {len(lengths):,} reads, {by_bytes:.1%} of bytes, are {size:,} B"
    level: Confidence = "high" if by_bytes >= _NEARLY_ALL else "medium" if by_bytes >= _MOST else "low"
    return Estimate(size, level, words)


def interleave(read: Reads | Stretches) -> Estimate:
    """Files that a rank reads in turn: how many on is what goes on where another ended. Pieces of one sample, which
    threads read at once, are no turns: stretches are asked of, unless a stream hides them.
    """
    length = read.length if isinstance(read, Reads) else read.bytes
    order = np.lexsort((read.start, read.file, read.rank))
    rank, file, begin = read.rank[order], read.file[order], read.offset[order]
    goes_on = (rank[1:] == rank[:-1]) & (file[1:] == file[:-1]) & (begin[1:] == begin[:-1] + length[order][:-1])
    apart = np.diff(order)[goes_on]  # they lie by rank and time
    if len(apart) < _FEW_FILES or len(np.unique(file)) < _FEW_FILES:
        return Estimate(None, "unknown", "too little goes on in a file where something ended")
    count = int(np.median(apart))
    share = float((apart == count).mean())
    words = f"{share:.0%} of what goes on in a file is the {_nth(count)} after what was read of it before"
    level: Confidence = "high" if share > _MOST else "medium" if share > 0.3 else "low"
    return Estimate(count if count > 1 else None, level, words)


def _nth(count: int) -> str:
    return {1: "next", 2: "second", 3: "third"}.get(count, f"{count}th")


def buffer(reads: Reads) -> Estimate:
    """Of a file that Python opened: what its first request brings, unless that is all there is."""
    first = reads.offset == 0
    values, counts = np.unique(reads.length[first], return_counts=True)
    size = int(values[np.argmax(counts)]) if len(values) else _PAGE
    if size <= _PAGE:
        return Estimate(
            None, "high", f"files are begun with {size:,} B, the buffer that Python gives them on most systems"
        )
    if size >= int(np.median(reads.sizes)):
        return Estimate(
            _LUSTRE, "low", f"files are begun with all they have, {size:,} B: a buffer as Lustre recommends"
        )
    return Estimate(size, "high", f"files are begun with {size:,} B, the buffer that Python gave them")


def threads(reads: Reads) -> Estimate:
    """Of a rank: processes, Darshan's thread numbers, or requests in flight at the same time."""
    ranks = np.unique(reads.rank)
    if (workers := reads.workers) > 1:
        return Estimate(
            workers, "high", f"{workers} processes of a rank made reads at a time, by the logs that they left"
        )
    if reads.thread.any():
        found = int(np.median([len(np.unique(reads.thread[reads.rank == rank])) for rank in ranks]))
        return Estimate(found, "high", f"{found} thread(s) of a rank made reads, by Darshan's thread numbers")
    peaks, shares = zip(*(_in_flight(reads, int(rank)) for rank in ranks), strict=True)
    peak, share = int(np.median(peaks)), float(np.mean(shares))
    if peak > 1:
        words = f"up to {peak} reads of a rank in flight at once, more than one during {share:.0%} of its reading"
        return Estimate(peak, "high" if share > 0.2 else "medium", words)
    return Estimate(
        1, "medium", "no two reads of a rank in flight at once; threads that wait for each other look alike"
    )


def _in_flight(reads: Reads, rank: int) -> tuple[int, float]:
    """Most at once, but for what is seen once in fifty requests; share of the busy time with more than one."""
    low, high = np.searchsorted(reads.rank, [rank, rank + 1])
    begin, end = reads.start[low:high], np.maximum(reads.end[low:high], reads.start[low:high])
    at = np.concatenate((begin, end))
    step = np.concatenate((np.ones(len(begin)), -np.ones(len(end))))
    order = np.lexsort((step, at))
    depth = np.cumsum(step[order])[:-1]
    width = np.diff(at[order])
    seen = depth[step[order][:-1] > 0]
    enough = [level for level in range(1, int(depth.max(initial=1)) + 1) if (seen >= level).sum() > len(begin) / 50]
    busy = float(width[depth > 0].sum())
    return max(enough, default=1), float(width[depth > 1].sum() / busy) if busy else 0.0


class Passes(NamedTuple):
    """shard: does a rank read a part alone? share: of what is there, that anybody read at all. drawn: places are drawn
    at random, again and again, with no end of an epoch.
    """

    epochs: Estimate
    shard: Estimate
    share: float
    drawn: bool


def passes(reads: Reads, parts: Stretches, ranks: int) -> Passes:
    """How often everything was read, and by whom."""
    once = distinct(reads)
    touched = np.unique(reads.file)
    total, unique = int(reads.length.sum()), max(int(once.sum()), 1)
    share = unique / max(int(reads.sizes[touched].sum()), 1)
    times = total / unique
    own = _own_share(reads, parts, unique) if ranks > 1 else 1 / ranks
    if ranks * own < _DRAWN and times > 1 and _within(parts)[0] < _MIXED:
        return _drawn(total, unique, times, own, share)
    is_own = own < 0.75 or ranks == 1
    each = times if is_own else times / ranks
    epochs = max(1, round(each))
    words = f"{format_size(total)} read of {format_size(unique)} that are there, {times:.3g} times"
    words += "" if is_own else f" by {ranks} ranks"
    level: Confidence = (
        "high" if abs(each - epochs) < 0.05 * epochs else "medium" if abs(each - epochs) < 0.2 else "low"
    )
    about = f"a rank reads {own:.0%} of the data before it reads any again" if ranks > 1 else "one rank"
    return Passes(
        Estimate(epochs, level, words),
        Estimate(is_own, "medium" if ranks > 1 else "unknown", about),
        min(share, 1.0),
        False,
    )


def _drawn(total: int, unique: int, times: float, own: float, share: float) -> Passes:
    words = (
        f"{format_size(total)} read of {format_size(unique)}, {times:.3g} times, and some again after {own:.0%} of it"
    )
    return Passes(
        Estimate(1, "low", f"{words}: drawn at random, not in passes"),
        Estimate(False, "low", f"a rank reads some again after {own:.0%} of the data: it draws from all of them"),
        min(share, 1.0),
        True,
    )


def _own_share(reads: Reads, parts: Stretches, unique: int) -> float:
    """Of the data that anybody reads, what a rank reads until it reads something for the second time; the median. Pages
    at the rim of two samples do not count as read again.
    """
    found = []
    for rank in np.unique(parts.rank).tolist():
        mine = parts.rank == rank
        place = parts.file[mine] * (int(parts.offset.max()) + 1) + parts.offset[mine]
        _, first = np.unique(place, return_index=True)
        fresh = np.zeros(len(place), bool)
        fresh[first] = True
        until = int(np.argmin(fresh)) if not fresh.all() else len(place)
        found.append(int(parts.bytes[mine][:until].sum()))
    return float(np.median(found)) / unique


class Order(NamedTuple):
    files: Estimate
    samples: Estimate


def order(reads: Reads, parts: Stretches, names: list[str]) -> Order:
    """names: of the files, whose order is the sequential one."""
    place = natural(names)[parts.file] if len(names) else parts.file
    if len(np.unique(parts.file)) >= _FEW_FILES and _jumps(parts) and _within(parts)[0] < _MIXED:
        words = f"after a sample the next one lies in another file {_changes(parts):.0%} of times, anywhere"
        both = Estimate(True, "high", words)
        return Order(both, both)
    return Order(_of_files(parts, place), _of_samples(parts))


def natural(names: list[str]) -> Integers:
    """Places of names in the order in which a person counts them: 2 before 10."""
    import re

    keys = [[(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)] for name in names]
    places = np.empty(len(names), np.int64)
    places[sorted(range(len(names)), key=lambda at: keys[at])] = np.arange(len(names))
    return places


def _changes(parts: Stretches) -> float:
    same = parts.rank[1:] == parts.rank[:-1]
    return float((parts.file[1:] != parts.file[:-1])[same].mean()) if same.any() else 0.0


def _jumps(parts: Stretches) -> bool:
    """Is the next sample mostly one of another file, though files have several?"""
    visits = np.unique(np.stack([parts.rank, parts.file], axis=1), axis=0)
    return len(parts.rank) > 2 * len(visits) and _changes(parts) > _MIXED


def _of_files(parts: Stretches, place: Integers) -> Estimate:
    """By the order in which a rank comes to files for the first time."""
    found = [correlation(_firsts(place[parts.rank == rank])) for rank in np.unique(parts.rank).tolist()]
    known = [value for value in found if value is not None]
    if not known:
        return Estimate(False, "unknown", "each rank reads too few files to show an order")
    middle = float(np.median(known))
    words = f"files by name and in time correlate by {middle:.2f}"
    if middle >= _IN_ORDER:
        return Estimate(False, "high", words)
    return Estimate(True, "high" if middle < _MIXED else "low", words)


def _firsts(values: Integers) -> Integers:
    _, first = np.unique(values, return_index=True)
    return values[np.sort(first)]


def correlation(values: Integers) -> float | None:
    """Of values with their order; None where there are too few."""
    if len(values) < _FEW_FILES or np.ptp(values) == 0:
        return None
    ranks = np.argsort(np.argsort(values))
    return float(np.corrcoef(ranks, np.arange(len(values)))[0, 1])


def _of_samples(parts: Stretches) -> Estimate:
    middle, count = _within(parts)
    if not count:
        return Estimate(False, "unknown", "files have too few samples to show an order")
    words = f"offsets and time within a file correlate by {middle:.2f}"
    if middle >= _IN_ORDER:
        return Estimate(False, "high", words)
    return Estimate(True, "high" if middle < _MIXED else "low", words)


def _within(parts: Stretches) -> tuple[float, int]:
    """Correlation of offset and time, median over ranks and files (the first thousands of them), and of how many. Where
    no file has samples enough, all are taken together: how much oftener the next one lies behind than before.
    """
    key = parts.rank * (int(parts.file.max(initial=0)) + 1) + parts.file
    at = np.argsort(key, kind="stable")
    edges = np.flatnonzero(np.concatenate(([True], np.diff(key[at]) != 0)))
    pieces = [_firsts(piece) for piece in np.split(parts.offset[at], edges[1:])[:_LOOKED_AT]]
    found = [correlation(piece) or 0.0 for piece in pieces if len(piece) >= _FEW_SAMPLES]
    if found:
        return float(np.median(found)), len(found)
    steps = np.concatenate([np.sign(np.diff(piece)) for piece in pieces]) if pieces else np.empty(0)
    return (float(steps.mean()), len(pieces)) if len(steps) >= 2 * _FEW_SAMPLES else (1.0, 0)
