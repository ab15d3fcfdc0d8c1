"""Nothing is written through what other users of the file system leave in a shared folder."""

import os
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.core import auxiliary_files
from dlio_hpc.core.checkpoint import Checkpoints
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.generate import generate
from dlio_hpc.core.procfs import ExcludedIO
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.verify_dataset import verify
from dlio_hpc.dataset import dataset_folder, dataset_removal
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan
from tests.conftest import Run
from tests.dataset.test_datasets import _plan

_ME, _OTHER, _GROUP = 61001, 61002, 61000
_FORMATS = ("npz", "hdf5", "raw", "csv", "tfrecord")

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="becoming another user takes root")


class _Alone:
    """The communicator of one rank."""

    rank, size = 0, 1

    def bcast(self, value: Any) -> Any:
        return value

    allreduce = bcast

    def allgather(self, value: Any) -> list[Any]:
        return [value]


def _generate(run: plan.Run) -> None:
    comm: Any = _Alone()
    generate(comm, run, Progress("generate", speaks=False), Stop(comm, Path("/nowhere")))


def _of(shared: Path, kind: str) -> plan.Run:
    more = ("dataset.samples_per_file=1",) if kind == "raw" else ()
    return _plan(shared, f"dataset.format={kind}", "dataset.auxiliary_files=[{name: meta, bytes: 100}]", *more)


