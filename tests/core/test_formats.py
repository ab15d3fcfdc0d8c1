"""The own library of every format reads what is written, and samples arrive whole in every mode."""

import contextlib
import errno
import io
import math
import os
import shutil
import stat
import struct
import subprocess
import tarfile
import tempfile
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base.errors import InfrastructureError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config import format_facts
from dlio_hpc.config.dataset_keys import Chunk, Dataset, Sample
from dlio_hpc.config.reader_keys import Reader as ReaderKeys
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers, content
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.formats import csv, npy, npz, tfrecord
from dlio_hpc.core.formats.format import SampleReader
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.dataset.sample_layout import Place, SampleLayout
from tests.support import rings, written
from tests.support.places import TESTS

FILES, PER_FILE = 3, 5
_FIXED = Sample(shape=(30, 7), dtype="int16")
_SPREAD = Sample(bytes=Size(1000), stdev=Size(200), seed=3)
_NUMBERS = Sample(shape=(30, 7), dtype="float32")


def _dataset(kind: str, sample: Sample | None = None, **keys: Any) -> Dataset:
    sample = sample or (_NUMBERS if kind in {"csv", "parquet"} else _FIXED)
    return Dataset(kind, keys.pop("files", FILES), keys.pop("per_file", PER_FILE), sample, **keys)  # type: ignore[arg-type]


def _write(folder: Path, dataset: Dataset) -> None:
    written.write_all(folder, dataset)


def _reader(folder: Path, dataset: Dataset, mode: str, transfer_size: int | None = None, **keys: Any) -> SampleReader:
    size = None if transfer_size is None else Size(transfer_size)
    reader = ReaderKeys(mode=mode, transfer_size=size, **keys)  # type: ignore[arg-type]
    return FORMATS[dataset.format].reader(
        Workload("w", dataset, reader=reader), lambda number: str(folder / str(number)), None
    )


def _read(reader: SampleReader, dataset: Dataset, samples: list[int]) -> tuple[list[bytes], Tally]:
    rows, tally = np.zeros((len(samples), dataset.sample.largest), np.uint8), Tally()
    numbers = np.array(samples, np.uint64)
    places = SampleLayout(dataset).of(numbers)
    reader.read(places, buffers.over(rows), tally)
    return [row[: place.size].tobytes() for row, place in zip(rows, places, strict=True)], tally


def _verified(folder: Path, dataset: Dataset, mode: Any, samples: list[int]) -> list[bytes]:
    """Compare the first sample, and return the samples as the training loop gets them."""
    reader, tally = _reader(folder, dataset, mode), Tally()
    numbers, rows = np.array(samples, np.uint64), np.zeros((len(samples), dataset.sample.largest), np.uint8)
    places = SampleLayout(dataset).of(numbers)
    with contextlib.closing(reader):
        reader.read(places, buffers.over(rows), tally)
    workload = Workload("w", dataset, reader=ReaderKeys(mode=mode))
    verification = Verification(workload, lambda number: str(folder / str(written.first_part(dataset, number))))
    verification(Batch(places, rows, tally))
    verification.finish()
    return [row.tobytes() for row in rows]


def _payload(dataset: Dataset, place: Place) -> bytes:
    row = np.empty(place.size, np.uint8)
    content.fill(row, place.position, compressibility(dataset))
    if dataset.format == "csv":
        row = (row.view("<u4") % 10**7 / 10**7).astype("<f4").view(np.uint8)
    return row.tobytes()


def _expected(dataset: Dataset, samples: list[int]) -> list[bytes]:
    return [_payload(dataset, place) for place in SampleLayout(dataset).of(np.array(samples, np.uint64))]


