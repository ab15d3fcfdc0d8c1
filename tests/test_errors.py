"""Messages of faults name the file and the cause."""

import errno
import os
from pathlib import Path

import pytest

from dlio_hpc.errors import of_system
from dlio_hpc.files import safe_folders


def test_a_fault_by_descriptor_names_the_folder(tmp_path: Path) -> None:
    """Errors of os.listdir() name a descriptor's number, those of os.fstat() no file, and others a path in /proc."""
    stale = errno.ESTALE
    for fault in (OSError(stale, os.strerror(stale), 7), OSError(stale, os.strerror(stale))):
        with pytest.raises(OSError, match="Stale file handle") as raised, safe_folders.opened(tmp_path):
            raise fault
        assert of_system(raised.value) == f"{tmp_path}: Stale file handle"
        assert of_system(OSError(*fault.args), tmp_path) == f"{tmp_path}: Stale file handle"
    with pytest.raises(FileNotFoundError) as missing, safe_folders.opened(tmp_path) as folder:
        (safe_folders.held(folder) / "none.npz").read_bytes()
    assert of_system(missing.value) == f"{tmp_path}/none.npz: No such file or directory"


def test_a_folder_whose_state_may_not_be_read_is_not_called_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    safe_folders.make(str(tmp_path / "a" / "b"))
    safe_folders.make(str(tmp_path / "a" / "b"))
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        safe_folders.make(str(tmp_path / "file"))

    def denied(path: str) -> os.stat_result:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(os, "stat", denied)
    with pytest.raises(PermissionError):
        safe_folders.make(str(tmp_path / "a"))


def test_discarding_ignores_every_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "file").touch()

    def stale(descriptor: int) -> os.stat_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fstat", stale)
        safe_folders.discard(folder)
    safe_folders.discard(folder)
    assert not folder.exists()
    safe_folders.discard(folder)
