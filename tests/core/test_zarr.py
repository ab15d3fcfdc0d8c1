"""Zarr stores: zarr-python reads what is written, samples arrive whole in every mode, and damage is named."""

import json
import os
import resource
import struct
import zlib
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_hpc.base.errors import InfrastructureError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.core import content
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.formats.zarr import codecs, shards
from dlio_hpc.core.formats.zarr.generated import metadata_of
from dlio_hpc.dataset import stored_parts
from dlio_hpc.dataset.sample_layout import SampleLayout
from tests.support import stores
from tests.support.stores import FILES, PER_FILE

zarr = pytest.importorskip("zarr")

_CHUNKS: list[tuple[tuple[int, ...] | None, tuple[int, ...] | None]] = [
    (None, None),
    ((1, 30, 7), None),
    ((1, 8, 3), None),
    ((2, 11, 7), None),
    ((5, 30, 4), None),
    ((1, 8, 3), (2, 16, 6)),
    ((2, 10, 7), (4, 30, 7)),
    ((1, 1, 1), (5, 40, 7)),
]
_TYPES: tuple[Any, ...] = ("uint8", "float16", "int32", "int64", "float64")
_STORED = [
    stores.dataset(chunk, shard, version, compression=packing, random_bits=4)
    for (chunk, shard), version, packing in product(_CHUNKS, (2, 3), ("none", "gzip", "zstd", "blosc"))
    if not (shard and version == 2)
]
_STORED += [
    stores.dataset((2, 11, 7), version=2, compression="zlib", random_bits=3),
    stores.dataset(sample=Sample(bytes=Size(1000))),
    stores.dataset((2, 300), version=2, sample=Sample(bytes=Size(1000))),
    *(
        stores.dataset((1, 8, 3, 2), version=version, sample=Sample(shape=(9, 4, 3), dtype=dtype))
        for dtype in _TYPES
        for version in (2, 3)
    ),
]


def _name(made: Dataset) -> str:
    parts = (made.chunk_shape, made.zarr_keys.shard, made.zarr_keys.version, made.compression, made.sample.array_dtype)
    return "-".join(str(part).replace(" ", "") for part in parts)


def _expected(made: Dataset, samples: list[int]) -> list[bytes]:
    rows = []
    for place in SampleLayout(made).of(np.array(samples, np.uint64)):
        row = np.empty(place.size, np.uint8)
        content.fill(row, place.position, compressibility(made))
        rows.append(row.tobytes())
    return rows


@pytest.mark.parametrize("made", _STORED, ids=_name)
def test_samples_arrive_whole_and_zarr_python_reads_them(tmp_path: Path, made: Dataset) -> None:
    stores.write(tmp_path, made)
    for mode in ("posix", "framework"):
        reader = stores.opened(tmp_path, made, mode)
        for samples in ([0], [9, 0, 4], list(range(made.samples)), [3, 3], []):
            assert stores.read(reader, made, samples)[0] == _expected(made, samples)
        reader.close()
    for number in range(FILES):
        array = zarr.open(tmp_path / f"{number:08}.zarr", mode="r")
        assert array.shape == made.array_shape
        assert array.dtype == made.sample.array_dtype
        assert array[:].tobytes() == b"".join(_expected(made, list(range(number * PER_FILE, (number + 1) * PER_FILE))))
        assert array.metadata.zarr_format == made.zarr_keys.version


@pytest.mark.parametrize("made", _STORED, ids=_name)
def test_files_of_a_store_have_no_fault(tmp_path: Path, made: Dataset) -> None:
    stores.write(tmp_path, made)
    written = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert len(written) == stored_parts.total(made)
    for number, quick in product(range(stored_parts.total(made)), (False, True)):
        assert stores.fault(tmp_path, made, number, quick) is None


