"""Existing files: the scan finds their samples, and each loader reads every sample once, in the same order."""

import gzip
import os
import re
import shutil
import tempfile
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base import counted_progress, serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.config.reader_keys import LoaderName, Shuffle
from dlio_hpc.config.workload import Draft, Workload
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.formats import npy
from dlio_hpc.core.formats.tfrecord import head
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch, Loader
from dlio_hpc.core.loaders.loader_choice import LOADERS, Inputs
from dlio_hpc.core.loaders.memory import MemoryLoader
from dlio_hpc.dataset import dataset_scan, existing_files, file_scans, fingerprints, rank_shares, sample_index
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.sample_order import IrregularFiles, Order
from dlio_hpc.plan import plan
from tests.support import existing, rings

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

_SHUFFLES = [Shuffle(files, samples, 3) for files in (False, True) for samples in (False, True)]
_RANKS = 3


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    existing.forget()
    yield
    existing.forget()


@pytest.fixture(autouse=True)
def _frameworks(request: pytest.FixtureRequest) -> None:
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("loader") == "tensorflow":
        pytest.importorskip("tensorflow")


def _path(data: Path, index: str, number: int) -> str:
    return os.path.join(data, sample_index.opened(index).name(number))


def _open(loader: LoaderName, made: Workload, data: Path, steps: int) -> Loader:
    assert made.dataset.scan is not None
    paths = partial(_path, data, made.dataset.scan.index)
    opened = LOADERS[loader](Inputs(made, paths, steps, whole=True))
    return MemoryLoader(made, opened, steps, 1) if made.reader.load == "memory" else opened


def _numbers(batches: Iterator[Batch], contents: list[bytes]) -> list[list[int]]:
    """Return the samples of each batch. Their bytes must be those that were written."""
    numbers = []
    for batch in batches:
        for place, row in zip(batch.places, batch.rows, strict=True):
            assert row[: place.size].tobytes() == contents[place.sample]
        numbers.append(batch.places.sample.tolist())
    return numbers


def _check_epochs(loader: LoaderName, made: Workload, data: Path, contents: list[bytes], epochs: int = 2) -> None:
    """Check that ranks read each sample once an epoch, in the order of the epoch."""
    steps = rank_shares.steps_per_epoch(made, _RANKS)
    loaders = [_open(loader, made, data, steps) for _ in range(_RANKS)]
    for epoch in range(epochs):
        order = Order(made.dataset, made.reader, epoch, ranks=_RANKS)
        everything = []
        for rank, opened in enumerate(loaders):
            first, last = rank_shares.positions(made, _RANKS, rank, 1)
            numbers = [
                number for batch in _numbers(opened.epoch(order, first, last, steps), contents) for number in batch
            ]
            if made.reader.load == "on_demand":
                assert numbers == order.samples(first, last).tolist()
            everything += numbers
        assert sorted(everything) == list(range(len(contents)))
    for opened in loaders:
        opened.close()


@pytest.mark.parametrize("shuffle", _SHUFFLES, ids=lambda s: f"files={s.files},samples={s.samples}")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", LOADERS)
def test_records_of_files_with_different_numbers(
    tmp_path: Path, loader: LoaderName, mode: str, threads: int, shuffle: Shuffle
) -> None:
    contents = existing.records(tmp_path / "data", existing.payloads())
    keys: dict[str, Any] = {
        "loader": loader,
        "mode": mode,
        "batch_size": 4,
        "read_threads": threads,
        "shuffle": structs.asdict(shuffle),
    }
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("tfrecord", "*", **keys))
    assert made.dataset.counts_vary
    assert made.dataset.sizes_vary
    _check_epochs(loader, made, tmp_path / "data", contents)


_PACKS: dict[str, Any] = {"gzip": gzip.compress, "zlib": zlib.compress}


@pytest.mark.parametrize("shuffle", _SHUFFLES, ids=lambda s: f"files={s.files},samples={s.samples}")
@pytest.mark.parametrize("compression", _PACKS)
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", LOADERS)
def test_compressed_records(tmp_path: Path, loader: LoaderName, mode: str, compression: str, shuffle: Shuffle) -> None:
    contents = existing.records(tmp_path / "data", existing.payloads(), _PACKS[compression])
    (tmp_path / "data" / "part-99.tfrecord").touch()  # TensorFlow finds no records in an empty file
    keys: dict[str, Any] = {"loader": loader, "mode": mode, "batch_size": 4, "shuffle": structs.asdict(shuffle)}
    unscanned = existing.unscanned("tfrecord", "*", **keys)
    if mode == "framework" and shuffle.files and shuffle.samples:
        with pytest.raises(ValueError, match="the samples of all files cannot be mixed"):
            existing.scanned(tmp_path / "data", tmp_path, unscanned)
        return
    made = existing.scanned(tmp_path / "data", tmp_path, unscanned)
    assert made.dataset.compression == compression
    assert made.dataset.counts_vary
    assert made.dataset.size == sum(map(len, contents))
    _check_epochs(loader, made, tmp_path / "data", contents)


