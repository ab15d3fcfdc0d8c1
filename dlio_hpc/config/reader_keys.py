"""The keys of a workload's `reader`, as frozen structs; a check that rejects invalid combinations of keys; and
functions that return how a dataset is read with these keys.
"""

import itertools
from typing import Literal

from msgspec import Struct

from dlio_hpc.base import units
from dlio_hpc.base.serialization import refuse
from dlio_hpc.config.dataset_keys import Dataset

LoaderName = Literal["native", "tensorflow", "pytorch"]

# O_DIRECT needs offsets and lengths that are multiples of a block. This block size suffices on all file systems in use
# (open(2)).
BLOCK = 4096
# Maximum size of a request in bytes. The limit of preadv(2) is just below 2 GiB.
LARGEST_REQUEST = 2**30


class Shuffle(Struct, frozen=True, forbid_unknown_fields=True):
    """Order in which files and samples are read: sequential or random."""

    files: bool = False
    """Read files in random order."""
    samples: bool = False
    """Read the samples of each file in random order. If `files` is also true, the samples of all files are mixed: any
    sample may follow any other.
    """
    seed: units.Natural = 0
    """Seed of the random order."""
    reseed: bool = True
    """Use a different order in every epoch."""
    ascending: bool = False
    """Read the samples of a batch in ascending order, as h5py requires."""
    block: units.Positive = 1
    """Number of adjacent samples that form a block, such as the rows of a Parquet row group. If samples are shuffled,
    the samples of a block stay together. The last block of a file may have fewer samples. Example: 1024
    """


