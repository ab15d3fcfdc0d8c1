"""The same workload gives the same samples in the same order through each loader, each sample exactly once an epoch."""

import errno
import multiprocessing
import multiprocessing.reduction
import multiprocessing.resource_sharer
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from msgspec import structs

from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.base.units import Seconds, Size
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.config.format_facts import FORMATS
from dlio_hpc.config.reader_keys import Reader, Shuffle, deals_files
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import buffers, content
from dlio_hpc.core.clock import now
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Rows
from dlio_hpc.core.content_check import Verification
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders import pytorch_workers
from dlio_hpc.core.loaders.loader import Batch, Loader
from dlio_hpc.core.loaders.loader_choice import LOADERS, Inputs
from dlio_hpc.core.loaders.memory import MemoryLoader
from dlio_hpc.dataset import dataset_folder, rank_shares, stored_parts
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.sample_layout import Places, SampleLayout
from dlio_hpc.dataset.sample_order import Order
from tests.support import written
from tests.support.places import ROOT

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",  # of the frameworks themselves
    "ignore::UserWarning",
)

_SHUFFLES = [Shuffle(files, samples, 3) for files in (False, True) for samples in (False, True)]
_LAYOUTS: list[dict[str, Any]] = [
    {"files": 5, "samples_per_file": 7},
    {"files": 1, "samples_per_file": 35, "file_access": "shared"},
]
_MODES = ("posix", "framework")
_FORMATS: list[tuple[str, str]] = [
    (kind, m)
    for kind in ("tfrecord", "hdf5", "npz", "npy", "csv", "tar", "indexed", "zarr")
    for m in ("posix", "framework")
]
# Formats with tests of their own.
_APART = ("raw", "parquet", "jpeg", "png", "null")
_RANKS = 3


def test_each_format_goes_through_each_loader() -> None:
    lacking = sorted({*FORMATS} - {kind for kind, _ in _FORMATS} - {*_APART})
    assert not lacking, f"add to _FORMATS: {lacking}"


@pytest.fixture(autouse=True)
def _frameworks(request: pytest.FixtureRequest) -> None:
    """TensorFlow supports new versions of Python late, and zarr-python 3 no old ones."""
    callspec = getattr(request.node, "callspec", None)
    if callspec is not None and callspec.params.get("loader") == "tensorflow":
        pytest.importorskip("tensorflow")
    params = {} if callspec is None else callspec.params
    if ("zarr", "framework") in (params.get("way"), (params.get("kind"), params.get("mode"))):
        pytest.importorskip("zarr")


def _path(folder: Path, number: int) -> str:
    return str(folder / str(number))


def _paths(folder: Path, dataset: Dataset) -> Callable[[int], str]:
    """Return the function from the number of a stored file to its path. Files of a store have their own names."""
    if dataset.facts.is_store:
        return dataset_folder.paths(StoredDataset(str(folder), dataset, ""))
    return partial(_path, folder)


def _containers(folder: Path, dataset: Dataset) -> Callable[[int], str]:
    """Return the function from the number of a container to the path that messages have."""
    if dataset.facts.is_store:
        return dataset_folder.containers(StoredDataset(str(folder), dataset, ""))
    return lambda number: _path(folder, written.first_part(dataset, number))


def _open(made: Workload, folder: Path, steps: int) -> Loader:
    return LOADERS[made.reader.loader](Inputs(made, _paths(folder, made.dataset), steps, whole=True))


def _write(folder: Path, dataset: Dataset) -> None:
    path = _paths(folder, dataset)
    for number in range(stored_parts.total(dataset)):
        written.write(path(number), dataset, number)


def _contents(dataset: Dataset) -> dict[bytes, int]:
    """The number of each sample by its bytes."""
    numbers = {}
    for place in SampleLayout(dataset).of(np.arange(dataset.samples, dtype=np.uint64)):
        row = np.zeros(dataset.sample.largest, np.uint8)
        content.fill(row[: place.size], place.position, compressibility(dataset))
        if dataset.format == "csv":
            row = (row.view("<u4") % 10**7 / 10**7).astype("<f4").view(np.uint8)
        numbers[row[: place.size].tobytes()] = place.sample
    assert len(numbers) == dataset.samples
    return numbers


