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
_FIRST = _FIRST_CODES.to_bytes(7, "little")
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
    data = _compressed(image, parts, position + parts.filler)
    end = 0
    row.data[: len(_SIGNATURE)] = _SIGNATURE
    end = _chunk(row, len(_SIGNATURE), b"IHDR", header)
    end = _chunk(row, end, _FILLER, filler.data)
    for begin in range(0, len(data), PNG_DATA):
        end = _chunk(row, end, b"IDAT", data[begin : begin + PNG_DATA].data)
    _chunk(row, end, b"IEND", b"")


def _chunk(row: Rows, begin: int, name: bytes, data: bytes | memoryview) -> int:
    """Write a chunk to `row`. Return the offset after it."""
    end = begin + 8 + len(data)
    row.data[begin : begin + 8] = len(data).to_bytes(4, "big") + name
    row.data[begin + 8 : end] = data
    row.data[end : end + 4] = zlib.crc32(row.data[begin + 4 : end]).to_bytes(4, "big")
    return end + 4


def _compressed(image: ImageShape, parts: PngParts, position: int) -> Rows:
    """Return the compressed data of the picture."""
    data = np.empty(parts.data, np.uint8)
    begin = len(_ZLIB) + len(_FIRST)
    end = begin + parts.literals - len(_FIRST_VALUES)
    data.data[:begin] = _ZLIB + _FIRST
    codes = data[begin:end]
    content.fill(codes, position)
    _make_codes(codes)
    stride = png_stride(image)
    codes[stride - len(_FIRST_VALUES) :: stride] = _ZERO
    whole, rest = divmod(parts.repetitions, 8)
    bits = sum(_REPETITION << PNG_REPETITION_BITS * at for at in range(rest))
    tail = bits.to_bytes(-(-(PNG_REPETITION_BITS * rest + PNG_END_BITS) // 8), "little")
    data.data[end:-4] = bytes((_ZERO,)) + _EIGHT_REPETITIONS * whole + tail
    data.data[-4:] = _checksum(codes, 1 + PNG_REPEATED * parts.repetitions)
    return data


def _make_codes(codes: Rows) -> None:
    """Change the lowest bit of each byte so that the byte is the code of a literal. Codes of eight bits are used, whose
    first two bits differ.
    """
    second = codes >> 1
    second ^= codes
    second ^= 1
    second &= 1
    codes ^= second


def _checksum(codes: Rows, zeros: int) -> bytes:
    """Return Adler-32 of the picture (RFC 1950). codes: codes of its literals after the first. zeros: number of zeros
    after them.
    """
    value = zlib.adler32(codes.tobytes().translate(_LITERALS), zlib.adler32(_FIRST_VALUES))
    low, high = value & 0xFFFF, value >> 16
    return ((high + zeros * low) % _ADLER << 16 | low).to_bytes(4, "big")
