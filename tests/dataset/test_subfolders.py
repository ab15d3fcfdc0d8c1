"""Datasets whose files are in subfolders: names, generation by several ranks, verification and removal."""

import errno
import itertools
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from dlio_hpc.base import worker_processes
from dlio_hpc.base.errors import ConfigError, Incomplete, InfrastructureError
from dlio_hpc.config import workload
from dlio_hpc.config.dataset_keys import Dataset, Sample
from dlio_hpc.core import generate as generation
from dlio_hpc.core import write_back
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.verify_dataset import verify
from dlio_hpc.dataset import (
    dataset_folder,
    dataset_removal,
    dataset_space,
    dataset_tree,
    fingerprints,
    resizing,
    written_files,
)
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.dataset.written_files import Span
from dlio_hpc.files import filesystem, safe_folders, user_folders
from dlio_hpc.plan.plan import Run
from tests.conftest import Run as Command
from tests.dataset.test_datasets import _plan, interrupt_removal
from tests.support.ranks import work_on_ranks

_LEVELS = st.one_of(st.tuples(st.integers(1, 40)), st.tuples(st.integers(1, 7), st.integers(1, 9)))


def _dataset(files: int, *folders: int) -> Dataset:
    return Dataset("raw", files, 1, Sample(bytes=10), subfolders=folders or None)  # type: ignore[arg-type]


def _generate(run: Run, ranks: int = 1, stop: Stop | None = None) -> list[Any]:
    """Generate the dataset by several ranks, and return what each rank returns or raises."""
    results: list[Any] = [None] * ranks

    def work(rank: int, comm: Any) -> None:
        try:
            stops = stop or Stop(comm, Path("/nowhere"))
            results[rank] = generation.generate(comm, run, Progress("g", speaks=False), stops)
        except Exception as fault:  # noqa: BLE001
            results[rank] = fault

    work_on_ranks(ranks, work)
    return results


