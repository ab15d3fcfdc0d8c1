"""Scan of an existing file for its samples, for each format. A scan checks that the file has the format."""

import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import numpy as np

from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.config.dataset_keys import TFRECORD_FRAME, Dataset
from dlio_hpc.dataset import (
    array_scans,
    file_signatures,
    image_header,
    packed_scan,
    parquet_footer,
    stored_parts,
    tar_scan,
    token_scan,
    zarr_scan,
)
from dlio_hpc.dataset.inflate import MAGICS
from dlio_hpc.dataset.sample_index import FileSamples, ScannedFile
from dlio_hpc.dataset.thrift_reader import Malformed

# First bytes of images, by the endings of their names. Any of them is accepted for any of the endings, because
# collections of images have files with wrong endings.
_IMAGE_NAMES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff")
_IMAGE_MAGICS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF8", b"BM", b"RIFF", b"II*\0", b"MM\0*")
_TFRECORD_HEAD = 12
# Bytes that the scan of a TFRecord file reads in one request. It reads whole blocks only while records are smaller.
_BLOCK = 64 << 10


def raw(path: str, size: int, dataset: Dataset) -> ScannedFile:
    """Scan a raw file: it is one sample, or holds samples of the size `existing.sample_bytes`. A file with the name of
    an image must begin like an image.
    """
    if not size:
        raise ConfigError(f"{path} is empty; choose a pattern that leaves it out")
    is_image = path.lower().endswith(_IMAGE_NAMES)
    with _opened(path) as descriptor:
        magic = os.pread(descriptor, 8, 0) if is_image else b""
    if is_image and not magic.startswith(_IMAGE_MAGICS):
        raise ConfigError(
            f"{path} is not an image: it begins with {magic.hex()}; choose a pattern that leaves it out, or repair it"
        )
    part = size if dataset.existing is None else dataset.existing.sample_bytes or size
    if size % part:
        raise ConfigError(
            f"{path} has {size} bytes, which is not a multiple of dataset.existing.sample_bytes: {part}; set the size "
            "of the samples in these files, or null if each file is one sample"
        )
    return ScannedFile(FileSamples(0, np.full(size // part, part, np.int64)))


def tfrecord(path: str, size: int, dataset: Dataset) -> ScannedFile:
    """Scan a TFRecord file: read the head of each record, and verify the checksum of its length. A file that is
    compressed as a whole is decompressed.
    """
    sizes = []
    with _opened(path) as descriptor:
        if (compression := _compression(os.pread(descriptor, _TFRECORD_HEAD, 0))) != "none":
            of_records = packed_scan.sizes(path, descriptor, compression, _record_length)
            samples = FileSamples(_TFRECORD_HEAD, np.array(of_records, np.int64))
            return ScannedFile(samples, compression=compression)
        offset = 0
        for head in _heads(descriptor, size):
            length = _record_length(path, offset, head)
            offset += length + TFRECORD_FRAME
            sizes.append(length)
            if offset > size:
                raise ConfigError(
                    f"{path} is truncated: its last record ends at byte {offset}, but the file has {size} bytes"
                )
    return ScannedFile(FileSamples(_TFRECORD_HEAD, np.array(sizes, np.int64)), compression="none" if size else "")


def _compression(head: bytes) -> str:
    """Return the compression of a TFRecord file. head: first bytes of the file. The length of a record may begin with
    the same bytes as a compressed file.
    """
    return "none" if _is_head(head) else MAGICS.get(head[:2], "none")


def _heads(descriptor: int, size: int) -> Iterator[bytes]:
    """Yield the head of each record of a TFRecord file. The lengths in the heads must be valid."""
    offset = begin = 0
    block = b""
    while offset < size:
        if not begin <= offset <= begin + len(block) - _TFRECORD_HEAD:
            is_near = offset - begin < _BLOCK
            begin, block = offset, os.pread(descriptor, _BLOCK if is_near else _TFRECORD_HEAD, offset)
        head = block[offset - begin :][:_TFRECORD_HEAD]
        yield head
        offset += int.from_bytes(head[:8], "little") + TFRECORD_FRAME


def _record_length(path: str, offset: int, head: bytes) -> int:
    """Return the length in the head of a record. Raise ConfigError if the checksum of the length is wrong, or if the
    record is empty.
    """
    if _is_head(head):
        length = int.from_bytes(head[:8], "little")
        if not length:
            raise ConfigError(f"{path}: the record at byte {offset} is empty; such files cannot be read")
        return length
    if offset:
        raise ConfigError(f"{path} is corrupted: there is no record at byte {offset}, where the record before it ends")
    raise ConfigError(
        f"{path} is not a TFRecord file: the checksum of its first record's length is wrong; set dataset.format to "
        "the format of the files, or choose another pattern"
    )


def _is_head(head: bytes) -> bool:
    """Return whether these bytes are the head of a record, with the correct checksum of its length."""
    import google_crc32c

    crc = google_crc32c.value(head[:8])
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return len(head) == _TFRECORD_HEAD and bool(struct.unpack("<I", head[8:])[0] == masked)


def _npz(path: str, size: int, dataset: Dataset) -> ScannedFile:
    return array_scans.npz(path, size, dataset.existing.array if dataset.existing else None)


def _npy(path: str, size: int, dataset: Dataset) -> ScannedFile:
    return array_scans.npy(path, size, dataset.existing is not None and dataset.existing.rows)


def image(path: str, size: int, dataset: Dataset) -> ScannedFile:
    """Scan an image: a file is one sample. JPEG and PNG files are accepted for both formats, because collections of
    images have files with wrong endings.
    """
    with _opened(path) as descriptor:
        begin = os.pread(descriptor, _BLOCK, 0)
        try:
            image_header.pixel_size(
                lambda at, count: begin[at : at + count] if at + count <= _BLOCK else os.pread(descriptor, count, at)
            )
        except ValueError as reason:
            raise ConfigError(
                f"{path} is not an image that can be read, or is corrupted: {reason}; choose a pattern that leaves it "
                "out, or set dataset.format to the format of the files (raw for images of other formats)"
            ) from reason
    return ScannedFile(FileSamples(0, np.array([size], np.int64)))


def _hdf5(path: str, size: int, dataset: Dataset) -> ScannedFile:
    return array_scans.hdf5(path, size, dataset.existing.array if dataset.existing else None)


def parquet(path: str, size: int, dataset: Dataset) -> ScannedFile:
    """Scan a Parquet file: read its footer. A sample is a row group."""
    columns: dict[str, int] = {}
    with _opened(path) as descriptor:
        try:
            begin, footer = parquet_footer.located(descriptor, size)
            groups = parquet_footer.parsed(footer, begin)
        except parquet_footer.Unreadable as fault:
            raise ConfigError(f"{path} {fault}") from fault
        except Malformed as fault:
            raise ConfigError(
                f"{path} is not a Parquet file, or is truncated or corrupted: {fault}; repair it, or choose a pattern "
                "that leaves it out"
            ) from fault
    for group in groups:
        for chunk in group.chunks:
            columns[chunk.column] = columns.get(chunk.column, 0) + chunk.size
    return ScannedFile(
        FileSamples(begin, np.array([group.size for group in groups], np.int64)), columns=tuple(columns.items())
    )


def _tar(path: str, size: int, _: Dataset) -> ScannedFile:
    with _opened(path) as descriptor:
        return tar_scan.scan(path, descriptor, size)


def _indexed(path: str, size: int, dataset: Dataset) -> ScannedFile:
    _, index = stored_parts.names_beside(dataset, path)
    return token_scan.scan(path, index, size, dataset)


def _zarr(path: str, _size: int, _: Dataset) -> ScannedFile:
    return zarr_scan.scan(path)


_SCANS: dict[str, Callable[[str, int, Dataset], ScannedFile]] = {
    "raw": raw, "tfrecord": tfrecord, "npz": _npz, "npy": _npy, "hdf5": _hdf5, "parquet": parquet, "jpeg": image,
    "png": image, "tar": _tar, "indexed": _indexed, "zarr": _zarr,
}  # fmt: skip


def scan(path: str, size: int, dataset: Dataset) -> ScannedFile:
    """Return the samples of the file at `path`. size: size of the file in bytes. Raise ConfigError if the file does not
    have the format of the dataset, and InfrastructureError if it cannot be read.
    """
    try:
        return _SCANS[dataset.format](path, size, dataset)
    except OSError as fault:
        raise _unreadable(path, fault) from fault
    except ConfigError as fault:
        if (what := file_signatures.foreign(_head(path), dataset.format)) == "":
            raise
        raise ConfigError(f"{path} {what}") from fault


def _head(path: str) -> bytes:
    """Return the first bytes of a file; none if it cannot be read."""
    with suppress(OSError), _opened(path) as descriptor:
        return os.pread(descriptor, file_signatures.HEAD, 0)
    return b""


def _unreadable(path: str, fault: OSError) -> ConfigError | InfrastructureError:
    if isinstance(fault, PermissionError):
        return ConfigError(
            f"cannot read {path}: {fault.strerror}; ask its owner for read permission, or choose a pattern that leaves "
            "it out"
        )
    return InfrastructureError(f"cannot read {of_system(fault, path)}")


@contextmanager
def _opened(path: str) -> Iterator[int]:
    """Open a file for reading in a `with` block, and yield its descriptor. The kernel is asked not to read ahead."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
        yield descriptor
    finally:
        os.close(descriptor)