def _bomb(size: int) -> bytes:
    """Return the bytes of a gzip file with one record of `size` zeros."""
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [deflate.compress(head(size))]
    parts += [deflate.compress(bytes(1 << 20)) for _ in range(size >> 20)]
    return b"".join([*parts, deflate.flush()])


_PLAIN = b"".join(head(n) + bytes(n) + bytes(4) for n in (35615, 7))  # begins like a gzip file: 35615 is 0x8b1f


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (gzip.compress(_PLAIN)[:-9], "is truncated or corrupted: the file ends at byte 87, before the end of its comp"),
        (gzip.compress(_PLAIN)[:-1] + b"!", r"between byte 0 and byte \d+: incorrect length check .*GZIP"),
        (zlib.compress(_PLAIN)[:-1] + b"!", r"between byte 0 and byte \d+: incorrect data check .*ZLIB"),
        (gzip.compress(_PLAIN) + b"!!", r"between byte \d+ and byte \d+: incorrect header check"),
        (zlib.compress(_PLAIN) + b"!!", r"bytes follow at byte \d+, where its zlib stream ends"),
        (gzip.compress(_PLAIN[:-3]), "is truncated: its last record begins at byte 35631 of the decompressed records"),
        (gzip.compress(_PLAIN[:35640]), "decompressed, is corrupted: there is no record at byte 35631"),
        (gzip.compress(b"no data at all, " * 9), "decompressed, is not a TFRecord file"),
        (gzip.compress(head(2**62) + b"abc"), "is truncated: its last record begins at byte 0"),
        (gzip.compress(head(0) + bytes(4)), "the record at byte 0 is empty"),
        (_bomb(200 << 20), r"is a decompression bomb: its first \d+ bytes hold more than \d+ bytes of records"),
        (gzip.compress(_PLAIN), "has the compression gzip, but b.tfrecord has none"),
    ],
    ids=range(12),
)
def test_bad_compressed_files_are_named(tmp_path: Path, content: bytes, words: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "c.tfrecord").write_bytes(content)
    (data / "b.tfrecord").write_bytes(_PLAIN)
    tracemalloc.start()
    with pytest.raises(ConfigError, match=f"{re.escape(str(data))}/c.tfrecord.*{words}"):
        existing.scanned(data, tmp_path, existing.unscanned("tfrecord", "*"))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20


@pytest.mark.parametrize("turn", [2, 3, 20])
@pytest.mark.parametrize("loader", ["native", "tensorflow"])
def test_files_in_turn(tmp_path: Path, loader: LoaderName, turn: int) -> None:
    contents = existing.records(tmp_path / "data", existing.payloads())
    keys: dict[str, Any] = {"loader": loader, "batch_size": 3, "interleave": turn, "shuffle": {"files": True}}
    for mode in ("posix", "framework"):
        made = existing.unscanned("tfrecord", "*", mode=mode, **keys)
        _check_epochs(loader, existing.scanned(tmp_path / "data", tmp_path, made), tmp_path / "data", contents)


@pytest.mark.parametrize("sizes", [(700, 700), (1, 900)])
@pytest.mark.parametrize("loader", LOADERS)
def test_records_of_files_with_equal_numbers(tmp_path: Path, loader: LoaderName, sizes: tuple[int, int]) -> None:
    contents = existing.records(tmp_path / "data", existing.payloads((6,) * 5, sizes))
    keys: dict[str, Any] = {"loader": loader, "mode": "framework", "batch_size": 4, "shuffle": {"samples": True}}
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("tfrecord", "*", **keys))
    assert (made.dataset.counts_vary, made.dataset.sizes_vary) == (False, sizes[0] != sizes[1])
    assert made.dataset.samples_per_file == 6
    _check_epochs(loader, made, tmp_path / "data", contents)


@pytest.mark.parametrize("shuffle", [_SHUFFLES[0], _SHUFFLES[3]], ids=["in order", "shuffled"])
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", LOADERS)
def test_images(tmp_path: Path, loader: LoaderName, mode: str, shuffle: Shuffle) -> None:
    contents = existing.images(tmp_path / "data")
    keys: dict[str, Any] = {
        "loader": loader,
        "mode": mode,
        "batch_size": 2,
        "read_threads": 2,
        "shuffle": structs.asdict(shuffle),
    }
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("raw", "**/*.[jp][pn]g", **keys))
    assert made.dataset.size == sum(map(len, contents))
    assert made.dataset.largest == max(map(len, contents))
    assert not made.dataset.counts_vary
    _check_epochs(loader, made, tmp_path / "data", contents)


