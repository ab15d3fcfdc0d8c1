"""Metadata of a Zarr array: .zarray (version 2 of the format) or zarr.json (version 3).

The fields follow the specifications of Zarr, https://zarr-specs.readthedocs.io: storage specification version 2, and
core protocol version 3 with the codecs bytes, gzip, zstd, blosc, crc32c and sharding_indexed.
"""

import base64
import math
import os
from typing import Any, NamedTuple, cast

import msgspec
import numpy as np

from dlio_hpc.base.safe_text import single_line
from dlio_hpc.dataset import chunk_grid
from dlio_hpc.dataset.chunk_grid import Shape
from dlio_hpc.dataset.zarr_store import METADATA

# Largest file of metadata that is read, in bytes.
LARGEST = 16 << 20
# Largest number of axes, as in NumPy, and largest number of bytes of a decoded chunk and of the index of a shard.
_MOST_AXES, LARGEST_CHUNK, _LARGEST_INDEX = 32, 2**31, 64 << 20
# Bytes of an entry in the index of a shard, and of a CRC32C.
ENTRY, CHECKSUM = 16, 4
# Codecs that core/formats/zarr/codecs.py decodes, by the names of version 3. Version 2 has zlib in addition.
COMPRESSORS = ("gzip", "zlib", "zstd", "blosc")
# Types of values whose names NumPy has, too.
_TYPES = {"bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32",
          "float64", "complex64", "complex128"}  # fmt: skip
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class UnreadableMetadata(ValueError):
    """Metadata that are damaged, or that describe an array that cannot be read. The text says what is wrong."""


class Shards(NamedTuple):
    """Shards of an array. chunk: shape of the chunks in a shard. at_end: whether the index is at the end of the shard
    and not at its beginning. has_checksum: whether a CRC32C of the index follows it.
    """

    chunk: Shape
    at_end: bool
    has_checksum: bool


class ZarrMetadata(NamedTuple):
    """Metadata of an array. version: 2 or 3. shape: shape of the array. stored: shape of the part of the array that a
    file holds: a chunk, or a shard. shards: None if each file holds a chunk. dtype: type of the values in memory.
    stored_dtype: type of the values in a chunk. compressors: names of the codecs that encode the bytes of a chunk, in
    the order in which they are applied. prefix, separator: what is before, and between, the numbers in the name of a
    file. fill: bytes of the value of missing chunks; None if they are not known. obstacle: reason why only the library
    of the format can decode the chunks; empty if there is none.
    """

    version: int
    shape: Shape
    stored: Shape
    shards: Shards | None
    dtype: "np.dtype[Any]"
    stored_dtype: "np.dtype[Any]"
    compressors: tuple[str, ...]
    prefix: str
    separator: str
    fill: bytes | None
    obstacle: str

    @property
    def chunk(self) -> Shape:
        """Shape of a chunk, the unit of compression."""
        return self.stored if self.shards is None else self.shards.chunk

    @property
    def chunk_bytes(self) -> int:
        """Bytes of a decoded chunk."""
        return math.prod(self.chunk) * self.dtype.itemsize

    @property
    def chunks_of_shard(self) -> Shape:
        """Number of chunks on each axis of a shard."""
        return chunk_grid.of(self.stored, self.chunk)

    @property
    def index_bytes(self) -> int:
        """Bytes of the index of a shard."""
        has_checksum = self.shards is not None and self.shards.has_checksum
        return math.prod(self.chunks_of_shard) * ENTRY + CHECKSUM * has_checksum

    def name(self, at: Shape) -> str:
        """Return the name of a file of chunks, relative to the folder of the array. at: place of the chunk or shard in
        the grid.
        """
        return self.prefix + self.separator.join(map(str, at))


def find(folder: str) -> str | None:
    """Return the path of the metadata of an array or a group of version 3, or of an array of version 2, in a folder;
    None if there are none. Links are followed, as by the library.
    """
    for version in (3, 2):
        path = os.path.join(folder, METADATA[version])
        if os.path.isfile(path):
            return path
    return None


def read(path: str) -> ZarrMetadata:
    """Read the metadata of an array from a file. Raise UnreadableMetadata if they are not valid."""
    return parsed(content_of(path), os.path.basename(path))


def content_of(path: str) -> bytes:
    """Return the content of a file of metadata. Raise UnreadableMetadata if it is too large."""
    with open(path, "rb", buffering=0) as file:
        check_size(os.fstat(file.fileno()).st_size)
        return file.read(LARGEST + 1) or b""


def check_size(size: int) -> None:
    """Raise UnreadableMetadata if a file of metadata is too large to be read. size: bytes of the file."""
    if size > LARGEST:
        raise UnreadableMetadata(f"it has {size} bytes; metadata of at most {LARGEST >> 20} MiB are read")


def parsed(content: bytes, name: str) -> ZarrMetadata:
    """Return the metadata in the content of the file with a name. Raise UnreadableMetadata if they are not valid."""
    check_size(len(content))
    fields = decoded(content)
    try:
        made = _of_version_2(fields) if name == METADATA[2] else _of_version_3(fields)
    except UnreadableMetadata:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, IndexError) as fault:
        raise UnreadableMetadata(f"a field is missing or not valid: {type(fault).__name__}: {_line(fault)}") from fault
    _check(made)
    return made


