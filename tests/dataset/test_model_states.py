"""The checkpoint files of large language models follow from their architecture."""

from pathlib import Path

import pytest

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import workload
from dlio_hpc.config.model_states import MODELS, Model, ModelName, ModelState, Parallelism
from dlio_hpc.dataset import checkpoint_files, resizing

GIB = 2**30
_SMALL = Model(layers=3, hidden=64, feed_forward=128, heads=4, kv_heads=2, vocabulary=1000)


def _size(state: ModelState) -> int:
    return sum(file.size for rank in range(state.parallelism.ranks) for file in checkpoint_files.of_model(state, rank))


# Ranks and GB of a checkpoint: Submission_guidelines.md of MLPerf Storage v2.0, table 2 (mlcommons/storage caa90c9c),
# in units of 1024. For 1t the table says 18 TB, the sum of 15,426 GB for the optimizer and 2,571 GB of weights in
# mlpstorage/config.py; 15,426 GB is what the tool writes of both.
@pytest.mark.parametrize(
    ("name", "ranks", "gigabytes"),
    [("llama3_8b", 8, 105), ("llama3_70b", 64, 912), ("llama3_405b", 512, 5290), ("llama3_1t", 1024, 15426)],
)
def test_ranks_and_totals_are_those_of_mlperf(name: ModelName, ranks: int, gigabytes: float) -> None:
    state = MODELS[name]
    assert state.parallelism.ranks == ranks
    assert _size(state) / GIB == pytest.approx(gigabytes, rel=0.01)
    assert workload.load(name).checkpoint is not None


# Weights and optimizer in GB, from LLM_SIZE_BY_RANK in mlpstorage/config.py (mlcommons/storage caa90c9c).
@pytest.mark.parametrize(
    ("name", "weights", "optimizer"), [("llama3_8b", 15, 90), ("llama3_70b", 130, 781), ("llama3_405b", 755, 4533)]
)
def test_weights_and_optimizer_are_those_of_mlperf(name: ModelName, weights: float, optimizer: float) -> None:
    state = MODELS[name]
    files = [file for rank in range(state.parallelism.ranks) for file in checkpoint_files.of_model(state, rank)]
    parts = {
        kind: sum(file.size for file in files if file.name.endswith(kind)) for kind in ("model_states", "optim_states")
    }
    assert parts["model_states"] / GIB == pytest.approx(weights, rel=0.01)
    assert parts["optim_states"] / GIB == pytest.approx(optimizer, rel=0.01)


def test_the_number_of_parameters() -> None:
    assert checkpoint_files.parameters(MODELS["llama3_8b"].model) == 8_030_261_248
    assert checkpoint_files.parameters(MODELS["llama3_405b"].model) == pytest.approx(405.8e9, rel=1e-3)


def test_zero_0_lets_one_replica_write_everything() -> None:
    state = ModelState(_SMALL, Parallelism(2, 1, 3), 0)
    names = [[file.name for file in checkpoint_files.of_model(state, rank)] for rank in range(6)]
    assert names[0] == ["zero_pp_rank_0_mp_rank_0_model_states", "zero_pp_rank_0_mp_rank_0_optim_states"]
    assert [bool(part) for part in names] == [True, True, False, False, False, False]


def test_zero_1_has_a_file_for_each_layer_of_a_pipeline_stage() -> None:
    state = ModelState(_SMALL, Parallelism(1, 2, 2), 1)
    names = [[file.name for file in checkpoint_files.of_model(state, rank)] for rank in range(4)]
    assert names[0] == [
        "layer_0-model_0_model_states", "layer_1-model_0_model_states", "layer_2-model_0_model_states",
        "zero_pp_rank_0_mp_rank_0_optim_states",
    ]  # fmt: skip
    assert [name.split("-")[0] for name in names[1][:-1]] == ["layer_3", "layer_4", "layer_5"]
    assert names[2] == ["zero_pp_rank_1_mp_rank_0_optim_states"]
    one_stage = checkpoint_files.of_model(ModelState(_SMALL, Parallelism(2, 1, 2), 1), 1)
    assert [file.name for file in one_stage] == ["model_1_model_states", "zero_pp_rank_0_mp_rank_1_optim_states"]


def test_zero_3_shares_weights_among_replicas() -> None:
    whole = _size(ModelState(_SMALL, Parallelism(), 3))
    parts = ModelState(_SMALL, Parallelism(1, 1, 4), 3)
    assert [len(checkpoint_files.of_model(parts, rank)) for rank in range(5)] == [2, 2, 2, 2, 0]
    # The small arrays of the optimizer, three of 5 x 64 numbers, are in the file of each rank.
    assert _size(parts) == whole + 3 * 3 * 5 * 64 * 4
    weights, _ = checkpoint_files.of_model(parts, 0)
    assert len(weights.arrays) == 3 * 6 + 3


@pytest.mark.parametrize("name", list(MODELS))
def test_a_narrower_model_has_the_same_structure(name: ModelName) -> None:
    whole = workload.load(name)
    small = resizing.resized(whole, 10**9, 4)
    assert whole.checkpoint is not None
    assert small.checkpoint is not None
    states = whole.checkpoint.state, small.checkpoint.state
    assert states[0] is not None
    assert states[1] is not None
    for rank in (0, 3, states[0].parallelism.ranks - 1):
        files = [checkpoint_files.of_model(state, rank) for state in states if state is not None]
        assert [(file.name, len(file.arrays)) for file in files[0]] == [
            (file.name, len(file.arrays)) for file in files[1]
        ]
    assert 0.9e9 < checkpoint_files.size(small.checkpoint, 4) <= 10**9


def test_a_size_that_is_too_small() -> None:
    with pytest.raises(ConfigError, match="--dataset-size 10 B is too small for a checkpoint of this model"):
        resizing.resized(workload.load("llama3_8b"), 10, 8)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("{model: llama3_8b, files: [1 KiB]}", "model replaces files and model_bytes"),
        ("{model: llama4}", "checkpoint.model"),
        ("{zero: 3}", "parallelism and zero divide a model; set model"),
        ("{model: llama3_8b, zero: 2}", "zero"),
        ("{direct: true, transfer_size: 1000}", "needs a transfer_size that is a multiple of 4096"),
        ("{asynchronous: true, read_back: true}", "asynchronous=true cannot be combined with read_back"),
        ("{verify: true}", "reorder and verify have an effect only if checkpoints are read; set reads"),
        ("{writes: 3}", "checkpoint.writes is for workloads without a dataset"),
    ],
)
def test_keys_that_contradict(keys: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        workload.load("demo", (f"checkpoint={keys}",))


def test_a_workload_without_a_dataset_writes_a_checkpoint_in_each_step(tmp_path: Path) -> None:
    path = tmp_path / "w.yaml"
    path.write_text("name: w\ncheckpoint: {model_bytes: 1 MiB, writes: 7}\ncompute: {time: 1 s}\n")
    made = workload.load(str(path), ("checkpoint.writes=5",))
    assert (made.dataset.format, made.dataset.samples, made.reader.shard) == ("null", 5, False)
    assert made.checkpoint is not None
    assert made.checkpoint.every_steps == 1
