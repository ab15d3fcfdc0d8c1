"""Division of the samples of an epoch among the ranks, and the resulting number of steps."""

from dlio_hpc.config import reader_keys
from dlio_hpc.config.workload import Workload


def positions(workload: Workload, ranks: int, rank: int, ranks_per_node: int) -> tuple[int, int]:
    """Return the positions in an epoch that `rank` reads, as a range: the first position in the range, and the first
    position after the range.
    """
    if not workload.reader.shard:
        return 0, workload.dataset.samples
    units, size = _shared_units(workload, ranks)
    first, last = share(units, ranks, (rank + ranks_per_node * workload.reader.reorder_tasks) % ranks)
    return first * size, last * size


def share(count: int, ranks: int, rank: int) -> tuple[int, int]:
    """Divide `count` items among the ranks. Return two indices: the index of the first item of `rank`, and the first
    index after the items of `rank`. The numbers of items of two ranks differ by at most one.
    """
    return rank * count // ranks, (rank + 1) * count // ranks


def _shared_units(workload: Workload, ranks: int) -> tuple[int, int]:
    """Return the number of units in which the samples are divided among the ranks, and the number of samples in a unit.
    A unit is a file if ranks share no files, and a single sample otherwise.
    """
    dataset = workload.dataset
    if reader_keys.shares_files(dataset, workload.reader, ranks):
        return dataset.files, dataset.samples_per_file
    return dataset.samples, 1


def largest_share(workload: Workload, ranks: int) -> int:
    """Return the largest number of samples that a rank reads in an epoch."""
    if not workload.reader.shard:
        return workload.dataset.samples
    units, size = _shared_units(workload, ranks)
    return -(-units // ranks) * size


def steps_per_epoch(workload: Workload, ranks: int) -> int:
    """Return the number of steps in an epoch, which is the same for every rank. If a rank has fewer samples than
    others, its last batches are partly filled or empty.
    """
    batch = workload.reader.batch_size
    whole = -(-largest_share(workload, ranks) // batch)
    if workload.reader.drop_last:
        units, size = _shared_units(workload, ranks)
        whole = (units // ranks * size if workload.reader.shard else workload.dataset.samples) // batch
    return min(whole, workload.train.steps or whole)


def samples_per_epoch(workload: Workload, ranks: int) -> int:
    """Return the number of samples that all ranks together read in an epoch."""
    most = steps_per_epoch(workload, ranks) * workload.reader.batch_size
    if not workload.reader.shard:
        return ranks * min(workload.dataset.samples, most)
    units, size = _shared_units(workload, ranks)
    small, larger = divmod(units, ranks)
    return larger * min((small + 1) * size, most) + (ranks - larger) * min(small * size, most)
