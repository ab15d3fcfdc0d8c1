"""Location and size of each sample in the files of a dataset. Both are computed when they are needed; there is no table
of samples.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.plan.sample_order import mix, mix_all

Samples = npt.NDArray[np.uint64]

# A normally distributed number is computed as the sum of twelve uniform 16-bit numbers, four from each of three 64-bit
# words. Its standard deviation is 2^16, and it is always within six standard deviations of the mean.
_WORDS, _MIDDLE = 3, 12 * 65535 // 2


class Place(NamedTuple):
    """Location of a sample. sample: number of the sample in the dataset. file: number of the file that holds it.
    within: index of the sample in that file. offset: total bytes of the samples before this sample in the file. size:
    bytes of the sample in memory. position: offset of the sample in the generated content stream.
    """

    sample: int
    file: int
    within: int
    offset: int
    size: int
    position: int


class SampleLayout:
    """Locations of all samples of a dataset.

    If sizes vary, two successive samples form a pair. One sample is larger than the mean by a random number of bytes,
    and the other is smaller by the same number. A pair therefore has twice the mean size. If files hold several
    samples, a pair lies within one file, and the size of a file is a multiple of the mean. If each file holds one
    sample, a pair occupies two adjacent files.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._samples_per_file = dataset.samples_per_file
        self._last = dataset.samples - 1
        self._array_shape = dataset.array_shape
        self._mean = dataset.sample.size
        self._stdev = dataset.sample.stdev or 0
        self._keys = [np.uint64(mix(dataset.sample.seed * _WORDS + number)) for number in range(_WORDS)]

    def of(self, samples: Samples) -> list[Place]:
        """Return the locations of `samples`, in the same order."""
        count, size = self._samples_per_file, self._mean
        numbers = samples.tolist()
        files, withins = (part.tolist() for part in np.divmod(samples, np.uint64(count)))
        if not self._stdev:
            return [
                Place(number, file, within, within * size, size, number * size)
                for number, file, within in zip(numbers, files, withins, strict=True)
            ]
        shifts, sizes = self._spread(samples)
        return [
            Place(number, file, within, within * size + (shift if count > 1 else 0), drawn, number * size + shift)
            for number, file, within, shift, drawn in zip(numbers, files, withins, shifts, sizes, strict=True)
        ]

    def one(self, sample: int) -> Place:
        """Return the location of a single sample, faster than of()."""
        if self._stdev:
            return self.of(np.array([sample], np.uint64))[0]
        file, within = divmod(sample, self._samples_per_file)
        return Place(sample, file, within, within * self._mean, self._mean, sample * self._mean)

    def in_file(self, number: int) -> list[Place]:
        """Return the locations of all samples in file `number`."""
        first = number * self._samples_per_file
        return self.of(np.arange(first, first + self._samples_per_file, dtype=np.uint64))

    def position(self, number: int) -> int:
        """Return the offset in the content stream at which the contents of file `number` start."""
        return self.of(np.array([number * self._samples_per_file], np.uint64))[0].position

    def holder(self, number: int, offset: int, gap: int = 0) -> int:
        """Return the number of the sample that contains byte `offset` of file `number`. gap: bytes that the format adds
        to each sample.
        """
        if not self._stdev:
            within = offset // (self._mean + gap)
            return number * self._samples_per_file + min(within, self._samples_per_file - 1)
        places = self.in_file(number)
        return places[bisect_right(places, offset, key=lambda place: place.offset + place.within * gap) - 1].sample

    def file_size(self, number: int) -> int:
        """Return the total bytes of the samples in file `number`."""
        if self._stdev and self._samples_per_file == 1:
            return self.in_file(number)[0].size
        return self._samples_per_file * self._mean

    def array_shape(self, number: int) -> tuple[int, ...]:
        """Return the shape of the array in file `number`: (samples, *sample shape), or (bytes,) if sample
        sizes vary.
        """
        return (self.file_size(number),) if self._stdev else self._array_shape

    def _spread(self, samples: Samples) -> tuple[list[int], list[int]]:
        """Return two lists with an entry per sample. First list: the number of bytes by which the start of the sample
        is shifted, relative to samples that all have the mean size; it may be negative. Second list: the size of the
        sample in bytes.
        """
        numbers, count = samples.astype(np.int64), self._samples_per_file
        if count == 1:
            pairs, second, alone = numbers // 2, numbers % 2, (numbers == self._last) & (numbers % 2 == 0)
        else:
            files, withins = np.divmod(numbers, count)
            pairs, second = files * ((count + 1) // 2) + withins // 2, withins % 2
            alone = (withins == count - 1) & (second == 0)
        drawn = self._draw(pairs.astype(np.uint64))
        drawn[alone] = 0
        return (second * drawn).tolist(), (self._mean + np.where(second, -drawn, drawn)).tolist()

    def _draw(self, pairs: Samples) -> npt.NDArray[np.int64]:
        """Return a normally distributed number of bytes, with mean 0, for each of `pairs`. The numbers are the same on
        every machine.
        """
        total = np.full(len(pairs), -_MIDDLE, np.int64)
        for key in self._keys:
            mixed = mix_all(pairs ^ key)
            for shift in (0, 16, 32, 48):
                total += (mixed >> np.uint64(shift) & np.uint64(0xFFFF)).astype(np.int64)
        most = self._mean - 1
        np.clip(total * self._stdev >> 16, -most, most, out=total)
        return total
