"""Layout of the Parquet files of a dataset: where each column chunk and each value is, and the bytes around the values.

A file has the magic bytes, its row groups, and the footer. A row group holds a column chunk for each column, one after
the other, uncompressed, without nulls and statistics. A column chunk has all values of the row group in one page:

- Up to 1 MiB of values: a dictionary of the values, and a page of the indexes 0, 1, 2 and so on. pyarrow's writer needs
  the same number of bytes if all values are different.
- More than 1 MiB of values: a page of the values in the encoding PLAIN. pyarrow's writer does not use a dictionary for
  so many values either.
- Values of 8 bits: a dictionary of all 256 values, and a page of indexes. The index of a value is its byte.

The values of samples that follow each other are therefore next to each other in the file.
"""

import functools
import itertools
from typing import NamedTuple

import numpy as np

from dlio_hpc.config.dataset_keys import COLUMN_BYTES, LARGEST_DICTIONARY, Column, ColumnType, Dataset, index_bits
from dlio_hpc.core.content import Rows
from dlio_hpc.core.formats.parquet import thrift

MAGIC = b"PAR1"
_CREATOR = "dlio-hpc"
_VERSION = 2
# Numbers of Parquet's definition (parquet.thrift): encodings, kinds of pages, repetition types, converted types.
_PLAIN, _RLE, _RLE_DICTIONARY = 0, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_REQUIRED, _REPEATED = 0, 2
_LIST = 3
_FIXED_BYTES, _FLOAT16 = 7, 15
# Physical type of each column type, and its converted type.
_PHYSICAL: dict[ColumnType, int] = {
    "int8": 1, "uint8": 1, "float16": _FIXED_BYTES, "int32": 1, "uint32": 1, "float32": 4, "int64": 2, "uint64": 2,
    "float64": 5,
}  # fmt: skip
_CONVERTED: dict[ColumnType, int | None] = {
    "int8": 15, "uint8": 11, "float16": None, "int32": None, "uint32": 13, "float32": None, "int64": None, "uint64": 14,
    "float64": None,
}  # fmt: skip
# Bytes of numbers that are copied as such.
_NUMBERS = (2, 4, 8)
# Bit-packed indexes come in groups of this number.
_PACKED = 8


class ColumnChunk(NamedTuple):
    """Column chunk of a row group. first, width: offset and size in bytes of the part of a sample that the column
    holds. head: bytes before the values. values: number of bytes of the values. tail: bytes after the values.
    dictionary: number of bytes of the dictionary page at the beginning; 0 if there is no such page. offset: offset of
    the chunk in the row group.
    """

    first: int
    width: int
    head: bytes
    values: int
    tail: bytes
    dictionary: int
    offset: int

    @property
    def values_at(self) -> int:
        """Offset of the values in the row group."""
        return self.offset + len(self.head)

    @property
    def size(self) -> int:
        return len(self.head) + self.values + len(self.tail)


class RowGroup(NamedTuple):
    """Row group of a file. offset: offset in the file. first: index in the file of the first sample. samples: number of
    samples. chunks: column chunks. size: size in bytes.
    """

    offset: int
    first: int
    samples: int
    chunks: tuple[ColumnChunk, ...]
    size: int