@pytest.mark.parametrize(
    "keys",
    [
        *existing.WAYS,
        {"shuffle": {"files": True, "samples": True, "ascending": True}},
    ],
    ids=str,
)
def test_other_ways_to_read(tmp_path: Path, keys: dict[str, Any]) -> None:
    if "engine" in keys:
        rings.required()
    contents = existing.images(tmp_path / "data")
    ways: list[tuple[str, list[bytes]]] = [("raw", contents)]
    if keys.get("mode") != "framework":
        ways.append(("tfrecord", existing.records(tmp_path / "records", existing.payloads())))
    for kind, expected in ways:
        data = tmp_path / ("data" if kind == "raw" else "records")
        made = existing.scanned(data, tmp_path, existing.unscanned(kind, "**/*.*", **keys))
        if keys.get("shuffle", {}).get("ascending"):
            order = Order(made.dataset, made.reader, 0)
            steps = rank_shares.steps_per_epoch(made, 1)
            numbers = _numbers(_open("native", made, data, steps).epoch(order, 0, len(expected), steps), expected)
            assert sorted(n for batch in numbers for n in batch) == list(range(len(expected)))
        else:
            _check_epochs("native", made, data, expected)


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_raw_files_with_samples_of_a_given_size(tmp_path: Path, mode: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    contents = []
    for number, count in enumerate((4, 1, 6)):
        samples = [np.random.default_rng(10 * number + n).bytes(300) for n in range(count)]
        (data / f"{number}.bin").write_bytes(b"".join(samples))
        contents += samples
    made = existing.unscanned("raw", "*.bin", {"sample_bytes": 300}, mode=mode, batch_size=2)
    made = existing.scanned(data, tmp_path, made)
    assert (made.dataset.counts_vary, made.dataset.sizes_vary, made.dataset.samples) == (True, False, 11)
    _check_epochs("native", made, data, contents)


@pytest.mark.parametrize(
    ("kind", "keys", "modes"),
    [
        ("npz", {}, ("posix", "framework")),
        ("npz", {"compression": "gzip"}, ("framework",)),
        ("hdf5", {}, ("posix", "framework")),
        ("hdf5", {"chunks": (2, 6, 10)}, ("posix", "framework")),
        ("hdf5", {"chunks": (2, 6, 25), "compression": "gzip"}, ("posix", "framework")),
        ("hdf5", {"chunks": (64, 6, 25), "maxshape": (None, 6, 25)}, ("posix", "framework")),
        ("hdf5", {"chunks": True, "compression": "gzip", "shuffle": True}, ("framework",)),
        ("hdf5", {"chunks": (1, 6, 25), "compression": "lzf"}, ("framework",)),
    ],
    ids=str,
)
@pytest.mark.parametrize("loader", LOADERS)
def test_arrays(tmp_path: Path, loader: LoaderName, kind: str, keys: dict[str, Any], modes: tuple[str, ...]) -> None:
    contents = existing.arrays(tmp_path / "data", kind, **keys)
    name = "images" if kind == "npz" else "train/images"
    for mode in modes:
        reader = {"loader": loader, "mode": mode, "batch_size": 4, "shuffle": {"files": True, "samples": True}}
        made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned(kind, "*", {"array": name}, **reader))
        assert made.dataset.sample.array_shape == (6, 25)
        _check_epochs(loader, made, tmp_path / "data", contents, 1)
    if "posix" not in modes:
        with pytest.raises(ConfigError, match="mode=framework"):
            _refused(tmp_path, existing.unscanned(kind, "*", {"array": name}))


_TYPES = [
    "uint16", "int8", "bool", "complex64", ">f4", ">i8", "float128", "S5", [("x", "<u2"), ("y", ">f8")], "V7",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [*_TYPES, "U3", "datetime64[ms]"], ids=str)
@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_npz_arrays_of_any_type(tmp_path: Path, mode: str, dtype: Any) -> None:
    contents = existing.typed(tmp_path / "data", "npz", np.dtype(dtype))
    made = existing.unscanned("npz", "*", mode=mode, batch_size=4, shuffle={"samples": True})
    made = existing.scanned(tmp_path / "data", tmp_path, made)
    assert made.dataset.sample.stored_dtype == np.dtype(dtype).str
    assert plan.resolved(made).dataset.sample == made.dataset.sample
    assert made.dataset.sample.size == len(contents[0])
    _check_epochs("native", made, tmp_path / "data", contents, 1)


