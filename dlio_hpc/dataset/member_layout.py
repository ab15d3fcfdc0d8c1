"""Location of the members of samples in tar files (webdataset shards): each sample is one or several members. For
generated files, it is computed from the place of the sample. For existing files, it is taken from the index.

A member has a header of 512 bytes, and its data are padded to a multiple of 512 bytes. Two blocks of zeros end the
file, which is padded to a record of 10240 bytes (POSIX.1-2001, pax, ustar interchange format).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dlio_hpc.config.dataset_keys import TAR_BLOCK, TAR_RECORD, Dataset
from dlio_hpc.dataset import sample_index
from dlio_hpc.dataset.sample_layout import Numbers, Places, SampleLayout


class SampleMembers(NamedTuple):
    """Members of samples, in the order of the samples. counts: number of members of each sample. offsets: offset of the
    data of each member in its file. sizes: bytes of each member. firsts: offset of each member in its sample.
    """

    counts: Numbers
    offsets: Numbers
    sizes: Numbers
    firsts: Numbers

    def by_sample(self) -> Iterator[list[tuple[int, int]]]:
        """Yield the offsets and sizes of the members of each sample."""
        listed = list(zip(self.offsets.tolist(), self.sizes.tolist(), strict=True))
        begin = 0
        for count in self.counts.tolist():
            yield listed[begin : begin + count]
            begin += count


class MemberLayout:
    """Locations of the members of all samples of a dataset. slot: bytes that a sample of mean size takes in a generated
    file, with headers and padding.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._index = sample_index.of(dataset)
        self._mean = dataset.sample.size
        self._places = SampleLayout(dataset)
        self._sizes = np.array(dataset.arrays or (dataset.sample.size,), np.int64)
        taken = TAR_BLOCK + padded(self._sizes)
        self._offsets = np.cumsum(taken) - taken + TAR_BLOCK
        self.slot = int(taken.sum())

    def of(self, places: Places) -> SampleMembers:
        """Return the members of the samples at `places`."""
        if self._index is not None:
            return _indexed(self._index, places)
        sizes = np.repeat(self._sizes[np.newaxis], len(places), axis=0)
        offsets = self.begins(places)[:, np.newaxis] + self._offsets
        longer = places.size - self._mean
        sizes[:, 0] += longer
        offsets[:, 1:] += longer[:, np.newaxis]
        return of_pieces(np.full(len(places), len(self._sizes)), offsets.reshape(-1), sizes.reshape(-1))

    @property
    def is_single(self) -> bool:
        """Whether each sample of generated files is one member, whose size is that of the sample."""
        return self._index is None and len(self._sizes) == 1

    def begins(self, places: Places) -> Numbers:
        """Return the offset of the first header of each sample in a generated file."""
        return places.offset + places.within * (self.slot - self._mean)

    def samples_end(self, number: int) -> int:
        """Return the offset in generated file `number` at which its last sample ends."""
        return self._places.file_size(number) + self._places.count(number) * (self.slot - self._mean)

    def file_size(self, number: int) -> int:
        """Return the size of generated file `number` in bytes."""
        return -(-(self.samples_end(number) + 2 * TAR_BLOCK) // TAR_RECORD) * TAR_RECORD


def padded(sizes: Numbers) -> Numbers:
    """Return the bytes that the data of members take, with their padding."""
    return -(-sizes // TAR_BLOCK) * TAR_BLOCK


def of_pieces(counts: Numbers, offsets: Numbers, sizes: Numbers) -> SampleMembers:
    """Return the members of samples. counts, offsets, sizes: as in SampleMembers."""
    before = np.cumsum(sizes) - sizes
    starts = np.cumsum(counts) - counts
    return SampleMembers(counts, offsets, sizes, before - np.repeat(before[starts], counts) if len(counts) else before)


def _indexed(index: sample_index.SampleIndex, places: Places) -> SampleMembers:
    """Return the members of samples of an existing dataset."""
    members = index.members
    assert members is not None
    starts, counts = members.starts[places.sample], members.starts[places.sample + 1] - members.starts[places.sample]
    numbers = np.arange(counts.sum()) + np.repeat(starts - np.cumsum(counts) + counts, counts)
    return of_pieces(counts, members.offsets[numbers], members.sizes[numbers])
