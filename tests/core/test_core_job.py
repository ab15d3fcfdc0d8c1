"""Whole jobs run on this machine through the launcher; the tests need several ranks or a real file system."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import Size
from dlio_hpc.config.dataset_keys import AuxiliaryFile
from dlio_hpc.core import auxiliary_files
from dlio_hpc.core.mpi_io import check_library
from dlio_hpc.core.page_cache import drop
from dlio_hpc.core.procfs import process_io
from tests.conftest import BIN, Outcome, Run, ahead
from tests.support import straced

_SHARED = ("-S", "dataset.file_access=shared", "-S", "dataset.files=1", "-S", "dataset.samples_per_file=30")
SAMPLE = 12_000


@pytest.fixture
def measured(run: Run, small: Path) -> Any:
    """Run a job on `small` with overrides, and return the result of its last run."""

    def call(*overrides: str, ppn: int = 2, options: tuple[str, ...] = ()) -> Any:
        keys = [word for override in overrides for word in ("-S", override)]
        done = run("dlio-submit", small, "-s", "local", "--ppn", ppn, *options, *keys, "--wait", "--json")
        assert done.code == 0, done.err
        return done.job["runs"][-1]["result"]

    return call


def _shared(measured: Any, *overrides: str) -> Any:
    keys = ("dataset.file_access=shared", "dataset.files=1", "dataset.samples_per_file=30", "reader.read_threads=1")
    return measured(*keys, *overrides)


def _timeline(tmp_path: Path) -> h5py.File:
    (path,) = (tmp_path / "dlio-runs").glob("*/runs/01-measure/timeline.h5")
    return h5py.File(path)


def _check_activity(tmp_path: Path, result: Any) -> None:
    """Check that the bytes of the timeline add up to those of the result, whichever thread or process read them."""
    summary = result["summary"]
    with _timeline(tmp_path) as file:
        group, ranks = file["activity"], file["ranks"]
        arrived, requests, busy = (group[name][...] for name in ("bytes", "requests", "busy"))
        assert arrived.shape == requests.shape == busy.shape
        assert ranks["requests"][...].sum() == summary["reads"]
        assert ranks["bytes_read"][...].sum() == summary["bytes_read"]
        assert ranks["overhead_bytes"][...].sum() == summary["overhead_bytes_read"]
        assert file["request_sizes/counts"][...].sum() <= summary["reads"]
        if summary["io_time_s"] is None:
            assert not group.attrs["timed"]
            assert not arrived.any()
            return
        assert group.attrs["timed"]
        assert arrived.sum(axis=1) == pytest.approx(ranks["bytes_read"][...] + ranks["overhead_bytes"][...])
        assert requests.sum(axis=1) == pytest.approx(ranks["requests"][...])
        assert busy.sum() == pytest.approx(summary["io_time_s"] * result["ranks"])
        width, start = group.attrs["width"], group.attrs["start"]
        assert busy.max() <= width * 1.000001
        edges = start + np.arange(arrived.shape[1] + 1) * width
        # The time in which dlio-hpc makes the contents of checkpoints is no part of wall_s.
        own_s = result["ranks"] * (summary["checkpoint"] or {"own_s": 0})["own_s"]
        assert edges[-2] < summary["wall_s"] + own_s, "reading ends with the run"
        assert edges[-1] > 0
        assert arrived.shape[1] <= 512


@pytest.mark.parametrize(
    ("kind", "prefetch", "batch"),
    [("npz", 0, 7), ("npz", 3, 2), ("tfrecord", 3, 7), ("hdf5", 0, 2), ("csv", 3, 7)],
)
def test_one_file_is_read_collectively(measured: Any, tmp_path: Path, kind: str, prefetch: int, batch: int) -> None:
    """Four ranks have shares of 7 and 8 samples: the last batches are short, and some ranks have an empty last step."""
    keys = ("reader.access=collective", f"dataset.format={kind}", f"reader.prefetch={prefetch}")
    hints = ("reader.hints={romio_cb_read: enable}", "reader.transfer_size=64KiB", f"reader.batch_size={batch}")
    result = _shared(lambda *overrides: measured(*overrides, ppn=4), *keys, *hints)
    summary = result["summary"]
    assert summary["samples"] == 60
    assert summary["bytes_read"] == 60 * (30_000 if kind == "csv" else SAMPLE)
    opened = 2 if kind == "hdf5" else 1
    assert summary["opens"] == 4 * opened, "each rank opens the one file once, and HDF5 to look up where the array lies"
    looked_up = summary["reads"] - summary["steps"] * 4
    assert looked_up == 0 or kind == "hdf5", "a call a step and rank, beside what HDF5 looks up when it opens the file"
    assert (looked_up > 0) == (kind == "hdf5")
    assert result["hints"]["romio_cb_read"] == "enable"
    assert result["hints"]["cb_buffer_size"] == "65536"
    _check_activity(tmp_path, result)


@pytest.mark.parametrize("kind", ["npz", "hdf5"])
def test_several_arrays_are_read_collectively(measured: Any, kind: str) -> None:
    keys = ("reader.access=collective", f"dataset.format={kind}", "reader.batch_size=7", "reader.verify_content=all")
    arrays = ("dataset.sample={bytes: 12000}", "dataset.arrays=[9000, 2980, 8, 12]")
    summary = _shared(lambda *overrides: measured(*overrides, ppn=4), *keys, *arrays)["summary"]
    assert summary["samples"] == summary["samples_verified"] == 60
    assert summary["bytes_read"] == 60 * 12_000
    looked_up = summary["reads"] - summary["steps"] * 4
    assert (looked_up > 0) == (kind == "hdf5"), "a call per step and rank"


def test_an_mpi_whose_collective_reads_abort_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"does not work with MPICH 4\.0\.2 under mpi4py 4\.1\.2; use a newer MPICH"):
        check_library("MPICH Version:      4.0.2\nMPICH Release date: ...", "4.1.2")
    for mpi, mpi4py in (
        ("MPICH Version:\t5.0.2", "4.1.2"),
        ("MPICH Version: 4.0.2", "3.1.4"),
        ("Open MPI v4.0", "4.1"),
    ):
        check_library(mpi, mpi4py)


def test_collective_access_through_hdf5_needs_parallel_hdf5(run: Run, small: Path) -> None:
    keys = ("reader.access=collective", "reader.mode=framework", "dataset.format=hdf5", "reader.read_threads=1")
    options = [word for key in keys for word in ("-S", key)]
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, *_SHARED, *options, "--wait", "--json")
    if h5py.get_config().mpi:
        assert done.job["runs"][-1]["result"]["summary"]["samples"] == 60
    else:
        assert done.code == 2
        assert "needs this package: build it (CC=mpicc HDF5_MPI=ON" in done.err
        assert "set reader.mode=posix" in done.err


@pytest.mark.parametrize(
    "keys",
    [
        ("dataset.format=tfrecord",),
        ("dataset.format=tfrecord", "reader.mode=framework"),
        ("dataset.format=hdf5", "dataset.chunk=4KiB"),
        ("dataset.format=hdf5", "reader.mode=framework", "dataset.chunk=4KiB", "dataset.compression=gzip"),
        ("dataset.format=csv", "reader.mode=framework"),
        ("reader.loader=pytorch",),
        ("reader.loader=pytorch", "reader.multiprocessing_context=spawn", "train.epochs=1"),
        ("reader.loader=tensorflow",),
        ("reader.loader=tensorflow", "reader.mode=framework", "dataset.format=tfrecord", "reader.shuffle.samples=false",
         "reader.interleave=2"),
        ("dataset.sample={bytes: 12 KB, stdev: 3 KB}", "dataset.format=tfrecord"),
        ("reader.load=memory",),
        ("reader.preprocess_time=2ms", "reader.preprocess_threads=3"),
    ],
    ids=",".join,
)  # fmt: skip
def test_each_way_to_read_runs_as_a_job(measured: Any, tmp_path: Path, keys: tuple[str, ...]) -> None:
    result = measured(*keys)
    _check_activity(tmp_path, result)
    summary, dataset = result["summary"], result["dataset"]
    epochs = len(result["epochs"])
    assert summary["samples"] == 30 * epochs
    assert summary["opens"] > 0
    assert result["faults"] == []
    if "dataset.compression=gzip" not in keys:
        assert summary["bytes_read"] >= dataset["bytes"] * (1 if "reader.load=memory" in keys else epochs)
    if "reader.preprocess_time=2ms" in keys:
        assert summary["preprocess_s"] >= 30 * epochs / 2 * 0.002


def test_request_sizes_and_activity_of_a_job_that_reads_in_parts(measured: Any, tmp_path: Path) -> None:
    """A sample of 12,000 bytes is read in two requests of 4096 bytes and one of 3808."""
    result = measured("reader.transfer_size=4KiB", "checkpoint={every_steps: 2, files: [1000]}")
    with _timeline(tmp_path) as file:
        edges, counts = file["request_sizes/edges"][...], file["request_sizes/counts"][...]
        assert file["ranks/checkpoint_bytes"][...].tolist() == [4000, 0], "root alone writes"
    assert counts.shape == (2, len(edges) - 1)
    used = np.flatnonzero(counts.sum(axis=0))
    assert edges[used].tolist() == [pytest.approx(2**11.75), 4096]
    assert counts[:, used].tolist() == [[30, 60], [30, 60]]
    assert counts.sum() == result["summary"]["reads"]
    _check_activity(tmp_path, result)


def test_ranks_that_read_nothing_have_no_activity(measured: Any, tmp_path: Path) -> None:
    result = measured("dataset.files=1", "dataset.samples_per_file=2", "reader.batch_size=1", ppn=3)
    with _timeline(tmp_path) as file:
        assert file["activity/bytes"][...].sum(axis=1).tolist() == pytest.approx([0, 2 * SAMPLE, 2 * SAMPLE])
    _check_activity(tmp_path, result)


def test_every_rank_may_read_everything(measured: Any) -> None:
    result = measured("reader.shard=false", ppn=3)
    assert result["summary"]["samples"] == 3 * 30 * 2
    assert result["summary"]["bytes_read"] == 3 * 30 * 2 * SAMPLE
    assert result["summary"]["samples_left_out"] == 0


def test_side_files_are_counted_apart(measured: Any, tmp_path: Path) -> None:
    sides = (
        "{name: metadata, bytes: 100, count: 3, when: step, size: 4000, random: true}, "
        "{name: stats, bytes: 500, count: 50, when: start}, {name: list, bytes: 1 KiB, when: epoch, by: root}, "
        "{name: json, bytes: 1 MiB, count: 4, access: write, when: end}"
    )
    result = measured(f"dataset.auxiliary_files=[{sides}]")
    side_files, steps = result["summary"]["auxiliary_files"], result["summary"]["steps"]
    assert side_files["reads"] == 2 * (3 * steps + 50) + 2
    assert side_files["bytes_read"] == 2 * (300 * steps + 50 * 500) + 2 * 1024
    assert (side_files["writes"], side_files["bytes_written"]) == (2 * 4, 2 * 4 << 20)
    assert side_files["opens"] == 2 * 3 + 1, "read files once a rank, the list by root, JSON once a rank"
    assert side_files["time_s"] > 0
    assert result["summary"]["bytes_read"] == 30 * SAMPLE * 2, "none of it is samples"
    with _timeline(tmp_path) as file:
        ranks = {name: file["ranks"][name][...].tolist() for name in ("side_reads", "side_bytes_read")}
        assert file["ranks/side_bytes_written"][...].tolist() == [4 << 20, 4 << 20]
        assert file["activity/bytes"][...].sum() == pytest.approx(30 * SAMPLE * 2)
    assert ranks["side_reads"] == [3 * steps + 52, 3 * steps + 50], "the list is read by root, once an epoch"
    assert sum(ranks["side_bytes_read"]) == side_files["bytes_read"]
    (folder,) = (path.parent for path in (tmp_path / "dlio-data").glob("*/dlio-dataset.json"))
    sizes = {path.name: path.stat().st_size for path in folder.glob("side-*")}
    assert sizes == {"side-metadata": 4000, "side-stats": 25_000, "side-list": 1024}
    assert not list((tmp_path / "dlio-data").glob("outputs-*")), "what was written is removed"


@given(
    st.integers(1, 500), st.integers(1, 9), st.integers(1, 9), st.integers(0, 5000), st.integers(0, 10**6),
    st.integers(0, 511),
)  # fmt: skip
def test_side_files_are_read_in_runs_at_ascending_places(
    size: int, run: int, runs: int, more: int, number: int, rank: int
) -> None:
    side = AuxiliaryFile("a", Size(size), run * runs, size=Size(size * run + more), random=True, burst=run)
    offsets = auxiliary_files.offsets(side, number, rank)
    assert len(offsets) == side.count
    assert offsets[::run] == sorted(offsets[::run])
    assert all(0 <= offset <= side.file_size - size for offset in offsets)
    assert all(offset == offsets[at - 1] + size for at, offset in enumerate(offsets) if at % run)


def test_a_side_file_that_is_read_to_its_end(measured: Any) -> None:
    side_files = measured("dataset.auxiliary_files=[{name: list, bytes: 100, count: 3, read_to_eof: true}]")["summary"][
        "auxiliary_files"
    ]
    assert (side_files["reads"], side_files["bytes_read"]) == (2 * 4, 2 * 300)


def test_side_files_that_are_missing_or_cut_end_the_run(run: Run, small: Path, tmp_path: Path) -> None:
    keys = "dataset.auxiliary_files=[{name: stats, bytes: 500, count: 50}]"
    command = ("dlio-submit", small, "-s", "local", "--ppn", 2, "-S", keys, "--wait", "--json")
    assert run(*command).code == 0
    (side,) = (tmp_path / "dlio-data").glob("*/side-stats")
    os.truncate(side, 1000)
    cut = run(*command)
    assert cut.code == 3
    assert f"{side} ends at byte 1000, but data were expected from byte 1000 to 1500" in cut.err
    side.unlink()
    gone = run(*command)
    assert gone.code == 3
    assert f"{side} is missing" in gone.err


@pytest.mark.job
def test_null_workloads_may_have_side_files_alone(run: Run) -> None:
    sides = "dataset.auxiliary_files=[{name: stats, bytes: 500, count: 8, random: true}]"
    keys = ("-S", "dataset.files=2", "-S", "dataset.samples_per_file=8", "-S", sides)
    done = run("dlio-submit", "null", "-s", "local", "--ppn", 2, *keys, "--wait", "--json")
    assert done.code == 0, done.err
    generated, result = (one["result"] for one in done.job["runs"])
    assert generated["generated"]["bytes_written"] == 4000
    assert result["summary"]["auxiliary_files"]["reads"] == 16
    assert result["summary"]["bytes_read"] == 0


def _reaches_storage(folder: Path) -> bool:
    """Return whether the kernel counts what this file system reads once the page cache is dropped."""
    path = folder / "probe"
    path.write_bytes(os.urandom(1 << 20))
    with path.open("rb+") as file:
        os.fsync(file.fileno())
    drop(str(path))
    before = process_io()
    path.read_bytes()
    after = process_io()
    return before is not None and after is not None and after.fetched - before.fetched >= 1 << 20


def _is_cached(measured: Any, *keys: str) -> bool:
    """Return whether nothing comes from storage. A machine that was just started loads Python from there, and any
    machine may drop pages at any moment, but not three times in a row.
    """
    return any(measured(*keys)["summary"]["storage_bytes_read"] < 1 << 20 for _ in range(3))


@pytest.mark.parametrize("keys", [("reader.drop_cache=true",), ("reader.direct=true",)], ids=",".join)
@pytest.mark.parametrize("shuffle", ["true", "false"])
def test_reading_reaches_the_storage(measured: Any, tmp_path: Path, keys: tuple[str, ...], shuffle: str) -> None:
    """The kernel counts reads from storage in every epoch; without these options it counts none after generation."""
    if not _reaches_storage(tmp_path):
        pytest.skip("this file system lies in memory")
    bigger = ("dataset.sample={bytes: 1 MiB}", f"reader.shuffle.samples={shuffle}")
    assert _is_cached(measured, *bigger)
    for options in ((), ("--generate", "never")):
        result = measured(*bigger, *keys, options=options)
        for epoch in result["epochs"]:
            assert epoch["storage_bytes_read"] >= 30 << 20
    assert result["memory_bytes"] >= 1 << 30


def test_what_dlio_hpc_does_between_epochs_is_its_own_cost(measured: Any) -> None:
    result = measured("reader.drop_cache=true", "train.epochs=6", "dataset.sample={bytes: 1 MiB}")
    summary = result["summary"]
    between_s = summary["wall_s"] - sum(epoch["wall_s"] for epoch in result["epochs"])
    assert between_s > 0
    assert summary["overhead_s"] >= between_s / 2


def test_workers_of_pytorch_are_counted_too(measured: Any, tmp_path: Path) -> None:
    """The workers are other processes; /proc/self/io of the training process lacks their reads."""
    if not _reaches_storage(tmp_path):
        pytest.skip("this file system lies in memory")
    keys = ("dataset.sample={bytes: 1 MiB}", "reader.loader=pytorch", "reader.read_threads=2")
    assert _is_cached(measured, *keys)
    for epoch in measured(*keys, "reader.drop_cache=true")["epochs"]:
        assert epoch["storage_bytes_read"] >= 30 << 20


def _requests_in_timeline(folder: Path) -> tuple[int, int, int]:
    """Return the requests by their latencies and by their sizes, and the bytes over time, which are shared out."""
    (timeline,) = folder.glob("dlio-runs/*/runs/01-measure/timeline.h5")
    with h5py.File(timeline) as file:
        counts = [int(file[name][...].sum()) for name in ("read_latency/counts", "request_sizes/counts")]
        return counts[0], counts[1], round(float(file["activity/bytes"][...].sum()))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_requests_of_workers_are_in_the_timeline(measured: Any, tmp_path: Path, context: str) -> None:
    keys = ("reader.loader=pytorch", "reader.read_threads=2", f"reader.multiprocessing_context={context}")
    summary = measured(*keys)["summary"]
    assert _requests_in_timeline(tmp_path) == (60, 60, 60 * SAMPLE)
    assert (summary["reads"], summary["bytes_read"]) == (60, 60 * SAMPLE)
    assert summary["io_time_s"] > 0
    assert 0 <= summary["io_hidden_fraction"] <= 1
    assert summary["read_latency_s"]["max"] >= summary["read_latency_s"]["p50"] > 0


def test_requests_of_workers_of_a_stopped_run_are_those_of_its_steps(run: Run, small: Path, tmp_path: Path) -> None:
    late = "(while [ ! -e runs/01-measure ]; do sleep 0.05; done; sleep 2; echo late > stop) &"
    stops = f"site.setup={json.dumps([late])}"
    keys = ("reader.loader=pytorch", "reader.preprocess_time=100ms", "train.epochs=20", stops)
    options = [word for key in keys for word in ("-S", key)]
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, *options, "--wait", "--json")
    assert done.code == 7, done.err
    summary = done.job["runs"][-1]["result"]["summary"]
    assert 0 < summary["samples"] == summary["reads"] < 600
    assert summary["bytes_read"] == summary["samples"] * SAMPLE
    read = summary["samples"]
    assert _requests_in_timeline(tmp_path) == (read, read, read * SAMPLE)


def test_ranks_may_read_what_another_node_wrote(tmp_path: Path) -> None:
    """The plan lets a rank of the next node read each share; the machine has one node, so no job runs."""
    from dlio_hpc.config.workload import load
    from dlio_hpc.dataset import rank_shares

    made = load("demo", ("reader.reorder_tasks=true",))
    own = [rank_shares.share(made.dataset.samples, 8, rank) for rank in range(8)]
    assert [rank_shares.positions(made, 8, rank, 4) for rank in range(8)] == own[4:] + own[:4]


def test_the_kernel_saw_every_byte(small: Path, tmp_path: Path) -> None:
    """strace's sum of preadv on the dataset's files equals the bytes of the result."""
    straced.needed()
    command = [str(BIN / "dlio-submit"), str(small), "-s", "local", "--ppn", "2", "--generate", "only", "--wait"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    for transfer_size, length in (("null", SAMPLE), ("5000", 5000)):
        keys = ["-S", f"reader.transfer_size={transfer_size}", "--generate", "never", "-o", transfer_size]
        subprocess.run([*command[:6], *keys, "--dry-run"], cwd=tmp_path, check=True, capture_output=True)
        submitted = [*command[:6], *keys, "--wait", "--quiet"]
        done = subprocess.run([*submitted], cwd=tmp_path, capture_output=True, check=False, text=True)
        assert done.returncode == 0, done.stderr
        (folder,) = (path.parent for path in (tmp_path / transfer_size).glob("*/plan.json"))
        trace = tmp_path / f"trace-{transfer_size}"
        core = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", "plan.json", "--run", "0"]
        traced = ["strace", "-f", "-y", "-e", "trace=preadv,preadv2", "-o", str(trace)]
        subprocess.run([BIN / "mpiexec", "-n", "2", *traced, "-ff", *core], cwd=folder, check=True, capture_output=True)
        summary = json.loads(next(folder.glob("runs/00-measure/result.json")).read_bytes())["summary"]
        calls = []
        for part in tmp_path.glob(f"trace-{transfer_size}.*"):
            calls += re.findall(r"preadv2?\(\d+<[^>]*\.npz>.* = (\d+)$", part.read_text(), re.MULTILINE)
        arrived = list(map(int, calls))
        assert sum(arrived) == summary["bytes_read"] == 60 * SAMPLE
        assert len(arrived) == summary["reads"]
        assert max(arrived) == length


def _in_small_tmpfs(size: str, folder: Path, command: list[str]) -> Outcome:
    """Run a command in a mount namespace where `folder` is a tmpfs of that size."""
    script = f'mount -t tmpfs -o size={size} tmpfs "$1" && shift && exec "$@"'
    arguments = ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), *command]
    done = subprocess.run(arguments, capture_output=True, text=True, cwd=folder.parent, timeout=120, check=False)
    if "mount:" in done.stderr or "unshare:" in done.stderr:
        pytest.skip("no tmpfs may be mounted here")
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("kind", ["npz", "npy", "tfrecord", "hdf5"])
def test_a_disk_that_fills_up_ends_the_job(small: Path, tmp_path: Path, kind: str) -> None:
    """The payload fits but the files' headers and pages do not; only writing them shows that."""
    (tmp_path / "disk").mkdir()
    sample = "dataset.sample={shape: [1024]}"  # a block of tmpfs, without the header of the file
    keys = ["dataset.files=200", "dataset.samples_per_file=1", sample, f"dataset.format={kind}"]
    options = [word for key in keys for word in ("-S", key)]
    command = [str(BIN / "dlio-submit"), str(small), "-s", "local", "--ppn", "2", "-d", "disk", *options]
    full = _in_small_tmpfs("1m", tmp_path / "disk", [*command, "--wait", "--json"])
    assert full.code == 6, full.err
    error = full.job["runs"][0]["error"]
    assert error["rank"] in {0, 1}
    assert re.search(rf"cannot write .*disk/.*\.{kind}: .*No space left on device", error["message"])


