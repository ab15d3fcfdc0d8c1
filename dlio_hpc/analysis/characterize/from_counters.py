"""How a dataset was read, out of counters alone: no single request is known, so less is, and less surely."""

import numpy as np

from dlio_hpc.analysis.characterize.evidence import Confidence, Estimate
from dlio_hpc.analysis.log.file_stats import Seen
from dlio_hpc.darshan.log import NO_RECORDS, Log, Records, common_sizes, counter
from dlio_hpc.units import format_seconds, format_size

# Share of reads that begin behind the one before, from which on they are in order.
_IN_ORDER = 0.8
# Of bytes that came by one of the sizes that Darshan keeps, for it to be the usual one.
_SEEN = 0.3


def records_of(log: Log, files: list[Seen]) -> Records:
    """POSIX's, of these files; empty where all went through STDIO."""
    wanted = {file.path for file in files}
    posix = log.counted.get("POSIX", NO_RECORDS)
    return posix[[log.names.get(number, str(number)) in wanted for number in posix["id"].tolist()]]


def transfer(records: Records, files: list[Seen]) -> Estimate:
    """Of the four most frequent sizes that Darshan keeps of each file, the one by which most bytes came."""
    counts = common_sizes(records)
    total = sum(file.bytes_read for file in files)
    best = max(counts, key=lambda size: size * counts[size], default=0)
    share = best * counts[best] / total if best and total else 0.0
    if _SEEN < share <= 1.05:
        level: Confidence = "medium" if share > 0.6 else "low"
        return Estimate(best, level, f"counters: {counts[best]:,} requests of {best:,} B, {share:.0%} of bytes")
    reads = sum(file.reads for file in files)
    mean = max(1, round(total / reads)) if reads else 1
    words = f"counters: {reads:,} reads of {format_size(mean)} in the mean"
    if sum(file.buffered for file in files) > 0.5 * total:
        return Estimate(mean, "low", f"{words}, through STDIO, whose requests of the storage nobody counts")
    return Estimate(mean, "low", words)


def epochs(files: list[Seen]) -> Estimate:
    total, sizes = sum(file.bytes_read for file in files), sum(file.size for file in files)
    times = total / sizes if sizes else 1.0
    near = abs(times - round(times)) < 0.1
    words = f"counters: {format_size(total)} read of files of {format_size(sizes)}, {times:.3g} times"
    return Estimate(max(1, round(times)), "medium" if near and times > 0.5 else "low", words)


def shard(files: list[Seen], ranks: int) -> Estimate:
    """Did each rank read a part alone? Not where every rank opens every file, and each is read as often as that."""
    if ranks <= 1:
        return Estimate(True, "unknown", "one rank")
    by_all = sum(file.ranks >= ranks for file in files) / len(files)
    times = sum(file.bytes_read for file in files) / max(sum(file.size for file in files), 1)
    words = f"{by_all:.0%} of files were opened by all ranks, and read {times:.3g} times"
    return Estimate(not (by_all > 0.9 and times > 0.9 * ranks), "low", words)


def samples_shuffled(records: Records) -> Estimate:
    """By the share of requests that began behind the one before."""
    reads, ahead = int(counter(records, "READS").sum()), int(counter(records, "SEQ_READS").sum())
    passes = len(records)
    if reads < 4 * passes or not reads:
        return Estimate(False, "unknown", "files have too few reads to show an order")
    share = ahead / reads
    words = f"counters: {share:.0%} of reads began behind the one before"
    return Estimate(share < _IN_ORDER, "medium" if abs(share - _IN_ORDER) > 0.15 else "low", words)


def files_shuffled(log: Log, records: Records) -> Estimate:
    """By the instants at which a rank first read each of them."""
    from dlio_hpc.analysis.log.access_pattern import correlation, natural

    first = counter(records, "F_READ_START_TIMESTAMP")
    found = []
    for rank in np.unique(records["rank"]).tolist():
        mine = (records["rank"] == rank) & (first > 0)
        names = [log.names.get(number, "") for number in records["id"][mine].tolist()]
        if rank >= 0 and names:
            value = correlation(natural(names)[np.argsort(first[mine], kind="stable")])
            found += [] if value is None else [value]
    if not found:
        return Estimate(False, "unknown", "no order of files shows in the counters")
    middle = float(np.median(found))
    words = f"counters: files by name and by their first read correlate by {middle:.2f}"
    return Estimate(middle < 0.9, "medium" if not 0.6 < middle < 0.9 else "low", words)


def sample(files: list[Seen], request: Estimate, streams: bool) -> Estimate:
    """A request, where it is no buffer's; a file, where that is small."""
    size = int(np.median([file.size for file in files]))
    is_buffer = request.value & (request.value - 1) == 0 and request.value <= 1 << 24
    if not streams and not is_buffer and request.value < size and request.confidence != "low":
        return Estimate(request.value, "low", f"taken as a request, {request.value:,} B")
    return Estimate(0, "unknown", "counters know no samples")


def compute(records: Records, files: list[Seen], ranks: int) -> Estimate:
    """All time between the first and the last read that was not spent in reads, of a rank; seconds, not of a step."""
    spans = [file.read_s for file in files if file.read_s is not None]
    if not spans:
        return Estimate(0.0, "unknown", "no instants of reads")
    whole = max(last for _, last in spans) - min(first for first, _ in spans)
    spent = float(counter(records, "F_READ_TIME").sum() + counter(records, "F_META_TIME").sum()) / max(ranks, 1)
    words = (
        f"counters: {format_seconds(whole)} from the first read to the last, {format_seconds(spent)} of them in calls"
    )
    return Estimate(max(whole - spent, 0.0), "low", words)
