"""Interleaved reading: files are read in groups, one sample from each file of a group, then the next sample from each
file, and so on. This module computes the files and the positions of each group in an epoch. The result is the same on
every rank.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from dlio_hpc.config import reader_keys
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.dataset.rank_shares import share


class FileGroups(NamedTuple):
    """Division of an epoch into groups of interleaved files. at_once: number of files in a group. shares: number of
    parts into which the files are divided. If each file is read by a single rank, there is one part per rank. Otherwise
    there is one part with all files. Each part has groups of its own. The last group of a part may be smaller.
    """

    files: int
    samples_per_file: int
    at_once: int
    shares: int

    def group(self, position: int) -> tuple[int, int]:
        """Return the first position of the group that holds `position`, and the first position after this group."""
        file = position // self.samples_per_file
        first, last = self._share(file)
        begin = first + (file - first) // self.at_once * self.at_once
        return begin * self.samples_per_file, min(begin + self.at_once, last) * self.samples_per_file

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Split the positions `first` to `last` (exclusive) into ranges, and yield the limits of each range. All
        positions are read by one rank. A range either is a part of one group of files or consists of whole groups.
        """
        if first >= last:
            return
        (opening, after), (closing, end) = self.group(first), self.group(last - 1)
        begin = first if opening == first else min(last, after)
        stop = last if last in (begin, end) else max(begin, closing)
        for lower, upper in pairwise((first, begin, stop, last)):
            if lower < upper:
                yield lower, upper

    def _share(self, file: int) -> tuple[int, int]:
        """Return the numbers of two files: the first file in the part that holds `file`, and the first file after this
        part. The files are divided into `shares` parts.
        """
        return share(self.files, self.shares, self.holder(file))

    def holder(self, file: int) -> int:
        """Return the number of the part that holds `file`. The files are divided into `shares` parts."""
        return ((file + 1) * self.shares - 1) // self.files


def of(dataset: Dataset, reader: Reader, ranks: int) -> FileGroups:
    """Return the division of an epoch of the dataset into groups of interleaved files. ranks: number of ranks that read
    the dataset.
    """
    return FileGroups(
        dataset.files,
        dataset.samples_per_file,
        min(reader.files_in_turn(dataset), dataset.files),
        ranks if reader_keys.shares_files(dataset, reader, ranks) else 1,
    )
