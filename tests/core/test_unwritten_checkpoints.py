"""Checkpoints that may be in memory are measured by no command: report, accept and baseline agree."""

from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import workload as workloads
from dlio_hpc.files import filesystem, storage_proofs
from tests.conftest import Run

_CRITERIA = """\
name: contract
criteria:
  safe: {max_checkpoint_safe: 60 s}
  rate: {min_checkpoint_write_MBps: 0.001}
"""


def _saved(run: Run, folder: Path, *keys: str) -> Any:
    """Write checkpoints with two ranks, and return the job."""
    (folder / "contract.yaml").write_text(_CRITERIA)
    settings = [part for key in ("writes=2", "reads=0", "reorder=0", *keys) for part in ("-S", f"checkpoint.{key}")]
    sizes = ("--ppn", 2, "--dataset-size", "32MiB", "-S", "compute.time=0")
    done = run("dlio-submit", "llama3_8b", "-s", "local", "-d", "data", *sizes, *settings, "--wait", "--json")
    assert done.code == 0, done.err
    return done.job


@pytest.mark.job
@pytest.mark.parametrize("mode", ["posix", "torch"])
def test_checkpoints_without_fsync_are_not_measured(run: Run, tmp_path: Path, mode: str) -> None:
    if mode == "torch":
        pytest.importorskip("torch")
    job = _saved(run, tmp_path, "fsync=false", f"mode={mode}")
    assert job["runs"][-1]["result"]["summary"]["checkpoint"]["fsync_s"]["max"] == 0
    report = run("dlio-hpc", "report", job["archive"])
    assert report.out.startswith("Not measured: 00-measure: cached; the checkpoints may still be in memory")
    assert "fsync of a rank" not in report.out
    assert "\nsafe " not in report.out
    accepted = run("dlio-hpc", "accept", job["archive"], "--criteria", "contract.yaml", "--json")
    assert accepted.code != 0
    outcomes = {check["criterion"]: check["outcome"] for check in accepted.json["checks"]}
    assert (outcomes["storage"], outcomes["safe"], outcomes["rate"]) == ("cached", "not_comparable", "not_comparable")
    refused = run("dlio-hpc", "baseline", "accept", job["archive"], "--message", "why not")
    assert (refused.code, "may still be in memory" in refused.err) == (2, True)


@pytest.mark.job
def test_checkpoints_that_reached_storage_are_accepted_without_reading(run: Run, tmp_path: Path) -> None:
    job = _saved(run, tmp_path)
    accepted = run("dlio-hpc", "accept", job["archive"], "--criteria", "contract.yaml")
    report = run("dlio-hpc", "report", job["archive"])
    if filesystem.of(tmp_path).kind in storage_proofs.MEMORY:
        assert accepted.code == 4
        assert "were written to memory" in report.out.splitlines()[0]
        return
    assert accepted.code == 0, accepted.out
    assert report.out.startswith("Good: 2 checkpoints reached storage (fsync); no samples were read.")
    assert run("dlio-hpc", "baseline", "accept", job["archive"], "--message", "quiet").code == 0


def test_a_workload_of_checkpoints_writes_one_in_each_step() -> None:
    with pytest.raises(ConfigError, match=r"checkpoint.every_steps: this workload only writes checkpoints"):
        workloads.load("llama3_8b", ("checkpoint.every_steps=3",))
