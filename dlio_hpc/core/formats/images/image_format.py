"""Images (JPEG, PNG): each file is a sample.

Mode `posix` reads the bytes of a file and does not decode them. Mode `framework` also decodes the image: with the
loader tensorflow as tf.io.read_file and tf.io.decode_image do, otherwise as Pillow does, which torchvision's
ImageFolder calls. The time of decoding counts as preprocessing. The batch gets the bytes of the file, so that they can
be compared with the generated contents; the decoded image is discarded.
"""

import os
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.config import image_keys
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.image_keys import PNG_HEAD, ImageShape
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import file_comparison
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import WORD, Rows
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.files import write_file
from dlio_hpc.core.formats.format import Expected, Format, Paths, SampleReader
from dlio_hpc.core.formats.images import jpeg, png
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.formats.whole_file import Array, CountedFile, WholeFileReader, buffered
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.image_header import PixelSize, pixel_size
from dlio_hpc.dataset.sample_layout import Place, SampleLayout

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Errors of Pillow for a file that is no image, or that is damaged.
_DAMAGE = (OSError, ValueError, SyntaxError, EOFError, IndexError, KeyError, TypeError, AttributeError, OverflowError,
           NotImplementedError, RuntimeError, struct.error, zlib.error)  # fmt: skip
# Bytes that tf.io.read_file asks for at a time (strace, TensorFlow 2.21).
_TENSORFLOW = 1 << 20
# Largest number of pixels of an image that is decoded. Pillow has the same limit.
_MOST_PIXELS = 178_956_970


class Encoder(NamedTuple):
    """How images of a format are made. kind: name of the format. encode: fills an array with a file, given a picture
    and a position of the content stream. identity: offset of the bytes that identify a sample.
    """

    kind: str
    encode: Callable[[Rows, ImageShape, int], None]
    identity: int


class _Images:
    """The image files of a dataset."""

    def __init__(self, encoder: Encoder, dataset: Dataset) -> None:
        self._encoder = encoder
        self._places = SampleLayout(dataset)
        self._image = dataset.image or image_keys.square(encoder.kind, dataset.sample.size, None)
        self._least, self._most = image_keys.bounds(encoder.kind, self._image)

    def encode(self, place: Place) -> Rows:
        """Return the bytes of a file. place: location of its sample."""
        image = self._image
        if not self._least <= place.size <= self._most:
            image = image_keys.square(self._encoder.kind, place.size, image)
        row = np.empty(place.size, np.uint8)
        self._encoder.encode(row, image, place.position)
        return row

    def of(self, first: int, end: int) -> Iterator[Rows]:
        """Yield the bytes of the files from `first` to `end` - 1."""
        return map(self.encode, self._places.of(np.arange(first, end, dtype=np.uint64)))


