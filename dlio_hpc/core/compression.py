"""Compressible contents: compute the share of random data for which gzip reaches a given compression ratio."""

import math
from bisect import bisect_right
from itertools import pairwise

from dlio_hpc.config.dataset_keys import LEVEL, Dataset
from dlio_hpc.core.content import BLOCK, WORD, Compressibility

# Bytes that deflate needs in addition to the random data, for codes and repeated words, in 1/10000 of the uncompressed
# bytes. Measured with zlib 1.2.13; levels 1 to 3 give the same result, and so do levels 4 to 9. One row per number of
# bytes that are compressed as one unit (_AT_ONCE), one column per share of random data (_SHARES).
_SHARES = (1, 0.98, 0.9, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.02)
_AT_ONCE = (4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 1 << 20)
_FAST = (
    (27, 138, 172, 198, 220, 249, 227, 185, 162, 149),
    (13, 67, 86, 111, 132, 154, 165, 169, 146, 132),
    (7, 36, 48, 69, 87, 109, 115, 122, 127, 118),
    (5, 35, 46, 68, 71, 87, 91, 97, 98, 93),
    (4, 36, 45, 58, 69, 87, 81, 86, 86, 82),
    (3, 35, 41, 56, 66, 79, 78, 81, 79, 72),
)
_THOROUGH = (
    (27, 138, 167, 177, 189, 209, 199, 152, 128, 113),
    (13, 66, 82, 96, 107, 120, 128, 135, 112, 97),
    (7, 34, 43, 55, 65, 78, 81, 83, 86, 78),
    (5, 33, 39, 52, 49, 56, 58, 60, 59, 54),
    (4, 32, 38, 42, 46, 56, 49, 50, 47, 43),
    (3, 30, 33, 39, 43, 48, 46, 44, 40, 34),
)
_FASTEST_THOROUGH = 4


def compressibility(dataset: Dataset) -> Compressibility:
    """Return the compressibility of the dataset's contents. It is computed from `compression_ratio` if the dataset sets
    this key, otherwise from `random_bits`.
    """
    if dataset.compression_ratio is None:
        return Compressibility(dataset.random_bits)
    level = LEVEL if dataset.level is None else dataset.level
    share = random_share(dataset.compression_ratio, level, _at_once(dataset))
    return Compressibility(random_words=round(share * BLOCK / WORD))


def _at_once(dataset: Dataset) -> int:
    """Return the number of bytes that gzip compresses together: the size of a chunk if the dataset is chunked,
    otherwise the size of a file.
    """
    if dataset.is_chunked:
        return math.prod(dataset.chunk_shape or ()) * dataset.sample.item_bytes
    return dataset.samples_per_file * dataset.sample_bytes


def random_share(ratio: float, level: int, at_once: int) -> float:
    """Return the share of random data for which gzip at `level` reaches the compression ratio `ratio`. at_once: number
    of bytes that gzip compresses together.
    """
    extra = _extra(_THOROUGH if level >= _FASTEST_THOROUGH else _FAST, at_once)
    sizes = [share + more for share, more in zip(_SHARES, extra, strict=True)]
    wanted = 1 / ratio
    for (share, size), (next_share, next_size) in pairwise(zip(_SHARES, sizes, strict=True)):
        if wanted > next_size:
            return min(1.0, next_share + (wanted - next_size) / (size - next_size) * (share - next_share))
    return _SHARES[-1]


def _extra(table: tuple[tuple[int, ...], ...], at_once: int) -> list[float]:
    """Return how many bytes the compressed data have in addition to their random data. The result is a list with a
    value for each share of random data in _SHARES. Each value is relative to the size of the uncompressed data.
    at_once: number of bytes that gzip compresses together. table: measured values, with a row for each number in
    _AT_ONCE and a column for each share. Between two rows, values are interpolated linearly in the logarithm of
    `at_once`.
    """
    at_once = min(max(at_once, _AT_ONCE[0]), _AT_ONCE[-1])
    upper = min(bisect_right(_AT_ONCE, at_once), len(_AT_ONCE) - 1)
    low, high = _AT_ONCE[upper - 1], _AT_ONCE[upper]
    part = math.log2(at_once / low) / math.log2(high / low)
    rows = zip(table[upper - 1], table[upper], strict=True)
    return [(below + part * (above - below)) / 10_000 for below, above in rows]