class Reader(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings that control how each rank reads the dataset."""

    loader: LoaderName = "native"
    """Library that delivers batches. native: threads of dlio-hpc; tensorflow: tf.data; pytorch: PyTorch's
    DataLoader.
    """
    mode: Literal["posix", "framework"] = "posix"
    """posix: read samples at their offsets with preadv(2); framework: read files with the library of their format, or
    with the same requests as this library.
    """
    access: Literal["independent", "collective"] = "independent"
    """independent: each rank reads on its own; collective: all ranks read together through MPI-IO."""
    engine: Literal["preadv", "io_uring"] = "preadv"
    """System calls of posix mode. preadv: a thread waits for each request; io_uring: all requests of a batch are in
    flight at the same time, as with asynchronous reads of fio.
    """
    queue_depth: units.Positive | None = None
    """Largest number of requests that a thread has in flight with `engine: io_uring`, like iodepth of fio; null: all
    requests of a batch. Example: 16
    """
    load: Literal["on_demand", "memory"] = "on_demand"
    """on_demand: read samples during training; memory: read all samples before the first step."""
    batch_size: units.Positive = 1
    """Number of samples that a rank consumes in a step. Example: 16"""
    interleave: units.Positive | None = None
    """Number of files from which samples are read in turn, one sample from each. null: the value of `read_threads` if
    TFRecord or tar files are read as streams, otherwise 1. Example: 4
    """
    transfer_size: units.Size | None = None
    """Size of a request; null: the size of a sample. In framework mode, null means 256 KiB for TFRecord, the size of
    Python's file buffer for npz and tar, and no buffer for raw files. If a size is set in framework mode, raw files are
    read through a buffer of this size. Example: 1 MiB
    """
    resize: units.Size | None = None
    """Size of a sample in a batch, for applications that resize images; null: samples are not resized. The whole sample
    is read. The batch gets the first bytes of the sample, padded with zeros if the sample is shorter. With
    verify_content=all, samples are not resized, because whole samples are compared. Example: 150528
    """
    read_threads: units.Positive = 1
    """Number of threads (native), worker processes (pytorch) or parallel calls (tensorflow) that read. Example: 8"""
    prefetch: units.Natural | None = None
    """Number of batches that are read ahead; null: twice `read_threads`; 0: each batch is read when the training loop
    needs it. Example: 2
    """
    preprocess_time: units.Seconds = units.Seconds(0)
    """Time that the emulated preprocessing of a sample takes. Example: 5 ms"""
    preprocess_threads: units.Positive = 1
    """Number of threads that preprocess samples. Example: 4"""
    shuffle: Shuffle = Shuffle()
    """Order in which files and samples are read."""
    drop_last: bool = False
    """Omit the samples at the end of an epoch that do not fill the batches of all ranks."""
    shard: bool = True
    """true: each rank reads its own part of the dataset; false: every rank reads the whole dataset."""
    verify: bool | None = None
    """Verify the checksums of TFRecord files; null: true in framework mode, because TensorFlow verifies them, and false
    in posix mode.
    """
    verify_content: Literal["first", "all", "none"] = "first"
    """Compare samples with the contents that were generated. first: the beginning of the first sample of each batch;
    all: every byte; none: nothing.
    """
    direct: bool = False
    """Read with O_DIRECT, which bypasses the page cache."""
    drop_cache: bool = False
    """Drop the dataset from the page cache. After the dataset has been generated, all its pages are dropped. Before
    each epoch, the pages of the files that the epoch will read are dropped.
    """
    keep_open: bool = False
    """Keep files open from epoch to epoch, at most 64 per rank. false: each epoch opens its files again."""
    reopen: bool = False
    """Open the file before each sample is read, and close it afterwards. false: a file stays open while other samples
    of it are read.
    """
    reorder_tasks: bool = False
    """Let each rank read the part of the dataset that belongs to the corresponding rank on the next node, like IOR -C.
    """
    array_order: tuple[units.Natural, ...] | None = None
    """Order in which the arrays of a sample are read, as positions in `dataset.arrays`; null: the order in the file.
    Example: [2, 0, 1]
    """
    by_array: bool = False
    """Read one array of all samples of a batch, then the next array. false: read all arrays of a sample, then all
    arrays of the next sample.
    """
    mapped: bool = False
    """Map files into memory, as numpy.load does with mmap_mode="r", and copy samples from there. Page faults bring the
    data, without calls. false: files are read.
    """
    columns: tuple[str, ...] | None = None
    """Names of the columns of Parquet files that are read; null: all columns. Example: [label, features]"""
    hints: dict[str, str] = {}
    """MPI-IO hints, for collective access. Example: {romio_cb_read: enable}"""
    multiprocessing_context: Literal["fork", "spawn"] = "fork"
    """Method by which PyTorch starts its worker processes. Darshan records only spawned ones."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def batches_ahead(self) -> int:
        return 2 * self.read_threads if self.prefetch is None else self.prefetch

    @property
    def worker_processes(self) -> int:
        """Number of worker processes that read for a rank. Only PyTorch has worker processes. Each epoch starts new
        ones.
        """
        return self.read_threads if self.loader == "pytorch" and self.batches_ahead else 0

    def files_in_turn(self, dataset: Dataset) -> int:
        """Return the number of files from which samples are read alternately: the value of `interleave`, or its default
        if it is null.
        """
        if self.interleave is not None:
            return self.interleave
        return self.read_threads if reads_streams(dataset, self) and not deals_files(dataset, self) else 1

    @property
    def resizes(self) -> bool:
        """Whether the size of a sample in a batch differs from its size in the file."""
        return self.resize is not None and self.verify_content != "all"

    @property
    def verifies(self) -> bool:
        return self.mode == "framework" if self.verify is None else self.verify


def _check(reader: Reader) -> None:
    """Raise ValueError for settings that are invalid with every dataset."""
    threads, ahead, collective = reader.read_threads, reader.prefetch, reader.access == "collective"
    refuse(
        (
            reader.transfer_size is not None and not 1 <= reader.transfer_size <= LARGEST_REQUEST,
            "transfer_size must be at least 1 byte, and at most 1 GiB",
        ),
        (reader.resize is not None and reader.resize < 1, "resize must be at least 1 byte, or null"),
        (
            reader.batch_size * (reader.batches_ahead + 1) > 2**31,
            "batch_size x (prefetch + 1) samples exceed the memory of every known node",
        ),
        (
            ahead == 0 and threads > 1 and reader.loader == "pytorch",
            "prefetch=0 leaves PyTorch without workers; set read_threads=1 or prefetch=null",
        ),
        (
            0 < (ahead or 0) < threads and reader.loader != "tensorflow",
            f"prefetch={ahead} batches would leave some of {threads} read_threads idle; "
            f"set prefetch to at least {threads}, or to null",
        ),
        (
            reader.direct and reader.mode == "framework",
            "direct=true needs mode=posix; in mode=framework, libraries open the files and read through the page cache",
        ),
        (
            reader.direct and (reader.transfer_size or 0) % BLOCK > 0,
            f"direct=true needs a transfer_size that is a multiple of {BLOCK} bytes",
        ),
        (
            (reader.interleave or 1) > 1 and reader.shuffle.files and reader.shuffle.samples,
            "interleave reads files in turn, but if shuffle.files and shuffle.samples are both true, any sample may "
            "follow any other; leave interleave null, or set shuffle.files or shuffle.samples to false",
        ),
        (
            reader.shuffle.ascending and not (reader.shuffle.files or reader.shuffle.samples),
            "shuffle.ascending has no effect without shuffling: set shuffle.samples or shuffle.files to true as well, "
            "or remove ascending",
        ),
        (
            reader.shuffle.block > 1 and not reader.shuffle.samples,
            "shuffle.block has no effect without shuffle.samples: set shuffle.samples to true as well, or remove block",
        ),
        (
            reader.loader == "pytorch" and reader.preprocess_threads > 1,
            "PyTorch's workers preprocess the samples that they read: raise read_threads, not preprocess_threads",
        ),
        (
            collective and (reader.loader != "native" or threads > 1 or reader.direct),
            "access=collective needs loader=native, read_threads=1 and direct=false",
        ),
        (
            reader.engine == "io_uring" and (reader.loader != "native" or reader.mode != "posix" or collective),
            "engine=io_uring needs loader=native, mode=posix and access=independent",
        ),
        (
            reader.queue_depth is not None and reader.engine != "io_uring",
            "queue_depth needs engine=io_uring; a thread that reads with preadv waits for each request",
        ),
        (
            reader.keep_open and (reader.loader != "native" or collective or reader.load == "memory"),
            "keep_open=true needs loader=native, access=independent and load=on_demand",
        ),
        (
            reader.reopen and (reader.keep_open or collective or reader.engine == "io_uring"),
            "reopen=true needs keep_open=false, access=independent and engine=preadv",
        ),
        (bool(reader.hints) and not collective, "hints are for MPI-IO and need access=collective"),
        (
            reader.multiprocessing_context != "fork" and reader.loader != "pytorch",
            "multiprocessing_context is for PyTorch and needs loader=pytorch",
        ),
        (
            reader.reorder_tasks and not reader.shard,
            "reorder_tasks=true has no effect with shard=false, because every rank then reads the whole dataset",
        ),
    )


def reads_streams(dataset: Dataset, reader: Reader) -> bool:
    """Return whether samples are read in the order of TFRecordDataset and webdataset: each file is a stream, which is
    read sample by sample from its beginning. With every loader, this applies to TFRecord and tar files in framework
    mode, unless the samples of all files are mixed.
    """
    return (
        reader.mode == "framework" and dataset.facts.streams and not (reader.shuffle.files and reader.shuffle.samples)
    )


def by_streams(dataset: Dataset, reader: Reader) -> bool:
    """Return whether the loader reads files as streams. With the native loader, the result is the result of
    reads_streams(). With PyTorch, it is True only for archives; the workers of PyTorch read other files at the offsets
    of the samples. With TensorFlow, it is True only for the files that TensorFlow itself reads.
    """
    by_loader = reader.loader == "native" or reads_records(dataset, reader) or deals_files(dataset, reader)
    return by_loader and reads_streams(dataset, reader)


def deals_files(dataset: Dataset, reader: Reader) -> bool:
    """Return whether the files are dealt to the workers of PyTorch, as with webdataset: a worker reads whole archives,
    one after the other, and each of its batches is from its archives.
    """
    return reader.loader == "pytorch" and dataset.facts.holds_members and reads_streams(dataset, reader)


def reads_records(dataset: Dataset, reader: Reader) -> bool:
    """Return whether TensorFlow itself, and not dlio-hpc, reads the files."""
    return reader.loader == "tensorflow" and dataset.facts.holds_records and reads_streams(dataset, reader)


def loads_files(dataset: Dataset, reader: Reader) -> bool:
    """Return whether a whole file is loaded to read one of its samples."""
    if reader.mapped:
        return False
    if reader.mode == "posix":
        return dataset.is_packed
    by_workers = dataset.is_packed and reader.loader == "pytorch" and reader.shuffle.samples
    return by_workers or dataset.facts.loads_whole


def columns_read(dataset: Dataset, reader: Reader) -> tuple[int, ...]:
    """Return the positions of the columns to read from a Parquet file, in the order of the file. The name of a column
    of an existing file stands for all columns that are nested in it, too, as in pyarrow.
    """
    names = dataset.column_names
    if reader.columns is None:
        return tuple(range(len(names)))
    if dataset.existing is None:
        return tuple(at for at, name in enumerate(names) if name in reader.columns)
    return tuple(at for at, name in enumerate(names) if not outer_names(name).isdisjoint(reader.columns))


def outer_names(column: str) -> set[str]:
    """Return the name of a column, and the names of the columns in which it is nested."""
    return set(itertools.accumulate(column.split("."), "{}.{}".format))


def sample_bytes_read(dataset: Dataset, reader: Reader) -> int:
    """Return how many bytes of a sample are read: all bytes, or the bytes of the columns that are read. If sizes vary,
    this is the mean.
    """
    if reader.columns is None or not dataset.facts.holds_columns:
        return dataset.sample_bytes
    if dataset.scan is not None:
        return max(1, round(bytes_read(dataset, reader, dataset.samples) / dataset.samples))
    columns = dataset.all_columns
    return sum(columns[at].bytes for at in columns_read(dataset, reader))


def bytes_read(dataset: Dataset, reader: Reader, samples: int) -> int:
    """Return how many bytes of `samples` samples of Parquet files are read. If sizes vary, the result is exact only for
    the whole dataset.
    """
    if dataset.scan is None:
        return samples * sample_bytes_read(dataset, reader)
    sizes = list(dataset.scan.columns.values())
    return sum(sizes[at] for at in columns_read(dataset, reader)) * samples // dataset.samples


def spans_read(dataset: Dataset, reader: Reader) -> tuple[tuple[int, int | None], ...]:
    """Return which parts of a sample in memory are read, as half-open ranges of bytes. An end of None is the end of the
    sample. Adjacent columns of a Parquet file form one part.
    """
    if reader.columns is None or not dataset.facts.holds_columns or dataset.existing is not None:
        return ((0, None),)
    ends = list(itertools.accumulate(column.bytes for column in dataset.all_columns))
    spans: list[tuple[int, int | None]] = []
    for at in columns_read(dataset, reader):
        begin, end = ends[at] - dataset.all_columns[at].bytes, ends[at]
        if spans and spans[-1][1] == begin:
            begin = spans.pop()[0]
        spans.append((begin, end))
    return tuple(spans)


def keeps_handles(dataset: Dataset, reader: Reader) -> bool:
    """Return whether a file stays open after a sample was read, so that other samples of the file can be read."""
    facts = dataset.facts
    if not facts.holds_data or facts.is_store or dataset.is_packed or by_streams(dataset, reader):
        return False
    if reader.mode == "framework":
        return dataset.facts.stays_open
    return True


def keeps_data(dataset: Dataset, reader: Reader) -> bool:
    """Return whether data may stay in memory while a file stays open from epoch to epoch: HDF5 has caches, and the
    reader of Parquet keeps a row group. If so, the number of bytes that an epoch reads is not known in advance.
    """
    return reader.keep_open and reader.mode == "framework" and dataset.facts.caches_open


def can_reopen(dataset: Dataset, reader: Reader) -> bool:
    """Return whether a file can be opened again for each sample. The file must hold several samples and otherwise stay
    open. The library of Parquet, and the reader of HDF5 chunks in posix mode, cannot open a file again, because they
    keep information about the open file.
    """
    if not dataset.counts_vary and dataset.samples_per_file == 1:
        return False
    if reader.mode == "framework":
        return dataset.facts.reopens and keeps_handles(dataset, reader)
    is_whole = dataset.arrays is None and not dataset.is_chunked and dataset.compression == "none"
    return is_whole and not dataset.facts.splits_samples and keeps_handles(dataset, reader)


def fits_blocks(dataset: Dataset) -> bool:
    """Return whether O_DIRECT can read each sample without additional bytes, because each sample begins and ends at a
    block boundary of its file.
    """
    is_aligned = dataset.facts.fits_blocks and (dataset.existing is None or dataset.facts.holds_bytes)
    is_whole = dataset.arrays is None and not dataset.sizes_vary
    return is_aligned and is_whole and dataset.sample.size % BLOCK == 0


def shares_files(dataset: Dataset, reader: Reader, ranks: int) -> bool:
    """Return whether the ranks divide the files among themselves, instead of the samples. Files that are read as
    streams are divided, because two ranks that shared a file would both read the whole file. If files have different
    numbers of samples, the samples are divided nevertheless, so that every rank has the same number of steps.
    """
    return reader.shard and dataset.files >= ranks and reads_streams(dataset, reader) and not dataset.counts_vary
