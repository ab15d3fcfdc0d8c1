"""Files that killed jobs leave behind, and what dlio-hpc clean removes of them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.batch import job_record, job_state
from dlio_hpc.files import rundir
from tests.conftest import Run


@pytest.mark.job
def test_clean_removes_the_outputs_of_jobs_that_have_ended(run: Run, tmp_path: Path) -> None:
    made = run("dlio-submit", "metadata_own", "-s", "local", "--ppn", 1, "-S", "metadata.files=5", "--wait", "--json")
    job = made.job["job"]
    data = tmp_path / "dlio-data"
    (data / f"outputs-{job}" / "0" / "0").mkdir(parents=True)
    (data / f"outputs-{job}" / "0" / "0" / "f0.0").touch()
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


@pytest.mark.job
def test_clean_leaves_the_outputs_of_a_script_that_runs(run: Run, tmp_path: Path) -> None:
    """In another PID namespace, the job looks as if it had ended."""
    made = run("dlio-submit", "metadata_own", "-s", "local", "--ppn", 1, "-S", "metadata.files=5", "--wait", "--json")
    outputs = tmp_path / "dlio-data" / f"outputs-{made.job['job']}"
    outputs.mkdir()
    with rundir.locked_now(tmp_path / "dlio-runs" / made.job["job"] / rundir.SCRIPT) as is_mine:
        assert is_mine
        assert "nothing to remove" in run("dlio-hpc", "clean").out
    assert outputs.exists()
    assert f"removed {outputs}" in run("dlio-hpc", "clean").out


def test_clean_names_jobs_whose_state_is_unknown(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch system does not answer: whether a job was ever started is not known."""
    folder = tmp_path / "dlio-runs" / "demo-1"
    folder.mkdir(parents=True)
    (folder / rundir.JOB).touch()

    def refresh(_: Path) -> None:
        raise InfrastructureError("squeue failed: Unable to contact slurm controller")

    monkeypatch.setattr(
        job_record, "load", lambda _: SimpleNamespace(batch_id=None, job="demo-1", scheduler="slurm", host="login")
    )
    monkeypatch.setattr(job_state, "refresh", refresh)
    done = run("dlio-hpc", "clean")
    assert done.code == 6
    assert done.out == "nothing to remove of the jobs whose state is known\n"
    assert "dlio-runs/demo-1 is left out: squeue failed: Unable to contact slurm controller" in done.err
    assert folder.exists()
    (text,) = run("dlio-hpc", "clean", "--json").json["left_out"]
    assert text.endswith("Unable to contact slurm controller")
    elsewhere = SimpleNamespace(batch_id=None, job="demo-1", scheduler="local", host="another")
    monkeypatch.setattr(job_record, "load", lambda _: elsewhere)
    assert run("dlio-hpc", "clean").code == 0, "a job of another host is cleaned there"


@pytest.mark.parametrize("is_given", [False, True])
def test_a_job_of_which_only_the_archive_is_left_is_named(tmp_path: Path, is_given: bool) -> None:
    """Another job with a similar name is not suggested."""
    (tmp_path / "demo-1a").mkdir()
    (tmp_path / "demo-1a" / rundir.JOB).touch()
    (tmp_path / "archive").mkdir()
    archive = tmp_path / "archive" / f"demo-1b{rundir.ARCHIVE_SUFFIX}"
    archive.touch()
    fault = job_record.unknown(tmp_path / "demo-1b", tmp_path / "archive" if is_given else None)
    assert str(fault) == (
        f"job demo-1b has ended, and its directory was removed; dlio-hpc report demo-1b shows its archive, {archive}"
    )
    assert "did you mean 'demo-1a'" in str(job_record.unknown(tmp_path / "demo-1c"))
