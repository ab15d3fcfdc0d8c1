"""JPEG files (ITU-T T.81, baseline process) with generated contents.

The entropy-coded data are bytes of the content stream of which the highest bit is cleared. The Huffman tables give
every such byte a meaning: it is a coefficient, which consists of the code 0 and an amplitude of seven bits. A block of
8 x 8 values begins with the byte of its mean, which has the code 00000000, and ends with the byte 10000000, unless it
has all 63 coefficients. Therefore, a picture can have any size in bytes between two and 64 bytes for each block.
"""

import functools

import numpy as np

from dlio_hpc.config.image_keys import JPEG_BLOCK, ImageShape, jpeg_blocks
from dlio_hpc.core import content
from dlio_hpc.core.content import Compressibility, Rows

# The tables K.1 and K.2 of T.81, for brightness and colour, in the order in which values are stored (zigzag).
_BRIGHTNESS = (
    16, 11, 12, 14, 12, 10, 16, 14, 13, 14, 18, 17, 16, 19, 24, 40, 26, 24, 22, 22, 24, 49, 35, 37, 29, 40, 58, 51,
    61, 60, 57, 51, 56, 55, 64, 72, 92, 78, 64, 68, 87, 69, 55, 56, 80, 109, 81, 87, 95, 98, 103, 104, 103, 62, 77,
    113, 121, 112, 100, 120, 92, 101, 103, 99,
)  # fmt: skip
_COLOUR = (17, 18, 18, 24, 21, 24, 47, 26, 26, 47, 99, 66, 56, 66, *(99,) * 50)
_QUALITY = 75
# The mean of a block, and the end of a block, in the entropy-coded data.
_MEAN, _END_OF_BLOCK = 0x00, 0x80
_END_OF_IMAGE = b"\xff\xd9"
# Offset of the bytes that identify a sample, in the comment of the file.
IDENTITY = 24
_SEVEN_BITS = Compressibility(bits=7)


def encode(row: Rows, image: ImageShape, position: int) -> None:
    """Fill `row` with a JPEG file. image: form of the picture; it must fit the size of the row. position: offset in the
    content stream.
    """
    head, blocks = _head(image), jpeg_blocks(image)
    content.fill(row, position, _SEVEN_BITS)
    row.data[:IDENTITY] = head[:IDENTITY]
    row.data[IDENTITY + content.WORD : len(head)] = head[IDENTITY + content.WORD :]
    row.data[-len(_END_OF_IMAGE) :] = _END_OF_IMAGE
    data = row[len(head) : -len(_END_OF_IMAGE)]
    small, larger = divmod(len(data), blocks)
    _delimit(data[: larger * (small + 1)].reshape(larger, small + 1))
    _delimit(data[larger * (small + 1) :].reshape(blocks - larger, small))


def _delimit(data: Rows) -> None:
    """Write the beginning and the end of blocks. data: entropy-coded data of shape (blocks, bytes of a block)."""
    data[:, 0] = _MEAN
    if data.shape[1] < JPEG_BLOCK:
        data[:, -1] = _END_OF_BLOCK


@functools.lru_cache(64)
def _head(image: ImageShape) -> bytes:
    """Return the beginning of the file, up to the entropy-coded data."""
    is_colour = image.channels > 1
    tables = (_BRIGHTNESS, _COLOUR) if is_colour else (_BRIGHTNESS,)
    components = ((1, 0x22, 0), (2, 0x11, 1), (3, 0x11, 1)) if is_colour else ((1, 0x11, 0),)
    count = len(components)
    frame = b"\x08" + image.height.to_bytes(2, "big") + image.width.to_bytes(2, "big") + bytes((count,))
    quality = image.quality or _QUALITY
    return b"".join(
        (
            b"\xff\xd8",
            _segment(0xE0, b"JFIF\0\x01\x01\0\0\x01\0\x01\0\0"),
            _segment(0xFE, bytes(content.WORD)),
            *(_segment(0xDB, bytes((at, *_scaled(table, quality)))) for at, table in enumerate(tables)),
            _segment(0xC0, frame + b"".join(map(bytes, components))),
            _segment(0xC4, b"\x00" + _lengths({8: 1}) + b"\x00"),
            _segment(0xC4, b"\x10" + _lengths({1: 1, 8: 1}) + b"\x07\x00"),
            _segment(0xDA, bytes((count, *(part for at in range(count) for part in (at + 1, 0)), 0, 63, 0))),
        )
    )


def _segment(marker: int, data: bytes) -> bytes:
    return bytes((0xFF, marker)) + (len(data) + 2).to_bytes(2, "big") + data


def _lengths(codes: dict[int, int]) -> bytes:
    """Return the beginning of a Huffman table: the number of codes of each length, from 1 to 16 bits."""
    return bytes(codes.get(length, 0) for length in range(1, 17))


def _scaled(table: tuple[int, ...], quality: int) -> bytes:
    """Return a quantisation table for a quality from 1 to 100, as the library of the Independent JPEG Group scales
    it.
    """
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    return bytes(np.clip((np.array(table) * percent + 50) // 100, 1, 255).astype(np.uint8))
