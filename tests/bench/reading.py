"""Reading through libraries by one rank with samples of 1 MiB, each compared with a bare loop over the same files."""

import itertools
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import numpy as np
from msgspec import structs

from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import Chunk, Dataset, Sample, ZarrKeys
from dlio_hpc.config.format_facts import FormatName
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.loaders.loader import Loader
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.dataset import dataset_folder, stored_parts
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.sample_order import Order
from tests.bench.table import ROUNDS, compare
from tests.support import written

FILES, PER_FILE, BATCH = 16, 16, 4
BYTES = Sample(bytes=Size(1 << 20))
COLUMNS = 4096
GOAL = ">= 0.95"


def bench(folder: Path, rounds: int = ROUNDS, shrink: int = 1) -> None:
    """Print a row for each case. shrink: factor by which datasets have fewer files."""
    for dataset in (_smaller(dataset, shrink) for dataset in SETS):
        here = _folder(folder, dataset)
        here.mkdir()
        path = _paths(here, dataset)
        for number in range(stored_parts.total(dataset)):
            written.write(path(number), dataset, number)
    for case in CASES:
        dataset = _smaller(case.dataset, shrink)
        here = _folder(folder, dataset)
        ours, bare = _ours(here, dataset, case), case.bare(here, dataset)
        compare(f"read {case.what}", ours, bare, dataset.size, case.goal, rounds)


