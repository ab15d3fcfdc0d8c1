"""Folders of generated Zarr stores: generated, resumed, verified, removed, and dropped from the page cache."""

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import site, workload
from dlio_hpc.core import cache_accounting, cached_files
from dlio_hpc.core.page_cache_drop import PageCacheDrop
from dlio_hpc.core.verify_dataset import verify
from dlio_hpc.dataset import dataset_folder, dataset_removal, dataset_space, dataset_tree, written_files
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.dataset.written_files import Span
from dlio_hpc.files import safe_folders
from dlio_hpc.plan.plan import Run
from tests.dataset.test_datasets import _plan
from tests.dataset.test_subfolders import _generate
from tests.support import existing, planning

# Three stores of three by two chunks of which the last ones reach beyond the array.
_KEYS = ("dataset.format=zarr", "dataset.chunk=[2, 16, 7]")
_FILES = 3 * (1 + 3 * 2)


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    existing.forget()
    yield
    existing.forget()


def _faults(run: Run, quick: bool = False) -> dict[str, str]:
    return {fault.file: fault.fault for fault in verify(Path(run.dataset), quick).faults}


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("keys", [(), ("dataset.subfolders=2",), ("dataset.zarr={version: 2}",)], ids=str)
def test_stores_are_generated_and_removed(tmp_path: Path, ranks: int, keys: tuple[str, ...]) -> None:
    run = _plan(tmp_path, *_KEYS, *keys)
    results = _generate(run, ranks)
    assert {result.files for result in results} == {_FILES}
    assert _faults(run) == _faults(run, quick=True) == {}
    files = [path for path in Path(run.dataset).rglob("*") if path.is_file()]
    assert len(files) == _FILES + 1
    assert verify(Path(run.dataset), quick=True).files == _FILES
    removed = dataset_removal.remove(Path(run.dataset))
    assert removed[0] == _FILES + 1
    assert not Path(run.dataset).exists()


def test_the_generation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """Files 0 to 11 are recorded: those of the first store, and of the second up to a chunk. One was lost since, and
    one was cut.
    """
    run = _plan(tmp_path, *_KEYS)
    _generate(run)
    folder = Path(run.dataset)
    dataset_folder.mark(run.stored, complete=False)
    for number in range(12, _FILES):
        os.unlink(dataset_folder.file_path(run.stored, number))
    (folder / "00000002.zarr").rmdir()
    with safe_folders.opened(folder) as descriptor:
        written_files.record(descriptor, Span(0, 12), None)
    (folder / "00000000.zarr/c.0.1.0").unlink()
    os.truncate(folder / "00000001.zarr/zarr.json", 10)
    kept = (folder / "00000000.zarr/c.2.1.0").stat().st_mtime_ns
    (result,) = _generate(run)
    assert result.files == _FILES - 12 + 2
    assert (folder / "00000000.zarr/c.2.1.0").stat().st_mtime_ns == kept
    assert _faults(run) == {}


def test_missing_foreign_and_cut_files_are_named(tmp_path: Path) -> None:
    run = _plan(tmp_path, *_KEYS)
    _generate(run)
    folder = Path(run.dataset)
    (folder / "00000000.zarr/c.0.0.0").unlink()
    os.truncate(folder / "00000001.zarr/c.1.1.0", 3)
    for name in ("notes", "00000001.zarr/c.1.2.0", "00000001.zarr/.zattrs", "00000009.zarr", "00000002.zarr/c"):
        (folder / name).touch()
    faults = _faults(run, quick=True)
    assert faults.pop("00000000.zarr/c.0.0.0") == "is missing"
    assert faults.pop("00000001.zarr/c.1.1.0") == "has 3 bytes, expected 896"
    assert set(faults) == {
        "notes", "00000001.zarr/c.1.2.0", "00000001.zarr/.zattrs", "00000009.zarr", "00000002.zarr/c",
    }  # fmt: skip
    assert set(faults.values()) == {"does not belong to the dataset"}
    with pytest.raises(ConfigError, match="notes"):
        dataset_removal.remove(folder)
    assert (folder / "00000002.zarr/zarr.json").exists()