# Modes and sizes of requests with which shards are read.
_TAR_WAYS = [("posix", size) for size in (None, 100, 1 << 20)] + [("framework", size) for size in (None, 100, 1 << 20)]
_CHUNK = Chunk(bytes=Size(900))
# Every way to store and to read: (dataset, mode, transfer_size, other reader keys).
_CASES: list[tuple[Dataset, str, int | None, dict[str, Any]]] = [
    (_dataset(kind, sample), mode, None, {})
    for kind in ("npz", "npy", "tfrecord", "hdf5", "raw", "indexed")
    for sample in (_FIXED, _SPREAD)
    for mode in ("posix", "framework")
]
_CASES += [(_dataset("tar", sample), mode, size, {}) for sample, (mode, size) in product((_FIXED, _SPREAD), _TAR_WAYS)]
_CASES += [(_dataset(kind), mode, None, {}) for kind in ("csv", "parquet") for mode in ("posix", "framework")]
_CASES += [(_dataset("parquet", row_group=2), mode, None, {}) for mode in ("posix", "framework")]
_CASES += [
    (_dataset(kind, sample), "posix", size, {})
    for kind, sample in product(("npz", "npy", "tfrecord", "hdf5", "raw", "indexed"), (_FIXED, _SPREAD))
    for size in (100, 1 << 20)
]
_CASES += [(_dataset(kind), "posix", size, {}) for kind in ("csv", "parquet") for size in (100, 1 << 20)]
_CASES += [
    (_dataset(kind, sample), "framework", size, {})
    for kind, sample in product(("tfrecord", "hdf5"), (_FIXED, _SPREAD))
    for size in (1, 100, 1 << 20)
]
_CASES += [
    (_dataset("tfrecord", sample), mode, size, {"verify": verify})
    for sample, mode, verify in ((_FIXED, "posix", True), (_SPREAD, "posix", True), (_SPREAD, "framework", False))
    for size in (None, 100, 1 << 20)
]
_CASES += [
    (_dataset("hdf5", sample, chunk=chunk, compression=compression, random_bits=3), mode, size, {})
    for sample, chunk, compression, mode, size in product(
        (_FIXED, _SPREAD),
        (Chunk(bytes=Size(64)), Chunk(bytes=Size(999)), None),
        ("none", "gzip"),
        ("posix", "framework"),
        (None, 100),
    )
]
_CASES += [
    (_dataset("hdf5", chunk=Chunk(shape=(2, 7, 3)), compression=compression), mode, None, {})
    for compression, mode in product(("none", "gzip"), ("posix", "framework"))
]
_CASES += [(_dataset("hdf5", compression="lzf", random_bits=3), "framework", None, {})]
_CASES += [
    (_dataset("npz", sample, compression="gzip", level=level, random_bits=2), mode, None, {})
    for sample, level, mode in product((_FIXED, _SPREAD), (0, 9), ("posix", "framework"))
]
_CASES += [(_dataset("npz", compression="gzip", random_bits=1), "posix", 100, {})]
# Samples of 70 KB are generated part by part, smaller samples as a whole.
_SIZES = ((700, 120, 8, 12), (1, 69_999), (3, 1 << 20, 8))
_SEVERAL = [
    _dataset(kind, Sample(bytes=Size(sum(sizes))), files=4, per_file=per_file, arrays=tuple(map(Size, sizes)))
    for kind, sizes, per_file in product(("npz", "hdf5", "tar"), _SIZES, (5, 1))
]
_CASES += [(dataset, mode, None, {}) for dataset, mode in product(_SEVERAL, ("posix", "framework"))]
_CASES += [(dataset, "posix", 100, {}) for dataset in (_SEVERAL[0], _SEVERAL[6])]
_CASES += [(dataset, "framework", 100, {}) for dataset in _SEVERAL[:6:2]]
_RING = {"engine": "io_uring"}
_CASES += [(dataset, "posix", size, _RING) for dataset, size in product((_SEVERAL[0], _SEVERAL[7]), (None, 100))]
_CASES += [
    (_dataset(kind, sample), "posix", size, _RING)
    for kind, sample in product(("npz", "npy", "tfrecord", "hdf5", "raw", "tar", "indexed"), (_FIXED, _SPREAD))
    for size in (None, 100)
]
_CASES += [
    (_dataset("npz"), "posix", 100, {**_RING, "queue_depth": 3}),
    (_dataset("csv"), "posix", None, _RING),
    (_dataset("parquet", row_group=3), "posix", None, _RING),
    (_dataset("parquet", row_group=3), "posix", 100, _RING),
    (_dataset("raw", files=70, per_file=1), "posix", None, _RING),
]
_CASES += [
    (_dataset(kind, _SPREAD, files=6, per_file=1, **keys), mode, None, {})
    for kind, keys in (
        ("npz", {}),
        ("npy", {}),
        ("raw", {}),
        ("tfrecord", {}),
        ("tar", {}),
        ("indexed", {}),
        ("hdf5", {}),
        ("hdf5", {"chunk": Chunk(bytes=Size(900))}),
    )
    for mode in ("posix", "framework")
]


def _name(case: tuple[Dataset, str, int | None, dict[str, Any]]) -> str:
    dataset, mode, size, keys = case
    chunk = dataset.chunk_shape if dataset.is_chunked else None
    spread = "spread" if dataset.sample.stdev else "fixed"
    stored = [dataset.compression, dataset.level, dataset.files, dataset.samples_per_file, dataset.arrays]
    parts = [dataset.format, mode, spread, size, chunk, *stored, *keys]
    return "-".join(str(part).replace(" ", "") for part in parts)


