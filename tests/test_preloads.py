"""A preloaded library that replaces functions of the C library is a fact that voids evidence."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_hpc.core import preloads
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
        ("libdarshan.so", "int fsync(int file) { return 0; }", None),
        ("libother.so", "int other(int file) { return 0; }", None),
    ],
)
def test_a_library_that_replaces_functions_is_a_fact(
    tmp_path: Path, name: str, function: str, fact: str | None
) -> None:
    facts = _facts(tmp_path, name, function)
    for other in (storage_proofs.NO_FSYNC, storage_proofs.REPLACED):
        assert (other in facts) == (other == fact)


def test_the_c_library_itself_is_none() -> None:
    assert preloads.replacing((*preloads.READS, *preloads.SYNCS)) == []
    assert preloads.replacing(["no_such_function_at_all"]) == []


def test_without_fsync_checkpoints_may_be_in_memory_and_without_read_only_counts_prove() -> None:
    assert not storage_proofs.of("lustre", [storage_proofs.NO_FSYNC]).fsync
    assert storage_proofs.of("lustre", [storage_proofs.REPLACED]) == storage_proofs.Proofs(
        count="lustre clients' count", fsync=True, source=storage_proofs.TABLE["lustre"].source
    )
    assert "LD_PRELOAD" in storage_proofs.why_not("ceph", [storage_proofs.REPLACED])
