"""dlio-hpc datasets lists what exists, finds every change to it, and never removes anything else."""

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import pytest
from msgspec.structs import replace

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.batch import job_record
from dlio_hpc.config import site, workload
from dlio_hpc.config.format_facts import FORMATS
from dlio_hpc.core import auxiliary_files
from dlio_hpc.core.verify_dataset import verify
from dlio_hpc.dataset import dataset_folder, dataset_removal, dataset_space
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan
from tests.conftest import Run
from tests.support import planning, written

_SPREAD = ("dataset.sample={bytes: 1000, stdev: 200, seed: 3}",)
_ARRAYS = ("dataset.sample={bytes: 840}", "dataset.arrays=[700, 120, 8, 12]")
_TAR_ARRAYS = "dataset.arrays=[2700, 120, 8, 12]"
_IMAGES = ("dataset.samples_per_file=1", "dataset.sample={bytes: 3000, stdev: 500}")
_STORED: dict[str, tuple[str, ...]] = {
    "npz": (),
    "npz spread": _SPREAD,
    "npz arrays": _ARRAYS,
    "npz gzip": ("dataset.compression=gzip", "dataset.random_bits=3"),
    "tfrecord": ("dataset.format=tfrecord",),
    "tfrecord spread": ("dataset.format=tfrecord", *_SPREAD),
    "tfrecord gzip": ("dataset.format=tfrecord", "dataset.compression=gzip", "dataset.random_bits=3", *_SPREAD),
    "tfrecord zlib": ("dataset.format=tfrecord", "dataset.compression=zlib", "dataset.random_bits=3"),
    "hdf5": ("dataset.format=hdf5",),
    "hdf5 spread": ("dataset.format=hdf5", *_SPREAD),
    "hdf5 arrays": ("dataset.format=hdf5", *_ARRAYS),
    "hdf5 chunked": ("dataset.format=hdf5", "dataset.chunk=[2, 7, 3]"),
    "hdf5 gzip": ("dataset.format=hdf5", "dataset.compression=gzip", "dataset.random_bits=3"),
    "hdf5 lzf": ("dataset.format=hdf5", "dataset.compression=lzf", "dataset.random_bits=3", "reader.mode=framework"),
    "hdf5 shared": ("dataset.format=hdf5", "dataset.file_access=shared", "dataset.files=1"),
    "csv": ("dataset.format=csv",),
    "npy": ("dataset.format=npy",),
    "npy spread": ("dataset.format=npy", *_SPREAD),
    "jpeg": ("dataset.format=jpeg", *_IMAGES),
    "png": ("dataset.format=png", *_IMAGES, "dataset.image={width: 40, height: 25}"),
    "raw": ("dataset.format=raw",),
    "tar": ("dataset.format=tar",),
    "tar spread": ("dataset.format=tar", *_SPREAD),
    "tar arrays": ("dataset.format=tar", *_ARRAYS),
    "tar arrays spread": ("dataset.format=tar", "dataset.sample={bytes: 2840, stdev: 600}", _TAR_ARRAYS),
    "indexed": ("dataset.format=indexed",),
    "indexed spread": ("dataset.format=indexed", *_SPREAD),
    "indexed documents": ("dataset.format=indexed", "dataset.documents={tokens: 31, stdev: 12}"),
    "parquet": ("dataset.format=parquet", "dataset.sample={shape: [5], dtype: float32}"),
    "zarr": ("dataset.format=zarr",),
    "zarr chunked": ("dataset.format=zarr", "dataset.chunk=[2, 7, 3]", "dataset.zarr={version: 2}"),
    "zarr shards": ("dataset.format=zarr", "dataset.chunk=[2, 7, 3]", "dataset.zarr={shard: [2, 14, 6]}"),
    "zarr zstd": ("dataset.format=zarr", "dataset.compression=zstd", "dataset.random_bits=3"),
    "one a file": ("dataset.samples_per_file=1", *_SPREAD),
}


