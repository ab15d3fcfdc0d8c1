"""Reads of a dataset, and the stretches (extents) that they form. A stretch is a sequence of requests for one sample.
One rank makes these requests at adjacent offsets of a file, in quick succession.
"""

from collections import defaultdict
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.requests import Requests

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# Maximum distance between two pieces of a sample, in requests of the rank to the file. Requests of other threads may
# come between the two pieces.
_BETWEEN = 8
# A request smaller than this fraction of the usual size is assumed to read a header, a directory or an index.
_SMALL = 1 / 16
# A file with several arrays: requests of one size have at least this share of the bytes that its arrays read, and
# requests of a smaller array at most that share.
_MOSTLY, _MINOR = 0.5, 0.3
# Sizes in bytes of the nodes of an HDF5 index of chunks (B-tree of version 1 with 64 entries), for 1 to 8 dimensions.
_INDEX_NODES = [24 + 8 * 64 + 65 * (8 + 8 * (dimensions + 1)) for dimensions in range(1, 9)]


class Reads(NamedTuple):
    """Reads of a dataset that returned bytes, sorted by rank, then by time. file: index of the file in `sizes`. sizes:
    size of each file in bytes. usual: request size that accounts for the most bytes read. process: number of the
    process within the rank; None if each rank is one process.
    """

    rank: Integers
    file: Integers
    offset: Integers
    length: Integers
    start: Floats
    end: Floats
    thread: npt.NDArray[np.uint64]
    sizes: Integers
    usual: int
    process: Integers | None = None

    @property
    def readers(self) -> list[Integers]:
        """Indices of the reads of each rank, one array per rank. If ranks have several processes, there is one array
        per process.
        """
        place = self.rank if self.process is None else self.rank * (int(self.process.max(initial=0)) + 1) + self.process
        order = np.argsort(place, kind="stable")
        return np.split(order, np.flatnonzero(np.diff(place[order])) + 1) if len(order) else []

    @property
    def workers(self) -> int:
        """Largest number of processes of a rank that read at the same time. A rank may have more processes in total,
        for example new ones in each epoch.
        """
        if self.process is None or not len(self.rank):
            return 1
        begun: dict[int, list[tuple[float, int]]] = defaultdict(list)
        for mine in self.readers:
            edges = (float(self.start[mine].min()), 1), (float(self.end[mine].max()), -1)
            begun[int(self.rank[mine[0]])] += edges
        return max(max(accumulate(step for _, step in sorted(edges))) for edges in begun.values())


class Stretches(NamedTuple):
    """Stretches, as columns with one entry per stretch, sorted by rank, then by time. file: index of the file, as in
    Reads. requests: number of requests. start: start of the first request in seconds.
    """

    rank: Integers
    file: Integers
    offset: Integers
    bytes: Integers
    requests: Integers
    start: Floats


def reads_of(requests: Requests, sizes: dict[str, int]) -> Reads:
    """Return the reads of a dataset from the requests of a log. sizes: size of each file of the dataset in bytes, by
    path.
    """
    number = {path: at for at, path in enumerate(sizes)}
    known = np.array([number.get(path, -1) for path in requests.paths], np.int64)
    file = known[requests.file] if len(known) else np.empty(0, np.int64)
    chosen = np.flatnonzero(~requests.write & (requests.length > 0) & (file >= 0))
    order = chosen[np.lexsort((requests.start[chosen], requests.rank[chosen]))]
    length = requests.length[order]
    return Reads(
        requests.rank[order].astype(np.int64), file[order], requests.offset[order], length, requests.start[order],
        requests.end[order], requests.thread[order], np.array(list(sizes.values()), np.int64), usual(length),
        None if requests.process is None else requests.process[order],
    )  # fmt: skip


def usual(lengths: Integers) -> int:
    """Return the request size that accounts for the most bytes transferred, or 0 if there are no requests."""
    if not len(lengths):
        return 0
    values, counts = np.unique(lengths, return_counts=True)
    return int(values[np.argmax(values * counts)])


def payload(reads: Reads, has_arrays: bool = False) -> Reads:
    """Return the reads of samples; see of_samples()."""
    return chosen(reads, of_samples(reads, has_arrays))


def of_samples(reads: Reads, has_arrays: bool) -> npt.NDArray[np.bool_]:
    """Return a mask of the reads of samples. Small reads of headers, directories and indexes are left out. In a file
    with several arrays, such as HDF5, reads of the smaller arrays are left out, too. A read that continues the previous
    read of the file is kept, because it reads another piece of the same sample.
    """
    is_large = reads.length >= _SMALL * reads.usual
    if has_arrays:
        is_large &= ~is_index_read(reads.length) | (reads.length == reads.usual)
        is_large &= ~_of_smaller_arrays(reads, is_large)
    mask: npt.NDArray[np.bool_] = is_large | (_continues(reads, is_large) & ~is_index_read(reads.length))
    return mask


