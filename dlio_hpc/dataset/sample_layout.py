"""Location and size of each sample in the files of a dataset. For generated datasets, both are computed when they are
needed; there is no table of samples. For existing datasets, they are taken from the index that the scan made.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.dataset import sample_index
from dlio_hpc.dataset.sample_index import SampleIndex
from dlio_hpc.dataset.sample_order import mix, mix_all

Samples = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

# A normally distributed number is computed as the sum of twelve uniform 16-bit numbers, four from each of three 64-bit
# words. Its standard deviation is 2^16, and it is always within six standard deviations of the mean.
_WORDS, _MIDDLE = 3, 12 * 65535 // 2


class Place(NamedTuple):
    """Location of a sample. sample: number of the sample in the dataset. file: number of the file that holds it.
    within: index of the sample in that file. offset: total bytes of the samples before this sample in the file. size:
    bytes of the sample in memory. position: offset of the sample in the generated content stream; it has no meaning for
    an existing dataset.
    """

    sample: int
    file: int
    within: int
    offset: int
    size: int
    position: int


class Places:
    """Locations of several samples. table: a row for each field of Place, shape (6, samples). Each property returns a
    row of `table`.
    """

    __slots__ = ("table",)

    def __init__(self, table: Numbers) -> None:
        self.table = table

    def __len__(self) -> int:
        samples: int = self.table.shape[1]
        return samples

    def __iter__(self) -> Iterator[Place]:
        return map(Place._make, self.table.T.tolist())

    def part(self, which: slice | Numbers) -> "Places":
        """Return the locations with the indices `which`."""
        return Places(self.table[:, which])

    def _column(self, number: int) -> Numbers:
        column: Numbers = self.table[number]
        return column

    @property
    def sample(self) -> Numbers:
        return self._column(0)

    @property
    def file(self) -> Numbers:
        return self._column(1)

    @property
    def within(self) -> Numbers:
        return self._column(2)

    @property
    def offset(self) -> Numbers:
        return self._column(3)

    @property
    def size(self) -> Numbers:
        return self._column(4)

    @property
    def position(self) -> Numbers:
        return self._column(5)


class SampleLayout:
    """Locations of all samples of a dataset.

    If sizes vary, two successive samples form a pair. One sample is larger than the mean by a random number of bytes,
    and the other is smaller by the same number. A pair therefore has twice the mean size. If files hold several
    samples, a pair is within one file, and the size of a file is a multiple of the mean. If each file holds one sample,
    a pair occupies two adjacent files.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._index = sample_index.of(dataset)
        self._is_flat = dataset.is_flat
        self._samples_per_file = dataset.samples_per_file
        self._last = dataset.samples - 1
        self._array_shape = dataset.array_shape
        self._mean = dataset.sample.size
        self._stdev = dataset.sample.stdev or 0
        facts = dataset.facts
        self._step = facts.size_step
        first = int(dataset.arrays[0]) if dataset.arrays else self._mean
        self._most = min(first - facts.least, 6 * self._stdev) // self._step * self._step
        self._keys = [np.uint64(mix(dataset.sample.seed * _WORDS + number)) for number in range(_WORDS)]

    def of(self, samples: Samples) -> Places:
        """Return the locations of `samples`, in the same order."""
        if self._index is not None:
            return _indexed(self._index, samples)
        count, size = self._samples_per_file, self._mean
        table = np.empty((len(Place._fields), len(samples)), np.int64)
        numbers, files, withins, offsets, sizes, positions = table
        numbers[:] = samples
        np.floor_divide(numbers, count, out=files)
        np.subtract(numbers, files * count, out=withins)
        np.multiply(withins, size, out=offsets)
        np.multiply(numbers, size, out=positions)
        sizes[:] = size
        if self._stdev:
            shifts, sizes[:] = self._spread(numbers)
            positions += shifts
            if count > 1:
                offsets += shifts
        return Places(table)

    def in_file(self, number: int) -> Places:
        """Return the locations of all samples in file `number`."""
        first = number * self._samples_per_file if self._index is None else int(self._index.starts[number])
        return self.of(np.arange(first, first + self.count(number), dtype=np.uint64))

    def count(self, number: int) -> int:
        """Return the number of samples in file `number`."""
        return self._samples_per_file if self._index is None else self._index.count(number)

    def files(self, samples: Samples) -> Numbers:
        """Return, for each of `samples`, the number of the file that holds it."""
        if self._index is None:
            return (samples // np.uint64(self._samples_per_file)).astype(np.int64)
        return self._index.file_numbers(samples)

    @property
    def begins(self) -> Numbers | None:
        """Offset of the first sample in each file of an existing dataset; None for a generated dataset, in which this
        offset is the same in all files.
        """
        return None if self._index is None else self._index.begins

    def position(self, number: int) -> int:
        """Return the offset in the content stream at which the contents of file `number` start."""
        return int(self.of(np.array([number * self._samples_per_file], np.uint64)).position[0])

    def holder(self, number: int, offset: int, gap: int = 0) -> int:
        """Return the number of the sample that contains byte `offset` of file `number`. gap: bytes that the format adds
        to each sample.
        """
        if not self._stdev:
            within = offset // (self._mean + gap)
            return number * self._samples_per_file + min(within, self._samples_per_file - 1)
        places = self.in_file(number)
        begins = places.offset + places.within * gap
        return int(places.sample[np.searchsorted(begins, offset, side="right") - 1])

    def file_size(self, number: int) -> int:
        """Return the total bytes of the samples in file `number`."""
        if self._index is not None:
            return int(self.in_file(number).size.sum())
        if self._stdev and self._samples_per_file == 1:
            return int(self.in_file(number).size[0])
        return self._samples_per_file * self._mean

    def array_shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of the array in file `number`: (samples, *sample shape), or (bytes,) if the array holds the
        bytes of all samples.
        """
        if self._is_flat:
            return (self.file_size(number),)
        return self._array_shape if self._index is None else (self.count(number), *self._array_shape[1:])

    def _spread(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """Return two arrays with an element per sample. First array: the number of bytes by which the start of the
        sample is shifted, relative to samples that all have the mean size; it may be negative. Second array: the size
        of the sample in bytes.
        """
        count = self._samples_per_file
        if count == 1:
            pairs, second, alone = numbers // 2, numbers % 2, (numbers == self._last) & (numbers % 2 == 0)
        else:
            files, withins = np.divmod(numbers, count)
            pairs, second = files * ((count + 1) // 2) + withins // 2, withins % 2
            alone = (withins == count - 1) & (second == 0)
        drawn = self._draw(pairs.astype(np.uint64))
        drawn[alone] = 0
        return second * drawn, self._mean + np.where(second, -drawn, drawn)

    def _draw(self, pairs: Samples) -> Numbers:
        """Return a normally distributed number of bytes, with mean 0, for each of `pairs`. The numbers are the same on
        every machine. They are multiples of the format's size step, so that the rounded sizes of a pair also add up.
        """
        total = np.full(len(pairs), -_MIDDLE, np.int64)
        for key in self._keys:
            mixed = mix_all(pairs ^ key)
            for shift in (0, 16, 32, 48):
                total += (mixed >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
        drawn = ((total * self._stdev >> 16) + self._step // 2) // self._step * self._step
        np.clip(drawn, -self._most, self._most, out=total)
        return total


def _indexed(index: SampleIndex, samples: Samples) -> Places:
    """Return the locations of samples of an existing dataset."""
    table = np.empty((len(Place._fields), len(samples)), np.int64)
    numbers, files, withins, offsets, sizes, positions = table
    numbers[:] = samples
    files[:] = index.file_numbers(numbers)
    firsts = index.starts[files]
    np.subtract(numbers, firsts, out=withins)
    if index.ends is None:
        np.multiply(withins, index.size, out=offsets)
        sizes[:] = index.size
    else:
        begins = index.ends[numbers]
        np.subtract(begins, index.ends[firsts], out=offsets)
        np.subtract(index.ends[numbers + 1], begins, out=sizes)
    positions[:] = 0
    return Places(table)