def _numbers(batches: Iterator[Batch], known: dict[bytes, int], sizes: dict[int, int]) -> list[list[int]]:
    """Return the samples of every batch, identified by their contents."""
    lengths = sorted(set(sizes.values()))
    by_batch = []
    for batch in batches:
        numbers = []
        for row in batch.rows:
            (number,) = (known[row[:n].tobytes()] for n in lengths if row[:n].tobytes() in known)
            numbers.append(number)
        assert batch.places.sample.tolist() == numbers
        by_batch.append(numbers)
    return by_batch


def _epoch(made: Workload, folder: Path, epoch: int = 0) -> list[list[list[int]]]:
    """Samples by rank and step."""
    known = _contents(made.dataset)
    places = SampleLayout(made.dataset).of(np.arange(made.dataset.samples, dtype=np.uint64))
    sizes = {place.sample: place.size for place in places}
    order = Order(made.dataset, made.reader, epoch, ranks=_RANKS)
    steps = rank_shares.steps_per_epoch(made, _RANKS)
    ranks = []
    for rank in range(_RANKS):
        opened = _open(made, folder, steps)
        batches = opened.epoch(order, *rank_shares.positions(made, _RANKS, rank, 1), steps)
        ranks.append(_numbers(batches, known, sizes))
        opened.close()
        assert not _descriptors(folder), "files are closed"
    return ranks


def _expected(made: Workload, epoch: int = 0) -> list[list[list[int]]]:
    order, size = Order(made.dataset, made.reader, epoch, ranks=_RANKS), made.reader.batch_size
    steps = rank_shares.steps_per_epoch(made, _RANKS)
    ranks = []
    for rank in range(_RANKS):
        first, last = rank_shares.positions(made, _RANKS, rank, 1)
        mine = order.samples(first, last).tolist()
        ranks.append([mine[step * size : (step + 1) * size] for step in range(steps)])
    return ranks


@pytest.mark.parametrize("shuffle", _SHUFFLES, ids=lambda s: f"files={s.files},samples={s.samples}")
@pytest.mark.parametrize("layout", _LAYOUTS, ids=lambda layout: layout.get("file_access", "multi"))
@pytest.mark.parametrize("way", _FORMATS, ids="-".join)
@pytest.mark.parametrize("loader", LOADERS)
def test_each_sample_once_in_the_same_order(
    tmp_path: Path, loader: Any, way: tuple[Any, Any], layout: dict[str, Any], shuffle: Shuffle
) -> None:
    kind, mode = way
    dataset = Dataset(kind, sample=Sample(shape=(9, 11), dtype="float32"), **layout)
    keys = Reader(loader=loader, mode=mode, batch_size=4, read_threads=2, shuffle=shuffle)
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    samples, expected = _epoch(made, tmp_path), _expected(made)
    if deals_files(dataset, keys):
        assert [sorted(chain(*rank)) for rank in samples] == [sorted(chain(*rank)) for rank in expected]
        assert [list(map(len, rank)) for rank in samples] == [list(map(len, rank)) for rank in expected]
    else:
        assert samples == expected
    assert sorted(number for rank in samples for batch in rank for number in batch) == list(range(35))


