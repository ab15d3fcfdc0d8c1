"""Containers that have several stored files: numbers, names, blocks, foreign names and removal."""

import os
import pickle
from pathlib import Path

import pytest
from msgspec import structs

from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.dataset import dataset_folder, dataset_space, dataset_tree, stored_parts
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.stored_parts import Parts
from dlio_hpc.files import safe_folders

# A container of three files next to the others, and a container with a folder of its own.
FLAT, IN_FOLDER = Parts((".a", ".b", ".b.c")), Parts((".meta", "0.0", "0.1"), ".store")
PLAIN = Dataset("raw", 5, 2, Sample(bytes=Size(100)))


@pytest.fixture(params=[FLAT, IN_FOLDER], ids=["flat", "folders"])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Parts:
    made: Parts = request.param
    monkeypatch.setitem(stored_parts._OF_DATASET, "raw", lambda _: made)
    return made


def _filled(folder: Path, dataset: Dataset) -> list[str]:
    names = list(dataset_folder.names(dataset))
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")
    return names


def test_formats_have_one_file_per_container() -> None:
    assert list(dataset_folder.names(PLAIN)) == [f"{number:08}.raw" for number in range(5)]
    assert dataset_folder.containers(StoredDataset("d", PLAIN, ""))(4) == "d/00000004.raw"


def test_stored_files_are_parts_of_containers(parts: Parts) -> None:
    path = pickle.loads(pickle.dumps(dataset_folder.paths(StoredDataset("d", PLAIN, ""))))
    names = {FLAT: ["d/00000003.a", "d/00000003.b", "d/00000003.b.c"],
             IN_FOLDER: [f"d/00000003.store/{name}" for name in IN_FOLDER.names]}[parts]  # fmt: skip
    assert [path(number) for number in (9, 10, 11)] == names
    assert dataset_folder.containers(StoredDataset("d", PLAIN, ""))(3) == names[0]
    assert dataset_folder.file_count(PLAIN) == 15
    assert list(stored_parts.of_containers(PLAIN, [4, 1])) == [12, 13, 14, 3, 4, 5]
    assert list(dataset_folder.base_names(PLAIN, range(9, 12))) == [os.path.basename(name) for name in names]


@pytest.mark.parametrize("subfolders", [None, (2,), (2, 2)])
def test_blocks_are_in_one_folder(parts: Parts, subfolders: tuple[int, ...] | None) -> None:
    dataset = structs.replace(PLAIN, subfolders=subfolders)
    blocks = list(dataset_folder.blocks(dataset, 1, 14, 4))
    assert [number for _, first, end in blocks for number in range(first, end)] == list(range(1, 14))
    assert all(end - first <= 4 for _, first, end in blocks)
    for folder, first, end in blocks:
        assert {os.path.dirname(dataset_folder.file_name(dataset, number)) for number in range(first, end)} == {folder}


@pytest.mark.parametrize("subfolders", [None, (2,), (2, 2)])
@pytest.mark.parametrize("most", [2, 1000])
def test_foreign_names_are_told_from_parts(
    parts: Parts, subfolders: tuple[int, ...] | None, most: int, tmp_path: Path
) -> None:
    dataset = structs.replace(PLAIN, subfolders=subfolders)
    names = _filled(tmp_path, dataset)
    above = os.path.dirname(names[0])
    strays = sorted(
        os.path.join(above, name) for name in ("00000000.x", "00000009.a", "0.0.x", "000.a", "00000009.store")
    )
    for stray in strays:
        (tmp_path / stray).write_bytes(b"")
    with safe_folders.opened(str(tmp_path)) as root:
        assert sorted(dataset_tree.strangers(root, dataset)) == strays
        listed_names: list[str] = []
        foreign: list[str] = []
        for batch in dataset_tree.batches(root, dataset, most):
            with dataset_tree.opened(root, batch.path) as folder:
                listed = batch.listed(folder)
            listed_names += [os.path.join(batch.path, name) for name in listed]
            foreign += [os.path.join(batch.path, name) for name in batch.foreign(dataset, listed)]
    assert sorted(listed_names) == sorted([*names, *strays])
    assert sorted(foreign) == strays


def test_folders_of_containers_are_inodes(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = StoredDataset("/nowhere", PLAIN, "")
    alone = dataset_space.needs(stored).files
    monkeypatch.setitem(stored_parts._OF_DATASET, "raw", lambda _: FLAT)
    assert dataset_space.needs(stored).files == alone + 2 * 5
    monkeypatch.setitem(stored_parts._OF_DATASET, "raw", lambda _: IN_FOLDER)
    assert dataset_space.needs(stored).files == alone + 2 * 5 + 5
