"""Steps of one process in a job of 8192 ranks cost little, and a rank's work does not grow with the dataset."""

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytest
from msgspec.structs import replace

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.base import serialization
from dlio_hpc.config import site, workload
from dlio_hpc.core import cache_accounting, distributions, merge, node_activity, page_cache, timeline
from dlio_hpc.dataset import dataset_folder, rank_shares
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.files import rundir
from dlio_hpc.plan import plan
from dlio_hpc.results import run_result
from tests.bench import scaling
from tests.conftest import BIN
from tests.support import planning, recordings, straced, written

# Of the 438 MiB that the recordings alone take.
_MOST_MIB = 1430


def test_planning_does_not_grow_with_the_ranks(tmp_path: Path) -> None:
    """A fresh process makes plan, limits and job script of three sites."""
    few, many = (scaling.cost("plan", tmp_path, nodes) for nodes in (scaling.FEW, scaling.NODES))
    assert many.seconds < 2 * few.seconds + 0.2
    assert abs(many.mebibytes - few.mebibytes) < 2
    assert many.mebibytes < 50
    small, large = (serialization.encode(scaling.planned(tmp_path, "slurm", nodes)) for nodes in (1, scaling.NODES))
    assert len(large) < len(small) + 100


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, scaling.Cost]:
    """Merge and write 8192 ranks x 1000 steps in a process of its own; return the cost, with that of the recordings."""
    folder = tmp_path_factory.mktemp("large")
    return folder, scaling.cost("merge", folder)


def test_merging_takes_little_more_than_the_recordings(large: tuple[Path, scaling.Cost]) -> None:
    assert large[1].mebibytes < _MOST_MIB
    (path,) = (large[0] / "job").glob("runs/*/result.json")
    summary = run_result.decode(path.read_bytes(), str(path)).summary
    assert summary is not None
    assert (summary.samples, summary.steps) == (8192 * 1000, 1000)
    assert summary.compute_s.mean == pytest.approx(0.0505, rel=1e-3)
    assert path.stat().st_size < 100_000


def test_the_report_of_many_ranks_is_small(large: tuple[Path, scaling.Cost]) -> None:
    pytest.importorskip("matplotlib")
    cost = scaling.cost("report", large[0])
    assert cost.mebibytes < _MOST_MIB
    assert cost.seconds < 60
    page = (large[0] / "report.html").read_text()
    assert len(page) < 1_000_000
    assert "2048: nid000000, nid000001" in page
    assert "nid001000" not in page


def test_every_step_can_be_read_back(tmp_path: Path) -> None:
    """The last epoch may be cut short. Computed values are the same for all ranks at once and one by one."""
    made = scaling.planned(tmp_path, "slurm", 2)
    (run,) = made.runs
    merged = recordings.merged(made)._replace(
        arrivals=np.zeros((8, 3, cache_accounting.COLUMNS)),
        disturbances=np.zeros((8, 4, node_activity.COLUMNS)),
        verified=np.zeros((8, 3, 2)),
    )
    cut = merged._replace(steps=merged.steps[:, :950])
    path = tmp_path / rundir.TIMELINE
    timeline.write(tmp_path, cut, replace(run, steps_per_epoch=400), [], "")
    assert [epoch.steps for epoch in merge.epochs(cut, replace(run, steps_per_epoch=400))] == [400, 400, 150]
    first = cut.steps[..., distributions.STARTED].min()
    with h5py.File(path) as file:
        columns = {name: file["steps"][name][:].reshape(8, -1) for name in file["steps"]}
    assert {column.shape for column in columns.values()} == {(8, 1200)}
    steps = cut.steps
    for name, expected in (
        ("start", steps[..., distributions.STARTED] - first),
        ("wait", steps[..., distributions.READY] - steps[..., distributions.STARTED]),
        ("compute", steps[..., distributions.COMPUTED] - steps[..., distributions.READY]),
        ("sync", steps[..., distributions.SYNCED] - steps[..., distributions.COMPUTED]),
        ("asked", steps[..., distributions.ASKED]),
        ("samples", steps[..., distributions.SAMPLES]),
        ("bytes", steps[..., distributions.BYTES]),
    ):
        assert (columns[name][:, :950] == expected).all(), name
        rest = columns[name][:, 950:]
        assert (np.isnan(rest) if rest.dtype.kind == "f" else rest == 0).all()
    with timeline_reader.opened(path.read_bytes()) as record:
        at_once = timeline_reader.computing_of_all(record)
        assert all((at_once[rank] == timeline_reader.computing(record, rank)).all() for rank in range(8))
        assert at_once[3].shape == (950, 2)


