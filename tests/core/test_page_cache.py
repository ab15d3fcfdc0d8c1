"""Pages of files in the page cache of this node."""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlio_hpc.core import page_cache
from dlio_hpc.files import filesystem, storage_proofs


def test_pages_are_counted_while_a_frame_refers_to_the_mapping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A debugger or a watching thread may keep the frame of a function of NumPy."""
    path, kept, view = tmp_path / "file", [], np.frombuffer

    def frombuffer(*arguments: Any) -> Any:
        kept.append(view(*arguments))
        return kept[-1]

    path.write_bytes(bytes(100_000))
    monkeypatch.setattr(np, "frombuffer", frombuffer)
    assert page_cache.resident([str(path)])[0] == -(-100_000 // mmap.PAGESIZE)
    assert len(kept) == 1


def test_pages_that_are_not_on_storage_yet_are_written_and_dropped(tmp_path: Path) -> None:
    if filesystem.of(tmp_path).kind not in storage_proofs.COUNTED - {"overlay"}:
        pytest.skip("needs ext4, xfs or btrfs")
    path = tmp_path / "new"
    path.write_bytes(os.urandom(8 << 20))
    assert page_cache.resident([str(path)])[1] > 0
    assert page_cache.drop(str(path)), "its pages had to be written first"
    assert page_cache.resident([str(path)])[1] == 0
    path.read_bytes()
    assert not page_cache.drop(str(path)), "they are on storage"
    assert not page_cache.drop(str(tmp_path / "absent"))
