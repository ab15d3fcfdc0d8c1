"""Generating and reading by one rank with samples of 1 MiB, each compared with a bare loop over the same files."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content
from dlio_hpc.core.formats import FORMATS, npz, tfrecord
from dlio_hpc.core.loaders.loader import Loader
from dlio_hpc.core.loaders.native import NativeLoader
from dlio_hpc.plan.sample_order import Order
from dlio_hpc.units import Size
from tests import written
from tests.bench.table import compare

FILES, PER_FILE, BATCH = 16, 16, 4
BYTES = Sample(bytes=Size(1 << 20))
COLUMNS = 4096
GOAL = ">= 0.9"
CSV = Dataset("csv", 4, 40, Sample(shape=(COLUMNS,)))


def bench(folder: Path) -> None:
    for kind in ("npz", "hdf5", "tfrecord"):
        dataset = Dataset(kind, FILES, PER_FILE, BYTES)
        here = folder / kind
        here.mkdir()
        _generation(here, dataset)
        start, gap = _where(here, kind)
        bare = _preadv(here, start, gap)
        compare(f"read {kind}, posix / preadv", _ours(here, dataset, "posix"), bare, dataset.size, ">= 0.8")
    (folder / "csv").mkdir()
    _framework(folder)


def _framework(folder: Path) -> None:
    npz_set, hdf5_set, records = (Dataset(kind, FILES, PER_FILE, BYTES) for kind in ("npz", "hdf5", "tfrecord"))
    for number in range(CSV.files):
        written.write(_path(folder / "csv", number), CSV, number)
    rows: tuple[tuple[str, Dataset, str, str, Callable[[Path], Callable[[], None]], str], ...] = (
        ("framework / numpy.load", npz_set, "framework", "native", _load, GOAL),
        ("framework / h5py", hdf5_set, "framework", "native", _h5py, GOAL),
        ("framework, native / TFRecordDataset", records, "framework", "native", _records, GOAL),
        ("loader tensorflow / TFRecordDataset", records, "framework", "tensorflow", _records, GOAL),
        ("framework / pandas.read_csv", CSV, "framework", "native", _pandas, GOAL),
        ("posix / pandas.read_csv", CSV, "posix", "native", _pandas, ""),
    )
    for what, dataset, mode, loader, bare, goal in rows:
        here = folder / dataset.format
        compare(f"read {dataset.format}, {what}", _ours(here, dataset, mode, loader), bare(here), dataset.size, goal)


def _path(folder: Path, number: int) -> str:
    return str(folder / f"{number}.data")


def _generation(folder: Path, dataset: Dataset) -> None:
    block = np.random.PCG64(1).random_raw(content.BLOCK // 8).tobytes()

    def ours() -> None:
        for number in range(FILES):
            written.write(_path(folder, number), dataset, number)

    def bare() -> None:
        for number in range(FILES):
            with (folder / f"{number}.raw").open("wb", buffering=0) as file:
                for _ in range(PER_FILE):
                    file.write(block)
                os.fsync(file.fileno())

    compare(f"generate {dataset.format} / write the same bytes", ours, bare, dataset.size, ">= 0.5")
    for number in range(FILES):
        (folder / f"{number}.raw").unlink()


def _ours(folder: Path, dataset: Dataset, mode: Any, loader: Any = "native") -> Callable[[], None]:
    """Return epochs through our loader, which reads on demand. TensorFlow uses the pipeline that its users write."""
    made = Workload("bench", dataset, reader=Reader(loader=loader, mode=mode, batch_size=BATCH, prefetch=0))
    steps = dataset.samples // BATCH
    opened = _loader(made, folder, steps)
    order = Order(dataset, made.reader, 0)

    def epoch() -> None:
        read = sum(len(batch.rows) for batch in opened.epoch(order, 0, dataset.samples, steps))
        assert read == dataset.samples

    return epoch


def _loader(made: Workload, folder: Path, steps: int) -> Loader:
    paths = partial(_path, folder)
    if made.reader.loader == "tensorflow":
        from dlio_hpc.core.loaders.tensorflow import TensorFlowLoader

        return TensorFlowLoader(made, paths, whole=False)
    return NativeLoader(made, FORMATS[made.dataset.format].reader(made, paths, None), steps)


def _where(folder: Path, kind: str) -> tuple[int, int]:
    """Return the offset of the first sample and the distance between samples, in bytes."""
    if kind == "hdf5":
        with h5py.File(_path(folder, 0)) as file:
            return file["x"].id.get_offset(), BYTES.size
    return (npz.DATA_OFFSET, BYTES.size) if kind == "npz" else (tfrecord.HEAD, BYTES.size + tfrecord.FRAME)


def _preadv(folder: Path, start: int, gap: int) -> Callable[[], None]:
    buffer = np.empty((BATCH, BYTES.size), np.uint8)

    def loop() -> None:
        for number in range(FILES):
            descriptor = os.open(_path(folder, number), os.O_RDONLY)
            for sample in range(PER_FILE):
                os.preadv(descriptor, [buffer[sample % BATCH].data], start + sample * gap)
            os.close(descriptor)

    return loop


def _load(folder: Path) -> Callable[[], None]:
    batch = np.empty((BATCH, BYTES.size), np.uint8)

    def loop() -> None:
        for number in range(FILES):
            with np.load(_path(folder, number)) as archive:
                for place, sample in enumerate(archive["x"]):
                    batch[place % BATCH] = sample

    return loop


def _h5py(folder: Path) -> Callable[[], None]:
    batch = np.empty((BATCH, BYTES.size), np.uint8)

    def loop() -> None:
        for number in range(FILES):
            with h5py.File(_path(folder, number)) as file:
                samples = file["x"]
                for sample in range(PER_FILE):
                    batch[sample % BATCH] = samples[sample]

    return loop


def _records(folder: Path) -> Callable[[], None]:
    """Parse records into arrays, in batches, as an application does."""
    import tensorflow as tf

    files = [_path(folder, number) for number in range(FILES)]
    records = tf.data.TFRecordDataset(files, buffer_size=256 << 10)
    arrays = records.map(lambda record: tf.io.decode_raw(record, tf.uint8), 1, deterministic=True).batch(BATCH)

    def loop() -> None:
        read = sum(len(batch) for batch in arrays)
        assert read == FILES * PER_FILE

    return loop


def _pandas(folder: Path) -> Callable[[], None]:
    import pandas as pd

    batch = np.empty((BATCH, COLUMNS), np.float32)

    def loop() -> None:
        for number in range(CSV.files):
            table = pd.read_csv(_path(folder, number), header=None, dtype=np.float32)
            for place, sample in enumerate(table.to_numpy()):
                batch[place % BATCH] = sample

    return loop
