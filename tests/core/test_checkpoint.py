import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import ConfigError, InfrastructureError, InvalidRun
from dlio_hpc.config import site
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.config.workload import load
from dlio_hpc.core import checkpoint, clock, content, files, merge, page_cache, train
from dlio_hpc.core.checkpoint import Checkpoints
from dlio_hpc.core.checkpoint_modes import framework, posix, torch_distributed
from dlio_hpc.core.checkpoint_modes.parts import CheckpointPart, Saved
from dlio_hpc.core.restore import restore
from dlio_hpc.files import filesystem, rundir
from dlio_hpc.plan import plan
from dlio_hpc.results.run_result import RunError
from dlio_hpc.verdict import history
from tests.conftest import BIN, Run
from tests.support import planning
from tests.support.places import ROOT

PAPER = [1024, 1024, 4096, 65536, 4194304]


def _checkpoints(tmp_path: Path, rank: int = 0, *overrides: str) -> tuple[Checkpoints, Path]:
    run, keys = _run(tmp_path, "checkpoint={}", *overrides)
    return Checkpoints(run, keys, rank), Path(run.outputs)


def _run(folder: Path, *overrides: str) -> tuple[plan.Run, Checkpoint]:
    made = planning.make(load("demo", overrides), site.load("local"), planning.Request(folder, data=folder))
    run = made.runs[-1]
    assert run.workload.checkpoint is not None
    return run, run.workload.checkpoint


def test_the_default_is_the_papers_five_files(tmp_path: Path) -> None:
    checkpoints, folder = _checkpoints(tmp_path)
    saved = checkpoints.save()
    assert sorted(path.stat().st_size for path in folder.iterdir()) == PAPER
    assert saved.bytes == sum(PAPER)
    assert saved.write_s > 0
    assert saved.fsync_s > 0
    assert saved.read_s == 0
    first = {path.name: path.read_bytes() for path in folder.iterdir()}
    checkpoints.save()
    assert {path.name for path in folder.iterdir()} == set(first)
    assert all(path.read_bytes() != first[path.name] for path in folder.iterdir()), "no checkpoint repeats another"


def test_a_model_of_any_size_and_reading_back(tmp_path: Path) -> None:
    size = 5 * 2**20 + 3
    checkpoints, folder = _checkpoints(
        tmp_path, 0, f"checkpoint.model_bytes={size}", "checkpoint.fsync=false", "checkpoint.read_back=true"
    )
    saved = checkpoints.save()
    assert [path.stat().st_size for path in folder.iterdir()] == [size]
    assert saved.read_s > 0


@pytest.mark.parametrize(
    ("asked", "sizes"),
    [("null", [2**21 + 5]), ("1MiB", [2**20, 2**20, 5]), ("3MiB", [2**21 + 5]), ("700000", [700_000] * 2 + [697_157])],
)
def test_requests_are_of_the_size_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, sizes: list[int]
) -> None:
    checkpoints, folder = _checkpoints(
        tmp_path, 0, f"checkpoint.model_bytes={2**21 + 5}", f"checkpoint.transfer_size={asked}"
    )
    write = os.write
    lengths: list[int] = []

    def noting(descriptor: int, data: memoryview) -> int:
        lengths.append(len(data))
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", noting)
    checkpoints.save()
    assert lengths == sizes
    (path,) = folder.iterdir()
    assert path.stat().st_size == sum(sizes)


@pytest.mark.parametrize("fsync", [True, False])
def test_fsync_is_really_called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fsync: bool) -> None:
    checkpoints, _ = _checkpoints(tmp_path, 0, f"checkpoint.fsync={str(fsync).lower()}")
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    checkpoints.save()
    assert len(calls) == (5 if fsync else 0)


def test_only_root_writes_unless_all_are_asked(tmp_path: Path) -> None:
    other, folder = _checkpoints(tmp_path, 1)
    assert other.save().bytes == 0
    assert not folder.exists()
    other, folder = _checkpoints(tmp_path, 1, "checkpoint.by=all")
    assert other.save().bytes == sum(PAPER)
    assert {path.name.split("-")[0] for path in folder.iterdir()} == {"rank00001"}