@pytest.mark.parametrize("dtype", ["float32", *_TYPES], ids=str)
@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_rows_of_npy_arrays(tmp_path: Path, mode: str, dtype: Any) -> None:
    contents = existing.typed(tmp_path / "data", "npy", np.dtype(dtype))
    made = existing.unscanned("npy", "*", {"rows": True}, mode=mode, batch_size=4, shuffle={"samples": True})
    made = existing.scanned(tmp_path / "data", tmp_path, made)
    assert (made.dataset.counts_vary, made.dataset.samples_per_file) == (True, 9)
    _check_epochs("native", made, tmp_path / "data", contents, 1)


@pytest.mark.parametrize("shape", [(), (7,), (20, 3), (1, 4)], ids=str)
@pytest.mark.parametrize("loader", LOADERS)
def test_npy_files_that_are_samples(tmp_path: Path, loader: LoaderName, shape: tuple[int, ...]) -> None:
    (tmp_path / "data").mkdir()
    values = [np.random.default_rng(number).normal(size=shape).astype(">f4") for number in range(7)]
    for number, value in enumerate(values):
        np.save(tmp_path / "data" / f"{number}.npy", value)
    contents = [value.tobytes() for value in values]
    for mode in ("posix", "framework"):
        made = existing.unscanned("npy", "*", loader=loader, mode=mode, batch_size=2)
        made = existing.scanned(tmp_path / "data", tmp_path, made)
        assert (made.dataset.samples, made.dataset.sample.array_shape) == (7, shape or (1,))
        _check_epochs(loader, made, tmp_path / "data", contents, 1)


@pytest.mark.parametrize("dtype", [*_TYPES, ("<f4", (3,)), h5py.enum_dtype({"cat": 1, "dog": 2}, "i1")], ids=str)
@pytest.mark.parametrize("keys", [{}, {"chunks": (2, 6, 5)}, {"chunks": (1, 6, 25), "compression": "gzip"}], ids=str)
@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_hdf5_arrays_of_any_type(tmp_path: Path, mode: str, keys: dict[str, Any], dtype: Any) -> None:
    contents = existing.typed(tmp_path / "data", "hdf5", np.dtype(dtype), **keys)
    made = existing.unscanned("hdf5", "*", mode=mode, batch_size=4, shuffle={"samples": True})
    made = existing.scanned(tmp_path / "data", tmp_path, made)
    assert made.dataset.sample.array_shape == (6, 25)
    assert made.dataset.sample.size == len(contents[0])
    _check_epochs("native", made, tmp_path / "data", contents, 1)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_every_loader_reads_other_types(tmp_path: Path, kind: str, loader: LoaderName) -> None:
    contents = existing.typed(tmp_path / "data", kind, np.dtype(">u2"))
    for mode in ("posix", "framework"):
        made = existing.unscanned(kind, "*", loader=loader, mode=mode, batch_size=4)
        _check_epochs(loader, existing.scanned(tmp_path / "data", tmp_path, made), tmp_path / "data", contents, 1)


def test_a_type_of_existing_values_is_not_generated() -> None:
    made = existing.unscanned("npz", "*").dataset
    sample = structs.replace(made.sample, shape=(3,), bytes=None, stored_dtype=">u2")
    with pytest.raises(ValueError, match=r"sample[.]stored_dtype is for existing files"):
        structs.replace(made, sample=sample, existing=None)


def _virtual(path: Path, values: Any) -> None:
    with h5py.File(path.parent.parent / "source.h5", "w") as source:
        source["x"] = values
    layout = h5py.VirtualLayout(values.shape, values.dtype)
    layout[:] = h5py.VirtualSource(path.parent.parent / "source.h5", "x", values.shape)
    with h5py.File(path, "w") as file:
        file.create_virtual_dataset("x", layout)


def _compact(path: Path, values: Any) -> None:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.COMPACT)
    with h5py.File(path, "w") as file:
        space = h5py.h5s.create_simple(values.shape)
        array = h5py.h5d.create(file.id, b"x", h5py.h5t.py_create(values.dtype), space, properties)
        array.write(h5py.h5s.ALL, h5py.h5s.ALL, values)


def _of_objects(dtype: Any) -> Any:
    def write(path: Path, values: Any) -> None:
        with h5py.File(path, "w") as file:
            file.create_dataset("x", values.shape[:2], dtype)

    return write