def decoded(content: bytes) -> dict[str, Any]:
    """Return the fields of a file of metadata. Raise UnreadableMetadata if it is not a JSON object."""
    try:
        fields = msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as fault:
        raise UnreadableMetadata(f"it is not JSON: {_line(fault)}") from fault
    if not isinstance(fields, dict):
        raise UnreadableMetadata("it is not a JSON object")
    return fields


def _line(fault: Exception) -> str:
    return " ".join(str(fault).split())[:200]


def _of_version_2(fields: dict[str, Any]) -> ZarrMetadata:
    if fields.get("zarr_format") != 2:
        raise UnreadableMetadata(f"zarr_format is {fields.get('zarr_format')!r}, expected 2")
    dtype = _numpy_type(fields["dtype"])
    compressor, filters = fields.get("compressor"), fields.get("filters") or []
    names = [] if compressor is None else [str(compressor["id"])]
    unknown = [f"the filter {entry['id']}" for entry in filters]
    unknown += [f"the codec {name}" for name in names if name not in COMPRESSORS]
    if fields.get("order", "C") != "C":
        unknown.append("the order F")
    return ZarrMetadata(
        2,
        _shape(fields["shape"], "shape"),
        _shape(fields["chunks"], "chunks"),
        None,
        dtype,
        dtype,
        tuple(names),
        "",
        _separator(fields.get("dimension_separator", ".")),
        _fill(dtype, fields.get("fill_value")),
        _obstacle(unknown),
    )


def _of_version_3(fields: dict[str, Any]) -> ZarrMetadata:
    if fields.get("zarr_format") != 3:
        raise UnreadableMetadata(f"zarr_format is {fields.get('zarr_format')!r}, expected 3")
    if fields.get("node_type") != "array":
        raise UnreadableMetadata(f"it describes a {fields.get('node_type')!r}, not an array")
    grid, encoding = fields["chunk_grid"], fields.get("chunk_key_encoding", {"name": "default"})
    if grid["name"] != "regular":
        raise UnreadableMetadata(f"the chunk grid {grid['name']!r} cannot be read; only regular grids can")
    if fields.get("storage_transformers"):
        raise UnreadableMetadata("storage transformers cannot be read")
    dtype = _type_of_version_3(fields["data_type"])
    stored, codecs = _shape(grid["configuration"]["chunk_shape"], "chunk_shape"), fields["codecs"]
    shards = None
    unknown: list[str] = []
    if any(codec["name"] == "sharding_indexed" for codec in codecs):
        if len(codecs) > 1:
            unknown.append("codecs besides sharding_indexed")
        configuration = next(codec["configuration"] for codec in codecs if codec["name"] == "sharding_indexed")
        shards, codecs = _shards(configuration, unknown), configuration["codecs"]
    stored_dtype, names = _codecs(codecs, dtype, unknown)
    is_default = encoding["name"] == "default"
    if not is_default and encoding["name"] != "v2":
        raise UnreadableMetadata(f"the chunk key encoding {encoding['name']!r} cannot be read")
    separator = _separator((encoding.get("configuration") or {}).get("separator", "/" if is_default else "."))
    return ZarrMetadata(
        3,
        _shape(fields["shape"], "shape"),
        stored,
        shards,
        dtype,
        stored_dtype,
        names,
        f"c{separator}" if is_default else "",
        separator,
        _fill(dtype, fields["fill_value"]),
        _obstacle(unknown),
    )


def _shards(configuration: dict[str, Any], unknown: list[str]) -> Shards:
    """Return the shards that a codec sharding_indexed describes. Codecs of the index that are not known are added to
    `unknown`.
    """
    codecs = configuration.get("index_codecs") or [{"name": "bytes"}, {"name": "crc32c"}]
    names = tuple(codec["name"] for codec in codecs)
    is_little = (codecs[0].get("configuration") or {}).get("endian", "little") == "little"
    if names not in {("bytes",), ("bytes", "crc32c")} or not is_little:
        unknown.append(f"the codecs {' and '.join(names)} of the index of a shard")
    location = configuration.get("index_location", "end")
    if location not in ("start", "end"):
        raise UnreadableMetadata(f"index_location is {location!r}, expected start or end")
    return Shards(_shape(configuration["chunk_shape"], "chunk_shape"), location == "end", "crc32c" in names)


def _codecs(
    codecs: list[dict[str, Any]], dtype: "np.dtype[Any]", unknown: list[str]
) -> tuple["np.dtype[Any]", tuple[str, ...]]:
    """Return the type of the values in a chunk, and the names of the codecs of bytes. Others are added to `unknown`."""
    stored, names = dtype, []
    for codec in codecs:
        name = str(codec["name"])
        if name == "bytes":
            endian = (codec.get("configuration") or {}).get("endian", "little")
            stored = dtype.newbyteorder("<" if endian == "little" else ">")
        elif name == "crc32c" or name in COMPRESSORS:
            names.append(name)
        else:
            unknown.append(f"the codec {name}")
    return stored, tuple(names)