@pytest.mark.parametrize("case", _CASES, ids=_name)
def test_samples_arrive_whole(tmp_path: Path, case: tuple[Dataset, str, int | None, dict[str, Any]]) -> None:
    """Samples arrive whole in every mode, so that framework and posix give equal data."""
    dataset, mode, size, keys = case
    if keys.get("engine") == "io_uring":
        rings.required()
    _write(tmp_path, dataset)
    reader = _reader(tmp_path, dataset, mode, size, **keys)
    last = dataset.samples - 1
    for samples in ([0], [last, 0, last // 2], list(range(dataset.samples)), [3, 3], []):
        rows, _ = _read(reader, dataset, samples)
        assert rows == _expected(dataset, samples)
    reader.close()


def _look_up(reader: SampleReader) -> None:
    """Look up where samples begin in the files, so that these reads are not counted later."""
    assert isinstance(reader, FlatReader)
    tally = Tally()
    reader.begins(SampleLayout(_dataset("npz")).of(np.zeros(1, np.uint64)), tally)
    assert (tally.requests > 0) == (tally.overhead_bytes > 0)


@pytest.mark.parametrize("kind", ["npz", "npy", "raw", "tfrecord", "hdf5", "csv"])
@given(size=st.integers(1, 2000), samples=st.lists(st.integers(0, 14), max_size=8, unique=True))
@settings(max_examples=25, deadline=None)
def test_requests_are_of_the_transfer_size(kind: str, size: int, samples: list[int]) -> None:
    dataset = _dataset(kind)
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), dataset)
        reader = _reader(Path(name), dataset, "posix", size)
        _look_up(reader)
        rows, tally = _read(reader, dataset, samples)
        reader.close()
    assert rows == _expected(dataset, samples)
    assert tally.bytes_read == len(samples) * dataset.sample_bytes
    assert tally.requests == len(tally.starts) == len(tally.ends)
    assert tally.opens == len({sample // PER_FILE for sample in samples})
    if size <= dataset.sample_bytes:
        assert tally.requests == len(samples) * math.ceil(dataset.sample_bytes / size)
        assert tally.overhead_bytes == 0
    else:
        assert tally.requests <= len(samples) + tally.overhead_bytes // tfrecord.FRAME


def test_a_large_transfer_size_brings_neighbours_in_one_request(tmp_path: Path) -> None:
    for kind in ("npz", "npy", "raw", "tfrecord", "hdf5", "csv"):
        dataset = _dataset(kind)
        _write(tmp_path, dataset)
        reader = _reader(tmp_path, dataset, "posix", 1 << 20)
        _look_up(reader)
        _, tally = _read(reader, dataset, [6, 7, 8, 0, 2])
        assert tally.requests == 3
        assert tally.bytes_read == 5 * dataset.sample_bytes


def test_without_a_transfer_size_one_request_brings_a_sample_or_a_chunk(tmp_path: Path) -> None:
    """One request suffices for samples that differ in size, and for chunks that hold several samples."""
    for dataset, requests in (
        (_dataset("npz", _SPREAD), 15),
        (_dataset("tfrecord", _SPREAD), 15),
        (_dataset("hdf5", chunk=Chunk(shape=(5, 30, 7)), compression="gzip", random_bits=4), 3),
        (_dataset("hdf5", chunk=Chunk(shape=(5, 30, 7))), 15),
    ):
        _write(tmp_path, dataset)
        reader = _reader(tmp_path, dataset, "posix")
        _, tally = _read(reader, dataset, list(range(15)))
        reader.close()
        assert len(tally.starts) == requests + (tally.opens if dataset.is_chunked else 0), "index looked at once a file"


def test_numpy_reads_what_is_written(tmp_path: Path) -> None:
    dataset = _dataset("npz")
    _write(tmp_path, dataset)
    with np.load(tmp_path / "1") as archive:
        array = archive["x"]
    assert array.shape == (5, 30, 7)
    assert array.dtype == np.int16
    assert [row.tobytes() for row in array] == _expected(dataset, [5, 6, 7, 8, 9])
    data = (tmp_path / "0").read_bytes()
    assert data[npz.DATA_OFFSET :].startswith(_expected(dataset, [0])[0]), "the data begin on a page"


@pytest.mark.parametrize("sample", [_FIXED, _SPREAD], ids=["fixed", "spread"])
def test_npy_files_are_those_of_numpy(tmp_path: Path, sample: Sample) -> None:
    _write(tmp_path, _dataset("npy", sample))
    np.save(tmp_path / "own.npy", np.load(tmp_path / "1"))
    assert (tmp_path / "1").read_bytes() == (tmp_path / "own.npy").read_bytes()


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=31).filter(lambda shape: math.prod(shape) < 2**50))
def test_npy_headers_are_those_of_numpy(shape: list[int]) -> None:
    dataset = _dataset("npy", Sample(shape=tuple(shape), dtype="float64"), per_file=99)
    expected = io.BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": (99, *shape)}
    np.lib.format.write_array_header_1_0(expected, described)
    assert npy._written_header(dataset, 1) == expected.getvalue()


def test_numpy_reads_the_arrays_where_it_would_put_them(tmp_path: Path) -> None:
    dataset = _SEVERAL[0]
    _write(tmp_path, dataset)
    with np.load(tmp_path / "1") as archive:
        arrays = {name: archive[name] for name in archive.files}
    assert [(name, array.shape, array.dtype) for name, array in arrays.items()] == [
        (f"x{number}", (5, size), np.uint8) for number, size in enumerate(_SIZES[0])
    ]
    assert [row.tobytes() for row in np.hstack(list(arrays.values()))] == _expected(dataset, [5, 6, 7, 8, 9])
    np.savez(tmp_path / "own.npz", **arrays)
    places = [
        [
            (entry.filename, entry.header_offset, entry.file_size)
            for entry in zipfile.ZipFile(tmp_path / name).infolist()
        ]
        for name in ("1", "own.npz")
    ]
    assert places[0] == places[1]
    assert (tmp_path / "1").stat().st_size == (tmp_path / "own.npz").stat().st_size


def test_h5py_reads_the_arrays(tmp_path: Path) -> None:
    dataset = _SEVERAL[6]
    assert dataset.format == "hdf5"
    _write(tmp_path, dataset)
    with h5py.File(tmp_path / "1") as file:
        assert sorted(file) == ["x0", "x1", "x2", "x3"]
        arrays = [file[f"x{number}"][...] for number in range(4)]
        assert all(file[name].chunks is None for name in file)
    assert [array.shape for array in arrays] == [(5, size) for size in _SIZES[0]]
    assert [row.tobytes() for row in np.hstack(arrays)] == _expected(dataset, [5, 6, 7, 8, 9])


