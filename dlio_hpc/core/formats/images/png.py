"""PNG files (ISO/IEC 15948) with generated contents.

The picture is compressed by a single block with the fixed codes of deflate (RFC 1951, 3.2.6). The first values of the
picture are literals. Each of them is a byte of the content stream, changed so that it is a code of eight bits. The rest
of the picture is black: repetitions of 258 zeros, each a code of 13 bits. The number of repetitions is chosen so that
the file nearly has the size that is asked for; a private chunk fills it up.
"""

import bisect
import functools
import zlib

import numpy as np

from dlio_hpc.config.image_keys import (
    PNG_DATA,
    PNG_END_BITS,
    PNG_REPEATED,
    PNG_REPETITION_BITS,
    ImageShape,
    PngParts,
    png_parts,
    png_repetitions,
    png_stride,
)
from dlio_hpc.core import content
from dlio_hpc.core.content import Rows

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Header of a zlib stream (RFC 1950): deflate, window of 32 KiB, fastest compression. Modulus of its checksum.
_ZLIB, _ADLER = b"\x78\x01", 65521
# Private chunk that begins with the bytes that identify a sample and fills up the file.
_FILLER = b"dlIo"
# The first values: the filter of the first row, and five values whose codes have nine bits. Together with the three
# bits of the block's header, their codes have seven bytes, so that later codes of eight bits begin with a byte.
_FIRST_VALUES = bytes((0, 144, 144, 144, 144, 144))
_FIRST_CODES = 0b011 | 0x0C << 3 | sum(0b000010011 << 11 + 9 * at for at in range(5))
_HEAD = _ZLIB + _FIRST_CODES.to_bytes(7, "little")
# Code of the literal 0, which as the first value of a row selects no filter.
_ZERO = 0x0C
# Code of a repetition: length 258 (symbol 285), distance 1. The bits of the code of the end are zero.
_REPETITION = 0b10100011
_EIGHT_REPETITIONS = sum(_REPETITION << PNG_REPETITION_BITS * at for at in range(8)).to_bytes(
    PNG_REPETITION_BITS, "little"
)
# Values of the literals whose codes are the bytes 0 to 255. Codes are stored with their first bit lowest.
_LITERALS = bytes((int(f"{code:08b}"[::-1], 2) - 0x30) % 256 for code in range(256))


@functools.lru_cache(64)
def _filled(image: ImageShape, size: int) -> PngParts:
    """Return the parts of a file of `size` bytes."""
    counts = range(png_repetitions(image) + 1)
    parts = png_parts(image, bisect.bisect_left(counts, -size, key=lambda count: -png_parts(image, count).size))
    return parts._replace(filler=parts.filler + size - parts.size)


def encode(row: Rows, image: ImageShape, position: int) -> None:
    """Fill `row` with a PNG file. image: form of the picture; it must fit the size of the row. position: offset in the
    content stream.
    """
    parts = _filled(image, len(row))
    filler = np.empty(parts.filler, np.uint8)
    content.fill(filler, position)
    colour = 2 if image.channels > 1 else 0
    header = image.width.to_bytes(4, "big") + image.height.to_bytes(4, "big") + bytes((8, colour, 0, 0, 0))
    row.data[: len(_SIGNATURE)] = _SIGNATURE
    end = _chunk(row, len(_SIGNATURE), b"IHDR", header)
    end = _chunk(row, end, _FILLER, filler.data)
    picture = _Picture(parts, png_stride(image), position + parts.filler)
    for begin in range(0, parts.data, PNG_DATA):
        size = min(PNG_DATA, parts.data - begin)
        picture.compress(row[end + 8 : end + 8 + size], begin)
        end = _framed(row, end, b"IDAT", size)
    _chunk(row, end, b"IEND", b"")


def _chunk(row: Rows, begin: int, name: bytes, data: bytes | memoryview) -> int:
    """Write a chunk to `row`. Return the offset after it."""
    row.data[begin + 8 : begin + 8 + len(data)] = data
    return _framed(row, begin, name, len(data))


def _framed(row: Rows, begin: int, name: bytes, size: int) -> int:
    """Write the length, the name and the checksum of a chunk, whose data are in `row` already. Return the offset after
    it.
    """
    end = begin + 8 + size
    row.data[begin : begin + 8] = size.to_bytes(4, "big") + name
    row.data[end : end + 4] = zlib.crc32(row.data[begin + 4 : end]).to_bytes(4, "big")
    return end + 4


class _Picture:
    """Compressed data of a picture, which are computed from the beginning in pieces that fit into the cache of a core.

    parts: parts of the file. stride: number of values of a row. position: offset in the content stream.
    """

    def __init__(self, parts: PngParts, stride: int, position: int) -> None:
        self._parts = parts
        self._stride = stride
        self._position = position
        self._codes_end = len(_HEAD) + parts.literals - len(_FIRST_VALUES)
        self._checksum = zlib.adler32(_FIRST_VALUES)

    def compress(self, piece: Rows, begin: int) -> None:
        """Fill `piece` with the compressed data from offset `begin` on. All earlier data are computed already."""
        codes = piece[max(0, len(_HEAD) - begin) : max(0, self._codes_end - begin)]
        if not begin:
            piece.data[: len(_HEAD)] = _HEAD
        if len(codes):
            self._fill(codes, max(0, begin - len(_HEAD)))
        if begin + len(piece) > self._codes_end:
            first = max(0, begin - self._codes_end)
            rest = len(piece) - max(0, self._codes_end - begin)
            piece.data[-rest:] = self._tail()[first : first + rest]

    def _fill(self, codes: Rows, first: int) -> None:
        """Fill `codes` with the codes of literals. first: number of the first of them, after those of eight bits."""
        content.fill(codes, self._position + first)
        _make_codes(codes)
        codes[(-len(_FIRST_VALUES) - first) % self._stride :: self._stride] = _ZERO
        self._checksum = zlib.adler32(codes.tobytes().translate(_LITERALS), self._checksum)

    def _tail(self) -> bytes:
        """Return the data after the literals: a zero, its repetitions, and the checksum of the picture (RFC 1950)."""
        whole, rest = divmod(self._parts.repetitions, 8)
        bits = sum(_REPETITION << PNG_REPETITION_BITS * at for at in range(rest))
        end = bits.to_bytes(-(-(PNG_REPETITION_BITS * rest + PNG_END_BITS) // 8), "little")
        low, high = self._checksum & 0xFFFF, self._checksum >> 16
        zeros = 1 + PNG_REPEATED * self._parts.repetitions
        checksum = (high + zeros * low) % _ADLER << 16 | low
        return bytes((_ZERO,)) + _EIGHT_REPETITIONS * whole + end + checksum.to_bytes(4, "big")


def _make_codes(codes: Rows) -> None:
    """Change the lowest bit of each byte so that the byte is the code of a literal. Codes of eight bits are used, whose
    first two bits differ.
    """
    second = codes >> 1
    second ^= codes
    second ^= 1
    second &= 1
    codes ^= second
