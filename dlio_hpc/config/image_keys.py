"""The key `dataset.image`: the picture in each file of the formats jpeg and png, and the sizes that such a file can
have.
"""

import math
from typing import Annotated, Literal, NamedTuple

from msgspec import Meta, Struct

# libjpeg's limit on the width and the height of an image (JPEG_MAX_DIMENSION).
LARGEST_SIDE = 65_500
# Mean bytes of a pixel of a photograph in three colours.
_BYTES_PER_PIXEL = {"jpeg": 0.6, "png": 1.8}
# Bytes of a JPEG file before and after its blocks, by the number of channels; core/formats/images/jpeg.py writes them.
_JPEG_FRAME = {1: 171, 3: 250}
# Largest number of bytes of a block of 8 x 8 values, which are its mean and 63 coefficients; smallest number: its mean
# and its end.
JPEG_BLOCK, _SMALLEST_BLOCK = 64, 2


class ImageShape(Struct, frozen=True, forbid_unknown_fields=True):
    """Picture in each file of the formats jpeg and png. If sizes vary and a file cannot hold such a picture, it holds a
    square that fits its size.
    """

    width: Annotated[int, Meta(ge=1, le=LARGEST_SIDE)]
    """Width in pixels. Example: 500"""
    height: Annotated[int, Meta(ge=1, le=LARGEST_SIDE)]
    """Height in pixels. Example: 375"""
    channels: Literal[1, 3] = 3
    """3: a colour picture; 1: a grey picture. Example: 3"""
    quality: Annotated[int, Meta(ge=1, le=100)] | None = None
    """Quality of a JPEG picture, which determines its quantisation tables; null: 75. Example: 90"""


def bounds(kind: str, image: ImageShape) -> tuple[int, int]:
    """Return the smallest and the largest size in bytes of a file with a picture. kind: jpeg or png. If no file can
    hold the picture, the largest size is less than the smallest.
    """
    if kind == "jpeg":
        frame, blocks = _JPEG_FRAME[image.channels], jpeg_blocks(image)
        return frame + _SMALLEST_BLOCK * blocks, frame + JPEG_BLOCK * blocks
    most = png_repetitions(image)
    if most < 0:
        return 1, 0
    largest = png_parts(image, 0).size
    return png_parts(image, most).size, largest + largest // 256 + 512


def square(kind: str, size: int, like: ImageShape | None) -> ImageShape:
    """Return the square that a photograph of `size` bytes has. like: its channels and its quality; None: a colour
    picture.
    """
    channels, quality = (3, None) if like is None else (like.channels, like.quality)
    side = min(math.isqrt(int(size / (_BYTES_PER_PIXEL[kind] * channels / 3))), LARGEST_SIDE)
    return ImageShape(side, side, channels, quality)


def jpeg_blocks(image: ImageShape) -> int:
    """Return the number of blocks of 8 x 8 values. The colours of a colour picture have half the resolution of its
    brightness (4:2:0), as cameras and Pillow write them.
    """
    unit, blocks = (16, 6) if image.channels > 1 else (8, 1)
    return -(-image.width // unit) * -(-image.height // unit) * blocks


# A PNG file: bytes up to the content of its first private chunk; bytes of compressed data in a chunk, as Pillow writes
# them; bytes of the length, name and checksum of a chunk; bytes around the compressed data (RFC 1950).
PNG_HEAD, PNG_DATA, PNG_CHUNK, PNG_FRAME = 41, 1 << 16, 12, 6
# Smallest private chunk: bytes that identify a sample.
_IDENTITY = 8
# Values at the beginning of the picture whose codes have seven bytes together.
PNG_FIRST = 6
# Values of a repetition, and bits of its code; bits of the code of the end (RFC 1951, 3.2.6).
PNG_REPEATED, PNG_REPETITION_BITS, PNG_END_BITS = 258, 13, 7


class PngParts(NamedTuple):
    """Parts of a PNG file. literals: number of values of the picture that are literals. repetitions: number of
    repetitions of 258 zeros. filler: bytes in the private chunk.
    """

    literals: int
    repetitions: int
    filler: int = _IDENTITY

    @property
    def data(self) -> int:
        """Bytes of the compressed data, with their header and checksum."""
        return PNG_FRAME + self.literals + 2 + -(-(PNG_REPETITION_BITS * self.repetitions + PNG_END_BITS) // 8)

    @property
    def size(self) -> int:
        """Bytes of the file."""
        chunks = -(-self.data // PNG_DATA) + 1
        return PNG_HEAD + self.filler + 4 + chunks * PNG_CHUNK + self.data


def png_parts(image: ImageShape, repetitions: int) -> PngParts:
    """Return the parts of the smallest file with a picture and a number of repetitions."""
    return PngParts(png_stride(image) * image.height - 1 - PNG_REPEATED * repetitions, repetitions)


def png_stride(image: ImageShape) -> int:
    """Return the number of values of a row: the type of its filter, and the values of its pixels."""
    return 1 + image.width * image.channels


def png_repetitions(image: ImageShape) -> int:
    """Return the largest number of repetitions in a picture; a negative number if the picture is too small."""
    if png_stride(image) < PNG_FIRST:
        return -1
    return (png_stride(image) * image.height - 1 - PNG_FIRST) // PNG_REPEATED
