"""The keys of a workload's `dataset`, as frozen structs, and a check that rejects invalid combinations."""

import math
import re
from collections.abc import Sequence
from typing import Annotated, Literal, cast

from msgspec import Meta, Struct, structs

from dlio_hpc.base import units
from dlio_hpc.base.serialization import refuse
from dlio_hpc.base.units import counted
from dlio_hpc.config import image_keys
from dlio_hpc.config.format_facts import FORMATS, Compression, ExistingKey, FormatFacts, FormatName
from dlio_hpc.config.image_keys import ImageShape

# Bytes of a value in a CSV file, including its comma: "0.1234567,".
CSV_VALUE = 10
# Bytes that a TFRecord file adds to each record: its length and two checksums.
TFRECORD_FRAME = 16
# Bytes of a block of a tar file. A member has a header of one block, and its data are padded to whole blocks.
TAR_BLOCK = 512
# Bytes of which the size of a tar file is a multiple: 20 blocks, as tarfile and GNU tar write it.
TAR_RECORD = 20 * TAR_BLOCK
# Bytes of the index of a file of tokens: of its header and its end, and of each document.
TOKEN_INDEX = (42, 20)
# Number of samples after which the sequence of groups of a blend repeats. A weight is a multiple of its inverse.
BLEND_STEPS = 10_000
# Most tokens of a document, whose number the index has as an int32.
_MOST_TOKENS = 2**31 - 1
# Default level of gzip and zlib; the best level in the DLIO paper (Figs. 11, 12).
LEVEL = 4
# Compressions that have levels.
LEVELLED = ("gzip", "zlib")
ITEM_BYTES = {"uint8": 1, "int16": 2, "float16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}
# NumPy's string for a type: byte order, kind, and number of bytes, or of characters of four bytes if the kind is U.
_STORED_TYPE = r"^[<>|]([A-Za-z])([1-9][0-9]*)(\[[0-9A-Za-z]+\])?$"
# Types of the values of a Parquet column. Parquet stores 16-bit integers in four bytes, so they are left out.
ColumnType = Literal[
    "int8", "uint8", "float16", "int32", "uint32", "float32", "int64", "uint64", "float64"
]  # fmt: skip
COLUMN_BYTES: dict[ColumnType, int] = {
    "int8": 1, "uint8": 1, "float16": 2, "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
}  # fmt: skip
# Bytes of samples up to which a row group of a Parquet file is filled if `row_group` is not set.
_ROW_GROUP = 128 << 20
# Bytes of a column's values in a row group up to which a Parquet file has a dictionary of them, as pyarrow writes it.
LARGEST_DICTIONARY = 1 << 20
# Limit on the bytes of a page of a Parquet file, whose size is a 32-bit number. Levels of lists take part of it.
_LARGEST_PAGE = 2**31 - 2**26
# HDF5's limit on the bytes of a chunk (H5Pset_chunk).
_LARGEST_CHUNK = 2**32
# Bytes that the metadata of a Zarr array have at most, as dlio-hpc writes them.
_ZARR_METADATA = 1 << 10
# Limit on the bytes of a chunk of a Zarr array, which blosc has, and limit on the number of files in a store.
_LARGEST_ZARR_CHUNK, _MOST_CHUNKS = 2**31 - 2**16, 10**7
# Formats that hold several arrays, and formats that compress, as messages name them.
_HOLDING_ARRAYS = sorted((name for name, facts in FORMATS.items() if facts.holds_arrays), reverse=True)
_COMPRESSING = " or ".join(
    f"{name} ({', '.join(facts.compressions[1:])})" for name, facts in FORMATS.items() if facts.compressions[1:]
)
_CHUNKED = " and ".join(facts.title for facts in FORMATS.values() if facts.holds_chunks)
_IMAGES = [name for name, facts in FORMATS.items() if facts.holds_image]
# What messages ask for, where a pattern would have to be read.
_NAME, _FILE_NAME = "a name of letters, digits, _ and -", "a name of letters, digits, ., _ and -"


class Sample(Struct, frozen=True, forbid_unknown_fields=True):
    """Contents of a sample: an array, or bytes.

    If `stdev` is set, sample sizes are random. Samples form pairs: the mean of the two sizes of a pair is `bytes`.
    Therefore, the size of a file follows from its number of samples.
    """

    shape: Annotated[tuple[units.Positive, ...], Meta(min_length=1, max_length=31)] | None = None
    """Shape of the array. Example: [512, 512]"""
    dtype: Literal["uint8", "int16", "float16", "int32", "float32", "int64", "float64"] | None = None
    """Type of the array's values; null: float32. Example: float32"""
    stored_dtype: Annotated[str, Meta(pattern=_STORED_TYPE, description="NumPy's string for a type")] | None = None
    """Type of the values in existing files, as NumPy writes it, if it is none of the types of `dtype`. dlio-hpc sets
    this key; leave it null. Example: ">u2"
    """
    bytes: units.Size | None = None
    """Size of a sample, instead of `shape` and `dtype`. Example: 150 KiB"""
    stdev: units.Size | None = None
    """Standard deviation of random sample sizes. The mean of the sizes is `bytes`. A size differs from the mean by at
    most six standard deviations, and in tar files by a multiple of 512 bytes. Example: 20 KiB
    """
    seed: units.Natural = 0
    """Seed of the random sample sizes."""

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.bytes is None):
            raise ValueError(
                "shape and bytes exclude each other: set either shape (with dtype) or bytes, and set the other to null"
            )
        if self.bytes is not None and (self.bytes < 1 or self.dtype is not None):
            raise ValueError("bytes must be at least 1 and cannot be combined with dtype")
        if self.stored_dtype is not None and (self.bytes is not None or self.dtype is not None):
            raise ValueError("stored_dtype cannot be combined with bytes or dtype; leave stored_dtype null")
        if self.stdev is not None and (self.bytes is None or not 1 <= self.stdev <= 2**40):
            raise ValueError("stdev must be from 1 byte to 1 TiB, and needs the key bytes, the mean of the sizes")

    @property
    def array_shape(self) -> tuple[int, ...]:
        return self.shape if self.shape is not None else (int(self.bytes or 0),)

    @property
    def array_dtype(self) -> str:
        return "uint8" if self.shape is None else self.stored_dtype or self.dtype or "float32"

    @property
    def item_bytes(self) -> int:
        """Bytes of a value of the array."""
        if self.stored_dtype is None:
            return ITEM_BYTES[self.array_dtype]
        kind, count = cast(re.Match[str], re.match(_STORED_TYPE, self.stored_dtype)).group(1, 2)
        return int(count) * (4 if kind == "U" else 1)

    @property
    def size(self) -> int:
        """Bytes of a sample in memory; the mean if `stdev` is set."""
        return math.prod(self.array_shape) * self.item_bytes

    @property
    def largest(self) -> int:
        """Upper bound on the size in bytes of a sample in memory."""
        return self.size + min(self.size - 1, 6 * (self.stdev or 0))


