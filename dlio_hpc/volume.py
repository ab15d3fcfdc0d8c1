"""How many bytes a run brings from storage, by arithmetic.

Readers bring the samples that they are asked for. A stream of records (TFRecord in framework mode) may bring more:
requests reach beyond the last record that a rank wants, and where samples are shuffled within their files, all of a
file is read although a rank wants a part of it.
"""

from dlio_hpc import combinations, plan, turns
from dlio_hpc.turns import Turns
from dlio_hpc.workload import TENSORFLOW_BUFFER, TFRECORD_FRAME, Workload

# What may be read beyond what is planned: of it, and bytes of a rank's process where TensorFlow reads by itself and the
# kernel counts for the whole process.
SPARE = 1.02
_SPARE_OF_A_PROCESS = 1 << 20


def payload(workload: Workload, ranks: int, samples: int) -> int:
    """Bytes of `samples` in all steps, before compression; on the way to memory everything once."""
    if workload.dataset.format == "null":
        return 0
    if workload.reader.load == "memory":
        samples = workload.dataset.samples * (1 if workload.reader.shard else ranks)
    return samples * workload.dataset.sample_bytes


def planned(workload: Workload, ranks: int, samples: int) -> int:
    """What `samples` in all steps bring from storage, before compression and without the frames of records."""
    if not combinations.by_streams(workload.dataset, workload.reader):
        return payload(workload, ranks, samples)
    return _streamed(workload, ranks) * (1 if workload.reader.load == "memory" else workload.train.epochs)


def factor(workload: Workload, ranks: int) -> float:
    """What is brought over what the samples hold; 1 for a format that brings nothing."""
    samples = plan.samples_per_epoch(workload, ranks) * workload.train.epochs
    return planned(workload, ranks, samples) / (payload(workload, ranks, samples) or 1) or 1.0


def most(workload: Workload, ranks: int, planned: int) -> int | None:
    """The bytes beyond which a run has read more than `planned`, which may be a little beside it; None where libraries
    read what they like.
    """
    dataset, reader = workload.dataset, workload.reader
    if dataset.format != "tfrecord" or reader.mode == "floor":
        return None
    framed = planned * (dataset.sample.size + TFRECORD_FRAME) / dataset.sample.size
    by_process = combinations.reads_records(dataset, reader)
    return int(framed * SPARE) + ranks * _SPARE_OF_A_PROCESS * by_process


def _streamed(workload: Workload, ranks: int) -> int:
    """Bytes of samples that streams bring to all ranks in an epoch, or on the way to memory."""
    reader, samples = workload.reader, workload.dataset.samples
    order = turns.of(workload.dataset, reader, ranks)
    most = samples if reader.load == "memory" else plan.steps_per_epoch(workload, ranks) * reader.batch_size
    full = order.at_once * workload.dataset.samples_per_file
    known: dict[tuple[int, ...], int] = {}
    total = 0
    for rank in range(ranks):
        first, last = plan.positions(workload, ranks, rank, 0)
        opening, _ = order.group(first)
        end = last if order.shares > 1 else samples
        # What lies alike in its groups takes the same; the last group before `end` may be a smaller one.
        alike = (first - opening, last - first, min(end, last + full) - opening)
        if alike not in known:
            known[alike] = _of_share(workload, order, first, min(last, first + most))
        total += known[alike]
    return total


def _of_share(workload: Workload, order: Turns, first: int, last: int) -> int:
    """Bytes of samples that streams bring for these positions."""
    dataset = workload.dataset
    record = dataset.sample.size + TFRECORD_FRAME
    brought = 0
    for begin, end in order.parts(first, last):
        opening, after = order.group(begin)
        if begin == opening and end >= after:
            brought += (end - begin) * record
        else:
            files = (after - opening) // dataset.samples_per_file
            brought += sum(_of_file(workload, *_wanted(begin - opening, end - opening, files, n)) for n in range(files))
    return brought * dataset.sample.size // record


def _wanted(begin: int, end: int, files: int, number: int) -> tuple[int, int]:
    """Which records of file `number` of a group the positions `begin` to `end` of that group take."""
    return -(-max(0, begin - number) // files), -(-max(0, end - number) // files)


def _of_file(workload: Workload, first: int, last: int) -> int:
    """Bytes that are read for the records `first` to `last` of a file: whole requests, as far as the file goes; all of
    it for records in any order.
    """
    dataset = workload.dataset
    record = dataset.sample.size + TFRECORD_FRAME
    if first == last:
        return 0
    if workload.reader.shuffle.samples:
        return dataset.samples_per_file * record
    request = workload.request_size or TENSORFLOW_BUFFER
    return min(-(-(last - first) * record // request) * request, (dataset.samples_per_file - first) * record)
