"""Access pattern of a dataset from counters alone, for logs without a trace. Confidence is lower, because counters do
not show individual requests.
"""

from collections import defaultdict

import numpy as np

from dlio_hpc.base.units import format_seconds, format_size
from dlio_hpc.darshan.log import NO_RECORDS, Log, Records, common_sizes, counter
from dlio_hpc.programs.characterize.evidence import Confidence, DerivedValue
from dlio_hpc.programs.files.access_pattern import correlation, is_read_evenly, natural
from dlio_hpc.programs.files.file_stats import FileStats

# Reads count as sequential if at least this share of them is at a higher offset than the previous read.
_IN_ORDER = 0.8
# One of the request sizes that Darshan records counts as the usual size if it has at least this share of the bytes.
_SEEN = 0.3
# Files count as read a whole number of times if the number is as near as this to a whole one.
_NEAR = 0.1
# Nearly all files have more than this share.
_MOST_FILES = 0.9
# Smallest number of reads per open of a file of which most are reads of samples, not of headers and indexes.
_MANY = 32


def records_of(log: Log, files: list[FileStats], module: str = "POSIX") -> Records:
    """Return the records of these files in a module. The POSIX module has no records of files that were read only
    through STDIO.
    """
    wanted = {file.path for file in files}
    records = log.counted.get(module, NO_RECORDS)
    return records[[log.names.get(number, str(number)) in wanted for number in records["id"].tolist()]]


def seconds_of(records: Records, ranks: int) -> float:
    """Return the seconds that a rank spent in calls that read, open or close files."""
    return float(counter(records, "F_READ_TIME").sum() + counter(records, "F_META_TIME").sum()) / max(ranks, 1)


def transfer(records: Records, files: list[FileStats]) -> DerivedValue:
    """Estimate `reader.transfer_size`. For each file, Darshan records the four most frequent request sizes. The
    estimate is the recorded size that accounts for the most bytes read. If this size accounts for too small a share of
    all bytes read, the estimate is the mean request size.
    """
    counts = common_sizes(records)
    total = sum(file.bytes_read for file in files)
    best = max(counts, key=lambda size: size * counts[size], default=0)
    share = best * counts[best] / total if best and total else 0.0
    if _SEEN < share <= 1.05:
        level: Confidence = "medium" if share > 0.6 else "low"
        return DerivedValue(best, level, f"counters: {counts[best]:,} requests of {best:,} B, {share:.0%} of bytes")
    reads = sum(file.reads for file in files)
    mean = max(1, round(total / reads)) if reads else 1
    evidence = f"counters: {reads:,} reads with a mean of {format_size(mean)}"
    if sum(file.buffered_read for file in files) > 0.5 * total:
        return DerivedValue(mean, "low", f"{evidence}, through STDIO; its requests to storage are not counted")
    return DerivedValue(mean, "low", evidence)


def epochs(files: list[FileStats], ranks: int) -> dict[str, DerivedValue]:
    """Estimate `train.epochs` and `reader.shard`. If every rank opens nearly all files, two workloads read the same
    bytes. In the first, each rank reads the whole dataset. In the second, the ranks share the dataset and read it
    `ranks` times as often. The first workload is assumed if it has a whole number of epochs.
    """
    total, sizes = sum(file.bytes_read for file in files), sum(file.size for file in files)
    times = total / sizes if sizes else 1.0
    by_all = sum(file.ranks >= ranks for file in files) / len(files)
    evidence = f"counters: {format_size(total)} were read, {times:.3g} x the size of all files ({format_size(sizes)})"
    opened = f"{by_all:.0%} of the files were opened by all ranks"
    often = np.array([file.bytes_read / max(file.size, 1) for file in files])
    is_even = is_read_evenly(often)
    if not is_even:
        evidence += f"; the number differs by {often.std():.2g} between files, as if they were drawn at random"
    is_clear = _is_whole(times) and is_even and not any(file.has_excess for file in files)
    level: Confidence = "medium" if is_clear else "low"
    if ranks == 1 or by_all <= _MOST_FILES:
        shard = DerivedValue(True, "unknown", "a single rank") if ranks == 1 else DerivedValue(True, "low", opened)
        return {"train.epochs": DerivedValue(max(1, round(times)), level, evidence), "reader.shard": shard}
    if _is_whole(times / ranks):
        number = round(times / ranks)
        other = f"or {round(times)} epochs in which each rank reads its share"
        return {
            "train.epochs": DerivedValue(number, "low", f"{evidence}; {opened}: {number} epochs of each rank, {other}"),
            "reader.shard": DerivedValue(False, "low", f"{opened}; {times:.3g} x the size of all files was read"),
        }
    reason = f"{opened}, but {times:.3g} is not a multiple of the {ranks} ranks"
    return {
        "train.epochs": DerivedValue(max(1, round(times)), level, evidence),
        "reader.shard": DerivedValue(True, level, reason),
    }


