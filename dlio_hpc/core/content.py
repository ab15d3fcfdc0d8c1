"""Generated contents: an endless stream of bytes, in which each file and each sample has a fixed position.

The stream consists of blocks of 1 MiB. Only block 0 is random. Each 64-bit word of block k is the corresponding word of
block 0 plus k times an odd constant. Contents are therefore generated at memory speed. No two blocks are equal, so a
storage system cannot deduplicate them.
"""

import functools
import sys
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]

BLOCK = 1 << 20
# Bytes of a page. In compressible contents, each page has the same share of random words, and no two pages are equal.
PAGE = 4096
WORD = 8
_SHIFT = 0x9E3779B97F4A7C15
_SEED = 2021


class Compressibility(NamedTuple):
    """Compressibility of the content stream. bits: number of random bits in each byte, which are its lowest bits; the
    other bits are zero. random_words: number of random words in each block. These words are divided equally among the
    pages of the block. A page begins with its random words; the rest of the page repeats the last of them.
    """

    bits: int = 8
    random_words: int = BLOCK // WORD


RANDOM = Compressibility()


def pieces(first: int, count: int, compressibility: Compressibility = RANDOM) -> Iterator[memoryview]:
    """Yield `count` bytes of the stream, from byte `first` on, in pieces of at most 1 MiB. A piece is valid only until
    the next piece is requested.
    """
    memory = np.empty(min(BLOCK, count), np.uint8)
    for done in range(0, count, BLOCK):
        piece = memory[: count - done]
        fill(piece, first + done, compressibility)
        yield piece.data


def fill(row: Rows, first: int, compressibility: Compressibility = RANDOM) -> None:
    """Fill `row` with the bytes of the stream that start at byte `first`."""
    done = 0
    while done < len(row):
        size = min(BLOCK - (first + done) % BLOCK, len(row) - done)
        _fill_in_block(row[done : done + size], first + done, compressibility)
        done += size


def _fill_in_block(row: Rows, first: int, compressibility: Compressibility) -> None:
    """Fill `row` with the bytes of the stream that start at byte `first`. All these bytes must be in one block."""
    number, begin = divmod(first, BLOCK)
    lead = min(-begin % WORD, len(row))
    count = (len(row) - lead) // WORD
    low, end = (begin + lead) // WORD, lead + count * WORD
    whole = row[lead:end].view(np.uint64)
    base = _first_block(compressibility.random_words)
    np.add(base[low : low + count], np.uint64(number * _SHIFT % (1 << 64)), out=whole)
    if compressibility.bits < 8:
        np.bitwise_and(whole, np.uint64(_mask(compressibility.bits)), out=whole)
    if lead:
        row.data[:lead] = head(first, compressibility)[:lead]
    if end < len(row):
        row.data[end:] = head(first + end, compressibility)[: len(row) - end]


def head(first: int, compressibility: Compressibility = RANDOM) -> bytes:
    """Return the bytes of the stream from `first` to the end of the 64-bit word that contains byte `first`: one to
    eight bytes. They are cheap to compute and suffice to identify a sample.
    """
    number, begin = divmod(first, BLOCK)
    word = (int(_first_block(compressibility.random_words)[begin // WORD]) + number * _SHIFT) & _mask(
        compressibility.bits
    )
    return word.to_bytes(WORD, sys.byteorder)[begin % WORD :]


def words_at(positions: npt.NDArray[np.int64], compressibility: Compressibility = RANDOM) -> npt.NDArray[np.uint64]:
    """Return an array of 64-bit words of the stream, one for each byte position in `positions`: the word that contains
    the byte at this position.
    """
    numbers, begins = np.divmod(positions, BLOCK)
    firsts = _first_block(compressibility.random_words)[begins // WORD]
    result: npt.NDArray[np.uint64] = firsts + numbers.astype(np.uint64) * np.uint64(_SHIFT)
    result &= np.uint64(_mask(compressibility.bits))
    return result


def _mask(bits: int) -> int:
    return ((1 << bits) - 1) * 0x0101010101010101


@functools.lru_cache(8)
def _first_block(random_words: int) -> npt.NDArray[np.uint64]:
    """Return block 0 of the stream. It has `random_words` random words, but at least one in each page."""
    base = np.random.PCG64(_SEED).random_raw(BLOCK // WORD)
    if random_words == len(base):
        return base
    pages, per_page = BLOCK // PAGE, PAGE // WORD
    random = np.maximum(np.diff(np.arange(pages + 1) * random_words // pages), 1)
    kept = np.minimum(np.arange(per_page), random[:, np.newaxis] - 1)
    return np.take_along_axis(base.reshape(pages, per_page), kept, axis=1).reshape(-1)