def test_a_link_in_place_of_a_store_is_not_followed(tmp_path: Path) -> None:
    run = _plan(tmp_path, *_KEYS)
    _generate(run)
    folder, aside = Path(run.dataset), tmp_path / "aside"
    (folder / "00000001.zarr").rename(aside)
    (folder / "00000001.zarr").symlink_to(aside)
    assert "00000001.zarr" in _faults(run)
    with pytest.raises(ConfigError, match=r"00000001\.zarr"):
        dataset_removal.remove(folder)
    assert (aside / "zarr.json").exists()
    dataset_folder.mark(run.stored, complete=False)
    (result,) = _generate(run)
    assert str(result) == f"{folder}/00000001.zarr is a link or not a folder; nothing was written; remove it"


def test_space_and_inodes_are_known_before(tmp_path: Path) -> None:
    """A chunk of 2 x 16 x 7 values of four bytes has 896 bytes. A store is a folder."""
    for keys, chunks in (((), 6), (("dataset.zarr={shard: [4, 32, 7]}",), 6)):
        run = _plan(tmp_path, *_KEYS, *keys)
        needs = dataset_space.needs(run.stored)
        _generate(run)
        files = [path for path in Path(run.dataset).rglob("*.zarr/*") if path.is_file()]
        size = sum(path.stat().st_size for path in files)
        assert size <= needs.size <= 1.1 * size + 3 * 1024
        assert size >= 3 * chunks * 896
        folders = 3
        assert len(files) + folders < needs.files <= len(files) + folders + 6


def _measured(folder: Path) -> Run:
    """Return a run that reads the stores in order."""
    keys = (
        "dataset.files=3", "dataset.samples_per_file=5", "dataset.sample={shape: [30, 7]}", "train={epochs: 1}",
        "reader={batch_size: 2, shuffle: {files: false, samples: false}}",
    )  # fmt: skip
    request = planning.Request(folder, data=folder / "data", ranks_per_node=1)
    return planning.make(workload.load("demo", (*_KEYS, *keys)), site.load("local"), request).runs[-1]


def test_every_file_of_a_store_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _measured(tmp_path)
    _generate(run)
    dropped: set[str] = set()

    def drop(path: str) -> bool:
        dropped.add(path)
        return False

    monkeypatch.setattr("dlio_hpc.core.page_cache.drop", drop)
    node: Any = SimpleNamespace(rank=0, size=1)
    order = Order(run.workload.dataset, run.workload.reader, 0)
    PageCacheDrop(node, run)(order, 0, run.workload.dataset.samples)
    assert dropped == {str(path) for path in Path(run.dataset).rglob("*.zarr/*")}


def test_the_chunks_of_the_next_samples_are_looked_at(tmp_path: Path) -> None:
    run = _measured(tmp_path)
    _generate(run)
    order = Order(run.workload.dataset, run.workload.reader, 0)
    paths = cache_accounting.some_files(run, order, 4, 6, 1)
    assert [os.path.relpath(path, run.dataset) for path in paths] == [
        "00000000.zarr/c.2.0.0", "00000000.zarr/c.2.1.0", "00000001.zarr/c.0.0.0", "00000001.zarr/c.0.1.0",
    ]  # fmt: skip


def test_files_of_existing_stores_are_listed(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(tmp_path / "data/a.zarr", shape=(4, 5), chunks=(1, 2), dtype="f4")
    array[1] = np.arange(5)
    made = existing.scanned(tmp_path / "data", tmp_path, existing.unscanned("zarr", "*.zarr"))
    stored = StoredDataset(str(tmp_path / "data"), made.dataset, "")
    names = {os.path.relpath(path, tmp_path / "data/a.zarr") for path in cached_files.of_containers(stored, [0])}
    assert names == {"zarr.json", "c/1/0", "c/1/1", "c/1/2"}
    assert {
        os.path.relpath(path, tmp_path / "data/a.zarr") for path in cached_files.of_samples(stored, [1, 2])
    } == names


def test_folders_of_stores_are_those_of_the_dataset(tmp_path: Path) -> None:
    run = _plan(tmp_path, *_KEYS, "dataset.subfolders=2")
    _generate(run)
    with safe_folders.opened(run.dataset) as root:
        paths = [folder.path for folder in dataset_tree.folders(root, run.workload.dataset)]
    assert paths == ["00000/00000000.zarr", "00000/00000001.zarr", "00000", "00001/00000002.zarr", "00001", ""]
