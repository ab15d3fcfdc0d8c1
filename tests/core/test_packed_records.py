"""TFRecord files with gzip or zlib: TensorFlow reads them, and each loader reads each sample once, in order."""

import gzip
import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base.errors import ConfigError, InvalidRun
from dlio_hpc.base.units import Size
from dlio_hpc.config import workload_rules
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.reader_keys import Reader, Shuffle
from dlio_hpc.config.workload import Workload, load
from dlio_hpc.core import content
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.formats import packed_records, tfrecord
from dlio_hpc.core.loaders.loader import Loader
from dlio_hpc.core.loaders.loader_choice import LOADERS, Inputs
from dlio_hpc.dataset import rank_shares
from dlio_hpc.dataset.inflate import Inflate
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.sample_order import Order
from tests.support import written

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

_COMPRESSIONS = ("gzip", "zlib")
_UNPACK: dict[str, Any] = {"gzip": gzip.decompress, "zlib": zlib.decompress}
_PACK: dict[str, Any] = {"gzip": partial(gzip.compress, mtime=0), "zlib": zlib.compress}
_SHUFFLES = [Shuffle(files, samples, 3) for files in (False, True) for samples in (False, True)]
_RANKS = 3


def _dataset(compression: Any, files: int = 5, per_file: int = 7, **keys: Any) -> Dataset:
    sample = Sample(bytes=Size(900), stdev=Size(200))
    return Dataset("tfrecord", files, per_file, sample, compression=compression, random_bits=4, **keys)


def _path(folder: Path, number: int) -> str:
    return str(folder / f"{number}")


def _write(folder: Path, dataset: Dataset) -> None:
    for number in range(dataset.files):
        written.write(_path(folder, number), dataset, number)


def _samples(dataset: Dataset) -> list[bytes]:
    samples = []
    for place in SampleLayout(dataset).of(np.arange(dataset.samples, dtype=np.uint64)):
        row = np.zeros(place.size, np.uint8)
        content.fill(row, place.position, compressibility(dataset))
        samples.append(row.tobytes())
    return samples


def _open(made: Workload, folder: Path, steps: int) -> Loader:
    return LOADERS[made.reader.loader](Inputs(made, partial(_path, folder), steps, whole=True))


@pytest.mark.parametrize("compression", _COMPRESSIONS)
@pytest.mark.parametrize("level", [0, None, 9])
def test_tensorflow_reads_our_files(tmp_path: Path, compression: str, level: int | None) -> None:
    tf = pytest.importorskip("tensorflow")
    dataset = _dataset(compression, level=level)
    _write(tmp_path, dataset)
    paths = [_path(tmp_path, number) for number in range(dataset.files)]
    records = tf.data.TFRecordDataset(paths, compression.upper())
    assert [record.numpy() for record in records] == _samples(dataset)


@pytest.mark.parametrize("compression", _COMPRESSIONS)
def test_files_begin_and_end_as_tensorflow_writes_them(tmp_path: Path, compression: str) -> None:
    tf = pytest.importorskip("tensorflow")
    dataset = _dataset(compression, files=1)
    _write(tmp_path, dataset)
    ours, theirs = Path(_path(tmp_path, 0)).read_bytes(), tmp_path / "theirs"
    with tf.io.TFRecordWriter(str(theirs), tf.io.TFRecordOptions(compression.upper())) as writer:
        for sample in _samples(dataset):
            writer.write(sample)
    unpack = _UNPACK[compression]
    assert unpack(ours) == unpack(theirs.read_bytes())
    head = 10 if compression == "gzip" else 2
    assert ours[:head] == theirs.read_bytes()[:head]