def _format(encoder: Encoder) -> Format:
    """Return the functions of a format."""

    def contents(dataset: Dataset, first: int, end: int) -> Iterator[memoryview]:
        return (row.data for row in _Images(encoder, dataset).of(first, end))

    def write(descriptor: int, dataset: Dataset, number: int) -> None:
        write_file(descriptor, contents(dataset, number, number + 1))

    def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
        size = SampleLayout(dataset).file_size(number)
        pieces = None if quick else contents(dataset, number, number + 1)
        return file_comparison.of_file(path, size, pieces, lambda at: number)

    def sizes(dataset: Dataset) -> Callable[[int], int]:
        return SampleLayout(dataset).file_size

    return Format(
        write, reader, fault, partial(_expected, encoder), -(-(encoder.identity + WORD) // 4) * 4, contents, sizes
    )


def _expected(encoder: Encoder, dataset: Dataset) -> Expected:
    """Return the function that fills an array with a part of an image file."""
    images = _Images(encoder, dataset)

    def fill(row: Rows, place: Place, begin: int) -> None:
        row[:] = images.encode(place)[begin : begin + len(row)]

    return fill


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "posix":
        return FlatReader(workload, paths, comm, lambda *_: 0)
    is_read_whole = workload.reader.loader == "tensorflow"
    return WholeFileReader(workload, paths, _read_and_decode if is_read_whole else _Pillow())


def _read_and_decode(path: str, tally: Tally) -> list[Array]:
    """Read and decode a file as TensorFlow does."""
    import tensorflow as tf

    with _CopiedFile(path, tally) as file:
        memory = bytearray(_TENSORFLOW)
        while file.readinto(memory):
            pass
        data = file.copy.tobytes()
    started = now()
    try:
        if data[:1] in (b"\xff", b"\x89"):
            _check_pixels(path, pixel_size(lambda at, count: data[at : at + count]))
        tf.io.decode_image(data, expand_animations=False)
    except tf.errors.InvalidArgumentError as reason:
        raise damaged(path, reason.message.partition(" [Op:")[0].partition("}} ")[2]) from reason
    except ValueError as reason:
        raise damaged(path, reason) from reason
    tally.preprocess_s += now() - started
    return [file.copy]


class _Pillow:
    """Callable that reads and decodes a file as Pillow does. Pillow reads the header of a JPEG file twice if it is
    larger than the buffer; this counts as overhead. It does not read bytes after the image; they are read at the end.
    """

    def __init__(self) -> None:
        try:
            from PIL import Image as pillow  # noqa: N813 - a module, whose name is that of its class
        except ImportError as fault:
            raise ConfigError(
                "dataset.format=jpeg and png with reader.mode=framework need Pillow, which is not installed; run pip "
                "install pillow, or set reader.mode=posix"
            ) from fault
        pillow.preinit()  # loads its modules, so that the first image does not take the time
        pillow.MAX_IMAGE_PIXELS = None  # it would warn; _check_pixels() has the limit
        self._pillow: Any = pillow

    def __call__(self, path: str, tally: Tally) -> list[Array]:
        with _CopiedFile(path, tally) as file, buffered(file) as stream:
            started, first = now(), len(tally.starts)
            try:
                image = self._pillow.open(stream)
                _check_pixels(path, PixelSize(*image.size))
                image.load()
            except _DAMAGE as reason:
                if file.fault is not None:
                    raise file.fault from reason
                text = str(reason).partition(" <")[0] or type(reason).__name__
                raise damaged(path, f"{text} (at byte {file.end} or before)") from reason
            except MemoryError as reason:
                raise InvalidRun(f"{path}: no memory to decode this image; set reader.mode=posix") from reason
            if file.end < len(file.copy):
                stream.read()
            waited = sum(end - start for start, end in zip(tally.starts[first:], tally.ends[first:], strict=True))
            tally.preprocess_s += now() - started - waited
            tally.move_to_overhead(sum(tally.sizes[first:]) - len(file.copy))
            return [file.copy]


def _check_pixels(path: str, size: PixelSize) -> None:
    """Raise InvalidRun if an image has so many pixels that decoding it may need more memory than a node has."""
    if size.width * size.height > _MOST_PIXELS:
        raise InvalidRun(
            f"{path}: an image of {size.width} x {size.height} pixels is not decoded; the limit is "
            f"{_MOST_PIXELS:,} pixels; set reader.mode=posix, which does not decode images"
        )


class _CopiedFile(CountedFile):
    """Counted file that keeps what is read. copy: bytes of the file. end: offset after the last byte that was read."""

    def __init__(self, path: str, tally: Tally) -> None:
        super().__init__(path, tally)
        self.copy = np.empty(os.fstat(self.fileno()).st_size, np.uint8)
        self.end = self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = super().seek(offset, whence)
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        self._keep(memoryview(buffer)[:count])
        return count

    def readall(self) -> bytes:
        data = super().readall()
        self._keep(memoryview(data))
        return data

    def _keep(self, data: memoryview) -> None:
        """Copy what was read. A file that has grown since it was opened has more than the copy can hold."""
        end = min(self._at + len(data), len(self.copy))
        self.copy.data[self._at : end] = data[: end - self._at]
        self._at = end
        self.end = max(self.end, end)


JPEG = _format(Encoder("jpeg", jpeg.encode, jpeg.IDENTITY))
PNG = _format(Encoder("png", png.encode, PNG_HEAD))
