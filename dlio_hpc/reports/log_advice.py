"""Notable properties of the I/O of a program in a Darshan log, and advice on what to change. Each sentence states
numbers.

The limits are of the same order as the limits of Drishti (Bez et al., PDSW 2022), which examines requests below 1 MB,
random accesses, imbalance between ranks and the time in metadata calls.
"""

import statistics
from collections.abc import Iterator

from dlio_hpc.analysis.log.findings import Analysis, Operation, Rank
from dlio_hpc.base.units import counted, format_seconds, format_size

# Requests of this median size or less are small, if a rank makes at least _MANY of them. A request of a file system
# over the network takes about as long for 64 KiB as for one byte.
_SMALL, _MANY = 64 << 10, 1000
# Share of requests where the one before ended, up to which they are scattered, and from which on they are in order.
_RANDOM, _SEQUENTIAL = 0.5, 0.9
# Requests for each open up to which a file is small, or is looked into only.
_A_FILE = 4
# Share of the time in I/O calls that metadata calls may take, and share of the run time that is worth a sentence.
_METADATA, _NOTABLE = 0.2, 0.01
# Time of the slowest rank, in times of the median rank, from which on it is slow, and of its bytes, from which on
# it does more than the others. Two ranks have no median of others.
_SLOW, _MORE, _LEAST_RANKS = 1.5, 1.25, 3
# Rates in MB/s from which on bytes came from memory: of a single request, to which a file system over the network or a
# fast disk needs some 50 us, if it has at least _LONG bytes, and of a rank with all its threads.
_OF_A_REQUEST, _LONG, _OF_A_RANK = 8_000, 128 << 10, 12_000
# Number of times that files are read, and bytes read again, from which on it is worth a sentence.
_AGAIN, _MUCH = 2.0, 64 << 20


def of_log(analysis: Analysis) -> list[str]:
    """Return sentences on the notable properties of a log: first those that make its rates meaningless, then those that
    take the most time, as far as the log shows it.
    """
    return [sentence for rule in _RULES for sentence in rule(analysis)]


def _slow_rank(analysis: Analysis) -> Iterator[str]:
    ranks = analysis.by_rank
    if len(ranks) < _LEAST_RANKS:
        return
    slowest = max(ranks, key=_busy_s)
    others = [rank for rank in ranks if rank is not slowest]
    usual_s = statistics.median(map(_busy_s, others))
    extra_s = _busy_s(slowest) - usual_s
    if _busy_s(slowest) < _SLOW * usual_s or extra_s < _NOTABLE * analysis.job_s:
        return
    name = f"Rank {slowest.rank}" + (f" on {slowest.host}" if slowest.host else "")
    ratio = "while the median of the others is in none"
    if usual_s:
        ratio = f"{_busy_s(slowest) / usual_s:.1f} times the median of the others"
    yield f"{name} is in I/O calls for {format_seconds(_busy_s(slowest))}, {ratio}: {_why_slow(slowest, others)}."


def _busy_s(rank: Rank) -> float:
    return rank.io_s + rank.meta_s


def _why_slow(slowest: Rank, others: list[Rank]) -> str:
    size, usual = _moved(slowest), statistics.median(map(_moved, others))
    if size and not usual:
        return "it does the I/O of most ranks; distribute reads and writes over all ranks"
    if usual and size / usual >= _MORE:
        return f"it moves {size / usual:.1f} times their bytes; divide files or samples evenly among the ranks"
    if slowest.meta_s > slowest.io_s:
        return "most of it in metadata calls, such as open and stat; look at its node, and at the metadata server"
    return "it moves no more bytes than they do; look at its node, and at the storage targets of its files"


def _moved(rank: Rank) -> int:
    return rank.bytes_read + rank.bytes_written


