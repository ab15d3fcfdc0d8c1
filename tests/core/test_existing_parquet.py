"""Existing Parquet files: their row groups arrive through each loader, as pyarrow alone reads them."""

import os
import struct
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.config.reader_keys import Shuffle, columns_read, outer_names
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.formats.parquet import thrift
from dlio_hpc.core.loaders.loader import Batch, Loader
from dlio_hpc.core.loaders.loader_choice import LOADERS, Inputs
from dlio_hpc.dataset import parquet_footer, planned_bytes, rank_shares, sample_index
from dlio_hpc.dataset.parquet_footer import StoredRowGroup
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.dataset.thrift_reader import Malformed
from tests.support import existing

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

_SHUFFLES = [Shuffle(files, samples, 3) for files in (False, True) for samples in (False, True)]
_CHOICES = (None, ["id", "name"], ["box"], ["box.corners", "größe"], ["tokens.list.element"])
_LEAVES = ("id", "name", "image", "box.label", "box.corners.list.element", "tokens.list.element", "größe")
_RANKS = 2


def _path(data: Path, index: str, number: int) -> str:
    return os.path.join(data, sample_index.opened(index).name(number))


def _scanned(folder: Path, **reader: Any) -> Workload:
    return existing.scanned(folder / "data", folder, existing.unscanned("parquet", "*.parquet", **reader))


def _open(made: Workload, data: Path, steps: int) -> Loader:
    assert made.dataset.scan is not None
    paths = partial(_path, data, made.dataset.scan.index)
    return LOADERS[made.reader.loader](Inputs(made, paths, steps, whole=True))


def _groups(path: Path) -> list[StoredRowGroup]:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        begin, footer = parquet_footer.located(descriptor, path.stat().st_size)
    finally:
        os.close(descriptor)
    return parquet_footer.parsed(footer, begin)


def _is_chosen(leaf: str, names: list[str] | None) -> bool:
    return names is None or not outer_names(leaf).isdisjoint(names)


def _chunks(data: Path, names: list[str] | None) -> list[bytes]:
    """Return the bytes of the chosen column chunks of each row group, as pyarrow's metadata locate them."""
    rows = []
    for path in sorted(data.glob("*.parquet")):
        content, metadata = path.read_bytes(), pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            row = b""
            for index in range(metadata.num_columns):
                chunk = metadata.row_group(group).column(index)
                if _is_chosen(chunk.path_in_schema, names):
                    begin = min(filter(None, (chunk.dictionary_page_offset, chunk.data_page_offset)))
                    row += content[begin : begin + chunk.total_compressed_size]
            rows.append(row)
    return rows


def _values(data: Path, names: list[str] | None) -> list[bytes]:
    """Return the memory of the chosen columns of each row group, as pyarrow decodes them."""
    rows = []
    for path in sorted(data.glob("*.parquet")):
        file = pq.ParquetFile(path)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=names)
            parts = [part.buffers() for column in table.columns for part in column.chunks]
            rows.append(b"".join(memory.to_pybytes() for part in parts for memory in part if memory))
    return rows


@pytest.mark.parametrize("shuffle", _SHUFFLES, ids=lambda s: f"files={s.files},samples={s.samples}")
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", LOADERS)
def test_each_row_group_once_in_the_same_order(tmp_path: Path, loader: Any, mode: str, shuffle: Shuffle) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    data = tmp_path / "data"
    existing.tables(data)
    made = _scanned(tmp_path, loader=loader, mode=mode, batch_size=2, read_threads=2, shuffle=structs.asdict(shuffle))
    contents = (_chunks if mode == "posix" else _values)(data, None)
    steps = rank_shares.steps_per_epoch(made, _RANKS)
    numbers = []
    for rank in range(_RANKS):
        first, last = rank_shares.positions(made, _RANKS, rank, 1)
        opened, order = _open(made, data, steps), Order(made.dataset, made.reader, 0, ranks=_RANKS)
        for batch in opened.epoch(order, first, last, steps):
            numbers += [_number(batch, at, contents) for at in range(len(batch.rows))]
        opened.close()
    assert sorted(numbers) == list(range(10))