@pytest.mark.parametrize("shuffle", _SHUFFLES, ids=lambda s: f"files={s.files},samples={s.samples}")
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("files", [5, 1])
def test_each_sample_once_in_the_same_order(
    tmp_path: Path, loader: Any, mode: Any, threads: int, shuffle: Shuffle, files: int
) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    dataset = _dataset("gzip" if files == 5 else "zlib", files, 35 // files)
    interleave = 1 if loader == "pytorch" and shuffle.samples else None
    keys = Reader(loader, mode, batch_size=4, read_threads=threads, shuffle=shuffle, interleave=interleave)
    keys = structs.replace(keys, transfer_size=Size(600))
    if mode == "framework" and shuffle.files and shuffle.samples:
        with pytest.raises(ValueError, match="the samples of all files cannot be mixed"):
            workload_rules.check(dataset, keys)
        return
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    order, samples = Order(dataset, keys, 0, ranks=_RANKS), _samples(dataset)
    steps = rank_shares.steps_per_epoch(made, _RANKS)
    numbers = []
    for rank in range(_RANKS):
        first, last = rank_shares.positions(made, _RANKS, rank, 1)
        opened, compare = _open(made, tmp_path, steps), Verification(made, partial(_path, tmp_path))
        for batch in opened.epoch(order, first, last, steps):
            for place, row in zip(batch.places, batch.rows, strict=True):
                assert row[: place.size].tobytes() == samples[place.sample]
                numbers.append(place.sample)
            compare(batch)
        compare.finish()
        opened.close()
    assert sorted(numbers) == list(range(35))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("reader.mode=framework",), "the samples of all files cannot be mixed; set shuffle.files or shuffle.samples"),
        (
            ("reader.mode=framework", "reader.shuffle.files=false", "reader.loader=pytorch"),
            "each worker of PyTorch would decompress a whole file for each sample; set reader.interleave=1",
        ),
        (("reader.interleave=2", "reader.shuffle.samples=false"), "loading a whole file; leave interleave null"),
        (("reader.direct=true",), "no chunk, no compression"),
        (("reader.engine=io_uring",), "no chunk, no compression"),
        (("dataset.compression=lzf",), "compression=lzf: tfrecord files take gzip or zlib; lzf is for hdf5 only"),
        (("dataset.format=npz",), "compression=zlib: npz files take gzip; zlib is for tfrecord or zarr"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load("demo", ("dataset.format=tfrecord", "dataset.compression=zlib", *keys))
    assert message in str(raised.value)


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("compression", _COMPRESSIONS)
def test_requests_are_those_of_tensorflow(tmp_path: Path, compression: str, mode: Any) -> None:
    """Blocks of the transfer size, and one request that finds the end."""
    dataset = _dataset(compression, files=1, per_file=40)
    _write(tmp_path, dataset)
    size = Path(_path(tmp_path, 0)).stat().st_size
    made = Workload("w", dataset, reader=Reader(mode=mode, batch_size=8, transfer_size=Size(1000), prefetch=0))
    opened = _open(made, tmp_path, 5)
    tallies = [batch.tally for batch in opened.epoch(Order(dataset, made.reader, 0), 0, 40, 5)]
    opened.close()
    sizes = [one for tally in tallies for one in tally.sizes]
    assert sizes == [1000] * (size // 1000) + [size % 1000, 0]
    assert sum(tally.bytes_read + tally.overhead_bytes for tally in tallies) == size
    assert sum(tally.opens for tally in tallies) == 1


def _damages(whole: bytes, records: bytes, compression: str) -> Iterator[tuple[bytes, str]]:
    """Yield the bytes of damaged files, and what the messages about them must have."""
    pack = _PACK[compression]
    yield whole[:-30], f"the file ends at byte {len(whole) - 30}, before the end of its compressed stream"
    yield whole[:-2], f"the file ends at byte {len(whole) - 2}"
    yield whole[:-1] + bytes([whole[-1] ^ 1]), "incorrect "
    yield b"\0" + whole[1:], "between byte 0 and byte "
    yield records, "between byte 0 and byte "
    yield pack(records[:-5]), "its records end at byte "
    yield pack(records + bytes(300_000)), f"it holds more than {len(records)} bytes"
    if compression == "zlib":
        yield whole + b"!!", f"bytes follow at byte {len(whole)}, where its zlib stream ends"


@pytest.mark.parametrize("mode", ["posix", "framework"])
@pytest.mark.parametrize("compression", _COMPRESSIONS)
def test_damages_are_named_by_file_and_offset(tmp_path: Path, compression: str, mode: Any) -> None:
    dataset = _dataset(compression, files=1)
    _write(tmp_path, dataset)
    path = Path(_path(tmp_path, 0))
    whole = path.read_bytes()
    made = Workload("w", dataset, reader=Reader(mode=mode, batch_size=7, prefetch=0))
    for damaged, message in _damages(whole, _UNPACK[compression](whole), compression):
        path.write_bytes(damaged)
        opened = _open(made, tmp_path, 1)
        with pytest.raises(InvalidRun) as raised:
            list(opened.epoch(Order(dataset, made.reader, 0), 0, 7, 1))
        opened.close()
        assert str(path) in str(raised.value)
        assert message in str(raised.value)


@pytest.mark.parametrize("compression", _COMPRESSIONS)
def test_verification_names_the_byte_and_the_sample(tmp_path: Path, compression: str) -> None:
    dataset = _dataset(compression, files=1)
    _write(tmp_path, dataset)
    path = Path(_path(tmp_path, 0))
    whole = path.read_bytes()
    records = _UNPACK[compression](whole)
    pack = _PACK[compression]
    head = bytes.fromhex("1f8b0800000000000003")
    for damaged, message in (
        (pack(records[:-1] + b"\0"), f"byte {len(records) - 1} of its decompressed records differs"),
        (
            pack(b"\0" + records[1:]),
            "byte 0 of its decompressed records differs from the generated contents (sample 0",
        ),
        (pack(records + b"\0"), f"holds more than {len(records)} bytes of records"),
        (records, "does not begin with the header of a"),
        (whole[:-9], "the file ends at byte"),
    ):
        path.write_bytes(head + damaged[10:] if damaged[:2] == b"\x1f\x8b" else damaged)
        assert message in (tfrecord.fault(str(path), dataset, 0, quick=False) or "")
    path.write_bytes(whole)
    assert tfrecord.fault(str(path), dataset, 0, quick=False) is None
    assert tfrecord.fault(str(path), dataset, 0, quick=True) is None


@pytest.mark.parametrize("compression", _COMPRESSIONS)
def test_each_flipped_byte_is_found(tmp_path: Path, compression: str) -> None:
    dataset = _dataset(compression, files=1, per_file=3)
    _write(tmp_path, dataset)
    path = Path(_path(tmp_path, 0))
    whole = path.read_bytes()
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
        assert tfrecord.fault(str(path), dataset, 0, quick=False), f"byte {at}"


def test_a_damaged_record_in_a_sound_stream_is_named(tmp_path: Path) -> None:
    dataset = _dataset("gzip", files=1)
    _write(tmp_path, dataset)
    path = Path(_path(tmp_path, 0))
    records = bytearray(gzip.decompress(path.read_bytes()))
    records[20] ^= 1
    path.write_bytes(gzip.compress(records))
    made = Workload("w", dataset, reader=Reader(mode="framework", batch_size=7, prefetch=0))
    opened = _open(made, tmp_path, 1)
    with pytest.raises(InvalidRun, match="the stored checksum of sample 0 at byte 12 is"):
        list(opened.epoch(Order(dataset, made.reader, 0), 0, 7, 1))
    opened.close()


def test_a_bomb_needs_no_memory(tmp_path: Path) -> None:
    """A record of 1 GiB in 1 MiB is not decompressed beyond the records that are expected."""
    dataset = _dataset("gzip", files=1)
    path = Path(_path(tmp_path, 0))
    deflate = zlib.compressobj(9, zlib.DEFLATED, 31)
    parts = [deflate.compress(struct.pack("<Q", 1 << 30) + bytes(4))]
    parts += [deflate.compress(bytes(1 << 20)) for _ in range(1 << 10)]
    path.write_bytes(b"".join([*parts, deflate.flush()]))
    made = Workload("w", dataset, reader=Reader(batch_size=7, prefetch=0, verify=True))
    for mode in ("posix", "framework"):
        made = structs.replace(made, reader=structs.replace(made.reader, mode=mode))
        opened = _open(made, tmp_path, 1)
        tracemalloc.start()
        with pytest.raises(InvalidRun, match=str(path)):
            list(opened.epoch(Order(dataset, made.reader, 0), 0, 7, 1))
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        opened.close()
        assert most < 8 << 20


def test_streams_take_less_memory_than_a_batch(tmp_path: Path) -> None:
    sample = Sample(bytes=Size(1 << 20))
    dataset = Dataset("tfrecord", 2, 12, sample, compression="gzip", random_bits=8, level=1)
    _write(tmp_path, dataset)
    made = Workload("w", dataset, reader=Reader(mode="framework", batch_size=4, prefetch=0))
    opened = _open(made, tmp_path, 6)
    tracemalloc.start()
    for _ in opened.epoch(Order(dataset, made.reader, 0), 0, 24, 6):
        pass
    _, most = tracemalloc.get_traced_memory()  # without the batch itself
    tracemalloc.stop()
    opened.close()
    assert most < 2 << 20


def test_members_of_a_gzip_file_follow_each_other() -> None:
    """Tools that compress in parallel write such files, and TensorFlow reads them."""
    data = gzip.compress(b"abc" * 100_000) + gzip.compress(b"") + gzip.compress(b"x")
    for size in (1, 7, 1 << 20):
        parts = iter([data[at : at + size] for at in range(0, len(data), size)])
        inflate = Inflate("gzip", lambda parts=parts: next(parts, b""))  # type: ignore[misc]
        pieces = list(iter(inflate.piece, b""))
        assert b"".join(pieces) == b"abc" * 100_000 + b"x"
        assert inflate.members == 3


def test_a_reader_keeps_few_files_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of PyTorch leaves files before their ends, because other workers read the rest."""
    monkeypatch.setattr(packed_records, "_MOST_OPEN", 2)
    dataset = _dataset("gzip", 7, 5)
    _write(tmp_path, dataset)
    made = Workload("w", dataset, reader=Reader("pytorch", "framework", batch_size=2, read_threads=2, interleave=1))
    opened = _open(made, tmp_path, 18)
    order = Order(dataset, made.reader, 0)
    numbers = [n for batch in opened.epoch(order, 0, 35, 18) for n in batch.places.sample.tolist()]
    opened.close()
    assert numbers == list(range(35))