@pytest.mark.parametrize("dataset", [_SEVERAL[0], _SEVERAL[6]], ids=lambda dataset: dataset.format)
def test_a_request_is_made_for_each_array(tmp_path: Path, dataset: Dataset) -> None:
    _write(tmp_path, dataset)
    reader = _reader(tmp_path, dataset, "posix")
    _read(reader, dataset, [0])  # looks up where the arrays begin
    _, tally = _read(reader, dataset, [4, 2, 7])
    assert tally.sizes == list(_SIZES[0]) * 3
    assert (tally.requests, tally.bytes_read, tally.overhead_bytes, tally.opens) == (12, 3 * 840, 0, 1)
    reader.close()


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("dataset", [_SEVERAL[0], _SEVERAL[6]], ids=lambda dataset: dataset.format)
def test_arrays_are_read_in_the_order_of_the_workload(tmp_path: Path, dataset: Dataset, mode: str) -> None:
    _write(tmp_path, dataset)
    order = (2, 0, 3, 1)
    reader = _reader(tmp_path, dataset, mode, array_order=order)
    _read(reader, dataset, [0])  # looks up where the arrays begin
    rows, tally = _read(reader, dataset, [4, 2, 7])
    assert rows == _expected(dataset, [4, 2, 7])
    if mode == "posix":
        assert tally.sizes == [_SIZES[0][index] for index in order] * 3
    reader.close()


def test_numpy_loads_all_arrays_and_h5py_makes_a_call_for_each(tmp_path: Path) -> None:
    npz_files, hdf5_files = _SEVERAL[0], _SEVERAL[6]
    _write(tmp_path, npz_files)
    _, tally = _read(_reader(tmp_path, npz_files, "framework"), npz_files, [3])
    assert tally.bytes_read == 5 * 840
    assert tally.overhead_bytes > 0, "headers"
    assert tally.opens == 1
    _write(tmp_path, hdf5_files)
    _, tally = _read(_reader(tmp_path, hdf5_files, "framework"), hdf5_files, [3, 4])
    assert len(tally.starts) == 2 * 4


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_files_of_other_arrays_are_named(tmp_path: Path, mode: str) -> None:
    for dataset in (_SEVERAL[0], _SEVERAL[6]):
        other = structs.replace(dataset, arrays=(Size(800), Size(40)))
        _write(tmp_path, other)
        if (dataset.format, mode) != ("npz", "posix"):
            with pytest.raises(InvalidRun, match=f"{tmp_path}/0"):
                _read(_reader(tmp_path, dataset, mode), dataset, [0])
        fault = FORMATS[dataset.format].fault(str(tmp_path / "0"), dataset, 0, False)
        assert fault is not None


def test_deflated_archives_are_deflated(tmp_path: Path) -> None:
    sizes = {}
    for level in (0, 1, 9):
        _write(tmp_path, _dataset("npz", per_file=200, compression="gzip", level=level, random_bits=2))
        (member,) = zipfile.ZipFile(tmp_path / "0").infolist()
        assert member.compress_type == zipfile.ZIP_DEFLATED
        sizes[level] = member.compress_size
    assert sizes[9] < sizes[1] < sizes[0] / 2


@pytest.mark.parametrize("compression", ["none", "gzip", "lzf"])
def test_hdf5_says_that_chunk_and_filter_are_set(tmp_path: Path, compression: Any) -> None:
    level = 7 if compression == "gzip" else None
    dataset = _dataset("hdf5", chunk=Chunk(bytes=Size(140)), compression=compression, level=level, random_bits=2)
    _write(tmp_path, dataset)
    with h5py.File(tmp_path / "2") as file:
        array = file["x"]
        assert array.chunks == (1, 10, 7)
        assert array.compression == (None if compression == "none" else compression)
        assert array.compression_opts == level
        assert array.id.get_storage_size() == array.nbytes if compression == "none" else True
        assert [row.tobytes() for row in array[...]] == _expected(dataset, [10, 11, 12, 13, 14])
    _write(tmp_path, _dataset("hdf5"))
    with h5py.File(tmp_path / "2") as file:
        assert file["x"].chunks is None


def test_pandas_reads_what_is_written(tmp_path: Path) -> None:
    import pandas as pd

    dataset = _dataset("csv")
    _write(tmp_path, dataset)
    table = pd.read_csv(tmp_path / "1", header=None)
    assert table.shape == (5, 210)
    assert table.to_numpy().astype(np.float32)[3].tobytes() == _expected(dataset, [8])[0]
    text = (tmp_path / "1").read_bytes()
    assert len(text) == 5 * dataset.sample_bytes == 5 * 210 * 10
    (place,) = SampleLayout(dataset).of(np.array([8], np.uint64))
    for begin, count in ((0, 8), (4, 12), (400, 5)):
        row = np.zeros(count, np.uint8)
        csv.expected(dataset)(row, place, begin)
        assert row.tobytes() == _expected(dataset, [8])[0][begin : begin + count]


@given(st.lists(st.integers(0, 10**7 - 1), min_size=1, max_size=300))
def test_csv_numbers_are_spelled_and_read(numbers: list[int]) -> None:
    text = np.tile(np.frombuffer(b"0.0000000,", np.uint8), (len(numbers), 1))
    csv.spell(text, np.array(numbers, np.uint32))
    assert text.tobytes() == b"".join(b"0.%07d," % number for number in numbers)
    assert csv.numbers_of(text).tolist() == numbers


@given(st.binary(max_size=200))
def test_tfrecord_frames_follow_the_format(payload: bytes) -> None:
    """Checksums are those of a bitwise CRC-32C (Castagnoli), masked as in record_writer.h."""

    def masked(data: bytes) -> int:
        crc = 0xFFFFFFFF
        for byte in data:
            crc ^= byte
            for _ in range(8):
                crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        crc ^= 0xFFFFFFFF
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF

    assert tfrecord.masked_crc(np.frombuffer(payload, np.uint8)) == masked(payload)
    length = struct.pack("<Q", len(payload))
    assert tfrecord.head(len(payload)) == length + struct.pack("<I", masked(length))


