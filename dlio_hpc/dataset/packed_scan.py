"""Scan of a compressed TFRecord file. The whole file is decompressed piece by piece; only the sizes of its records are
kept.
"""

import os
from array import array
from collections.abc import Callable

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import TFRECORD_FRAME
from dlio_hpc.dataset.inflate import Damaged, Inflate

_HEAD = 12
_BLOCK = 1 << 20
# RATIO: maximum compression ratio. ALLOWANCE: bytes of records that a file may hold in excess of this ratio. deflate
# reaches 1032; records of useful samples reach less than 100.
RATIO, ALLOWANCE = 512, 64 << 20

# Function that returns the length in the head of a record. Arguments: path, offset of the record, head.
Length = Callable[[str, int, bytes], int]


def sizes(path: str, descriptor: int, compression: str, length: Length) -> "array[int]":
    """Return the size of each record of a compressed file. length: function that checks the head of a record and
    returns the length. Raise ConfigError if the file is damaged.
    """
    source = _Source(path, descriptor, compression)
    lengths = array("q")
    try:
        while head := source.take(_HEAD):
            begin = source.at - len(head)
            size = length(f"{path}, decompressed,", begin, head)
            if source.skip(size + TFRECORD_FRAME - _HEAD):
                raise ConfigError(
                    f"{path} is truncated: its last record begins at byte {begin} of the decompressed records and has "
                    f"{size + TFRECORD_FRAME} bytes, but the records have {source.at} bytes"
                )
            lengths.append(size)
    except Damaged as fault:
        raise ConfigError(
            f"{path} is truncated or corrupted: {fault} (compression_type {compression.upper()}); repair it, or choose "
            "a pattern that leaves it out"
        ) from fault
    return lengths


class _Source:
    """Decompressed bytes of a file. at: number of bytes that were taken."""

    def __init__(self, path: str, descriptor: int, compression: str) -> None:
        self._path = path
        self._descriptor = descriptor
        self._inflate = Inflate(compression, self._fetch)
        self._ready = b""
        self._used = 0
        self.at = 0

    def _fetch(self) -> bytes:
        return os.pread(self._descriptor, _BLOCK, self._inflate.fetched)

    def take(self, size: int) -> bytes:
        """Return the next `size` bytes; fewer at the end of the file."""
        taken = b""
        while (left := size - len(taken)) and self._is_filled():
            part = self._ready[self._used : self._used + left]
            taken += part
            self._advance(len(part))
        return taken

    def skip(self, size: int) -> int:
        """Leave the next `size` bytes out. Return the number of bytes that are missing at the end of the file."""
        while size and self._is_filled():
            part = min(size, len(self._ready) - self._used)
            self._advance(part)
            size -= part
        return size

    def _advance(self, count: int) -> None:
        self._used += count
        self.at += count

    def _is_filled(self) -> bool:
        """Decompress another piece if all bytes were taken. Return False at the end of the file."""
        if self._used == len(self._ready):
            self._ready, self._used = self._inflate.piece(), 0
            if self.at + len(self._ready) > ALLOWANCE + RATIO * self._inflate.fetched:
                raise ConfigError(
                    f"{self._path} is a decompression bomb: its first {self._inflate.fetched} bytes hold more than "
                    f"{self.at} bytes of records; choose a pattern that leaves it out"
                )
        return len(self._ready) > 0