@given(st.integers(1, 500), _LEVELS)
def test_files_are_spread_evenly_and_consecutively(files: int, folders: tuple[int, ...]) -> None:
    leaves = folders[0] * (folders[1] if len(folders) > 1 else 1)
    if leaves > files:
        with pytest.raises(ValueError, match=f"subfolders: {leaves} subfolders for {files} file"):
            _dataset(files, *folders)
        return
    dataset = _dataset(files, *folders)
    places = [dataset_folder.subfolder(dataset, number) for number in range(files)]
    assert places == sorted(places), "consecutive files are in one subfolder"
    counts = [places.count(place) for place in set(places)]
    assert len(counts) == leaves
    assert max(counts) - min(counts) <= 1
    assert all(place.count("/") == len(folders) - 1 for place in places)
    for first, most in ((0, 3), (files // 2, 1000)):
        blocks = list(dataset_folder.blocks(dataset, first, files, most))
        assert [number for _, begin, end in blocks for number in range(begin, end)] == list(range(first, files))
        assert all({places[number] for number in range(begin, end)} == {path} for path, begin, end in blocks)
        assert all(end - begin <= most for _, begin, end in blocks)


def test_the_names_of_a_dataset_with_two_levels() -> None:
    dataset = _dataset(10, 2, 3)
    stored = StoredDataset("/data", dataset, "")
    assert [dataset_folder.file_name(dataset, number) for number in (0, 1, 4, 9)] == [
        "00000/00000/00000000.raw", "00000/00000/00000001.raw", "00000/00002/00000004.raw", "00001/00002/00000009.raw",
    ]  # fmt: skip
    assert dataset_folder.file_path(stored, 9) == "/data/00001/00002/00000009.raw"
    assert dataset_folder.file_path(StoredDataset("/data", _dataset(10, 2), ""), 9) == "/data/00001/00000009.raw"


def test_a_dataset_without_subfolders_keeps_its_fingerprint() -> None:
    flat = _dataset(10)
    assert fingerprints.of(flat) == "47f7f42176e7"
    assert fingerprints.of(_dataset(10, 2)) != fingerprints.of(_dataset(10, 1)) != fingerprints.of(flat)


def test_a_resized_dataset_keeps_the_files_of_a_subfolder() -> None:
    made = workload.load("demo", ("dataset.files=1000", "dataset.samples_per_file=1", "dataset.subfolders=[10, 20]"))
    one = made.dataset.sample_bytes
    for files, folders in ((1000, (10, 20)), (2000, (20, 20)), (100, (1, 20)), (7, (1, 7))):
        assert resizing.resized(made, files * one, 2).dataset.subfolders == folders
    assert made.dataset.of_files(3, 1).subfolders == (1, 3)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("dataset.subfolders=100",), "100 subfolders for"),
        (("dataset.subfolders=[2, 2, 2]",), "dataset.subfolders"),
        (("dataset.subfolders=0",), "dataset.subfolders"),
        (("dataset.subfolders=many",), "dataset.subfolders"),
        (("dataset.subfolders=2", "dataset.format=null"), "set dataset.subfolders=null"),
        (("dataset.subfolders=2", "dataset.existing=train/*.npz"), "set dataset.subfolders=null"),
    ],
)
def test_subfolders_that_cannot_be(keys: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        workload.load("demo", ("dataset.files=16", *keys))


@pytest.mark.parametrize("kind", ["raw", "npz"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_all_ranks_generate_a_dataset_that_is_verified_and_removed(tmp_path: Path, kind: str, ranks: int) -> None:
    run = _plan(tmp_path, f"dataset.format={kind}", "dataset.files=11", "dataset.subfolders=[2, 2]")
    results = _generate(run, ranks)
    assert {(result.files, result.reused) for result in results} == {(11, False)}
    folder = Path(run.dataset)
    assert sorted(path.name for path in folder.iterdir()) == ["00000", "00001", "dlio-dataset.json"]
    assert len(list(folder.glob(f"*/*/*.{kind}"))) == 11
    assert verify(folder, quick=False).faults == ()
    (folder / "00001" / "00000" / f"00000007.{kind}").write_bytes(b"other")
    (folder / "00001" / "notes.txt").touch()
    (folder / "00000" / "00001" / f"00000000.{kind}").touch()
    faults = {fault.file: fault.fault for fault in verify(folder, quick=True).faults}
    assert set(faults) == {f"00001/00000/00000007.{kind}", "00001/notes.txt", f"00000/00001/00000000.{kind}"}
    with pytest.raises(ConfigError, match=f"Move these files away: 00000/00001/00000000.{kind}, 00001/notes.txt$"):
        dataset_removal.remove(folder)
    (folder / "00001" / "notes.txt").unlink()
    (folder / "00000" / "00001" / f"00000000.{kind}").unlink()
    assert dataset_removal.remove(folder)[0] == 12
    assert not folder.exists()
    assert {result.reused for result in _generate(run, ranks)} == {False}
    assert {result.reused for result in _generate(run, ranks)} == {True}


def test_a_generation_continues_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=20", "dataset.subfolders=4")
    monkeypatch.setattr(generation, "_MOST_FILES", 2)
    monkeypatch.setattr(generation, "_RECORD_BYTES", 1)
    left = [3]

    class Near(Stop):
        def __init__(self) -> None: ...

        def check(self, message: str) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise Incomplete(f"the time limit is near, {message}")

    (stopped,) = _generate(run, 1, Near())
    assert isinstance(stopped, Incomplete)
    assert "rank 0 has written 5 of its 20 files" in str(stopped), "a block ends with its subfolder"
    folder = Path(run.dataset)
    assert [path.name for path in folder.glob(".written-*")] == [".written-0-5"]
    assert not verify(folder, quick=True).bytes
    before = (folder / "00000" / "00000004.raw").stat().st_mtime_ns
    results = _generate(run, 3)
    assert {result.files for result in results} == {15}
    assert (folder / "00000" / "00000004.raw").stat().st_mtime_ns == before
    assert not list(folder.glob(".written-*"))
    assert verify(folder, quick=False).faults == ()


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6), st.integers(1, 25), st.integers(1, 7))
def test_ranks_write_each_missing_file_once(
    tmp_path_factory: pytest.TempPathFactory, spans: list[tuple[int, int]], files: int, ranks: int
) -> None:
    folder = tmp_path_factory.mktemp("records")
    with safe_folders.opened(folder) as descriptor:
        for first, end in spans:
            written_files.record(descriptor, Span(first, end), None)
        written = {number for first, end in spans for number in range(first, end)}
        missing = written_files.missing(files, written_files.recorded(descriptor))
        shares = [list(written_files.of_rank(missing, ranks, rank)) for rank in range(ranks)]
        numbers = [[number for span in share for number in range(*span)] for share in shares]
        assert list(itertools.chain(*numbers)) == [number for number in range(files) if number not in written]
        assert max(map(len, numbers)) - min(map(len, numbers)) <= 1
        written_files.clear(descriptor)
        assert not os.listdir(descriptor)


def test_many_files_are_verified_and_removed_by_several_processes(tmp_path: Path) -> None:
    run = _plan(
        tmp_path, "dataset.format=raw", "dataset.files=30", "dataset.samples_per_file=1", "dataset.sample={bytes: 8}",
        "dataset.subfolders=[3, 2]",
    )  # fmt: skip
    _generate(run)
    (Path(run.dataset) / "00001" / "00001" / "00000017.raw").unlink()
    program = (
        "import sys; from pathlib import Path; from dlio_hpc.base import worker_processes; "
        "from dlio_hpc.core import verify_dataset; from dlio_hpc.dataset import dataset_removal; "
        "verify_dataset._PART = dataset_removal._BATCH = 4; worker_processes.count = lambda files: 3; "
        "folder = Path(sys.argv[1]); findings = verify_dataset.verify(folder, quick=False); "
        "print(findings.files, *findings.faults); "
        "print(*dataset_removal.remove(folder))"
    )
    done = subprocess.run([sys.executable, "-c", program, run.dataset], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    verified, removed = done.stdout.splitlines()
    assert verified == "30 DatasetFault(file='00001/00001/00000017.raw', fault='is missing')"
    assert removed.split()[0] == "30"
    assert not Path(run.dataset).exists()


def test_results_of_processes_are_in_order_and_errors_are_raised() -> None:
    assert list(worker_processes.mapped(str, range(100), 1)) == list(map(str, range(100)))
    program = (
        "from dlio_hpc.base import worker_processes as w\n"
        "print(list(w.mapped(str, range(100), 3)) == list(map(str, range(100))))\n"
        "try:\n  list(w.mapped(int, ['1', 'x'], 2))\nexcept ValueError as fault:\n  print(fault)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "True\ninvalid literal for int() with base 10: 'x'\n"


def test_a_link_in_place_of_a_subfolder_is_not_followed(tmp_path: Path) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    folder, aside = Path(run.dataset), tmp_path / "aside"
    (folder / "00001").rename(aside)
    (folder / "00001").symlink_to(aside)
    with pytest.raises(ConfigError, match=r"Move these files away: 00001$"):
        dataset_removal.remove(folder)
    assert len(list(aside.iterdir())) == 3
    dataset_folder.mark(run.stored, complete=False)
    (result,) = _generate(run)
    assert str(result) == f"{folder}/00001 is a link or not a folder; nothing was written; remove it"
    assert len(list(aside.iterdir())) == 3


@pytest.mark.skipif(os.getuid() != 0, reason="changing the owner of a file takes root")
def test_a_file_of_another_user_is_not_removed(tmp_path: Path) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    folder = Path(run.dataset)
    os.chown(folder / "00001" / "00000004.raw", 65534, -1)
    with pytest.raises(ConfigError, match=r"00001/00000004.raw \(of user 65534, the dataset is of user 0\)$"):
        dataset_removal.remove(folder)
    assert len(list(folder.glob("*/*.raw"))) == 6
    folder.chmod(0o775)  # as with the umask 002; this is not sharing
    with pytest.raises(ConfigError, match=r"00001/00000004.raw \(of user 65534, the dataset is of user 0\)$"):
        dataset_removal.remove(folder)
    for shared in (folder, folder.parent):  # shared with a group, whose members may have generated a part
        shared.chmod(0o2775)
    assert dataset_removal.remove(folder)[0] == 7


@pytest.mark.skipif(os.getuid() != 0, reason="changing the owner of a folder takes root")
@pytest.mark.parametrize("inner", ["00001", "00001/00000"])
def test_a_subfolder_of_another_user_is_not_removed(tmp_path: Path, inner: str) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=[2, 2]")
    _generate(run)
    os.chown(Path(run.dataset, inner), 65534, -1)
    with pytest.raises(ConfigError, match=rf"{inner} \(of user 65534, the dataset is of user 0\)$"):
        dataset_removal.remove(Path(run.dataset))
    assert len(list(Path(run.dataset).glob("*/*/*.raw"))) == 6


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_nothing_is_removed_below_a_mount_point(tmp_path: Path) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    inner = Path(run.dataset) / "00001"
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(inner)], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        (inner / "00000004.raw").write_text("mounted")
        with pytest.raises(ConfigError, match=r"Move these files away: 00001$"):
            dataset_removal.remove(Path(run.dataset))
        assert (inner / "00000004.raw").read_text() == "mounted"
    finally:
        subprocess.run(["umount", str(inner)], check=True)


@contextmanager
def _bind_mount(inner: Path, other: Path) -> Iterator[None]:
    """Mount the new folder `other`, which has a file with the name of a sample file, at the subfolder `inner`."""
    other.mkdir()
    (other / "00000004.raw").write_text("mine")
    if subprocess.run(["mount", "--bind", str(other), str(inner)], check=False, capture_output=True).returncode:
        pytest.skip("mounting is not permitted here")
    try:
        yield
    finally:
        subprocess.run(["umount", str(inner)], check=True)


def test_nothing_is_removed_behind_a_bind_mount(tmp_path: Path) -> None:
    """A bind mount of the same file system has the same device number."""
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    other = tmp_path / "other"
    with _bind_mount(Path(run.dataset) / "00001", other):
        with pytest.raises(ConfigError, match=r"Move these files away: 00001$"):
            dataset_removal.remove(Path(run.dataset))
        assert (other / "00000004.raw").read_text() == "mine"
        assert (Path(run.dataset) / "00000" / "00000000.raw").exists()


def test_nothing_is_generated_behind_a_bind_mount(tmp_path: Path) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    dataset_folder.mark(run.stored, complete=False)
    inner, other = Path(run.dataset) / "00001", tmp_path / "other"
    with _bind_mount(inner, other):
        (result,) = _generate(run)
        assert isinstance(result, ConfigError)
        assert f"{inner} is a mount point in an unfinished dataset" in str(result)
        assert [path.read_text() for path in other.iterdir()] == ["mine"]


def test_a_lost_file_is_not_trusted_while_it_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The generation is killed while it writes a file that was recorded and then lost."""
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    folder, lost = Path(run.dataset), Path(run.dataset) / "00000" / "00000001.raw"
    dataset_folder.mark(run.stored, complete=False)
    (folder / ".written-0-6").touch()
    size = lost.stat().st_size
    lost.unlink()

    def killed(*_: Any) -> int:
        lost.write_bytes(b"part")
        raise InfrastructureError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(generation, "_write_files", killed)
        (result,) = _generate(run)
    assert isinstance(result, InfrastructureError)
    assert {path.name for path in folder.glob(".written-*")} == {".written-0-1", ".written-2-6"}
    _generate(run)
    assert lost.stat().st_size == size


@pytest.mark.parametrize("place", ["folder", "record", "file"])
def test_no_inodes_left_is_said_for_subfolders_and_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    run = _plan(tmp_path, "dataset.format=npz", "dataset.files=6", "dataset.subfolders=[2, 2]")
    full = os.statvfs_result((4096, 4096, 100, 50, 50, 1000, 0, 0, 0, 255))
    mkdir, created = os.mkdir, safe_folders.created
    beginning = {"folder": "00001", "record": ".written-0-", "file": "00000000.npz"}[place]

    def refused(made: Any, name: str, arguments: tuple[Any, ...], **keys: Any) -> Any:
        if str(name).startswith(beginning):
            raise OSError(28, "No space left on device", name)
        return made(*arguments, **keys)

    monkeypatch.setattr(os, "mkdir", lambda name, *rest, **keys: refused(mkdir, name, (name, *rest), **keys))
    monkeypatch.setattr(safe_folders, "created", lambda folder, name: refused(created, name, (folder, name)))
    monkeypatch.setattr(os, "fstatvfs", lambda _: full)
    statvfs = os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda path: full if Path(path) == Path(run.dataset) else statvfs(path))
    monkeypatch.setattr(dataset_space, "check_space", lambda *_: "")
    (result,) = _generate(run)
    assert isinstance(result, InfrastructureError)
    assert re.search(rf"{run.dataset}/.*{beginning}.*: the file system has no inodes left \(df -i\)", str(result))


def _put(kind: str, place: Path, target: Path) -> None:
    """Create a file, a folder, a pipe, or a link to `target`."""
    if kind == "link":
        place.symlink_to(target)
    else:
        make: dict[str, Callable[[Path], None]] = {"file": Path.touch, "folder": Path.mkdir, "pipe": os.mkfifo}
        make[kind](place)


@pytest.mark.parametrize("kind", ["file", "link", "pipe"])
@pytest.mark.parametrize("name", ["00001", "00001/00000"])
def test_what_is_in_the_place_of_a_subfolder_is_named(tmp_path: Path, kind: str, name: str) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=[2, 2]")
    place = Path(run.dataset, name)
    place.parent.mkdir(parents=True)
    dataset_folder.mark(run.stored, complete=False)
    _put(kind, place, tmp_path)
    for records in ((), (".written-0-6",)):
        for record in records:
            Path(run.dataset, record).touch()
        (result,) = _generate(run)
        assert isinstance(result, ConfigError)
        assert str(result) == f"{place} is a link or not a folder; nothing was written; remove it"


@pytest.mark.parametrize("kind", ["raw", "npz", "hdf5", "tfrecord", "csv", "npy", "parquet"])
def test_recorded_files_that_changed_are_written_again(tmp_path: Path, kind: str) -> None:
    run = _plan(tmp_path, f"dataset.format={kind}", "dataset.files=12", "dataset.subfolders=3")
    _generate(run)
    folder = Path(run.dataset)
    dataset_folder.mark(run.stored, complete=False)
    (folder / ".written-0-12").touch()
    for number, content in ((1, b""), (5, b"not yours"), (8, bytes(100_000))):
        (folder / f"{number // 4:05}" / f"{number:08}.{kind}").write_bytes(content)
    assert _generate(run)[0].files == 3
    assert verify(folder, quick=False).faults == ()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_recorded_files_that_are_not_files_are_refused(tmp_path: Path, kind: str) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    dataset_folder.mark(run.stored, complete=False)
    (Path(run.dataset) / ".written-0-6").touch()
    file = Path(run.dataset) / "00001" / "00000004.raw"
    file.rename(tmp_path / "aside")
    _put(kind, file, tmp_path / "aside")
    (result,) = _generate(run)
    assert isinstance(result, ConfigError)
    assert str(result) == f"{file} is a link or not a regular file; nothing was written; remove it"


@pytest.mark.skipif(os.getuid() != 0, reason="changing the owner of a file takes root")
@pytest.mark.parametrize("kind", ["raw", "npz"])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_file_of_another_user_is_not_overwritten(tmp_path: Path, kind: str, is_recorded: bool) -> None:
    run = _plan(tmp_path, f"dataset.format={kind}", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    dataset_folder.mark(run.stored, complete=False)
    if is_recorded:
        (Path(run.dataset) / ".written-0-6").touch()
    file = Path(run.dataset) / "00001" / f"00000004.{kind}"
    file.write_text("a thesis")
    os.chown(file, 65534, -1)
    (result,) = _generate(run)
    assert isinstance(result, ConfigError)
    assert f"{file} is of user 65534, but its folder is of user 0; the file was not written" in str(result)
    assert file.read_text() == "a thesis"
    for shared in (Path(run.data), Path(run.dataset), file.parent):
        shared.chmod(0o2775)
    assert _generate(run)[0].files == (1 if is_recorded else 6)


def _stored(folder: Path, files: int, size: int, *folders: int) -> StoredDataset:
    dataset = Dataset("raw", files, 1, Sample(bytes=size), subfolders=folders or None)  # type: ignore[arg-type]
    return StoredDataset(str(folder / "raw-x"), dataset, fingerprints.of(dataset))


def test_inodes_of_subfolders_and_records_are_needed(tmp_path: Path) -> None:
    assert dataset_space.needs(_stored(tmp_path, 100, 10)).files == 100 + 4
    assert dataset_space.needs(_stored(tmp_path, 100, 10, 100)).files == 2 * 100 + 4
    assert dataset_space.needs(_stored(tmp_path, 100, 10, 5, 10), ranks=3).files == 100 + 5 + 50 + 4 + 6


def test_each_file_takes_whole_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = _stored(tmp_path, 8500, 100)
    assert dataset_space.needs(stored).size == pytest.approx(850_000 * 1.02)
    assert dataset_space.needs(stored, 4096).size == pytest.approx(8500 * 4096 * 1.02)
    assert dataset_space.needs(_stored(tmp_path, 10, 8192), 4096).size == pytest.approx(10 * 8192 * 1.02)
    monkeypatch.setattr(filesystem, "free", lambda _: 12 << 20)
    monkeypatch.setattr(filesystem, "block_size", lambda _: 4096)
    with pytest.raises(ConfigError, match=r"needs 33.87 MiB \(each file takes whole blocks of 4 KiB\), but"):
        dataset_space.check_space([stored], tmp_path)
    monkeypatch.setattr(filesystem, "block_size", lambda _: 1)
    assert dataset_space.check_space([stored], tmp_path).startswith("846.7 KiB needed, 12 MiB free")


@pytest.mark.parametrize(("kind", "block"), [(0xEF53, 4096), (0x01021994, 4096), (0x6969, 1), (filesystem.LUSTRE, 1)])
def test_blocks_count_where_they_are_known(monkeypatch: pytest.MonkeyPatch, kind: int, block: int) -> None:
    monkeypatch.setattr(filesystem, "magic", lambda _: kind)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((1 << 20, 4096, 1, 1, 1, 1, 1, 1, 0, 255)))
    assert filesystem.block_size(Path("/")) == block


@pytest.mark.parametrize("folders", [(), (5,), (2, 3)])
def test_an_unfinished_dataset_needs_what_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: tuple[int, ...]
) -> None:
    run = _plan(
        tmp_path, "dataset.format=raw", "dataset.files=30", "dataset.samples_per_file=1",
        f"dataset.subfolders={list(folders) or 'null'}",
    )  # fmt: skip
    whole = dataset_space.needs(run.stored)
    _generate(run)
    assert dataset_space.needs(run.stored) == (0, 0, True)
    dataset_folder.mark(run.stored, complete=False)
    for number in range(20, 30):
        Path(dataset_folder.file_path(run.stored, number)).unlink()
    rest = dataset_space.needs(run.stored)
    assert rest.files == 10 + 1, "and a temporary file"
    assert whole.size * 9 / 30 <= rest.size <= whole.size * 10 / 30
    monkeypatch.setattr(filesystem, "free_inodes", lambda _: 11)
    assert "11 inodes needed, 11 free" in dataset_space.check_space([run.stored], tmp_path)
    monkeypatch.setattr(filesystem, "free_inodes", lambda _: 10)
    with pytest.raises(ConfigError, match=r"needs 11 inodes for files and folders, but .* has 10 left"):
        dataset_space.check_space([run.stored], tmp_path)

    def refused(*_: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(dataset_tree, "folders", refused)
    assert "unknown how much the unfinished datasets lack" in dataset_space.check_space([run.stored], tmp_path)


def test_no_inodes_left_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    full = os.statvfs_result((4096, 4096, 100, 50, 50, 1000, 0, 0, 0, 255))

    def refused(*_: Any) -> tuple[int, bool]:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safe_folders, "writable", refused)
    monkeypatch.setattr(os, "fstatvfs", lambda _: full)
    (result,) = _generate(run)
    assert isinstance(result, InfrastructureError)
    assert "No space left on device: the file system has no inodes left (df -i)" in str(result)


def test_the_fingerprint_file_holds_the_subfolders(tmp_path: Path) -> None:
    run = _plan(tmp_path, "dataset.files=6", "dataset.subfolders=[1, 2]")
    _generate(run)
    known = dataset_folder.read(Path(run.dataset))
    assert known is not None
    assert known.dataset.subfolders == (1, 2)
    other = structs.replace(run.workload.dataset, subfolders=(2, 1))
    assert fingerprints.of(other) != run.fingerprint


@pytest.mark.parametrize("complete", [True, False])
def test_the_rest_of_an_interrupted_removal_is_generated_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, complete: bool
) -> None:
    """The records of the generation are not trusted any more when the first file is removed."""
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=12", "dataset.subfolders=3")
    _generate(run)
    folder = Path(run.dataset)
    (folder / ".written-0-12").touch()
    dataset_folder.mark(run.stored, complete=complete)
    interrupt_removal(folder, 6, monkeypatch)
    assert 0 < len(list(folder.glob("*/*.raw"))) < 12
    assert {(result.files, result.reused) for result in _generate(run, 2)} == {(12, False)}
    assert verify(folder, quick=False).faults == ()


def test_a_failed_sync_is_not_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system reports a failed write only once: at the second sync, all seems well."""
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=12", "dataset.subfolders=3")
    syncs = [0]

    def sync(_: int) -> None:
        syncs[0] += 1
        if syncs[0] == 2:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(write_back, "sync_file_system", sync)
    monkeypatch.setattr(generation, "_MOST_FILES", 2)
    monkeypatch.setattr(generation, "_RECORD_S", 0.0)
    (result,) = _generate(run)
    assert isinstance(result, (InfrastructureError, OSError))
    assert [path.name for path in Path(run.dataset).glob(".written-*")] == [".written-0-2"]
    assert _generate(run)[0].files == 10


def test_recorded_files_that_are_missing_are_written_again(tmp_path: Path) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=12", "dataset.subfolders=3")
    _generate(run)
    folder = Path(run.dataset)
    dataset_folder.mark(run.stored, complete=False)
    (folder / ".written-0-7").touch()
    (folder / ".written-7-12").touch()
    for number in (1, 2, 9):
        (folder / f"{number // 4:05}" / f"{number:08}.raw").unlink()
    assert {result.files for result in _generate(run, 3)} == {3}
    assert verify(folder, quick=False).faults == ()


def test_a_file_that_is_added_during_a_removal_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=2")
    _generate(run)
    folder = Path(run.dataset)
    remove_subfolders = dataset_removal._remove_subfolders

    def added(*arguments: Any) -> list[str]:
        (folder / "notes.txt").write_text("a thesis")
        return remove_subfolders(*arguments)

    monkeypatch.setattr(dataset_removal, "_remove_subfolders", added)
    with pytest.raises(ConfigError, match=r"added while the dataset was removed: notes\.txt"):
        dataset_removal.remove(folder)
    assert (folder / "notes.txt").read_text() == "a thesis"
    assert not dataset_folder.is_complete(run.stored)


@pytest.mark.parametrize("name", ["00001/00001/notes.txt", "00001/notes.txt", "00000/00000/00000000.raw"])
def test_a_file_that_is_added_to_a_subfolder_during_a_removal_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6", "dataset.subfolders=[2, 2]")
    _generate(run)
    file, remove_subfolders = Path(run.dataset, name), dataset_removal._remove_subfolders

    def added(*arguments: Any) -> list[str]:
        file.write_text("a thesis")
        return remove_subfolders(*arguments)

    monkeypatch.setattr(dataset_removal, "_remove_subfolders", added)
    with pytest.raises(ConfigError, match=rf"added while the dataset was removed: {name}\. Move them away"):
        dataset_removal.remove(Path(run.dataset))
    assert file.read_text() == "a thesis"
    assert not dataset_folder.is_complete(run.stored)


def test_a_dataset_that_a_job_began_to_read_meanwhile_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = _plan(tmp_path, "dataset.format=raw", "dataset.files=6")
    _generate(run)
    folder = Path(run.dataset)
    with dataset_folder.being_read(run.dataset):
        with pytest.raises(ConfigError, match="a job is reading the dataset"):
            dataset_removal.remove(folder)
        assert verify(folder, quick=True).faults == ()
        assert dataset_removal.remove(folder, force=True)[0] == 7


def test_children_end_with_their_parent(tmp_path: Path) -> None:
    """Otherwise they would hold the locks of a process that was killed."""
    program = (
        "import os, sys, time; from dlio_hpc.base import worker_processes as w\n"
        "def work(n):\n  os.write(1, b'%d\\n' % os.getpid()); time.sleep(60)\n"
        "list(w.mapped(work, range(2), 2))"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        children = [int(parent.stdout.readline()) for _ in range(2)]
        parent.kill()
        parent.wait()
        ends = time.monotonic() + 10
        while any(Path(f"/proc/{child}").exists() and not _is_zombie(child) for child in children):
            assert time.monotonic() < ends
            time.sleep(0.05)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@given(
    st.lists(st.integers(0, 30), unique=True), st.lists(st.tuples(st.integers(0, 15), st.integers(0, 15)), max_size=2)
)
def test_files_are_taken_out_of_spans(lost: list[int], ends: list[tuple[int, int]]) -> None:
    spans = [Span(20 * place + min(pair), 20 * place + max(pair)) for place, pair in enumerate(ends)]
    rest = written_files.without(spans, sorted(lost))
    kept = {number for span in spans for number in range(*span)} - set(lost)
    assert [number for span in rest for number in range(*span)] == sorted(kept)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE, errno.EACCES])
@pytest.mark.parametrize("failures", [1, 99])
def test_a_subfolder_that_is_stale_for_a_moment_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, failures: int
) -> None:
    left, entered = [failures], safe_folders.entered

    def stale(name: str, folder: int) -> int:
        if left[0]:
            left[0] -= 1
            raise OSError(code, os.strerror(code), name)
        return entered(name, folder)

    monkeypatch.setattr(dataset_tree, "_PAUSES_S", (0.0, 0.0))
    with safe_folders.opened(tmp_path) as folder:
        monkeypatch.setattr(safe_folders, "entered", stale)
        if code == errno.EACCES or failures > 1:
            message = f"cannot use {tmp_path}/00001/00002: {os.strerror(code)}"
            with pytest.raises(InfrastructureError, match=re.escape(message)):
                dataset_tree.make(folder, "00001/00002")
        else:
            dataset_tree.make(folder, "00001/00002")
            assert (tmp_path / "00001" / "00002").is_dir()