def is_index_read(lengths: Integers) -> npt.NDArray[np.bool_]:
    """Return a mask of the requests that have the size of a node of an HDF5 index of chunks."""
    return np.isin(lengths, _INDEX_NODES)


def _of_smaller_arrays(reads: Reads, among: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask of the reads of the smaller arrays. Requests for the largest array have the usual size. Requests
    for another array all have one other size, and read far fewer bytes. among: mask of the reads to consider.
    """
    total = reads.length[among].sum()
    if reads.length[among & (reads.length == reads.usual)].sum() < _MOSTLY * total:
        return np.zeros(len(reads.length), bool)
    values, which = np.unique(reads.length, return_inverse=True)
    bytes_read = np.bincount(which, reads.length * among, len(values))
    small = (bytes_read < _MINOR * total) & (values != reads.usual)
    marked: npt.NDArray[np.bool_] = small[which] & among
    return marked


def _continues(reads: Reads, is_large: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return a mask of the reads that start where the reader's previous read of the file ended, if the previous read
    was large.
    """
    process = np.zeros(len(reads.rank), np.int64) if reads.process is None else reads.process
    order = np.lexsort((reads.start, reads.file, process, reads.rank))
    before, after = order[:-1], order[1:]
    goes_on = (reads.rank[after] == reads.rank[before]) & (process[after] == process[before])
    goes_on &= (reads.file[after] == reads.file[before]) & is_large[before]
    goes_on &= reads.offset[after] == reads.offset[before] + reads.length[before]
    mask = np.zeros(len(reads.rank), bool)
    mask[after[goes_on]] = True
    return mask


def chosen(reads: Reads, keep: npt.NDArray[np.bool_]) -> Reads:
    return Reads(
        reads.rank[keep], reads.file[keep], reads.offset[keep], reads.length[keep], reads.start[keep], reads.end[keep],
        reads.thread[keep], reads.sizes, reads.usual, None if reads.process is None else reads.process[keep],
    )  # fmt: skip


def stretches(reads: Reads) -> Stretches:
    """Combine reads into stretches. A read continues the previous read of the file if three conditions are met: it
    starts at the offset where the previous read ended, it follows soon, and the previous read was not shorter than
    usual. A read that is shorter than usual is the last piece of a sample.
    """
    if not len(reads.rank):
        nothing = np.empty(0, np.int64)
        return Stretches(nothing, nothing, nothing, nothing, nothing, np.empty(0))
    within = _numbered(reads.rank, reads.file)
    repeat = _numbered(reads.rank, reads.file, reads.offset)
    order = np.lexsort((reads.offset, repeat, reads.file, reads.rank))
    rank, file, offset, length, at, repeats = (
        column[order] for column in (reads.rank, reads.file, reads.offset, reads.length, within, repeat)
    )
    later = at[1:] - at[:-1]
    goes_on = (rank[1:] == rank[:-1]) & (file[1:] == file[:-1]) & (repeats[1:] == repeats[:-1])
    goes_on &= (offset[1:] == offset[:-1] + length[:-1]) & (later > 0) & (later <= _BETWEEN)
    goes_on &= length[:-1] >= reads.usual
    first = np.flatnonzero(np.concatenate(([True], ~goes_on)))
    made = Stretches(
        rank[first], file[first], offset[first], np.add.reduceat(length, first),
        np.diff(np.concatenate((first, [len(rank)]))), reads.start[order][first],
    )  # fmt: skip
    in_time = np.lexsort((made.start, made.rank))
    return Stretches(
        made.rank[in_time], made.file[in_time], made.offset[in_time], made.bytes[in_time], made.requests[in_time],
        made.start[in_time],
    )  # fmt: skip


def _numbered(*keys: Integers) -> Integers:
    """Return, for each row of a table, the number of equal rows above that row. keys: the columns of the table."""
    order = np.lexsort(keys[::-1])
    fresh = np.ones(len(order), bool)
    for key in keys:
        fresh[1:] = fresh[1:] & (key[order][1:] == key[order][:-1])
    first = ~fresh
    first[0] = True
    begins = np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order)) - begins
    return numbers


def distinct(reads: Reads) -> Integers:
    """Return for each file the number of its bytes that at least one rank has read."""
    order = np.lexsort((reads.offset, reads.file))
    file, begin = reads.file[order], reads.offset[order]
    total = np.zeros(len(reads.sizes), np.int64)
    if not len(order):
        return total
    reach = begin + reads.length[order]
    width = int(reach.max()) + 1
    if width < 2**62 // (len(reads.sizes) + 1):  # place files one after the other to handle all in one pass
        highest = np.maximum.accumulate(file * width + reach) - file * width
        before = np.concatenate(([0], highest[:-1]))
        before[np.concatenate(([True], file[1:] != file[:-1]))] = 0
        np.add.at(total, file, np.maximum(reach - np.maximum(begin, before), 0))
        return total
    for number in np.unique(file).tolist():
        total[number] = int(min(reach[file == number].max(), reads.length[order][file == number].sum()))
    return total
