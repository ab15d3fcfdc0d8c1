"""A workload: one application's I/O, as its YAML file says it."""

import copy
import math
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta, Struct, structs

from dlio_hpc import document, units
from dlio_hpc.config import shipped, workload_rules
from dlio_hpc.errors import ConfigError

# No count is larger than what a double holds exactly; timelines and JSON readers count on that.
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Natural = Annotated[int, Meta(ge=0, le=2**53)]

# Bytes of one value in a CSV file, with its comma: "0.1234567,".
CSV_VALUE = 10
# Bytes around each record of a TFRecord file: its length, and two checksums.
TFRECORD_FRAME = 16
# gzip's level where none is given; the DLIO paper found it best (Figs. 11, 12).
LEVEL = 4
# What tf.data reads at once unless told otherwise.
TENSORFLOW_BUFFER = 256 << 10

# Keys that take a bare value beside their mapping, and what it measures; see _spell_out().
SHORT_FORMS: dict[str, type] = {"dataset.chunk": units.Size, "compute.time": units.Seconds}

ITEM_BYTES = {"uint8": 1, "int16": 2, "float16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}


class Sample(Struct, frozen=True, forbid_unknown_fields=True):
    """One sample's payload: an array (`shape` of `dtype`) or so many `bytes`.

    `stdev`: sizes are spread normally around `bytes` (drawn from `seed`, within six stdevs and never below 1); they
    are drawn in pairs, one as much above as the other is below, so that a file's size is known without adding up.
    """

    shape: Annotated[tuple[Positive, ...], Meta(min_length=1, max_length=31)] | None = None
    dtype: Literal["uint8", "int16", "float16", "int32", "float32", "int64", "float64"] | None = None
    bytes: units.Size | None = None
    stdev: units.Size | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.bytes is None):
            raise ValueError("give either shape (with dtype) or bytes, and null for the other")
        if self.bytes is not None and (self.bytes < 1 or self.dtype is not None):
            raise ValueError("bytes must be at least 1 and goes without dtype")
        if self.stdev is not None and (self.bytes is None or not 1 <= self.stdev <= 2**40):
            raise ValueError("stdev (1 byte to 1 TiB) goes with bytes, which it spreads")

    @property
    def array_shape(self) -> tuple[int, ...]:
        return self.shape if self.shape is not None else (int(self.bytes or 0),)

    @property
    def array_dtype(self) -> str:
        return "uint8" if self.shape is None else self.dtype or "float32"

    @property
    def size(self) -> int:
        """Bytes of one sample in memory; with `stdev` the mean."""
        return math.prod(self.array_shape) * ITEM_BYTES[self.array_dtype]

    @property
    def largest(self) -> int:
        """Bytes that no sample exceeds."""
        return self.size + min(self.size - 1, 6 * (self.stdev or 0))


class Chunk(Struct, frozen=True, forbid_unknown_fields=True):
    """HDF5's unit of storage and of compression: so many `bytes` (at most) of neighbouring values, or a `shape`."""

    bytes: units.Size | None = None
    shape: tuple[Positive, ...] | None = None

    def __post_init__(self) -> None:
        if (self.bytes is None) == (self.shape is None):
            raise ValueError("give either bytes or shape")