def test_the_requests_are_those_of_chunks(tmp_path: Path) -> None:
    """A sample of 30 x 7 values of two bytes lies in 4 x 3 chunks of 8 x 3 values."""
    made = stores.dataset((1, 8, 3))
    stores.write(tmp_path, made)
    size = (tmp_path / "00000000.zarr/zarr.json").stat().st_size
    _, tally = stores.read(stores.opened(tmp_path, made, "posix"), made, [0, 1])
    assert (tally.requests, tally.opens, tally.bytes_read, tally.overhead_bytes) == (25, 25, 24 * 48, size)
    _, tally = stores.read(stores.opened(tmp_path, made, "framework"), made, [0, 1])
    assert (tally.requests, tally.opens, tally.bytes_read) == (50, 25, 24 * 48 + size)


def test_the_requests_are_those_of_the_transfer_size(tmp_path: Path) -> None:
    made = stores.dataset()
    stores.write(tmp_path, made)
    _, tally = stores.read(stores.opened(tmp_path, made, "posix", 100), made, [7])
    assert tally.bytes_read == 420
    assert tally.sizes[-5:] == [100, 100, 100, 100, 20]


def test_chunks_of_shards_are_read_at_their_offsets(tmp_path: Path) -> None:
    """The index is read once for each shard: a sample lies in 2 x 2 shards with 2 x 2 of its chunks, or fewer."""
    made = stores.dataset((1, 8, 3), (2, 16, 6))
    stores.write(tmp_path, made)
    reader = stores.opened(tmp_path, made, "posix")
    _, first = stores.read(reader, made, [0])
    _, second = stores.read(reader, made, [1])
    assert (first.requests, first.opens, first.bytes_read) == (1 + 4 + 12, 1 + 4, 12 * 48)
    assert (second.requests, second.opens, second.bytes_read, second.overhead_bytes) == (12, 4, 12 * 48, 0)


def test_a_chunk_of_several_samples_is_read_once(tmp_path: Path) -> None:
    made = stores.dataset((5, 30, 7), compression="zstd", random_bits=2)
    stores.write(tmp_path, made)
    _, tally = stores.read(stores.opened(tmp_path, made, "posix"), made, list(range(PER_FILE)))
    assert tally.opens == 2


_WAYS = [
    (stores.dataset(chunk, shard, version, compression=packing, random_bits=4), mode)
    for (chunk, shard), version, packing, mode in product(
        (((1, 8, 7), None), ((1, 8, 7), (1, 32, 7))), (2, 3), ("none", "zstd", "blosc"), ("posix", "framework")
    )
    if not (shard and version == 2)
]


@pytest.fixture(params=_WAYS, ids=lambda way: f"{_name(way[0])}-{way[1]}")
def way(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Dataset, str]:
    made: tuple[Dataset, str] = request.param
    stores.write(tmp_path, made[0])
    return made


def _last(folder: Path, made: Dataset) -> Path:
    """Return the path of the file with the last chunk of the first sample of the second store."""
    at = "0.0.0" if made.zarr_keys.shard else "0.3.0"
    return folder / "00000001.zarr" / f"{'' if made.zarr_keys.version == 2 else 'c.'}{at}"


def _refused(folder: Path, way: tuple[Dataset, str]) -> str:
    with pytest.raises(InvalidRun) as told:
        stores.read(stores.opened(folder, *way), way[0], [PER_FILE])
    return str(told.value)