@pytest.fixture
def half_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Generate a dataset of 30 files and an auxiliary file, and kill its verification after 13 of the sample files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    run = _plan(
        tmp_path, "dataset.format=raw", "dataset.files=30", "dataset.samples_per_file=1", "dataset.sample={bytes: 8}",
        "dataset.subfolders=3", "dataset.auxiliary_files=[{name: side, bytes: 10}]",
    )  # fmt: skip
    _generate(run)
    time.sleep(0.02)  # files that changed in the clock tick of the end of the generation are checked again
    dataset_folder.mark(run.stored, complete=True)
    assert _verified(Path(run.dataset), "verification_record._INTERVAL_S = 0", kill_at=13).returncode == -signal.SIGKILL
    return Path(run.dataset)


def _verified(folder: Path, change: str = "", kill_at: int | None = None) -> subprocess.CompletedProcess[str]:
    """Verify a dataset, one file at a time, in a process that prints the number of each file that it checks. kill_at:
    number of the sample file at which the process kills itself.
    """
    program = f"""
import os, sys
from pathlib import Path
from dlio_hpc.core import verification_record, verify_dataset
{change}
verify_dataset._PART = 1
check = verify_dataset._check
def killed(layout, number, quick):
    print(number, end=" ", flush=True)
    if number == {kill_at}:
        os.kill(os.getpid(), 9)
    return check(layout, number, quick)
verify_dataset._check = killed
result = verify_dataset.verify(Path(sys.argv[1]), *map(bool, map(int, sys.argv[2:])))
print()
print(result.files, result.bytes, result.earlier_files, result.began is not None, *result.faults)
"""
    options = [str(int(change.startswith("#quick"))), str(int(change.startswith("#start")))]
    command = [sys.executable, "-c", program, str(folder), *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_killed_verification_is_continued(half_verified: Path) -> None:
    _damage(half_verified, 20)
    done = _verified(half_verified)
    numbers, result = done.stdout.splitlines()
    assert list(map(int, numbers.split())) == list(range(13, 30))
    assert result.startswith("31 250 14 True DatasetFault(file='00002/00000020.raw', fault='byte 0 differs")
    assert "an interrupted verification that began at 20" in done.stderr
    assert "checked 14 files; the others are checked now; --from-start checks all files" in done.stderr
    again = _verified(half_verified).stdout.splitlines()[0]
    assert len(again.split()) == 31, "the verification is complete, so that the next one checks all files"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("#quick", "only names were checked before, or now"),
        ("#start", "the user asks for all files"),
        ("verification_record._KEPT_S = 0", "the record is old"),
        ("os.utime(Path(sys.argv[1]) / 'dlio-dataset.json', (1, 1))", "the dataset was generated again"),
        ("os.truncate(next(Path(os.environ['XDG_CACHE_HOME'], 'dlio-hpc').glob('verified-*')), 20)", "it is damaged"),
        ("os.chmod(Path(os.environ['XDG_CACHE_HOME'], 'dlio-hpc'), 0o777)", "others can write a record"),
        ("os.chmod(next(Path(os.environ['XDG_CACHE_HOME'], 'dlio-hpc').glob('*')), 0o666)", "others can write to it"),
        ("os.geteuid = lambda: 12345", "the record is of another user"),
    ],
)
def test_a_verification_is_not_continued_if(half_verified: Path, change: str, why: str) -> None:
    _damage(half_verified, 3)
    numbers, result = _verified(half_verified, change).stdout.splitlines()
    assert len(numbers.split()) == 31, why
    assert result.startswith("31 250 0 False")
    assert ("DatasetFault" in result) == (change != "#quick")


