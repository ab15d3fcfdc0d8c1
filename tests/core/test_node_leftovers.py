"""Killed ranks leave nothing on their node, and nothing that a live process needs is removed."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dlio_hpc.core import node_leftovers
from tests.conftest import Run
from tests.support.node_files import MAP, OPEN, OTHER_USER, aged, holding, kill, processes, ranks, shared
from tests.support.standins.login import text, until


class Node(NamedTuple):
    """Folders that stand for those of a node."""

    shm: Path
    temporary: Path

    def clear(self) -> None:
        node_leftovers.clear(str(self.shm), [str(self.temporary)])


@pytest.fixture
def node() -> Iterator[Node]:
    """The path is short, because it is part of the names of sockets."""
    with tempfile.TemporaryDirectory() as folder:
        made = Node(Path(os.path.realpath(folder), "shm"), Path(os.path.realpath(folder), "tmp"))
        made.shm.mkdir()
        made.temporary.mkdir()
        yield made


def _only(monkeypatch: pytest.MonkeyPatch, *processes: subprocess.Popen[str]) -> None:
    """Hide all processes but these: other tests run MPI and TensorFlow at the same time."""
    monkeypatch.setattr(node_leftovers, "_numbers", lambda: {process.pid for process in processes})


@pytest.mark.parametrize("code", [MAP, OPEN], ids=["mapped", "open"])
@pytest.mark.parametrize("name", ["mpich_shm_1_0", "sm_segment.vm.0.1.0", "vader_segment.vm.0.1.0", "sem.mp-abc"])
def test_a_segment_stays_as_long_as_a_process_has_it(node: Node, name: str, code: str) -> None:
    path = aged(node.shm / name)
    with holding(code, path):
        node.clear()
        assert path.exists()
    node.clear()
    assert not path.exists()


def test_a_segment_that_a_process_may_be_about_to_open_stays(node: Node) -> None:
    recent, marked = aged(node.shm / "mpich_shm_1_0", 1), aged(node.shm / "mpich_shm_2_0", 1, 0o700)
    node.clear()
    assert (recent.exists(), marked.exists()) == (True, False)


def test_a_rank_marks_the_segments_that_it_maps(node: Node) -> None:
    """The kernel changes their time whenever a rank touches a page for the first time; the mark stays."""
    mine, others = aged(node.shm / "mpich_shm_1_0"), aged(node.shm / "mpich_shm_2_0")
    unknown = aged(node.shm / "data")
    code = f"{MAP.replace('[1]', '[2]')}; {MAP.replace('m =', 'n =')}"
    code += "; from dlio_hpc.core import node_leftovers; node_leftovers.mark(sys.argv[3]); n[0] = 1"
    with holding(code, mine, unknown, node.shm):
        pass
    modes = [path.stat().st_mode & 0o777 for path in (mine, others, unknown)]
    assert modes == [0o700, 0o600, 0o600]


def test_what_is_unknown_stays(node: Node) -> None:
    paths = [aged(node.shm / name) for name in ("mpich_shm_", "PostgreSQL.1", "sem.other", "psm_12345678")]
    paths += [aged(node.temporary / name) for name in ("pymp-file", "notes.py", "ompi.1.txt")]
    node.clear()
    assert all(path.exists() for path in paths)


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files to another user takes root")
def test_files_of_other_users_stay(node: Node) -> None:
    paths = [aged(node.shm / "mpich_shm_1_0", mode=0o700), aged(node.temporary / "hydra_hwloc_xmlfile_1")]
    for path in paths:
        os.chown(path, OTHER_USER, OTHER_USER)
    node.clear()
    assert all(path.exists() for path in paths)


def test_links_are_not_followed(node: Node, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    kept = aged(tmp_path / "kept" / "listener-1")
    for link in (node.temporary / "pymp-1", node.temporary / "ompi.999999999", node.shm / "mpich_shm_1_0"):
        link.symlink_to(tmp_path / "kept")
    node.clear()
    assert kept.exists()


def _listening(folder: Path, lives: bool) -> socket.socket:
    folder.mkdir()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / "listener-1"))
    listener.listen()
    listener.setblocking(False)
    if not lives:
        listener.close()
    return listener


def test_folders_of_multiprocessing_stay_while_someone_listens(node: Node) -> None:
    live, dead = node.temporary / "pymp-live", node.temporary / "pymp-dead"
    (node.temporary / "pymp-empty").mkdir()
    _listening(dead, lives=False)
    mixed = node.temporary / "pymp-mixed"
    _listening(mixed, lives=False)
    (mixed / "pym-1").write_text("not a socket")
    with _listening(live, lives=True) as listener:
        node.clear()
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert sorted(path.name for path in node.temporary.iterdir()) == ["pymp-empty", "pymp-live", "pymp-mixed"]
    node.clear()
    assert not live.exists()


def test_folders_of_open_mpi_stay_while_their_process_lives(node: Node) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    names = ["ompi.{}", "prterun.vm.x.{}.0", "prted.session.vm.{}.0", "ompi.vm.0/pid.{}"]
    live, left = ([node.temporary / name.format(number) for name in names] for number in (os.getpid(), dead.pid))
    for folder in (*live, *left):
        (folder / "1").mkdir(parents=True)
        (folder / "1" / "shared").write_text("")
    node.clear()
    assert [path.exists() for path in live] == [True] * 4
    assert [path.exists() for path in left] == [False] * 4


def test_a_folder_of_open_mpi_stays_while_a_rank_maps_a_file_in_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = node.temporary / "ompi.999999999"
    (folder / "1").mkdir(parents=True)
    with holding(MAP, aged(folder / "1" / "pmix-gds")) as rank:
        _only(monkeypatch, rank)
        node.clear()
        assert folder.exists()
    _only(monkeypatch)
    node.clear()
    assert not folder.exists()


def test_a_topology_stays_while_a_proxy_lives_that_may_have_written_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of a process is that of the link by which it was started."""
    proxy = node.temporary / "hydra_pmi_proxy"
    proxy.symlink_to(os.path.realpath(sys.executable))
    own, older = node.temporary / "hydra_hwloc_xmlfile_own", aged(node.temporary / "hydra_hwloc_xmlfile_old")
    with holding("import sys", python=proxy) as process:
        own.write_text("<topology/>")
        _only(monkeypatch, process)
        node.clear()
        assert (own.exists(), older.exists()) == (True, False)
    _only(monkeypatch)
    node.clear()
    assert not own.exists()