def _metadata(analysis: Analysis) -> Iterator[str]:
    meta = analysis.metadata
    if meta.share is None or meta.share < _METADATA or meta.time_s < _NOTABLE * analysis.job_s * analysis.ranks:
        return
    opens, files = meta.opens, len(analysis.files)
    once = sum(analysis.ranks if file.ranks < 0 else max(file.ranks, 1) for file in analysis.files)
    advice = "put data into fewer, larger files"
    if meta.syncs > opens:
        advice = "write to storage (fsync) less often"
    elif opens > _AGAIN * once:
        advice = "keep files open between requests"
    yield (
        f"Metadata calls take {100 * meta.share:.0f} % of the time in I/O calls ({opens:,} opens of "
        f"{counted(files, 'file')}, "
        f"{meta.seeks:,} seeks, {meta.syncs:,} syncs): {advice}."
    )


def _small_requests(analysis: Analysis) -> Iterator[str]:
    for name, kind in (("reads", analysis.read), ("writes", analysis.write)):
        if kind is not None and kind.requests >= _MANY * max(analysis.ranks, 1):
            size, label = _usual_size(kind)
            if size is not None and size <= _SMALL:
                few = kind.requests <= _A_FILE * analysis.metadata.opens
                yield f"{kind.requests:,} {name} of {format_size(size)} ({label}){_placed(name, kind, few)}."


def _usual_size(kind: Operation) -> tuple[float | None, str]:
    """Return the median request size, or the mean request size if the log has no trace, and the word "median" or
    "mean".
    """
    if kind.size is not None and kind.size.median is not None:
        return kind.size.median, "median"
    return (kind.bytes / kind.requests, "mean") if kind.requests else (None, "")


def _placed(name: str, kind: Operation, are_few: bool) -> str:
    """Return a sentence on the offsets of requests, with advice. are_few: whether there are only a few requests per
    open.
    """
    if are_few:
        return ", a few for each open: put the data into fewer, larger files"
    if kind.consecutive is not None and kind.consecutive >= _SEQUENTIAL:
        return (
            f", {100 * kind.consecutive:.0f} % of them starting at the end of the previous one: use a buffer of 1 MiB "
            "or more"
        )
    if kind.consecutive is None or kind.consecutive > _RANDOM:
        return ": make fewer and larger requests"
    where = f", {100 * (1 - kind.consecutive):.0f} % of them not starting at the end of the previous one"
    if name == "reads":
        return (
            f"{where}: store samples that are read together next to each other, or read whole files and "
            "shuffle in memory"
        )
    return f"{where}: collect them in memory, or let collective calls of MPI-IO do so"


def _repeated(analysis: Analysis) -> Iterator[str]:
    again = [file for file in analysis.files if file.bytes_read >= _AGAIN * max(file.size, 1)]
    size, total = sum(file.size for file in again), sum(file.bytes_read for file in again)
    if total - size < _MUCH:
        return
    yield (
        f"{counted(len(again), 'file')} of {format_size(size)} together are read {total / size:.1f} times on "
        "average: if they "
        "fit into memory or onto a disk of the node, read them from storage once."
    )


def _from_memory(analysis: Analysis) -> Iterator[str]:
    reads = analysis.read
    if reads is None or not reads.bytes:
        return
    median = reads.bandwidth_MBps.median if reads.bandwidth_MBps is not None else None
    size = reads.size.median if reads.size is not None else None
    if median is not None and size is not None:
        if median < _OF_A_REQUEST or size < _LONG:
            return
        what = f"Half of the reads arrive at {median / 1e3:.0f} GB/s or more"
    else:
        seconds = sum(rank.io_s for rank in analysis.by_rank if rank.bytes_read)
        rate = reads.bytes / 1e6 / seconds if seconds else 0.0
        if rate < _OF_A_RANK:
            return
        what = f"A rank reads {rate / 1e3:.0f} GB/s on average"
    yield (
        f"{what}, and no storage serves a single process that fast: these bytes came from memory, and say nothing "
        "about the storage. Drop the page cache, or read more than fits into the memory of the nodes."
    )


_RULES = (_from_memory, _slow_rank, _metadata, _small_requests, _repeated)
