"""Evaluation passes read a second dataset between epochs, and are kept apart from training."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from msgspec.structs import replace

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import site
from dlio_hpc.config.workload import load
from dlio_hpc.core import cache_accounting, clock, evaluation
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.loaders.loader import Batch
from dlio_hpc.core.loaders.loader_choice import LOADERS
from dlio_hpc.dataset import planned_bytes
from dlio_hpc.dataset.sample_layout import Places
from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.plan import cost
from tests.conftest import Run
from tests.support import planning

_SMALL = (
    "dataset.files=4", "dataset.samples_per_file=6", "dataset.sample={bytes: 3000}", "reader.batch_size=2",
    "compute.time=1 ms", "train.epochs=4",
)  # fmt: skip


def _plan(folder: Path, *settings: str, **changes: Any) -> Any:
    workload = load("demo", (*_SMALL, *settings))
    return planning.make(workload, site.load("local"), planning.Request(folder, data=folder, **changes))


def test_a_pass_reads_a_dataset_of_its_own(tmp_path: Path) -> None:
    plan = _plan(
        tmp_path, "evaluation={files: 3, every_epochs: 2, batch_size: 4, time: {mean: 7 ms}}", ranks_per_node=2
    )
    generated = [run for run in plan.runs if run.kind == "generate"]
    assert [run.workload.dataset.files for run in generated] == [4, 3]
    assert len({run.dataset for run in generated}) == 2
    measured = plan.runs[-1]
    passes = measured.evaluation
    assert passes is not None
    assert (passes.dataset, passes.fingerprint) == (generated[1].dataset, generated[1].fingerprint)
    assert (passes.workload.train.epochs, passes.samples, passes.steps_per_epoch) == (2, 2 * 18, 3)
    assert passes.workload.compute.time.mean == pytest.approx(0.007)
    assert passes.bytes == planned_bytes.planned(passes.workload, 2, passes.samples)
    assert measured.samples == 4 * 24


def test_the_cost_counts_the_passes(tmp_path: Path) -> None:
    rates = site.load("local").expected_rates
    with_passes, without = (
        cost.of_run(_plan(tmp_path, *keys).runs[-1], 1, 1, rates) for keys in (("evaluation={files: 8}",), ())
    )
    assert with_passes.bytes_read - without.bytes_read == 4 * 8 * 6 * 3000
    assert with_passes.seconds > without.seconds


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("evaluation={}",), "evaluation: missing key 'files'|evaluation.*files"),
        (("evaluation={files: 2, every_epochs: 5}",), "evaluation.every_epochs is larger than train.epochs"),
        (("evaluation={files: 2}", "dataset.format=null"), "evaluation needs a dataset that is generated"),
        (
            ("evaluation={files: 2}", "dataset.file_access=shared", "dataset.files=1"),
            "evaluation needs a dataset that is generated, with file_access=multi",
        ),
        (("evaluation={files: 2}", "reader.load=memory"), "evaluation needs load=on_demand"),
    ],
)
def test_workloads_without_passes_are_refused(settings: tuple[str, ...], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load("demo", (*_SMALL, *settings))


def test_preparation_and_the_end_of_workers_are_no_part_of_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake clock: the page cache is dropped for 100 s, a step takes 1 s, and the loader ends for 1000 s."""
    run = _plan(tmp_path, "evaluation={files: 3}", "reader.drop_cache=true").runs[-1].evaluation
    at = [0.0]

    def after(seconds: float) -> None:
        at[0] += seconds

    def batches(*_: object) -> Iterator[Batch]:
        for _step in range(run.steps_per_epoch):
            after(1)
            yield Batch(Places(np.zeros((6, 0), np.int64)), np.zeros((2, 8), np.uint8), Tally())
        after(1000)

    monkeypatch.setattr(clock, "now", lambda: at[0])
    monkeypatch.setattr(evaluation, "open_loader", lambda *_: SimpleNamespace(epoch=batches))
    monkeypatch.setattr(evaluation, "PageCacheDrop", lambda *_: lambda *_: after(100))
    monkeypatch.setattr(evaluation, "emulate", lambda *_: None)
    monkeypatch.setattr(evaluation, "Verification", lambda *_: Mock())
    alone: Any = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)
    passes = evaluation.EvaluationPasses(alone, alone, run, 1, 1)
    row, stopped = passes.evaluate(0, Mock(barrier=lambda: False))
    assert not stopped
    steps = run.steps_per_epoch
    assert (row[evaluation.WALL_S], row[evaluation.WAIT_S], row[evaluation.TOOK_S]) == (steps, steps, steps + 1100)