def _smaller(dataset: Dataset, factor: int) -> Dataset:
    return structs.replace(dataset, files=max(1, dataset.files // factor))


def _folder(folder: Path, dataset: Dataset) -> Path:
    shard = "x".join(map(str, dataset.zarr_keys.shard or ()))
    return folder / f"{dataset.format}-{dataset.compression}-{dataset.files}x{dataset.samples_per_file}-{shard}"


def _path(folder: Path, number: int) -> str:
    return str(folder / f"{number}.data")


def _paths(folder: Path, dataset: Dataset) -> Callable[[int], str]:
    """Return a function from the number of a stored file to its path. It can be pickled."""
    if dataset.facts.is_store:
        return dataset_folder.paths(StoredDataset(str(folder), dataset, ""))
    return partial(_path, folder)


def _ours(folder: Path, dataset: Dataset, case: "Case") -> Callable[[], None]:
    """Return epochs through our loader, which reads on demand. TensorFlow uses the pipeline that its users write."""
    mode: Any = case.mode
    loader: Any = case.loader
    ahead = 2 if loader == "pytorch" else 0
    keys = Reader(loader=loader, mode=mode, batch_size=case.batch, prefetch=ahead, mapped=case.mapped)
    made = Workload("bench", dataset, reader=keys)
    steps = -(-dataset.samples // case.batch)
    opened = _loader(made, folder, steps)
    order = Order(dataset, made.reader, 0)

    def epoch() -> None:
        read = sum(len(given.rows) for given in opened.epoch(order, 0, dataset.samples, steps))
        assert read == dataset.samples

    return epoch


def _loader(made: Workload, folder: Path, steps: int) -> Loader:
    paths = _paths(folder, made.dataset)
    if made.reader.loader == "tensorflow":
        from dlio_hpc.core.loaders.tensorflow.tensorflow_loader import TensorFlowLoader

        return TensorFlowLoader(made, paths, whole=False)
    if made.reader.loader == "pytorch":
        from dlio_hpc.core.loaders.pytorch import PyTorchLoader

        return PyTorchLoader(made, paths)
    return NativeLoader(made, FORMATS[made.dataset.format].reader(made, paths, None), steps)


def _load(folder: Path, dataset: Dataset) -> Callable[[], None]:
    batch = np.empty((BATCH, BYTES.size), np.uint8)

    def loop() -> None:
        for number in range(dataset.files):
            with np.load(_path(folder, number)) as archive:
                for place, sample in enumerate(archive["x"]):
                    batch[place % BATCH] = sample

    return loop


def _npy(folder: Path, dataset: Dataset) -> Callable[[], None]:
    batch = np.empty((BATCH, BYTES.size), np.uint8)

    def loop() -> None:
        for number in range(dataset.files):
            for place, sample in enumerate(np.load(_path(folder, number))):
                batch[place % BATCH] = sample

    return loop


def _tarfile(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Read shards from front to back, as webdataset does."""
    batch = np.empty((BATCH, dataset.sample.size), np.uint8)
    members = len(dataset.arrays or (0,))

    def loop() -> None:
        for number in range(dataset.files):
            with open(_path(folder, number), "rb") as file, tarfile.open(fileobj=file, mode="r|*") as archive:
                begin = 0
                for place, member in enumerate(archive):
                    stream = archive.extractfile(member)
                    assert stream is not None
                    data = np.frombuffer(stream.read(), np.uint8)
                    begin = begin if place % members else 0
                    batch[place // members % BATCH, begin : begin + len(data)] = data
                    begin += len(data)
                    archive.members = []  # type: ignore[attr-defined]

    return loop


def _index(folder: Path, number: int) -> tuple[Any, Any]:
    """Read the index of a file of tokens, as Megatron-LM's IndexedDataset does. Return lengths and pointers."""
    path = _path(folder, 2 * number + 1)
    with open(path, "rb") as file:
        sequences = int.from_bytes(file.read(34)[18:26], "little")
    data = np.memmap(path, mode="r")
    lengths = np.frombuffer(data, np.int32, sequences, 34)
    return lengths, np.frombuffer(data, np.int64, sequences, 34 + lengths.nbytes)


def _memmap(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Copy sequences from mapped files, as a collation of batches does."""
    batch = np.empty((BATCH, dataset.sample.size // 4), np.int32)

    def loop() -> None:
        for number in range(dataset.files):
            lengths, pointers = _index(folder, number)
            data = np.memmap(_path(folder, 2 * number), mode="r")
            for place in range(len(lengths)):
                batch[place % BATCH] = np.frombuffer(data, np.int32, lengths[place], pointers[place])

    return loop


def _opened(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Open, read and close the file of tokens for each sequence, and copy the sequence to a batch."""
    batch = np.empty((BATCH, dataset.sample.size // 4), np.int32)

    def loop() -> None:
        for number in range(dataset.files):
            lengths, pointers = _index(folder, number)
            path = _path(folder, 2 * number)
            for place in range(len(lengths)):
                sequence = np.empty(lengths[place], np.int32)
                with open(path, "rb", buffering=0) as file:
                    file.seek(pointers[place])
                    file.readinto(sequence.data)
                batch[place % BATCH] = sequence

    return loop


def _pillow(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Decode each file as torchvision's ImageFolder does."""
    from PIL import Image

    def loop() -> None:
        for number in range(dataset.files):
            with open(_path(folder, number), "rb") as file:
                Image.open(file).load()

    return loop


def _h5py(folder: Path, dataset: Dataset) -> Callable[[], None]:
    batch = np.empty((BATCH, BYTES.size), np.uint8)

    def loop() -> None:
        for number in range(dataset.files):
            with h5py.File(_path(folder, number)) as file:
                samples = file["x"]
                for sample in range(dataset.samples_per_file):
                    batch[sample % BATCH] = samples[sample]

    return loop


def _zarr(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Read samples of stores with zarr-python, as an application does."""
    import zarr

    path = _paths(folder, dataset)
    batch = np.empty((BATCH, *dataset.sample.array_shape), dataset.sample.array_dtype)

    def loop() -> None:
        for number in range(dataset.files):
            store = Path(path(number * stored_parts.of(dataset).number)).parent
            array = zarr.open_array(store, mode="r", zarr_format=dataset.zarr_keys.version)
            for sample in range(dataset.samples_per_file):
                batch[sample % BATCH] = array[sample]

    return loop


def _chunk_files(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Read the files of chunks with preadv, and copy each chunk to its place in the sample."""
    assert dataset.chunk_shape is not None
    path, chunk = _paths(folder, dataset), dataset.chunk_shape[1:]
    batch = np.empty((BATCH, *dataset.sample.array_shape), dataset.sample.array_dtype)
    memory = np.empty(chunk, dataset.sample.array_dtype)
    grid = [range(0, extent, part) for extent, part in zip(batch.shape[1:], chunk, strict=True)]
    parts = stored_parts.of(dataset).number

    def loop() -> None:
        for number in range(dataset.files):
            part = number * parts + 1
            for sample in range(dataset.samples_per_file):
                for begin in itertools.product(*grid):
                    descriptor = os.open(path(part), os.O_RDONLY)
                    assert os.preadv(descriptor, [memory.data], 0) == os.fstat(descriptor).st_size
                    os.close(descriptor)
                    place = tuple(slice(first, first + extent) for first, extent in zip(begin, chunk, strict=True))
                    batch[sample % BATCH][place] = memory
                    part += 1

    return loop


def _records(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Parse records into arrays, in batches, as an application does."""
    import tensorflow as tf

    files = [_path(folder, number) for number in range(dataset.files)]
    records = tf.data.TFRecordDataset(files, buffer_size=256 << 10)
    arrays = records.map(lambda record: tf.io.decode_raw(record, tf.uint8), 1, deterministic=True).batch(BATCH)

    def loop() -> None:
        read = sum(len(batch) for batch in arrays)
        assert read == dataset.samples

    return loop


def _packed_records(folder: Path, dataset: Dataset) -> Callable[[], None]:
    import tensorflow as tf

    files = [_path(folder, number) for number in range(dataset.files)]
    records = tf.data.TFRecordDataset(files, dataset.compression.upper(), buffer_size=256 << 10)
    arrays = records.map(lambda record: tf.io.decode_raw(record, tf.uint8), 1, deterministic=True).batch(BATCH)

    def loop() -> None:
        read = sum(len(batch) for batch in arrays)
        assert read == dataset.samples

    return loop


def _inflated(block: int, verifies: bool, folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Decompress files in requests of `block` bytes, and cut the records. verifies: whether to verify checksums."""
    import google_crc32c

    batch = np.empty((BATCH, BYTES.size), np.uint8)

    def pieces(path: str) -> Iterator[bytes]:
        inflate = zlib.decompressobj(31)
        with open(path, "rb", buffering=0) as file:
            while packed := file.read(block):
                while packed:
                    yield inflate.decompress(packed, 256 << 10)
                    packed = inflate.unconsumed_tail

    def loop() -> None:
        for number in range(dataset.files):
            held, sample = bytearray(), 0
            for piece in pieces(_path(folder, number)):
                held += piece
                if len(held) >= BYTES.size + 16:
                    record = np.frombuffer(held, np.uint8, BYTES.size, 12)
                    batch[sample % BATCH] = record
                    if verifies:
                        google_crc32c.value(batch[sample % BATCH])
                    del record
                    del held[: BYTES.size + 16]
                    sample += 1
            assert sample == dataset.samples_per_file

    return loop


def _data_loader(folder: Path, dataset: Dataset) -> Callable[[], None]:
    """Load a file per sample in a worker process, and collate batches, as an application does."""
    import torch

    class Arrays(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return dataset.samples

        def __getitem__(self, number: int) -> Any:
            with np.load(_path(folder, number)) as archive:
                return torch.from_numpy(archive["x"][0])

    batches = torch.utils.data.DataLoader(Arrays(), batch_size=BATCH, num_workers=1, prefetch_factor=2)

    def loop() -> None:
        read = sum(len(batch) for batch in batches)
        assert read == dataset.samples

    return loop


def _pandas(folder: Path, dataset: Dataset) -> Callable[[], None]:
    import pandas as pd

    batch = np.empty((BATCH, COLUMNS), np.float32)

    def loop() -> None:
        for number in range(dataset.files):
            table = pd.read_csv(_path(folder, number), header=None, dtype=np.float32)
            for place, sample in enumerate(table.to_numpy()):
                batch[place % BATCH] = sample

    return loop


class Case(NamedTuple):
    """A comparison. what: its name. bare: function that returns the loop to compare with. batch: samples of a batch.
    mapped: whether our loader maps files.
    """

    what: str
    dataset: Dataset
    mode: str
    loader: str
    bare: Callable[[Path, Dataset], Callable[[], None]]
    goal: str
    batch: int = BATCH
    mapped: bool = False


_KINDS: tuple[FormatName, ...] = ("npz", "npy", "hdf5", "tfrecord", "tar")
NPZ, NPY, HDF5, RECORDS, TAR = (Dataset(kind, FILES, PER_FILE, BYTES) for kind in _KINDS)
# An image, a caption and metadata, of the sizes of LAION-400M.
LAION = Dataset("tar", 4, 1000, Sample(bytes=Size(26_000)), arrays=(Size(25_000), Size(100), Size(900)))
TOKENS, SHORT = (
    Dataset("indexed", 2, count, Sample(shape=(tokens,), dtype="int32"))
    for count, tokens in ((128, 1 << 18), (3999, 4096))
)
SINGLE = Dataset("npz", FILES * PER_FILE, 1, BYTES)
PACKED = Dataset("tfrecord", 4, PER_FILE, BYTES, compression="gzip", random_bits=4)
JPEG, PNG = (Dataset(kind, FILES * PER_FILE, 1, Sample(bytes=Size(110_000))) for kind in ("jpeg", "png"))
# Chunks of 64 KiB, in files of their own and in shards of 1 MiB.
_PATCH, _PIECE = Sample(shape=(512, 512)), Chunk(shape=(1, 128, 128))
ZARR2 = Dataset("zarr", FILES, PER_FILE, _PATCH, chunk=_PIECE, zarr=ZarrKeys(version=2))
SHARDED = Dataset("zarr", FILES // 2, PER_FILE, _PATCH, chunk=_PIECE, zarr=ZarrKeys(shard=(1, 512, 512)))
ZSTD = Dataset("zarr", FILES // 4, PER_FILE, _PATCH, chunk=_PIECE, compression="zstd", random_bits=4)
CSV = Dataset("csv", 4, 40, Sample(shape=(COLUMNS,)))
_STREAMED, _WHOLE = partial(_inflated, 256 << 10, True), partial(_inflated, 1 << 20, False)
SETS = (NPZ, NPY, JPEG, PNG, SINGLE, HDF5, RECORDS, PACKED, TAR, LAION, TOKENS, SHORT, ZARR2, SHARDED, ZSTD, CSV)
CASES = (
    Case("npz, framework / numpy.load", NPZ, "framework", "native", _load, GOAL),
    Case("npy, framework / numpy.load", NPY, "framework", "native", _npy, GOAL),
    Case("jpeg 110 kB, framework / Pillow", JPEG, "framework", "native", _pillow, ">= 0.9"),
    Case("png 110 kB, framework / Pillow", PNG, "framework", "native", _pillow, ">= 0.9"),
    Case("hdf5, framework / h5py", HDF5, "framework", "native", _h5py, GOAL),
    Case("tar, framework / tarfile", TAR, "framework", "native", _tarfile, ">= 0.9"),
    Case("tar of images and labels, framework / tarfile", LAION, "framework", "native", _tarfile, ">= 0.9", 50),
    Case("indexed, mapped / numpy.memmap", TOKENS, "framework", "native", _memmap, ">= 0.9", mapped=True),
    Case("indexed, framework / open, seek, read", TOKENS, "framework", "native", _opened, ">= 0.9"),
    Case("indexed 16 KiB, mapped / numpy.memmap", SHORT, "framework", "native", _memmap, ">= 0.85", 64, mapped=True),
    Case("indexed 16 KiB, framework / open, seek, read", SHORT, "framework", "native", _opened, ">= 0.9", 64),
    Case("zarr 64 KiB, framework / zarr-python", ZARR2, "framework", "native", _zarr, ">= 0.9"),
    Case("zarr shards, framework / zarr-python", SHARDED, "framework", "native", _zarr, ">= 0.9"),
    Case("zarr zstd, framework / zarr-python", ZSTD, "framework", "native", _zarr, ">= 0.9"),
    Case("zarr 64 KiB, posix / preadv", ZARR2, "posix", "native", _chunk_files, ">= 0.85"),
    Case("csv, framework / pandas.read_csv", CSV, "framework", "native", _pandas, GOAL),
    Case("csv, posix / pandas.read_csv", CSV, "posix", "native", _pandas, ""),
    Case("tfrecord, framework, native / TFRecordDataset", RECORDS, "framework", "native", _records, ""),
    Case("tfrecord, loader tensorflow / TFRecordDataset", RECORDS, "framework", "tensorflow", _records, ">= 0.9"),
    Case("tfrecord gzip, framework, native / zlib", PACKED, "framework", "native", _STREAMED, ">= 0.9"),
    Case("tfrecord gzip, posix / zlib", PACKED, "posix", "native", _WHOLE, ">= 0.85"),
    Case("tfrecord gzip, framework, native / TFRecordDataset", PACKED, "framework", "native", _packed_records, ""),
    Case(
        "tfrecord gzip, loader tensorflow / TFRecordDataset",
        PACKED,
        "framework",
        "tensorflow",
        _packed_records,
        ">= 0.9",
    ),
    Case("npz 1 per file, loader pytorch / DataLoader", SINGLE, "framework", "pytorch", _data_loader, GOAL),
)