def _external(path: Path, values: Any) -> None:
    with h5py.File(path, "w") as file:
        external = [(str(path.parent.parent / "part.bin"), 0, h5py.h5f.UNLIMITED)]
        file.create_dataset("x", data=values, external=external)


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (_virtual, r"/x is virtual: its data are in other files \(.*source.h5\), and HDF5 returns fill values"),
        (_external, r"/x is external: its data are in other files \(.*part.bin\)"),
        (_of_objects(h5py.ref_dtype), r"/x holds references \(of objects or regions\)"),
        (_of_objects(h5py.regionref_dtype), r"/x holds references \(of objects or regions\)"),
        (_of_objects(h5py.string_dtype()), r"/x holds values of varying size \(strings\)"),
        (_of_objects(h5py.vlen_dtype(np.uint8)), r"/x holds values of varying size \(sequences\)"),
        (_of_objects(np.dtype([("a", "i4"), ("b", h5py.string_dtype())])), r"varying size \(in a compound type\)"),
        (lambda path, _: h5py.File(path, "w").create_dataset("x", data=h5py.Empty("f4")), "x is empty: it has a type"),
        (_compact, r"because they are in the header of the HDF5 file \(layout compact\); only the library"),
    ],
)
def test_hdf5_datasets_say_what_they_are(tmp_path: Path, write: Any, words: str) -> None:
    (tmp_path / "data").mkdir()
    write(tmp_path / "data" / "0.h5", np.arange(60, dtype="f4").reshape(5, 3, 4))
    with pytest.raises(ConfigError, match=words):
        _refused(tmp_path, existing.unscanned("hdf5", "*"))


def test_compact_data_are_read_by_the_library(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    values = np.arange(60, dtype="f4").reshape(5, 3, 4)
    _compact(tmp_path / "data" / "0.h5", values)
    made = existing.unscanned("hdf5", "*", mode="framework", batch_size=2)
    made = existing.scanned(tmp_path / "data", tmp_path, made)
    _check_epochs("native", made, tmp_path / "data", [value.tobytes() for value in values], 1)


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (None, "bf51577ff88e"),
        (sample_index.Array((3, 4), "float32"), "1b530fc7e979"),
        (sample_index.Array((3, 4), "int16", (1, 3, 4), "gzip", "they are compressed"), "d09b47f7de0a"),
    ],
)
def test_fingerprints_of_earlier_versions_stay(array: sample_index.Array | None, expected: str) -> None:
    starts, begins, sizes, changes, name_ends = map(np.array, ([0, 2, 5], [128, 128], [700, 900], [1, 2], [5, 10]))
    names = np.frombuffer(b"a.npzb.npz", np.uint8)
    index = sample_index.SampleIndex("folder", starts, begins, sizes, changes, 48, None, names, name_ends, array)
    assert sample_index.fingerprint(index, "npz") == expected


@pytest.mark.parametrize(
    ("has_obstacle", "obstacle"), [(False, ""), (True, "they are compressed or have filters, or .*")]
)
def test_an_index_of_an_earlier_version_is_read(tmp_path: Path, has_obstacle: bool, obstacle: str) -> None:
    existing.arrays(tmp_path / "data", "npz")
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("npz", "*", {"array": "images"}))
    assert made.dataset.scan is not None
    folder = Path(made.dataset.scan.index)
    (folder / "array.json").write_text(f'[[6,25],"float32",null,"none",{str(has_obstacle).lower()}]')
    seals = {path.name: sample_index._seal(path) for path in folder.iterdir() if path.name != "seals.json"}
    (folder / "seals.json").write_bytes(serialization.encode(seals))
    array = sample_index.opened(str(folder)).array
    assert array is not None
    assert array[:4] == ((6, 25), "float32", None, "none")
    assert re.fullmatch(obstacle, array.obstacle)


def _refused(folder: Path, made: Workload) -> None:
    """Scan, and apply the rules as the planning of a study does."""
    try:
        existing.scanned(folder / "data", folder, made)
    except ValueError as fault:
        raise ConfigError(str(fault)) from fault


def test_records_that_tensorflow_wrote(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    contents = []
    (tmp_path / "data").mkdir()
    for number, payload in enumerate(existing.payloads((3, 5), (1, 200_000))):
        with tf.io.TFRecordWriter(str(tmp_path / "data" / f"{number}.tfrecord")) as writer:
            for record in payload:
                writer.write(record)
        contents += payload
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("tfrecord", "*", batch_size=2))
    _check_epochs("native", made, tmp_path / "data", contents)


@given(
    counts=st.lists(st.integers(0, 7), min_size=1, max_size=8).filter(any),
    at_once=st.integers(1, 9),
    cut=st.integers(0, 60),
)
def test_any_numbers_of_samples_give_each_once(counts: list[int], at_once: int, cut: int) -> None:
    starts = np.concatenate([[0], np.cumsum(counts)])
    order = IrregularFiles(np.arange(len(counts)), starts, at_once)
    total = int(starts[-1])
    middle = min(cut, total)
    parts = [order.located(0, middle), order.located(middle, total)]
    files, within = (np.concatenate(column) for column in zip(*parts, strict=True))
    assert sorted(zip(files.tolist(), within.tolist(), strict=True)) == [
        (file, number) for file, count in enumerate(counts) for number in range(count)
    ]


