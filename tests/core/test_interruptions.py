"""Commands are killed or find the disk full at the worst moment; every verb tells the truth afterwards."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dlio_hpc.base.errors import InfrastructureError
from dlio_hpc.dataset import dataset_folder, dataset_removal, dataset_space
from dlio_hpc.files import rundir
from tests.conftest import BIN, Run
from tests.dataset.test_datasets import _generated, _plan
from tests.project.test_faults import _broken

_KILL = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"


def _killed(action: Callable[[], object], at: str) -> None:
    """Run `action` in a process that is killed at its first call of a function of os."""
    child = os.fork()
    if child == 0:
        setattr(os, at, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
        action()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    folder = tmp_path / "tiny"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tiny", folder], check=False).returncode:
        pytest.skip("mounting a file system takes root")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def _fill(folder: Path) -> Path:
    """Write a file that takes the rest of the space."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


def test_a_kill_while_the_first_mark_is_written_blocks_nothing(tmp_path: Path, run: Run) -> None:
    made = _plan(tmp_path)

    def begin() -> None:
        with dataset_folder.owned(made.stored):
            dataset_space.begin(made.stored, 1)

    folder = Path(made.dataset)
    _killed(begin, "fsync")
    (rest,) = os.listdir(folder)
    assert rest.startswith(f".{dataset_folder.FINGERPRINT_FILE}.")
    shown = run("dlio-hpc", "datasets", "list", "-d", "data")
    assert (shown.code, f"{folder.name} " in shown.out, "unfinished" in shown.out) == (0, True, True), shown
    (listed,) = run("dlio-hpc", "datasets", "list", "-d", "data", "--json").json["datasets"]
    assert (listed["name"], listed["state"]) == (folder.name, "unfinished")
    shown = run("dlio-hpc", "datasets", "verify", "-d", "data")
    assert (shown.code, "its generation did not complete" in shown.out) == (3, True), shown
    assert run("dlio-hpc", "datasets", "remove", "-d", "data", "--unfinished", "--dry-run").code == 0
    shown = run("dlio-hpc", "datasets", "remove", "-d", "data", "--unfinished")
    assert (shown.code, folder.exists()) == (0, False), shown
    _killed(begin, "fsync")
    assert _generated(tmp_path) == folder
    assert dataset_folder.is_complete(made.stored)


def test_a_full_disk_while_the_first_mark_is_written_blocks_nothing(tiny: Path) -> None:
    made = _plan(tiny)
    Path(made.dataset).mkdir(parents=True)
    filler = _fill(tiny)
    with pytest.raises(InfrastructureError, match=f"cannot write {made.dataset}/dlio-dataset.json: No space left"):
        _begun(made)
    filler.unlink()
    _generated(tiny)
    assert dataset_folder.is_complete(made.stored)
    dataset_removal.remove(Path(made.dataset))


def _begun(made: Any) -> None:
    """Call begin(), which finds room when it checks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset_space, "check_space", lambda *_: "")
        dataset_space.begin(made.stored, 1)


def _called(folder: Path, change: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a command in which something goes wrong."""
    environment = _broken(folder, change)
    command = [str(BIN / str(arguments[0])), *map(str, arguments[1:])]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    shutil.rmtree(folder / "broken")
    return done


def _at_save(condition: str, action: str) -> str:
    """Replace the writing of job.json by another action, in some states."""
    return (
        "import dlio_hpc.batch.job_record as job\n"
        "save = job.save\n"
        f"def odd(directory, record):\n    if {condition}:\n        {action}\n    save(directory, record)\n\n"
        "job.save = odd\n"
    )


_FULL = "raise OSError(28, 'No space left on device')"
_HANDED_OVER = "record.batch_id and record.state == 'submitted'"


def _ended(run: Run, directory: Path) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        (job,) = run("dlio-hpc", "status", directory, "--json").json["jobs"]
        if job["state"] not in {"planned", "submitted", "queued", "running"}:
            return str(job["state"])
        time.sleep(0.3)
    raise AssertionError("it does not end")


