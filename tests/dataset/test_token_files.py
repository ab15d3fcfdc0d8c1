"""Both files of a container of tokens are generated, continued, dropped from the page cache, verified and removed."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlio_hpc.config import site, workload
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core import cache_accounting, page_cache
from dlio_hpc.core.page_cache_drop import PageCacheDrop
from dlio_hpc.core.verify_dataset import verify
from dlio_hpc.dataset import dataset_folder, dataset_removal, dataset_space, resizing, token_index
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.dataset.token_layout import TokenFiles
from dlio_hpc.plan.plan import Run
from tests.dataset.test_datasets import _plan
from tests.dataset.test_subfolders import _generate
from tests.support import planning

_KEYS = (
    "dataset.format=indexed", "dataset.files=5", "dataset.sample={shape: [33], dtype: int32}",
    "dataset.documents={tokens: 20, stdev: 7}",
)  # fmt: skip


def _names(run: Run) -> list[str]:
    root = Path(run.dataset)
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def _faults(run: Run) -> dict[str, str]:
    return {fault.file: fault.fault for fault in verify(Path(run.dataset), quick=False).faults}


@pytest.mark.parametrize("ranks", [1, 3, 7])
@pytest.mark.parametrize("subfolders", ["null", "[2]", "[2, 2]"])
def test_ranks_write_both_files_of_each_container(tmp_path: Path, ranks: int, subfolders: str) -> None:
    run = _plan(tmp_path, *_KEYS, f"dataset.subfolders={subfolders}")
    results = _generate(run, ranks)
    assert {made.files for made in results} == {10}
    assert _names(run) == sorted([*dataset_folder.names(run.workload.dataset), "dlio-dataset.json"])
    assert _faults(run) == {}
    assert {made.files for made in _generate(run, ranks)} == {10}, "the dataset is reused"
    assert dataset_removal.remove(Path(run.dataset))[0] == 11
    assert not os.path.exists(run.dataset)


@pytest.mark.parametrize("lost", ["00000003.idx", "00000003.bin"])
def test_a_generation_that_continues_writes_the_lost_file_alone(tmp_path: Path, lost: str) -> None:
    run = _plan(tmp_path, *_KEYS)
    _generate(run)
    root = Path(run.dataset)
    dataset_folder.mark(run.stored, complete=False)
    (root / ".written-0-10").touch()
    (root / lost).unlink()
    os.truncate(root / "00000001.idx", 50)
    before = {name: (root / name).stat().st_mtime_ns for name in _names(run) if name.startswith("0")}
    (made,) = _generate(run)
    assert made.files == 2
    changed = {name for name, time in before.items() if (root / name).stat().st_mtime_ns != time}
    assert changed == {"00000001.idx"}
    assert _faults(run) == {}


def test_any_damage_of_an_index_and_strangers_beside_it_are_faults(tmp_path: Path) -> None:
    run = _plan(tmp_path, *_KEYS)
    _generate(run)
    root = Path(run.dataset)
    path = root / "00000002.idx"
    whole = path.read_bytes()
    path.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
    (root / "00000004.bin").unlink()
    for name in ("00000005.idx", "00000001.off.idx", "2.idx"):
        (root / name).touch()
    assert _faults(run) == {
        "00000002.idx": "byte 40 differs from the generated contents",
        "00000004.bin": "is missing",
        **dict.fromkeys(("00000005.idx", "00000001.off.idx", "2.idx"), "does not belong to the dataset"),
    }


def test_both_files_are_dropped_and_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = planning.Request(runs=tmp_path / "runs", data=tmp_path / "data")
    run = planning.make(workload.load("demo", _KEYS), site.load("local"), request).runs[-1]
    dropped: list[str] = []

    def drop(path: str) -> bool:
        dropped.append(os.path.basename(path))
        return False

    monkeypatch.setattr(page_cache, "drop", drop)
    node: Any = SimpleNamespace(rank=0, size=1)
    dataset = run.workload.dataset
    order = Order(dataset, run.workload.reader, 0)
    PageCacheDrop(node, run)(order, 0, dataset.samples)
    assert sorted(dropped) == sorted(dataset_folder.names(dataset))
    paths = cache_accounting.some_files(run, order, 0, dataset.samples, 1)
    assert {path.rsplit(".", 1)[0] for path in paths if path.endswith(".idx")} == {
        path.rsplit(".", 1)[0] for path in paths if path.endswith(".bin")
    }
    assert paths


def test_space_for_indexes_is_planned() -> None:
    dataset = workload.load("demo", _KEYS).dataset
    needs = dataset_space.needs(StoredDataset("/nowhere", dataset, ""))
    files = TokenFiles(dataset)
    size = sum(files.size(number) + token_index.size(files.sequences()) for number in range(dataset.files))
    assert size <= needs.size <= 1.1 * size
    assert needs.files == 10 + 4


def test_a_resized_blend_keeps_a_file_for_each_weight() -> None:
    made = workload.load("megatron_gpt")
    for size in (3 * 16388, 1 << 20, 1 << 30, 1 << 40):
        dataset = resizing.resized(made, size, 1).dataset
        assert dataset.files >= 3
        assert dataset.size <= size
    assert isinstance(dataset, Dataset)
