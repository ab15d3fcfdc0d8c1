"""PNG files (ISO/IEC 15948) with generated contents.

The picture is compressed by a single block with the fixed codes of deflate (RFC 1951, 3.2.6). The first values of the
picture are literals. Each of them is a byte of the content stream, changed so that it is a code of eight bits. The rest
of the picture is black: repetitions of 258 zeros, each a code of 13 bits. The number of repetitions is chosen so that
the file nearly has the size that is asked for; a private chunk fills it up.
"""

import bisect
import functools
import zlib
from typing import NamedTuple

import numpy as np

from dlio_hpc.config.dataset_keys import ImageShape
from dlio_hpc.core import content
from dlio_hpc.core.content import Rows

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# Header of a zlib stream (RFC 1950): deflate, window of 32 KiB, fastest compression. Its checksum has four bytes.
_ZLIB, _ADLER = b"\x78\x01", 65521
_FRAME = len(_ZLIB) + 4
# Bytes of compressed data in each IDAT chunk, as Pillow writes them, and of the length, name and checksum of a chunk.
_DATA, _CHUNK = 1 << 16, 12
# Private chunk that begins with the bytes that identify a sample and fills up the file.
_FILLER = b"dlIo"
# The first values: the filter of the first row, and five values whose codes have nine bits. Together with the three
# bits of the block's header, their codes have seven bytes, so that later codes of eight bits begin with a byte.
_FIRST_VALUES = bytes((0, 144, 144, 144, 144, 144))
_FIRST_CODES = 0b011 | 0x0C << 3 | sum(0b000010011 << 11 + 9 * at for at in range(5))
_FIRST = _FIRST_CODES.to_bytes(7, "little")
# Code of the literal 0, which as the first value of a row selects no filter.
_ZERO = 0x0C
# Code of a repetition: length 258 (symbol 285), distance 1. The code of the end has seven bits, all zero.
_REPETITION, _REPEATED, _REPETITION_BITS, _END_BITS = 0b10100011, 258, 13, 7
_EIGHT_REPETITIONS = sum(_REPETITION << _REPETITION_BITS * at for at in range(8)).to_bytes(_REPETITION_BITS, "little")
# Values of the literals whose codes are the bytes 0 to 255. Codes are stored with their first bit lowest.
_LITERALS = bytes((int(f"{code:08b}"[::-1], 2) - 0x30) % 256 for code in range(256))
# Offset of the bytes that identify a sample: after the signature, the header of the picture, and that of a chunk.
IDENTITY = len(_SIGNATURE) + _CHUNK + 13 + 8
# Mean bytes of a pixel of a photograph.
BYTES_PER_PIXEL = 1.8


class _Parts(NamedTuple):
    """Parts of a file. literals: number of values of the picture that are literals. repetitions: number of repetitions.
    filler: bytes in the private chunk.
    """

    literals: int
    repetitions: int
    filler: int

    @property
    def data(self) -> int:
        """Bytes of the compressed data, with their header and checksum."""
        return _FRAME + self.literals + 2 + -(-(_REPETITION_BITS * self.repetitions + _END_BITS) // 8)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return IDENTITY + self.filler + 4 + -(-self.data // _DATA) * _CHUNK + self.data + _CHUNK


def _parts(image: ImageShape, repetitions: int) -> _Parts:
    return _Parts(_stride(image) * image.height - 1 - _REPEATED * repetitions, repetitions, content.WORD)


def _stride(image: ImageShape) -> int:
    """Return the number of values of a row: the type of its filter, and the values of its pixels."""
    return 1 + image.width * image.channels


def _most(image: ImageShape) -> int:
    """Return the largest number of repetitions in a picture; -1 if the picture is too small."""
    return (_stride(image) * image.height - 1 - len(_FIRST_VALUES)) // _REPEATED


def fits(image: ImageShape, size: int) -> bool:
    """Return whether a file of `size` bytes can hold a picture of the form `image`."""
    if _stride(image) < len(_FIRST_VALUES) or _most(image) < 0:
        return False
    largest = _parts(image, 0).size
    return _parts(image, _most(image)).size <= size <= largest + largest // 256 + 512


@functools.lru_cache(64)
def _filled(image: ImageShape, size: int) -> _Parts:
    """Return the parts of a file of `size` bytes."""
    least = bisect.bisect_left(range(_most(image) + 1), -size, key=lambda count: -_parts(image, count).size)
    parts = _parts(image, least)
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
    for begin in range(0, len(data), _DATA):
        end = _chunk(row, end, b"IDAT", data[begin : begin + _DATA].data)
    _chunk(row, end, b"IEND", b"")


def _chunk(row: Rows, begin: int, name: bytes, data: bytes | memoryview) -> int:
    """Write a chunk to `row`. Return the offset after it."""
    end = begin + 8 + len(data)
    row.data[begin : begin + 8] = len(data).to_bytes(4, "big") + name
    row.data[begin + 8 : end] = data
    row.data[end : end + 4] = zlib.crc32(row.data[begin + 4 : end]).to_bytes(4, "big")
    return end + 4


def _compressed(image: ImageShape, parts: _Parts, position: int) -> Rows:
    """Return the compressed data of the picture."""
    data = np.empty(parts.data, np.uint8)
    begin = len(_ZLIB) + len(_FIRST)
    end = begin + parts.literals - len(_FIRST_VALUES)
    data.data[:begin] = _ZLIB + _FIRST
    codes = data[begin:end]
    content.fill(codes, position)
    _make_codes(codes)
    stride = _stride(image)
    codes[stride - len(_FIRST_VALUES) :: stride] = _ZERO
    whole, rest = divmod(parts.repetitions, 8)
    bits = sum(_REPETITION << _REPETITION_BITS * at for at in range(rest))
    tail = bits.to_bytes(-(-(_REPETITION_BITS * rest + _END_BITS) // 8), "little")
    data.data[end:-4] = bytes((_ZERO,)) + _EIGHT_REPETITIONS * whole + tail
    data.data[-4:] = _checksum(codes, 1 + _REPEATED * parts.repetitions)
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
