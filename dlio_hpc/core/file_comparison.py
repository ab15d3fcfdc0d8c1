"""Comparison of files with the generated contents: find the first byte that differs and the sample that contains it."""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import numpy as np

from dlio_hpc.core.content import Rows

Pieces = Iterable[bytes | memoryview]


class Checksum:
    """Iterator over `pieces` that computes their checksum. value: CRC-32 of the pieces yielded so far."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.value = 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for piece in self._pieces:
            self.value = zlib.crc32(piece, self.value)
            yield piece


def of_file(path: str, size: int, pieces: Pieces | None, sample: Callable[[int], int | None]) -> str | None:
    """Check that a file has `size` bytes and the contents `pieces`. Return the fault of the file, or None if it has no
    fault. If `pieces` is None, only the size is checked. sample: function that takes the offset of a byte. It returns
    the number of the sample that contains the byte, or None if the byte belongs to no sample.
    """
    with open(path, "rb") as file:
        actual = os.fstat(file.fileno()).st_size
        if actual != size:
            return f"has {actual} bytes, expected {size}"
        at = None if pieces is None else first_difference(file, pieces)
    return None if at is None else message(f"byte {at}", sample(at))


def first_difference(file: IO[bytes], pieces: Pieces) -> int | None:
    """Compare a file with `pieces`, from the file's current position on. Find the first byte that differs or is
    missing, and return its offset relative to this position. Return None if there is no difference.
    """
    done = 0
    for piece in pieces:
        at = difference(np.frombuffer(file.read(len(piece)), np.uint8), np.frombuffer(piece, np.uint8))
        if at is not None:
            return done + at
        done += len(piece)
    return None


def difference(actual: Rows, expected: Rows) -> int | None:
    """Return the index of the first byte that differs. If `actual` is shorter than `expected` but otherwise equal,
    return the length of `actual`. Return None if there is no difference.
    """
    differs = actual != expected[: len(actual)]
    if differs.any():
        return int(differs.argmax())
    return len(actual) if len(actual) < len(expected) else None


def message(where: str, sample: int | None) -> str:
    """Return the message for a byte that differs. where: location of the byte. sample: number of the sample that
    contains it, or None if it belongs to no sample.
    """
    return f"{where} differs from the generated contents" + ("" if sample is None else f" (sample {sample})")
