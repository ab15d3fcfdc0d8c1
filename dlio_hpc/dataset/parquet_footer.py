"""The footer of a Parquet file: where the column chunks of its row groups are. Numbers of fields and types are those of
the definition of the format (apache/parquet-format: parquet.thrift).
"""

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from dlio_hpc.dataset.thrift_reader import BINARY, I32, I64, LIST, STRUCT, Malformed, ThriftReader

T = TypeVar("T")

MAGIC, _ENCRYPTED = b"PAR1", b"PARE"
# Bytes at the end of a file: the length of the metadata, and the magic bytes.
TAIL = 8
# Bytes at the end of a file that the scan reads in one request, like pyarrow.
_AT_ONCE = 64 << 10
_LARGEST = 256 << 20
# Bytes of a value in memory, by the number of its physical type: BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE,
# BYTE_ARRAY (its offset) and FIXED_LEN_BYTE_ARRAY (at least).
_VALUE_BYTES = (1, 4, 8, 12, 4, 8, 4, 1)
# RATIO: maximum ratio of the values of a row group in memory to their bytes in the file. ALLOWANCE: bytes that a row
# group may have in memory in excess of this ratio. Runs of equal values take a few bytes for any number of values.
RATIO, ALLOWANCE = 512, 1 << 30


class StoredColumn(NamedTuple):
    """Column chunk. column: names from the top of the schema to the column, joined by dots. offset, size: its bytes in
    the file. in_memory: lower bound on the bytes of its values in memory.
    """

    column: str
    offset: int
    size: int
    in_memory: int


class StoredRowGroup(NamedTuple):
    """Row group, with its column chunks in the order of the schema."""

    rows: int
    chunks: tuple[StoredColumn, ...]

    @property
    def size(self) -> int:
        """Bytes of its column chunks in the file."""
        return sum(chunk.size for chunk in self.chunks)


class Unreadable(Exception):
    """A file that is not damaged, but cannot be read. The message is a sentence without its subject."""


def located(descriptor: int, size: int) -> tuple[int, bytes]:
    """Return the offset of the footer of a file, and its bytes. size: size of the file. Raise Malformed if the file is
    not a Parquet file, and Unreadable if it is encrypted.
    """
    begin = max(0, size - _AT_ONCE)
    end = os.pread(descriptor, size - begin, begin)
    magic = end[-len(MAGIC) :]
    if magic == _ENCRYPTED:
        raise Unreadable("is encrypted; decrypt it, or choose a pattern that leaves it out")
    if magic != MAGIC or os.pread(descriptor, len(MAGIC), 0) != MAGIC:
        raise Malformed(f"it does not begin and end with {MAGIC.decode()}")
    length = int.from_bytes(end[-TAIL : -len(MAGIC)], "little") + TAIL
    if length > size - len(MAGIC):
        raise Malformed(f"its metadata have {length - TAIL} bytes, but the file has {size} bytes")
    if length > _LARGEST:
        raise Unreadable(f"has a footer of {length} bytes, and at most {_LARGEST} bytes can be read")
    footer = end[-length:] if length <= len(end) else os.pread(descriptor, length, size - length)
    return size - length, footer


def parsed(footer: bytes, offset: int) -> list[StoredRowGroup]:
    """Return the row groups of a file. footer: bytes from the metadata to the end of the file. offset: offset of the
    footer, at which the column chunks end. Raise Malformed or Unreadable.
    """
    reader, groups = ThriftReader(footer[:-TAIL], offset), list[StoredRowGroup]()
    names: dict[tuple[bytes, ...], str] = {}
    for number, kind in reader.fields():
        if number == _FILE_GROUPS:
            groups = _listed(reader, kind, lambda: _group(reader, names))
        elif number == _FILE_ENCRYPTION:
            raise Unreadable("has encrypted columns; decrypt it, or choose a pattern that leaves it out")
        else:
            reader.skip(kind)
    for index, group in enumerate(groups):
        _check(index, group, offset)
        if [chunk.column for chunk in group.chunks] != [chunk.column for chunk in groups[0].chunks]:
            raise Malformed(f"row group {index} has other columns than row group 0")
    return groups


