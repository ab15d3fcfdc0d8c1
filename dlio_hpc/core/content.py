"""Generated contents: an endless stream of bytes. Each file and each sample has a position in it.

Only the first MiB (number 0) is random. Each 64-bit word of MiB k is the word of MiB 0 plus k times an odd constant.
Contents are generated at memory speed, and no two blocks are equal, so that a storage system cannot deduplicate them.
"""

import functools
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]

BLOCK = 1 << 20
# Unit in bytes of compressible contents: each page has the same share of random words. No two pages are equal.
PAGE = 4096
WORD = 8
_SHIFT = 0x9E3779B97F4A7C15
_SEED = 2021


class Texture(NamedTuple):
    """Compressibility of the stream. bits: number of random bits in each byte; the higher bits are zero. random_words:
    number of random words in each block. They are divided equally among the pages of the block and are at the front of
    each page; the rest of a page repeats its last random word.
    """

    bits: int = 8
    random_words: int = BLOCK // WORD


RANDOM = Texture()


def pieces(first: int, count: int, texture: Texture = RANDOM) -> Iterator[memoryview]:
    """Yield the bytes `first` to `first + count` of the stream in pieces of at most a block. A piece is valid only
    until the next one is yielded.
    """
    base = _base(texture.random_words)
    memory = np.empty(min(len(base), -(-count // WORD) + 1), np.uint64)
    end = first + count
    while first < end:
        number, begin = divmod(first, BLOCK)
        stop = min(BLOCK, begin + end - first)
        low, high = begin // WORD, -(-stop // WORD)
        part = memory[: high - low]
        np.add(base[low:high], np.uint64(number * _SHIFT % (1 << 64)), out=part)
        if texture.bits < 8:
            np.bitwise_and(part, np.uint64(_mask(texture.bits)), out=part)
        yield part.data.cast("B")[begin - low * WORD : stop - low * WORD]
        first += stop - begin


def fill(row: Rows, first: int, texture: Texture = RANDOM) -> None:
    """Fill `row` with the bytes of the stream from byte `first` on."""
    done = 0
    for piece in pieces(first, len(row), texture):
        row[done : done + len(piece)] = piece
        done += len(piece)


def head(first: int, texture: Texture = RANDOM) -> bytes:
    """Return the bytes of the stream from `first` to the end of its 64-bit word, one to eight bytes. They suffice to
    identify a sample, at little cost.
    """
    number, begin = divmod(first, BLOCK)
    word = (int(_base(texture.random_words)[begin // WORD]) + number * _SHIFT) & _mask(texture.bits)
    return word.to_bytes(WORD, sys.byteorder)[begin % WORD :]


def _mask(bits: int) -> int:
    return ((1 << bits) - 1) * 0x0101010101010101


@functools.lru_cache(8)
def _base(random_words: int) -> npt.NDArray[np.uint64]:
    """Return block 0 of the stream with this number of random words, but at least one in each page."""
    base = np.random.PCG64(_SEED).random_raw(BLOCK // WORD)
    if random_words == len(base):
        return base
    pages, per_page = BLOCK // PAGE, PAGE // WORD
    random = np.maximum(np.diff(np.arange(pages + 1) * random_words // pages), 1)
    kept = np.minimum(np.arange(per_page), random[:, np.newaxis] - 1)
    return np.take_along_axis(base.reshape(pages, per_page), kept, axis=1).reshape(-1)