class Chunk(Struct, frozen=True, forbid_unknown_fields=True):
    """Chunk of an HDF5 dataset or a Zarr array, the unit of storage and compression. It is given by either `bytes` or
    `shape`.
    """

    bytes: units.Size | None = None
    """Maximum size of a chunk. The values of a chunk are contiguous in the array. Example: 64 KiB"""
    shape: tuple[units.Positive, ...] | None = None
    """Shape of a chunk; the first dimension counts samples. Example: [1, 64, 64]"""

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.shape is None):
            raise ValueError("give either bytes or shape")


class ZarrKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """Version of the Zarr format, and shards."""

    version: Literal[2, 3] = 3
    """Version of the format. 2: .zarray; 3: zarr.json. Example: 2"""
    shard: tuple[units.Positive, ...] | None = None
    """Shape of the part of the array that a file holds, a multiple of the shape of a chunk on each axis; null: each
    file holds one chunk. The first dimension counts samples. Needs version 3. Example: [4, 128, 128]
    """

    def __post_init__(self) -> None:
        if self.shard is not None and self.version != 3:
            raise ValueError(f"shard needs version=3, not {self.version}; set version: 3, or leave shard null")


class Column(Struct, frozen=True, forbid_unknown_fields=True):
    """A column of a Parquet file."""

    dtype: ColumnType
    """Type of the column's values. Example: float32"""
    size: units.Positive = 1
    """Number of values in each sample. 1: a plain column; more: a column of lists."""
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,80}$", description=_NAME)] | None = None
    """Name of the column; null: x0, x1, ... by its position. Example: label"""

    @property
    def bytes(self) -> int:
        """Bytes of the column's values in a sample."""
        return self.size * COLUMN_BYTES[self.dtype]


class Documents(Struct, frozen=True, forbid_unknown_fields=True):
    """Documents in files of tokens. Their lengths are random in the same way as sizes of samples."""

    tokens: Annotated[int, Meta(ge=1, le=2**30)]
    """Mean number of tokens of a document. The last document of a file may have up to twice as many. Example: 1000"""
    stdev: Annotated[int, Meta(ge=1, le=2**27)] | None = None
    """Standard deviation of the number of tokens; null: all documents but the last of a file have one length. Example:
    400
    """


class AuxiliaryFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A small file that is read or written in addition to the samples."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,80}$", description=_FILE_NAME)]
    """Name of the file. Example: metadata"""
    bytes: units.Size
    """Size of a request. Example: 100"""
    count: units.Positive = 1
    """Number of requests each time. `when` selects the times."""
    access: Literal["read", "write"] = "read"
    """read: read a file that is stored with the dataset and that all ranks share; write: write a file per rank."""
    when: Literal["start", "epoch", "step", "end"] = "start"
    """When the requests are made. start: before the first step; epoch: at the start of each epoch; step: before each
    step; end: after the last step.
    """
    by: Literal["all", "root"] = "all"
    """Ranks that make the requests. all: every rank; root: rank 0 only."""
    size: units.Size | None = None
    """Size of a file that is read; null: `bytes` x `count`. Example: 4752"""
    random: bool = False
    """Make the requests at random offsets in the file."""
    burst: units.Positive | None = None
    """Number of consecutive requests at each random offset; null: 1. Example: 4"""
    read_to_eof: bool = False
    """Read the file until a request returns no bytes, as read() does."""

    def __post_init__(self) -> None:
        if self.bytes < 1 or (self.size is not None and self.size < self.bytes):
            raise ValueError(
                "bytes (the size of a request) must be at least 1, and size (the size of the file) must not be less "
                "than bytes"
            )
        if self.burst is not None and (not self.random or self.count % self.burst):
            raise ValueError("burst needs random=true and a count that is a multiple of burst")
        if self.burst is not None and self.burst * self.bytes > self.file_size:
            raise ValueError(
                f"a burst of {self.burst} requests has more bytes than the file, which has {self.file_size} bytes"
            )
        if self.read_to_eof and (self.random or self.access == "write"):
            raise ValueError("read_to_eof needs access=read and random=false")
        if self.read_to_eof and self.file_size != self.bytes * self.count:
            raise ValueError("read_to_eof needs requests that read the whole file: set size to bytes x count, or null")

    @property
    def file_size(self) -> int:
        return self.bytes * self.count if self.size is None else self.size