def test_the_index_is_kept_and_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    existing.records(tmp_path / "data", existing.payloads())
    first = existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("tfrecord", "*"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "runs"]
    assert len(list((tmp_path / "data").iterdir())) == len(existing.COUNTS), "nothing is written into the dataset"

    def scan(*_: Any) -> Any:
        raise AssertionError("scanned again")

    with monkeypatch.context() as patch:
        patch.setattr(file_scans, "scan", scan)
        assert existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("tfrecord", "*")) == first
        os.utime(tmp_path / "data" / "part-00.tfrecord", ns=(1, 1))
        with pytest.raises(AssertionError, match="scanned again"):
            existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("tfrecord", "*"))
    again = existing.scanned(tmp_path / "data", tmp_path / "runs", existing.unscanned("tfrecord", "*"))
    assert again.dataset.scan is not None
    assert first.dataset.scan is not None
    assert again.dataset.scan.index != first.dataset.scan.index
    assert again.dataset.scan.fingerprint == first.dataset.scan.fingerprint, "times are no part of a dataset"


def test_a_copy_has_the_same_fingerprint_and_other_files_another(tmp_path: Path) -> None:
    files = existing.payloads()
    existing.records(tmp_path / "data", files)
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    existing.records(tmp_path / "other", [*files[:-1], [*files[-1], b"more"]])
    digests = [
        fingerprints.of(existing.scanned(tmp_path / name, tmp_path, existing.unscanned("tfrecord", "*")).dataset)
        for name in ("data", "copy", "other")
    ]
    assert digests[0] == digests[1] != digests[2]


def test_progress_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    existing.images(tmp_path / "data")
    monkeypatch.setattr(counted_progress, "_FIRST_S", 0)
    monkeypatch.setattr(counted_progress, "_INTERVAL_S", 0)
    lines: list[str] = []
    place = dataset_scan.ScanFolders(str(tmp_path / "data"), str(tmp_path))
    dataset_scan.described(existing.unscanned("raw", "**").dataset, place, lines.append)
    assert any(line.startswith("existing dataset: 11 of 11 files scanned, ") for line in lines)
    assert lines[-1].startswith("existing dataset: 11 files with 11 samples (")


def _gzipped(path: Path) -> None:
    path.write_bytes(gzip.compress(path.read_bytes()))


def _deflated(path: Path) -> None:
    path.write_bytes(zlib.compress(path.read_bytes()))


def _truncated(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _text(path: Path) -> None:
    path.write_text("no data at all, " * 10)


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _missing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("kind", "glob", "spoil", "words"),
    [
        ("tfrecord", "part-*", _text, "part-00.tfrecord is not a TFRecord file"),
        ("tfrecord", "part-*", _gzipped, "part-01.tfrecord has the compression none, but part-00.tfrecord has gzip"),
        ("tfrecord", "part-*", _deflated, "part-01.tfrecord has the compression none, but part-00.tfrecord has zlib"),
        ("tfrecord", "part-*", _truncated, "part-00.tfrecord is truncated"),
        ("tfrecord", "part-*", _missing, "part-00.tfrecord is missing"),
        ("tfrecord", "part-*", _pipe, "part-00.tfrecord is not a regular file"),
        ("raw", "part-*", _empty, "part-00.tfrecord is empty"),
        ("npz", "part-*", _text, "part-00.tfrecord is not an npz file"),
        ("hdf5", "part-*", _text, "part-00.tfrecord is not an HDF5 file"),
        ("raw", "*.jpg", _text, "no file in"),
        ("raw", "nowhere/*", _text, "no file in"),
        ("tfrecord", "part-02*", _empty, "the files hold no samples"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, kind: str, glob: str, spoil: Any, words: str) -> None:
    existing.records(tmp_path / "data", existing.payloads())
    spoil(tmp_path / "data" / "part-00.tfrecord")
    with pytest.raises(ConfigError, match=words):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned(kind, glob))


def _in_fortran_order(path: Path) -> None:
    np.save(path, np.asfortranarray(np.ones((3, 4))))


def _objects(path: Path) -> None:
    np.save(path, np.array([1, "a", None], object), allow_pickle=True)


def _hostile(shape: str) -> Any:
    def write(path: Path) -> None:
        header = npy.framed(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}", 128)
        path.write_bytes(header + bytes(48))

    return write


@pytest.mark.parametrize(
    ("rows", "spoil", "words"),
    [
        (True, _in_fortran_order, "0.npy: the array is in Fortran order"),
        (False, _objects, "0.npy: the array holds Python objects"),
        (False, _truncated, "0.npy is truncated: its array ends at byte 176, but the file has 175 bytes"),
        (False, _text, "0.npy is not an npy file that can be read, or is corrupted: the magic string is not correct"),
        (False, _empty, "0.npy is not an npy file"),
        (True, _hostile("(9223372036854775807, 2)"), "0.npy is truncated: its array ends at byte"),
        (False, _hostile("(99999999999999, 99999999999999)"), "0.npy is truncated: its array ends at byte"),
        (False, _hostile("(-3, 4)"), r"or is corrupted: the shape \(-3, 4\) is not valid"),
        (True, _hostile("(0, 12)"), "the files hold no samples"),
        (False, _hostile("(3, 0)"), "needs a first axis"),
        (False, _hostile("__import__"), "0.npy is not an npy file that can be read, or is corrupted: "),
        (True, _hostile("(12,)"), "needs a first axis"),
    ],
)
def test_bad_npy_files_are_refused(tmp_path: Path, rows: bool, spoil: Any, words: str) -> None:
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "0.npy", np.zeros((3, 4), "f4"))
    spoil(tmp_path / "data" / "0.npy")
    with pytest.raises(ConfigError, match=words):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("npy", "*", {"rows": rows}))


