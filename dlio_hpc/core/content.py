"""The bytes of a dataset: one endless stream, of which file and sample say where they begin.

Random once, then shifted: every 64-bit word of MiB k is the word of MiB 0 plus k times an odd constant, which is as
fast as memory and leaves no two blocks alike for a storage system to fold together.
"""

import functools
import sys
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]

BLOCK = 1 << 20
_SHIFT = 0x9E3779B97F4A7C15
_SEED = 2021


def pieces(first: int, count: int, bits: int = 8) -> Iterator[memoryview]:
    """Bytes `first` to `first + count` of the stream, block by block; a piece is valid until the next is taken.

    `bits` of each byte are random, the higher ones zero.
    """
    base = _base()
    block = np.empty_like(base)
    view = block.data.cast("B")
    end = first + count
    while first < end:
        number, begin = divmod(first, BLOCK)
        shift = np.uint64(number * _SHIFT % (1 << 64))
        np.add(base, shift, out=block)
        if bits < 8:
            np.bitwise_and(block, _mask(bits), out=block)
        stop = min(BLOCK, begin + end - first)
        yield view[begin:stop]
        first += stop - begin


def fill(row: Rows, first: int, bits: int = 8) -> None:
    """The stream from `first` on into all of `row`."""
    done = 0
    for piece in pieces(first, len(row), bits):
        row[done : done + len(piece)] = piece
        done += len(piece)


def head(first: int, bits: int = 8) -> bytes:
    """The one to eight bytes from `first` to the end of their word: enough to know a sample by, at no cost."""
    number, begin = divmod(first, BLOCK)
    word = (int(_base()[begin // 8]) + number * _SHIFT) & int(_mask(bits))
    return word.to_bytes(8, sys.byteorder)[begin % 8 :]


def _mask(bits: int) -> np.uint64:
    return np.uint64(((1 << bits) - 1) * 0x0101010101010101)


@functools.cache
def _base() -> npt.NDArray[np.uint64]:
    return np.random.PCG64(_SEED).random_raw(BLOCK // 8)