_STEPS, _BATCH = 4, 4
_FEW, _MANY = _STEPS * _BATCH, 100 * _STEPS * _BATCH
_WAYS = {
    "in order": (),
    "shuffled": ("reader.shuffle={files: true, samples: true}",),
    "cache dropped": ("reader.drop_cache=true",),
    "shuffled, cache dropped": ("reader.shuffle={files: true, samples: true}", "reader.drop_cache=true"),
}


def _planned(folder: Path, files: int, *overrides: str) -> plan.Plan:
    keys = (
        f"dataset.files={files}", "dataset.samples_per_file=1", "dataset.sample={shape: [10]}", f"train.steps={_STEPS}",
        f"reader.batch_size={_BATCH}", "reader.read_threads=1", "reader.shuffle={}", "compute.time=0", "train.epochs=1",
    )  # fmt: skip
    request = planning.Request(runs=folder, data=folder / "data", ranks_per_node=1, generate="never")
    return planning.make(workload.load("demo", (*keys, *overrides)), site.load("local"), request)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Datasets of few and of many files."""
    folder = tmp_path_factory.mktemp("stored")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)  # of 1600 files it takes long
        for files in (_FEW, _MANY):
            (run,) = _planned(folder, files).runs
            Path(run.dataset).mkdir(parents=True)
            for number in range(files):
                written.write(dataset_folder.file_path(run.stored, number), run.workload.dataset, number)
            dataset_folder.mark(run.stored, complete=True)
    return folder


# Everything that asks a metadata server: calls that take a path, what is told of an open file, what lists a folder.
_METADATA = "trace=%file,?fstat,?fstatfs,?getdents,?getdents64,?ftruncate,?fchmod"
# Paths of the node: ranks look there for what killed ranks left, and other tests change what they find.
_OF_NODE = re.compile(r'["<]/(?:proc\b|dev/shm\b|tmp(?:/[^/">]*)?[">])')


def _calls(folder: Path, made: plan.Plan) -> Counter[str]:
    """Count the metadata calls of one rank by name, from its start to its end."""
    job = folder / made.job
    job.mkdir()
    (job / rundir.PLAN).write_bytes(serialization.encode(made))
    trace = job / "trace"
    core = [sys.executable, "-m", "mpi4py", "-m", "dlio_hpc.core", rundir.PLAN, "--run", "0"]
    traced = ["strace", "-f", "-qq", "-y", "-e", _METADATA, "-e", "signal=none", "-o", str(trace)]
    done = subprocess.run(
        [BIN / "mpiexec", "-n", "1", *traced, *core], cwd=job, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    calls = [line for line in trace.read_text(errors="replace").splitlines() if not _OF_NODE.search(line)]
    return Counter(re.findall(r"^\d+ +(\w+)\(", "\n".join(calls), re.MULTILINE))


@pytest.mark.job
@pytest.mark.parametrize("way", _WAYS)
def test_metadata_calls_do_not_grow_with_the_dataset(stored: Path, way: str) -> None:
    """A rank reads as many files of 16 as of 1600; the interpreter's own calls are counted too."""
    straced.needed()
    few, many = (_calls(stored, _planned(stored, files, *_WAYS[way])) for files in (_FEW, _MANY))
    assert sum(few.values()) > _FEW
    assert not many - few, f"{dict(many - few)} more calls on {_MANY} files than on {_FEW}"


@pytest.mark.parametrize("way", ["cache dropped", "shuffled, cache dropped"])
@pytest.mark.parametrize("ranks_on_node", [1, 2, 8])
def test_a_node_forgets_what_it_reads_and_no_more_than_that(tmp_path: Path, way: str, ranks_on_node: int) -> None:
    """A node forgets the files that its ranks read, in datasets of any size; the test computes them, no file exists."""
    for files, steps in ((64, 1), (10_000, _STEPS), (10_000, 2000), (10**9, _STEPS)):
        made = _planned(tmp_path, files, f"train.steps={steps}", *_WAYS[way]).runs[0].workload
        order = Order(made.dataset, made.reader, 0)
        dropped: list[int] = []
        read: set[int] = set()
        for rank in range(ranks_on_node):
            first, last = rank_shares.positions(made, 8, rank, ranks_on_node)
            node: Any = SimpleNamespace(size=ranks_on_node, rank=rank)
            mine = list(page_cache.files_of(node, made, order, first, last, steps))
            assert len(mine) <= steps * _BATCH
            dropped += mine
            read |= set(order.samples(first, min(last, first + steps * _BATCH)).tolist())
        assert read <= set(dropped)
        assert len(dropped) == len(set(dropped))