class AuxiliaryFile(Struct, frozen=True, forbid_unknown_fields=True):
    """Small requests in addition to the samples: each time `count` of them, of `bytes` each, by all ranks or rank 0.

    A file that is read lies with the dataset, has `size` bytes (null: bytes x count) and is shared; one that is
    written belongs to its rank. `random`: requests go to random places of the file. `burst`: number of consecutive
    requests at each of those places, which are visited in ascending order. `read_to_eof`: the file is read until a
    request returns no bytes, as read() does.
    """

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,80}$")]
    bytes: units.Size
    count: Positive = 1
    access: Literal["read", "write"] = "read"
    when: Literal["start", "epoch", "step", "end"] = "start"
    by: Literal["all", "root"] = "all"
    size: units.Size | None = None
    random: bool = False
    burst: Positive | None = None
    read_to_eof: bool = False

    def __post_init__(self) -> None:
        if self.bytes < 1 or (self.size is not None and self.size < self.bytes):
            raise ValueError("bytes must be at least 1, and size (the whole file) no less than that")
        if self.burst is not None and (not self.random or self.count % self.burst):
            raise ValueError("burst goes with random: true and a count that is a multiple of it")
        if self.burst is not None and self.burst * self.bytes > self.file_size:
            raise ValueError(f"a burst of {self.burst} requests is more than the file's {self.file_size} bytes")
        if self.read_to_eof and (self.random or self.access == "write"):
            raise ValueError("read_to_eof goes with access: read, in order: without random")
        if self.read_to_eof and self.file_size != self.bytes * self.count:
            raise ValueError("read_to_eof is for a file that is read whole: size (or null) is bytes x count then")

    @property
    def file_size(self) -> int:
        return self.bytes * self.count if self.size is None else self.size


