"""The training loop of a rank, without other ranks and without storage."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from dlio_hpc.config import site, workload
from dlio_hpc.core import clock, node_activity, procfs, train
from dlio_hpc.core.auxiliary_files import Counts
from dlio_hpc.core.distributions import SYNCED
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.core.progress import Progress
from dlio_hpc.dataset.sample_layout import Places
from dlio_hpc.plan.plan import Run
from tests.support import planning

_SILENT = Progress("test", speaks=False)


def _run(folder: Path, *keys: str, ranks: int = 1) -> Run:
    """Return a run of two epochs of three steps on each rank."""
    small = ("dataset.files=3", f"dataset.samples_per_file={4 * ranks}", "reader.batch_size=4", "train.epochs=2")
    request = planning.Request(folder, data=folder, ranks_per_node=ranks)
    return planning.make(workload.load("null", (*small, *keys)), site.load("local"), request).runs[-1]


# Of each epoch: seconds that its comparisons take after each of three steps, and at its end; samples compared after
# each step.
_COMPARED = [([1.0, 2.0, 4.0], 16.0, [3, 2, 4]), ([8.0, 0.5, 0.25], 32.0, [1, 4, 1])]


def test_seconds_and_samples_of_comparisons_are_those_of_their_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake clock: waiting for a batch takes 100 s, computing takes 1000 s."""
    run = _run(tmp_path)
    at, due = [50.0], iter([pair for seconds, _, samples in _COMPARED for pair in zip(seconds, samples, strict=True)])
    ends = iter([seconds for _, seconds, _ in _COMPARED])

    def after(seconds: float) -> None:
        at[0] += seconds

    class Comparison:
        is_whole = False

        def __call__(self, _batch: Batch) -> int:
            seconds, samples = next(due)
            after(seconds)
            return samples

        def finish(self) -> None:
            after(next(ends))

    def batches() -> Iterator[Batch]:
        for _ in range(3):
            after(100)
            yield Batch(Places(np.zeros((6, 0), np.int64)), np.zeros((4, 8), np.uint8), Tally())

    monkeypatch.setattr(clock, "now", lambda: at[0])
    monkeypatch.setattr(train, "emulate", lambda *_: after(1000))
    alone: Any = SimpleNamespace(rank=0, size=1)
    apart: Any = SimpleNamespace(taken=lambda: 0)
    nothing: Any = SimpleNamespace(due=lambda _when: None, barrier=lambda: False, mark=lambda _: None)
    comparison: Any = Comparison()
    arrivals: Any = SimpleNamespace(end=lambda _apart: (0.0,) * 6, from_storage=lambda _columns: 0.0)
    record = train.Recorder(run, _SILENT)
    loop = train._Loop(alone, run.workload, record, None, nothing, comparison, apart, nothing)
    for epoch in range(2):
        assert not loop.epoch(epoch, batches())
        loop.end_epoch(epoch, arrivals)
    recording = record.recording(Counts(), run.workload)
    assert recording.verified.tolist() == [[sum(seconds) + end, sum(samples)] for seconds, end, samples in _COMPARED]
    assert recording.steps[:, SYNCED].tolist() == [1150, 2251, 3353, 4473, 5581, 6681.5], "no part of a step"


def _stop(comm: Any) -> Any:
    """Return what never stops the ranks."""
    return SimpleNamespace(
        barrier=lambda: False, epochs=lambda run: run.workload.train.epochs, begin=lambda _: clock.barrier(comm),
        planned_end=lambda: None, mark=lambda _: None,
    )  # fmt: skip


@pytest.mark.parametrize(("rank", "cores", "load"), [(0, 96, 7.5), (1, 0, 0)])
def test_the_first_rank_of_a_node_reports_its_activity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int, cores: int, load: float
) -> None:
    run = _run(tmp_path, ranks=2)
    node: Any = SimpleNamespace(rank=rank, size=2, bcast=lambda value: value)
    comm: Any = SimpleNamespace(rank=rank, size=2, Split_type=lambda _: node)
    stop = _stop(comm)
    for wait in ("barrier", "assemble"):
        monkeypatch.setattr(clock, wait, lambda _comm: None)
    monkeypatch.setattr(os, "cpu_count", lambda: 96)
    monkeypatch.setattr(procfs, "load", lambda: 7.5)
    made = train.train(comm, run, 2, _SILENT, stop, nullcontext())
    assert len(made.steps) == 6
    assert made.disturbances[:, node_activity.CORES].tolist() == [cores] * 3
    assert made.disturbances[:, node_activity.LOAD].tolist() == [load] * 3


@pytest.mark.parametrize("rank", [0, 1])
def test_rank_0_makes_the_folder_of_written_files_before_others_use_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rank: int
) -> None:
    """On GlusterFS, a folder that two nodes create at the same time may not exist yet for one of them."""
    log = "{name: log, access: write, by: all, when: step, bytes: 9, count: 1}"
    run = _run(tmp_path, f"dataset.auxiliary_files=[{log}]", ranks=2)
    events: list[str] = []
    mkdir = os.mkdir

    def noted(path: Any, *mode: Any) -> None:
        events.extend(["made"] * (path == run.outputs))
        mkdir(path, *mode)

    node: Any = SimpleNamespace(rank=rank, size=2, bcast=lambda value: value)
    comm: Any = SimpleNamespace(rank=rank, size=2, Split_type=lambda _: node, bcast=lambda value: value)
    stop = _stop(comm)
    for wait in ("barrier", "assemble"):
        monkeypatch.setattr(clock, wait, lambda _comm: events.append("waited"))
    monkeypatch.setattr(clock, "longest", lambda _comm, seconds: seconds)
    monkeypatch.setattr(os, "mkdir", noted)
    train.train(comm, run, 2, _SILENT, stop, nullcontext())
    assert "made" in events
    assert events[0] == ("made" if rank == 0 else "waited")