def _number(batch: Batch, at: int, contents: list[bytes]) -> int:
    (place,) = batch.places.part(slice(at, at + 1))
    expected = contents[place.sample][: place.size]
    assert batch.rows[at][: len(expected)].tobytes() == expected
    return place.sample


@pytest.mark.parametrize("names", _CHOICES, ids=str)
@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_columns_have_the_names_of_the_files(tmp_path: Path, mode: str, names: list[str] | None) -> None:
    data = tmp_path / "data"
    existing.tables(data)
    made = _scanned(tmp_path, mode=mode, batch_size=5, prefetch=0, columns=names)
    assert made.dataset.column_names == _LEAVES
    chosen = [_LEAVES[at] for at in columns_read(made.dataset, made.reader)]
    assert chosen == [leaf for leaf in _LEAVES if _is_chosen(leaf, names)]
    contents = (_chunks if mode == "posix" else _values)(data, names)
    opened = _open(made, data, 2)
    batches = list(opened.epoch(Order(made.dataset, made.reader, 0), 0, 10, 2))
    opened.close()
    assert [_number(batch, at, contents) for batch in batches[-1:] for at in range(5)] == list(range(5, 10))
    if mode == "posix":
        read = sum(batch.tally.bytes_read for batch in batches)
        assert read == planned_bytes.payload(made, 1, 10) == sum(map(len, contents))
        sizes = [size for batch in batches for size in batch.tally.sizes]
        assert len(sizes) == 10 * len(chosen) + 4, "a request for each column chunk and for each footer"


def test_unknown_columns_are_named(tmp_path: Path) -> None:
    existing.tables(tmp_path / "data")
    with pytest.raises(ValueError, match=r"reader.columns \(box.x, size: unknown\) must name .*: id, name, image, "):
        _scanned(tmp_path, columns=["id", "box", "box.x", "size"])


@pytest.mark.parametrize("keys", [{"engine": "io_uring"}, {"direct": True}, {"transfer_size": "4 KiB"}], ids=str)
def test_other_ways_to_read(tmp_path: Path, keys: dict[str, Any]) -> None:
    from tests.support import rings

    if "engine" in keys:
        rings.required()
    data = tmp_path / "data"
    existing.tables(data)
    made = _scanned(tmp_path, batch_size=5, columns=["image", "tokens"], **keys)
    opened, contents = _open(made, data, 2), _chunks(data, ["image", "tokens"])
    for batch in opened.epoch(Order(made.dataset, made.reader, 0), 0, 10, 2):
        for at in range(len(batch.rows)):
            _number(batch, at, contents)
    opened.close()


# pyarrow's threads free buffers after the epoch has ended: a pool that is gone by then ends the process (SIGSEGV).
_POOLS: list[Any] = []


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_row_groups_take_less_memory_than_two_batches(tmp_path: Path, mode: str) -> None:
    data = tmp_path / "data"
    existing.tables(data, (6, 6), 2000)
    made = _scanned(tmp_path, mode=mode, batch_size=4, prefetch=0)
    opened, usual = _open(made, data, 3), pa.default_memory_pool()
    pool = pa.proxy_memory_pool(usual)
    _POOLS.append(pool)
    pa.set_memory_pool(pool)
    tracemalloc.start()
    for _ in opened.epoch(Order(made.dataset, made.reader, 0), 0, 12, 3):
        pass  # threads of pyarrow free the last row group a little later
    _, most = tracemalloc.get_traced_memory()  # without the batch itself
    tracemalloc.stop()
    pa.set_memory_pool(usual)
    opened.close()
    assert most < 4 * made.dataset.largest
    assert pool.max_memory() < 2 * 4 * made.dataset.largest


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.6"])
@pytest.mark.parametrize("page", ["1.0", "2.0"])
def test_footers_of_pyarrow_are_read(tmp_path: Path, codec: str, version: str, page: str) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"a": range(2000), "b": [["x", None]] * 2000, "c": pa.array([None] * 2000, pa.null())})
    keys = {"write_statistics": page == "1.0", "write_page_index": page == "2.0", "use_dictionary": ["b.list.element"]}
    pq.write_table(table, path, 300, version, compression=codec, data_page_version=page, **keys)
    metadata = pq.read_metadata(path)
    for index, group in enumerate(_groups(path)):
        theirs = metadata.row_group(index)
        assert group.rows == theirs.num_rows
        for chunk, column in zip(group.chunks, map(theirs.column, range(3)), strict=True):
            begin = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)))
            assert chunk[:3] == (column.path_in_schema, begin, column.total_compressed_size)