def test_when_they_are_due(tmp_path: Path) -> None:
    every, _ = _checkpoints(tmp_path, 0, "checkpoint.every_steps=5")
    assert [step for step in range(1, 17) if every.is_due(step)] == [5, 10, 15]
    at_the_end, _ = _checkpoints(tmp_path)
    assert [step for step in range(1, 17) if at_the_end.is_due(step)] == [16]


def test_faults_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, folder = _checkpoints(tmp_path, 0, "checkpoint.read_back=true")
    folder.parent.mkdir(exist_ok=True)
    folder.write_text("in the way")
    with pytest.raises(ConfigError, match=f"{folder} is a link or not a folder"):
        checkpoints.save()
    folder.unlink()
    folder.mkdir()
    (folder / "rank00000-0.ckpt").mkdir()
    with pytest.raises(InfrastructureError, match=f"cannot write {folder}/rank00000-0.ckpt: "):
        checkpoints.save()
    (folder / "rank00000-0.ckpt").rmdir()

    def cut_short(part: CheckpointPart) -> Saved:
        for name in posix.names(part):
            (folder / name).touch()
        return Saved()

    monkeypatch.setattr(posix, "write", cut_short)
    with pytest.raises(InvalidRun, match="has 0 bytes, but 1024 were written"):
        checkpoints.save()


def test_requests_in_any_order_with_gaps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = [[4096, 1000], [0, 96], [0, 96]]
    keys = f"checkpoint={{files: [8 KiB], fsync: false, requests: {writes}}}"
    checkpoints, folder = _checkpoints(tmp_path, 0, keys)
    made: list[list[int]] = []

    def record(descriptor: int, data: memoryview) -> int:
        made.append([os.lseek(descriptor, 0, os.SEEK_CUR), len(data)])
        return write(descriptor, data)

    write = os.write
    monkeypatch.setattr(os, "write", record)
    saved = checkpoints.save()
    assert made == writes
    assert saved.bytes == 1192, "bytes are counted as often as they are written"
    (file,) = folder.iterdir()
    data = file.read_bytes()
    assert len(data) == 8192
    assert not any(data[5096:])
    assert any(data[4096:5096])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{files: [1 KiB], model_bytes: 1 KiB}", "files and model_bytes exclude each other"),
        ("{files: []}", "at least one file, and no empty files"),
        ("{files: [0]}", "at least one file, and no empty files"),
        ("{every_steps: 0}", "every_steps: found 0; use a whole number of at least 1"),
        ("{by: some}", "use one of: root, all"),
        ("{requests: [[0, 8]]}", "requests describe a checkpoint of one file that is not read back"),
        ("{files: [8], read_back: true, requests: [[0, 8]]}", "one file that is not read back"),
        ("{files: [8], requests: [[0, 4], [5, 4]]}", "requests go beyond the end of the file, which has 8 bytes"),
        ("{files: [8], requests: [[0, 0]]}", "each request in requests must have at least 1 byte"),
    ],
)
def test_what_is_no_checkpoint(keys: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("demo", (f"checkpoint={keys}",))
    assert Checkpoint().sizes == tuple(PAPER)


def test_a_run_tells_checkpoints_apart_from_reading(run: Run, small: Path, tmp_path: Path) -> None:
    keys = "checkpoint={every_steps: 1, by: all, read_back: true}"
    done = run("dlio-submit", small, "--ppn", 2, "-d", "data", "-S", keys, "--wait", "--json")
    assert done.code == 0, done.err
    result: Any = done.job["runs"][-1]["result"]
    checkpoints, steps = result["summary"]["checkpoint"], result["summary"]["steps"]
    assert checkpoints["count"] == steps
    assert checkpoints["bytes_written"] == steps * 2 * sum(PAPER)
    assert checkpoints["write_MBps"] > 0
    assert checkpoints["read_MBps"] > 0
    assert result["summary"]["bytes_read"] == result["dataset"]["bytes"] * 2, "reading back is no reading of samples"
    for epoch in result["epochs"]:
        parts = epoch["wait_s"] + epoch["compute_s"] + epoch["sync_s"] + epoch["checkpoint_s"]
        assert 0 < epoch["checkpoint_s"] < parts <= epoch["wall_s"]
    total = sum(epoch["checkpoint_s"] for epoch in result["epochs"])
    assert checkpoints["pause_s"]["mean"] * checkpoints["count"] == pytest.approx(total)
    assert [path.name.split("-")[0] for path in (tmp_path / "data").glob("[!.]*")] == ["npz"], "nothing of them is left"
    assert f"saved     {steps} checkpoints" in run("dlio-hpc", "report", done.job["archive"]).out


@pytest.mark.parametrize("at", [0, 3 * 2**20 + 17, 5 * 2**20 + 2])
def test_a_wrong_bit_is_found_when_a_checkpoint_is_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    size = 5 * 2**20 + 3
    checkpoints, folder = _checkpoints(
        tmp_path, 0, f"checkpoint.model_bytes={size}", "checkpoint.read_back=true", "checkpoint.fsync=false"
    )
    checkpoints.save()
    (path,) = folder.iterdir()

    def damage(*_: object) -> None:
        """Damage the file just before it is read again."""
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))

    monkeypatch.setattr(page_cache, "drop", damage)
    with pytest.raises(InvalidRun, match=rf"{path}: byte {at} is 0x.. when it is read back, but 0x.. was written"):
        checkpoints.save()


