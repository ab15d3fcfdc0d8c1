"""Number of bytes that a run reads from storage, calculated before the run.

Most readers read exactly the samples of their steps. Readers that read TFRecord files as streams may read more.
Their requests may reach beyond the last record that a rank needs. If samples are shuffled within files, these readers
read a whole file even if a rank needs only some of its samples.
"""

import math

from dlio_hpc.config import reader_keys
from dlio_hpc.config.dataset_keys import TFRECORD_FRAME, Dataset
from dlio_hpc.config.workload import TENSORFLOW_BUFFER, Workload
from dlio_hpc.dataset import interleave, rank_shares
from dlio_hpc.dataset.interleave import FileGroups

# Tolerance: maximum ratio of bytes read to bytes planned. If TensorFlow does the reading itself, a number of bytes per
# rank is added, because the kernel counts all reads of the process.
SPARE = 1.02
_SPARE_OF_A_PROCESS = 1 << 20


def payload(workload: Workload, ranks: int, samples: int) -> int:
    """Return the size in bytes of `samples` samples before compression; 0 for the null format. If the key reader.load
    is `memory`, the whole dataset is read, and `samples` is ignored. The function then returns the size of the dataset,
    multiplied by the number of ranks if each rank reads the whole dataset.
    """
    if not workload.dataset.facts.holds_data:
        return 0
    if workload.reader.load == "memory":
        samples = workload.dataset.samples * (1 if workload.reader.shard else ranks)
    if workload.dataset.facts.holds_columns:
        return reader_keys.bytes_read(workload.dataset, workload.reader, samples)
    return workload.dataset.bytes_of(samples)


def planned(workload: Workload, ranks: int, samples: int) -> int:
    """Return how many bytes all ranks read from storage to get `samples` samples. Bytes are counted before compression.
    The lengths and checksums of records are not included.
    """
    dataset = workload.dataset
    is_streamed = dataset.facts.holds_records and reader_keys.by_streams(dataset, workload.reader)
    if not is_streamed or _is_irregular(dataset):
        return payload(workload, ranks, samples)
    return _streamed(workload, ranks) * (1 if workload.reader.load == "memory" else workload.train.epochs)


def factor(workload: Workload, ranks: int) -> float:
    """Return the number of bytes that are read, divided by the number of bytes in the samples that are used. Return 1
    if nothing is read, as with the null format.
    """
    samples = rank_shares.samples_per_epoch(workload, ranks) * workload.train.epochs
    return planned(workload, ranks, samples) / (payload(workload, ranks, samples) or 1) or 1.0


def row_group_factor(workload: Workload) -> float:
    """Return the approximate number of times that pyarrow reads a sample of a Parquet file. This number is above 1,
    because pyarrow reads whole row groups, and because threads and workers do not share row groups. If samples of
    several row groups are mixed, nearly each sample needs a read of its row group.
    """
    dataset, reader = workload.dataset, workload.reader
    if not dataset.facts.holds_columns or reader.mode == "posix":
        return 1
    group, batch = dataset.row_group_samples, reader.batch_size
    in_order = math.gcd(group, reader.shuffle.block)
    if reader.shuffle.samples and in_order < group and (reader.shuffle.files or dataset.samples_per_file > group):
        return group / in_order
    if reader.read_threads == 1 or reader.load == "memory":
        return 1
    return (batch + group - math.gcd(batch, group)) / batch


def most(workload: Workload, ranks: int, planned: int) -> int | None:
    """Return the maximum number of bytes that a run may read if `planned` bytes are planned. The result includes a
    tolerance. Return None if there is no limit, because a library chooses what it reads.
    """
    dataset, reader = workload.dataset, workload.reader
    if not dataset.facts.holds_records or reader.mode == "posix":
        return None
    framed = planned * (dataset.sample.size + TFRECORD_FRAME) / dataset.sample.size
    by_process = reader_keys.reads_records(dataset, reader)
    return int(framed * SPARE) + ranks * _SPARE_OF_A_PROCESS * by_process + _of_shared_files(workload, ranks)