# Numbers of fields of FileMetaData, RowGroup, ColumnChunk and ColumnMetaData.
_FILE_GROUPS, _FILE_ENCRYPTION = 4, 8
_GROUP_COLUMNS, _GROUP_ROWS = 1, 3
_CHUNK_FILE, _CHUNK_META, _CHUNK_ENCRYPTION = 1, 3, 8
_META_TYPE, _META_PATH, _META_VALUES, _META_UNCOMPRESSED, _META_SIZE = 1, 3, 5, 6, 7
_META_DATA_AT, _META_DICTIONARY_AT = 9, 11
_NUMBERS = {
    _META_TYPE, _META_VALUES, _META_UNCOMPRESSED, _META_SIZE, _META_DATA_AT, _META_DICTIONARY_AT,
}  # fmt: skip


def _check(index: int, group: StoredRowGroup, footer_at: int) -> None:
    """Raise Malformed if a column chunk is not in the file, and Unreadable if the values need far more memory."""
    for chunk in group.chunks:
        if chunk.size < 0 or not len(MAGIC) <= chunk.offset <= footer_at - chunk.size:
            raise Malformed(
                f"column {chunk.column} of row group {index} has {chunk.size} bytes at byte {chunk.offset}, but column "
                f"chunks are between byte {len(MAGIC)} and byte {footer_at}"
            )
    if not 0 < group.size <= footer_at or group.rows < 0:
        raise Malformed(f"row group {index} has {group.rows} rows in {group.size} bytes")
    in_memory = sum(chunk.in_memory for chunk in group.chunks)
    if in_memory > ALLOWANCE + RATIO * group.size:
        raise Unreadable(
            f"has a decompression bomb: row group {index} has {group.size} bytes, but its values need {in_memory} "
            "bytes of memory; choose a pattern that leaves it out"
        )


def _listed(reader: ThriftReader, kind: int, item: Callable[[], T]) -> list[T]:
    """Return the structs of a list."""
    reader.wanted(kind, LIST)
    count, inner = reader.items()
    if count:
        reader.wanted(inner, STRUCT)
    return [item() for _ in range(count)]


def _group(reader: ThriftReader, names: dict[tuple[bytes, ...], str]) -> StoredRowGroup:
    chunks, rows = list[StoredColumn](), 0
    for number, kind in reader.fields():
        if number == _GROUP_COLUMNS:
            chunks = _listed(reader, kind, lambda: _chunk(reader, names))
        elif number == _GROUP_ROWS:
            reader.wanted(kind, I64)
            rows = reader.integer()
        else:
            reader.skip(kind)
    if not chunks:
        raise reader.malformed("a row group without columns ends")
    return StoredRowGroup(rows, tuple(chunks))


def _chunk(reader: ThriftReader, names: dict[tuple[bytes, ...], str]) -> StoredColumn:
    chunk: StoredColumn | None = None
    for number, kind in reader.fields():
        if number == _CHUNK_META:
            reader.wanted(kind, STRUCT)
            chunk = _metadata(reader, names)
        elif number == _CHUNK_FILE:
            raise Unreadable("has columns in other files; choose a pattern for the files that hold the columns")
        elif number == _CHUNK_ENCRYPTION:
            raise Unreadable("has encrypted columns; decrypt it, or choose a pattern that leaves it out")
        else:
            reader.skip(kind)
    if chunk is None:
        raise reader.malformed("a column chunk without metadata ends")
    return chunk


def _metadata(reader: ThriftReader, names: dict[tuple[bytes, ...], str]) -> StoredColumn:
    """Return the column chunk that its metadata describe. names: names of columns that are known already."""
    numbers, path = dict.fromkeys(_NUMBERS, 0), tuple[bytes, ...]()
    for number, kind in reader.fields():
        if number in _NUMBERS:
            reader.wanted(kind, I64, I32)
            numbers[number] = reader.integer()
        elif number == _META_PATH:
            path = _path(reader, kind)
        else:
            reader.skip(kind)
    physical = numbers[_META_TYPE]
    if not path or not 0 <= physical < len(_VALUE_BYTES):
        raise reader.malformed("the metadata of a column chunk without name or type end")
    name = names.setdefault(path, b".".join(path).decode(errors="replace"))
    begin, dictionary = numbers[_META_DATA_AT], numbers[_META_DICTIONARY_AT]
    values = numbers[_META_VALUES] * _VALUE_BYTES[physical]
    return StoredColumn(
        name,
        dictionary if dictionary > 0 and (dictionary < begin or not begin) else begin,
        numbers[_META_SIZE],
        max(values, numbers[_META_UNCOMPRESSED]),
    )


def _path(reader: ThriftReader, kind: int) -> tuple[bytes, ...]:
    reader.wanted(kind, LIST)
    count, inner = reader.items()
    if count:
        reader.wanted(inner, BINARY)
    return tuple(reader.binary() for _ in range(count))