@pytest.fixture(scope="module", autouse=True)
def _imported(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Import these modules early: another user may not be able to read them."""
    import pwd

    assert h5py, zipfile
    assert pwd
    for kind in _FORMATS:
        _generate(_of(tmp_path_factory.mktemp("once"), kind))


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder in which everybody may make folders, as on scratch file systems; tmp_path is its user's alone."""
    with tempfile.TemporaryDirectory() as name:
        for folder in (Path(name), Path(name, "data")):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        yield Path(name)


def _as(user: int, action: Callable[[], object], group: int | None = None, umask: int = 0o022) -> tuple[int, str]:
    """Run `action` as another user in a process of its own; return its exit code and the message of its fault."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code, message = 0, ""
        os.umask(umask)
        os.setgroups([] if group is None else [group])
        os.setgid(user)
        os.setuid(user)
        try:
            action()
        except Exception as fault:  # noqa: BLE001 - told to the parent
            code, message = getattr(fault, "exit_code", 70), f"{type(fault).__name__}: {fault}"
        os.write(writing, message.encode()[:4000])
        os._exit(code)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return os.waitstatus_to_exitcode(status), pipe.read()


def _precious(shared: Path) -> Path:
    """A file of mine that nobody else may read."""
    path = shared / "precious"
    path.write_text("a thesis")
    path.chmod(0o600)
    os.chown(path, _ME, _ME)
    return path


def _plant(run: plan.Run, user: int, mode: int = 0o777) -> Path:
    """An unfinished dataset of a user, with its mark."""
    folder = Path(run.dataset)

    def make() -> None:
        os.makedirs(folder)
        dataset_folder.write(folder, dataset_folder.Fingerprint(run.fingerprint, run.workload.dataset, complete=False))
        folder.chmod(mode)

    assert _as(user, make) == (0, "")
    return folder


@pytest.mark.parametrize("kind", _FORMATS)
@pytest.mark.parametrize("name", ["file", "side", "mark"])
def test_a_planted_link_is_not_written_through(shared: Path, kind: str, name: str) -> None:
    run, precious = _of(shared, kind), _precious(shared)
    folder = _plant(run, _OTHER)
    names = {"file": dataset_folder.file_name(run.workload.dataset, 1), "side": "side-meta", "mark": None}
    if (linked := names[name]) is not None:
        assert _as(_OTHER, lambda: (folder / linked).symlink_to(precious)) == (0, "")
    code, message = _as(_ME, lambda: _generate(run))
    assert precious.read_text() == "a thesis"
    assert code == 2, message
    assert f"belongs to user number {_OTHER}" in message
    assert "Choose another --data" in message


@pytest.mark.parametrize("kind", _FORMATS)
@pytest.mark.parametrize("link", ["symbolic", "hard", "pipe"])
def test_a_link_in_my_own_unfinished_dataset_is_not_written_through(shared: Path, kind: str, link: str) -> None:
    """Others may have put the link there if the folder was made with a umask of 0."""
    run, precious = _of(shared, kind), _precious(shared)
    folder = _plant(run, _ME)
    path = folder / dataset_folder.file_name(run.workload.dataset, 1)
    if link == "symbolic":
        _as(_OTHER, lambda: path.symlink_to(precious))
    elif link == "hard":
        os.link(precious, path)
    else:
        _as(_OTHER, lambda: os.mkfifo(path))
    code, message = _as(_ME, lambda: _generate(run))
    assert precious.read_text() == "a thesis"
    assert (code, f"{path} is a link or not a regular file" in message) == (2, True), message


@pytest.mark.parametrize("what", ["folder", "lock", "temporary"])
def test_links_in_the_place_of_folder_lock_and_temporary_names(shared: Path, what: str) -> None:
    run, precious = _of(shared, "npz"), _precious(shared)
    folder = Path(run.dataset)
    mine = shared / "mine"
    mine.mkdir()
    os.chown(mine, _ME, _ME)
    if what == "folder":
        _as(_OTHER, lambda: folder.symlink_to(mine))
    elif what == "lock":
        _as(_OTHER, lambda: dataset_folder.lock_file(folder).symlink_to(shared / "mine" / "made"))
    else:  # every name that this process could have made by its number
        _plant(run, _ME)

        def foretell() -> None:
            for number in range(os.getpid(), os.getpid() + 300):
                (folder / f".{dataset_folder.FINGERPRINT_FILE}.{number}.tmp").symlink_to(precious)

        assert _as(_OTHER, foretell) == (0, "")
    code, message = _as(_ME, lambda: _generate(run))
    assert precious.read_text() == "a thesis"
    assert list(mine.iterdir()) == []
    assert code == (0 if what == "temporary" else 2), message


def test_what_my_group_shares_is_taken_over_where_that_was_asked_for(shared: Path) -> None:
    run = _of(shared, "npz")
    data = shared / "data"
    os.chown(data, -1, _GROUP)
    data.chmod(0o2775)

    def begin() -> None:
        os.makedirs(run.dataset)
        dataset_folder.mark(run.stored, complete=False)

    assert _as(_OTHER, begin, _GROUP, umask=0o002) == (0, "")
    assert _as(_ME, lambda: _generate(run), _GROUP, umask=0o002) == (0, "")
    assert verify(Path(run.dataset), quick=False).faults == ()
    assert stat.S_IMODE(Path(run.dataset, "00000000.npz").stat().st_mode) == 0o664
    assert _as(_OTHER, lambda: dataset_removal.remove(Path(run.dataset)), _GROUP) == (0, "")
    for mode, umask in ((0o2777, 0o002), (0o775, 0o002), (0o2775, 0o022)):  # not asked for
        data.chmod(mode)
        assert _as(_OTHER, begin, _GROUP, umask)[0] == 0
        code, message = _as(_ME, lambda: _generate(run), _GROUP, umask=0o002)
        assert (code, "belongs to user" in message) == (2, True), message
        dataset_removal.remove(Path(run.dataset))
        dataset_folder.lock_file(Path(run.dataset)).unlink(missing_ok=True)


def test_a_whole_dataset_of_another_user_is_still_read(shared: Path) -> None:
    run = _of(shared, "npz")
    assert _as(_OTHER, lambda: _generate(run)) == (0, "")
    assert _as(_ME, lambda: _generate(run)) == (0, "")
    assert Path(run.dataset, "00000000.npz").stat().st_uid == _OTHER


@pytest.mark.parametrize("what", ["checkpoint", "side"])
def test_outputs_are_written_to_a_folder_of_mine_alone(shared: Path, what: str) -> None:
    sides = "dataset.auxiliary_files=[{name: log, bytes: 10, access: write, when: step}]"
    run, precious = _plan(shared, "checkpoint={model_bytes: 1000}", sides), _precious(shared)
    names = ("rank00000-0.ckpt", "rank00000-log")

    def plant() -> None:
        os.mkdir(run.outputs, 0o777)
        for name in names:
            Path(run.outputs, name).symlink_to(precious)

    def write() -> None:
        keys = run.workload.checkpoint
        assert keys is not None
        if what == "checkpoint":
            Checkpoints(run, keys, 0).save()
        else:
            auxiliary_files.AuxiliaryFiles(run, 0, ExcludedIO()).due("step")

    assert _as(_OTHER, plant) == (0, "")
    code, message = _as(_ME, write)
    assert precious.read_text() == "a thesis"
    assert (code, "belongs to user" in message) == (2, True), message
    for path in Path(run.outputs).iterdir():
        path.unlink()
    Path(run.outputs).rmdir()
    Path(run.outputs).symlink_to(shared)
    assert _as(_ME, write)[0] == 2
    Path(run.outputs).unlink()
    assert _as(_ME, write) == (0, "")
    assert stat.S_IMODE(os.stat(run.outputs).st_mode) == 0o700


@pytest.mark.parametrize("kind", ["pipe", "endless", "long"])
def test_a_mark_that_is_no_file_holds_nobody_up(tmp_path: Path, run: Run, kind: str) -> None:
    folder = tmp_path / "data" / "odd"
    folder.mkdir(parents=True)
    note = folder / dataset_folder.FINGERPRINT_FILE
    if kind == "pipe":
        os.mkfifo(note)
    elif kind == "endless":
        note.symlink_to("/dev/zero")
    else:
        with note.open("wb") as file:
            file.truncate(1 << 40)
    shown = run("dlio-hpc", "datasets", "list", "-d", "data")
    assert (shown.code, str(note) in shown.err) == (2, True), shown


def test_a_mark_that_promises_too_much_is_removed_and_verified_in_no_time(tmp_path: Path) -> None:
    made = _plan(tmp_path, "dataset.files=1000000000000", "train.steps=1")
    folder = Path(made.dataset)
    folder.mkdir(parents=True)
    dataset_folder.write(folder, dataset_folder.Fingerprint(made.fingerprint, made.workload.dataset, complete=True))
    assert len(verify(folder, quick=True).faults) < 2000
    dataset_removal.remove(folder)
    assert not folder.exists()


def test_a_folder_that_is_swapped_while_it_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is removed from the folder that took its name."""
    made = _plan(tmp_path)
    _generate(made)
    folder, aside = Path(made.dataset), tmp_path / "aside"
    begun = dataset_folder.begun

    def swapped(path: Path, inside: Path | None = None) -> dataset_folder.Fingerprint | None:
        if inside is not None:
            folder.rename(aside)
            folder.mkdir()
            (folder / "00000000.npz").write_text("another one's")
        return begun(path, inside)

    monkeypatch.setattr(dataset_folder, "begun", swapped)
    with pytest.raises(Exception, match="cannot remove"):
        dataset_removal.remove(folder)
    assert (folder / "00000000.npz").read_text() == "another one's"


def test_temporary_names_cannot_be_foretold_and_links_are_not_followed(shared: Path) -> None:
    precious = _precious(shared)
    with rundir.replacing(shared / "data" / "x") as temporary:
        (name,) = os.listdir(shared / "data")
        (shared / "data" / name).unlink()
        (shared / "data" / name).symlink_to(precious)  # while it is written
        temporary.write_bytes(b"content")
    assert precious.read_text() == "a thesis"


def test_a_database_that_is_a_link_is_not_opened(shared: Path) -> None:
    from dlio_hpc.verdict import history

    target = shared / "made"
    for name in (rundir.HISTORY, rundir.HISTORY_LOCK):
        (shared / "data" / name).symlink_to(target)
        with pytest.raises(ConfigError, match="is a symbolic link"):
            history.take_in(shared / "data")
        assert not target.exists()
        (shared / "data" / name).unlink()


@pytest.mark.parametrize("kind", ["pipe", "endless"])
def test_files_of_others_that_are_none_hold_no_verb_up(tmp_path: Path, run: Run, kind: str) -> None:
    archives = tmp_path / "dlio-runs" / "archive"
    names = [tmp_path / "dlio-runs" / "odd" / rundir.JOB, archives / rundir.BASELINES / "odd.json"]
    for path in names:
        path.parent.mkdir(parents=True)
        if kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("/dev/zero")
    for arguments, path in ((("status",), names[0]), (("collect",), names[0]), (("baseline", "list"), names[1])):
        shown = run("dlio-hpc", *arguments)
        assert (shown.code, f"{path.relative_to(tmp_path)} is not a regular file" in shown.err) == (2, True), shown
    shown = run("dlio-hpc", "history")
    assert (shown.code, "odd.json is not a record of a baseline" in shown.err) == (0, True), shown