class Scan(Struct, frozen=True, forbid_unknown_fields=True):
    """Results of the scan of an existing dataset. dlio-hpc writes them to plans; they cannot be set."""

    fingerprint: str
    """Fingerprint of names, sizes and samples of the files. Example: 03c25a44c247"""
    index: str
    """Folder of the index, which holds the locations of all samples. Example: /home/me/dlio-runs/dataset-indexes/3f"""
    samples: units.Positive
    """Number of samples. Example: 1281167"""
    bytes: units.Size
    """Size of all samples. Example: 140 GiB"""
    largest: units.Size
    """Size of the largest sample. Example: 15 MiB"""
    largest_file: units.Size
    """Size of the largest file. Example: 150 MiB"""
    counts_vary: bool
    """Whether files have different numbers of samples. Example: true"""
    sizes_vary: bool
    """Whether samples have different sizes. Example: true"""
    needs_library: bool = False
    """Whether only the library of the format can read the samples, for example because an HDF5 filter was applied."""
    obstacle: str = ""
    """Reason why only the library can read the samples; empty if the samples can also be read at their offsets, or if
    the reason is not known. Example: they are compressed
    """
    columns: dict[str, units.Size] = {}
    """Bytes of each column in all Parquet files, by the names of the file. Example: {label: 12 KiB}"""
    gaps: units.Natural = 0
    """Number of files of chunks that Zarr stores lack. Their values are the fill value. Example: 3"""


class Existing(Struct, frozen=True, forbid_unknown_fields=True):
    """Existing files that are read instead of a generated dataset. dlio-hpc never writes to these files and never
    removes them.
    """

    glob: str
    """Pattern of the paths of the files, relative to the data directory. `*`, `?` and `[...]` match within a name; `**`
    matches any number of folders. Example: train/*.tfrecord
    """
    array: str | None = None
    """Name of the array in each file, for HDF5, npz and Zarr; its first axis counts samples. null: the only array of
    the file. Example: images
    """
    sample_bytes: units.Size | None = None
    """Size of each sample in raw files that hold several samples; null: each file is one sample. For the format
    indexed: size of a sample of N + 1 tokens across documents; null: each sequence of the index is a sample. Example:
    150 KiB
    """
    rows: bool = False
    """Whether the first axis of the array in an npy file counts samples; false: each npy file is one sample. Example:
    true
    """
    scan: Scan | None = None
    """Results of the scan. dlio-hpc sets this key; leave it null."""

    def __post_init__(self) -> None:
        parts = self.glob.split("/")
        if not self.glob or "" in parts or ".." in parts or "." in parts or "\0" in self.glob:
            raise ValueError(
                f"glob {self.glob!r} must be a path relative to the data directory, such as train/*.jpg, without '.' "
                "and '..' and without a slash at its beginning or end"
            )
        if self.sample_bytes is not None and self.sample_bytes < 1:
            raise ValueError("sample_bytes must be at least 1")


# Formats of existing files that can be read.
EXISTING_FORMATS = tuple(name for name, facts in FORMATS.items() if facts.existing_keys is not None)