def test_files_without_rows_are_left_out(tmp_path: Path) -> None:
    data = tmp_path / "data"
    existing.tables(data)
    with pq.ParquetWriter(data / "9.parquet", pq.read_schema(data / "00000000.parquet")):
        pass
    assert _scanned(tmp_path).dataset.samples == 10
    for mode in ("posix", "framework"):
        made = _scanned(tmp_path, mode=mode, batch_size=5)
        opened = _open(made, data, 2)
        assert sum(len(batch.rows) for batch in opened.epoch(Order(made.dataset, made.reader, 0), 0, 10, 2)) == 10
        opened.close()


def _footer(*fields: thrift.Field) -> bytes:
    metadata = thrift.struct(*fields)
    return metadata + len(metadata).to_bytes(4, "little") + b"PAR1"


def _group(offset: int = 4, size: int = 50, values: int = 5, rows: int = 5, name: str = "a", **more: Any) -> bytes:
    meta = thrift.inner(
        3, thrift.i32(1, 2), thrift.texts(3, (name,)), thrift.i64(5, values), thrift.i64(6, size), thrift.i64(7, size),
        thrift.i64(9, offset),
    )  # fmt: skip
    chunk = thrift.struct(*more.get("before", ()), meta, *more.get("after", ()))
    return thrift.struct(thrift.structs(1, [chunk] * more.get("columns", 1)), thrift.i64(3, rows))


def _file(*groups: bytes, end: tuple[thrift.Field, ...] = ()) -> bytes:
    return b"PAR1" + bytes(96) + _footer(thrift.structs(4, list(groups)), *end)


_LONG = b"\x80" * 9 + b"\x01"
_DEEP = bytes([0x1C]) * 4000


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is not a Parquet file, or is truncated or corrupted: it does not begin and end with PAR1"),
        (_file(_group())[:-1], "it does not begin and end with PAR1"),
        (_file(_group())[:-9] + b"PAR1", r"its metadata have \d+ bytes, but the file has \d+ bytes"),
        (b"PARX" + _file(_group())[4:], "it does not begin and end with PAR1"),
        (b"PARE" + bytes(40) + b"PARE", "is encrypted; decrypt it"),
        (_file(_group(), end=(thrift.inner(8),)), "has encrypted columns; decrypt it"),
        (_file(_group(after=(thrift.inner(8),))), "has encrypted columns; decrypt it"),
        (_file(_group(before=(thrift.text(1, "../secret"),))), "has columns in other files; choose a pattern"),
        (
            _file(_group(90)),
            "column a of row group 0 has 50 bytes at byte 90, but column chunks are between ",
        ),
        (_file(_group(2**40)), "column a of row group 0 has 50 bytes at byte 1099511627776"),
        (_file(_group(0)), "column a of row group 0 has 50 bytes at byte 0"),
        (_file(_group(size=0)), "row group 0 has 5 rows in 0 bytes"),
        (_file(_group(), _group(name="b")), "row group 1 has other columns than row group 0"),
        (_file(_group(columns=3)), "row group 0 has 5 rows in 150 bytes"),
        (
            _file(_group(values=10**9)),
            "has a decompression bomb: row group 0 has 50 bytes, but its values need 8000",
        ),
        (_file(b"\0"), "a row group without columns ends at byte"),
        (_file(b"\x19\x1c\0\0"), "a column chunk without metadata ends at byte"),
        (_file(b"\x19\x1c\x3c\0\0\0"), "the metadata of a column chunk without name or type end at byte"),
        (_file(b"\x19\xfc" + _LONG), "a list of .* items is longer than the metadata at byte"),
        (_file(b"\x19\xf5" + b"\xff" * 12), "a number has too many bytes at byte"),
        (_file(_group(), end=(thrift.Field(9, 12, _DEEP),)), "the metadata are nested too deeply at byte"),
        (_file(_group(), end=(thrift.Field(9, 15, b""),)), "a value has the unknown type 15 at byte"),
        (_file(_group(), end=(thrift.Field(9, 8, b"\x7f"),)), "the metadata end in the middle of a value at byte"),
        (b"PAR1" + bytes(20) + _footer(thrift.i32(4, 1)), "a value has the type 5, expected 9 at byte"),
    ],
    ids=range(24),
)
def test_hostile_files_are_named_by_file_and_offset(tmp_path: Path, content: bytes, words: str) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.parquet").write_bytes(content)
    tracemalloc.start()
    with pytest.raises(ConfigError, match=f"{data}/a.parquet .*{words}"):
        _scanned(tmp_path)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 8 << 20