def _obstacle(unknown: list[str]) -> str:
    return single_line(f"they have {', '.join(unknown)[:200]}") if unknown else ""


def _shape(values: Any, field: str) -> Shape:
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise UnreadableMetadata(f"{field} is {str(values)[:80]}, expected a list of numbers")
    return tuple(values)


def _separator(value: Any) -> str:
    if value not in (".", "/"):
        raise UnreadableMetadata(f"the separator of chunk keys is {str(value)[:20]!r}, expected '.' or '/'")
    return cast(str, value)


def _numpy_type(name: Any) -> "np.dtype[Any]":
    if not isinstance(name, str):
        raise UnreadableMetadata("the values have several fields, which cannot be read")
    dtype: np.dtype[Any] = np.dtype(name)
    if dtype.hasobject:
        raise UnreadableMetadata("the values are Python objects, which have no fixed size")
    return dtype


def _type_of_version_3(name: Any) -> "np.dtype[Any]":
    """Return the type of the values in memory. name: field data_type."""
    if isinstance(name, dict):
        return _configured_type(str(name["name"]), name.get("configuration") or {})
    if name in _TYPES:
        return _numpy_type(name)
    if isinstance(name, str) and name.startswith("r") and name[1:].isdecimal() and int(name[1:]) % 8 == 0:
        return _numpy_type(f"V{int(name[1:]) // 8}")
    raise UnreadableMetadata(
        f"values of type {str(name)[:80]} cannot be read: they have no fixed size, or are not known"
    )


def _configured_type(name: str, keys: dict[str, Any]) -> "np.dtype[Any]":
    if name in ("numpy.datetime64", "numpy.timedelta64"):
        factor = int(keys.get("scale_factor", 1))
        return _numpy_type(f"<{'M' if 'date' in name else 'm'}8[{factor if factor > 1 else ''}{keys['unit']}]")
    lengths = {"fixed_length_utf32": ("<U", 4), "null_terminated_bytes": ("S", 1), "raw_bytes": ("V", 1)}
    if name not in lengths:
        raise UnreadableMetadata(
            f"values of type {name[:80]} cannot be read: they have no fixed size, or are not known"
        )
    kind, width = lengths[name]
    return _numpy_type(f"{kind}{int(keys['length_bytes']) // width}")


def _fill(dtype: "np.dtype[Any]", value: Any) -> bytes | None:
    """Return the bytes of the fill value in memory; None if they are not known. value: as the metadata have it."""
    if value is None:
        return bytes(dtype.itemsize)
    try:
        if isinstance(value, (list, dict)) and not (dtype.kind == "c" and len(value) == 2):
            raise TypeError(value)  # no single value
        if isinstance(value, str) and dtype.kind in "SV":
            return base64.b64decode(value).ljust(dtype.itemsize, b"\0")[: dtype.itemsize]
        if isinstance(value, str) and value.startswith("0x"):
            return bytes.fromhex(value[2:])[::-1].ljust(dtype.itemsize, b"\0")[: dtype.itemsize]
        if isinstance(value, list) and dtype.kind == "c":
            value = np.array([_SPECIAL.get(part, part) for part in value], np.float64).view(np.complex128)[0]
        if dtype.kind in "Mm" and value != "NaT":
            return np.array(value, np.int64).view(dtype).tobytes()
        return np.array(_SPECIAL.get(value, value) if isinstance(value, str) else value).astype(dtype).tobytes()
    except (ValueError, TypeError, OverflowError):
        return None


def _check(made: ZarrMetadata) -> None:
    """Raise UnreadableMetadata if shapes do not fit together, or are too large."""
    shapes = (made.shape, made.stored, made.chunk)
    if not made.dtype.itemsize:
        raise UnreadableMetadata("the values have no bytes")
    if len({len(shape) for shape in shapes}) > 1 or len(made.shape) > _MOST_AXES:
        raise UnreadableMetadata(
            f"an array of {len(made.shape)} axes has chunks of {len(made.stored)} and {len(made.chunk)}"
        )
    if min((*made.stored, *made.chunk), default=1) < 1:
        raise UnreadableMetadata(f"chunks of shape {list(made.chunk)} hold nothing")
    if math.prod(made.shape) * made.dtype.itemsize >= 2**63:
        raise UnreadableMetadata(f"an array of shape {list(made.shape)} has 2^63 bytes or more")
    if made.chunk_bytes >= LARGEST_CHUNK:
        raise UnreadableMetadata(
            f"a chunk of shape {list(made.chunk)} has {made.chunk_bytes} bytes; less than 2 GiB are read"
        )
    if made.shards is not None:
        if any(whole % part for whole, part in zip(made.stored, made.chunk, strict=True)):
            raise UnreadableMetadata(
                f"chunks of shape {list(made.chunk)} do not divide shards of shape {list(made.stored)}"
            )
        if made.index_bytes > _LARGEST_INDEX:
            raise UnreadableMetadata(f"the index of a shard has {made.index_bytes} bytes; at most 64 MiB are read")