def test_files_that_changed_after_an_interrupted_verification_are_checked_again(half_verified: Path) -> None:
    files = [next(half_verified.glob(f"*/{number:08}.raw")) for number in range(8)]
    files[1].unlink()
    files[2].write_bytes(b"")
    _damage(half_verified, 3)
    os.utime(files[3], (1, 1))
    files[4].unlink()
    files[4].symlink_to("/dev/zero")
    files[5].write_bytes(files[5].read_bytes())
    (half_verified / "side-side").unlink()
    done = _verified(half_verified)
    numbers, result = done.stdout.splitlines()
    assert list(map(int, numbers.split())) == [-1, 1, 2, 3, 4, 5, *range(13, 30)]
    assert "checked 14 files; 6 of them changed since the dataset was generated, and are checked again" in done.stderr
    assert result.startswith("31 216 8 True")
    for fault in (
        "side-side', fault='is missing", "01.raw', fault='is missing", "02.raw', fault='has 0 bytes",
        "03.raw', fault='byte 0 differs", "04.raw', fault='is not a regular file",
    ):  # fmt: skip
        assert fault in result
    assert result.count("DatasetFault") == 6, "and the link does not belong to the dataset"


@pytest.mark.skipif(os.getuid() != 0, reason="changing the owner of a link takes root")
def test_a_link_of_another_user_does_not_lead_to_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "elsewhere").mkdir(0o700)
    (tmp_path / "dlio-hpc").symlink_to("elsewhere")
    assert user_folders.private_cache() == tmp_path / "dlio-hpc"
    os.lchown(tmp_path / "dlio-hpc", 65534, -1)
    assert user_folders.private_cache() is None