def test_a_file_that_is_no_image_is_refused(tmp_path: Path) -> None:
    existing.images(tmp_path / "data")
    (tmp_path / "data" / "class0" / "00.jpg").write_text("<html>not here</html>")
    with pytest.raises(ConfigError, match=r"00[.]jpg is not an image"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("raw", "**"))


@pytest.mark.parametrize(
    ("kind", "array", "words"),
    [
        ("hdf5", None, "does not hold exactly one array .it holds: labels, train/images."),
        ("hdf5", "test/images", "has no array test/images"),
        ("hdf5", "labels", "arrays of type|needs a first axis"),
        ("npz", None, "does not hold exactly one array"),
        ("npz", "labels", "needs a first axis"),
    ],
)
def test_the_array_is_named(tmp_path: Path, kind: str, array: str | None, words: str) -> None:
    existing.arrays(tmp_path / "data", kind)
    with pytest.raises(ConfigError, match=words):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned(kind, "*", {"array": array}))


def test_arrays_of_different_samples_are_refused(tmp_path: Path) -> None:
    existing.arrays(tmp_path / "data", "npz")
    np.savez(tmp_path / "data" / "9.npz", images=np.zeros((3, 6, 24), "float32"))
    with pytest.raises(ConfigError, match=r"9[.]npz holds samples of float32 of shape \[6, 24\], but 0[.]npz"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("npz", "*", {"array": "images"}))