# Of three unequal steps: seconds of waiting, computing and the barrier, samples, bytes.
_UNEQUAL = [(1.0, 0.5, 10.0, 2, 7), (2.0, 0.25, 20.0, 1, 11), (4.0, 3.0, 40.0, 3, 13)]


@pytest.mark.parametrize(("last", "stopped"), [(None, False), (2, True), (3, False)])
def test_the_figures_of_a_pass_are_the_sums_of_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: int | None, stopped: bool
) -> None:
    """A fake clock. last: number of steps after which time runs out; None if it does not."""
    run = replace(_plan(tmp_path, "evaluation={files: 3}").runs[-1].evaluation, steps_per_epoch=3)
    at, done = [50.0], [0]

    def after(seconds: float) -> None:
        at[0] += seconds

    def batches(*_: object) -> Iterator[Batch]:
        for wait, _compute, _sync, samples, size in _UNEQUAL:
            after(wait)
            tally = Tally()
            tally.bytes_read = size
            yield Batch(Places(np.zeros((6, 0), np.int64)), np.zeros((samples, 8), np.uint8), tally)

    def barrier() -> bool:
        after(_UNEQUAL[done[0]][2])
        done[0] += 1
        return done[0] == last

    monkeypatch.setattr(clock, "now", lambda: at[0])
    monkeypatch.setattr(evaluation, "open_loader", lambda *_: SimpleNamespace(epoch=batches))
    monkeypatch.setattr(evaluation, "emulate", lambda *_: after(_UNEQUAL[done[0]][1]))
    monkeypatch.setattr(evaluation, "Verification", lambda *_: Mock())
    alone: Any = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)
    row, is_stopped = evaluation.EvaluationPasses(alone, alone, run, 1, 1).evaluate(5, Mock(barrier=barrier))
    steps = _UNEQUAL[: last or 3]
    sums = [sum(step[column] for step in steps) for column in range(5)]
    assert bool(is_stopped) is stopped
    assert list(row[evaluation.WAIT_S : evaluation.SYNC_S + 1]) == sums[:3]
    assert list(row[evaluation.STEPS : evaluation.BYTES + 1]) == [len(steps), *sums[3:]]
    assert (row[evaluation.EPOCH], row[evaluation.WALL_S], row[evaluation.TOOK_S]) == (5, sum(sums[:3]), sum(sums[:3]))


def test_a_pass_follows_each_third_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = _plan(tmp_path, "evaluation={files: 3}").runs[-1].evaluation
    monkeypatch.setattr(evaluation, "open_loader", lambda *_: None)
    alone: Any = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)
    passes = evaluation.EvaluationPasses(alone, alone, run, 1, 3)
    assert [epoch for epoch in range(7) if passes.is_due(epoch)] == [2, 5]
    assert all(evaluation.EvaluationPasses(alone, alone, run, 1, 1).is_due(epoch) for epoch in range(3))


@pytest.mark.parametrize("direct", [False, True])
def test_pages_in_memory_say_nothing_about_direct_reads(tmp_path: Path, direct: bool) -> None:
    run = _plan(tmp_path, "evaluation={files: 3}", f"reader.direct={str(direct).lower()}").runs[-1].evaluation
    alone: Any = SimpleNamespace(rank=0, size=1, bcast=lambda value: value)
    asked: list[bool] = []
    arrivals = cache_accounting.of_samples(alone, run, 1)
    arrivals.look(lambda: asked.append(True) or [])  # type: ignore[func-returns-value]
    kind = filesystem.of(tmp_path).kind
    assert bool(asked) is (not (direct and storage_proofs.bypasses_pages(kind)) and storage_proofs.has_pages(kind))


@pytest.mark.job
def test_the_report_of_a_pass_with_direct_reads_names_no_pages(run: Run, small: Path) -> None:
    keys = ("reader.direct=true", "evaluation={files: 3}", "compute.time=1 ms")
    settings = [word for key in keys for word in ("-S", key)]
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, *settings, "--wait", "--json")
    if "has no O_DIRECT" in done.err:
        pytest.skip("no O_DIRECT here")
    assert done.code in {0, 4}, done.err
    assert done.job["runs"][-1]["result"]["summary"]["evaluation"]["page_cache_fraction"] is None
    text = " ".join(run("dlio-hpc", "report", done.job["archive"]).out.split())
    assert "evaluated 2 passes" in text
    assert "of the evaluation passes came from memory" not in text


