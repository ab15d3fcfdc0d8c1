"""Contents of a dataset: an endless byte stream. Files and samples begin at positions in it.

Only MiB 0 is random. Each 64-bit word of MiB k is the word of MiB 0 plus k times an odd constant. This runs at memory
speed, and no two blocks are equal, so that a storage system cannot deduplicate them.
"""

import functools
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]

BLOCK = 1 << 20
# Compressible data have the same share of random words in each page. No two pages are equal.
PAGE = 4096
WORD = 8
_SHIFT = 0x9E3779B97F4A7C15
_SEED = 2021


class Texture(NamedTuple):
    """Compressibility of the stream. bits: random bits of each byte; the higher bits are zero. random_words: random
    words of each block, divided equally among its pages and at the front of each page. The rest of a page repeats its
    last random word.
    """

    bits: int = 8
    random_words: int = BLOCK // WORD


RANDOM = Texture()


def pieces(first: int, count: int, texture: Texture = RANDOM) -> Iterator[memoryview]:
    """Yield bytes `first` to `first + count` of the stream, block by block. The next piece invalidates the last."""
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
    """Fill `row` with the stream from byte `first` on."""
    done = 0
    for piece in pieces(first, len(row), texture):
        row[done : done + len(piece)] = piece
        done += len(piece)


def head(first: int, texture: Texture = RANDOM) -> bytes:
    """Return the one to eight bytes from `first` to the end of their word. They identify a sample at little cost."""
    number, begin = divmod(first, BLOCK)
    word = (int(_base(texture.random_words)[begin // WORD]) + number * _SHIFT) & _mask(texture.bits)
    return word.to_bytes(WORD, sys.byteorder)[begin % WORD :]


def _mask(bits: int) -> int:
    return ((1 << bits) - 1) * 0x0101010101010101


@functools.lru_cache(8)
def _base(random_words: int) -> npt.NDArray[np.uint64]:
    """Return block 0 with this number of random words, at least one in each page."""
    base = np.random.PCG64(_SEED).random_raw(BLOCK // WORD)
    if random_words == len(base):
        return base
    pages, per_page = BLOCK // PAGE, PAGE // WORD
    random = np.maximum(np.diff(np.arange(pages + 1) * random_words // pages), 1)
    kept = np.minimum(np.arange(per_page), random[:, np.newaxis] - 1)
    return np.take_along_axis(base.reshape(pages, per_page), kept, axis=1).reshape(-1)
