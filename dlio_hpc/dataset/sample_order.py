"""The order in which samples are read. Every rank can compute the sample at any position of any epoch; no list is
stored.

A seeded Feistel network permutes the numbers below the smallest power of two that is at least the number of items.
Results that are too large are permuted again (cycle walking). Only integer operations are used, so the order is the
same on every machine and with every NumPy version.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.dataset import interleave
from dlio_hpc.dataset.rank_shares import share

if TYPE_CHECKING:
    from dlio_hpc.dataset.blending import Blend

Indices = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

_ROUNDS = 4
_WORD = (1 << 64) - 1


class Order:
    """The order of samples in an epoch. rank: number of the rank that reads. This number is used only if each rank
    reads all samples; the order then differs between ranks. ranks: number of ranks that share the samples. file_groups:
    groups of interleaved files.
    """

    def __init__(self, dataset: Dataset, reader: Reader, epoch: int, rank: int = 0, ranks: int = 1) -> None:
        shuffle = reader.shuffle
        self.file_groups = interleave.of(dataset, reader, ranks)
        self._samples_per_file = dataset.samples_per_file
        self._files = dataset.files
        self._samples = dataset.samples
        self._shuffle = shuffle
        own = 0 if reader.shard else mix(rank)
        self._key = mix(mix(shuffle.seed) ^ own ^ (epoch if shuffle.reseed else 0))
        self._irregular = self._irregular_order(dataset) if dataset.counts_vary else None
        self._blend = self._blended(dataset, dataset.blend) if dataset.blend is not None else None

    def samples(self, first: int, last: int) -> Indices:
        """Return the numbers of the samples at positions `first` to `last` (exclusive)."""
        if self._blend is not None:
            return self._blend.samples(first, last)
        positions = np.arange(first, last, dtype=np.uint64)
        block = np.uint64(self._shuffle.block)
        if self._shuffle.files and self._shuffle.samples:
            blocks = permute(positions // block, self._samples // self._shuffle.block, self._keys(0))
            return blocks * block + positions % block
        if self._irregular is not None:
            return self._of_irregular(self._irregular, first, last)
        size = np.uint64(self._samples_per_file)
        if self.file_groups.at_once == 1:
            files, within = positions // size, positions % size
        else:
            files, within = self._in_turn(positions, size)
        if self._shuffle.files:
            files = permute(files, self._files, self._keys(1))
        if self._shuffle.samples:
            within = self._by_blocks(files, within)
        return files * size + within

    def _by_blocks(self, files: Indices, within: Indices) -> Indices:
        """Permute the blocks of samples in each file. files, within: file of each sample, and its index in the file."""
        block = np.uint64(self._shuffle.block)
        blocks, places, whole = within // block, within % block, self._samples_per_file // self._shuffle.block
        is_whole = blocks < whole
        keys = [mix_all(files[is_whole] + np.uint64(key)) for key in self._keys(2)]
        made = blocks.copy()
        made[is_whole] = permute(blocks[is_whole], whole, keys)
        return made * block + places

    @property
    def irregular(self) -> "IrregularFiles | None":
        """Order of the files if files have different numbers of samples; otherwise None."""
        return self._irregular

    def _irregular_order(self, dataset: Dataset) -> "IrregularFiles":
        from dlio_hpc.dataset import sample_index

        index = sample_index.of(dataset)
        assert index is not None
        files = np.arange(self._files, dtype=np.uint64)
        if self._shuffle.files:
            files = permute(files, self._files, self._keys(1))
        return IrregularFiles(files.astype(np.int64), index.starts, self.file_groups.at_once)

    def _blended(self, dataset: Dataset, weights: tuple[float, ...]) -> "Blend":
        from dlio_hpc.dataset.blending import Blend  # imports this module

        return Blend(dataset, weights, self._keys(4) if self._shuffle.samples else None)

    def _of_irregular(self, order: "IrregularFiles", first: int, last: int) -> Indices:
        files, within = order.located(first, last)
        if self._shuffle.samples:
            within = self._permuted_in_files(files, within, order.counts(files))
        return (order.starts[files] + within).astype(np.uint64)

    def _permuted_in_files(self, files: Numbers, within: Numbers, counts: Numbers) -> Numbers:
        """Permute the indices of samples in each file. files, within, counts: for each sample, its file, its index in
        the file, and the number of samples in the file.
        """
        permuted = within.copy()
        by_file = np.argsort(files, kind="stable")
        begins = np.flatnonzero(np.diff(files[by_file], prepend=-1))
        for chosen in np.split(by_file, begins[1:]):
            if len(chosen) and counts[chosen[0]] > 1:
                keys = [mix_all(files[chosen[:1]].astype(np.uint64) + key)[0] for key in self._keys(2)]
                permuted[chosen] = permute(within[chosen].astype(np.uint64), int(counts[chosen[0]]), keys)
        return permuted

    @property
    def ascending(self) -> bool:
        """Whether the samples of a batch are read in ascending order."""
        return self._shuffle.ascending

    def among(self, count: int) -> Indices:
        """Return the indices of `count` samples that are already in memory, in the order in which they are used."""
        places = np.arange(count, dtype=np.uint64)
        shuffled = (self._shuffle.samples or self._shuffle.files) and self._shuffle.reseed
        return permute(places, count, self._keys(3)) if shuffled and count else places

    def _in_turn(self, positions: Indices, size: np.uint64) -> tuple[Indices, Indices]:
        """Return, for each position, the number of the file that holds its sample, and the index of the sample in this
        file. Files are interleaved in groups. size: number of samples in a file.
        """
        files, most = positions // size, np.uint64(self.file_groups.at_once)
        begins, ends = self._shares(files)
        groups: Indices = begins + (files - begins) // most * most
        in_group = np.minimum(most, ends - groups)
        rest = positions - groups * size
        return groups + rest % in_group, rest // in_group

    def _shares(self, files: Indices) -> tuple[Indices, Indices]:
        """Find, for each file in `files`, the range of files to which it belongs. The files of a dataset are divided
        into `file_groups.shares` ranges. Return two arrays with an element per file: the first file of its range, and
        the first file after its range. files: numbers of files, in ascending order.
        """
        if not len(files):
            return files, files
        first, last = self.file_groups.holder(int(files[0])), self.file_groups.holder(int(files[-1]))
        begins = [share(self._files, self.file_groups.shares, place)[0] for place in range(first, last + 2)]
        bounds = np.array(begins, np.uint64)
        places = np.searchsorted(bounds, files, "right")
        return bounds[places - 1], bounds[places]

    def _keys(self, purpose: int) -> list[Any]:
        return [np.uint64(mix(self._key + purpose * _ROUNDS + number)) for number in range(_ROUNDS)]


class IrregularFiles:
    """Order of files that have different numbers of samples, in an epoch. As with other files, samples are read from
    groups of files: one sample from each file of the group, then the next sample from each file that has one.

    files: numbers of the files in the order of the epoch. starts: number of the first sample of each file. at_once:
    number of files in a group.
    """

    def __init__(self, files: Numbers, starts: Numbers, at_once: int) -> None:
        self.files = files
        self.starts = starts
        self.at_once = at_once
        self._ends = np.cumsum(self.counts(files))
        self._last: tuple[int, Numbers, Numbers] = -1, files[:0], files[:0]

    def counts(self, files: Numbers) -> Numbers:
        """Return the number of samples of each of `files`."""
        counts: Numbers = self.starts[files + 1] - self.starts[files]
        return counts

    def group(self, position: int) -> int:
        """Return the number of the group that holds `position`."""
        return int(np.searchsorted(self._ends, position, "right")) // self.at_once

    def positions(self, group: int) -> tuple[int, int]:
        """Return the first position of a group, and the first position after the group."""
        first, last = group * self.at_once, min((group + 1) * self.at_once, len(self.files))
        return int(self._ends[first - 1]) if first else 0, int(self._ends[last - 1])

    def located(self, first: int, last: int) -> tuple[Numbers, Numbers]:
        """Return, for each position from `first` to `last` (exclusive), the file of its sample, and the index of the
        sample in the file.
        """
        if self.at_once == 1:
            positions = np.arange(first, last)
            places = np.searchsorted(self._ends, positions, "right")
            files = self.files[places]
            return files, positions - (self._ends[places] - self.counts(files))
        parts = [(self.files[:0], self.files[:0])]
        while first < last:
            group = self.group(first)
            begin, end = self.positions(group)
            files, within = self._in_turn(group)
            stop = min(last, end)
            parts.append((files[first - begin : stop - begin], within[first - begin : stop - begin]))
            first = stop
        files, within = (np.concatenate(column) for column in zip(*parts, strict=True))
        return files, within

    def _in_turn(self, group: int) -> tuple[Numbers, Numbers]:
        """Return the file and the index in the file for each position of a group. The result for the last group is
        kept, because a group may be asked for many times.
        """
        kept = self._last
        if kept[0] != group:
            files = self.files[group * self.at_once : (group + 1) * self.at_once]
            counts = self.counts(files)
            places = np.repeat(np.arange(len(files)), counts)
            within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
            by_turn = np.lexsort((places, within))
            kept = self._last = group, files[places[by_turn]], within[by_turn]
        return kept[1], kept[2]


def permute(indices: Indices, count: int, keys: list[Any]) -> Indices:
    """Permute the numbers below `count`, and return for each of `indices` the number that it is mapped to. indices:
    numbers below `count`. keys: one key per round; together they select the permutation. A key is a number, or an array
    with a number for each of `indices`.

    Rounds change the high and the low half of the bits alternately. The mapping is therefore a bijection, however the
    bits are split. If an index is mapped to `count` or above, the result is mapped again. On average, this happens less
    than once per index.
    """
    bits = (count - 1).bit_length()
    low_bits = np.uint64(bits // 2)
    low_mask, high_mask = np.uint64((1 << bits // 2) - 1), np.uint64((1 << bits - bits // 2) - 1)

    def encrypt(values: Indices, keys: list[Any]) -> Indices:
        high, low = values >> low_bits, values & low_mask
        for number, key in enumerate(keys):
            if number % 2:
                low = low ^ (mix_all(high ^ key) & low_mask)
            else:
                high = high ^ (mix_all(low ^ key) & high_mask)
        return (high << low_bits) | low

    result = encrypt(indices, keys)
    limit = np.uint64(count)
    outside = np.flatnonzero(result >= limit)
    while outside.size:
        result[outside] = encrypt(result[outside], [key[outside] if np.ndim(key) else key for key in keys])
        outside = outside[result[outside] >= limit]
    return result


def mix(value: int) -> int:
    """Mix the bits of an integer with the finalizer of splitmix64, and return 64 bits."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31


def mix_all(values: Indices) -> Indices:
    """Mix the bits of each value of an array. The calculation is shorter than in mix(), but good enough: permutations
    of four rounds pass tests of uniformity.
    """
    values = values * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(29)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(32)