@pytest.mark.parametrize("is_shuffled", [False, True])
@pytest.mark.parametrize(("files", "workers"), [(6, 2), (7, 3), (2, 3), (5, 1)])
def test_workers_of_pytorch_read_whole_archives(tmp_path: Path, files: int, workers: int, is_shuffled: bool) -> None:
    """Batches go to the workers in turn. Until a worker has no full batch left, each batch is from its own archives,
    which it opens once.
    """
    dataset = Dataset("tar", files=files, samples_per_file=10, sample=Sample(bytes=Size(1536), stdev=Size(600)))
    shuffle = Shuffle(files=True, samples=False) if is_shuffled else Shuffle(files=False, samples=True)
    keys = Reader(loader="pytorch", mode="framework", batch_size=4, read_threads=workers, prefetch=6, shuffle=shuffle)
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    steps = -(-files * 10 // 4)
    opened = _open(made, tmp_path, steps)
    order = Order(dataset, keys, 1, ranks=1)
    batches = [
        (set(batch.places.file.tolist()), batch.places.sample.tolist(), len(batch.tally.opened))
        for batch in opened.epoch(order, 0, dataset.samples, steps)
    ]
    opened.close()
    assert sorted(chain(*(samples for _, samples, _ in batches))) == list(range(files * 10))
    dealt = list(dict.fromkeys(number // 10 for number in order.samples(0, dataset.samples).tolist()))
    own = [set(dealt[worker::workers]) for worker in range(workers)]
    full = min(len(part) for part in own) * 10 // 4 * workers
    assert all(held <= own[at % workers] for at, (held, _, _) in enumerate(batches[:full]))
    assert sum(opens for _, _, opens in batches[:full]) <= files
    assert len(batches) == steps


@pytest.mark.parametrize("size", [5, 150, 700])
@pytest.mark.parametrize(("kind", "mode"), [*_FORMATS, ("raw", "posix")])
@pytest.mark.parametrize("loader", [*LOADERS, "memory"])
def test_resized_samples_are_cut_or_padded(tmp_path: Path, loader: Any, kind: Any, mode: Any, size: int) -> None:
    has_one_size = kind in {"csv", "zarr"}
    sample = Sample(shape=(9, 11), dtype="float32") if has_one_size else Sample(bytes=Size(400), stdev=Size(120))
    dataset = Dataset(kind, files=3, samples_per_file=4, sample=sample)
    made = Workload(
        "w", dataset, reader=Reader(loader="native" if loader == "memory" else loader, mode=mode, batch_size=3)
    )
    smaller = structs.replace(made, reader=structs.replace(made.reader, resize=Size(size)))
    _write(tmp_path, dataset)
    batches: dict[Size | None, list[tuple[Places, Rows, int, int]]] = {}
    for workload in (made, smaller):
        opened = _open(workload, tmp_path, 4)
        if loader == "memory":
            opened = MemoryLoader(workload, opened, 4, 1)
        compare = Verification(workload, partial(_path, tmp_path))
        epoch = opened.epoch(Order(dataset, workload.reader, 0, ranks=1), 0, 12, 4)
        batches[workload.reader.resize] = [
            (batch.places, np.array(batch.rows), batch.tally.bytes_read, compare(batch)) for batch in epoch
        ]
        compare.finish()
        opened.close()
    assert len(batches[None]) == len(batches[Size(size)]) == 4
    for (places, whole, whole_bytes, _), (_, rows, resized_bytes, compared) in zip(*batches.values(), strict=True):
        assert rows.shape == (3, size)
        assert compared == 1
        if loader != "tensorflow" or kind != "tfrecord":  # TensorFlow reads ahead
            assert resized_bytes == whole_bytes, "the whole sample is read"
        for place, row, sample_row in zip(places, rows, whole, strict=True):
            kept = min(place.size, size)
            assert row[:kept].tobytes() == sample_row[:kept].tobytes()
            assert not row[kept:].any()


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("kind", ["npz", "tfrecord"])
def test_samples_that_are_compared_whole_are_not_resized(tmp_path: Path, loader: Any, kind: Any) -> None:
    dataset = Dataset(kind, files=1, samples_per_file=4, sample=Sample(bytes=Size(400)))
    mode: Literal["framework", "posix"] = "framework" if kind == "tfrecord" else "posix"
    keys = Reader(loader=loader, mode=mode, batch_size=4, resize=Size(8), verify_content="all")
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    opened, compare = _open(made, tmp_path, 1), Verification(made, partial(_path, tmp_path))
    compared = [compare(batch) for batch in opened.epoch(Order(dataset, made.reader, 0, ranks=1), 0, 4, 1)]
    opened.close()
    assert compared == [4]


def test_a_size_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="resize must be at least 1 byte"):
        Reader(resize=Size(0))


@pytest.mark.parametrize("shuffle", _SHUFFLES, ids=lambda s: f"files={s.files},samples={s.samples}")
@pytest.mark.parametrize(("kind", "per_file"), [("npz", 7), ("npz", 1), ("hdf5", 7), ("hdf5", 1)])
@pytest.mark.parametrize("mode", _MODES)
@pytest.mark.parametrize("loader", LOADERS)
def test_samples_of_several_arrays(
    tmp_path: Path, loader: Any, mode: Any, kind: Any, per_file: int, shuffle: Shuffle
) -> None:
    arrays = (Size(300), Size(92), Size(8))
    dataset = Dataset(kind, 35 // per_file, per_file, Sample(bytes=Size(400)), arrays=arrays)
    keys = Reader(loader=loader, mode=mode, batch_size=4, read_threads=2, shuffle=shuffle)
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    assert _epoch(made, tmp_path) == _expected(made)


def test_several_arrays_are_read_from_interleaved_files(tmp_path: Path) -> None:
    dataset = Dataset("hdf5", 5, 7, Sample(bytes=Size(400)), arrays=(Size(300), Size(100)))
    for mode in ("posix", "framework"):
        made = Workload("w", dataset, reader=Reader(mode=mode, batch_size=4, interleave=2))
        _write(tmp_path, dataset)
        assert _epoch(made, tmp_path) == _expected(made)


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("kind", "per_file"), [("tfrecord", 35), ("tfrecord", 7), ("tfrecord", 1), ("npz", 7), ("hdf5", 1)]
)
def test_samples_of_different_sizes(tmp_path: Path, loader: Any, kind: Any, per_file: int) -> None:
    dataset = Dataset(kind, 35 // per_file, per_file, Sample(bytes=Size(900), stdev=Size(200)))
    keys = Reader(loader=loader, mode="framework", batch_size=4, shuffle=Shuffle(files=True))
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    assert _epoch(made, tmp_path) == _expected(made)


@pytest.mark.parametrize("shuffle", [s for s in _SHUFFLES if not (s.files and s.samples)], ids=str)
@pytest.mark.parametrize(("files", "per_file"), [(5, 7), (6, 6), (12, 3), (2, 20)])
@pytest.mark.parametrize(
    ("loader", "turn", "threads"),
    [("native", 4, 3), ("native", None, 4), ("tensorflow", 4, 3), ("tensorflow", None, 4), ("pytorch", None, 4)],
)
def test_interleaved_files(
    tmp_path: Path, loader: Any, turn: int | None, threads: int, files: int, per_file: int, shuffle: Shuffle
) -> None:
    dataset = Dataset("tfrecord", files, per_file, Sample(bytes=Size(200)))
    keys = Reader(
        loader=loader, mode="framework", batch_size=3, interleave=turn, read_threads=threads, shuffle=shuffle
    )  # fmt: skip
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    samples = _epoch(made, tmp_path, 2)
    assert samples == _expected(made, 2)
    assert samples == _expected(structs.replace(made, reader=structs.replace(keys, interleave=4)), 2)
    shares = [{number // per_file for batch in rank for number in batch} for rank in samples]
    if files >= _RANKS:
        assert sum(map(len, shares)) == files, "no two ranks read the same file"


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_null_format_goes_through_every_loader(loader: Any, threads: int) -> None:
    """The null format gives the same samples in the same steps as storage, with no bytes and no file."""
    dataset = Dataset("null", 5, 7, Sample(bytes=Size(100)))
    keys = Reader(loader=loader, batch_size=4, read_threads=threads, shuffle=Shuffle(True, True, 1))
    made = Workload("w", dataset, reader=keys)
    steps = rank_shares.steps_per_epoch(made, _RANKS)
    for rank in range(_RANKS):
        first, last = rank_shares.positions(made, _RANKS, rank, 1)
        opened = _open(made, Path("/nowhere"), steps)
        batches = list(opened.epoch(Order(dataset, keys, 0), first, last, steps))
        opened.close()
        assert [len(batch.rows) for batch in batches] == [4, 4, last - first - 8]
        assert {batch.rows.shape[1] for batch in batches} == {100}
        assert sum(batch.tally.requests for batch in batches) == last - first
        assert sum(batch.tally.bytes_read + batch.tally.opens for batch in batches) == 0


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize(("format_", "mode"), [("npz", "posix"), ("hdf5", "framework"), ("raw", "posix")])
def test_files_stay_open_from_epoch_to_epoch(tmp_path: Path, format_: Any, mode: Any, keeps: bool) -> None:
    dataset = Dataset(format_, 3, 4, Sample(bytes=Size(100)))
    made = Workload("w", dataset, reader=Reader(mode=mode, prefetch=0, keep_open=keeps))
    _write(tmp_path, dataset)
    opened = _open(made, tmp_path, 12)
    opens = [
        sum(batch.tally.opens for batch in opened.epoch(Order(dataset, made.reader, epoch), 0, 12, 12))
        for epoch in range(3)
    ]
    assert opens == ([3, 0, 0] if keeps else [3, 3, 3])
    assert len(_descriptors(tmp_path)) == (3 if keeps else 0)
    opened.close()
    assert not _descriptors(tmp_path)


@pytest.mark.parametrize("loader", ["native", "pytorch"])
@pytest.mark.parametrize(
    ("format_", "mode", "arrays"),
    [
        ("npz", "posix", None), ("hdf5", "framework", None), ("hdf5", "framework", (30, 70)), ("raw", "posix", None),
        ("csv", "posix", None), ("tfrecord", "posix", None), ("hdf5", "posix", None),
    ],
)  # fmt: skip
def test_a_file_is_opened_again_for_each_sample(
    tmp_path: Path, format_: Any, mode: Any, arrays: Any, loader: Any
) -> None:
    sample = Sample(shape=(25,)) if format_ == "csv" else Sample(bytes=Size(100))
    dataset = Dataset(format_, 3, 4, sample, arrays=arrays)
    keys = Reader(loader, mode, batch_size=2, prefetch=0, reopen=True, shuffle=Shuffle(True, True, 1))
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    opened = _open(made, tmp_path, 6)
    batches = list(opened.epoch(Order(dataset, keys, 0), 0, 12, 6))
    lookups = int((format_, mode) == ("hdf5", "posix"))  # of where the data begin, which is the same in all files
    assert sum(batch.tally.opens for batch in batches) == 12 + lookups
    assert sorted(sample for batch in batches for sample in batch.places.sample.tolist()) == list(range(12))
    opened.close()
    assert not _descriptors(tmp_path)


def _descriptors(folder: Path) -> list[str]:
    """Return the open files of this process in a folder."""
    paths = []
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # another thread has closed it
            paths.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in paths if path.startswith(f"{folder}/")]


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    "keys", [{"prefetch": 0}, {"prefetch": 3}, {"drop_last": True}, {"reorder_tasks": True}, {"shard": False}]
)
def test_ahead_or_not_with_and_without_the_rest(tmp_path: Path, loader: Any, keys: dict[str, Any]) -> None:
    dataset = Dataset("npz", 5, 7, Sample(bytes=Size(100)))
    made = Workload("w", dataset, reader=Reader(loader=loader, batch_size=4, **keys))
    _write(tmp_path, dataset)
    samples = _epoch(made, tmp_path)
    assert samples == _expected(made)
    assert sum(len(batch) for rank in samples for batch in rank) == rank_shares.samples_per_epoch(made, _RANKS)


def test_pytorch_without_workers_reads_each_batch_into_the_same_aligned_memory(tmp_path: Path) -> None:
    dataset = Dataset("npz", 5, 2, Sample(bytes=Size(5000)))
    keys = Reader(loader="pytorch", batch_size=4, prefetch=0, shuffle=Shuffle())
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    known, opened = _contents(dataset), _open(made, tmp_path, 3)
    numbers, addresses = [], set()
    for batch in opened.epoch(Order(dataset, keys, 0), 0, 10, 3):
        numbers += [known[row.tobytes()] for row in batch.rows]
        addresses.add(batch.rows.ctypes.data)
    opened.close()
    assert numbers == list(range(10))  # the last batch is short
    assert len(addresses) == 1
    assert addresses.pop() % buffers.PAGE == 0


def test_pytorch_without_memory_for_a_batch_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = Dataset("npz", 2, 2, Sample(bytes=Size(100)))
    keys = Reader(loader="pytorch", batch_size=2, prefetch=0)
    _write(tmp_path, dataset)

    def allocate(samples: int, width: int) -> buffers.Buffer:
        raise MemoryError(f"{samples} x {width}")

    monkeypatch.setattr(buffers, "allocate", allocate)
    opened = _open(Workload("w", dataset, reader=keys), tmp_path, 2)
    with pytest.raises(InfrastructureError, match=r"no memory for a batch: 2 x 100; .*lower batch_size"):
        next(opened.epoch(Order(dataset, keys, 0), 0, 4, 2))
    opened.close()


def test_pytorch_workers_may_be_spawned(tmp_path: Path) -> None:
    dataset = Dataset("hdf5", 5, 7, Sample(bytes=Size(100)))
    keys = Reader(
        loader="pytorch", batch_size=16, read_threads=1, multiprocessing_context="spawn", shuffle=Shuffle(True, True)
    )
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    loader = _open(made, tmp_path, 3)
    got = _numbers(loader.epoch(Order(dataset, keys, 0), 0, 35, 3), _contents(dataset), {0: 100})
    assert [number for batch in got for number in batch] == Order(dataset, keys, 0).samples(0, 35).tolist()


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_reads_of_pytorchs_workers_reach_the_rank_on_its_own_clock(tmp_path: Path, context: Any) -> None:
    """The requests are those that the rank's own threads make."""
    dataset = Dataset("npz", 5, 7, Sample(bytes=Size(6000)))
    keys = Reader(batch_size=4, read_threads=2, transfer_size=Size(4096), shuffle=Shuffle(True, True))
    tallies = []
    _write(tmp_path, dataset)
    of_pytorch = structs.replace(keys, loader="pytorch", multiprocessing_context=context)
    for reader in (keys, of_pytorch):
        made = Workload("w", dataset, reader=reader)
        opened = _open(made, tmp_path, 9)
        total, begun = Tally(), now()
        for batch in opened.epoch(Order(dataset, keys, 0), 0, 35, 9):
            tally, arrived = batch.tally, now()
            assert sorted([begun, *tally.starts, *tally.ends, arrived]) == [
                begun, *(time for both in zip(tally.starts, tally.ends, strict=True) for time in both), arrived,
            ]  # fmt: skip
            assert all(begun < start < end < arrived for start, end in (*tally.opened, *tally.closed))
            total.merge(tally)
        opened.close()
        tallies.append((total.requests, total.bytes_read, total.overhead_bytes, total.sizes))
    assert tallies[0] == tallies[1]
    assert tallies[1][:2] == (70, 35 * 6000)


def test_workers_that_are_stopped_early_have_told_of_the_batches_in_use(tmp_path: Path) -> None:
    dataset = Dataset("npz", 5, 7, Sample(bytes=Size(100)))
    keys = Reader(loader="pytorch", batch_size=4, read_threads=2)
    _write(tmp_path, dataset)
    opened = _open(Workload("w", dataset, reader=keys), tmp_path, 9)
    batches: Any = opened.epoch(Order(dataset, keys, 0), 0, 35, 9)
    tallies = [next(batches).tally for _ in range(3)]
    assert len(multiprocessing.active_children()) == 2
    batches.close()
    opened.close()
    assert [(len(tally.starts), tally.bytes_read) for tally in tallies] == [(4, 400)] * 3
    assert multiprocessing.active_children() == []


def _through_workers(folder: Path, context: Any) -> Iterator[Batch]:
    """Return the batches of two workers of PyTorch, as in a process of their own: a rank ends with its first fault."""
    pytorch_workers._messages.cache_clear()
    dataset = Dataset("npz", 5, 7, Sample(bytes=Size(100)))
    keys = Reader(loader="pytorch", batch_size=4, read_threads=2, multiprocessing_context=context)
    _write(folder, dataset)
    return _open(Workload("w", dataset, reader=keys), folder, 9).epoch(Order(dataset, keys, 0), 0, 35, 9)


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_start_with_a_long_path_of_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str
) -> None:
    long = tmp_path / ("y" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    monkeypatch.setattr(tempfile, "tempdir", None)
    (tmp_path / "data").mkdir()
    assert sum(len(batch.rows) for batch in _through_workers(tmp_path / "data", context)) == 35
    assert (os.environ["TMPDIR"], tempfile.gettempdir()) == (str(long), str(long))
    assert list(long.iterdir()) == []


def _fails(*_: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize("place", ["feeder", "socket", "thread"])
def test_an_exception_in_a_thread_of_a_worker_ends_the_wait_for_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], place: str
) -> None:
    if place == "feeder":
        monkeypatch.setattr(multiprocessing.resource_sharer, "DupFd", _fails)
    elif place == "thread":
        monkeypatch.setattr(multiprocessing.resource_sharer._ResourceSharer, "_serve", _fails)  # type: ignore[attr-defined]
    else:
        monkeypatch.setattr(multiprocessing.reduction, "send_handle", _fails)
    batches = _through_workers(tmp_path, "fork")
    with pytest.raises(InfrastructureError, match=r"cannot deliver batches: OSError: \[Errno 24\] Too many open files"):
        list(batches)
    assert "Traceback" in capfd.readouterr().err, "the words of the worker are in job.err"


def test_an_exception_in_the_thread_of_requests_ends_the_wait_for_a_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pickler, rank = multiprocessing.reduction.ForkingPickler, os.getpid()
    dumps = pickler.dumps

    def fails_in_the_rank(value: Any, protocol: Any = None) -> Any:
        return _fails() if os.getpid() == rank and isinstance(value, tuple) else dumps(value, protocol)

    monkeypatch.setattr(pickler, "dumps", fails_in_the_rank)
    with pytest.raises(InfrastructureError, match=r"cannot deliver batches: OSError: \[Errno 24\]"):
        list(_through_workers(tmp_path, "fork"))
    assert "Traceback" in capfd.readouterr().err


def test_a_worker_that_is_killed_is_reported_wherever_the_rank_is(tmp_path: Path) -> None:
    batches = _through_workers(tmp_path, "fork")
    next(batches)
    victim = multiprocessing.active_children()[0]
    with pytest.raises(InfrastructureError, match="is killed by signal: Killed"):  # noqa: PT012 - the signal comes late
        os.kill(int(victim.pid or 0), signal.SIGKILL)
        time.sleep(5)
    with pytest.raises(InfrastructureError, match="DataLoader failed"):
        list(batches)


@pytest.mark.parametrize("loader", LOADERS)
def test_memory_holds_what_was_read_once(tmp_path: Path, loader: Any) -> None:
    dataset = Dataset("npz", 5, 7, Sample(bytes=Size(100)))
    keys = Reader(loader=loader, batch_size=4, load="memory", shuffle=Shuffle(True, True, 1))
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    known = _contents(dataset)
    kept = MemoryLoader(made, _open(made, tmp_path, 4), 4, 1)
    epochs, read = [], []
    for epoch in range(3):
        batches = list(kept.epoch(Order(dataset, keys, epoch), 0, 13, 4))
        read.append(sum(batch.tally.bytes_read for batch in batches))
        epochs.append([number for part in _numbers(iter(batches), known, {0: 100}) for number in part])
    kept.close()
    assert read == [1300, 0, 0]
    assert epochs[0] == Order(dataset, keys, 0).samples(0, 13).tolist()
    assert len({tuple(order) for order in epochs}) == 3, "a new order in every epoch"
    assert len({frozenset(order) for order in epochs}) == 1, "of the same samples"


def test_what_memory_does_not_hold_is_refused() -> None:
    made = Workload("w", Dataset("npz", 1 << 20, 1, Sample(bytes=Size(1 << 20))), reader=Reader(load="memory"))
    loader = MemoryLoader(made, _open(made, Path("."), 1), 1 << 20, 4)
    with pytest.raises(ConfigError, match=r"needs 4 TiB on a node, .* are free; use more nodes"):
        next(loader.epoch(Order(made.dataset, made.reader, 0), 0, 1 << 20, 1))


def _epoch_verified(verification: Verification, batches: Iterator[Batch]) -> None:
    for batch in batches:
        verification(batch)
    verification.finish()


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize("way", _FORMATS, ids="-".join)
def test_damage_ends_the_epoch_with_the_files_name(tmp_path: Path, loader: Any, way: tuple[Any, Any]) -> None:
    kind, mode = way
    dataset = Dataset(kind, 5, 7, Sample(shape=(9, 11), dtype="float32"))
    made = Workload("w", dataset, reader=Reader(loader=loader, mode=mode, batch_size=4))
    _write(tmp_path, dataset)
    verification = Verification(made, _containers(tmp_path, dataset))
    file = Path(_containers(tmp_path, dataset)(2))
    whole = file.read_bytes()
    for damaged in (None, whole[: len(whole) // 2], bytes(reversed(whole))):
        file.unlink(missing_ok=True)
        if damaged is not None:
            file.write_bytes(damaged)
        opened = _open(made, tmp_path, 9)
        with pytest.raises(InvalidRun, match=f"{file}|no more records, but sample 14|. records where"):
            _epoch_verified(verification, opened.epoch(Order(dataset, made.reader, 0), 0, 35, 9))
        opened.close()


@pytest.mark.parametrize("loader", LOADERS)
def test_preprocessing_takes_its_time_on_its_threads(tmp_path: Path, loader: Any) -> None:
    dataset = Dataset("npz", 4, 4, Sample(bytes=Size(100)))
    threads = 1 if loader == "pytorch" else 4
    keys = Reader(loader=loader, batch_size=8, preprocess_time=Seconds(0.02), preprocess_threads=threads)
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    opened = _open(made, tmp_path, 2)
    tallies = [batch.tally for batch in opened.epoch(Order(dataset, keys, 0), 0, 16, 2)]
    opened.close()
    assert sum(tally.preprocess_s for tally in tallies) >= 16 * 0.02


def test_native_preprocessing_is_shared_out_and_overlaps_reading(tmp_path: Path) -> None:
    at_once: set[str] = set()
    from dlio_hpc.core.loaders import native

    def note(seconds: float, mode: str) -> float:
        at_once.add(threading.current_thread().name)
        barrier.wait(10)
        return seconds

    barrier = threading.Barrier(3)
    dataset = Dataset("npz", 4, 4, Sample(bytes=Size(100)))
    keys = Reader(batch_size=6, preprocess_time=Seconds(1), preprocess_threads=3)
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "preprocess", note)
        opened = _open(made, tmp_path, 2)
        batches = list(opened.epoch(Order(dataset, keys, 0), 0, 12, 2))
        opened.close()
    assert [batch.tally.preprocess_s for batch in batches] == [6, 6]
    assert len(at_once) == 3


def test_threads_share_a_batch_where_nothing_is_read_ahead(tmp_path: Path) -> None:
    dataset = Dataset("npz", 4, 4, Sample(bytes=Size(100)))
    keys = Reader(batch_size=8, read_threads=3, prefetch=0)
    made = Workload("w", dataset, reader=keys)
    _write(tmp_path, dataset)
    opened = _open(made, tmp_path, 2)
    batches = opened.epoch(Order(dataset, keys, 0), 0, 16, 2)
    first = next(batches)
    assert first.tally.bytes_read == 800
    assert len(first.tally.starts) == 8
    assert _numbers(batches, _contents(dataset), {0: 100}) == [[8, 9, 10, 11, 12, 13, 14, 15]]
    opened.close()


def test_tensorflow_reads_our_tfrecords_and_we_read_its(tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    dataset = Dataset("tfrecord", 1, 9, Sample(bytes=Size(700), stdev=Size(90)))
    _write(tmp_path, dataset)
    ours = Path(_path(tmp_path, 0)).read_bytes()
    records = [record.numpy() for record in tf.data.TFRecordDataset(_path(tmp_path, 0))]
    assert {record: number for number, record in enumerate(records)} == _contents(dataset)
    with tf.io.TFRecordWriter(_path(tmp_path, 0)) as writer:
        for record in records:
            writer.write(record)
    assert Path(_path(tmp_path, 0)).read_bytes() == ours, "byte for byte"


def test_tensorflow_asks_for_what_transfer_size_says(tmp_path: Path) -> None:
    """The test uses its own process, as the kernel counts the reads of all threads, also of those of other tests."""
    program = f"import pathlib, tests.core.test_loaders as tests; tests.tell_requests(pathlib.Path({str(tmp_path)!r}))"
    root = ROOT
    done = subprocess.run([sys.executable, "-c", program], cwd=root, check=True, capture_output=True, text=True)
    small, large = map(int, done.stdout.split())
    assert small - large == pytest.approx(128 - 8, abs=20)


def tell_requests(folder: Path) -> None:
    """Print the requests of 64 KiB and of 1 MiB for 8 MiB in two files."""
    dataset = Dataset("tfrecord", 2, 64, Sample(bytes=Size(64 << 10)))
    _write(folder, dataset)
    for size in (64 << 10, 1 << 20):
        keys = Reader(loader="tensorflow", mode="framework", batch_size=8, transfer_size=Size(size))
        loader = _open(Workload("w", dataset, reader=keys), folder, 16)
        tallies = [batch.tally for batch in loader.epoch(Order(dataset, keys, 0), 0, 128, 16)]
        read = sum(tally.bytes_read for tally in tallies)
        assert dataset.size <= read < dataset.size * 1.1
        assert sum(tally.opens for tally in tallies) == 2
        print(sum(tally.requests for tally in tallies))


def test_a_loader_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for loader, module, package in (
        ("tensorflow", "tensorflow", "tensorflow-cpu"), ("pytorch", "torch.utils.data", "torch"),
    ):  # fmt: skip
        made = Workload("w", Dataset("npz", 1, 1, Sample(bytes=Size(1))), reader=Reader(loader=loader))  # type: ignore[arg-type]
        pytest.importorskip(module)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, module, None)
            with pytest.raises(ConfigError, match=f"not installed; run pip install {package}"):
                _open(made, tmp_path, 1)
