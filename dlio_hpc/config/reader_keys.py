"""The keys of a workload's `reader`, as frozen structs, and combinations of them that are rejected."""

from typing import Literal

from msgspec import Struct

from dlio_hpc import units
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.document import refuse

# Alignment of offsets and lengths that O_DIRECT requires on all file systems in use (open(2)).
BLOCK = 4096
# Maximum bytes of a request; preadv(2) is limited to just below 2 GiB.
LARGEST_REQUEST = 2**30


class Shuffle(Struct, frozen=True, forbid_unknown_fields=True):
    """Random order of files and samples."""

    files: bool = False
    """Read files in random order."""
    samples: bool = False
    """Read samples of a file in random order; with files: any sample of any file may come next."""
    seed: units.Natural = 0
    """Seed of the order."""
    reseed: bool = True
    """Use a different order in every epoch."""
    ascending: bool = False
    """Read the samples of a batch in ascending order, as h5py requires."""


class Reader(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings for reading on each rank."""

    loader: Literal["native", "tensorflow", "pytorch"] = "native"
    """Library that delivers batches: reader threads of dlio-hpc, tf.data, or PyTorch's DataLoader."""
    mode: Literal["posix", "framework"] = "posix"
    """posix: samples at their offsets with preadv(2); framework: files as the format's own library reads them."""
    access: Literal["independent", "collective"] = "independent"
    """independent: each rank reads by itself; collective: all ranks together through MPI-IO."""
    load: Literal["on_demand", "memory"] = "on_demand"
    """on_demand: during training; memory: everything before the first step."""
    batch_size: units.Positive = 1
    """Samples that a rank takes in a step. Example: 16"""
    interleave: units.Positive | None = None
    """Files that are read in turn, one sample of each; null: read_threads if TFRecord files are streams, else 1.
    Example: 4
    """
    transfer_size: units.Size | None = None
    """Bytes of a request; null: a sample (in framework mode, TFRecord: 256 KiB; npz: the buffer of open()). Example: 1
    MiB
    """
    read_threads: units.Positive = 1
    """Threads, worker processes (PyTorch) or parallel calls (tf.data). Example: 8"""
    prefetch: units.Natural | None = None
    """Batches that are read ahead; null: twice read_threads; 0: the training loop reads its batches itself. Example: 2
    """
    preprocess_time: units.Seconds = units.Seconds(0)
    """Preprocessing time per sample, before its batch is ready. Example: 5 ms"""
    preprocess_threads: units.Positive = 1
    """Threads for preprocessing. Example: 4"""
    shuffle: Shuffle = Shuffle()
    """Order of the samples."""
    drop_last: bool = False
    """Drop the samples that do not fill a step."""
    shard: bool = True
    """Each rank reads its share; false: every rank reads the whole dataset."""
    verify: bool | None = None
    """Verify the checksums of TFRecord files; null: in framework mode, as TensorFlow does."""
    verify_content: Literal["first", "all", "none"] = "first"
    """Compare samples with the generated contents. first: the beginning of each batch's first sample; all: every byte;
    none: nothing.
    """
    direct: bool = False
    """Bypass the page cache with O_DIRECT."""
    drop_cache: bool = False
    """Drop pages from the page cache: after generation, and before each epoch for the data to be read."""
    reorder_tasks: bool = False
    """Each rank reads the share of the next node, as IOR -C does."""
    hints: dict[str, str] = {}
    """MPI-IO hints for collective access. Example: {romio_cb_read: enable}"""
    multiprocessing_context: Literal["fork", "spawn"] = "fork"
    """Start method of PyTorch's workers."""

    def __post_init__(self) -> None:
        _check(self)

    @property
    def batches_ahead(self) -> int:
        return 2 * self.read_threads if self.prefetch is None else self.prefetch

    def files_in_turn(self, dataset: Dataset) -> int:
        """Return interleave, or its effective value if it is null."""
        if self.interleave is not None:
            return self.interleave
        return self.read_threads if reads_streams(dataset, self) else 1

    @property
    def verifies(self) -> bool:
        return self.mode == "framework" if self.verify is None else self.verify


def _check(reader: Reader) -> None:
    """Raise ValueError for settings with which no dataset can be read."""
    threads, ahead, collective = reader.read_threads, reader.prefetch, reader.access == "collective"
    refuse(
        (
            reader.transfer_size is not None and not 1 <= reader.transfer_size <= LARGEST_REQUEST,
            "transfer_size must be at least 1 byte, and at most 1 GiB",
        ),
        (
            reader.batch_size * (reader.batches_ahead + 1) > 2**31,
            "batch_size x (prefetch + 1) samples exceed the memory of any node",
        ),
        (
            ahead == 0 and threads > 1 and reader.loader == "pytorch",
            "prefetch: 0 leaves PyTorch without workers; set read_threads: 1 or prefetch: null",
        ),
        (
            0 < (ahead or 0) < threads and reader.loader != "tensorflow",
            f"prefetch: {ahead} batches would leave some of {threads} read_threads idle; "
            f"set prefetch to at least {threads}, or to null",
        ),
        (
            reader.direct and reader.mode == "framework",
            "direct: true needs mode: posix; the frameworks open files themselves, through the page cache",
        ),
        (
            reader.direct and (reader.transfer_size or 0) % BLOCK > 0,
            f"direct: true needs a transfer_size of whole blocks of {BLOCK} bytes",
        ),
        (
            (reader.interleave or 1) > 1 and reader.shuffle.files and reader.shuffle.samples,
            "interleave reads files in turn; with shuffle of files and samples any sample may come next",
        ),
        (
            reader.shuffle.ascending and not (reader.shuffle.files or reader.shuffle.samples),
            "shuffle.ascending sorts the batches of a shuffled order: set shuffle.samples or files with it",
        ),
        (
            reader.loader == "pytorch" and reader.preprocess_threads > 1,
            "PyTorch's workers preprocess the samples that they read: raise read_threads, not preprocess_threads",
        ),
        (
            collective and (reader.loader != "native" or threads > 1 or reader.direct),
            "access: collective needs loader: native, read_threads: 1 and direct: false",
        ),
        (bool(reader.hints) and not collective, "hints are for MPI-IO and need access: collective"),
        (
            reader.multiprocessing_context != "fork" and reader.loader != "pytorch",
            "multiprocessing_context is for PyTorch and needs loader: pytorch",
        ),
        (
            reader.reorder_tasks and not reader.shard,
            "reorder_tasks: true has no effect with shard: false, with which every rank reads everything",
        ),
    )


def reads_streams(dataset: Dataset, reader: Reader) -> bool:
    """Return whether each file is a stream of records, read from its start as by TFRecordDataset. False if any sample
    of any file may come next. Every loader uses the order of streams.
    """
    return (
        reader.mode == "framework"
        and dataset.format == "tfrecord"
        and not (reader.shuffle.files and reader.shuffle.samples)
    )


def by_streams(dataset: Dataset, reader: Reader) -> bool:
    """Return whether the loader reads files as streams. PyTorch's workers read whole batches, by the offsets of
    records.
    """
    return reader.loader != "pytorch" and reads_streams(dataset, reader)


def reads_records(dataset: Dataset, reader: Reader) -> bool:
    """Return whether TensorFlow reads the files itself."""
    return reader.loader == "tensorflow" and reads_streams(dataset, reader)


def shares_files(dataset: Dataset, reader: Reader, ranks: int) -> bool:
    """Return whether whole files are divided among the ranks: two ranks that share a stream would both read it."""
    return reader.shard and dataset.files >= ranks and reads_streams(dataset, reader)
