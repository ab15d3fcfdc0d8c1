"""Width and height of an image, from the header of its file: JPEG (ITU-T T.81, B.2.2), PNG (ISO/IEC 15948, 11.2.2)."""

from collections.abc import Callable
from typing import NamedTuple

# Function that returns bytes of a file: the offset, and the largest number of bytes.
Source = Callable[[int, int], bytes]

_JPEG, _PNG = b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n"
# Markers of JPEG: frames, which have the size of the image; markers without a length; the beginning of the image data.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = frozenset((0x01, *range(0xD0, 0xD8)))
_SCAN, _END = 0xDA, 0xD9
# Largest number of segments before the frame; a profile of colours has up to 255.
_MOST_SEGMENTS = 1024


class PixelSize(NamedTuple):
    """Size of an image in pixels."""

    width: int
    height: int


def pixel_size(source: Source) -> PixelSize:
    """Return the size of an image. Raise ValueError, with the offset, if the file does not begin like a JPEG or PNG
    image.
    """
    magic = source(0, len(_PNG))
    if magic.startswith(_JPEG):
        size = _of_jpeg(source)
    elif magic == _PNG:
        size = _of_png(source)
    else:
        raise ValueError(f"byte 0: it begins with {magic.hex() or 'nothing'}, not like a JPEG or PNG image")
    if not size.width or not size.height:
        raise ValueError(f"an image of {size.width} x {size.height} pixels")
    return size


def _of_png(source: Source) -> PixelSize:
    header = source(8, 16)
    if len(header) < 16 or header[4:8] != b"IHDR":
        raise ValueError("byte 8: the header of a PNG image (IHDR) is missing")
    return PixelSize(int.from_bytes(header[8:12], "big"), int.from_bytes(header[12:16], "big"))


def _of_jpeg(source: Source) -> PixelSize:
    at = 2
    for _ in range(_MOST_SEGMENTS):
        head = source(at, 9)
        if len(head) < 4 or head[0] != 0xFF or head[1] in (_SCAN, _END):
            raise ValueError(f"byte {at}: the frame of a JPEG image is missing")
        if head[1] in _FRAMES and len(head) == 9:
            return PixelSize(int.from_bytes(head[7:9], "big"), int.from_bytes(head[5:7], "big"))
        if head[1] == 0xFF:  # fills up
            at += 1
        else:
            at += 2 if head[1] in _ALONE else 2 + int.from_bytes(head[2:4], "big")
    raise ValueError(f"byte {at}: no frame of a JPEG image in {_MOST_SEGMENTS} segments")