def test_sources_of_autograph_stay_while_a_process_has_tensorflow(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    source = aged(node.temporary / "__autograph_generated_file1.py")
    with holding(MAP, aged(node.temporary / "libtensorflow_framework.so.2")) as process:
        _only(monkeypatch, process)
        node.clear()
        assert source.exists()
    _only(monkeypatch)
    node.clear()
    assert not source.exists()


def test_folders_that_nodes_may_share_are_left_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of other nodes are not seen."""
    path = aged(node.temporary / "hydra_hwloc_xmlfile_1")
    _only(monkeypatch)
    monkeypatch.setattr(node_leftovers, "_LOCAL", {"nfs"})
    node.clear()
    assert path.exists()


@pytest.mark.parametrize(("option", "stays"), [("--kill-child", True), ("--ipc", False)])
def test_a_container_that_does_not_see_all_processes_removes_nothing(node: Node, option: str, stays: bool) -> None:
    """It may remove what lies in shared memory of its own."""
    path = aged(node.shm / "mpich_shm_1_0")
    code = "import sys; from dlio_hpc.core import node_leftovers; node_leftovers.clear(sys.argv[1], [])"
    unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc", option]
    done = subprocess.run([*unshare, sys.executable, "-c", code, node.shm], capture_output=True, text=True, check=False)
    if done.returncode and "unshare" in done.stderr:
        pytest.skip("namespaces cannot be made here")
    assert (done.returncode, path.exists()) == (0, stays), done.stderr


def test_the_program_runs_without_the_package(node: Node, tmp_path: Path) -> None:
    """The job script starts it by its path with any Python."""
    program = shutil.copy(node_leftovers.__file__, tmp_path / "node_leftovers.py")
    left = aged(node.temporary / "ompi.999999999.txt")
    folder = node.temporary / "ompi.999999999"
    folder.mkdir()
    environment = {"TMPDIR": str(node.temporary)}
    done = subprocess.run([sys.executable, "-IS", program, tmp_path], env=environment, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (left.exists(), folder.exists()) == (True, False)


class Started(NamedTuple):
    """A job that runs its measured steps. shared: files in shared memory that its processes map. temporary: its folder
    of temporary files.
    """

    directory: Path
    temporary: Path
    shared: list[Path]

    def processes(self) -> list[int]:
        return processes(self.directory)

    def left(self) -> list[Path]:
        return [path for path in (*self.shared, *self.temporary.rglob("*")) if path.exists()]

    def kill_all(self) -> None:
        """Kill the script, the launcher and all ranks, as the kernel does when a node loses power."""
        leader = int(json.loads((self.directory / "job.json").read_bytes())["batch_id"].split(".")[0])
        os.killpg(leader, signal.SIGKILL)
        for number in self.processes():
            kill(number)
        until(lambda: not self.processes())


@pytest.fixture
def start(small: Path, run: Run, tmp_path: Path) -> Iterator[Callable[..., Started]]:
    """Start jobs with a short path for temporary files."""
    with tempfile.TemporaryDirectory(prefix="t", ignore_cleanup_errors=True) as temporary:

        def call(*options: object) -> Started:
            usual = ("-s", "local", "-d", "data", "--ppn", 2, "-S", "compute.time=1s", "-S", "train.epochs=60")
            done = run("dlio-submit", small, *usual, *options, "--json", TMPDIR=temporary)
            assert done.code == 0, done.err
            directory = Path(done.job["directory"])
            until(lambda: "== 01-measure" in text(directory / "job.out"))
            until(lambda: shared(directory) and (options == _BUSY or "01-measure 1/" in text(directory / "job.out")))
            return Started(directory, Path(temporary), shared(directory))

        yield call


def _cancel(started: Started, run: Run) -> None:
    assert run("dlio-hpc", "cancel", started.directory).code == 0


def _kill_one(started: Started, run: Run) -> None:
    os.kill(ranks(started.directory)[0], signal.SIGKILL)


def _kill_ranks(started: Started, run: Run) -> None:
    for number in processes(started.directory, b"dlio_hpc.core"):
        kill(number)


def _remove_data(started: Started, run: Run) -> None:
    """Make all ranks fail by themselves."""
    for path in (started.directory.parent.parent / "data").rglob("*.npz"):
        path.write_bytes(b"")


def _wait(started: Started, run: Run) -> None:
    """Let the time limit come."""


_WORKERS = ("-S", "reader.loader=pytorch", "-S", "reader.multiprocessing_context=spawn")


_BUSY = (
    "-t", "15s", "-S", "train.epochs=1", "-S", "compute.time=1 ms", "-S", "reader.preprocess_time=30s", "-S",
    "reader.prefetch=0",
)  # fmt: skip
# What ends a job, options of the job, and the exit codes that it may have. If a rank is killed, hydra ends with the
# number of the signal, or with 137.
_ENDS = {
    "cancelled": (_cancel, (), {143}),
    "cancelled, with worker processes": (_cancel, _WORKERS, {143}),
    "a rank is killed": (_kill_one, (), {9, 137}),
    "a rank is killed, with worker processes": (_kill_one, _WORKERS, {9, 137}),
    "all ranks are killed": (_kill_ranks, (), {9, 137}),
    "ranks fail": (_remove_data, ("-S", "dataset.files=60", "-S", "reader.prefetch=0"), {3}),
    "time limit": (_wait, _BUSY, {124}),
}


@pytest.mark.usefixtures("foreign")
@pytest.mark.parametrize(("ends", "options", "codes"), _ENDS.values(), ids=_ENDS)
def test_a_job_leaves_nothing_on_its_node(
    start: Callable[..., Started],
    run: Run,
    ends: Callable[[Started, Run], None],
    options: tuple[object, ...],
    codes: set[int],
) -> None:
    if options == _WORKERS:
        pytest.importorskip("torch")
    started = start(*options)
    ends(started, run)
    until((started.directory / "exit_status").exists)
    until(lambda: not started.processes())
    assert int((started.directory / "exit_status").read_text()) in codes
    assert started.left() == []


@pytest.mark.usefixtures("foreign")
def test_the_next_job_removes_what_a_job_left_that_was_killed_outright(
    start: Callable[..., Started], run: Run, small: Path
) -> None:
    started = start()
    started.kill_all()
    assert started.left() == started.shared
    done = run("dlio-submit", small, "-s", "local", "-d", "data", "--ppn", 1, "--wait", TMPDIR=str(started.temporary))
    assert done.code == 0, done.err
    assert started.left() == []


def test_a_job_beside_a_live_one_takes_nothing_from_it(start: Callable[..., Started], run: Run, small: Path) -> None:
    started = start()
    done = run("dlio-submit", small, "-s", "local", "-d", "data", "--ppn", 1, "--wait", TMPDIR=str(started.temporary))
    assert done.code == 0, done.err
    assert [path.exists() for path in started.shared] == [True] * len(started.shared)
    _cancel(started, run)
    until((started.directory / "exit_status").exists)