_MODEL = (
    "checkpoint={model: {layers: 2, hidden: 64, feed_forward: 128, heads: 4, kv_heads: 2, vocabulary: 100},"
    " parallelism: {data: 2}, zero: 3, reads: 2, keep: 2, verify: true, transfer_size: 64 KiB, %s}"
)


def _pair(folder: Path, more: str, distance: int) -> list[Checkpoints]:
    """Return the checkpoints of two ranks that have each written three, of which two are kept."""
    run, keys = _run(folder, _MODEL % more)
    pair = [Checkpoints(run, keys, rank, 2, distance) for rank in range(2)]
    for _ in range(3):
        for checkpoints in pair:
            checkpoints.save()
    return pair


@pytest.mark.parametrize("distance", [0, 1])
@pytest.mark.parametrize("more", ["direct: false", "direct: true"])
def test_the_kept_checkpoints_are_read_by_the_same_or_another_rank(tmp_path: Path, more: str, distance: int) -> None:
    pair = _pair(tmp_path, more, distance)
    assert pair[0].restorable() == [2, 3]
    sizes = [sum(Path(path).stat().st_size for path in checkpoints.paths(3)) for checkpoints in pair]
    for number in (2, 3):
        restored = [checkpoints.restore(number) for checkpoints in pair]
        assert [part.bytes for part in restored] == sizes
        assert min(part.read_s for part in restored) > 0
        assert min(part.verify_s for part in restored) > 0
    names = {Path(path).name.removeprefix("checkpoint001-") for path in pair[0].paths(3)}
    assert all(name.startswith(f"zero_pp_rank_{distance}_mp_rank_0") for name in names)


def test_no_two_files_have_the_same_content(tmp_path: Path) -> None:
    _pair(tmp_path, "fsync: false", 0)
    contents = [path.read_bytes()[:4096] for path in tmp_path.rglob("*.ckpt")]
    assert len(contents) == 2 * 2 * 2
    assert len(set(contents)) == len(contents)


def test_a_wrong_bit_is_found_when_a_checkpoint_is_restored(tmp_path: Path) -> None:
    pair = _pair(tmp_path, "fsync: false", 1)
    path = Path(pair[0].paths(2)[1])
    data = bytearray(path.read_bytes())
    data[70_000] ^= 1
    path.write_bytes(data)
    pair[1].restore(2)
    with pytest.raises(InvalidRun, match=f"{path}: byte 70000 is 0x"):
        pair[0].restore(2)
    path.write_bytes(data[:100])
    with pytest.raises(InvalidRun, match=f"{path} has 100 bytes, but"):
        pair[0].restore(2)


