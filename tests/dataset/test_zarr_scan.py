"""Existing Zarr stores: the scan finds arrays and samples in stores of zarr-python, every loader reads each sample
once, and stores that are damaged, foreign or hostile are named by file.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_hpc.base.errors import ConfigError, DlioError, InvalidRun
from dlio_hpc.config.reader_keys import LoaderName
from dlio_hpc.core.formats.zarr import shards
from dlio_hpc.core.loaders.loader_choice import LOADERS
from dlio_hpc.dataset import zarr_metadata
from dlio_hpc.dataset.zarr_store import PartNames
from tests.dataset import test_existing
from tests.support import existing, stores

zarr = pytest.importorskip("zarr")

pytestmark = pytest.mark.filterwarnings("ignore")

_SHAPE, _CHUNK = (7, 9, 11), (2, 4, 5)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    existing.forget()
    yield
    existing.forget()


def _values(dtype: Any, first: int = 0, shape: tuple[int, ...] = _SHAPE) -> Any:
    rng = np.random.default_rng(first)
    dtype = np.dtype(dtype)
    return np.frombuffer(rng.bytes(int(np.prod(shape)) * dtype.itemsize), dtype).reshape(shape).copy()


def _made(path: Path, values: Any, **keys: Any) -> list[bytes]:
    """Write an array with zarr-python. Return the bytes of its samples."""
    keys = {"chunks": _CHUNK, "dtype": values.dtype, **keys}
    array = zarr.create_array(path, shape=values.shape, **keys)
    array[:] = values
    return [row.tobytes() for row in values]


def _check(
    folder: Path, contents: list[bytes], glob: str = "*.zarr", loader: LoaderName = "native", **keys: Any
) -> None:
    """Check that the ranks read each sample of the stores below `folder` once an epoch."""
    array = keys.pop("array", None)
    made = existing.unscanned(
        "zarr", glob, {} if array is None else {"array": array}, loader=loader, **{"batch_size": 2, **keys}
    )
    made = existing.scanned(folder / "data", folder, made)
    assert made.dataset.size == sum(map(len, contents))
    test_existing._check_epochs(loader, made, folder / "data", contents)


def _ways() -> dict[str, dict[str, Any]]:
    from numcodecs import Blosc, GZip, Zlib, Zstd
    from zarr.codecs import BloscCodec, BytesCodec, Crc32cCodec, GzipCodec, ZstdCodec

    return {
        "version 2": {"zarr_format": 2, "compressors": None},
        "version 2 with zstd": {"zarr_format": 2, "compressors": Zstd()},
        "version 2 with blosc": {"zarr_format": 2, "compressors": Blosc()},
        "version 2 with gzip": {"zarr_format": 2, "compressors": GZip()},
        "version 2 with zlib": {"zarr_format": 2, "compressors": Zlib()},
        "version 2 with slashes": {"zarr_format": 2, "chunk_key_encoding": {"name": "v2", "separator": "/"}},
        "version 3": {"compressors": None},
        "version 3 with zstd": {"compressors": ZstdCodec(checksum=True)},
        "version 3 with blosc": {"compressors": BloscCodec()},
        "version 3 with gzip": {"compressors": GzipCodec()},
        "version 3 with zstd and a checksum": {"compressors": (ZstdCodec(), Crc32cCodec())},
        "version 3 in shards": {"shards": (4, 8, 10)},
        "version 3 in one shard": {"shards": (8, 12, 15), "compressors": None},
        "version 3 with dots": {"chunk_key_encoding": {"name": "default", "separator": "."}},
        "version 3 with names of version 2": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
        "version 3 with large ends": {"serializer": BytesCodec(endian="big")},
    }


@pytest.mark.parametrize("way", _ways())
@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_stores_of_zarr_python(tmp_path: Path, way: str, mode: str) -> None:
    keys = _ways()[way]
    contents = _made(tmp_path / "data/a.zarr", _values("<i4", 1), **keys)
    contents += _made(tmp_path / "data/b.zarr", _values("<i4", 2, (3, 9, 11)), **keys)
    _check(tmp_path, contents, mode=mode)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_every_loader_reads_stores(tmp_path: Path, loader: LoaderName, mode: str) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    contents = _made(tmp_path / "data/a.zarr", _values("<f4", 1))
    contents += _made(tmp_path / "data/b.zarr", _values("<f4", 2, (5, 9, 11)), chunks=(1, 9, 11))
    _check(tmp_path, contents, loader=loader, mode=mode, read_threads=2)


@pytest.mark.parametrize("dtype", [">i2", ">f8", "<M8[ns]", "|S10", "<U3", "|b1", "<c16", "<u8", "|V6"])
@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_any_type_of_a_fixed_size(tmp_path: Path, dtype: str, version: int, mode: str) -> None:
    """Version 3 has no types with large ends in memory, so zarr-python gives values with small ends."""
    kind = np.dtype(dtype).kind
    if kind in "UbVS":
        values = np.resize(np.array([b"ab", b"c"], "S6").astype(dtype) if kind != "b" else [True, False], (4, 3, 5))
    else:
        values = _values(dtype, 3, (4, 3, 5))
    _made(tmp_path / "data/a.zarr", values.astype(dtype), chunks=(1, 2, 5), zarr_format=version)
    read = zarr.open_array(tmp_path / "data/a.zarr", mode="r")[:]
    _check(tmp_path, [row.tobytes() for row in read], mode=mode)


@pytest.mark.parametrize(("version", "shards"), [(2, None), (3, None), (3, (2, 8, 10))])
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("fill", [0.0, -1.5, float("nan"), float("inf")])
def test_missing_chunks_have_the_fill_value(tmp_path: Path, version: int, mode: str, shards: Any, fill: float) -> None:
    array = zarr.create_array(
        tmp_path / "data/a.zarr", shape=_SHAPE, chunks=_CHUNK, shards=shards, dtype="f4", fill_value=fill,
        zarr_format=version,
    )  # fmt: skip
    array[2, 3:6, 4:7] = 7
    contents = [row.tobytes() for row in array[:]]
    _check(tmp_path, contents, mode=mode)


@pytest.mark.parametrize("consolidated", [False, True])
@pytest.mark.parametrize("version", [2, 3])
def test_arrays_in_groups(tmp_path: Path, version: int, consolidated: bool) -> None:
    store = tmp_path / "data/era5.zarr"
    zarr.open_group(store, mode="w", zarr_format=version)
    contents = _made(store / "surface/temperature", _values("<f4", 1), zarr_format=version)
    zarr.open_group(store / "surface", mode="a", zarr_format=version)
    _made(store / "wind", _values("<i2", 2), zarr_format=version)
    if consolidated:
        zarr.consolidate_metadata(store)
    _check(tmp_path, contents, "era5.zarr/surface/temperature")
    existing.forget()
    _check(tmp_path, contents, "*.zarr", array="surface/temperature")
    for array, text in (
        (None, r"not hold exactly one array \(it holds: surface/temperature, wind\)"),
        ("humidity", r"no array humidity \(it has: surface/temperature, wind\)"),
        ("surface", r"no array surface \(it has"),
        ("../other", "outside of the store"),
    ):
        with pytest.raises(ConfigError, match=text):
            _check(tmp_path, contents, "*.zarr", array=array)


def test_the_only_array_of_a_group_needs_no_name(tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "data/a.zarr", mode="w")
    contents = _made(tmp_path / "data/a.zarr/x", _values("<i8", 1))
    _check(tmp_path, contents)
    with pytest.raises(ConfigError, match="x is an array itself"):
        _check(tmp_path, contents, "a.zarr/x", array="y")


def test_links_that_leave_a_group_are_not_followed(tmp_path: Path) -> None:
    zarr.open_group(tmp_path / "data/a.zarr", mode="w")
    contents = _made(tmp_path / "elsewhere", _values("<i8", 1))
    (tmp_path / "data/a.zarr/x").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match=r"a\.zarr/x is outside of the store"):
        _check(tmp_path, contents, array="x")


@pytest.mark.parametrize("name", ["../../elsewhere", "/elsewhere", "x/../../../elsewhere"])
def test_names_in_consolidated_metadata_do_not_leave_a_group(tmp_path: Path, name: str) -> None:
    zarr.open_group(tmp_path / "data/a.zarr", mode="w", zarr_format=2)
    contents = _made(tmp_path / "elsewhere", _values("<i8", 1), zarr_format=2)
    listed = {"metadata": {f"{name}/.zarray": {}}, "zarr_consolidated_format": 1}
    (tmp_path / "data/a.zarr/.zmetadata").write_text(json.dumps(listed))
    with pytest.raises(ConfigError, match=r"outside of the store|has no array"):
        _check(tmp_path, contents)


def test_filters_are_left_to_the_library(tmp_path: Path) -> None:
    from numcodecs import Delta

    contents = _made(tmp_path / "data/a.zarr", _values("<i4", 1), zarr_format=2, filters=[Delta(dtype="<i4")])
    _check(tmp_path, contents, mode="framework")
    existing.forget()
    with pytest.raises(ValueError, match=r"because they have the filter delta; only the library"):
        _check(tmp_path, contents, mode="posix")


def test_codecs_that_the_library_does_not_know_are_named(tmp_path: Path) -> None:
    contents = _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    path = tmp_path / "data/a.zarr/zarr.json"
    fields = json.loads(path.read_text())
    fields["codecs"].append({"name": "pressure", "configuration": {}})
    path.write_text(json.dumps(fields))
    with pytest.raises(DlioError, match=r"zarr\.json.*pressure"):
        _check(tmp_path, contents, mode="framework")


def test_no_store_and_a_store_of_another_format_are_told(tmp_path: Path) -> None:
    contents = _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    (tmp_path / "data/b.zarr").mkdir()
    _check(tmp_path, contents)
    for glob in ("b.zarr", "c*", "a.zarr/c/0"):
        with pytest.raises(ConfigError, match="no Zarr store"):
            _check(tmp_path, contents, glob)
    with pytest.raises(ConfigError, match=r"this is a Zarr store; set -S dataset\.format=zarr"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("raw", "a.zarr"))


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"shape": [10**18, 9, 11]}, "2.63 bytes or more"),
        ({"shape": [10**9, 9, 11]}, "at most 100000000 samples"),
        ({"shape": [7]}, "array of 1 axes has chunks of 3"),
        ({"shape": [7, -9, 11]}, "shape is"),
        ({"shape": "many"}, "shape is many"),
        ({"data_type": "string"}, "have no fixed size"),
        ({"data_type": {"name": "numpy.struct"}}, "have no fixed size"),
        ({"chunk_grid": {"name": "rectangular"}}, "chunk grid 'rectangular'"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 1, 1]}}}, "hold nothing"),
        ({"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**6, 10**6, 1]}}}, "less than 2 GiB"),
        ({"chunk_key_encoding": {"name": "default", "configuration": {"separator": "/../"}}}, "separator"),
        ({"chunk_key_encoding": {"name": "fanout"}}, "chunk key encoding 'fanout'"),
        ({"codecs": None}, "a field is missing or not valid"),
        ({"storage_transformers": [{"name": "x"}]}, "storage transformers"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_hostile_metadata_are_named(tmp_path: Path, change: dict[str, Any], text: str) -> None:
    _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    path = tmp_path / "data/a.zarr/zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ConfigError, match=rf"{path}.*{text}"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr"))


@pytest.mark.parametrize("name", [".zarray", "zarr.json", ".zmetadata"])
def test_huge_and_damaged_metadata_are_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "data/a.zarr" / name
    path.parent.mkdir(parents=True)
    (path.parent / ".zgroup").touch()
    for content in (b"", b"[]", b"\xff\xfe", b'{"a":' * 10**5, b"nul"):
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=str(path)):
            existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr"))
    os.truncate(path, 1 << 30)
    with pytest.raises(ConfigError, match=r"1073741824 bytes; metadata of at most 16 MiB"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr"))


def test_a_store_that_changed_after_the_scan_is_named(tmp_path: Path) -> None:
    _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    for mode in ("posix", "framework"):
        made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr", mode=mode))
        path = tmp_path / "data/a.zarr/zarr.json"
        before = path.read_text()
        path.write_text(before.replace("int32", "int16"))
        with pytest.raises(InvalidRun, match=rf"{path} holds int16 .*expected int32"):
            stores.read(stores.opened(tmp_path / "data", made.dataset, mode), made.dataset, [0])
        path.write_text(before)


def _read_all(folder: Path, **keys: Any) -> None:
    made = existing.scanned(folder / "data", folder, existing.unscanned("zarr", "*.zarr", **keys))
    stores.read(stores.opened(folder / "data", made.dataset, keys.get("mode", "posix")), made.dataset, [0, 1, 2])


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_a_chunk_that_is_lost_after_the_scan_is_named(tmp_path: Path, mode: str) -> None:
    """A chunk that was missing at the scan has the fill value."""
    _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr", mode=mode))
    assert made.dataset.scan is not None
    assert made.dataset.scan.gaps == 0
    lost = tmp_path / "data/a.zarr/c/1/0/0"
    lost.unlink()
    with pytest.raises(InvalidRun, match=f"{lost}.*existed when the dataset was scanned"):
        stores.read(stores.opened(tmp_path / "data", made.dataset, mode), made.dataset, [0, 2, 4])
    again = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr", mode=mode))
    assert again.dataset.scan is not None
    assert again.dataset.scan.gaps == 1
    stores.read(stores.opened(tmp_path / "data", again.dataset, mode), again.dataset, [0, 2, 4])


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("kind", ["folder", "pipe", "device"])
def test_what_is_no_file_in_the_place_of_a_chunk_is_named(tmp_path: Path, mode: str, kind: str) -> None:
    _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    path = tmp_path / "data/a.zarr/c/0/0/0"
    path.unlink()
    if kind == "folder":
        path.mkdir()
        (path / "x").touch()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(InvalidRun, match=f"{path}.*not a regular file"):
        _read_all(tmp_path, mode=mode)


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize(
    ("entry", "text"), [((16, 0), "chunk 0 has no bytes"), ((10**6, 8), "chunk 0 has 8 bytes at byte 1000000")]
)
def test_indexes_of_shards_that_cannot_be_true_are_named(
    tmp_path: Path, mode: str, entry: tuple[int, int], text: str
) -> None:
    _made(tmp_path / "data/a.zarr", _values("<i4", 1), chunks=(2, 3, 11), shards=(8, 9, 11), compressors=None)
    path = tmp_path / "data/a.zarr/c/0/0/0"
    content = path.read_bytes()
    entries = np.frombuffer(content[-(4 * 3 * 16 + 4) : -4], "<u8").reshape(-1, 2).tolist()
    path.write_bytes(content[: -(4 * 3 * 16 + 4)] + shards.packed([entry, *map(tuple, entries[1:])]))
    with pytest.raises(InvalidRun, match=f"{path}.*{text}"):
        _read_all(tmp_path, mode=mode)


def test_names_of_codecs_stay_on_one_line(tmp_path: Path) -> None:
    _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    path = tmp_path / "data/a.zarr/zarr.json"
    text = json.loads(path.read_text())
    text["codecs"].append({"name": "evil\n\x1b[31mGood: all is well"})
    path.write_text(json.dumps(text))
    with pytest.raises(ValueError, match=r"they have the codec evil\?\?\[31mGood: all is well"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr"))


def test_a_fill_value_that_is_no_value_is_named(tmp_path: Path) -> None:
    _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    path = tmp_path / "data/a.zarr/zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fill_value": []}))
    (tmp_path / "data/a.zarr/c/0/0/0").unlink()
    with pytest.raises(InvalidRun, match="the fill value of the array is not known"):
        _read_all(tmp_path)


def test_files_of_stores_do_not_stay_open(tmp_path: Path) -> None:
    _made(tmp_path / "data/a.zarr", _values("<i4", 1))
    with pytest.raises(ConfigError, match="keep_open=true has no effect"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr", keep_open=True))


def test_samples_in_too_many_chunks_are_refused(tmp_path: Path) -> None:
    zarr.create_array(tmp_path / "data/a.zarr", shape=(2, 400, 400), chunks=(1, 1, 1), dtype="u1")
    with pytest.raises(ConfigError, match="a sample is in 160000 chunks, but at most 100000"):
        existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr"))


def test_names_of_parts_are_found_again() -> None:
    names = PartNames(3, (3, 1, 4))
    assert [names.index(name) for name in names] == list(range(13))
    assert list(names)[:3] == ["zarr.json", "c.0.0.0", "c.0.0.1"]
    for wrong in ("", "c.0.0", "c.0.0.4", "c.0.1.0", "c.3.0.0", "c.00.0.0", "0.0.0", "c.0.0.0.", ".zarray", "c.-1.0.0"):
        assert wrong not in names
        with pytest.raises(ValueError, match=f"^{wrong}$"):
            names.index(wrong)


def test_metadata_say_what_a_chunk_and_a_shard_hold() -> None:
    fields = {
        "zarr_format": 2, "shape": [10, 20], "chunks": [3, 7], "dtype": ">f8", "compressor": {"id": "zstd"},
        "fill_value": "NaN", "order": "C", "filters": None, "dimension_separator": "/",
    }  # fmt: skip
    made = zarr_metadata.parsed(json.dumps(fields).encode(), ".zarray")
    assert (made.chunk_bytes, made.name((3, 2)), made.compressors, made.obstacle) == (168, "3/2", ("zstd",), "")
    assert made.fill == np.array(np.nan, ">f8").tobytes()
    made = zarr_metadata.parsed(json.dumps(fields | {"order": "F", "filters": [{"id": "x"}]}).encode(), ".zarray")
    assert made.obstacle == "they have the filter x, the order F"