@pytest.mark.parametrize(
    ("kind", "keys", "words"),
    [
        ("csv", {}, "format: csv|sample.shape"),
        ("tfrecord", {"array": "x"}, "existing.array is for format=hdf5 or npz"),
        ("npz", {"rows": True}, "existing.rows is for format=npy"),
        ("tfrecord", {"sample_bytes": 3}, "existing.sample_bytes is for format=raw"),
    ],
)
def test_keys_that_do_not_fit(kind: str, keys: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        existing.unscanned(kind, "*", keys)


@pytest.mark.parametrize("glob", ["/data/*", "../*", "a//b", "a/../b", "", "./a"])
def test_the_pattern_is_relative(glob: str) -> None:
    with pytest.raises(ConfigError, match="relative to the data directory"):
        existing.unscanned("raw", glob)


def test_patterns(tmp_path: Path) -> None:
    for name in ("a.x", "b.y", "d/c.x", "d/e/f.x", "d/.hidden.x", ".h/g.x"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "link").symlink_to("d")
    expected = {
        "*.x": ["a.x"],
        "**/*.x": ["a.x", "d/c.x", "d/e/f.x"],
        "**": ["a.x", "b.y", "d/c.x", "d/e/f.x"],
        "d/*": ["d/c.x"],
        "d/c.x": ["d/c.x"],
        "?/**/f.x": ["d/e/f.x"],
        "link/*.x": ["link/c.x"],
        "[ab].[xy]": ["a.x", "b.y"],
    }
    for pattern, names in expected.items():
        assert existing_files.listed(str(tmp_path), pattern).names == names


def test_nothing_is_verified(tmp_path: Path) -> None:
    existing.images(tmp_path / "data")
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("raw", "**"))
    assert plan.resolved(made).reader.verify_content == "none"
    places = SampleLayout(made.dataset).of(np.arange(2, dtype=np.uint64))
    batch = Batch(places, np.zeros((2, made.dataset.largest), np.uint8), Tally())
    assert Verification(made, lambda number: "")(batch) == 0
    with pytest.raises(ConfigError, match="set verify_content=none"):
        existing.unscanned("raw", "**", verify_content="all")


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_files_that_shrink_or_vanish_are_named(tmp_path: Path, mode: str) -> None:
    contents = existing.records(tmp_path / "data", existing.payloads())
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("tfrecord", "*", mode=mode))
    path = tmp_path / "data" / "part-04.tfrecord"
    os.truncate(path, 100)
    with pytest.raises(InvalidRun, match=r"part-04[.]tfrecord ends at byte 100.*submit the workload again"):
        _check_epochs("native", made, tmp_path / "data", contents)
    with pytest.raises(InvalidRun, match=r"part-04[.]tfrecord has changed since the dataset was scanned"):
        dataset_scan.check_unchanged(str(tmp_path / "data"), made.dataset)
    path.unlink()
    with pytest.raises(
        InvalidRun, match=r"part-04[.]tfrecord.*when the dataset was scanned.*submit the workload again"
    ):
        _check_epochs("native", made, tmp_path / "data", contents)
    with pytest.raises(InvalidRun, match=r"part-04[.]tfrecord is missing"):
        dataset_scan.check_unchanged(str(tmp_path / "data"), made.dataset)


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user takes root")
@pytest.mark.parametrize("kind", ["raw", "tfrecord"])
def test_files_of_other_users_are_read_or_named(kind: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        (folder / "runs").mkdir()
        existing.records(folder / "data", existing.payloads())
        os.chown(folder / "runs", 61002, 61002)
        try:
            os.seteuid(61002)
            made = existing.scanned(
                folder / "data",
                folder / "runs",
                existing.unscanned(kind, "part-0[1-6]*" if kind == "tfrecord" else "part-01*"),
            )
            assert made.dataset.samples
            os.seteuid(0)
            (folder / "data" / "part-01.tfrecord").chmod(0o600)
            os.seteuid(61002)
            with pytest.raises(ConfigError, match=r"cannot read .*part-01.tfrecord: Permission denied; ask its owner"):
                existing.scanned(folder / "data", folder / "runs2", existing.unscanned(kind, "part-01*"))
            os.seteuid(0)
            (folder / "data").chmod(0o700)
            os.seteuid(61002)
            with pytest.raises(InfrastructureError, match=r"cannot list .*data"):
                existing.scanned(folder / "data", folder / "runs2", existing.unscanned(kind, "part-0*"))
        finally:
            os.seteuid(0)


def test_a_scanned_workload_can_be_written_and_read_again(tmp_path: Path) -> None:
    existing.arrays(tmp_path / "data", "hdf5", chunks=(2, 6, 10))
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("hdf5", "*", {"array": "train/images"}))
    assert Draft(serialization.plain(made), "test").with_settings({}) == made
    assert serialization.decode(serialization.encode(made), Workload, "test") == made


_DAMAGED = ("tfrecord", "tfrecord gzip", "npz", "npy", "hdf5", "raw", "parquet", "tar")


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the contents of a file of each format."""
    folder = tmp_path_factory.mktemp("intact")
    existing.records(folder / "tfrecord", existing.payloads((4,)))
    existing.records(folder / "tfrecord gzip", existing.payloads((4,)), gzip.compress)
    existing.arrays(folder / "npz", "npz", (4,))
    existing.arrays(folder / "hdf5", "hdf5", (4,), chunks=(2, 6, 25), compression="gzip")
    existing.images(folder / "raw", 1)
    existing.tables(folder / "parquet", (2,), 4)
    existing.typed(folder / "npy", "npy", np.dtype("f4"))
    existing.shards(folder / "tar", (4,))
    return {kind: next((folder / kind).rglob("*.*")).read_bytes() for kind in _DAMAGED}


@pytest.mark.parametrize("kind", _DAMAGED)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    changes=st.lists(st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=8)), max_size=4),
    length=st.integers(0, 1 << 14),
)
def test_a_damaged_file_is_scanned_or_refused(
    kind: str, changes: list[tuple[int, bytes]], length: int, intact: dict[str, bytes], tmp_path: Path
) -> None:
    content = bytearray(intact[kind])
    for offset, change in changes:
        begin = offset % len(content)
        content[begin : begin + len(change)] = change
    content = content[: length or None]
    path = tmp_path / "damaged.jpg"
    path.write_bytes(content)
    names = {"npz": "images", "hdf5": "train/images"}
    made = existing.unscanned(kind.split(maxsplit=1)[0], "*", {"array": names.get(kind)})
    with suppress(ConfigError):
        file = file_scans.scan(str(path), len(content), made.dataset)
        assert (file.samples.sizes > 0).all()