def _is_whole(times: float) -> bool:
    """Return whether the number of times that files were read is about a whole number, and at least 1."""
    return abs(times - round(times)) < _NEAR and times > 0.5


def samples_shuffled(records: Records) -> DerivedValue:
    """Estimate `reader.shuffle.samples` from the share of reads that are at a higher offset than the previous read."""
    reads, ahead = int(counter(records, "READS").sum()), int(counter(records, "SEQ_READS").sum())
    passes = len(records)
    if reads < 4 * passes or not reads:
        return DerivedValue(False, "unknown", "files have too few reads to show an order")
    share = ahead / reads
    per_open = reads / max(int(counter(records, "OPENS").sum()), 1)
    evidence = f"counters: {share:.0%} of reads were at a higher offset than the previous read"
    evidence += f"; {per_open:.3g} reads per open" + (", of which metadata may be many" if per_open < _MANY else "")
    is_clear = abs(share - _IN_ORDER) > 0.15 and per_open >= _MANY
    return DerivedValue(share < _IN_ORDER, "medium" if is_clear else "low", evidence)


def files_shuffled(log: Log, *modules: Records) -> DerivedValue:
    """Estimate `reader.shuffle.files`: compare the order in which ranks first read files with the order of the file
    names. modules: records of the files in each module through which they were read.
    """
    first: dict[int, dict[str, float]] = defaultdict(dict)
    for records in modules:
        begun = counter(records, "F_READ_START_TIMESTAMP").tolist()
        for number, rank, time in zip(records["id"].tolist(), records["rank"].tolist(), begun, strict=True):
            path = log.names.get(number, "")
            if rank >= 0 and time > 0:
                first[rank][path] = min(time, first[rank].get(path, time))
    by_rank = [correlation(natural(list(mine))[np.argsort(list(mine.values()))]) for mine in first.values()]
    correlations = [value for value in by_rank if value is not None]
    if not correlations:
        return DerivedValue(False, "unknown", "the counters show no order of files")
    middle = float(np.median(correlations))
    evidence = f"counters: the correlation of file names and first reads is {middle:.2f}"
    return DerivedValue(middle < 0.9, "medium" if not 0.6 < middle < 0.9 else "low", evidence)


def sample(files: list[FileStats], request: DerivedValue, streams: bool) -> DerivedValue:
    """Estimate the sample size in bytes: the usual request size. The estimate is 0 (unknown) if the usual request size
    is uncertain, if it may be the size of a buffer, if it is the size of a whole file, or if `streams` is True.
    streams: whether files of this format are read through a buffer.
    """
    size = int(np.median([file.size for file in files]))
    is_buffer = request.value & (request.value - 1) == 0 and request.value <= 1 << 24
    if not streams and not is_buffer and request.value < size and request.confidence != "low":
        return DerivedValue(request.value, "low", f"assumed to be the usual request size, {request.value:,} B")
    return DerivedValue(0, "unknown", "counters do not show samples")


def compute(spent: float, files: list[FileStats]) -> DerivedValue:
    """Estimate the seconds that a rank spent outside I/O calls between its first and its last read. The value is for
    the whole run, not for a step. spent: seconds of a rank in I/O calls of all modules.
    """
    spans = [file.read_s for file in files if file.read_s is not None]
    if not spans:
        return DerivedValue(0.0, "unknown", "the times of reads were not recorded")
    whole = max(last for _, last in spans) - min(first for first, _ in spans)
    evidence = (
        f"counters: {format_seconds(whole)} from the first read to the last, {format_seconds(spent)} in I/O calls"
    )
    return DerivedValue(max(whole - spent, 0.0), "low", evidence)
