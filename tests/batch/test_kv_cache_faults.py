"""Jobs with KV caches that are killed, or whose file system fails, while blocks of prompts are written (prefill), while
blocks of answers are written (decode), while blocks are read, and while blocks are removed (eviction).
"""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.batch.test_killed_phases import _in_session, _kill, _leader, _lives, _paths, _wait
from tests.conftest import Outcome, Run, ahead
from tests.support import file_servers

_JOB = (
    "dlio-submit", "kv_cache_llama3_8b", "-s", "local", "--ppn", 2, "-S", "train.epochs=1", "-S", "inference.time=20s",
    "-S", "inference.interval=300ms", "-S", "inference.model={layers: 2, kv_heads: 8, head_dim: 64}",
    "-S", "inference.decode=1ms", "-S", "inference.capacity=3 MiB",
)  # fmt: skip
# Methods of an engine in which a phase is, and whether a call belongs to it.
_PHASES = {
    "prefill": ("_write", "given[0].token == 0"),
    "decode": ("_write", "given[0].token > 0"),
    "read": ("_read", "True"),
    "eviction": ("_remove", "True"),
}
# A change of the ranks: the tenth time that a rank is in the phase, something happens once.
_CHANGE = """\
import sys
if "dlio_hpc.core" in " ".join(sys.orig_argv):
    import os, subprocess, time
    from dlio_hpc.core.kv_serving import KVServing
    usual, times = KVServing.{method}, []
    def changed(self, *given):
        if {is_phase}:
            times.append(1)
            if len(times) == 10:
                {action}
        return usual(self, *given)
    KVServing.{method} = changed
"""


def _broken(folder: Path, phase: str, action: str) -> dict[str, str]:
    """Return the environment of a job in which `action` happens in a phase."""
    method, is_phase = _PHASES[phase]
    (folder / "broken").mkdir()
    (folder / "broken" / "sitecustomize.py").write_text(_CHANGE.format(method=method, is_phase=is_phase, action=action))
    return ahead(folder / "broken")


@pytest.mark.job
@pytest.mark.parametrize("phase", _PHASES)
@pytest.mark.parametrize(("victims", "state", "code"), [("all", "lost", 7), ("a rank", "failed", 6)])
def test_a_job_that_is_killed(tmp_path: Path, run: Run, phase: str, victims: str, state: str, code: int) -> None:
    """Nothing is called good, a second job is whole, and clean removes the blocks that are left and nothing else."""
    (tmp_path / "ranks").mkdir()
    held = f"open({str(tmp_path / 'ranks')!r} + '/' + str(os.getpid()), 'w').close(); time.sleep(60)"
    assert run(*_JOB, "-d", "data", **_broken(tmp_path, phase, held)).code == 0
    _wait(lambda: len(os.listdir(tmp_path / "ranks")) == 2)
    ranks = set(map(int, os.listdir(tmp_path / "ranks")))
    (directory,) = (tmp_path / "dlio-runs").glob("kv_cache_llama3_8b-*")
    _kill([min(ranks)] if victims == "a rank" else ranks | _in_session(_leader(directory)))
    waited = run("dlio-hpc", "wait", directory, "--json")
    (job,) = waited.json["jobs"]
    assert (waited.code, job["state"]) == (code, state), waited
    _wait(lambda: not any(map(_lives, ranks)))
    assert not run("dlio-hpc", "report", directory).out.startswith("Good")

    outputs, other = tmp_path / "data" / f"outputs-{directory.name}", tmp_path / "data" / "kept"
    left = _paths(outputs)
    other.touch()
    again = run(*_JOB, "-d", "data", "-S", "inference.time=2s", "--wait", "--json")
    assert (again.code, again.job["state"]) == (0, "completed"), again
    assert _paths(outputs) == left, "another job leaves them alone"
    assert run("dlio-hpc", "clean").code == 0
    assert os.listdir(tmp_path / "data") == ["kept"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    if reason := file_servers.missing("xfs"):
        pytest.skip(reason)
    with file_servers.xfs(tmp_path / "disk") as mounted:
        yield mounted["xfs"].folder


def _failed(run: Run, tmp_path: Path, disk: Path, phase: str, action: str, *options: str) -> Outcome:
    """Return the outcome of a job on a disk to which something happens. Its first line must not be good."""
    done = run(
        *_JOB,
        "-d",
        disk / "data",
        "-S",
        "inference.verify=true",
        *options,
        "--wait",
        **_broken(tmp_path, phase, action),
    )
    assert done.code == 6, done
    assert done.out.startswith("Bad: "), done.out
    return done


@pytest.mark.cluster
@pytest.mark.parametrize("phase", _PHASES)
def test_a_disk_that_fails(tmp_path: Path, run: Run, disk: Path, phase: str) -> None:
    """XFS answers each request with EIO after it is shut down, as it does when its disk has failed."""
    action = f"subprocess.run(['xfs_io', '-x', '-c', 'shutdown', {str(disk)!r}], check=True)"
    done = _failed(run, tmp_path, disk, phase, action)
    assert re.search(rf"cannot (read|write|remove) {disk}/data/outputs-\S+: Input/output error", done.err), done.err


@pytest.mark.cluster
@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_a_disk_that_is_full(tmp_path: Path, run: Run, disk: Path, phase: str) -> None:
    """Another program takes all of the free space. The blocks that are there are removed by the job itself."""
    action = f"subprocess.run(['dd', 'if=/dev/zero', 'of={disk}/other', 'bs=1M'], check=False)"
    done = _failed(run, tmp_path, disk, phase, action, "-S", "inference.capacity=null")
    assert re.search(rf"cannot write {disk}/data/outputs-\S+: No space left on device", done.err), done.err
    assert run("dlio-hpc", "clean").code == 0
    assert os.listdir(disk / "data") == []
    assert (disk / "other").stat().st_size > 1 << 30
    subprocess.run(["rm", disk / "other"], check=True)