def test_tfrecord_streams_in_requests_of_exactly_the_transfer_size(tmp_path: Path, monkeypatch: Any) -> None:
    """Files are read like TensorFlow reads them, to their end; whole blocks within a sample go straight to its row."""
    for per_file, size in ((PER_FILE, 100), (PER_FILE, 1000), (40, 64)):
        dataset = _dataset("tfrecord", per_file=per_file)
        _write(tmp_path, dataset)
        asked: list[tuple[int, int]] = []
        preadv = os.preadv

        def noting(descriptor: int, views: Any, offset: int, asked: Any = asked, preadv: Any = preadv) -> int:
            asked.append((offset, sum(map(len, views))))
            return int(preadv(descriptor, views, offset))

        monkeypatch.setattr(os, "preadv", noting)
        reader = _reader(tmp_path, dataset, "framework", size)
        _, tally = _read(reader, dataset, list(range(per_file)))
        monkeypatch.undo()
        length = (tmp_path / "0").stat().st_size
        assert asked == [*((offset, min(size, length - offset)) for offset in range(0, length, size)), (length, 1)]
        assert tally.bytes_read + tally.overhead_bytes == length
        assert tally.overhead_bytes == per_file * tfrecord.FRAME


def test_whole_files_are_read_once_and_said_so(tmp_path: Path) -> None:
    for kind in ("npz", "raw", "csv"):
        dataset = _dataset(kind)
        _write(tmp_path, dataset)
        reader = _reader(tmp_path, dataset, "framework")
        _, tally = _read(reader, dataset, [0, 1])
        assert tally.bytes_read == 5 * dataset.sample_bytes
        assert tally.opens == 1
        _, again = _read(reader, dataset, [2])
        assert again.opens == again.bytes_read == 0, "the array loaded last is kept"
        reader.close()
        _, after = _read(reader, dataset, [2])
        assert after.opens == 1


def test_whole_files_come_as_pythons_own_files_bring_them(tmp_path: Path) -> None:
    """The request that finds the end counts; NumPy reads through a buffer of open()'s size, or of the given size."""
    sample = Sample(bytes=Size(100_000))
    for kind, size in (("raw", None), ("npz", None), ("npz", 4 << 20), ("npz", 1 << 15)):
        dataset = _dataset(kind, sample, per_file=4)
        _write(tmp_path, dataset)
        _, tally = _read(_reader(tmp_path, dataset, "framework", size), dataset, [0])
        sizes = list(tally.sizes)
        whole = (tmp_path / "0").stat().st_size
        if kind == "raw":
            assert sizes == [400_000, 0]
            assert tally.requests == 2
        elif size == 4 << 20:
            assert sizes.count(whole) == 2, "numpy.load looks at the begin of the file, and so has all of it"
        else:
            assert sizes[0] == (size or os.stat(tmp_path / "0").st_blksize)


def test_numpy_loads_through_the_buffer_of_a_file(tmp_path: Path) -> None:
    """The front is read twice, for NumPy's check and for ZIP's data; the end comes in small pieces; then the rest."""
    dataset = Dataset("npz", 1, 5, Sample(bytes=Size(1 << 20)))
    _write(tmp_path, dataset)
    length = (tmp_path / "0").stat().st_size
    _, tally = _read(_reader(tmp_path, dataset, "framework", 4 << 20), dataset, [0])
    rest = length - (4 << 20)
    assert [size for size in tally.sizes if size > 100] == [4 << 20, 4 << 20, rest]
    assert tally.bytes_read == 5 << 20
    _, whole = _read(_reader(tmp_path, dataset, "framework", 8 << 20), dataset, [0])
    assert [size for size in whole.sizes if size > 100] == [length, length]


def test_h5py_is_counted_by_the_kernel(tmp_path: Path) -> None:
    sample = Sample(bytes=Size(1 << 20))
    dataset = _dataset("hdf5", sample)
    _write(tmp_path, dataset)
    _, tally = _read(_reader(tmp_path, dataset, "framework"), dataset, [0, 7])
    assert 0 <= tally.bytes_read - 2 * sample.size < 10_000, "headers come on top"
    assert len(tally.starts) == 2
    assert tally.requests >= 2
    chunked = _dataset("hdf5", sample, chunk=Chunk(bytes=Size(64 << 10)))
    _write(tmp_path, chunked)
    _, tally = _read(_reader(tmp_path, chunked, "framework"), chunked, [0, 7])
    assert tally.requests >= 2 * 16, "a request a chunk"
    _, tally = _read(_reader(tmp_path, chunked, "posix"), chunked, [0, 7])
    assert len(tally.starts) == 2 * 16 + 2, "a request a chunk, and a look at each file's index"
    assert tally.requests > len(tally.starts)
    assert tally.overhead_bytes > 0, "the index"
    assert tally.bytes_read == 2 * sample.size


def test_slabs_are_calls_of_the_transfer_size(tmp_path: Path) -> None:
    dataset = _dataset("hdf5")
    _write(tmp_path, dataset)
    samples = list(range(15))
    for size, calls in ((None, 15), (3 * 420, 6), (1 << 20, 3), (210, 30), (14, 450), (1, 450)):
        rows, tally = _read(_reader(tmp_path, dataset, "framework", size), dataset, samples)
        assert rows == _expected(dataset, samples)
        assert len(tally.starts) == calls