def test_columns_that_differ_between_files_are_named(tmp_path: Path) -> None:
    data = tmp_path / "data"
    existing.tables(data)
    pq.write_table(pa.table({"id": [1], "other": [2]}), data / "1.parquet")
    with pytest.raises(ConfigError, match=r"1.parquet has the columns id, other, but 00000000.parquet has id, name, "):
        _scanned(tmp_path)


def test_a_sparse_footer_needs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "data" / "a.parquet"
    path.parent.mkdir()
    with path.open("wb") as file:
        file.write(b"PAR1")
        file.truncate(3 << 30)
        file.seek(3 << 30)
        file.write(struct.pack("<I", (3 << 30) - 4) + b"PAR1")
    with pytest.raises(ConfigError, match=r"a.parquet has a footer of 3221225476 bytes, and at most 268435456 "):
        _scanned(tmp_path)


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 100)


def _zeros(path: Path) -> None:
    """Overwrite the footer, as a file system without its last blocks does."""
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + bytes(len(content) - len(content) // 2))


def _noise(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[4:2000] = np.random.default_rng(1).bytes(1996)
    path.write_bytes(content)


def _fewer(path: Path) -> None:
    existing.tables(path.parent, (1, 3, 1, 4))


@pytest.mark.parametrize(
    ("mode", "spoil", "words"),
    [
        ("posix", _cut, "ends at byte .* but data were expected"),
        ("posix", _zeros, "it does not end with PAR1"),
        ("framework", _cut, "Parquet magic bytes not found in footer"),
        ("framework", _zeros, "Parquet magic bytes not found in footer"),
        ("framework", _noise, "row group 0: "),
        ("framework", _fewer, "has 1 row groups, expected 2"),
    ],
)
def test_files_that_changed_since_the_scan_are_named(tmp_path: Path, mode: str, spoil: Any, words: str) -> None:
    data = tmp_path / "data"
    existing.tables(data)
    made = _scanned(tmp_path, mode=mode, batch_size=5, prefetch=0)
    spoil(data / "00000000.parquet")
    opened = _open(made, data, 2)
    with pytest.raises(InvalidRun, match=f"{data}/00000000.parquet.*{words}.*scan") as raised:
        list(opened.epoch(Order(made.dataset, made.reader, 0), 0, 10, 2))
    assert "generate" not in str(raised.value)
    opened.close()


@pytest.fixture(scope="module")
def footer(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, bytes]:
    folder = tmp_path_factory.mktemp("tables")
    existing.tables(folder, (2,))
    path = folder / "00000000.parquet"
    descriptor = os.open(path, os.O_RDONLY)
    located = parquet_footer.located(descriptor, path.stat().st_size)
    os.close(descriptor)
    return located


@settings(max_examples=400, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 1 << 14), st.binary(min_size=1, max_size=8)), max_size=4))
def test_a_damaged_footer_is_read_or_refused(footer: tuple[int, bytes], changes: list[tuple[int, bytes]]) -> None:
    begin, sound = footer
    damaged = bytearray(sound)
    for offset, change in changes:
        at = offset % (len(damaged) - parquet_footer.TAIL)
        damaged[at : at + len(change)] = change
    try:
        groups = parquet_footer.parsed(bytes(damaged[: len(sound)]), begin)
    except (Malformed, parquet_footer.Unreadable):
        return
    for group in groups:
        assert 0 < group.size <= begin
        assert all(4 <= chunk.offset <= begin - chunk.size for chunk in group.chunks)