def _is_irregular(dataset: Dataset) -> bool:
    """Return whether existing files have records of different sizes, or different numbers of records."""
    return dataset.existing is not None and (dataset.counts_vary or dataset.sizes_vary)


def _of_shared_files(workload: Workload, ranks: int) -> int:
    """Return an upper bound on the bytes that ranks read in addition to their samples. The bound is 0 unless the
    records are irregular, as _is_irregular() defines it. At both ends of its range of samples, a rank may read files of
    a group that other ranks read, too.
    """
    dataset = workload.dataset
    if dataset.scan is None or not _is_irregular(dataset):
        return 0
    groups = 2 * ranks * workload.train.epochs
    return groups * interleave.of(dataset, workload.reader, ranks).at_once * dataset.scan.largest_file


def _streamed(workload: Workload, ranks: int) -> int:
    """Return how many bytes of samples all ranks together read in an epoch, if files are read as streams of records. If
    reader.load is `memory`, return the bytes of the whole run instead.
    """
    reader, samples = workload.reader, workload.dataset.samples
    order = interleave.of(workload.dataset, reader, ranks)
    most = samples if reader.load == "memory" else rank_shares.steps_per_epoch(workload, ranks) * reader.batch_size
    full = order.at_once * workload.dataset.samples_per_file
    known: dict[tuple[int, ...], int] = {}
    total = 0
    for rank in range(ranks):
        first, last = rank_shares.positions(workload, ranks, rank, 0)
        opening, _ = order.group(first)
        end = last if order.shares > 1 else samples
        # Ranks whose shares have the same position in their groups read the same number of bytes. The last group before
        # `end` may be smaller.
        alike = (first - opening, last - first, min(end, last + full) - opening)
        if alike not in known:
            known[alike] = _of_share(workload, order, first, min(last, first + most))
        total += known[alike]
    return total


def _of_share(workload: Workload, order: FileGroups, first: int, last: int) -> int:
    """Return how many bytes of samples a rank reads to get the samples at positions `first` to `last` (exclusive). The
    rank reads the files as streams of records. order: division of the epoch into groups of interleaved files.
    """
    dataset = workload.dataset
    record = dataset.sample.size + TFRECORD_FRAME
    total = 0
    for begin, end in order.parts(first, last):
        opening, after = order.group(begin)
        if begin == opening and end >= after:
            total += (end - begin) * record
        else:
            files = (after - opening) // dataset.samples_per_file
            total += sum(_of_file(workload, *_wanted(begin - opening, end - opening, files, n)) for n in range(files))
    return total * dataset.sample.size // record


def _wanted(begin: int, end: int, files: int, number: int) -> tuple[int, int]:
    """Return the range of records that a rank needs from a file: the first record of the range, and the first record
    after the range. The rank needs the samples at positions `begin` to `end` (exclusive) of a group of interleaved
    files, from which samples are taken in turn. number: index of the file in the group. files: number of files in the
    group.
    """
    return -(-max(0, begin - number) // files), -(-max(0, end - number) // files)


def _of_file(workload: Workload, first: int, last: int) -> int:
    """Return how many bytes are read from a file to get its records `first` to `last` (exclusive). Whole requests are
    read, but not beyond the end of the file. If records are shuffled, the whole file is read. A compressed file is read
    from its beginning.
    """
    dataset = workload.dataset
    record = dataset.sample.size + TFRECORD_FRAME
    if first == last:
        return 0
    if workload.reader.shuffle.samples:
        return dataset.samples_per_file * record
    if dataset.is_packed:
        return last * record
    request = workload.request_size or TENSORFLOW_BUFFER
    return min(-(-(last - first) * record // request) * request, (dataset.samples_per_file - first) * record)
