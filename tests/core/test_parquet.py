"""Parquet: files are real Parquet, and row groups and columns are read as the keys say."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config import site
from dlio_hpc.config.dataset_keys import COLUMN_BYTES, Column, Dataset, Sample
from dlio_hpc.config.reader_keys import Reader as ReaderKeys
from dlio_hpc.config.reader_keys import Shuffle, sample_bytes_read, spans_read
from dlio_hpc.config.workload import Draft, Workload, load
from dlio_hpc.core import buffers, content
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.formats.format import SampleReader
from dlio_hpc.core.formats.format_table import FORMATS
from dlio_hpc.core.formats.parquet import layout, thrift
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.core.loaders.loader_choice import LOADERS
from dlio_hpc.dataset import planned_bytes
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.plan import plan
from tests.support import planning, written

_COLUMNS = (
    Column("int8", name="label"),
    Column("float32", 13),
    Column("float16"),
    Column("float64"),
    Column("uint8", 5),
    Column("int32"),
    Column("uint32", 3),
    Column("int64"),
    Column("uint64", 2000),
)


def _dataset(columns: tuple[Column, ...] = _COLUMNS, files: int = 2, per_file: int = 25, **keys: Any) -> Dataset:
    size = Size(sum(column.bytes for column in columns))
    return Dataset("parquet", files, per_file, Sample(bytes=size), columns=columns, **{"row_group": 10, **keys})


def _reader(folder: Path, dataset: Dataset, mode: Any, **keys: Any) -> SampleReader:
    workload = Workload("w", dataset, reader=ReaderKeys(mode=mode, **keys))
    return FORMATS["parquet"].reader(workload, lambda number: str(folder / str(number)), None)


def _write(folder: Path, dataset: Dataset) -> None:
    for number in range(dataset.files):
        written.write(folder / str(number), dataset, number)


def _samples(dataset: Dataset, number: int) -> Any:
    """Return the contents of the samples of a file, as they were generated."""
    rows = np.empty((dataset.samples_per_file, dataset.sample.size), np.uint8)
    content.fill(rows.reshape(-1), number * rows.size)
    return rows


def _read(reader: SampleReader, dataset: Dataset, samples: list[int]) -> tuple[Any, Tally]:
    rows, tally = np.zeros((len(samples), dataset.sample.size), np.uint8), Tally()
    reader.read(SampleLayout(dataset).of(np.array(samples, np.uint64)), buffers.over(rows), tally)
    return rows, tally


column_sets = st.lists(
    st.builds(Column, st.sampled_from(list(COLUMN_BYTES)), st.sampled_from([1, 1, 2, 7, 300])), min_size=1, max_size=20
)


@given(columns=column_sets, per_file=st.integers(1, 40), row_group=st.integers(1, 50))
@settings(deadline=None, max_examples=60)
def test_pyarrow_reads_the_values_that_were_generated(
    tmp_path_factory: pytest.TempPathFactory, columns: list[Column], per_file: int, row_group: int
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    dataset = _dataset(tuple(columns), per_file=per_file, row_group=row_group)
    path = tmp_path_factory.mktemp("parquet") / "1"
    written.write(path, dataset, 1)
    file = parquet.ParquetFile(path)
    assert file.metadata.num_row_groups == -(-per_file // min(row_group, per_file))
    table, rows, first = file.read(), _samples(dataset, 1), 0
    assert table.column_names == [f"x{number}" for number in range(len(columns))]
    for array, column in zip(table.columns, columns, strict=True):
        values = array.combine_chunks() if column.size == 1 else array.combine_chunks().flatten()
        data = values.to_numpy(zero_copy_only=False)
        assert data.dtype == column.dtype
        assert (data.view(np.uint8).reshape(per_file, -1) == rows[:, first : first + column.bytes]).all()
        first += column.bytes
    assert FORMATS["parquet"].fault(str(path), dataset, 1, False) is None


def test_columns_without_lists_are_plain_and_required(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    _write(tmp_path, _dataset())
    schema = parquet.ParquetFile(tmp_path / "0").schema_arrow
    assert str(schema.field("label")) == "pyarrow.Field<label: int8 not null>"
    assert str(schema.field("x1").type) == "list<element: float not null>"
    assert str(schema.field("x2").type) == "halffloat"


@pytest.mark.parametrize("columns", [_COLUMNS, (Column("float32", 30_000), Column("int8", 70_000), Column("int64"))])
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("names", [None, ("label",), ("x2", "x1", "x8")])
def test_rows_hold_the_columns_that_are_read(tmp_path: Path, columns: Any, mode: str, names: Any) -> None:
    if mode == "framework":
        pytest.importorskip("pyarrow")
    if names is not None and columns is not _COLUMNS:
        names = ("x2",)
    dataset = _dataset(columns)
    _write(tmp_path, dataset)
    reader = _reader(tmp_path, dataset, mode, columns=names)
    expected = np.concatenate([_samples(dataset, 0), _samples(dataset, 1)])
    read = np.zeros(dataset.sample.size, bool)
    for first, last in spans_read(dataset, ReaderKeys(columns=names)):
        read[first:last] = True
    for samples in ([0], [49, 0, 24], list(range(50)), [3, 3], [9, 10, 11, 29, 30], []):
        rows, _ = _read(reader, dataset, samples)
        assert (rows == expected[samples] * read).all()
    reader.close()


def test_posix_makes_a_request_for_each_column_of_neighbours(tmp_path: Path) -> None:
    dataset = _dataset()
    _write(tmp_path, dataset)
    reader = _reader(tmp_path, dataset, "posix", columns=("label", "x3"))
    files = layout.of(dataset)
    _, first = _read(reader, dataset, [0])
    assert (first.overhead_bytes, first.bytes_read, first.requests) == (len(files.footer), 9, 3)
    _, tally = _read(reader, dataset, list(range(1, 21)))
    assert tally.sizes == [9, 72, 10, 80, 1, 8], "the rest of a row group, all of the next, and one sample"
    assert (tally.overhead_bytes, tally.bytes_read) == (0, 20 * 9)
    _, tally = _read(reader, dataset, [7, 3])
    assert tally.sizes == [1, 8, 1, 8]
    reader.close()


def test_threads_read_row_groups_of_one_file(tmp_path: Path) -> None:
    """pyarrow ends the process if threads read a file through one object at the same time."""
    pytest.importorskip("pyarrow")
    dataset = _dataset((Column("float32", 1024),), 2, 400, row_group=4)
    _write(tmp_path, dataset)
    reader, expected = _reader(tmp_path, dataset, "framework"), _samples(dataset, 0)

    def read(thread: int) -> bool:
        order = np.random.default_rng(thread).permutation(400).tolist()
        rows, _ = _read(reader, dataset, order)
        return bool((rows == expected[order]).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(16)))
    reader.close()


def test_pyarrow_reads_a_row_group_once_while_its_samples_follow(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    dataset = _dataset((Column("float32", 5000), Column("float32", 5000), Column("float64", 5000)))
    _write(tmp_path, dataset)
    reader = _reader(tmp_path, dataset, "framework", columns=("x0", "x2"))
    _, tally = _read(reader, dataset, list(range(4)))
    assert tally.opens == 1
    assert tally.overhead_bytes > 0, "the footer"
    chunks = layout.of(dataset).group(0).chunks
    group = chunks[0].size + chunks[2].size
    assert group <= tally.bytes_read <= group + 100
    _, tally = _read(reader, dataset, list(range(4, 10)))
    assert (tally.bytes_read, tally.requests, tally.starts) == (0, 0, [])
    _, tally = _read(reader, dataset, [10, 0, 11])
    assert 3 * group <= tally.bytes_read <= 3 * (group + 100), "samples of two row groups in turn"
    assert len(tally.starts) == 3
    reader.close()


@pytest.mark.parametrize("extent", ["first", "all"])
@pytest.mark.parametrize("names", [None, ("x3",), ("label", "x1", "x4")])
def test_content_is_compared_where_it_is_read(tmp_path: Path, extent: Any, names: Any) -> None:
    dataset = _dataset()
    _write(tmp_path, dataset)
    keys = ReaderKeys(columns=names, verify_content=extent)
    places = SampleLayout(dataset).of(np.array([12, 13], np.uint64))
    rows, tally = _read(_reader(tmp_path, dataset, "posix", columns=names), dataset, [12, 13])
    read = spans_read(dataset, keys)
    for at in range(dataset.sample.size):
        if not any(first <= at < (last or 1 << 40) for first, last in read):
            rows[:, at] = 77  # left from another batch

    def check() -> None:
        verification = Verification(Workload("w", dataset, reader=keys), lambda number: f"file {number}")
        verification(Batch(places, rows, tally))
        verification.finish()

    check()
    rows[0, read[0][0]] ^= 1
    with pytest.raises(InvalidRun, match="file 0: sample 12 "):
        check()


def test_faults_are_told_with_the_sample(tmp_path: Path) -> None:
    dataset = _dataset()
    _write(tmp_path, dataset)
    path, files = tmp_path / "1", layout.of(dataset)
    fault = FORMATS["parquet"].fault
    group = files.group(2)
    for chunk in group.chunks:
        at = group.offset + chunk.values_at + 3 * chunk.width
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        assert (
            fault(str(path), dataset, 1, False) == f"byte {at} differs from the generated contents (sample {25 + 23})"
        )
        assert fault(str(path), dataset, 1, True) is None
        data[at] ^= 1
        path.write_bytes(data)
    assert files.holder(0, 2) is files.holder(0, files.footer_at) is None
    os.truncate(path, 100)
    assert fault(str(path), dataset, 1, True) == f"has 100 bytes, expected {files.file_size}"


@pytest.mark.parametrize(
    ("size", "encoding", "tolerance"),
    [(1, "RLE_DICTIONARY", 0.5), (100, "RLE_DICTIONARY", 0.02), (30_000, "PLAIN", 0.2)],
)
def test_files_are_as_large_as_those_of_pyarrow(tmp_path: Path, size: int, encoding: str, tolerance: float) -> None:
    """Columns of up to 1 MiB have a dictionary, as pyarrow writes them if their values differ."""
    parquet, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    dataset = _dataset((Column("float32", size), Column("float64"), Column("int8")), files=1, row_group=25)
    _write(tmp_path, dataset)
    ours = parquet.ParquetFile(tmp_path / "0")
    assert encoding in ours.metadata.row_group(0).column(0).encodings
    values = pa.array(np.random.default_rng(0).random(25 * size).astype(np.float32))
    column = values if size == 1 else pa.FixedSizeListArray.from_arrays(values, size)
    parquet.write_table(pa.table({"x0": column}), tmp_path / "theirs", compression="none")
    theirs = parquet.ParquetFile(tmp_path / "theirs").metadata.row_group(0).column(0).total_compressed_size
    assert ours.metadata.row_group(0).column(0).total_compressed_size == pytest.approx(theirs, rel=tolerance)
    assert dataset.size + dataset.index_bytes == pytest.approx(os.path.getsize(tmp_path / "0"), rel=0.02, abs=3000)


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_files_of_another_geometry_are_refused(tmp_path: Path, mode: str) -> None:
    if mode == "framework":
        pytest.importorskip("pyarrow")
    _write(tmp_path, _dataset())
    other = _dataset(row_group=5)
    with pytest.raises(InvalidRun, match=f"{tmp_path}/0 "):
        _read(_reader(tmp_path, other, mode), other, [0])


def test_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    _write(tmp_path, _dataset((Column("float32"),)))
    other = _dataset((Column("int32"),))
    with pytest.raises(InvalidRun, match="its column x0 holds 10 values of type float"):
        _read(_reader(tmp_path, other, "framework"), other, [0])


def test_large_row_groups_are_generated_column_by_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = _dataset(row_group=None)
    written.write(tmp_path / "whole", dataset, 1)
    monkeypatch.setattr("dlio_hpc.core.formats.parquet.parquet_format._SMALL", 0)
    written.write(tmp_path / "parts", dataset, 1)
    assert (tmp_path / "whole").read_bytes() == (tmp_path / "parts").read_bytes()


def test_a_row_group_has_128_mib_by_default() -> None:
    sample = Sample(shape=(1 << 20,), dtype="float32")
    assert Dataset("parquet", 1, 100, sample).row_group_samples == 32
    assert Dataset("parquet", 1, 10, sample).row_group_samples == 10
    assert Dataset("parquet", 1, 10, sample, row_group=20).row_group_samples == 10
    assert Dataset("parquet", 1, 10, Sample(bytes=Size(1 << 30))).row_group_samples == 1


def _with(**settings: Any) -> Workload:
    dataset = {"format": "parquet", "files": 2, "samples_per_file": 8, "columns": ["float32", {"dtype": "int8"}]}
    draft = Draft({"name": "w", "dataset": dataset}, "w.yaml")
    settings = {"dataset__files": 2, **settings}
    return draft.with_settings({key.replace("__", "."): value for key, value in settings.items()})


def test_the_size_of_a_sample_follows_from_its_columns() -> None:
    workload = _with()
    assert workload.dataset.sample.size == 5
    assert workload.dataset.column_names == ("x0", "x1")
    assert _with(dataset__columns=["float64"]).dataset.sample.size == 8
    one = _with(dataset__columns=None, dataset__sample={"shape": [3, 4], "dtype": "float16"}).dataset
    assert [(column.dtype, column.size, column.name) for column in one.all_columns] == [("float16", 12, "x")]
    assert sample_bytes_read(workload.dataset, ReaderKeys(columns=("x1",))) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dataset__sample": {"bytes": 7}}, "a sample has 5 bytes, not 7; leave sample out, or set sample.bytes: 5"),
        ({"dataset__sample": {"bytes": 5, "stdev": 1}}, "leave stdev null"),
        ({"dataset__columns": [{"dtype": "int8", "name": "x1"}, "int8"]}, "columns: names must be unique"),
        ({"dataset__columns": ["int16"]}, "columns"),
        ({"dataset__columns": []}, "columns"),
        ({"dataset__columns": None, "dataset__sample": {"shape": [3], "dtype": "int16"}}, "stores int16 in four bytes"),
        ({"dataset__compression": "gzip"}, "compression=gzip needs format=tfrecord"),
        ({"dataset__format": "npz"}, "columns and row_group are only for format=parquet"),
        (
            {"dataset__columns": [{"dtype": "float64", "size": 1 << 25}], "dataset__row_group": 8},
            "set row_group to at most 7",
        ),
        ({"reader__mode": "framework", "reader__interleave": 2}, "each sample would require reading a row group"),
        ({"reader__columns": ["x2"]}, "columns of the dataset: x0, x1"),
        ({"reader__columns": []}, "must name one or more columns"),
        ({"reader__mode": "framework", "reader__transfer_size": 4096}, "pyarrow chooses the request size"),
        (
            {"dataset__files": 1, "dataset__file_access": "shared", "reader__access": "collective"},
            "format=parquet stores columns; set access=independent",
        ),
    ],
)
def test_what_cannot_be_combined_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        _with(**settings)


@pytest.mark.parametrize(
    ("keys", "times"),
    [
        ({"mode": "posix"}, 1),
        ({"read_threads": 1}, 1),
        ({"read_threads": 4, "batch_size": 48}, 6),
        ({"read_threads": 4, "batch_size": 288}, 1),
        ({"read_threads": 4, "batch_size": 432}, 4 / 3),
        ({"shuffle": Shuffle(samples=True, files=True)}, 288),
        ({"shuffle": Shuffle(samples=True), "read_threads": 1}, 1),
    ],
)
def test_the_plan_says_how_often_row_groups_are_read(tmp_path: Path, keys: dict[str, Any], times: float) -> None:
    workload = load("flux_b200")
    reader = structs.replace(workload.reader, **{"read_threads": 8, "prefetch": None, "shuffle": Shuffle(), **keys})
    made = structs.replace(workload, reader=reader)
    assert planned_bytes.row_group_factor(made) == pytest.approx(times)
    assert planned_bytes.row_group_factor(load("demo")) == 1
    request = planning.Request(tmp_path, data=tmp_path, walltime=units.walltime("7d"))
    plan = planning.make(made, site.load("local"), request)
    notes = [note for note in plan.notes if "pyarrow reads whole row groups of 594.6 MiB" in note]
    assert bool(notes) == (times > 1)


def test_columns_need_parquet() -> None:
    with pytest.raises(ValueError, match=r"reader\.columns: format=raw has no columns"):
        Workload("w", Dataset("raw", 1, 1, Sample(bytes=Size(1))), reader=ReaderKeys(columns=("x",)))


@given(st.integers(0, 2**62))
def test_numbers_are_encoded_in_groups_of_seven_bits(number: int) -> None:
    encoded = thrift.varint(number)
    assert sum((byte & 0x7F) << 7 * at for at, byte in enumerate(encoded)) == number
    assert [byte >> 7 for byte in encoded] == [1] * (len(encoded) - 1) + [0]


@pytest.mark.parametrize("row_group", [1, 7, 10, None])
@pytest.mark.parametrize("loader", LOADERS)
def test_direct_access_requests_whole_blocks(row_group: int | None, loader: Any) -> None:
    """Sizes of columns are no multiples of a block: a request has the blocks at both ends."""
    dataset = _dataset(row_group=row_group)
    wanted = Workload("w", dataset, reader=ReaderKeys(loader=loader, mode="posix", direct=True))
    request = plan.resolved(wanted).reader.transfer_size
    assert request is not None
    assert request % 4096 == 0
    assert request >= 2000 * 8 * dataset.row_group_samples + 4096


@pytest.mark.parametrize("row_group", [3, 10])
def test_direct_access_reads_the_same_samples(tmp_path: Path, row_group: int) -> None:
    dataset = _dataset(row_group=row_group)
    _write(tmp_path, dataset)
    reader = _reader(tmp_path, dataset, "posix", direct=True)
    places = SampleLayout(dataset).of(np.array([24, 0, 49, 13, 12, 11], np.uint64))
    buffer, tally = buffers.allocate(len(places), dataset.sample.size), Tally()
    reader.read(places, buffer, tally)
    reader.close()
    for place, row in zip(places, buffer.rows, strict=True):
        expected = np.empty(place.size, np.uint8)
        content.fill(expected, place.position)
        assert np.array_equal(row[: place.size], expected)
    assert tally.bytes_read == len(places) * dataset.sample.size
