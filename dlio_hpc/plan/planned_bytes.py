"""Number of bytes that a run reads from storage, calculated before the run.

Most readers read exactly the samples of their steps. Streams of records (TFRecord in framework mode) may read more:
their requests reach beyond the last record that a rank needs. If samples are shuffled within files, a rank that needs a
part of a file reads the whole file.
"""

from dlio_hpc.config import reader_keys
from dlio_hpc.config.dataset_keys import TFRECORD_FRAME
from dlio_hpc.config.workload import TENSORFLOW_BUFFER, Workload
from dlio_hpc.plan import interleave, plan
from dlio_hpc.plan.interleave import FileGroups

# Tolerance by which bytes read may exceed bytes planned: a ratio. If TensorFlow itself reads, some bytes per rank are
# added, because the kernel counts all reads of the process.
SPARE = 1.02
_SPARE_OF_A_PROCESS = 1 << 20


def payload(workload: Workload, ranks: int, samples: int) -> int:
    """Return the bytes of `samples` samples before compression; 0 for the null format. With reader.load: memory, return
    the bytes of the dataset instead, times the number of ranks if each rank reads all of it.
    """
    if workload.dataset.format == "null":
        return 0
    if workload.reader.load == "memory":
        samples = workload.dataset.samples * (1 if workload.reader.shard else ranks)
    return samples * workload.dataset.sample_bytes


def planned(workload: Workload, ranks: int, samples: int) -> int:
    """Return the bytes that all ranks read from storage to get `samples` samples, before compression and without the
    frames of records.
    """
    if not reader_keys.by_streams(workload.dataset, workload.reader):
        return payload(workload, ranks, samples)
    return _streamed(workload, ranks) * (1 if workload.reader.load == "memory" else workload.train.epochs)


def factor(workload: Workload, ranks: int) -> float:
    """Return the ratio of the bytes read to the bytes of the samples used; 1 for a format that reads nothing."""
    samples = plan.samples_per_epoch(workload, ranks) * workload.train.epochs
    return planned(workload, ranks, samples) / (payload(workload, ranks, samples) or 1) or 1.0


def most(workload: Workload, ranks: int, planned: int) -> int | None:
    """Return the maximum bytes that a run may read if `planned` bytes are planned, including a tolerance. Return None
    if there is no limit, because libraries choose their own reads.
    """
    dataset, reader = workload.dataset, workload.reader
    if dataset.format != "tfrecord" or reader.mode == "posix":
        return None
    framed = planned * (dataset.sample.size + TFRECORD_FRAME) / dataset.sample.size
    by_process = reader_keys.reads_records(dataset, reader)
    return int(framed * SPARE) + ranks * _SPARE_OF_A_PROCESS * by_process


def _streamed(workload: Workload, ranks: int) -> int:
    """Return the bytes of samples that the streams of all ranks read in an epoch, or in total with reader.load:
    memory.
    """
    reader, samples = workload.reader, workload.dataset.samples
    order = interleave.of(workload.dataset, reader, ranks)
    most = samples if reader.load == "memory" else plan.steps_per_epoch(workload, ranks) * reader.batch_size
    full = order.at_once * workload.dataset.samples_per_file
    known: dict[tuple[int, ...], int] = {}
    total = 0
    for rank in range(ranks):
        first, last = plan.positions(workload, ranks, rank, 0)
        opening, _ = order.group(first)
        end = last if order.shares > 1 else samples
        # Ranks whose shares lie alike in their groups read the same bytes. The last group before `end` may be smaller.
        alike = (first - opening, last - first, min(end, last + full) - opening)
        if alike not in known:
            known[alike] = _of_share(workload, order, first, min(last, first + most))
        total += known[alike]
    return total


def _of_share(workload: Workload, order: FileGroups, first: int, last: int) -> int:
    """Return the bytes of samples that a rank's stream reads to get the samples at positions `first` to `last`."""
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
    """Return the half-open range of records that file `number` of a group contributes to positions `begin` to `end` of
    the group. The group has `files` files, of which samples are taken in turn.
    """
    return -(-max(0, begin - number) // files), -(-max(0, end - number) // files)


def _of_file(workload: Workload, first: int, last: int) -> int:
    """Return the bytes read from a file to get its records `first` to `last`: whole requests, at most to the end of the
    file; the whole file if its records are shuffled.
    """
    dataset = workload.dataset
    record = dataset.sample.size + TFRECORD_FRAME
    if first == last:
        return 0
    if workload.reader.shuffle.samples:
        return dataset.samples_per_file * record
    request = workload.request_size or TENSORFLOW_BUFFER
    return min(-(-(last - first) * record // request) * request, (dataset.samples_per_file - first) * record)
