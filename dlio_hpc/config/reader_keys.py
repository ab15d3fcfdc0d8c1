"""The keys of a workload's `reader`, as frozen structs, and the combinations of them that are refused."""

from typing import Literal

from msgspec import Struct

from dlio_hpc import units
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.document import refuse

# What O_DIRECT asks of offsets and lengths on every file system in use (open(2)).
BLOCK = 4096
# What one request may ask for; preadv(2) ends below 2 GiB.
LARGEST_REQUEST = 2**30


class Shuffle(Struct, frozen=True, forbid_unknown_fields=True):
    """`files`: files in random order. `samples`: samples of a file in random order. Both: any sample next.

    `reseed`: another order in every epoch. `ascending`: chance says which samples make a batch, and they are read in
    the order in which they lie, as h5py wants the numbers that select them.
    """

    files: bool = False
    samples: bool = False
    seed: units.Natural = 0
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
    batch_size: units.Positive = 1
    interleave: units.Positive | None = None
    transfer_size: units.Size | None = None
    read_threads: units.Positive = 1
    prefetch: units.Natural | None = None
    preprocess_time: units.Seconds = units.Seconds(0)
    preprocess_threads: units.Positive = 1
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
        _check(self)

    @property
    def batches_ahead(self) -> int:
        return 2 * self.read_threads if self.prefetch is None else self.prefetch

    def files_in_turn(self, dataset: Dataset) -> int:
        """interleave, or what it comes to where that is null."""
        if self.interleave is not None:
            return self.interleave
        return self.read_threads if reads_streams(dataset, self) else 1

    @property
    def verifies(self) -> bool:
        return self.mode == "framework" if self.verify is None else self.verify


def _check(reader: Reader) -> None:
    """ValueError for settings that no dataset can be read with."""
    threads, ahead, collective = reader.read_threads, reader.prefetch, reader.access == "collective"
    refuse(
        (
            reader.transfer_size is not None and not 1 <= reader.transfer_size <= LARGEST_REQUEST,
            "transfer_size must be at least 1 byte, and at most 1 GiB",
        ),
        (
            reader.batch_size * (reader.batches_ahead + 1) > 2**31,
            "batch_size x (prefetch + 1) samples do not fit in any node's memory",
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
            "interleave takes files in turn; with shuffle of files and samples any sample may come next",
        ),
        (
            reader.shuffle.ascending and not (reader.shuffle.files or reader.shuffle.samples),
            "shuffle.ascending sorts the batches of a shuffled order: set shuffle.samples or files with it",
        ),
        (
            reader.loader == "pytorch" and reader.preprocess_threads > 1,
            "PyTorch's workers preprocess what they read: raise read_threads, not preprocess_threads",
        ),
        (
            collective and (reader.loader != "native" or threads > 1 or reader.direct),
            "access: collective needs loader: native, read_threads: 1 and direct: false",
        ),
        (bool(reader.hints) and not collective, "hints are MPI-IO's and go with access: collective"),
        (
            reader.multiprocessing_context != "fork" and reader.loader != "pytorch",
            "multiprocessing_context is PyTorch's and goes with loader: pytorch",
        ),
        (
            reader.reorder_tasks and not reader.shard,
            "reorder_tasks: true means nothing when shard: false lets every rank read everything",
        ),
    )


def reads_streams(dataset: Dataset, reader: Reader) -> bool:
    """Return whether each file is a stream of records, read from its front as TFRecordDataset does. It is none where
    any sample of any file may come next. Every loader uses the order of streams.
    """
    return (
        reader.mode == "framework"
        and dataset.format == "tfrecord"
        and not (reader.shuffle.files and reader.shuffle.samples)
    )


def by_streams(dataset: Dataset, reader: Reader) -> bool:
    """Return whether the loader reads such streams. PyTorch's workers read whole batches, by the offsets of records."""
    return reader.loader != "pytorch" and reads_streams(dataset, reader)


def reads_records(dataset: Dataset, reader: Reader) -> bool:
    """Return whether TensorFlow reads the files itself."""
    return reader.loader == "tensorflow" and reads_streams(dataset, reader)


def shares_files(dataset: Dataset, reader: Reader, ranks: int) -> bool:
    """Return whether whole files are divided among the ranks. Two ranks that share a stream would both read it."""
    return reader.shard and dataset.files >= ranks and reads_streams(dataset, reader)
