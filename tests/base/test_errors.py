"""Messages of faults name the file and the cause."""

import errno
import os
from pathlib import Path

import pytest

from dlio_hpc.base.errors import InfrastructureError, classified, of_system
from dlio_hpc.files import safe_folders
from tests.conftest import Run, ahead


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


@pytest.mark.parametrize(
    ("fault", "advice"),
    [
        (
            RuntimeError("cannot load MPI library\nlibmpi.so: cannot open shared object file: No such file"),
            "the site's MPI",
        ),
        (ImportError("libmpi.so.12: cannot open shared object file: No such file or directory"), "pip install mpich"),
        (ImportError("libmpi_gtl_cuda.so: undefined symbol: cuInit"), "load the site's MPI"),
        (RuntimeError("MPI_Init_thread() failed [error code: 16]"), "load the site's MPI"),
        (ImportError("libhdf5.so.310: cannot open shared object file: No such file or directory"), "load the modules"),
        (
            ImportError("/lib64/libc.so.6: version `GLIBC_2.34' not found (required by h5py/defs.so)"),
            "load the modules",
        ),
        (ImportError("Importing the numpy C-extensions failed."), "install the package again"),
        (ImportError("numpy.core.multiarray failed to import"), "install the package again"),
        (
            ValueError("numpy.dtype size changed, may indicate binary incompatibility. Expected 96"),
            "install the package",
        ),
        (OSError("libcuda.so.1: cannot open shared object file: No such file or directory"), "load the modules"),
        (ModuleNotFoundError("No module named 'mpi4py.MPI'", name="mpi4py.MPI"), "mpi4py is not installed"),
        (RuntimeError("can't start new thread"), "ulimit -u"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_no_bug(fault: Exception, advice: str) -> None:
    known = classified(fault)
    assert (type(known), known.exit_code) == (InfrastructureError, 6)
    assert " ".join(str(fault).split()) in str(known)
    assert advice in str(known)
    assert "\n" not in str(known)


@pytest.mark.parametrize(
    "fault",
    [
        ModuleNotFoundError("No module named 'dlio_hpc.core.gone'", name="dlio_hpc.core.gone"),
        ModuleNotFoundError("No module named 'nunpy'", name="nunpy"),
        ImportError("cannot import name 'gone' from 'dlio_hpc.core'"),
        RuntimeError("dictionary changed size during iteration"),
        ValueError("not enough values to unpack"),
    ],
)
def test_a_bug_is_still_a_bug(fault: Exception) -> None:
    assert classified(fault).exit_code == 70


_NO_MPI = """\
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "mpi4py.MPI":
            raise RuntimeError("cannot load MPI library\\nlibmpi.so.12: cannot open shared object file")

sys.meta_path.insert(0, Finder())
"""


def test_ranks_without_an_mpi_library_say_so(run: Run, small: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(_NO_MPI)
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, "--wait", "--json", **ahead(tmp_path))
    assert done.code == 6, done.err
    stderr = (Path(done.job["directory"]) / "job.err").read_text()
    assert "does not start: the MPI library cannot be used: cannot load MPI library libmpi.so.12: cannot open" in stderr
    assert "module load" in stderr
    assert "a bug in dlio-hpc" not in stderr
    assert "Traceback" not in stderr
    checked = run("dlio-hpc", "check", small, "-s", "local", **ahead(tmp_path))
    assert checked.code == 6
    assert "2 ranks did not run (failed): dlio-hpc: a rank on" in checked.out
    assert "the MPI library cannot be used" in checked.out


@pytest.mark.parametrize(
    ("name", "path", "text"),
    [
        ("00002/a.raw", "/data/d", "/data/d/00002/a.raw: Input/output error"),
        ("job.json", "/runs/job.json", "/runs/job.json: Input/output error"),
        ("/other/file", "/data/d", "/other/file: Input/output error"),
        ("file", "folder", "file: Input/output error"),
    ],
)
def test_a_relative_name_is_completed_by_its_folder(name: str, path: str, text: str) -> None:
    assert of_system(OSError(5, "Input/output error", name), path) == text