class Dataset(Struct, frozen=True, forbid_unknown_fields=True):
    """Files on the storage. `chunk` is HDF5's; `compression` HDF5's or (gzip) NumPy's; `level` null: 4.

    `random_bits` of each byte are random, the others zero: 8 does not compress, fewer do. `compression_ratio` replaces
    it: bytes before over bytes after gzip of this level.
    """

    format: Literal["tfrecord", "hdf5", "npz", "raw", "csv", "null"]
    files: Positive
    samples_per_file: Positive
    sample: Sample
    file_access: Literal["multi", "shared"] = "multi"
    chunk: Chunk | None = None
    compression: Literal["none", "gzip", "lzf"] = "none"
    level: Annotated[int, Meta(ge=0, le=9)] | None = None
    random_bits: Annotated[int, Meta(ge=1, le=8)] = 8
    compression_ratio: Annotated[float, Meta(ge=1, le=20)] | None = None
    auxiliary_files: tuple[AuxiliaryFile, ...] = ()

    def __post_init__(self) -> None:
        workload_rules.check_dataset(self)

    @property
    def samples(self) -> int:
        return self.files * self.samples_per_file

    @property
    def sample_bytes(self) -> int:
        """Bytes of one sample in its file before compression: CSV holds text, the others what is in memory."""
        return math.prod(self.sample.array_shape) * CSV_VALUE if self.format == "csv" else self.sample.size

    @property
    def largest(self) -> int:
        """Bytes on storage that no sample exceeds."""
        return self.sample_bytes if self.sample.stdev is None else self.sample.largest

    @property
    def size(self) -> int:
        """Payload bytes of the whole dataset before compression; the formats' own headers come on top."""
        return self.samples * self.sample_bytes

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The array that a file holds: samples by values, or one row of bytes when samples differ in size (in the mean,
        where each file has one sample).
        """
        if self.sample.stdev is not None:
            return (self.samples_per_file * self.sample.size,)
        return (self.samples_per_file, *self.sample.array_shape)

    @property
    def chunk_shape(self) -> tuple[int, ...] | None:
        """HDF5's chunk of that array; None: contiguous. A filter needs chunks: a sample each unless told."""
        if self.chunk is None:
            if self.compression == "none":
                return None
            return _chunk_of(self.array_shape, math.prod(self.sample.array_shape))
        if self.chunk.shape is not None:
            return self.chunk.shape
        return _chunk_of(self.array_shape, (self.chunk.bytes or 0) // ITEM_BYTES[self.sample.array_dtype])

    @property
    def is_chunked(self) -> bool:
        return self.format == "hdf5" and self.chunk_shape is not None

    @property
    def is_stored(self) -> bool:
        """Is there anything to generate?"""
        return self.format != "null" or any(side.access == "read" for side in self.auxiliary_files)


def _chunk_of(shape: tuple[int, ...], values: int) -> tuple[int, ...]:
    """The largest chunk of at most `values` that are neighbours in the file; at least one."""
    chunk = []
    for extent in reversed(shape):
        chunk.append(max(1, min(extent, values)))
        values //= extent
    return tuple(reversed(chunk))


class Shuffle(Struct, frozen=True, forbid_unknown_fields=True):
    """`files`: files in random order. `samples`: samples of a file in random order. Both: any sample next.

    `reseed`: another order in every epoch. `ascending`: chance says which samples make a batch, and they are read in
    the order in which they lie, as h5py wants the numbers that select them.
    """

    files: bool = False
    samples: bool = False
    seed: Natural = 0
    reseed: bool = True
    ascending: bool = False


class Reader(Struct, frozen=True, forbid_unknown_fields=True):
    """Reading on each rank.

    `interleave`: so many files in turn, a sample of each, as tf.data's interleave does. null: as many as read_threads
    where TFRecord files are streams (num_parallel_reads of TFRecordDataset is both), else 1. `transfer_size` null: a
    request a sample (TFRecord in framework mode: 256 KiB, TensorFlow's default). `prefetch` null: twice the read
    threads; 0: the training loop reads its batch itself. `preprocess_time`: seconds a sample, on `preprocess_threads`,
    before the batch is ready. `shard` false: every rank reads the whole dataset. `verify`: check TFRecord's checksums;
    null: in framework mode, as TensorFlow does. `verify_content`: extent of the comparison with the generated contents,
    between steps: the beginning of each batch's first sample, every byte of every sample, none. `direct`: O_DIRECT.
    `drop_cache`: let the kernel forget what was generated, and before every epoch what it will read. `reorder_tasks`:
    each rank reads the share of the next node, as IOR -C does. `hints`: MPI-IO's. `multiprocessing_context`: start
    method of PyTorch's workers.
    """

    loader: Literal["native", "tensorflow", "pytorch"] = "native"
    mode: Literal["posix", "framework"] = "posix"
    access: Literal["independent", "collective"] = "independent"
    load: Literal["on_demand", "memory"] = "on_demand"
    batch_size: Positive = 1
    interleave: Positive | None = None
    transfer_size: units.Size | None = None
    read_threads: Positive = 1
    prefetch: Natural | None = None
    preprocess_time: units.Seconds = units.Seconds(0)
    preprocess_threads: Positive = 1
    shuffle: Shuffle = Shuffle()
    drop_last: bool = False
    shard: bool = True
    verify: bool | None = None
    verify_content: Literal["first", "all", "none"] = "first"
    direct: bool = False
    drop_cache: bool = False
    reorder_tasks: bool = False
    hints: dict[str, str] = {}
    multiprocessing_context: Literal["fork", "spawn"] = "fork"

    def __post_init__(self) -> None:
        workload_rules.check_reader(self)

    @property
    def batches_ahead(self) -> int:
        return 2 * self.read_threads if self.prefetch is None else self.prefetch

    def files_in_turn(self, dataset: Dataset) -> int:
        """interleave, or what it comes to where that is null."""
        if self.interleave is not None:
            return self.interleave
        return self.read_threads if workload_rules.reads_streams(dataset, self) else 1

    @property
    def verifies(self) -> bool:
        return self.mode == "framework" if self.verify is None else self.verify


class ComputeTime(Struct, frozen=True, forbid_unknown_fields=True):
    """How long steps compute: `mean` seconds, spread by a `distribution`; each rank draws for itself.

    normal and gamma need `stdev` (a normal draw below 0 counts as 0), constant and exponential have none.
    """

    mean: units.Seconds = units.Seconds(0)
    distribution: Literal["constant", "normal", "gamma", "exponential"] = "constant"
    stdev: units.Seconds | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        if (self.distribution in {"normal", "gamma"}) != (self.stdev is not None):
            raise ValueError("stdev goes with distribution: normal or gamma, which need it")
        if self.distribution == "gamma" and not self.mean / 1000 <= (self.stdev or 0) <= self.mean * 1000 > 0:
            raise ValueError("a gamma distribution needs a mean above 0 and a stdev of 1/1000 to 1000 times that")


class Compute(Struct, frozen=True, forbid_unknown_fields=True):
    """Emulated computation of a step. `time`: seconds, or how they are spread.

    sleep leaves the cores to the readers, as a host does that waits for its accelerator; spin burns the rank's core.
    """

    time: ComputeTime = ComputeTime()
    mode: Literal["sleep", "spin"] = "sleep"


# Section IV.B of the DLIO paper: two files of 1 KB, one of 4 KB, one of 64 KB, one of 4 MB.
_PAPER_FILES = tuple(map(units.Size, (1024, 1024, 4096, 65536, 4194304)))


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Model state written while training stands still, over the checkpoint before.

    `every_steps` null: after each epoch. `files`: their sizes, or `model_bytes` for one file of that size; null: the
    five files of the DLIO paper. `transfer_size`: bytes a write; null: a file in one. `by` all: every rank writes them.
    `read_back`: read the files again, and compare them with what was written.
    """

    every_steps: Positive | None = None
    files: tuple[units.Size, ...] | None = None
    model_bytes: units.Size | None = None
    transfer_size: units.Size | None = units.Size(1 << 20)
    by: Literal["root", "all"] = "root"
    fsync: bool = True
    read_back: bool = False

    def __post_init__(self) -> None:
        if self.files is not None and self.model_bytes is not None:
            raise ValueError("give either files or model_bytes")
        if self.transfer_size is not None and not 1 <= self.transfer_size <= workload_rules.LARGEST_REQUEST:
            raise ValueError("transfer_size must be at least 1 byte and at most 1 GiB, or null for one write a file")
        if min(self.sizes, default=0) < 1:
            raise ValueError("a checkpoint has at least one file, and no empty one")

    @property
    def sizes(self) -> tuple[units.Size, ...]:
        """Bytes of each file."""
        if self.model_bytes is not None:
            return (self.model_bytes,)
        return _PAPER_FILES if self.files is None else self.files


class Train(Struct, frozen=True, forbid_unknown_fields=True):
    """`steps` an epoch; null: the whole dataset."""

    epochs: Positive = 1
    steps: Positive | None = None


# Bytes.
FEW_PAGES = 128 * 1024


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    """One application's I/O."""

    name: str
    dataset: Dataset
    description: str = ""
    source: str = ""
    reader: Reader = Reader()
    compute: Compute = Compute()
    checkpoint: Checkpoint | None = None
    train: Train = Train()

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        workload_rules.check_workload(self)

    @property
    def brings_neighbours(self) -> bool:
        """Does the kernel fetch far more than is asked for? So it does for samples from the midst of files, in any
        order, and for files of a few pages.
        """
        dataset = self.dataset
        in_any_order = self.reader.shuffle.samples and dataset.samples_per_file > 1
        return in_any_order or dataset.samples_per_file * dataset.sample_bytes < FEW_PAGES

    @property
    def request_size(self) -> units.Size | None:
        """Bytes a request: transfer_size, or what it comes to where that is null; None where a library chooses."""
        dataset, reader = self.dataset, self.reader
        if reader.transfer_size is not None or dataset.format == "null" or reader.access == "collective":
            return reader.transfer_size
        if reader.mode == "framework":
            return units.Size(TENSORFLOW_BUFFER) if dataset.format == "tfrecord" else None
        if dataset.format == "npz" and dataset.compression != "none":
            return units.Size(1 << 20)
        chunk = math.prod(dataset.chunk_shape or ()) * ITEM_BYTES[dataset.sample.array_dtype]
        size = max(dataset.largest, chunk if dataset.is_chunked else 0)
        if reader.direct:  # with the blocks at both ends
            size = (-(-size // workload_rules.BLOCK) + 1) * workload_rules.BLOCK
        return units.Size(min(size, workload_rules.LARGEST_REQUEST))


class Draft(NamedTuple):
    """A workload as plain data, of which keys may still be changed. source: for messages."""

    data: dict[str, Any]
    source: str

    @property
    def name(self) -> str:
        return str(self.data.get("name") or "job")

    def with_settings(self, settings: dict[str, Any]) -> "Workload":
        """The workload with values laid over it, by their keys; ConfigError where it cannot be."""
        data = copy.deepcopy(self.data)
        for key, value in settings.items():
            document.put(data, key, value, f"{key}={value}")
            _spell_out(data)
        return document.convert(data, Workload, self.source)


def load(name: str, overrides: tuple[str, ...] = ()) -> Workload:
    """The workload `name` with `key=value` overrides (values read as YAML) laid over it."""
    return draft(name, overrides).with_settings({})


def draft(name: str, overrides: tuple[str, ...] = (), settings: dict[str, Any] | None = None) -> Draft:
    """As load(), to be changed further; `settings` are laid over it before the overrides are."""
    path = shipped.find(shipped.WORKLOADS, name)
    data = document.read_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a mapping of keys is needed")
    _spell_out(data)
    for key, value in (settings or {}).items():
        document.put(data, key, value, f"{key}={value}")
        _spell_out(data)
    for override in overrides:
        document.override(data, override)
        _spell_out(data)
    return Draft(data, f"{path} with -S" if overrides else str(path))


def _spell_out(data: dict[str, Any]) -> None:
    """The short forms that a person may write: `format: null`, `chunk: 64 KiB` and `time: 0.1`."""
    dataset, compute = data.get("dataset"), data.get("compute")
    if isinstance(dataset, dict):
        if "format" in dataset and dataset["format"] is None:
            dataset["format"] = "null"  # the unquoted word null is YAML's own
        chunk = dataset.get("chunk")
        if chunk is not None and not isinstance(chunk, dict):
            dataset["chunk"] = {"shape" if isinstance(chunk, list) else "bytes": chunk}
    if isinstance(compute, dict) and "time" in compute and not isinstance(compute["time"], dict):
        compute["time"] = {"mean": compute["time"]}


def resized(workload: Workload, size: int, ranks: int) -> Workload:
    """The workload on a dataset of at most `size` bytes, short of it by less than one file. The number of files
    changes; the number of samples in a file decreases only where there would be fewer files than `ranks`. A shared file
    changes its number of samples and is short of `size` by less than one sample. Samples keep their size and shape.

    ConfigError where `size` holds no sample, or where the format cannot hold the resulting dataset.
    """
    dataset = workload.dataset
    wanted = size // dataset.sample_bytes
    asked = f"--dataset-size {units.format_size(size)}"
    if wanted < 1:
        raise ConfigError(f"{asked} holds no sample; one sample is {units.format_size(dataset.sample_bytes)}")
    files, samples_per_file = _geometry(dataset, wanted, ranks)
    try:
        made = structs.replace(dataset, files=files, samples_per_file=samples_per_file)
    except ValueError as fault:
        change = f"with {'more' if wanted > dataset.samples else 'fewer'} samples in a file, "
        change = change if samples_per_file != dataset.samples_per_file else ""
        raise ConfigError(f"{asked}: {change}{fault}") from fault
    return structs.replace(workload, dataset=made)


def _geometry(dataset: Dataset, wanted: int, ranks: int) -> tuple[int, int]:
    """Number of files, and of samples in each, of a dataset with `wanted` samples."""
    if dataset.file_access == "shared":
        return 1, wanted
    if wanted >= dataset.samples:
        return wanted // dataset.samples_per_file, dataset.samples_per_file
    files = min(dataset.files, max(wanted // dataset.samples_per_file, min(ranks, wanted)))
    samples_per_file = min(dataset.samples_per_file, wanted // files)
    return min(dataset.files, wanted // samples_per_file), samples_per_file