def test_missing_chunks_and_metadata_are_named(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _last(tmp_path, way[0])
    path.unlink()
    assert str(path) in _refused(tmp_path, way)
    (metadata,) = [file for file in path.parent.iterdir() if file.name in {".zarray", "zarr.json"}]
    metadata.unlink()
    assert str(path.parent) in _refused(tmp_path, way)


def test_cut_chunks_are_named(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _last(tmp_path, way[0])
    size = path.stat().st_size
    for left in (size - 1, size // 2, 3, 0):
        os.truncate(path, left)
        assert str(path) in _refused(tmp_path, way)
        number = stored_parts.of(way[0]).names.index(path.name) + stored_parts.of(way[0]).number
        assert stores.fault(tmp_path, way[0], number, quick=True) is not None


def test_long_chunks_are_named(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _last(tmp_path, way[0])
    os.truncate(path, 1 << 30)
    assert str(path) in _refused(tmp_path, way)


def test_foreign_chunks_and_metadata_are_named(tmp_path: Path, way: tuple[Dataset, str]) -> None:
    path = _last(tmp_path, way[0])
    content_before = path.read_bytes()
    if way[0].compression != "none" or way[0].zarr_keys.shard:  # others are told by their contents
        path.write_bytes(b"\x17foreign" * 12)
        assert str(path) in _refused(tmp_path, way)
    path.write_bytes(content_before)
    metadata = path.parent / stored_parts.of(way[0]).names[0]
    for wrong in (b"", b"\0\xff", b"[1]", b"{}", b"[" * 100_000, b'{"zarr_format": 9}'):
        metadata.write_bytes(wrong)
        assert str(metadata) in _refused(tmp_path, way)
    metadata.write_bytes(b" " * 10)
    os.truncate(metadata, 1 << 30)
    assert f"{metadata} is not" in _refused(tmp_path, way)


def test_a_chunk_of_another_place_is_found(tmp_path: Path) -> None:
    made = stores.dataset((1, 8, 7))
    stores.write(tmp_path, made)
    folder = tmp_path / "00000000.zarr"
    (folder / "c.1.0.0").rename(folder / "c.2.1.0")
    (folder / "c.2.0.0").rename(folder / "c.1.0.0")
    numbers = {name: stored_parts.of(made).names.index(name) for name in ("c.1.0.0", "c.2.1.0")}
    assert stores.fault(tmp_path, made, numbers["c.1.0.0"]) == "byte 0 differs from the generated contents (sample 1)"
    assert stores.fault(tmp_path, made, numbers["c.2.1.0"]) == "byte 0 differs from the generated contents (sample 2)"


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("version", [2, 3])
def test_chunks_that_claim_to_be_huge_are_named(tmp_path: Path, mode: str, version: int) -> None:
    """Two frames of zstd: 1 GiB of zeros takes few bytes, and a header may claim 2^50 bytes."""
    made = stores.dataset((1, 8, 7), version=version, compression="zstd")
    stores.write(tmp_path, made)
    path = _last(tmp_path, made)
    small = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    huge = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 50) + b"\x01\x00\x00"
    for bomb in (small, huge):
        path.write_bytes(bomb)
        text = _refused(tmp_path, (made, mode))
        assert str(path) in text
        assert str((1 << 20) if bomb is small else 1 << 50) in text


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_a_chunk_of_many_zeros_takes_no_memory(tmp_path: Path, mode: str) -> None:
    """A gzip file of 1 MiB holds 1 GiB of zeros."""
    made = stores.dataset((1, 800, 700), compression="gzip", sample=Sample(shape=(800, 700), dtype="int16"))
    stores.write(tmp_path, made)
    path = tmp_path / "00000001.zarr/c.0.0.0"
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    path.write_bytes(b"".join(deflate.compress(bytes(1 << 20)) for _ in range(1024)) + deflate.flush())
    assert path.stat().st_size < codecs.largest(metadata_of(made))
    reader = stores.opened(tmp_path, made, mode)
    stores.read(reader, made, [0])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidRun, match=str(path)):
        stores.read(reader, made, [PER_FILE])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000


@pytest.mark.parametrize("mode", ["posix", "framework"])
def test_an_index_that_points_outside_is_named(tmp_path: Path, mode: str) -> None:
    import google_crc32c

    made = stores.dataset((1, 8, 7), (1, 32, 7))
    stores.write(tmp_path, made)
    path, metadata = _last(tmp_path, made), metadata_of(made)
    data = path.read_bytes()
    for entry in ((1 << 40, 112), (0, 1 << 62), (len(data), 112), (2**64 - 1, 112)):
        index = struct.pack("<QQ", *entry) + data[-metadata.index_bytes + 16 : -4]
        crc = google_crc32c.value(index).to_bytes(4, "little")
        path.write_bytes(data[: -metadata.index_bytes] + index + crc)
        assert str(path) in _refused(tmp_path, (made, mode))


_DAMAGED = [
    stores.dataset((1, 8, 7), version=2),
    stores.dataset((2, 16, 7)),
    stores.dataset((1, 8, 7), (1, 32, 7)),
]


@pytest.mark.parametrize("made", _DAMAGED, ids=_name)
@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_flipped_byte_is_found(tmp_path_factory: pytest.TempPathFactory, made: Dataset, data: Any) -> None:
    folder = tmp_path_factory.mktemp("flipped")
    stores.write(folder, made)
    number = data.draw(st.integers(0, stored_parts.total(made) - 1))
    container, part = divmod(number, stored_parts.of(made).number)
    path = folder / f"{container:08}.zarr" / stored_parts.of(made).names[part]
    content_before = bytearray(path.read_bytes())
    content_before[data.draw(st.integers(0, len(content_before) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content_before)
    assert stores.fault(folder, made, number) is not None


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("packing", ["gzip", "zstd", "blosc"])
@settings(deadline=None, max_examples=25)
@given(at=st.integers(0, 200), value=st.integers(1, 255))
def test_damage_in_a_compressed_chunk_is_told_in_words_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, packing: Any, mode: str, at: int, value: int
) -> None:
    folder, made = tmp_path_factory.mktemp("damaged"), stores.dataset((1, 8, 7), compression=packing, random_bits=4)
    stores.write(folder, made)
    path = _last(folder, made)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= value
    path.write_bytes(data)
    message = ""
    try:
        stores.read(stores.opened(folder, made, mode), made, [PER_FILE])
    except InvalidRun as fault:
        message = str(fault)
    assert not message or str(path) in message


def test_a_chunk_that_cannot_be_read_is_told_with_its_offset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> int:
        raise OSError(5, os.strerror(5))

    made = stores.dataset((1, 8, 7), (1, 32, 7))
    stores.write(tmp_path, made)
    reader = stores.opened(tmp_path, made, "posix")
    stores.read(reader, made, [5])
    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(InfrastructureError, match=f"cannot read {tmp_path}/00000001.zarr/c.0.0.0 at byte 0: Input"):
        stores.read(reader, made, [5])


def test_metadata_of_another_array_are_told_from_ours(tmp_path: Path) -> None:
    made = stores.dataset((1, 8, 7))
    stores.write(tmp_path, made)
    path = tmp_path / "00000001.zarr/zarr.json"
    fields = json.loads(path.read_text())
    fields["chunk_grid"]["configuration"]["chunk_shape"] = [1, 8, 8]
    path.write_text(json.dumps(fields))
    for mode in ("posix", "framework"):
        assert "in chunks of (1, 8, 8), compression none, expected" in _refused(tmp_path, (made, mode))


def test_decoders_stop_at_the_size_of_a_chunk() -> None:
    metadata = metadata_of(stores.dataset((1, 8, 7), compression="gzip"))
    import gzip

    with pytest.raises(ValueError, match="decodes to more than"):
        codecs.decode(gzip.compress(bytes(10 << 20)), metadata)
    with pytest.raises(ValueError, match="more follow"):
        codecs.decode(gzip.compress(bytes(metadata.chunk_bytes)) + b"more", metadata)


def test_an_index_names_what_lies_outside() -> None:
    metadata = metadata_of(stores.dataset((1, 8, 7), (1, 16, 7)))
    with pytest.raises(ValueError, match=r"chunk 1 has 9 bytes at byte 100, outside"):
        shards.parsed(shards.packed([(0, 9), (100, 9)]), metadata, 108)
    index = shards.parsed(shards.packed([(0, 9), (shards.MISSING, shards.MISSING)]), metadata, 9)
    assert index.reshape(-1, 2).tolist() == [[0, 9], [shards.MISSING, shards.MISSING]]