def test_an_interrupted_verification_outlives_a_check_of_names(half_verified: Path) -> None:
    assert len(_verified(half_verified, "#quick").stdout.splitlines()[0].split()) == 31
    assert list(map(int, _verified(half_verified).stdout.splitlines()[0].split())) == list(range(13, 30))


def test_a_record_before_a_fault_is_not_extended(half_verified: Path) -> None:
    _damage(half_verified, 15)
    assert _verified(half_verified, "verification_record._INTERVAL_S = 0", kill_at=25).returncode == -signal.SIGKILL
    numbers, result = _verified(half_verified).stdout.splitlines()
    assert list(map(int, numbers.split())) == list(range(15, 30)), "the faulty file is checked again"
    assert "00000015.raw" in result


def test_the_command_says_what_an_interrupted_verification_checked(half_verified: Path, run: Command) -> None:
    document = run("dlio-hpc", "datasets", "verify", half_verified, "--json").json
    (entry,) = document["datasets"]
    assert (entry["files"], entry["earlier_files"]) == (31, 14)
    assert entry["began"] is not None
    assert run("dlio-hpc", "datasets", "verify", half_verified, "--json").json["datasets"][0]["began"] is None


def _damage(folder: Path, number: int) -> None:
    """Change a byte of a sample file."""
    with open(next(folder.glob(f"*/{number:08}.raw")), "r+b") as file:
        byte = file.read(1)[0]
        file.seek(0)
        file.write(bytes([byte ^ 1]))


_ODD_NAMES = [
    "00000000.raw", "0000000.raw", "00000001.npz", "1.raw", "a", "00000001.raw\n", "00000001.raw\n00000002.raw",
    "\u0660" * 8 + ".raw", "00000299.raw", "000000001.raw",
]  # fmt: skip


@given(
    files=st.integers(1, 300), leaves=st.integers(1, 9), data=st.data(),
    more=st.lists(st.sampled_from(_ODD_NAMES), max_size=3),
)  # fmt: skip
def test_foreign_names_of_a_subfolder(files: int, leaves: int, data: st.DataObject, more: list[str]) -> None:
    dataset = _dataset(max(files, leaves), leaves)
    place = data.draw(st.integers(0, leaves - 1))
    own = [n for n in range(dataset.files) if n * leaves // dataset.files == place]
    names = [*data.draw(st.lists(st.sampled_from([f"{n:08}.raw" for n in own]), max_size=5)), *more]
    expected = {name for name in names if name not in {f"{n:08}.raw" for n in own}}
    assert dataset_folder.foreign_in(dataset, f"{place:05}", names) == expected