def test_each_format_is_among_the_stored_ones() -> None:
    lacking = [name for name in FORMATS if name not in _STORED and name != "null"]
    assert not lacking, f"add to _STORED: {lacking}"


def _plan(folder: Path, *overrides: str) -> plan.Run:
    request = planning.Request(runs=folder / "runs", data=folder / "data")
    return planning.make(_demo(*overrides), site.load("local"), request).runs[0]


def _demo(*overrides: str) -> workload.Workload:
    small = ("dataset.files=3", "dataset.samples_per_file=5", "dataset.sample={shape: [30, 7], dtype: float32}")
    return workload.load("demo", (*small, *overrides))


def _generated(folder: Path, *overrides: str, complete: bool = True) -> Path:
    """Write a dataset as the core leaves it."""
    run = _plan(folder, *overrides)
    with dataset_folder.owned(run.stored):
        dataset_space.begin(run.stored, 1)
        for side in dataset_folder.sides(run.workload.dataset):
            with open(dataset_folder.side_path(run.stored, side), "wb") as file:
                auxiliary_files.write(file.fileno(), side)
        for number in range(dataset_folder.file_count(run.workload.dataset)):
            written.write(dataset_folder.file_path(run.stored, number), run.workload.dataset, number)
        if complete:
            dataset_folder.mark(run.stored, complete=True)
    return Path(run.dataset)


def _faults(folder: Path, quick: bool = False) -> dict[str, str]:
    return {fault.file: fault.fault for fault in verify(folder, quick).faults}


