"""Which sample comes next: arithmetic, so that any rank knows any position of any epoch without a list.

A seeded Feistel network permutes the smallest power of two that holds n; cycle walking keeps it below n. Integer
operations only: the same order on every machine and with every NumPy.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.workload import Dataset, Shuffle

Indices = npt.NDArray[np.uint64]

_ROUNDS = 4
_WORD = (1 << 64) - 1


class Order:
    """The order of one epoch's samples."""

    def __init__(self, dataset: Dataset, shuffle: Shuffle, epoch: int) -> None:
        self._samples_per_file = dataset.samples_per_file
        self._files = dataset.files
        self._shuffle = shuffle
        self._key = mix(mix(shuffle.seed) ^ epoch)

    def samples(self, first: int, last: int) -> Indices:
        """Sample numbers at the half-open range of positions `first` to `last`."""
        positions = np.arange(first, last, dtype=np.uint64)
        if self._shuffle.files and self._shuffle.samples:
            return permute(positions, self._files * self._samples_per_file, self._keys(0))
        size = np.uint64(self._samples_per_file)
        files, within = positions // size, positions % size
        if self._shuffle.files:
            files = permute(files, self._files, self._keys(1))
        if self._shuffle.samples:
            within = permute(within, self._samples_per_file, [_mix(files + np.uint64(k)) for k in self._keys(2)])
        return files * size + within

    def _keys(self, purpose: int) -> list[Any]:
        return [np.uint64(mix(self._key + purpose * _ROUNDS + number)) for number in range(_ROUNDS)]


def permute(indices: Indices, count: int, keys: list[Any]) -> Indices:
    """Each of `indices` (below `count`) to its place in the permutation that `keys` choose.

    `keys`: one a round, a number or an array as long as `indices`. The halves are updated in turn, which makes any
    split of the bits a bijection; walking on from places at or above `count` takes less than one round on average.
    """
    bits = (count - 1).bit_length()
    low_bits = np.uint64(bits // 2)
    low_mask, high_mask = np.uint64((1 << bits // 2) - 1), np.uint64((1 << bits - bits // 2) - 1)

    def encrypt(values: Indices, keys: list[Any]) -> Indices:
        high, low = values >> low_bits, values & low_mask
        for number, key in enumerate(keys):
            if number % 2:
                low = low ^ (_mix(high ^ key) & low_mask)
            else:
                high = high ^ (_mix(low ^ key) & high_mask)
        return (high << low_bits) | low

    result = encrypt(indices, keys)
    limit = np.uint64(count)
    outside = np.flatnonzero(result >= limit)
    while outside.size:
        result[outside] = encrypt(result[outside], [key[outside] if np.ndim(key) else key for key in keys])
        outside = outside[result[outside] >= limit]
    return result


def mix(value: int) -> int:
    """splitmix64's finaliser: 64 well stirred bits of any integer."""
    value = (value + 0x9E3779B97F4A7C15) & _WORD
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & _WORD
    value = (value ^ value >> 27) * 0x94D049BB133111EB & _WORD
    return value ^ value >> 31


def _mix(values: Indices) -> Indices:
    """A short mixer for whole arrays; four rounds of it in a row pass the tests of uniformity."""
    values = values * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ values >> np.uint64(29)) * np.uint64(0x94D049BB133111EB)
    return values ^ values >> np.uint64(32)