@pytest.mark.job
@pytest.mark.parametrize("verb", ["wait", "cancel", "collect"])
def test_a_submission_killed_before_it_noted_the_id_is_found(tmp_path: Path, run: Run, small: Path, verb: str) -> None:
    asked = (small, "-s", "local", "--ppn", 1, "-S", f"compute.time={'100s' if verb == 'cancel' else '1ms'}")
    done = _called(tmp_path, _at_save(_HANDED_OVER, _KILL), "dlio-submit", *asked)
    assert done.returncode == -signal.SIGKILL
    (directory,) = (tmp_path / "dlio-runs").glob("small-*")
    if verb == "cancel":
        shown = run("dlio-hpc", "cancel", directory)
        assert (shown.code, "cancelling" in shown.out) == (0, True), shown
        assert _ended(run, directory) == "cancelled"
        return
    if verb == "collect":
        assert _ended(run, directory) == "completed"
    shown = run("dlio-hpc", verb, directory)
    assert shown.code == 0, shown
    assert len(list((tmp_path / "dlio-runs" / "archive").glob("small-*.tar.zst"))) == 1


@pytest.mark.job
def test_a_job_whose_processes_are_gone_as_well_is_lost(tmp_path: Path, run: Run, small: Path) -> None:
    noted = f"open('pid', 'w').write(record.batch_id.partition('.')[0]); {_KILL}"
    asked = (small, "-s", "local", "--ppn", 1, "-S", "compute.time=100s")
    done = _called(tmp_path, _at_save(_HANDED_OVER, noted), "dlio-submit", *asked)
    assert done.returncode == -signal.SIGKILL
    (directory,) = (tmp_path / "dlio-runs").glob("small-*")
    os.killpg(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert _ended(run, directory) == "lost"
    shown = run("dlio-hpc", "wait", directory)
    assert (shown.code, "ended as lost" in shown.err) == (7, True), shown
    assert "had already ended, lost" in run("dlio-hpc", "cancel", directory).out


@pytest.mark.job
def test_a_full_disk_after_the_hand_over_is_told_and_the_job_goes_on(tmp_path: Path, run: Run, small: Path) -> None:
    done = _called(tmp_path, _at_save(_HANDED_OVER, _FULL), "dlio-submit", small, "-s", "local", "--ppn", 1)
    assert done.returncode == 0, done.stderr
    assert "No space left on device; the job continues" in done.stderr
    (directory,) = (tmp_path / "dlio-runs").glob("small-*")
    assert run("dlio-hpc", "wait", directory).code == 0


@pytest.mark.job
def test_a_full_disk_of_runs_is_not_taken_for_the_archives(tmp_path: Path, tiny: Path, run: Run, small: Path) -> None:
    sent = run("dlio-submit", small, "-s", "local", "--ppn", 1, "-o", tiny / "runs", "--archive", "kept", "-d", "data")
    assert sent.code == 0, sent
    (directory,) = (tiny / "runs").glob("small-*")
    _ended(run, directory)
    _fill(tiny)
    shown = run("dlio-hpc", "collect", directory)
    assert shown.code == 0, shown
    assert f"the archive is complete, but {directory}/manifest.json cannot be written: No space left" in shown.err
    (kept,) = (tmp_path / "kept").glob("*.tar.zst")
    assert run("dlio-hpc", "archive", "verify", kept).code == 0


@pytest.mark.job
def test_a_full_disk_of_archives_is_told_with_a_command(tmp_path: Path, tiny: Path, run: Run, small: Path) -> None:
    sent = run("dlio-submit", small, "-s", "local", "--ppn", 1, "--archive", tiny / "kept")
    assert sent.code == 0, sent
    (directory,) = (tmp_path / "dlio-runs").glob("small-*")
    _ended(run, directory)
    (tiny / "kept").mkdir(exist_ok=True)
    filler = _fill(tiny)
    shown = run("dlio-hpc", "collect", directory)
    assert (shown.code, f": {tiny}/kept/" in shown.err, f"dlio-hpc collect {directory}" in shown.err) == (
        6, True, True,
    ), shown  # fmt: skip
    assert os.listdir(tiny / "kept") == []
    filler.unlink()
    assert run("dlio-hpc", "collect", directory).code == 0


def test_what_a_killed_submission_left_is_seen_and_removed(tmp_path: Path, run: Run, small: Path) -> None:
    done = _called(tmp_path, _at_save("True", _KILL), "dlio-submit", small, "-s", "local", "--ppn", 1)
    assert done.returncode == -signal.SIGKILL
    runs = tmp_path / "dlio-runs"
    (left,) = [path for path in runs.iterdir() if path.name != "archive"]
    shown = run("dlio-hpc", "status")
    assert "dlio-hpc clean" in shown.err, shown
    shown = run("dlio-hpc", "clean", "--dry-run")
    assert (shown.code, f"{left.name}: a submission of small-" in shown.out) == (0, True), shown
    assert left.exists()
    assert run("dlio-hpc", "clean").code == 0
    assert not left.exists()
    assert run("dlio-hpc", "clean").out == "nothing to remove\n"


def test_a_directory_that_is_still_being_made_is_no_job(tmp_path: Path, run: Run, small: Path) -> None:
    done = _called(tmp_path, _at_save("True", _KILL), "dlio-submit", small, "-s", "local", "--ppn", 1)
    assert done.returncode == -signal.SIGKILL
    (left,) = [path for path in (tmp_path / "dlio-runs").iterdir() if path.name != "archive"]
    (left / rundir.JOB).write_text("not written whole")
    shown = run("dlio-hpc", "status")
    why = "no jobs in dlio-runs, only leftover files of killed submissions"
    assert (shown.code, why in shown.err) == (2, True), shown


@pytest.mark.job
def test_what_never_started_is_removed_and_what_has_run_stays(tmp_path: Path, run: Run, small: Path) -> None:
    good = Path(run("dlio-submit", small, "-s", "local", "--ppn", 1, "--wait", "--json").job["directory"])
    change = "import dlio_hpc.batch.schedulers.local as local\n" + "\n".join(
        ["from dlio_hpc.batch.schedulers.scheduler_table import SCHEDULERS", f"def odd(*_):\n    {_KILL}\n",
         "SCHEDULERS['local'] = SCHEDULERS['local']._replace(submit=odd)\n"]
    )  # fmt: skip
    assert _called(tmp_path, change, "dlio-submit", small, "-s", "local", "--ppn", 1).returncode == -signal.SIGKILL
    (stray,) = [path for path in (tmp_path / "dlio-runs").glob("small-*") if path != good]
    shown = run("dlio-hpc", "wait", stray)
    assert (shown.code, f"dlio-hpc cancel {stray}" in shown.err) == (7, True), shown
    shown = run("dlio-hpc", "clean")
    assert (shown.code, f"job {stray.name} never started (planned)" in shown.out) == (0, True), shown
    assert (stray.exists(), good.exists()) == (False, True)


@pytest.mark.job
def test_what_a_killed_collect_left_is_removed_and_nothing_is_lost(tmp_path: Path, run: Run, small: Path) -> None:
    assert run("dlio-submit", small, "-s", "local", "--ppn", 1).code == 0
    (directory,) = (tmp_path / "dlio-runs").glob("small-*")
    _ended(run, directory)
    change = f"import dlio_hpc.files.archive as archive\ndef odd(path):\n    {_KILL}\n\narchive.faults = odd\n"
    assert _called(tmp_path, change, "dlio-hpc", "collect", directory).returncode == -signal.SIGKILL
    folder = tmp_path / "dlio-runs" / "archive"
    (left,) = [name for name in os.listdir(folder) if name.endswith(".tmp")]
    shown = run("dlio-hpc", "clean")
    assert (shown.code, left in shown.out) == (0, True), shown
    assert left not in os.listdir(folder)
    assert run("dlio-hpc", "collect", directory).code == 0
    assert run("dlio-hpc", "archive", "verify", next(folder.glob("*.tar.zst"))).code == 0