def test_training_goes_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints, folder = _checkpoints(tmp_path, 0, "checkpoint={model_bytes: 1 MiB, asynchronous: true, fsync: true}")
    gate = threading.Event()
    monkeypatch.setattr(os, "fsync", lambda _: gate.wait(30))
    first = checkpoints.begin()
    assert not first.done()
    threading.Timer(0.05, gate.set).start()
    second = checkpoints.begin()
    assert first.done(), "the second waits for the first"
    checkpoints.finish()
    assert (first.result().bytes, second.result().bytes) == (2**20, 2**20)
    assert len(list(folder.iterdir())) == 1
    checkpoints.close()


def test_a_fault_of_a_checkpoint_in_the_background_ends_the_run(tmp_path: Path) -> None:
    checkpoints, folder = _checkpoints(tmp_path, 0, "checkpoint={model_bytes: 1 MiB, asynchronous: true}")
    folder.mkdir(parents=True)
    (folder / "rank00000-0.ckpt").mkdir()
    checkpoints.begin()
    with pytest.raises(InfrastructureError, match="cannot write"):
        checkpoints.finish()


class _Clock:
    """A clock that only the functions of a test advance, each by its own number of seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0.0
        for module in (clock, posix, framework):
            monkeypatch.setattr(module, "now", lambda: self.at)

    def after(self, seconds: float, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any) -> Any:
            self.at += seconds
            return function(*arguments)

        return called


_MAKE, _WRITE, _SYNC, _READ, _COMPARE, _DROP, _MEET = 10, 1, 2, 4, 500, 7000, 30000


def _timed(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """Let each part of a checkpoint take its own time, in all modes. The frameworks are stand-ins."""
    fake = _Clock(monkeypatch)
    monkeypatch.setattr(content, "fill", fake.after(_MAKE, content.fill))
    monkeypatch.setattr(posix, "write_all", fake.after(_WRITE, files.write_all))
    monkeypatch.setattr(os, "fsync", fake.after(_SYNC, lambda _: None))
    monkeypatch.setattr(page_cache, "drop", fake.after(_DROP, lambda _: None))
    for module in (posix, framework):
        monkeypatch.setattr(module, "compare", fake.after(_COMPARE, lambda *_: None))
    pieces = posix._pieces

    def read(*arguments: Any) -> Any:
        for data, done, _ in pieces(*arguments):
            fake.at += _READ
            yield data, done, _READ

    def save(state: Any, path: str) -> None:
        folder = Path(path)
        if "distributed" in state:
            folder.mkdir(exist_ok=True)
            (folder / ".metadata").write_bytes(b"known")
            folder = folder / "__0_0.distcp"
        folder.write_bytes(bytes(100))

    tensor = np.zeros(100, np.uint8)
    libraries: Any = checkpoint._LIBRARIES
    for mode, kind in (("torch", "file"), ("keras", "file"), ("torch_distributed", "distributed")):
        calls = framework.Calls(
            prepare=lambda _, kind=kind: {kind: tensor},  # type: ignore[misc]
            save=fake.after(_WRITE, save),
            blank=lambda _: None,
            load=fake.after(_READ, lambda *_: None),
            tensors=lambda _: {"rank00000-0.0": tensor},
        )
        meet = fake.after(_MEET, lambda: None)
        made = calls if kind == "file" else torch_distributed.Groups(calls, meet, meet)
        if kind == "file":
            alone = framework.SingleFiles(f".{mode}", lambda *_, made=made: made)
            monkeypatch.setitem(libraries, mode, alone)
        else:
            monkeypatch.setattr(torch_distributed, "start", lambda *_, made=made: made)
    monkeypatch.setattr(posix, "_pieces", read)
    return fake


def _saved_in_the_loop(run: plan.Run, checkpoints: Checkpoints) -> tuple[float, float]:
    """Write a checkpoint as the training loop does. Return the pause and the seconds of dlio-hpc itself."""
    rows: list[tuple[Any, ...]] = []
    record: Any = SimpleNamespace(steps=np.zeros((1, 32, 1)), checkpoint=lambda *row: rows.append(row))
    nothing: Any = nullcontext()
    loop = train._Loop(_ALONE, run.workload, record, checkpoints, nothing, nothing, nothing, nothing)
    loop.save(0, 31)
    ((_, pause_s, own_s, _),) = rows
    return pause_s, own_s


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("mode", ["posix", "torch", "keras", "torch_distributed"])
def test_contents_that_are_made_and_compared_are_no_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, back: bool
) -> None:
    _timed(monkeypatch)
    keys = f"checkpoint={{files: [100], mode: {mode}, read_back: {str(back).lower()}, every_steps: 32}}"
    run, checkpoint = _run(tmp_path, keys)
    checkpoints = Checkpoints(run, checkpoint, 0)
    files = 2 if mode == "torch_distributed" else 1  # its own and .metadata
    paused, made = _WRITE + files * _SYNC, _MAKE + _MEET * (mode == "torch_distributed")
    if back:
        paused, made = paused + _READ, made + _COMPARE + files * _DROP + _MEET * (mode == "torch_distributed")
    assert _saved_in_the_loop(run, checkpoints) == (paused, made)
    saved = checkpoints.save()
    assert (saved.write_s, saved.fsync_s, saved.read_s) == (_WRITE, files * _SYNC, _READ * back)
    monkeypatch.setattr(clock, "longest", lambda _, seconds: seconds + 0.5)
    pause_s, own_s = _saved_in_the_loop(run, checkpoints)
    assert (pause_s, own_s) == (paused + 0.5, made - 0.5), "another rank writes longer, while this one makes contents"


def test_contents_that_are_made_in_the_background_are_no_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _timed(monkeypatch)
    gate, fill = threading.Event(), content.fill
    monkeypatch.setattr(content, "fill", lambda *arguments: (gate.wait(30), fill(*arguments)))
    run, checkpoint = _run(tmp_path, "checkpoint={files: [100], asynchronous: true, every_steps: 32}")
    checkpoints = Checkpoints(run, checkpoint, 0)
    assert _saved_in_the_loop(run, checkpoints) == (0, 0)
    threading.Timer(0.05, gate.set).start()
    assert _saved_in_the_loop(run, checkpoints) == (_WRITE + _SYNC, _MAKE)
    checkpoints.finish()
    checkpoints.close()


_ALONE: Any = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)
_NEVER: Any = SimpleNamespace(barrier=lambda: False)


@pytest.mark.parametrize("keys", ["asynchronous: true", "fsync: true", "read_back: true", "direct: true, keep: 2"])
def test_the_gap_before_a_restore_begins_when_the_last_write_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    run, checkpoint = _run(tmp_path, f"checkpoint={{model_bytes: 1 MiB, reads: 2, {keys}}}")
    checkpoints = Checkpoints(run, checkpoint, 0)
    monkeypatch.setattr(clock, "now", lambda: 100.0)
    for _ in range(2):
        if checkpoint.asynchronous:
            checkpoints.begin().result()
        else:
            checkpoints.save()
    monkeypatch.setattr(clock, "now", lambda: 132.0)  # the steps after the last checkpoint took 32 s
    rows, stopped = restore(_ALONE, _ALONE, run, checkpoints, _NEVER)
    checkpoints.close()
    assert not stopped
    assert merge._restored(rows[np.newaxis]).gap_s == 32.0
    idle = rows.copy()
    idle[0, 0] = np.nan  # another rank writes nothing, and a third one ended its write 2 s earlier
    early = rows.copy()
    early[0, 0] = 34.0
    assert merge._restored(np.stack((early, rows, idle))).gap_s == 32.0


def test_a_restore_ends_when_time_runs_out(tmp_path: Path) -> None:
    run, checkpoint = _run(tmp_path, "checkpoint={model_bytes: 1 MiB, reads: 5}")
    checkpoints = Checkpoints(run, checkpoint, 0)
    checkpoints.save()
    answers = iter([False, False, True])
    stop: Any = SimpleNamespace(barrier=lambda: next(answers))
    rows, stopped = restore(_ALONE, _ALONE, run, checkpoints, stop)
    checkpoints.close()
    assert (len(rows), stopped) == (2, True)


def test_a_run_that_writes_no_checkpoint_cannot_read_one(tmp_path: Path) -> None:
    message = "no checkpoint can be read, because the run ends after 32 steps and the first one is written after 33"
    with pytest.raises(ConfigError, match=message):
        _run(tmp_path, "checkpoint={every_steps: 33, reads: 1}")
    run, _ = _run(tmp_path, "checkpoint={every_steps: 32, reads: 1}")
    assert run.steps_per_epoch * run.workload.train.epochs == 32


@pytest.mark.job
@pytest.mark.parametrize(("victim", "ranks"), [(0, 1), (0, 2), (1, 2), (0, 3)])
def test_a_wrong_byte_is_reported_before_the_outputs_are_removed(tmp_path: Path, victim: int, ranks: int) -> None:
    keys = (
        "dataset={format: 'null', files: 6, samples_per_file: 1, sample: {bytes: 1 KiB}}", "compute.time=0",
        "checkpoint={files: [1 MiB, 1 MiB, 1 MiB], by: all, reads: 1, verify: true, transfer_size: 4 KiB}",
    )  # fmt: skip
    data = tmp_path / "data"
    request = planning.Request(tmp_path, data=data, ranks_per_node=ranks)
    made = planning.make(load("demo", keys), site.load("local"), request)
    data.mkdir()
    rundir.write(tmp_path / rundir.PLAN, serialization.encode(made))
    program = [sys.executable, "-m", "mpi4py", "-m", "tests.support.damaged_checkpoint", victim, tmp_path / rundir.PLAN]
    done = subprocess.run(
        [*map(str, (BIN / "mpiexec", "-n", ranks, *program, "--run", len(made.runs) - 1))],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    (path,) = tmp_path.rglob(rundir.ERROR)
    error = serialization.decode(path.read_bytes(), RunError, str(path))
    assert (error.rank, error.exit_code, error.kind) == (victim, 3, "InvalidRun")
    assert f"rank{victim:05}-0.ckpt: byte 5000 is 0x" in error.message
    assert "No such file" not in done.stderr
    assert not list(data.glob("outputs-*")), "they are removed after the report"


@pytest.mark.job
def test_checkpoints_that_do_not_fit_are_refused_before_they_are_written(run: Run, tmp_path: Path) -> None:
    keys = (("checkpoint.writes", 2000), ("checkpoint.keep", 2000), ("checkpoint.reads", 0))
    options = [word for key, value in keys for word in ("-S", f"{key}={value}")]
    done = run(
        "dlio-submit",
        "llama3_1t",
        "--ppn",
        2,
        "-d",
        "data",
        "-S",
        "compute.time=0",
        "-S",
        "checkpoint.reorder=0",
        *options,
        "--wait",
    )
    assert done.code == 2
    assert re.search(r"2,?000 checkpoints? needs? \S+ .iB, but \S+ has \S+ .iB free", done.err + done.out)
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.job
def test_a_job_that_writes_and_reads_the_checkpoints_of_a_model(run: Run, tmp_path: Path) -> None:
    options = (
        "-S",
        "compute.time=0",
        "-S",
        "checkpoint.writes=3",
        "-S",
        "checkpoint.reads=2",
        "-S",
        "checkpoint.verify=true",
    )
    done = run(
        "dlio-submit", "llama3_70b", "--ppn", 2, "-d", "data", "--dataset-size", "8MB", *options, "--wait", "--json"
    )  # fmt: skip
    assert done.code == 0, done.err
    summary = done.job["runs"][-1]["result"]["summary"]
    saved, restored = summary["checkpoint"], summary["restored"]
    assert (saved["count"], restored["count"]) == (3, 2)
    assert restored["bytes_read"] == pytest.approx(saved["bytes_written"] * 2 / 3)
    assert 7e6 < restored["bytes_read"] / 2 <= 8e6
    assert saved["safe_s"]["p50"] > 0
    assert 0 <= restored["gap_s"] < 60
    assert restored["verify_s"] > 0
    for name in ("samples_per_s", "read_MBps", "au", "au_mlperf", "io_time_s", "read_latency_s"):
        assert summary[name] is None, f"{name}: no samples are read"
    assert summary["reads"] == 0
    outputs = done.job["runs"][-1]["result"]["outputs_on"]
    assert outputs == filesystem.of(tmp_path).text
    report = run("dlio-hpc", "report", done.job["archive"]).out
    for meaningless in ("samples/s  ", "(as planned) in", "I/O time", "wait for the batch", "x the median rank"):
        assert meaningless not in report
    words = " ".join(report.split())
    assert re.search(rf" outputs \S+/outputs-\S+ on {re.escape(outputs)} ", words)
    assert "data      none: checkpoints only" in report
    assert "History of checkpoint write bandwidth" in run("dlio-hpc", "history").out
    assert " samples not measured: the workload has no dataset, so it has no samples/s and no AU" in words
    assert re.search(r"written +3 +22\.\d+ MiB +\d+", report)
    assert re.search(r"\nread +2 +\d+\.?\d* MiB +\d+", report)
    page = tmp_path / "report.html"
    assert run("dlio-hpc", "report", done.job["archive"], "--html", page).code == 0
    assert "AU = compute" not in page.read_text()
    assert "median s" in page.read_text()
    (entry,) = history.entries(tmp_path / "dlio-runs" / "archive")
    (measurement,) = entry.measurements
    assert measurement.key.outputs == outputs
    assert set(measurement.metrics) >= {"checkpoint_write_MBps", "checkpoint_read_MBps"}
    assert not set(measurement.metrics) & {"samples_per_s", "au", "read_MBps", "wait_p99_s"}
    assert "checkpoint.model: 2 of the 64 ranks of checkpoint.parallelism write their part" in " ".join(report.split())
    assert "restored  2 checkpoints" in report
    assert "3 checkpoints reached storage (fsync)" in report
    assert not list((tmp_path / "data").glob("[!.]*")), "nothing of them is left"


@pytest.mark.parametrize(("ranks", "distance", "reader", "writer"), [(3, 1, 0, 1), (3, 1, 2, 0), (5, 2, 4, 1)])
def test_a_rank_reads_what_the_rank_at_its_distance_wrote(
    tmp_path: Path, ranks: int, distance: int, reader: int, writer: int
) -> None:
    run, keys = _run(tmp_path, "checkpoint={by: all, reads: 1, keep: 1}")
    names = [file.name for file in Checkpoints(run, keys, reader, ranks, distance)._part(writer, 1).files]
    shown = Checkpoints(run, keys, reader, ranks, distance).paths(1)
    assert [Path(path).name for path in shown] == [f"{name}.ckpt" for name in names]


def test_checkpoints_in_the_background_take_turns(tmp_path: Path) -> None:
    """Of seven checkpoints, the last three are kept: numbers 5, 6 and 7."""
    checkpoints, folder = _checkpoints(tmp_path, 0, "checkpoint={files: [100], asynchronous: true, reads: 3, keep: 3}")
    for _ in range(7):
        checkpoints.begin()
    checkpoints.finish()
    assert checkpoints.restorable() == [5, 6, 7]
    assert sorted(path.name.partition("-")[0] for path in folder.iterdir()) == [
        "checkpoint000", "checkpoint001", "checkpoint002",
    ]  # fmt: skip
    checkpoints.close()


def test_waiting_for_a_checkpoint_that_is_written_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """dlio-hpc made contents for 5 s, of which training waited 2 s."""
    checkpoints, _ = _checkpoints(tmp_path)
    pending: Any = SimpleNamespace(result=lambda: Saved(own_s=5.0))
    checkpoints._pending = pending
    times = iter([100.0, 102.0])
    monkeypatch.setattr(clock, "now", lambda: next(times))
    checkpoints.finish()
    assert checkpoints.own_s == 2.0


def test_before_the_first_checkpoint_dlio_hpc_has_cost_nothing(tmp_path: Path) -> None:
    made, _ = _checkpoints(tmp_path)
    made.close()
    assert made.own_s == 0.0


def test_checkpoints_before_the_first_unwritten_one_are_written() -> None:
    done: Future[Saved] = Future()
    done.set_result(Saved())
    failed: Future[Saved] = Future()
    failed.set_exception(OSError(28, "full"))
    rows: list[Saved | Future[Saved]] = [Saved(), done, Future(), Saved()]
    assert train._written([(0, 0, 0.0, 0.0, saved) for saved in rows]) == 2
    assert train._written([(0, 0, 0.0, 0.0, saved) for saved in (done, failed)]) == 1
    assert train._written([(0, 0, 0.0, 0.0, saved) for saved in (Saved(), done)]) == 2