@pytest.mark.job
def test_passes_that_read_memory_are_named_in_the_first_sentence(run: Run, small: Path, tmp_path: Path) -> None:
    """The data directory has the training's dataset; that of the evaluation is a link to memory."""
    keys = ("reader.direct=true", "evaluation={files: 3}", "compute.time=1 ms", "reader.verify_content=none")
    settings = [word for key in keys for word in ("-S", key)]
    first = run("dlio-submit", small, "-s", "local", "--ppn", 2, "-d", "data", *settings, "--wait", "--json")
    if first.code == 4 or "has no O_DIRECT" in first.err:
        pytest.skip("no storage here")
    assert "was read from storage. Measured once" in run("dlio-hpc", "report", first.job["archive"]).out
    folder = Path(first.job["runs"][1]["result"]["generated"]["dataset"])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        for path in folder.glob("*.npz"):
            shutil.move(path, memory)
            path.symlink_to(Path(memory, path.name))
        done = run("dlio-submit", small, "-s", "local", "--ppn", 2, "-d", "data", *settings, "--wait", "--json")
    text = " ".join(run("dlio-hpc", "report", done.job["archive"]).out.split())
    assert text.startswith("Good: Samples and bytes are as planned, and 100 % was read from storage; but whether the ")
    assert "evaluation passes read storage is unknown (some files are on another file system than their folder)" in text


@pytest.mark.job
@pytest.mark.parametrize("loader", LOADERS)
def test_passes_are_measured_apart(loader: str, run: Run, small: Path, tmp_path: Path) -> None:
    if loader != "native":
        pytest.importorskip({"pytorch": "torch"}.get(loader, loader))
    keys = (f"reader.loader={loader}", "train.epochs=4", "reader.verify_content=all", "compute.time=2 ms",
            "evaluation={files: 3, every_epochs: 2, time: {mean: 40 ms}}")  # fmt: skip
    settings = [word for key in keys for word in ("-S", key)]
    done = run("dlio-submit", small, "-s", "local", "--ppn", 2, *settings, "--wait", "--json")
    assert done.code == 0, done.err
    *generated, measured = (part["result"] for part in done.job["runs"])
    assert len(generated) == 2
    summary = measured["summary"]
    passes = summary["evaluation"]
    per_file = load(str(small)).dataset.samples_per_file
    assert (passes["count"], passes["samples"]) == (2, 2 * 3 * per_file)
    assert passes["bytes_read"] >= passes["samples"] * load(str(small)).dataset.sample_bytes
    assert passes["wait_s"] + passes["compute_s"] + passes["sync_s"] <= passes["wall_s"] * 1.001
    assert passes["compute_s"] >= 0.04 * 2
    assert sum(epoch["samples"] for epoch in measured["epochs"]) == summary["samples"]
    # Passes after the second of four epochs lie between the first step and the last, and do not count.
    assert summary["wall_s"] == pytest.approx(sum(epoch["wall_s"] for epoch in measured["epochs"]), rel=0.3, abs=0.05)
    assert summary["wall_s"] * summary["samples_per_s"] == pytest.approx(summary["samples"])
    (plan,) = (tmp_path / "dlio-runs").glob("*/plan.json")
    text = run("dlio-hpc", "report", plan.parent).out
    assert f"2 passes, {units.format_size(passes['bytes_read'])} at" in text


@pytest.mark.job
def test_a_changed_file_of_a_pass_is_an_invalid_run(run: Run, small: Path, tmp_path: Path) -> None:
    command = ("dlio-submit", small, "-s", "local", "-S", "evaluation={files: 3}", "-S", "reader.verify_content=all")
    assert run(*command, "--generate", "only", "--wait").code == 0
    (plan,) = (tmp_path / "dlio-runs").glob("*/plan.json")
    folder = Path(json.loads(plan.read_text())["runs"][1]["dataset"])
    victim = max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 255
    victim.write_bytes(data)
    done = run(*command, "--wait", "--generate", "never")
    assert done.code == 3, done.err
    assert victim.name in done.err + done.out
