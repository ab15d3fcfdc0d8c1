"""Files that killed jobs leave behind, and what dlio-hpc clean removes of them."""

from pathlib import Path

import pytest

from tests.conftest import Run


@pytest.mark.job
def test_clean_removes_the_outputs_of_jobs_that_have_ended(run: Run, tmp_path: Path) -> None:
    made = run("dlio-submit", "metadata_own", "-s", "local", "--ppn", 1, "-S", "metadata.files=5", "--wait", "--json")
    job = made.job["job"]
    data = tmp_path / "dlio-data"
    (data / f"outputs-{job}" / "0").mkdir(parents=True)
    (data / f"outputs-{job}" / "0" / "f0.0").touch()
    (data / "outputs-another").mkdir()
    listed = run("dlio-hpc", "clean", "--dry-run")
    assert f"would remove {data}/outputs-{job}: files of job {job}, which was killed" in listed.out
    assert (data / f"outputs-{job}").exists()
    assert run("dlio-hpc", "clean").code == 0
    assert [path.name for path in data.iterdir()] == ["outputs-another"]
    assert "nothing to remove" in run("dlio-hpc", "clean").out


@pytest.mark.job
def test_clean_leaves_a_link_in_place_of_outputs(run: Run, tmp_path: Path) -> None:
    made = run("dlio-submit", "metadata_own", "-s", "local", "--ppn", 1, "-S", "metadata.files=5", "--wait", "--json")
    data, other = tmp_path / "dlio-data", tmp_path / "other"
    other.mkdir()
    (other / "file").touch()
    (data / f"outputs-{made.job['job']}").symlink_to(other)
    assert "nothing to remove" in run("dlio-hpc", "clean").out
    assert (other / "file").exists()
