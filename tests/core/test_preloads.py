"""A preloaded library that replaces functions of the C library is a fact that voids evidence."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_hpc.core import cache_facts, preloads
from dlio_hpc.files import storage_proofs

_FACTS = "import pathlib, sys; from dlio_hpc.core import cache_facts; print(cache_facts.of(pathlib.Path(sys.argv[1])))"


def _facts(folder: Path, name: str, text: str) -> str:
    """Return the facts about a folder in a process with a library of this source preloaded."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("no C compiler")
    (folder / "library.c").write_text(text)
    library = folder / name
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, folder / "library.c"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run([sys.executable, "-c", _FACTS, folder], capture_output=True, check=True, env=environment)
    return done.stdout.decode()


@pytest.mark.parametrize(
    ("name", "function", "fact"),
    [
        ("libeatmydata.so", "int fsync(int file) { return 0; }", storage_proofs.NO_FSYNC),
        ("mine.so", "int fdatasync(int file) { return 0; }", storage_proofs.NO_FSYNC),
        ("libhvac.so", "long pread64(int f, void *b, long n, long o) { return 0; }", storage_proofs.REPLACED),
        ("libdarshan.so", "int fdatasync(int); int fsync(int file) { return fdatasync(file); }", None),
        ("libother.so", "int other(int file) { return 0; }", None),
    ],
)
def test_a_library_that_replaces_functions_is_a_fact(
    tmp_path: Path, name: str, function: str, fact: str | None
) -> None:
    facts = _facts(tmp_path, name, function)
    for other in (storage_proofs.NO_FSYNC, storage_proofs.REPLACED):
        assert (other in facts) == (other == fact)


# A filter, as systemd-nspawn --suppress-sync installs it: fsync returns 0, all other calls are allowed.
_FILTER = """
import ctypes, os, platform, struct
number = {"x86_64": 74, "aarch64": 82}[platform.machine()]
program = b"".join(struct.pack("HBBI", *line) for line in (
    (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000), (0x06, 0, 0, 0x7fff0000)))
kept = ctypes.create_string_buffer(program)
class Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_void_p))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0
assert prctl(22, 2, ctypes.byref(Filter(4, ctypes.addressof(kept))), 0, 0) == 0, os.strerror(ctypes.get_errno())
"""


@pytest.mark.skipif(platform.machine() not in {"x86_64", "aarch64"}, reason="the number of fsync is not known")
def test_a_filter_of_system_calls_is_a_fact(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FILTER + _FACTS, tmp_path], capture_output=True, text=True, check=True
    )
    assert storage_proofs.NO_FSYNC in done.stdout
    assert storage_proofs.NO_FSYNC not in cache_facts.of(tmp_path)


def test_the_c_library_itself_is_none() -> None:
    assert preloads.syncs()
    assert preloads.replacing((*preloads.READS, *preloads.SYNCS)) == []
    assert preloads.replacing(["no_such_function_at_all"]) == []


def test_without_fsync_checkpoints_may_be_in_memory_and_without_read_only_counts_prove() -> None:
    assert not storage_proofs.of("lustre", [storage_proofs.NO_FSYNC]).fsync
    assert storage_proofs.of("lustre", [storage_proofs.REPLACED]) == storage_proofs.Proofs(
        count="lustre clients' count", fsync=True, source=storage_proofs.TABLE["lustre"].source
    )
    assert "LD_PRELOAD" in storage_proofs.why_not("ceph", [storage_proofs.REPLACED])
