"""Which keys of a workload go with which: what cannot be is refused, with what would do."""

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlio_hpc.config.workload import Dataset, Reader, Workload

# What O_DIRECT asks of offsets and lengths on every file system in use (open(2)).
BLOCK = 4096
# What one request may ask for; preadv(2) ends below 2 GiB.
LARGEST_REQUEST = 2**30
# HDF5's limit on the bytes of a chunk (H5Pset_chunk).
_LARGEST_CHUNK = 2**32
_COMPRESSIONS = {"hdf5": {"none", "gzip", "lzf"}, "npz": {"none", "gzip"}}
# Who loads a file whole in mode: framework, and in which requests; NumPy lets Python's buffer have any size.
LIBRARIES = {"npz": "NumPy", "raw": "Python", "csv": "pandas"}


def _refuse(*rules: tuple[bool, str]) -> None:
    """ValueError with the first message whose condition holds."""
    for holds, message in rules:
        if holds:
            raise ValueError(message)


def check_dataset(dataset: "Dataset") -> None:
    """ValueError for a dataset that no format can hold as asked."""
    kind, sample, compression = dataset.format, dataset.sample, dataset.compression
    names = [side.name for side in dataset.auxiliary_files]
    _refuse(
        (
            dataset.file_access == "shared" and dataset.files != 1,
            f"file_access: shared means one file, found files: {dataset.files}",
        ),
        (
            dataset.samples > 2**53 or dataset.size >= 2**63,
            "no storage holds so much: at most 2^53 samples, less than 2^63 bytes",
        ),
        (dataset.chunk is not None and kind != "hdf5", f"chunk is HDF5's; format: {kind} has none, leave it null"),
        (
            compression not in _COMPRESSIONS.get(kind, {"none"}),
            f"compression: {compression} goes with format: hdf5 (gzip, lzf) or npz (gzip), found {kind}",
        ),
        (dataset.level is not None and compression != "gzip", "level goes with compression: gzip"),
        (
            dataset.compression_ratio is not None and dataset.random_bits != 8,
            "compression_ratio and random_bits both say how far data compress: give one of them",
        ),
        (
            dataset.compression_ratio is not None and kind in {"csv", "null"},
            f"compression_ratio: the contents of format: {kind} cannot be chosen; leave it null",
        ),
        (
            (dataset.compression_ratio or 1) > 1 and dataset.level == 0,
            "compression_ratio: gzip's level 0 compresses nothing; give level 1 to 9",
        ),
        (
            kind == "csv" and (sample.bytes is not None or sample.array_dtype != "float32"),
            "format: csv holds numbers: give sample a shape, and dtype float32",
        ),
        (len(set(names)) < len(names), "auxiliary_files: each needs a name of its own"),
    )
    if dataset.is_chunked:
        _check_chunk(dataset)


def _check_chunk(dataset: "Dataset") -> None:
    array, chunk = dataset.array_shape, dataset.chunk_shape or ()
    item_bytes = dataset.sample.size // prod(dataset.sample.array_shape)
    _refuse(
        (
            len(chunk) != len(array) or any(map(int.__gt__, chunk, array)),
            f"chunk: {list(chunk)} does not fit a file's array, {list(array)} (samples first)",
        ),
        (
            prod(chunk) * item_bytes >= _LARGEST_CHUNK,
            "chunk: HDF5 wants chunks below 4 GiB",
        ),
    )


def check_reader(reader: "Reader") -> None:
    """ValueError for settings that no dataset can be read with."""
    threads, ahead, collective = reader.read_threads, reader.prefetch, reader.access == "collective"
    _refuse(
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


def check_workload(workload: "Workload") -> None:
    """ValueError where the reader cannot read that dataset so."""
    dataset, reader = workload.dataset, workload.reader
    kind, framework = dataset.format, reader.mode == "framework"
    plain = dataset.compression == "none" and not dataset.is_chunked
    _refuse(
        (
            kind == "null" and reader.transfer_size is not None,
            "reader.transfer_size: the null format makes no requests; leave it null",
        ),
        (
            kind == "null" and (reader.access != "independent" or reader.direct or reader.load != "on_demand"),
            "reader: the null format has no storage; leave access, load and direct alone",
        ),
        (
            reader.transfer_size is not None and framework and kind in LIBRARIES and kind != "npz",
            f"reader.transfer_size goes with mode: posix; in mode: framework {LIBRARIES.get(kind)} chooses its "
            "requests",
        ),
        (
            (reader.interleave or 1) > 1 and kind in LIBRARIES and (framework or not plain),
            "reader.interleave: these files are loaded whole, it would load one for every sample",
        ),
        (
            by_streams(dataset, reader) and reader.read_threads > reader.files_in_turn(dataset),
            "reader.read_threads: each thread reads a TFRecord file of its own, and reader.interleave: "
            f"{reader.interleave} allows fewer files at a time than threads; raise reader.interleave, or leave it null",
        ),
        (
            kind == "null" and reader.verify_content == "all",
            "reader.verify_content: the null format brings nothing to compare; leave it at first",
        ),
        (
            reads_records(dataset, reader) and reader.shuffle.ascending,
            "reader.shuffle.ascending: tf.data reads records file by file, in their order already",
        ),
        (
            bool(reader.verify) and kind != "tfrecord",
            f"reader.verify checks TFRecord's checksums; format: {kind} has none",
        ),
        (
            not framework and dataset.compression == "lzf",
            "reader.mode: posix cannot unpack lzf, only HDF5 itself can; set mode: framework",
        ),
        (
            reader.direct and not plain,
            "reader.direct: true needs samples that lie whole in their file: no chunk, no compression",
        ),
    )
    if reader.access == "collective":
        _refuse(
            (
                dataset.file_access != "shared",
                "reader.access: collective is for one file that all ranks read: dataset.file_access: shared",
            ),
            (
                not framework and not plain,
                "reader.access: collective in mode: posix needs samples that lie whole in their file: no chunk, no "
                "compression",
            ),
            (
                framework and kind != "hdf5",
                f"reader.access: collective with format: {kind} needs mode: posix, which uses MPI-IO",
            ),
            (
                framework and (bool(reader.hints) or reader.transfer_size is not None),
                "reader: HDF5's own collective reads take neither hints nor transfer_size; set mode: posix",
            ),
        )


def reads_streams(dataset: "Dataset", reader: "Reader") -> bool:
    """Return whether each file is a stream of records, read from its front as TFRecordDataset does. It is none where
    any sample of any file may come next. Every loader uses the order of streams.
    """
    return (
        reader.mode == "framework"
        and dataset.format == "tfrecord"
        and not (reader.shuffle.files and reader.shuffle.samples)
    )


def by_streams(dataset: "Dataset", reader: "Reader") -> bool:
    """Return whether the loader reads such streams. PyTorch's workers read whole batches, by the offsets of records."""
    return reader.loader != "pytorch" and reads_streams(dataset, reader)


def reads_records(dataset: "Dataset", reader: "Reader") -> bool:
    """Return whether TensorFlow reads the files itself."""
    return reader.loader == "tensorflow" and reads_streams(dataset, reader)


def shares_files(dataset: "Dataset", reader: "Reader", ranks: int) -> bool:
    """Return whether whole files are divided among the ranks. Two ranks that share a stream would both read it."""
    return reader.shard and dataset.files >= ranks and reads_streams(dataset, reader)
