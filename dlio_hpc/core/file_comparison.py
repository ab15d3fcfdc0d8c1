"""A file beside what the generator writes: the first byte that differs, and whose it is."""

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import numpy as np

from dlio_hpc.core.content import Rows

Pieces = Iterable[bytes | memoryview]


class Checksum:
    """Pieces that are handed on; `value`: CRC-32 of those that were taken."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces
        self.value = 0

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for piece in self._pieces:
            self.value = zlib.crc32(piece, self.value)
            yield piece


def of_file(path: str, size: int, pieces: Pieces | None, sample: Callable[[int], int | None]) -> str | None:
    """What is wrong with a file that has to have `size` bytes, those of `pieces` where they are given; `sample` knows
    whose byte an offset is. None: nothing.
    """
    with open(path, "rb") as file:
        found = os.fstat(file.fileno()).st_size
        if found != size:
            return f"has {found} bytes, expected {size}"
        at = None if pieces is None else first_difference(file, pieces)
    return None if at is None else told(f"byte {at}", sample(at))


def first_difference(file: IO[bytes], pieces: Pieces) -> int | None:
    """How far behind where `file` stands the first byte lies that is not as in `pieces`, or where it ends too soon."""
    done = 0
    for piece in pieces:
        at = difference(np.frombuffer(file.read(len(piece)), np.uint8), np.frombuffer(piece, np.uint8))
        if at is not None:
            return done + at
        done += len(piece)
    return None


def difference(found: Rows, expected: Rows) -> int | None:
    """Of the first byte; where `found` is shorter, that may be its end."""
    differs = found != expected[: len(found)]
    if differs.any():
        return int(differs.argmax())
    return len(found) if len(found) < len(expected) else None


def told(where: str, sample: int | None) -> str:
    """A byte that differs, in words; None: it is no sample's."""
    return f"{where} is not as generated" + ("" if sample is None else f" (sample {sample})")
