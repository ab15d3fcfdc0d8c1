"""Messages of faults name the file and the cause."""

import errno
import os
from pathlib import Path

import pytest

from dlio_hpc.errors import of_system
from dlio_hpc.files import safe_folders


def test_a_fault_by_descriptor_names_the_folder(tmp_path: Path) -> None:
    """os.listdir() of a descriptor has its number for a file name; os.fstat() has no name, other calls /proc's."""
    stale = errno.ESTALE
    for fault in (OSError(stale, os.strerror(stale), 7), OSError(stale, os.strerror(stale))):
        with pytest.raises(OSError, match="Stale file handle") as raised, safe_folders.opened(tmp_path):
            raise fault
        assert of_system(raised.value) == f"{tmp_path}: Stale file handle"
        assert of_system(OSError(*fault.args), tmp_path) == f"{tmp_path}: Stale file handle"
    with pytest.raises(FileNotFoundError) as missing, safe_folders.opened(tmp_path) as folder:
        (safe_folders.held(folder) / "none.npz").read_bytes()
    assert of_system(missing.value) == f"{tmp_path}/none.npz: No such file or directory"