def test_a_disk_too_small_for_checkpoints_ends_the_job(small: Path, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    command = [str(BIN / "dlio-submit"), str(small), "-s", "local", "--ppn", "2", "-d", "disk", "-S", "checkpoint={}"]
    full = _in_small_tmpfs("3m", tmp_path / "disk", [*command, "--wait"])
    assert full.code == 6, full.err
    assert re.search(r"cannot write .*disk/outputs-.*ckpt: No space left on device", full.out + full.err)


def test_folders_that_may_not_be_read_are_told(small: Path, tmp_path: Path) -> None:
    """Permissions bind root too once it has given up the right to override them."""
    bound = ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--inh-caps=-all"] if os.getuid() == 0 else []
    if bound and shutil.which("setpriv") is None:
        pytest.skip("no setpriv on this machine")
    command = [*bound, str(BIN / "dlio-submit"), str(small), "-s", "local", "--ppn", "2", "-d", "data", "--wait"]

    def submit() -> Outcome:
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
        return Outcome(done.returncode, done.stdout, done.stderr)

    assert submit().code == 0
    (dataset,) = (path.parent for path in (tmp_path / "data").glob("*/dlio-dataset.json"))
    for path, code, message in (
        (dataset / "00000003.npz", 6, "cannot read .*00000003.npz: Permission denied"),
        (dataset, 6, "cannot use .*: Permission denied; choose another --data"),
    ):
        path.chmod(0)
        done = submit()
        path.chmod(0o755)
        assert done.code == code, done.err
        assert re.search(message, done.out + done.err)


def test_a_cut_file_is_found_by_collective_reads_too(run: Run, small: Path, tmp_path: Path) -> None:
    """The file's size shows the cut: MPI-IO reports the full count past the end, and the first sample is whole."""
    keys = [word for key in ("reader.access=collective", "reader.read_threads=1") for word in ("-S", key)]
    command = ("dlio-submit", small, "-s", "local", "--ppn", 3, *_SHARED, *keys, "--wait", "--json")
    assert run(*command).code == 0
    (data,) = (tmp_path / "dlio-data").glob("*/*.npz")
    os.truncate(data, 4096 + 29 * SAMPLE)
    done = run(*command)
    assert done.code == 3
    assert (
        f"{data} ends at byte {4096 + 29 * SAMPLE}, but samples were expected up to byte {4096 + 30 * SAMPLE}"
        in done.err
    )


@pytest.mark.parametrize("keys", [("dataset.format=tfrecord", "reader.mode=framework"), ("dataset.format=npz",)])
def test_no_step_has_fewer_bytes_than_none(measured: Any, tmp_path: Path, keys: tuple[str, ...]) -> None:
    """A block of TFRecord is read with one batch and serves the next, which then reads nothing."""
    small_samples = ("dataset.sample={bytes: 1000}", "dataset.files=4", "dataset.samples_per_file=64")
    result = measured(*keys, *small_samples, "reader.shuffle.samples=false")
    (timeline,) = (tmp_path / "dlio-runs").glob("*/runs/01-measure/timeline.h5")
    with h5py.File(timeline) as file:
        steps = file["steps/bytes"][...]
    assert steps.max() <= result["dataset"]["bytes"]
    assert steps.sum() == result["summary"]["bytes_read"]


@pytest.mark.parametrize("loader", ["native", "tensorflow"])
def test_checkpoints_and_side_files_are_not_taken_for_samples(measured: Any, tmp_path: Path, loader: str) -> None:
    if loader == "tensorflow":
        pytest.importorskip("tensorflow")
    keys = (
        "dataset.format=tfrecord", "reader.mode=framework", f"reader.loader={loader}", "reader.shuffle.samples=false",
        "reader.read_threads=1", "checkpoint={every_steps: 1, files: [1000000], read_back: true, by: all}",
        "dataset.auxiliary_files=[{name: side, bytes: 100 KB, count: 5, when: step, size: 1 MB}]",
    )  # fmt: skip
    summary = measured(*keys)["summary"]
    assert summary["checkpoint"]["bytes_written"] == summary["steps"] * 2 * 1_000_000
    assert summary["auxiliary_files"]["bytes_read"] == summary["steps"] * 2 * 500_000
    assert 60 * SAMPLE <= summary["bytes_read"] < 60 * SAMPLE + 1_000_000, "TensorFlow reads a share's files whole"
    read_back = summary["checkpoint"]["bytes_written"]
    assert summary["storage_bytes_read"] < read_back / 2, "TensorFlow's own libraries, not what was read back"


def test_checkpoints_are_counted_over_the_run(run: Run, small: Path) -> None:
    """In 2 epochs of 4 steps a checkpoint every 5 steps is written once; every 9 steps, none is, and a note says so."""
    command = ("dlio-submit", small, "-s", "local", "--ppn", 2, "--wait", "--json", "-S")
    done = run(*command, "checkpoint.every_steps=5")
    assert done.job["runs"][-1]["result"]["summary"]["checkpoint"]["count"] == 1
    done = run(*command, "checkpoint.every_steps=9")
    assert done.job["runs"][-1]["result"]["summary"]["checkpoint"] is None
    assert "note: checkpoint.every_steps: no checkpoint is written, because the run ends after 8 steps" in done.err


def test_batches_that_do_not_fit_into_shared_memory_end_the_run(small: Path, tmp_path: Path) -> None:
    shared = Path("/dev/shm")
    keys = ["reader.loader=pytorch", "reader.batch_size=8", "dataset.sample={bytes: 1 MiB}", "dataset.files=2"]
    options = [word for key in keys for word in ("-S", key)]
    command = [str(BIN / "dlio-submit"), str(small), "-s", "local", "--ppn", "1", *options, "--wait", "--json"]
    script = f'cd "{tmp_path}" && exec "$@"'
    full = _in_small_tmpfs("4m", shared, ["sh", "-c", script, "sh", *command])
    assert full.code == 6, full.err
    assert "PyTorch has no memory for a batch" in full.err
    assert "enlarge /dev/shm, or lower batch_size or prefetch" in full.err


_BROKEN_WORKERS = """\
import multiprocessing.resource_sharer as sharer

def fail(*_):
    raise OSError("AF_UNIX path too long")

sharer.DupFd = fail
"""


@pytest.mark.framework
def test_workers_of_pytorch_that_cannot_deliver_end_the_job(run: Run, small: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "sitecustomize.py").write_text(_BROKEN_WORKERS)
    options = ("-s", "local", "--ppn", 2, "-S", "reader.loader=pytorch", "-t", "5m", "--wait", "--json")
    done = run("dlio-submit", small, *options, **ahead(tmp_path))
    assert done.code == 6, done.err
    error = done.job["runs"][-1]["error"]
    message = "the worker processes of PyTorch's DataLoader cannot deliver batches: OSError: AF_UNIX path too long"
    assert (error["kind"], error["message"]) == ("InfrastructureError", message)
    assert "Traceback" in (Path(done.job["directory"]) / "job.err").read_text()
    assert done.job["state"] == "failed"
