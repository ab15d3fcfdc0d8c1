"""Files that are read in turn: arithmetic on the positions of an epoch, identical on every rank."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from dlio_hpc.config import reader_keys
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.plan.plan import share


class Turns(NamedTuple):
    """Groups of files, read one sample per file in turn. at_once: files in a group. shares: number of shares into which
    whole files are divided. Each share has its own groups; its last group may be smaller.
    """

    files: int
    samples_per_file: int
    at_once: int
    shares: int

    def group(self, position: int) -> tuple[int, int]:
        """Return the half-open range of positions of the group that holds `position`."""
        file = position // self.samples_per_file
        first, last = self._share(file)
        begin = first + (file - first) // self.at_once * self.at_once
        return begin * self.samples_per_file, min(begin + self.at_once, last) * self.samples_per_file

    def parts(self, first: int, last: int) -> Iterator[tuple[int, int]]:
        """Divide the positions `first` to `last` of one share into ranges, each a part of one group or several whole
        groups.
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
        """Return the half-open range of files of the share that holds `file`; see plan.share()."""
        return share(self.files, self.shares, self.holder(file))

    def holder(self, file: int) -> int:
        """Return the number of the share that holds `file`."""
        return ((file + 1) * self.shares - 1) // self.files


def of(dataset: Dataset, reader: Reader, ranks: int) -> Turns:
    """Return the turns of an epoch that `ranks` ranks read."""
    return Turns(
        dataset.files,
        dataset.samples_per_file,
        min(reader.files_in_turn(dataset), dataset.files),
        ranks if reader_keys.shares_files(dataset, reader, ranks) else 1,
    )