class ParquetLayout:
    """Layout that all files of a dataset have in common."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._samples = dataset.samples_per_file
        self.group_samples = dataset.row_group_samples
        self._full = _chunks(dataset.all_columns, self.group_samples)
        last = self._samples % self.group_samples
        self._last = _chunks(dataset.all_columns, last) if last else self._full
        self.groups = -(-self._samples // self.group_samples)

    def group(self, number: int) -> RowGroup:
        """Return a row group. number: from 0 to `groups` (exclusive)."""
        first = number * self.group_samples
        chunks = self._last if number == self.groups - 1 else self._full
        samples = min(self.group_samples, self._samples - first)
        return RowGroup(len(MAGIC) + number * _size(self._full), first, samples, chunks, _size(chunks))

    @property
    def footer_at(self) -> int:
        """Offset of the footer."""
        last = self.group(self.groups - 1)
        return last.offset + last.size

    @functools.cached_property
    def footer(self) -> bytes:
        """Bytes of the footer, followed by the length of the footer and the magic bytes at the end of the file."""
        columns = [_ColumnMetadata(*column) for column in _columns_of(self._dataset)]
        groups = [self._group_metadata(self.group(number), columns) for number in range(self.groups)]
        metadata = thrift.struct(
            thrift.i32(1, _VERSION),
            thrift.structs(2, _schema(self._dataset)),
            thrift.i64(3, self._samples),
            thrift.structs(4, groups),
            thrift.text(6, _CREATOR),
        )
        return metadata + len(metadata).to_bytes(4, "little") + MAGIC

    def _group_metadata(self, group: RowGroup, columns: "list[_ColumnMetadata]") -> bytes:
        chunks = [
            column.encoded(chunk, group.offset + chunk.offset, group.samples)
            for column, chunk in zip(columns, group.chunks, strict=True)
        ]
        return thrift.struct(thrift.structs(1, chunks), thrift.i64(2, group.size), thrift.i64(3, group.samples))

    @property
    def file_size(self) -> int:
        return self.footer_at + len(self.footer)

    def holder(self, number: int, at: int) -> int | None:
        """Return the number of the sample that has a value at byte `at` of file `number`, or None if the byte belongs
        to no sample.
        """
        if not len(MAGIC) <= at < self.footer_at:
            return None
        group = self.group(min((at - len(MAGIC)) // _size(self._full), self.groups - 1))
        for chunk in group.chunks:
            inside = at - group.offset - chunk.values_at
            if 0 <= inside < chunk.values:
                return number * self._samples + group.first + inside // chunk.width
        return None


@functools.lru_cache(4)
def of(dataset: Dataset) -> ParquetLayout:
    """Return the layout of the files of a dataset."""
    return ParquetLayout(dataset)


def _columns_of(dataset: Dataset) -> list[tuple[str, ColumnType, int]]:
    return [
        (name, column.dtype, column.size)
        for name, column in zip(dataset.column_names, dataset.all_columns, strict=True)
    ]


class _ColumnMetadata(NamedTuple):
    """Facts about a column that are the same in all row groups."""

    name: str
    dtype: ColumnType
    size: int

    def encoded(self, chunk: ColumnChunk, offset: int, samples: int) -> bytes:
        """Return the metadata of a column chunk. offset: offset of the chunk in the file."""
        pages = [thrift.i64(9, offset + chunk.dictionary)]
        if chunk.dictionary:
            pages.append(thrift.i64(11, offset))
        metadata = thrift.inner(
            3,
            thrift.i32(1, _PHYSICAL[self.dtype]),
            thrift.numbers(2, (_PLAIN, _RLE, _RLE_DICTIONARY) if chunk.dictionary else (_PLAIN, _RLE)),
            thrift.texts(3, (self.name,) if self.size == 1 else (self.name, "list", "element")),
            thrift.i32(4, 0),
            thrift.i64(5, samples * self.size),
            thrift.i64(6, chunk.size),
            thrift.i64(7, chunk.size),
            *pages,
        )
        return thrift.struct(thrift.i64(2, offset), metadata)


def _schema(dataset: Dataset) -> list[bytes]:
    """Return the elements of the schema. A column with several values is a list, which takes three elements."""
    columns = _columns_of(dataset)
    elements = [thrift.struct(thrift.text(4, "schema"), thrift.i32(5, len(columns)))]
    for name, dtype, size in columns:
        if size == 1:
            elements.append(_leaf(name, dtype))
        else:
            outer = (thrift.i32(3, _REQUIRED), thrift.text(4, name), thrift.i32(5, 1), thrift.i32(6, _LIST))
            elements.append(thrift.struct(*outer))
            elements.append(thrift.struct(thrift.i32(3, _REPEATED), thrift.text(4, "list"), thrift.i32(5, 1)))
            elements.append(_leaf("element", dtype))
    return elements


def _leaf(name: str, dtype: ColumnType) -> bytes:
    fields = [thrift.i32(1, _PHYSICAL[dtype])]
    if dtype == "float16":
        fields.append(thrift.i32(2, COLUMN_BYTES[dtype]))
    fields += [thrift.i32(3, _REQUIRED), thrift.text(4, name)]
    converted = _CONVERTED[dtype]
    if converted is not None:
        fields.append(thrift.i32(6, converted))
    if dtype == "float16":
        fields.append(thrift.inner(10, thrift.inner(_FLOAT16)))
    return thrift.struct(*fields)


@functools.lru_cache(8)
def _chunks(columns: tuple[Column, ...], samples: int) -> tuple[ColumnChunk, ...]:
    """Return the column chunks of a row group with `samples` samples."""
    chunks: list[ColumnChunk] = []
    first = offset = 0
    for column in columns:
        chunk = _chunk(column, samples, first, offset)
        chunks.append(chunk)
        first += column.bytes
        offset += chunk.size
    return tuple(chunks)


def _chunk(column: Column, samples: int, first: int, offset: int) -> ColumnChunk:
    levels, count = _levels(column.size, samples), samples * column.size
    values = samples * column.bytes
    if COLUMN_BYTES[column.dtype] == 1:
        every = np.arange(256, dtype=np.uint8).view(column.dtype).astype("<i4").tobytes()
        dictionary = _dictionary_head(256, len(every)) + every
        padding = bytes(-count % _PACKED)
        before = levels + _indexes_head(8, count)
        head = dictionary + _page_head(count, len(before) + values + len(padding), _RLE_DICTIONARY) + before
        return ColumnChunk(first, column.bytes, head, values, padding, len(dictionary), offset)
    if values <= LARGEST_DICTIONARY:
        head = _dictionary_head(count, values)
        data = levels + _counted_indexes(count)
        page = _page_head(count, len(data), _RLE_DICTIONARY) + data
        return ColumnChunk(first, column.bytes, head, values, page, len(head) + values, offset)
    head = _page_head(count, len(levels) + values, _PLAIN) + levels
    return ColumnChunk(first, column.bytes, head, values, b"", 0, offset)


def _page_head(count: int, size: int, encoding: int) -> bytes:
    """Return the header of a data page. count: number of values in the page. size: number of bytes in the page after
    the header.
    """
    page = thrift.inner(
        5, thrift.i32(1, count), thrift.i32(2, encoding), thrift.i32(3, _RLE), thrift.i32(4, _RLE)
    )  # fmt: skip
    return thrift.struct(thrift.i32(1, _DATA_PAGE), thrift.i32(2, size), thrift.i32(3, size), page)


def _dictionary_head(count: int, size: int) -> bytes:
    """Return the header of a dictionary page. count: number of values. size: number of bytes of all values."""
    page = thrift.inner(7, thrift.i32(1, count), thrift.i32(2, _PLAIN))
    return thrift.struct(thrift.i32(1, _DICTIONARY_PAGE), thrift.i32(2, size), thrift.i32(3, size), page)


def _indexes_head(bits: int, count: int) -> bytes:
    """Return the bytes before `count` bit-packed indexes: the number of bits of an index, and the head of the run."""
    return bytes([bits]) + thrift.varint(-(-count // _PACKED) << 1 | 1)


def _counted_indexes(count: int) -> bytes:
    """Return the indexes from 0 to `count` (exclusive), bit-packed. The last group of eight is filled up with zeros."""
    bits = index_bits(count)
    indexes = np.zeros(-(-count // _PACKED) * _PACKED, "<u4")
    indexes[:count] = np.arange(count)
    apart = np.unpackbits(indexes.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    return _indexes_head(bits, count) + np.packbits(apart[:, :bits].reshape(-1), bitorder="little").tobytes()


def _levels(size: int, samples: int) -> bytes:
    """Return the repetition levels and definition levels of a page. A plain column has no levels. In a column of lists,
    the first value of each list has the repetition level 0, and the other values have 1. All definition levels are 1.
    """
    if size == 1:
        return b""
    a_list = thrift.varint(1 << 1) + b"\0" + thrift.varint((size - 1) << 1) + b"\1"
    repetition, definition = a_list * samples, thrift.varint((samples * size) << 1) + b"\1"
    return b"".join(len(levels).to_bytes(4, "little") + levels for levels in (repetition, definition))


def _size(chunks: tuple[ColumnChunk, ...]) -> int:
    return chunks[-1].offset + chunks[-1].size


def copy(target: Rows, values: Rows) -> None:
    """Copy the values of a column. target, values: shape (samples, bytes of the column), the second axis contiguous.
    Numbers are copied three times as fast as their bytes.
    """
    if values.shape[1] in _NUMBERS:
        number = f"u{values.shape[1]}"
        target.view(number)[...] = values.view(number)
    else:
        target[...] = values


def runs(files: list[int], withins: list[int], group_samples: int) -> list[tuple[int, int]]:
    """Divide samples into runs. The samples of a run follow each other in one row group. Return, for each run, the
    positions at which it begins and ends. files: number of the file of each sample. withins: index of each sample in
    its file.
    """
    if not files:
        return []
    number, within = np.array(files), np.array(withins)
    follows = (np.diff(number) == 0) & (np.diff(within) == 1) & (np.diff(within // group_samples) == 0)
    bounds = [0, *(np.flatnonzero(~follows) + 1).tolist(), len(files)]
    return list(itertools.pairwise(bounds))
