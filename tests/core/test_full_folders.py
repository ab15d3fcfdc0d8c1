"""What a full folder of runs, a server that is down and a missing mount do to jobs: nothing complete is lost, and no
advice loses data.
"""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.batch import job_record, jobscript
from dlio_hpc.config import site, workload
from dlio_hpc.core import run as core
from dlio_hpc.files import filesystem, rundir
from dlio_hpc.records import job_outcome
from tests.conftest import Run
from tests.core.test_stopped_runs import _plan, ranks_of, wait_until
from tests.support import planning
from tests.support.recordings import leave, merged


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 2 MiB for the folder of runs."""
    folder = tmp_path / "full"
    folder.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "t", folder], check=False).returncode
    ):
        pytest.skip("mounting needs root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.job
def test_a_result_survives_when_the_folder_of_runs_is_full(
    run: Run, tmp_path: Path, small: Path, full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is filled while the ranks are in their steps."""
    spare = tmp_path / "spare"
    spare.mkdir()
    monkeypatch.setenv("TMPDIR", str(spare))
    started = run(
        "dlio-submit", small, "-s", "local", "--ppn", 2, "--json", "-o", full / "runs", "-d", tmp_path / "data",
        "--archive", tmp_path / "archive", "-S", "train.epochs=16", "-S", "compute.time=200 ms",
    )  # fmt: skip
    folder = Path(started.job["directory"])
    wait_until(lambda: len(ranks_of(folder)) == 2)
    time.sleep(3)  # until they are in their steps, which take 13 s
    with (full / "filler").open("wb", 0) as filler, suppress(OSError):
        while filler.write(bytes(4096)):
            pass
    waited = run("dlio-hpc", "wait", folder)
    assert waited.code == 6, waited.err
    (kept,) = (spare / f"dlio-hpc-{os.getuid()}").glob("*/runs/01-measure/result.json")
    outcome = job_outcome.load(folder)
    assert outcome.job.state == "failed"
    assert outcome.runs[-1].result is not None
    assert outcome.runs[-1].result.summary is not None
    assert outcome.runs[-1].result.summary.steps == outcome.runs[-1].result.summary.steps_planned
    assert job_outcome.run_fault(outcome, outcome.runs[-1]) is None
    report = run("dlio-hpc", "report", folder)
    assert f"{full / 'runs'} is full" in report.out, report.out
    (full / "filler").unlink()
    assert run("dlio-hpc", "collect", folder).code == 0
    archived = job_outcome.load_archive(tmp_path / f"archive/{folder.name}.tar.zst")
    assert archived.runs[-1].result == outcome.runs[-1].result, "the archive has the result too"
    assert (folder / "runs/01-measure/result.json").read_bytes() == kept.read_bytes()


def test_a_spare_folder_that_another_user_may_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    job = tmp_path / "runs/demo-1"
    assert rundir.keep_spare(job, "runs/00/result.json", b"{}") == rundir.spare(job) / "runs/00/result.json"
    assert rundir.spare_content(job, "runs/00/result.json") == b"{}"
    rundir.spare(job).parent.chmod(0o777)
    assert rundir.spare_content(job, "runs/00/result.json") is None
    assert rundir.keep_spare(job, "x", b"") is None
    rundir.spare(job).parent.rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o700)
    rundir.spare(job).parent.symlink_to(tmp_path / "elsewhere")
    assert rundir.keep_spare(job, "x", b"") is None, "links are not followed"
    assert rundir.spare_content(job, "runs/00/result.json") is None


def test_a_lost_job_in_a_full_folder_says_where_its_results_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _plan(tmp_path)
    leave(tmp_path / made.job, made, merged(made))
    outcome = job_outcome.load(tmp_path / made.job)
    lost = outcome._replace(job=job_record.with_state(job_record.planned(made, "", ()), "lost", "forgotten"))
    assert "is full" not in str(job_outcome.fault(lost))
    monkeypatch.setattr(filesystem, "free", lambda _: 4096)
    assert f"{tmp_path} is full, so its results may be in $TMPDIR/dlio-hpc-" in str(job_outcome.fault(lost))


def test_a_job_does_not_run_where_a_mount_is_missing(run: Run, tmp_path: Path) -> None:
    kind = filesystem.of(tmp_path).kind
    assert filesystem.unexpected(tmp_path, kind) is None
    assert filesystem.unexpected(tmp_path, None) is None
    why = filesystem.unexpected(tmp_path / "not/yet/there", "lustre")
    assert f"is on {kind}" in str(why)
    assert "the site expects lustre (site.file_system); is it mounted here?" in str(why)
    checked = run(
        "dlio-hpc", "check", "demo", "-s", "local", "-d", tmp_path, "-S", "site.file_system=lustre", "--no-launch"
    )
    assert checked.code == 6
    assert "is it mounted here?" in checked.out + checked.err


@pytest.mark.job
def test_a_job_on_the_disk_below_a_missing_mount_fails_and_writes_nothing(
    run: Run, tmp_path: Path, small: Path
) -> None:
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, "--wait", "--json", "-S", "site.file_system=lustre")
    assert done.code == 6
    assert "is it mounted here?" in done.job["stderr"][0]
    assert not list((tmp_path / "dlio-data").glob("*/*.npz"))


def test_results_that_do_not_fit_are_infrastructure_not_a_bug() -> None:
    assert core.ResultKept.exit_code == InfrastructureError.exit_code


@pytest.mark.job
def test_a_script_removes_nothing_behind_a_link_in_place_of_the_spare_folder(tmp_path: Path) -> None:
    """Another user knows the name of the folder, and makes a link to the folder of runs of its owner."""
    made = planning.make(workload.load("null"), site.load("local"), planning.Request(runs=tmp_path / "runs"))
    directory = Path(made.directory)
    directory.mkdir(parents=True)
    (directory / "kept").write_text("kept")
    (directory / rundir.SCRIPT).write_text(jobscript.render(made))
    (tmp_path / f"dlio-hpc-{os.getuid()}").symlink_to(directory.parent)
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    subprocess.run(["bash", rundir.SCRIPT], cwd=directory, env=environment, check=False, capture_output=True)
    assert (directory / "kept").read_text() == "kept"
    assert (directory / rundir.SCRIPT).exists()
