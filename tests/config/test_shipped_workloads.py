"""Each shipped workload can be read, is the paper's where it says so, and runs here when shrunk."""

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dlio_hpc.base import units
from dlio_hpc.config import reader_keys, shipped, site
from dlio_hpc.config.workload import Compute, load
from dlio_hpc.dataset import rank_shares
from tests.conftest import Run
from tests.support import planning

NAMES = shipped.names(shipped.WORKLOADS)
PAPER = ("cosmic_tagger", "ffn", "cosmoflow", "candle", "frnn", "imagenet", "climate", "l2hmc")
MLPERF = tuple(f"{name}_{gpu}" for name in ("unet3d", "cosmoflow", "resnet50") for gpu in ("h100", "a100"))

# What makes each short here: the least dataset, and no waiting for emulated work.
_SIZES = {
    "unet3d_h100": "300MiB",
    "unet3d_b200": "300MiB",
    "cosmoflow": "64MiB",
    "candle": "10MiB",
    "imagenet": "32MiB",
    "webdataset_laion": "64MiB",
    "megatron_gpt": "64MiB",
    "era5_zarr": "64MiB",
}
_SHORT: dict[str, tuple[str, ...]] = {
    "climate": ("train.steps=4",),
    "l2hmc": ("train.steps=4", "checkpoint.every_steps=2"),
    "candle": ("train.epochs=2",),
    "cosmoflow": ("train.epochs=1",),
    "imagenet": ("reader.preprocess_time=0",),
    # The disk of a busy machine may stall for seconds.
    "background_write": ("compute.interval=2s", "checkpoint.writes=4"),
    "background_read": ("compute.interval=2s", "train.steps=4"),
    "background_metadata": ("compute.interval=2s", "train.epochs=2"),
}


def test_the_papers_eight_and_mlperfs_six_are_there() -> None:
    assert {*PAPER, *MLPERF, "demo", "null"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_planned_and_says_where_its_numbers_come_from(name: str, tmp_path: Path) -> None:
    made = load(name)
    assert made.name == name
    assert 0 < len(made.description) <= 70
    assert made.source
    if name in PAPER:
        text = shipped.find(shipped.WORKLOADS, name).read_text()
        body = text[text.index("dataset:") :]
        bare = [line for line in body.splitlines() if re.search(r": *[^ #]", line) and "#" not in line]
        values = [line for line in bare if not re.match(r" +(layout|files|mode|by|loader|- )", line)]
        previous = {line: body.splitlines()[body.splitlines().index(line) - 1] for line in values}
        unexplained = [line for line, before in previous.items() if "#" not in before]
        assert not unexplained, "a value without a word on its source"
    request = planning.Request(tmp_path, data=tmp_path, walltime=units.walltime("7d"))
    assert planning.make(made, site.load("local"), request).runs


def test_numbers_of_the_paper() -> None:
    """The numbers are those of section III.A of the DLIO paper, and their sums."""
    cosmoflow, candle, ffn = load("cosmoflow"), load("candle"), load("ffn")
    assert (cosmoflow.dataset.files, cosmoflow.dataset.samples_per_file) == (1024, 128)
    assert cosmoflow.dataset.sample.size == 16 << 20
    assert cosmoflow.dataset.size == 2 << 40
    assert candle.dataset.size == 700 << 20
    assert rank_shares.steps_per_epoch(candle, 512) == 56
    assert (ffn.dataset.samples, ffn.dataset.sample.array_shape) == (18678, (32, 32, 32))
    assert (ffn.train.steps, ffn.reader.batch_size) == (400, 32)
    tagger = load("cosmic_tagger").dataset
    assert (tagger.samples, tagger.sample.size, tagger.sample.stdev) == (43000, 40 << 10, 10 << 10)
    assert tagger.chunk_shape == (6400,), "the larger of the two that III.A.1 has requests of"
    assert load("imagenet").dataset.size == 256 << 30
    assert load("frnn").dataset.size == pytest.approx(2800 * 2 << 20, rel=0.001)
    assert rank_shares.steps_per_epoch(load("climate"), 512) == 1200
    l2hmc = load("l2hmc")
    assert l2hmc.checkpoint is not None
    assert (rank_shares.steps_per_epoch(l2hmc, 512), l2hmc.checkpoint.every_steps, len(l2hmc.checkpoint.sizes)) == (
        150,
        50,
        4,
    )


def test_tables_of_mlperf() -> None:
    """The columns add up to the bytes of a record in the source."""
    for gpu in ("b200", "mi355"):
        dlrm, flux = load(f"dlrm_{gpu}"), load(f"flux_{gpu}")
        assert (len(dlrm.dataset.all_columns), dlrm.dataset.sample.size) == (200, 761)
        assert len(reader_keys.columns_read(dlrm.dataset, dlrm.reader)) == 40
        assert reader_keys.sample_bytes_read(dlrm.dataset, dlrm.reader) == 160
        assert flux.dataset.sample.size == 2164832
        assert flux.dataset.row_group_samples == flux.dataset.samples_per_file == 288


def test_accelerators_differ_in_computing_alone() -> None:
    for name in ("unet3d", "cosmoflow", "resnet50"):
        h100, a100 = load(f"{name}_h100"), load(f"{name}_a100")
        assert h100.compute.time.mean < a100.compute.time.mean
        same: dict[str, Any] = {"name": "one", "description": "", "source": "", "compute": Compute()}
        assert replace(h100, **same) == replace(a100, **same)


@pytest.mark.job
@pytest.mark.parametrize("name", [name for name in NAMES if not name.endswith("_a100")])
def test_each_runs_here_shrunk(run: Run, name: str) -> None:
    keys = [word for key in ("compute.time=0", *_SHORT.get(name, ())) for word in ("-S", key)]
    if load(name).reader.loader == "tensorflow":
        pytest.importorskip("tensorflow")
    if load(name).dataset.format == "zarr":
        pytest.importorskip("zarr")
    size: tuple[str, ...] = ("--dataset-size", _SIZES.get(name, "16MiB"))
    if load(name).metadata is not None:
        size = ("-S", "metadata.files=100")
    if name == "background_write":
        size = ("-S", "checkpoint.model_bytes=64KiB")
    if load(name).inference is not None:
        small = ("users=4", "time=2s", "interval=500ms", "model={layers: 1, kv_heads: 2, head_dim: 64}")
        size = tuple(word for key in small for word in ("-S", f"inference.{key}"))
    done = run("dlio-submit", name, "-s", "local", "--ppn", 2, *size, *keys, "--wait", "--json")
    assert done.code == 0, done.err
    result = done.job["runs"][-1]["result"]
    assert result["summary"]["samples"] > 0
    assert result["faults"] == []