def test_direct_access_reads_whole_blocks(tmp_path: Path) -> None:
    folder = Path(tempfile.mkdtemp(dir=TESTS))  # /tmp may have no O_DIRECT
    try:
        ways = product(("npz", "tfrecord", "hdf5", "raw"), (_FIXED, _SPREAD))
        for dataset in [*(_dataset(*way) for way in ways), _SEVERAL[0], _SEVERAL[6]]:
            _write(folder, dataset)
            for size in (None, 4096, 8192):
                reader = _reader(folder, dataset, "posix", size, direct=True)
                rows, tally = _read(reader, dataset, [4, 0, 7, 8, 9, 14])
                assert rows == _expected(dataset, [4, 0, 7, 8, 9, 14])
                assert tally.bytes_read == sum(map(len, rows))
                assert tally.overhead_bytes > 0
                reader.close()
    finally:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def _in_blocks(folder: Path, kind: str, engine: str) -> tuple[Dataset, SampleReader, Buffer]:
    """Write files whose samples begin and end at blocks. Return their dataset, a direct reader, and aligned memory."""
    dataset = Dataset(kind, 3, 5, Sample(bytes=Size(8192)))  # type: ignore[arg-type]
    _write(folder, dataset)
    return dataset, _reader(folder, dataset, "posix", direct=True, engine=engine), buffers.allocate(15, 8192)