def _flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def _places(path: Path) -> list[int]:
    """Return offsets in samples and in what the format puts before them; HDF5 has bytes between that nobody reads."""
    if path.suffix != ".hdf5":
        return [0, path.stat().st_size // 3, path.stat().st_size // 2]
    with h5py.File(path) as file:
        first, last = min(file), max(file)
        array = file[first].id
        if (offset := array.get_offset()) is not None:
            return [0, offset, offset + 2000, file[last].id.get_offset() + 7]
        chunks = [array.get_chunk_info(number) for number in range(array.get_num_chunks())]
    return [0, chunks[0].byte_offset, chunks[-1].byte_offset]


@pytest.mark.parametrize("name", _STORED)
def test_a_flipped_byte_is_found_in_every_format(tmp_path: Path, name: str) -> None:
    folder = _generated(tmp_path, *_STORED[name])
    for quick in (True, False):
        assert _faults(folder, quick) == {}
    for path in sorted(
        path for path in folder.rglob("*") if path.is_file() and path.name != dataset_folder.FINGERPRINT_FILE
    ):
        for at in _places(path):
            _flip(path, at)
            (fault,) = _faults(folder).items()
            assert fault[0] == str(path.relative_to(folder))
            _flip(path, at)
    assert _faults(folder) == {}


@pytest.mark.parametrize(
    ("name", "at", "message"),
    [
        ("npz", 4096 + 2 * 840, "byte 5776 differs from the generated contents (sample 7)"),
        ("npz", 4095, "byte 4095 differs from the generated contents"),
        # The archive has headers of 184 bytes; the arrays have 3500, 600, 40 and 60 bytes.
        ("npz arrays", 3684 + 184 + 3 * 120 + 1, "byte 4229 differs from the generated contents (sample 8)"),
        ("npz arrays", 3684 + 184 + 600 + 100, "byte 4568 differs from the generated contents"),
        ("npz arrays", 3684 + 14, "its header and its directory differ"),
        ("npz gzip", 0, "is not a dlio-hpc dataset file, or is corrupted: "),
        ("npy", 128 + 2 * 840, "byte 1808 differs from the generated contents (sample 7)"),
        ("npy", 127, "byte 127 differs from the generated contents"),
        # A sample of 840 bytes takes 512 + 1024 bytes; five of them end at byte 7680.
        ("tar", 2 * 1536, "byte 3072 differs from the generated contents (sample 7)"),
        ("tar", 3 * 1536 - 1, "byte 4607 differs from the generated contents (sample 7)"),
        ("tar", 7680, "byte 7680 differs from the generated contents"),
        ("tar", 10239, "byte 10239 differs from the generated contents"),
        # Four members of 700, 120, 8 and 12 bytes take 1536 bytes and three times 1024 bytes.
        ("tar arrays", 4608 + 1536 + 100, "byte 6244 differs from the generated contents (sample 6)"),
        ("tfrecord", 3 * 856 - 1, "byte 2567 differs from the generated contents (sample 7)"),
        ("tfrecord spread", 5079, "byte 5079 differs from the generated contents (sample 9)"),
        ("hdf5", 2048 + 3 * 840, "byte 2520 of its array differs from the generated contents (sample 8)"),
        ("hdf5", 2048 + 5 * 840 - 1, "byte 4199 of its array differs from the generated contents (sample 9)"),
        ("hdf5 arrays", 2048 + 3 * 700, "byte 2100 of its array x0 differs from the generated contents (sample 8)"),
        ("csv", 4 * 2100, "byte 8400 differs from the generated contents (sample 9)"),
        ("one a file", 4200, "byte 4200 differs from the generated contents (sample 1)"),
    ],
)
def test_a_fault_is_told_by_byte_and_sample(tmp_path: Path, name: str, at: int, message: str) -> None:
    folder = _generated(tmp_path, *_STORED[name])
    path = folder / f"00000001.{folder.name.partition('-')[0]}"
    _flip(path, at)
    assert _faults(folder)[path.name].startswith(message)


@pytest.mark.parametrize(
    "name",
    [
        "npz",
        "npz arrays",
        "npz gzip",
        "npy",
        "tar arrays",
        "tfrecord",
        "hdf5 arrays",
        "hdf5",
        "hdf5 gzip",
        "hdf5 chunked",
        "csv",
        "one a file",
    ],
)
@pytest.mark.parametrize("quick", [True, False])
def test_missing_extra_and_cut_files_are_found(tmp_path: Path, name: str, quick: bool) -> None:
    folder = _generated(tmp_path, *_STORED[name], "dataset.auxiliary_files=[{name: meta, bytes: 100, count: 3}]")
    first, second, third = sorted(folder.glob("0*"))
    first.unlink()
    os.truncate(second, second.stat().st_size - 1)
    with third.open("ab") as file:
        file.write(b"x")
    (folder / "notes.txt").touch()
    (folder / f"{3:08}{first.suffix}").touch()
    os.truncate(folder / "side-meta", 299)
    faults = _faults(folder, quick)
    assert sorted(faults) == sorted(
        (first.name, second.name, third.name, "notes.txt", f"{3:08}{first.suffix}", "side-meta")
    )
    assert faults[first.name] == "is missing"
    assert faults["notes.txt"] == "does not belong to the dataset"
    assert faults["side-meta"] == "has 299 bytes, expected 300"


def test_side_files_are_compared_where_there_is_nothing_else(tmp_path: Path) -> None:
    folder = _generated(tmp_path, "dataset.format=null", "dataset.auxiliary_files=[{name: meta, bytes: 100, count: 3}]")
    assert _faults(folder) == {}
    _flip(folder / "side-meta", 77)
    assert _faults(folder) == {"side-meta": "byte 77 differs from the generated contents"}
    assert _faults(folder, quick=True) == {}


def test_files_of_another_kind_are_told(tmp_path: Path) -> None:
    folder = _generated(tmp_path)
    first, second, third = sorted(folder.glob("0*"))
    first.unlink()
    first.mkdir()
    second.unlink()
    second.symlink_to(third)
    third.chmod(0)
    faults = _faults(folder)
    assert "is not a regular file" in faults[first.name]
    assert faults[second.name].startswith("is not a regular file")
    assert os.getuid() == 0 or faults[third.name] == "cannot be read: Permission denied"


def test_the_list(run: Run, tmp_path: Path) -> None:
    listed = run("dlio-hpc", "datasets", "list", "-d", "data")
    assert (listed.code, listed.out) == (2, "")
    assert f"no datasets in {tmp_path}/data, which does not exist" in listed.err
    listed = run("dlio-hpc", "datasets", "list", "-s", "local")
    assert (listed.code, listed.out) == (0, f"no datasets in {tmp_path}/dlio-data, which does not exist\n")
    (tmp_path / "data").mkdir()
    listed = run("dlio-hpc", "datasets", "list", "-d", "data")
    assert (listed.code, listed.out) == (0, f"no datasets in {tmp_path}/data\n")
    whole, half = _generated(tmp_path), _generated(tmp_path, "dataset.format=csv", complete=False)
    made = _generated(tmp_path, "dataset.format=tfrecord", complete=False)
    for name, content in (("foreign", "{}"), ("unreadable", "nonsense")):
        (tmp_path / "data" / name).mkdir()
        (tmp_path / "data" / name / "dlio-dataset.json").write_text(content)
    (tmp_path / "data" / "other").mkdir()
    with rundir.locked_file(dataset_folder.lock_file(made)):
        listed = run("dlio-hpc", "datasets", "list", DLIO_HPC_DATA=str(tmp_path / "data"))
    assert listed.code == 2
    assert "foreign/dlio-dataset.json" in listed.err
    assert "unreadable/dlio-dataset.json" in listed.err
    lines = {line.split()[0]: line.split() for line in listed.out.splitlines() if line}
    assert lines[whole.name][1:-2] == ["npz", "3", "x", "5", "12.3", "KiB", "complete"]
    assert lines[half.name][7] == "unfinished"
    assert lines[made.name][7] == "generating"
    assert max(map(len, listed.out.splitlines()[1:])) <= 100
    assert "remove --unfinished" in listed.out
    as_json = run("dlio-hpc", "datasets", "list", "-d", "data", "--json")
    states = {entry["name"]: entry["state"] for entry in as_json.json["datasets"]}
    assert states == {whole.name: "complete", half.name: "unfinished", made.name: "unfinished"}
    (first,) = [entry for entry in as_json.json["datasets"] if entry["name"] == whole.name]
    assert (first["files"], first["samples_per_file"], first["bytes"], first["format"]) == (3, 5, 12600, "npz")
    assert first["path"] == str(whole)


def test_the_longest_names_fit_the_table(run: Run, tmp_path: Path) -> None:
    steps = "train.steps=1"
    run_of = _plan(
        tmp_path, "dataset.format=tfrecord", "dataset.files=90071992547", "dataset.samples_per_file=77", steps
    )
    Path(run_of.dataset).mkdir(parents=True)
    dataset_folder.mark(run_of.stored, complete=True)
    _generated(tmp_path)
    listed = run("dlio-hpc", "datasets", "list", "-d", "data")
    assert max(map(len, listed.out.splitlines()[1:])) <= 100
    assert run_of.dataset.rpartition("/")[2] in listed.out


def test_the_sites_data_directory_is_the_default(run: Run, tmp_path: Path) -> None:
    folder = _generated(tmp_path)
    profile = run("dlio-hpc", "sites", "local").out
    (line,) = [line for line in profile.splitlines() if line.startswith("data:")]
    (tmp_path / "mine.yaml").write_text(profile.replace(line, "data: $WHERE/data"))
    listed = run("dlio-hpc", "datasets", "list", "-s", "./mine.yaml", WHERE=str(tmp_path))
    assert folder.name in listed.out
    assert run("dlio-hpc", "datasets", "list", "-s", "./mine.yaml").code == 2


def test_verify_tells_every_fault_and_ends_with_3(run: Run, tmp_path: Path) -> None:
    sound, broken = _generated(tmp_path), _generated(tmp_path, "dataset.format=csv")
    half = _generated(tmp_path, "dataset.format=tfrecord", complete=False)
    # A child process prints the progress to stderr.
    verified = run("dlio-hpc", "datasets", "verify", "-d", "data", sound.name, PYTHONUNBUFFERED="1")
    assert (verified.code, verified.out) == (0, f"{sound.name}: intact (3 files, 24.52 KiB)\n")
    _flip(broken / "00000002.csv", 5000)
    verified = run("dlio-hpc", "datasets", "verify", "-d", "data")
    assert verified.code == 3
    assert f"{sound.name}: intact" in verified.out
    assert f"{broken.name}/00000002.csv: byte 5000 differs from the generated contents (sample 12)" in verified.out
    assert f"{half.name}: its generation did not complete" in verified.out
    assert run("dlio-hpc", "datasets", "verify", "-d", "data", broken.name, "--quick").code == 0
    verified = run("dlio-hpc", "datasets", "verify", f"{broken}/", "--json")
    assert verified.code == 3
    (document,) = verified.json["datasets"]
    assert document["name"] == broken.name
    assert [fault["file"] for fault in document["faults"]] == ["00000002.csv"]
    with rundir.locked_file(dataset_folder.lock_file(half)):
        verified = run("dlio-hpc", "datasets", "verify", "-d", "data", half.name)
    assert verified.code == 3
    assert "a job is generating it" in verified.out
    verified = run("dlio-hpc", "datasets", "verify", "-d", "data", "nowhere", sound.name)
    assert verified.code == 2
    assert f"no dataset nowhere in {sound.parent}" in verified.err
    assert "intact" in verified.out
    (tmp_path / "empty").mkdir()
    assert "nothing was verified" in run("dlio-hpc", "datasets", "verify", "-d", "empty").err


def test_removing_takes_the_dataset_and_nothing_else(run: Run, tmp_path: Path) -> None:
    side = "dataset.auxiliary_files=[{name: meta, bytes: 100}]"
    first, second = _generated(tmp_path, side), _generated(tmp_path, "dataset.format=csv")
    (first / rundir.temporary_name(dataset_folder.FINGERPRINT_FILE)).touch()
    size = sum(path.stat().st_size for path in first.iterdir())
    removal = run("dlio-hpc", "datasets", "remove", "-d", "data", first.name, "--dry-run")
    assert (removal.code, f"would free {size / 1024:.4g} KiB in 6 files" in removal.out) == (0, True)
    assert verify(first, quick=False).faults == ()
    removal = run("dlio-hpc", "datasets", "remove", "-d", "data", first.name)
    assert removal.code == 0
    assert f"{first}: freed" in removal.out
    assert "in 6 files" in removal.out
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == sorted(
        (dataset_folder.lock_file(second).name, second.name)
    )
    assert verify(second, quick=False).faults == ()


def test_a_dataset_that_a_job_reads_is_not_removed(run: Run, tmp_path: Path) -> None:
    folder = _generated(tmp_path)
    command = ("dlio-hpc", "datasets", "remove", "-d", "data", folder.name)
    with dataset_folder.being_read(str(folder)), dataset_folder.being_read(str(folder)):
        for line in (command, (*command, "--dry-run")):
            refused = run(*line)
            assert (refused.code, "a job is reading the dataset" in refused.err, "--force" in refused.err) == (2, 1, 1)
        assert verify(folder, quick=False).faults == ()
        assert run(*command, "--force", "--dry-run").code == 0
        with dataset_folder.owned(dataset_folder.StoredDataset(str(folder), _plan(tmp_path).workload.dataset, "")):
            pass  # a job that would generate the dataset does not wait for its readers
    assert run(*command).code == 0


def test_a_dataset_that_a_waiting_job_needs_is_not_removed(run: Run, tmp_path: Path) -> None:
    folder = _generated(tmp_path)
    made = planning.make(_demo(), site.load("slurm"), planning.Request(runs=tmp_path / "jobs", data=tmp_path / "data"))
    job = Path(made.directory)
    job.mkdir(parents=True)
    rundir.write(job / rundir.PLAN, serialization.encode(made))
    record = job_record.planned(made, "sbatch", ())
    job_record.save(job, job_record.with_state(replace(record, batch_id="1"), "queued"))
    command = ("dlio-hpc", "datasets", "remove", "-d", "data", folder.name)
    refused = run(*command, "-o", "jobs")
    assert refused.code == 2
    assert f"job {made.job} (queued) needs the dataset {folder}" in refused.err
    assert folder.is_dir()
    job_record.save(job, job_record.with_state(record, "cancelled"))
    assert run(*command, "-o", "jobs").code == 0


def test_what_is_not_ours_is_never_removed(run: Run, tmp_path: Path) -> None:
    whole, mixed = _generated(tmp_path), _generated(tmp_path, "dataset.format=csv")
    before = {path: path.read_bytes() for path in (*whole.iterdir(), *mixed.iterdir())}
    (mixed / "thesis.tex").touch()
    plain = tmp_path / "data" / "plain"
    plain.mkdir()
    link = tmp_path / "data" / "link"
    link.symlink_to(whole)
    for name, message in (
        (mixed.name, "not part of the dataset. Move these files away: thesis.tex"),
        ("plain", "holds no dlio-dataset.json"),
        ("..", "holds no dlio-dataset.json"),
        ("link", f"is a link to {whole}"),
    ):
        removal = run("dlio-hpc", "datasets", "remove", "-d", "data", whole.name, name)
        assert removal.code == 2
        assert message in removal.err
        assert {path: path.read_bytes() for path in before} == before, "not even what could have been removed"
    (mixed / "thesis.tex").unlink()
    file = mixed / "00000001.csv"
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert run("dlio-hpc", "datasets", "remove", f"{mixed}").code == 2
    assert run("dlio-hpc", "datasets", "remove", "-d", "data").code == 2
    assert (tmp_path / "elsewhere").exists()


def test_what_a_job_generates_is_left_alone(run: Run, tmp_path: Path) -> None:
    made, half = _generated(tmp_path, complete=False), _generated(tmp_path, "dataset.format=csv", complete=False)
    whole = _generated(tmp_path, "dataset.format=tfrecord")
    with rundir.locked_file(dataset_folder.lock_file(made)):
        removal = run("dlio-hpc", "datasets", "remove", "-d", "data", made.name)
        assert removal.code == 2
        assert "a job is generating the dataset in" in removal.err
        removal = run("dlio-hpc", "datasets", "remove", "-d", "data", "--unfinished")
        assert removal.code == 0
    assert (made.exists(), half.exists(), whole.exists()) == (True, False, True)
    assert run("dlio-hpc", "datasets", "remove", "-d", "data", "--unfinished").code == 0
    assert run("dlio-hpc", "datasets", "remove", "-d", "data", "--unfinished").out == "no unfinished datasets\n"
    assert [path.name for path in whole.parent.iterdir() if not path.name.startswith(".")] == [whole.name]


@pytest.mark.skipif(os.getuid() != 0, reason="becoming another user takes root")
def test_the_lock_of_another_user_counts() -> None:
    """A user may delete from a group's folder without being able to write the lock."""
    program = (
        "import os, sys; from pathlib import Path; from dlio_hpc.dataset import dataset_folder; os.setuid(65534); "
    )
    program += "sys.exit(dataset_folder.is_owned(Path(sys.argv[1])))"
    with tempfile.TemporaryDirectory() as name:  # tmp_path is its user's alone
        Path(name).chmod(0o777)
        made = _generated(Path(name), complete=False)
        with rundir.locked_file(dataset_folder.lock_file(made)):
            assert subprocess.run([sys.executable, "-c", program, made], check=False).returncode == 1
        assert subprocess.run([sys.executable, "-c", program, made], check=False).returncode == 0


def interrupt_removal(folder: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove a dataset, and fail when a number of files is removed."""
    unlink: Callable[..., None] = os.unlink
    left = [after]

    def limited(*arguments: Any, **keys: Any) -> None:
        if "dir_fd" in keys:
            left[0] -= 1
            if left[0] < 0:
                raise PermissionError(1, "interrupted", arguments[0])
        unlink(*arguments, **keys)

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", limited)
        with pytest.raises(InfrastructureError, match="interrupted"):
            dataset_removal.remove(folder)


@pytest.mark.parametrize("after", range(4))
def test_an_interrupted_removal_is_not_taken_for_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    folder = _generated(tmp_path)
    run = _plan(tmp_path)
    interrupt_removal(folder, after, monkeypatch)
    assert len(list(folder.glob("0*"))) == max(0, 3 - after)
    assert not dataset_folder.is_complete(run.stored)
    assert dataset_folder.is_unwritten(run.stored)
    assert dataset_removal.remove(folder)[0] == 4 - after
    assert not folder.exists()


def test_a_disk_without_room_for_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = _generated(tmp_path)
    write = dataset_folder.write

    def full(where: Path, fingerprint: dataset_folder.Fingerprint) -> None:
        if (folder / "00000000.npz").exists():
            raise OSError(28, "No space left on device")
        write(where, fingerprint)

    monkeypatch.setattr(dataset_folder, "write", full)
    assert dataset_removal.remove(folder)[0] == 4
    assert not folder.exists()


def test_who_waited_for_a_dataset_that_was_removed_makes_it_anew(tmp_path: Path) -> None:
    """The lock that it waited for is gone with the folder; nobody else generates at the same time."""
    folder, run = _generated(tmp_path, complete=False), _plan(tmp_path)
    waits, inside = threading.Event(), threading.Event()

    def generate() -> None:
        waits.set()
        with dataset_folder.owned(run.stored):
            inside.set()
            assert dataset_folder.is_owned(folder)
            dataset_space.begin(run.stored, 1)

    thread = threading.Thread(target=generate)
    with rundir.locked_file(dataset_folder.lock_file(folder)):
        thread.start()
        waits.wait()
        assert not inside.wait(0.3)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        dataset_folder.lock_file(folder).unlink()
    thread.join()
    assert inside.is_set()
    assert dataset_folder.read(folder) is not None


def test_a_whole_dataset_of_another_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _plan(tmp_path)
    folder = _generated(tmp_path)

    def forbidden(path: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(dataset_folder, "make_lock", forbidden)
    with dataset_folder.owned(run.stored):
        assert dataset_folder.is_complete(run.stored)
    dataset_folder.write(folder, dataset_folder.Fingerprint(run.fingerprint, run.workload.dataset, complete=False))
    with pytest.raises(InfrastructureError, match="cannot use"), dataset_folder.owned(run.stored):
        pass


def test_a_dataset_of_a_later_schema_is_left_alone(tmp_path: Path) -> None:
    folder = _generated(tmp_path)
    note = folder / dataset_folder.FINGERPRINT_FILE
    note.write_bytes(note.read_bytes().replace(b'"schema": 1', b'"schema": 2'))
    with pytest.raises(ConfigError, match="schema"):
        dataset_removal.check(folder)
    assert replace(_plan(tmp_path), number=1).dataset == str(folder)


def test_the_empty_folder_that_a_failed_removal_left_is_removed(run: Run, tmp_path: Path) -> None:
    first = _generated(tmp_path, "dataset.format=npz")
    for path in first.iterdir():
        path.unlink()
    (tmp_path / "data" / "mine").mkdir()
    assert run("dlio-hpc", "datasets", "remove", "-d", "data", "mine").code == 2
    listed = run("dlio-hpc", "datasets", "list", "-d", "data", "--json").json["datasets"]
    assert [(one["name"], one["state"]) for one in listed] == [(first.name, "unfinished")]
    assert run("dlio-hpc", "datasets", "remove", "-d", "data", first.name).code == 0
    assert sorted(path.name for path in (tmp_path / "data").iterdir() if path.is_dir()) == ["mine"]
