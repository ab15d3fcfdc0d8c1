"""Codecs of the bytes of a chunk. A decoder returns at most the bytes that it is allowed, so that a damaged chunk
cannot fill the memory.
"""

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import zstandard

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import LEVEL, Dataset
from dlio_hpc.core.content import Rows
from dlio_hpc.dataset.zarr_metadata import CHECKSUM, ZarrMetadata
from dlio_hpc.dataset.zarr_store import BLOSC_CODEC, BLOSC_LEVEL
from dlio_hpc.plan import packages

Bytes = bytes | memoryview
# Errors of decoders for damaged bytes.
DAMAGE = (ValueError, RuntimeError, zlib.error, zstandard.ZstdError)
# Bytes of the header of blosc, and where it has the bytes of a chunk before and after compression (blosc 1, README).
_BLOSC_HEADER, _BLOSC_BEFORE, _BLOSC_AFTER = 16, 4, 12
# Window bits of zlib for gzip, and for zlib itself.
_WINDOWS = {"gzip": 31, "zlib": 15}
# Bytes that a compressed chunk may have more than a chunk that is not compressed: headers and checksums of codecs.
_SPARE = 4 << 10


def largest(metadata: ZarrMetadata) -> int:
    """Return the number of bytes that an encoded chunk may have. Contents that cannot be compressed grow a little."""
    size = metadata.chunk_bytes
    return size + (size // 64 + _SPARE if metadata.compressors else 0)


def decode(data: Bytes, metadata: ZarrMetadata) -> "npt.NDArray[Any]":
    """Return the values of a chunk. data: bytes of the chunk in its file. Raise one of DAMAGE if they are damaged, or
    if they do not decode to the bytes of a chunk.
    """
    size = metadata.chunk_bytes
    for name in reversed(metadata.compressors):
        data = _DECODERS[name](data, size + _SPARE)
    if len(data) != size:
        raise ValueError(f"it decodes to {len(data)} bytes, but a chunk has {size}")
    values = np.frombuffer(data, metadata.stored_dtype).reshape(metadata.chunk)
    return values if metadata.stored_dtype == metadata.dtype else values.astype(metadata.dtype)


# Functions that return the bytes before compression that compressed data claim. A gzip file ends with them.
_CLAIMED: dict[str, Callable[[Bytes], int]] = {
    "zstd": zstandard.frame_content_size,
    "gzip": lambda data: int.from_bytes(data[-4:], "little"),
}


def check_claims(data: Bytes, name: str, most: int) -> None:
    """Raise ValueError if compressed data claim to have more than `most` bytes before compression, or more bytes than
    they have. Libraries believe these claims. name: codec.
    """
    if name == "blosc":
        before, after = _blosc_size(data, _BLOSC_BEFORE), _blosc_size(data, _BLOSC_AFTER)
        if before > most or after != len(data):
            raise ValueError(f"its blosc header claims {before} bytes, compressed to {after}; it has {len(data)}")
    if name in _CLAIMED:
        size = _CLAIMED[name](data)
        if size > most:
            raise ValueError(f"its {name} data claim {size} bytes")


def _from_zstd(data: Bytes, most: int) -> bytes:
    check_claims(data, "zstd", most)
    return zstandard.ZstdDecompressor().decompress(data, max_output_size=most, allow_extra_data=False)


def _from_deflate(data: Bytes, most: int, window: int) -> bytes:
    stream = zlib.decompressobj(window)
    made = stream.decompress(data, most + 1)
    if len(made) > most:
        raise ValueError(f"it decodes to more than {most} bytes")
    if not stream.eof or stream.unused_data:
        raise ValueError("its compressed data are cut, or more follow them")
    return made


def _blosc_size(data: Bytes, at: int) -> int:
    """Return a size in the header of blosc. at: its place."""
    if len(data) < _BLOSC_HEADER:
        raise ValueError(f"{len(data)} bytes are no blosc chunk")
    return int.from_bytes(data[at : at + 4], "little")


def _from_blosc(data: Bytes, most: int) -> bytes:
    check_claims(data, "blosc", most)
    made: bytes = _blosc().decompress(data)
    return made


def _checked(data: Bytes, _: int) -> Bytes:
    """Return data without the CRC32C that follows them."""
    import google_crc32c

    stored = int.from_bytes(data[-CHECKSUM:], "little")
    if len(data) < CHECKSUM or google_crc32c.value(bytes(data[:-CHECKSUM])) != stored:
        raise ValueError("its CRC32C is wrong")
    return data[:-CHECKSUM]


_DECODERS: dict[str, Callable[[Bytes, int], Bytes]] = {
    "gzip": functools.partial(_from_deflate, window=_WINDOWS["gzip"]),
    "zlib": functools.partial(_from_deflate, window=_WINDOWS["zlib"]),
    "zstd": _from_zstd,
    "blosc": _from_blosc,
    "crc32c": _checked,
}


def encode(values: "npt.NDArray[Any]", dataset: Dataset) -> Bytes:
    """Return the bytes of a generated chunk in its file. values: the chunk, contiguous."""
    return _ENCODERS[dataset.compression](values, dataset)


def _memory(values: "npt.NDArray[Any]") -> memoryview:
    rows: Rows = values.reshape(-1).view(np.uint8)
    return rows.data


def _to_deflate(values: "npt.NDArray[Any]", dataset: Dataset) -> bytes:
    level = LEVEL if dataset.level is None else dataset.level
    stream = zlib.compressobj(level, zlib.DEFLATED, _WINDOWS[dataset.compression])
    return stream.compress(_memory(values)) + stream.flush()


def _to_zstd(values: "npt.NDArray[Any]", _: Dataset) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=False).compress(_memory(values))


def _to_blosc(values: "npt.NDArray[Any]", _: Dataset) -> bytes:
    made: bytes = _blosc().compress(values.reshape(-1), BLOSC_CODEC.encode(), BLOSC_LEVEL, 1, 0)
    return made


_ENCODERS: dict[str, Callable[["npt.NDArray[Any]", Dataset], Bytes]] = {
    "none": lambda values, _: _memory(values),
    "gzip": _to_deflate,
    "zlib": _to_deflate,
    "zstd": _to_zstd,
    "blosc": _to_blosc,
}


def _blosc() -> Any:
    """Return the library of blosc. Raise ConfigError if it is missing."""
    try:
        from numcodecs import blosc
    except ImportError as fault:
        raise ConfigError(packages.advice("numcodecs")) from fault
    return blosc