@pytest.mark.parametrize("engine", ["preadv", "io_uring"])
@pytest.mark.parametrize("kind", ["npz", "raw"])
def test_direct_access_reads_blocks_into_the_rows(kind: str, engine: str) -> None:
    if engine == "io_uring":
        rings.required()
    with tempfile.TemporaryDirectory(dir=TESTS) as name:  # /tmp may have no O_DIRECT
        dataset, reader, buffer = _in_blocks(Path(name), kind, engine)
        every, tally = SampleLayout(dataset).of(np.arange(15, dtype=np.uint64)), Tally()
        reader.read(every, buffer, tally)
        assert [row.tobytes() for row in buffer.rows] == _expected(dataset, list(range(15)))
        assert tally.sizes == [8192] * 15
        assert (tally.requests, tally.bytes_read, tally.overhead_bytes) == (15, 15 * 8192, 0)
        reader.close()
        os.truncate(Path(name) / "1", os.stat(Path(name) / "1").st_size // 8192 * 8192 - 3 * 4096)
        with pytest.raises(InvalidRun, match=r"/1 ends at byte .*truncated"):
            reader.read(every, buffer, Tally())
        reader.close()


def test_a_missing_file_is_named_with_io_uring(tmp_path: Path) -> None:
    rings.required()
    dataset = _dataset("raw")
    _write(tmp_path, dataset)
    (tmp_path / "1").unlink()
    with pytest.raises(InvalidRun, match=f"{tmp_path}/1"):
        _read(_reader(tmp_path, dataset, "posix", engine="io_uring"), dataset, list(range(15)))


def test_hdf5_calls_of_several_samples_fill_rows_with_gaps(tmp_path: Path) -> None:
    dataset = _dataset("hdf5")
    _write(tmp_path, dataset)
    buffer, tally = buffers.allocate(15, dataset.sample.size), Tally()
    assert not buffer.rows.flags.c_contiguous
    reader = _reader(tmp_path, dataset, "framework", 3 * dataset.sample.size)
    reader.read(SampleLayout(dataset).of(np.arange(15, dtype=np.uint64)), buffer, tally)
    reader.close()
    assert [row.tobytes() for row in buffer.rows] == _expected(dataset, list(range(15)))
    assert len(tally.starts) == 6


@pytest.mark.parametrize("per_file", [1, 2, 5])
@given(mean=st.integers(1, 10**6), stdev=st.integers(1, 10**6), seed=st.integers(0, 99), files=st.integers(1, 40))
def test_sizes_that_differ_fill_a_dataset_exactly(per_file: int, mean: int, stdev: int, seed: int, files: int) -> None:
    sample = Sample(bytes=Size(mean), stdev=Size(stdev), seed=seed)
    dataset = Dataset("tfrecord", files, per_file, sample)
    places = SampleLayout(dataset)
    every = places.of(np.arange(dataset.samples, dtype=np.uint64))
    assert sum(place.size for place in every) == dataset.size
    assert all(1 <= place.size <= sample.largest for place in every)
    position = 0
    for number in range(files):
        offset = 0
        for place in places.in_file(number):
            assert (place.file, place.offset, place.position) == (number, offset, position)
            offset += place.size
            position += place.size
        assert offset == places.file_size(number)


def test_sizes_are_spread_normally() -> None:
    sample = Sample(bytes=Size(100_000), stdev=Size(10_000), seed=1)
    for per_file in (1, 1000):
        dataset = Dataset("tfrecord", 200_000 // per_file, per_file, sample)
        sizes = np.array([place.size for place in SampleLayout(dataset).of(np.arange(200_000, dtype=np.uint64))])
        assert abs(sizes.mean() - 100_000) < 1
        assert abs(sizes.std() - 10_000) < 100
        within = [float((abs(sizes - 100_000) < 10_000 * sigmas).mean()) for sigmas in (1, 2, 3)]
        assert within == pytest.approx([0.683, 0.954, 0.997], abs=0.01)


def _takes_random_sizes(kind: format_facts.FormatName) -> bool:
    try:
        Dataset(kind, 2, 1, Sample(bytes=Size(5000), stdev=Size(9)))
    except ValueError:
        return False
    return format_facts.FORMATS[kind].holds_data


_OF_RANDOM_SIZES = sorted(filter(_takes_random_sizes, format_facts.FORMATS))


@pytest.mark.parametrize("kind", _OF_RANDOM_SIZES)
def test_the_sizes_of_a_format_are_those_of_its_facts(tmp_path: Path, kind: format_facts.FormatName) -> None:
    """The sizes of a pair add up in the files, too, and a file of the smallest size holds a sample."""
    facts = format_facts.FORMATS[kind]
    per_file = 1 if facts.holds_image else 4
    mean = 20 * max(facts.size_step, facts.least)
    dataset = Dataset(kind, 60, per_file, Sample(bytes=Size(mean), stdev=Size(mean), seed=3))
    _write(tmp_path, dataset)
    stored = [(tmp_path / str(written.first_part(dataset, at))).stat().st_size for at in range(dataset.files)]
    pairs = stored if per_file > 1 else [one + two for one, two in zip(stored[::2], stored[1::2], strict=True)]
    assert set(pairs) == {pairs[0]}
    samples = list(range(dataset.samples))
    drawn = [place.size for place in SampleLayout(dataset).of(np.array(samples, np.uint64))]
    assert {(size - mean) % facts.size_step for size in drawn} == {0}
    assert facts.least <= min(drawn) < facts.least + facts.size_step, "a sample of the smallest size"
    with contextlib.closing(_reader(tmp_path, dataset, "posix")) as reader:
        read = _read(reader, dataset, samples)[0]
    if facts.holds_image:
        assert read == [(tmp_path / str(sample)).read_bytes() for sample in samples]
    else:
        assert read == _expected(dataset, samples)


def test_writing_over_leaves_the_same_bytes(tmp_path: Path) -> None:
    for kind in ("npz", "raw", "tfrecord", "csv"):
        dataset = _dataset(kind)
        _write(tmp_path, dataset)
        before = (tmp_path / "0").read_bytes()
        with (tmp_path / "0").open("ab") as file:
            file.write(b"left over")
        _write(tmp_path, dataset)
        assert (tmp_path / "0").read_bytes() == before


_WAYS: list[tuple[str, str]] = [
    (kind, mode)
    for kind, facts in format_facts.FORMATS.items()
    if kind != "null" and not facts.holds_image and not facts.is_store  # test_images.py, test_zarr.py
    for mode in ("posix", "framework")
]
_WAYS += [("npz-gzip", mode) for mode in ("posix", "framework")] + [("hdf5-gzip", m) for m in ("posix", "framework")]


@pytest.fixture(params=_WAYS, ids="-".join)
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Dataset, str]:
    kind, _, compression = request.param[0].partition("-")
    keys = {"compression": "gzip", "random_bits": 4} if compression else {}
    sample = _NUMBERS if kind in {"csv", "parquet"} else Sample(shape=(300, 70), dtype="int16")
    dataset = _dataset(kind, sample, **keys)
    _write(tmp_path, dataset)
    return dataset, request.param[1]


def _second(folder: Path, dataset: Dataset) -> Path:
    """The file of the second container that has its samples."""
    return folder / str(written.first_part(dataset, 1))


def test_missing_files_are_named(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _second(tmp_path, way[0])
    path.unlink()
    with pytest.raises(InvalidRun, match=str(path)):
        _verified(tmp_path, *way, [5])


def test_cut_files_are_named(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _second(tmp_path, way[0])
    size = path.stat().st_size
    for left in (0, 3, size // 2):
        os.truncate(path, left)
        with pytest.raises(InvalidRun, match=str(path)):
            _verified(tmp_path, *way, [5, 6, 7, 8, 9])


def test_foreign_files_are_named(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _second(tmp_path, way[0])
    path.write_bytes(b"\x17foreign" * (path.stat().st_size // 8 + 1))
    with pytest.raises(InvalidRun, match=str(path)):
        _verified(tmp_path, *way, [5])


def test_files_of_other_contents_are_found(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _second(tmp_path, way[0])
    written.write(path, way[0], written.first_part(way[0], 2))
    assert _verified(tmp_path, *way, [0]) == _expected(way[0], [0])
    with pytest.raises(
        InvalidRun, match=f"{path}: sample 5 begins with .* the sample differs from the generated contents"
    ):
        _verified(tmp_path, *way, [5])


def test_files_of_another_geometry_are_told_from_ours(tmp_path: Path) -> None:
    np.savez(tmp_path / "2.npz", x=np.zeros((5, 30, 8), np.int16))
    (tmp_path / "2.npz").rename(tmp_path / "2")
    with pytest.raises(InvalidRun, match=r"int16 of shape \(5, 30, 8\), expected int16 of shape \(5, 30, 7\)"):
        _read(_reader(tmp_path, _dataset("npz"), "framework"), _dataset("npz"), [10])
    _write(tmp_path, _dataset("hdf5", chunk=Chunk(bytes=Size(64))))
    for mode in ("posix", "framework"):
        with pytest.raises(InvalidRun, match=r"chunks of \(1, 4, 7\), compression none, expected .* chunks of None"):
            _read(_reader(tmp_path, _dataset("hdf5"), mode), _dataset("hdf5"), [10])


def test_a_cut_file_is_told_with_offset_and_what_was_expected(tmp_path: Path) -> None:
    _write(tmp_path, _dataset("npz"))
    size = _FIXED.size
    start = npz.DATA_OFFSET + size
    os.truncate(tmp_path / "0", start + 10)
    with pytest.raises(InvalidRun, match=f"ends at byte {start + 10}, .* expected from byte {start} to {start + size}"):
        _read(_reader(tmp_path, _dataset("npz"), "posix"), _dataset("npz"), [1])


def test_a_file_that_cannot_be_read_is_told_with_its_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    _write(tmp_path, _dataset("npz"))
    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(InfrastructureError, match=f"cannot read {tmp_path}/0 at byte {npz.DATA_OFFSET}: Input/output"):
        _read(_reader(tmp_path, _dataset("npz"), "posix"), _dataset("npz"), [0])


@pytest.mark.parametrize("kind", ["folder", "socket", "link to a folder"])
@pytest.mark.parametrize("direct", [False, True])
def test_what_is_in_the_place_of_a_sample_file_is_damaged_data(tmp_path: Path, kind: str, direct: bool) -> None:
    path = tmp_path / "0"
    if kind == "socket":
        os.mknod(path, 0o600 | stat.S_IFSOCK)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path)
    with pytest.raises(InvalidRun, match=f"{path} is not a regular file"):
        _read(_reader(tmp_path, _dataset("npz"), "posix", None, direct=direct), _dataset("npz"), [0])


def test_flipped_bits_are_found_where_checksums_are_verified(tmp_path: Path) -> None:
    dataset = _dataset("tfrecord")
    _write(tmp_path, dataset)
    whole = bytearray((tmp_path / "0").read_bytes())
    begin = 2 * (dataset.sample.size + tfrecord.FRAME)
    for at, message in (
        (begin, "has the head"),
        (begin + 100, "have the checksum"),
        (begin + 435, "have the checksum"),
    ):
        whole[at] ^= 1
        (tmp_path / "0").write_bytes(whole)
        for mode, keys in (("framework", {}), ("posix", {"verify": True})):
            with pytest.raises(InvalidRun, match=f"{tmp_path}/0 .* sample 2 at byte .* {message}"):
                _read(_reader(tmp_path, dataset, mode, None, **keys), dataset, [1, 2])
        assert len(_read(_reader(tmp_path, dataset, "posix"), dataset, [1, 2])[0]) == 2
        whole[at] ^= 1


def test_a_damaged_chunk_is_named(tmp_path: Path) -> None:
    dataset = _dataset("hdf5", compression="gzip", random_bits=2)
    _write(tmp_path, dataset)
    with h5py.File(tmp_path / "0") as file:
        where = file["x"].id.get_chunk_info(1)
    with (tmp_path / "0").open("r+b") as raw:
        raw.seek(where.byte_offset)
        raw.write(b"\xff" * where.size)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0 .* the chunk at byte {where.byte_offset}"):
        _read(_reader(tmp_path, dataset, "posix"), dataset, [1])
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0 .* sample 1"):
        _read(_reader(tmp_path, dataset, "framework"), dataset, [1])


@pytest.mark.parametrize("mode", ["posix", "framework"])
@given(at=st.integers(0, 5000), value=st.integers(0, 255))
@settings(max_examples=150, deadline=None)
def test_damage_anywhere_in_an_hdf5_file_is_told_in_words_or_harmless(mode: str, at: int, value: int) -> None:
    """HDF5 itself parses headers and the index of chunks; no exception but InvalidRun may result."""
    dataset = _dataset("hdf5", files=1, compression="gzip", random_bits=2)
    with tempfile.TemporaryDirectory() as name:
        _write(Path(name), dataset)
        data = bytearray((Path(name) / "0").read_bytes())
        data[at % len(data)] = value
        (Path(name) / "0").write_bytes(data)
        reader = _reader(Path(name), dataset, mode)
        with contextlib.suppress(InvalidRun, InfrastructureError):
            _read(reader, dataset, [0, 1, 2, 3, 4])
        reader.close()


@pytest.mark.parametrize("size", [None, 100, 1 << 20])
@pytest.mark.parametrize("dataset", [_dataset("tar", _SPREAD), _SEVERAL[-5]], ids=["one member", "several members"])
def test_all_bytes_of_shards_are_counted_once(tmp_path: Path, dataset: Dataset, size: int | None) -> None:
    """Bytes of samples are apart from those of headers, padding and the ends of archives."""
    assert dataset.format == "tar"
    _write(tmp_path, dataset)
    reader = _reader(tmp_path, dataset, "framework", size)
    tallies = [_read(reader, dataset, [sample])[1] for sample in range(dataset.samples)]
    reader.close()
    total = sum((tmp_path / str(number)).stat().st_size for number in range(dataset.files))
    assert sum(tally.bytes_read for tally in tallies) == dataset.size
    assert sum(tally.overhead_bytes for tally in tallies) == total - dataset.size
    assert sum(tally.opens for tally in tallies) == dataset.files
    assert all(tally.bytes_read >= 0 for tally in tallies)


def test_tarfile_and_tar_read_shards(tmp_path: Path) -> None:
    """Members have the names and the contents of their samples; tar checks headers, and the sizes that they state."""
    dataset = _dataset("tar", Sample(bytes=Size(4000), stdev=Size(900)), arrays=(Size(3500), Size(492), Size(8)))
    _write(tmp_path, dataset)
    contents = b""
    for number in range(FILES):
        with tarfile.open(tmp_path / str(number)) as archive:
            names = [member.name for member in archive]
            contents += b"".join(archive.extractfile(member).read() for member in archive)  # type: ignore[union-attr]
        samples = range(number * PER_FILE, (number + 1) * PER_FILE)
        assert names == [f"{sample:09}.x{part}" for sample in samples for part in range(3)]
        if shutil.which("tar") is not None:
            listed = subprocess.run(["tar", "tvf", tmp_path / str(number)], capture_output=True, text=True, check=True)
            assert [line.split()[-1] for line in listed.stdout.splitlines()] == names
            assert not listed.stderr
    assert contents == b"".join(_expected(dataset, list(range(dataset.samples))))