class Dataset(Struct, frozen=True, forbid_unknown_fields=True):
    """Dataset: files that dlio-hpc generates and reads, or existing files that it reads."""

    format: FormatName
    """Format of the files. With null there are no files: the run measures the overhead of the tool."""
    files: units.Positive
    """Number of files. Example: 64"""
    samples_per_file: units.Positive
    """Number of samples in each file. Example: 4"""
    sample: Sample
    """Shape or size of a sample. Example: {bytes: 150 KiB}"""
    arrays: Annotated[tuple[units.Size, ...], Meta(min_length=2, max_length=64)] | None = None
    """Sizes in bytes of the arrays of a sample, for npz and HDF5 files with several arrays, such as images, masks and
    labels, and of the members of a sample in tar files; null: one array, or one member. The sizes add up to
    `sample.bytes`. If `sample.stdev` is set, which tar files allow, the size of the first member varies. Example: [76
    KiB, 12 KiB, 8]
    """
    image: ImageShape | None = None
    """Picture in each file of the formats jpeg and png; null: a square with as many pixels as a photograph of
    `sample.bytes` has: one for 0.6 bytes of a JPEG file, and one for 1.8 bytes of a PNG file. Example: {width: 500,
    height: 375}
    """
    columns: Annotated[tuple[Column, ...], Meta(min_length=1, max_length=10_000)] | None = None
    """Columns of Parquet files; null: one column `x` with the values of `sample`. The bytes of a sample follow from the
    columns, so `sample` may be left out. A type alone, such as float32, stands for {dtype: float32}. Example: [{name:
    label, dtype: int8}, {name: features, dtype: float32, size: 13}]
    """
    row_group: units.Positive | None = None
    """Number of samples in each row group of a Parquet file; null: as many as fit into 128 MiB, but at least one. The
    last row group of a file may have fewer. Example: 6144
    """
    documents: Documents | None = None
    """Documents in files of the format indexed. A sample of N + 1 tokens then begins at every Nth token of the
    documents in random order, and is read with one request for each document that it touches, as by the GPTDataset of
    Megatron-LM; null: each sample is a document. Existing files have their own documents; set `existing.sample_bytes`.
    Example: {tokens: 1000, stdev: 400}
    """
    blend: Annotated[tuple[Annotated[float, Meta(gt=0)], ...], Meta(min_length=2, max_length=64)] | None = None
    """Weights of groups of files in a blend of datasets of the format indexed. The files are divided evenly into as
    many groups of consecutive files. An epoch still has as many samples as the dataset, but takes them from each group
    in proportion to its weight: samples of a group with a large weight are repeated, and not all samples of the others
    are read. null: each sample is read once. Example: [0.6, 0.3, 0.1]
    """
    file_access: Literal["multi", "shared"] = "multi"
    """multi: many files; shared: a single file that all ranks read."""
    subfolders: Annotated[tuple[units.Positive, ...], Meta(min_length=1, max_length=2)] | None = None
    """Number of subfolders. The files are divided evenly among them, so that consecutive files are in one subfolder;
    null: all files are in the folder of the dataset. Two numbers, such as [10, 100], stand for 10 folders with 100
    subfolders each. A number alone, such as 1000, stands for [1000]. Example: [1000]
    """
    chunk: Chunk | None = None
    """Chunks of HDF5 files and Zarr stores; null: contiguous storage, and for Zarr a chunk for each sample. A size
    alone, such as 64 KiB, stands for {bytes: 64 KiB}. Example: {bytes: 64 KiB}
    """
    zarr: ZarrKeys | None = None
    """Version of the format of Zarr stores, and their shards; null: version 3 without shards. Example: {version: 2}"""
    compression: Compression = "none"
    """Compression of the files. gzip is available for HDF5, npz, TFRecord and Zarr, zlib for TFRecord and version 2 of
    Zarr, lzf for HDF5, zstd and blosc for Zarr.
    """
    level: Annotated[int, Meta(ge=0, le=9)] | None = None
    """Compression level of gzip and zlib; null: 4. Example: 5"""
    random_bits: Annotated[int, Meta(ge=1, le=8)] = 8
    """Number of random bits in each byte of the contents. 8: the contents cannot be compressed. Fewer bits compress
    better.
    """
    compression_ratio: Annotated[float, Meta(ge=1, le=20)] | None = None
    """Compression ratio of the contents: bytes before gzip, divided by bytes after it. Set either this key or
    `random_bits`. Example: 1.06
    """
    auxiliary_files: tuple[AuxiliaryFile, ...] = ()
    """Small files that are read or written in addition to the samples."""
    existing: Existing | None = None
    """Existing files to read instead of generated ones; null: the dataset is generated. For existing files, a scan
    determines `files`, `samples_per_file` and `sample`. A pattern alone, such as train/*.jpg, stands for {glob:
    train/*.jpg}. Example: {glob: train/*.jpg}
    """

    def __post_init__(self) -> None:
        _check(self)

    @property
    def scan(self) -> Scan | None:
        """Results of the scan, if the dataset is an existing one that has been scanned."""
        return None if self.existing is None else self.existing.scan

    @property
    def samples(self) -> int:
        return self.files * self.samples_per_file if self.scan is None else self.scan.samples

    @property
    def facts(self) -> FormatFacts:
        """Facts about the format of the files."""
        return FORMATS[self.format]

    @property
    def leaves(self) -> int:
        """Number of folders that hold sample files."""
        return math.prod(self.subfolders or (1,))

    def of_files(self, files: int, samples_per_file: int) -> "Dataset":
        """Return the dataset with another number of files, and with about as many files in each subfolder as before.
        Raise ValueError if the format cannot hold the resulting dataset.
        """
        folders = self.subfolders
        if folders is not None:
            first = max(1, min(files, round(folders[0] * files / self.files)))
            folders = (first, *(min(count, files // first) for count in folders[1:]))
        return structs.replace(self, files=files, samples_per_file=samples_per_file, subfolders=folders)

    @property
    def counts_vary(self) -> bool:
        """Whether files have different numbers of samples. If they do, `samples_per_file` is the largest number."""
        return self.scan is not None and self.scan.counts_vary

    @property
    def sizes_vary(self) -> bool:
        """Whether samples have different sizes. If they do, the size of `sample` is the mean."""
        return self.sample.stdev is not None if self.scan is None else self.scan.sizes_vary

    @property
    def is_flat(self) -> bool:
        """Whether the array in a file is one-dimensional and holds the bytes of all samples of the file."""
        facts = self.facts
        is_of_bytes = facts.holds_image or (facts.holds_bytes and self.existing is not None)
        return is_of_bytes or self.sample.stdev is not None

    @property
    def sample_bytes(self) -> int:
        """Bytes of a sample in its file before compression. For CSV, this is the length of its text; for other formats,
        it equals the bytes of the sample in memory.
        """
        return math.prod(self.sample.array_shape) * CSV_VALUE if self.facts.holds_text else self.sample.size

    @property
    def largest(self) -> int:
        """Upper bound on the size in bytes of a sample in its file before compression."""
        if self.scan is not None:
            return self.scan.largest
        return self.sample_bytes if self.sample.stdev is None else self.sample.largest

    @property
    def largest_in_memory(self) -> int:
        """Upper bound on the size in bytes of a sample in memory."""
        return self.sample.largest if self.scan is None else self.scan.largest

    @property
    def size(self) -> int:
        """Bytes of all samples of the dataset before compression, without the headers of the formats."""
        return self.samples * self.sample_bytes if self.scan is None else self.scan.bytes

    def bytes_of(self, samples: int) -> int:
        """Return the bytes of `samples` samples before compression. If sizes vary, the result is exact only for the
        whole dataset; for fewer samples, it is computed from the mean size.
        """
        return self.size * samples // self.samples

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of the array in a file: number of samples, then the shape of a sample. If sample sizes vary, the array
        is one-dimensional and holds bytes. Its length is exact if files have several samples. If each file has one
        sample, the length is the mean over all files.
        """
        if self.is_flat:
            return (self.samples_per_file * self.sample.size,)
        return (self.samples_per_file, *self.sample.array_shape)

    @property
    def chunk_shape(self) -> tuple[int, ...] | None:
        """Chunk shape of the samples' array in an HDF5 file or a Zarr store; None for contiguous storage. Compression
        needs chunks: if the file is compressed and `chunk` is null, each sample is a chunk. So it is in a Zarr store.
        """
        if self.chunk is None:
            if self.compression == "none" and not self.facts.is_store:
                return None
            return _chunk_of(self.array_shape, math.prod(self.sample.array_shape))
        if self.chunk.shape is not None:
            return self.chunk.shape
        return _chunk_of(self.array_shape, (self.chunk.bytes or 0) // self.sample.item_bytes)

    @property
    def is_chunked(self) -> bool:
        return self.facts.holds_chunks and self.chunk_shape is not None

    @property
    def zarr_keys(self) -> ZarrKeys:
        """Version of the format of Zarr stores, and their shards."""
        return self.zarr or ZarrKeys()

    @property
    def is_packed(self) -> bool:
        """Whether each file is compressed as a whole, so that it must be decompressed from its beginning."""
        return self.compression != "none" and self.facts.packs_files

    @property
    def all_columns(self) -> tuple[Column, ...]:
        """The columns of a Parquet file."""
        if self.columns is not None:
            return self.columns
        dtype = cast(ColumnType, self.sample.array_dtype)
        return (Column(dtype, math.prod(self.sample.array_shape), "x"),)

    @property
    def column_names(self) -> tuple[str, ...]:
        """The names of the columns of a Parquet file. In an existing file, names of nested columns have dots."""
        if self.existing is not None:
            return tuple(self.scan.columns) if self.scan is not None else ()
        return tuple(column.name or f"x{number}" for number, column in enumerate(self.all_columns))

    @property
    def row_group_samples(self) -> int:
        """Number of samples in each row group of a Parquet file. The last row group of a file may have fewer. In an
        existing file, each row group is a sample.
        """
        if self.existing is not None:
            return 1
        samples = self.row_group or max(1, _ROW_GROUP // self.sample.size)
        return min(samples, self.samples_per_file)

    @property
    def index_bytes(self) -> int:
        """Bytes of the dictionary indexes in a Parquet dataset. Columns whose indexes are the values themselves are not
        included.
        """
        samples = self.row_group_samples
        counts = [
            samples * column.size
            for column in self.all_columns
            if COLUMN_BYTES[column.dtype] > 1 and samples * column.bytes <= LARGEST_DICTIONARY
        ]
        an_average_group = sum(count * index_bits(count) for count in counts) / 8
        return math.ceil(an_average_group * self.samples / samples)

    @property
    def framing_bytes(self) -> int:
        """Bytes of headers and padding in a tar dataset, and about those of the ends of its files; bytes of the indexes
        of files of tokens; or bytes of a Zarr dataset besides its samples.
        """
        if self.facts.is_store and self.existing is None:
            return self.files * self._store_bytes - self.size
        if self.facts.holds_tokens:
            return self.files * (TOKEN_INDEX[0] + TOKEN_INDEX[1] * self.documents_per_file)
        if not self.facts.holds_members:
            return 0
        sizes = self.arrays or (self.sample.size,)
        return self.samples * sum(TAR_BLOCK + -size % TAR_BLOCK for size in sizes) + self.files * TAR_RECORD

    @property
    def joins_documents(self) -> bool:
        """Whether a sample is a run of tokens across documents, and not one document."""
        if self.existing is not None:
            return self.facts.holds_tokens and self.existing.sample_bytes is not None
        return self.documents is not None

    @property
    def tokens_per_file(self) -> int:
        """Tokens in each generated file whose samples are runs across documents. Two samples share a token."""
        return self.samples_per_file * (self.sample.size // self.sample.item_bytes - 1) + 1

    @property
    def documents_per_file(self) -> int:
        """Number of documents in each generated file of tokens."""
        if self.documents is None:
            return self.samples_per_file
        return max(1, self.tokens_per_file // self.documents.tokens)

    @property
    def _store_bytes(self) -> int:
        """Bytes of a Zarr store before compression: whole chunks, indexes of shards, and about those of metadata."""
        chunk, shard, array = self.chunk_shape or (), self.zarr_keys.shard, self.array_shape
        chunks = math.prod(-(-whole // part) for whole, part in zip(array, chunk, strict=False))
        size = chunks * math.prod(chunk) * self.sample.item_bytes + _ZARR_METADATA
        if shard is None:
            return size
        entries = math.prod(whole // part for whole, part in zip(shard, chunk, strict=False))
        shards = math.prod(-(-whole // part) for whole, part in zip(array, shard, strict=False))
        return size + shards * (16 * entries + 4)

    @property
    def is_stored(self) -> bool:
        """Whether the dataset has files: sample files, or auxiliary files that runs read."""
        return self.facts.holds_data or any(side.access == "read" for side in self.auxiliary_files)

    @property
    def is_generated(self) -> bool:
        """Whether the dataset has files that must be generated."""
        return self.is_stored and self.existing is None


def index_bits(values: int) -> int:
    """Return the number of bits of an index into a dictionary of `values` values."""
    return max(1, (values - 1).bit_length())


def _chunk_of(shape: tuple[int, ...], values: int) -> tuple[int, ...]:
    """Return the shape of the largest chunk of at most `values` values that are contiguous in the array. A chunk has at
    least one value. shape: shape of the array.
    """
    chunk = []
    for extent in reversed(shape):
        chunk.append(max(1, min(extent, values)))
        values //= extent
    return tuple(reversed(chunk))


def _wrong_compression(kind: FormatName, compression: str) -> str:
    """Return the message for a compression that files of a format cannot have."""
    own = FORMATS[kind].compressions[1:]
    if not own:
        return f"compression={compression} needs format={_COMPRESSING}, not {kind}"
    others = [name for name, facts in FORMATS.items() if compression in facts.compressions]
    where = f"{others[0]} only" if len(others) == 1 else " or ".join(others)
    return f"compression={compression}: {kind} files take {' or '.join(own)}; {compression} is for {where}"


def _check(dataset: Dataset) -> None:
    """Raise ValueError for a combination of keys that the dataset's format does not support."""
    kind, facts, sample, compression = dataset.format, dataset.facts, dataset.sample, dataset.compression
    names = [side.name for side in dataset.auxiliary_files]
    refuse(
        (
            dataset.file_access == "shared" and dataset.files != 1,
            f"file_access=shared needs files=1, not {dataset.files}",
        ),
        (
            dataset.samples > 2**53 or dataset.size >= 2**63,
            "dataset too large: at most 2^53 samples, less than 2^63 bytes",
        ),
        (
            dataset.chunk is not None and not facts.holds_chunks,
            f"chunk is for {_CHUNKED}; format={kind} has no chunks; leave chunk null",
        ),
        (
            dataset.zarr is not None and not facts.is_store,
            f"zarr is for format=zarr, not for format={kind}; leave zarr null",
        ),
        (
            compression not in facts.compressions,
            _wrong_compression(kind, compression),
        ),
        (
            dataset.level is not None and compression not in LEVELLED,
            f"level={dataset.level} needs compression=gzip or zlib, not {compression}",
        ),
        (
            dataset.compression_ratio is not None and dataset.random_bits != 8,
            "compression_ratio and random_bits both determine compressibility: set only one of them",
        ),
        (
            dataset.compression_ratio is not None and (facts.holds_text or not facts.holds_data),
            f"compression_ratio has no effect on the contents of format={kind}; leave compression_ratio null",
        ),
        (
            (dataset.compression_ratio or 1) > 1 and dataset.level == 0,
            "compression_ratio: level 0 does not compress; set level 1 to 9",
        ),
        (
            facts.holds_text and (sample.bytes is not None or sample.array_dtype != "float32"),
            "format=csv contains numbers: set sample.shape, and dtype float32",
        ),
        (
            dataset.existing is None and dataset.largest > facts.most,
            f"format={kind}: a sample must be smaller than {units.format_size(facts.most + 1)}; lower the size",
        ),
        (
            not facts.holds_columns and (dataset.columns is not None or dataset.row_group is not None),
            f"columns and row_group are only for format=parquet, not for format={kind}; leave both null",
        ),
        (
            dataset.subfolders is not None and (not facts.holds_data or dataset.existing is not None),
            "subfolders divides the files that dlio-hpc generates, and none are generated here; set "
            "dataset.subfolders=null",
        ),
        (
            dataset.leaves > dataset.files,
            f"subfolders: {dataset.leaves} subfolders for {counted(dataset.files, 'file')}; set at most one subfolder "
            "for each file",
        ),
        (
            len(set(names)) < len(names),
            f"auxiliary_files: names must be unique; these occur twice: {', '.join(_repeated(names))}",
        ),
    )
    if dataset.existing is not None:
        _check_existing(dataset, dataset.existing)
    elif sample.stored_dtype is not None:
        raise ValueError(
            f"sample.stored_dtype is for existing files; generated samples have one of the types of sample.dtype: "
            f"{', '.join(ITEM_BYTES)}. Leave stored_dtype null"
        )
    _check_images(dataset)
    _check_tokens(dataset)
    if dataset.arrays is not None:
        _check_arrays(dataset, dataset.arrays)
    if dataset.is_chunked and dataset.existing is None:
        _check_chunk(dataset)
    if facts.holds_columns and dataset.existing is None:
        _check_columns(dataset)
    if facts.is_store and dataset.existing is None:
        _check_store(dataset)


def _repeated(names: Sequence[str]) -> list[str]:
    """Return the sorted names that occur more than once."""
    return sorted({name for name in names if names.count(name) > 1})


def _taking(key: ExistingKey) -> str:
    """Return the formats whose existing files need a key of dataset.existing, as messages name them."""
    names = [name for name, facts in FORMATS.items() if key in (facts.existing_keys or ())]
    return f"format={' or '.join(names)}"


def _check_existing(dataset: Dataset, existing: Existing) -> None:
    kind, keys = dataset.format, dataset.facts.existing_keys or ()
    refuse(
        (
            kind not in EXISTING_FORMATS,
            f"existing: files of format={kind} cannot be read; set format to one of {', '.join(EXISTING_FORMATS)}",
        ),
        (
            existing.array is not None and "array" not in keys,
            f"existing.array is for {_taking('array')}; format={kind} has no named arrays; leave array null",
        ),
        (
            existing.sample_bytes is not None and "sample_bytes" not in keys,
            f"existing.sample_bytes is for {_taking('sample_bytes')}; the scan takes sizes from {kind} files; leave it "
            "null",
        ),
        (
            existing.rows and "rows" not in keys,
            f"existing.rows is for {_taking('rows')}; the scan finds the samples of {kind} files; leave rows false",
        ),
        (
            dataset.arrays is not None and not dataset.facts.holds_members,
            "existing: the key arrays is for generated datasets; leave arrays null, and set existing.array to the "
            "name of the array to read",
        ),
        (
            any(side.access == "read" for side in dataset.auxiliary_files),
            "existing: auxiliary files with access=read are stored with a generated dataset, but nothing is written "
            "to an existing one; set auxiliary_files: []",
        ),
    )


def _check_arrays(dataset: Dataset, arrays: tuple[units.Size, ...]) -> None:
    sample, total, facts = dataset.sample, sum(arrays), dataset.facts
    refuse(
        (
            not facts.holds_arrays,
            f"arrays needs format={' or '.join(_HOLDING_ARRAYS)}; a file of format={dataset.format} cannot hold "
            "several arrays; leave arrays null",
        ),
        (
            dataset.chunk is not None or dataset.compression != "none",
            "arrays are stored contiguously and without compression: leave chunk null and set compression=none, or "
            "leave arrays null",
        ),
        (
            sample.bytes is None or (sample.stdev is not None and not facts.holds_members),
            "arrays divides samples of one size, given in bytes: set sample.bytes to the sum of the sizes, and leave "
            f"shape{' and dtype' if facts.holds_members else ', dtype and stdev'} null",
        ),
        (min(arrays) < 1, f"arrays: found {min(arrays)}, but each array of a sample must have at least 1 byte"),
        (
            sample.bytes != total,
            f"arrays: the sizes add up to {total} bytes, but a sample has {sample.bytes} bytes; set sample.bytes: "
            f"{total}, or change the sizes",
        ),
    )


def _check_images(dataset: Dataset) -> None:
    """Raise ValueError for keys of images that do not fit the format, or for keys that do not fit images."""
    kind, facts = dataset.format, dataset.facts
    refuse(
        (
            dataset.image is not None and (not facts.holds_image or dataset.existing is not None),
            f"image is for generated files of the formats {' and '.join(_IMAGES)}; leave image null",
        ),
        (
            not facts.has_quality and dataset.image is not None and dataset.image.quality is not None,
            f"image.quality={dataset.image and dataset.image.quality} is for format=jpeg; format={kind} loses nothing; "
            "leave quality null",
        ),
    )
    if not facts.holds_image or dataset.existing is not None:
        return
    least, most = (0, 0) if dataset.image is None else image_keys.bounds(kind, dataset.image)
    refuse(
        (
            dataset.samples_per_file > 1,
            f"samples_per_file: found {dataset.samples_per_file}, but a {facts.title} file holds one image; set "
            "samples_per_file: 1, and files to the number of images",
        ),
        (
            dataset.sample.bytes is None,
            f"sample: set bytes to the size of a {facts.title} file, and image to the width and height of the picture; "
            "leave shape and dtype null",
        ),
        (
            dataset.sample.size < facts.least,
            f"sample.bytes: found {dataset.sample.size}, but a {facts.title} file has at least {facts.least} bytes; "
            "raise sample.bytes",
        ),
        (
            dataset.image is not None and not least <= dataset.sample.size <= most,
            f"image: {_pixels(dataset.image)} do not fit into a {facts.title} file of "
            f"{units.format_size(dataset.sample.size)}: "
            + (
                f"it has {units.format_size(least)} to {units.format_size(most)}; change sample.bytes or image, or "
                "leave image null"
                if least <= most
                else "the picture is too small; leave image null"
            ),
        ),
        (
            dataset.random_bits != 8 or dataset.compression_ratio is not None,
            "random_bits and compression_ratio: images are compressed already; leave both out",
        ),
    )


def _pixels(image: ImageShape | None) -> str:
    return "" if image is None else f"{image.width} x {image.height} pixels"


def _check_tokens(dataset: Dataset) -> None:
    """Raise ValueError for keys of tokens that do not fit the format, or for samples that no file of tokens has."""
    kind, sample = dataset.format, dataset.sample
    has_tokens, tokens = dataset.facts.holds_tokens, dataset.sample.size // dataset.sample.item_bytes
    refuse(
        (
            dataset.documents is not None and not has_tokens,
            f"documents is for format=indexed, not {kind}; leave documents null",
        ),
        (
            dataset.blend is not None and not has_tokens,
            f"blend is for format=indexed, not {kind}; leave blend null",
        ),
        (
            len(dataset.blend or ()) > dataset.files and (dataset.existing is None or dataset.scan is not None),
            f"blend: {len(dataset.blend or ())} weights for {counted(dataset.files, 'file')}; use at least one file "
            "for each weight",
        ),
        (
            dataset.blend is not None and not math.isfinite(sum(dataset.blend) * BLEND_STEPS),
            "blend: the weights are too large; divide all of them by the largest",
        ),
        (
            dataset.blend is not None and min(dataset.blend) * BLEND_STEPS < sum(dataset.blend),
            f"blend: the smallest weight is less than 1/{BLEND_STEPS} of the sum; raise it, or leave out its files",
        ),
        (
            has_tokens and dataset.existing is None and sample.array_dtype == "float16",
            "sample.dtype: tokens of format=indexed cannot be float16; use uint8, int16, int32 or int64",
        ),
        (
            dataset.documents is not None and dataset.existing is None and (sample.stdev is not None or tokens < 2),
            "documents needs samples of one size, of two or more tokens: leave sample.stdev null, and set "
            "sample.shape: [N + 1] for sequences of N tokens",
        ),
        (
            has_tokens and dataset.existing is None and sample.largest // sample.item_bytes > _MOST_TOKENS,
            f"format=indexed: a sample has at most {_MOST_TOKENS} tokens; lower the size of the sample",
        ),
    )


def _check_columns(dataset: Dataset) -> None:
    sample = dataset.sample
    refuse(
        (
            sample.stdev is not None,
            "sample.stdev: all samples of format=parquet have one size; leave stdev null",
        ),
        (
            dataset.columns is None and sample.array_dtype not in COLUMN_BYTES,
            f"sample.dtype: Parquet stores {sample.array_dtype} in four bytes; use one of: {', '.join(COLUMN_BYTES)}",
        ),
    )
    names, columns = dataset.column_names, dataset.all_columns
    total, largest = sum(column.bytes for column in columns), max(column.bytes for column in columns)
    refuse(
        (
            len(set(names)) < len(names),
            f"columns: names must be unique; these occur twice: {', '.join(_repeated(names))}",
        ),
        (
            sample.size != total,
            f"columns: a sample has {total} bytes, not {sample.size}; leave sample out, or set sample.bytes: {total}",
        ),
        (
            dataset.row_group_samples * largest > _LARGEST_PAGE,
            "row_group: a column of a row group must be smaller than 2 GiB; set row_group to at most "
            f"{max(1, _LARGEST_PAGE // largest)}",
        ),
    )


def _check_chunk(dataset: Dataset) -> None:
    array, chunk = dataset.array_shape, dataset.chunk_shape or ()
    item_bytes = dataset.sample.size // math.prod(dataset.sample.array_shape)
    refuse(
        (
            len(chunk) != len(array) or any(map(int.__gt__, chunk, array)),
            f"chunk: the shape {list(chunk)} does not fit into the array of a file, {list(array)}; the first axis "
            "counts samples",
        ),
        (
            math.prod(chunk) * item_bytes >= _LARGEST_CHUNK and not dataset.facts.is_store,
            "chunk: HDF5 requires chunks smaller than 4 GiB",
        ),
        (
            math.prod(chunk) * item_bytes >= _LARGEST_ZARR_CHUNK and dataset.facts.is_store,
            "chunk: chunks of Zarr must be smaller than 2 GiB; set a smaller chunk",
        ),
    )


def _check_store(dataset: Dataset) -> None:
    """Raise ValueError for keys that a Zarr store cannot have."""
    if dataset.sample.stdev is not None:
        raise ValueError("sample.stdev: all samples of format=zarr have one size; leave stdev null")
    keys, chunk = dataset.zarr_keys, dataset.chunk_shape or ()
    shard = keys.shard or chunk
    files = math.prod(-(-whole // part) for whole, part in zip(dataset.array_shape, shard, strict=False))
    refuse(
        (
            dataset.compression == "zlib" and keys.version != 2,
            "compression=zlib: version 3 of Zarr has gzip instead; set compression=gzip, or zarr.version: 2",
        ),
        (
            len(shard) != len(chunk) or any(whole % part for whole, part in zip(shard, chunk, strict=False)),
            f"zarr.shard: found {list(shard)}, but a shard must be a multiple of a chunk, {list(chunk)}, on each axis",
        ),
        (
            files > _MOST_CHUNKS,
            f"chunk: a store would have more than {_MOST_CHUNKS} files; set larger chunks, or zarr.shard",
        ),
    )
