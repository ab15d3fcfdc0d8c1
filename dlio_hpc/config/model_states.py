"""Checkpoint files of large language models: the number and the sizes of the files that each rank writes follow from
the model's architecture and from the way in which training divides the model among ranks.

The rules are those of dlio_benchmark (argonne-lcf/dlio_benchmark, revision e1919d7b, checkpointing/
base_checkpointing.py), which follow Megatron-DeepSpeed. The models are those of MLPerf Storage v2.0
(mlcommons/storage, revision caa90c9c, Submission_guidelines.md, table 2, and configs/dlio/workload/llama3_*.yaml).
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from dlio_hpc.base import units

ModelName = Literal["llama3_8b", "llama3_70b", "llama3_405b", "llama3_1t"]
Zero = Literal[0, 1, 3]
Precision = Literal["fp32", "bf16", "fp16", "fp8"]
ITEM_BYTES: dict[Precision, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


class Model(Struct, frozen=True, forbid_unknown_fields=True):
    """Architecture of a transformer."""

    layers: units.Positive
    """Number of transformer layers. Example: 32"""
    hidden: units.Positive
    """Width of a layer. Example: 4096"""
    feed_forward: units.Positive
    """Width of the feed-forward part of a layer. Example: 14336"""
    heads: units.Positive
    """Number of attention heads. Example: 32"""
    kv_heads: units.Positive
    """Number of heads of keys and values. Example: 8"""
    vocabulary: units.Positive
    """Number of tokens. Example: 128256"""


class Parallelism(Struct, frozen=True, forbid_unknown_fields=True):
    """Division of a model among ranks: tensor x pipeline x data ranks write a checkpoint."""

    tensor: units.Positive = 1
    """Number of ranks that share each layer. Example: 8"""
    pipeline: units.Positive = 1
    """Number of groups of ranks that share the layers. Example: 32"""
    data: units.Positive = 1
    """Number of replicas of the model. With ZeRO they share the optimizer's state. Example: 8"""

    @property
    def ranks(self) -> int:
        return self.tensor * self.pipeline * self.data


class ModelState(NamedTuple):
    """A model, and how training divides and stores it. zero: stage of ZeRO; 0: replicas share nothing, 1: they share
    the optimizer's state, 3: they share weights, too.
    """

    model: Model
    parallelism: Parallelism
    zero: Zero
    weights: Precision = "fp16"
    optimizer: Precision = "fp32"


class StateFile(NamedTuple):
    """A file of a checkpoint. arrays: bytes of each array in the file, in turn."""

    name: str
    arrays: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.arrays)


# MLPerf Storage v2.0: 8, 64, 512 and 1024 ranks; 105 GB, 912 GB, 5.29 TB and 18 TB, in units of 1024.
MODELS: dict[ModelName, ModelState] = {
    "llama3_8b": ModelState(Model(32, 4096, 14336, 32, 8, 128256), Parallelism(1, 1, 8), 3),
    "llama3_70b": ModelState(Model(80, 8192, 28672, 128, 8, 128256), Parallelism(8, 1, 8), 3),
    "llama3_405b": ModelState(Model(126, 16384, 53248, 128, 8, 128256), Parallelism(8, 32, 2), 1),
    "llama3_1t": ModelState(Model(128, 25872, 98304, 192, 32, 128256), Parallelism(8, 64, 2), 1),
}


def narrowed(model: Model, hidden: int) -> Model:
    """Return the model with another width. The other widths and the vocabulary change in proportion."""
    return structs.replace(
        model,
        hidden=hidden,
        feed_forward=max(1, model.feed_forward * hidden // model.hidden),
        vocabulary=max(1, model.vocabulary * hidden // model.hidden),
    )


def parameters(model: Model) -> int:
    """Return the number of parameters of a model."""
    embedding = model.vocabulary * model.hidden
    return 2 * embedding + sum(_layer(model, 1)) * model.layers + model.hidden


def files(state: ModelState, rank: int) -> list[StateFile]:
    """Return the files that a rank writes, in turn. Ranks are numbered by tensor first, then by pipeline, then by
    replica. Ranks beyond those of the parallelism write nothing.
    """
    split = state.parallelism
    if rank >= split.ranks:
        return []
    shard = split.tensor * split.pipeline
    replica, part = divmod(rank, shard)
    if state.zero == 0 and replica:
        return []
    made = list(_weights(state, replica, part))
    name = f"zero_pp_rank_{replica}_mp_rank_{part}_optim_states"
    return [*made, StateFile(name, _optimizer(state))]


def _weights(state: ModelState, replica: int, part: int) -> Iterator[StateFile]:
    """Yield the files with the weights of a rank. With ZeRO 1, the first replica writes all weights: a file for each
    layer if the layers are divided among groups, otherwise one file.
    """
    layers = _layers_of(state, part // state.parallelism.tensor)
    item = ITEM_BYTES[state.weights]
    arrays = {layer: tuple(count * item for count in _arrays(state, layer)) for layer in layers}
    if state.zero == 1 and replica:
        return
    if state.zero == 1 and state.parallelism.pipeline > 1:
        for layer, sizes in arrays.items():
            yield StateFile(f"layer_{layer}-model_{part}_model_states", sizes)
        return
    whole = tuple(size for sizes in arrays.values() for size in sizes)
    name = f"model_{part}" if state.zero == 1 else f"zero_pp_rank_{replica}_mp_rank_{part}"
    yield StateFile(f"{name}_model_states", whole)


def _layers_of(state: ModelState, stage: int) -> range:
    """Return the numbers of the layers of a pipeline stage. Layer 0 is the embedding. The two layers after the last
    are the output layer and its norm.
    """
    count, groups = state.model.layers, state.parallelism.pipeline
    fewer, more = divmod(count, groups)
    first = 1 + stage * fewer + min(stage, more)
    last = first + fewer + (stage < more)
    return range(0 if stage == 0 else first, count + 3 if stage == groups - 1 else last)


def _arrays(state: ModelState, layer: int) -> list[int]:
    """Return the number of elements of each array of a layer that a rank stores. Arrays without elements are left
    out.
    """
    model, split = state.model, state.parallelism
    share = split.data if state.zero == 3 else 1
    if layer in (0, model.layers + 1):
        counts = [model.vocabulary * model.hidden // split.tensor // share]
    elif layer == model.layers + 2:
        counts = [model.hidden // share]
    else:
        counts = [count // share for count in _layer(model, split.tensor)]
    return [count for count in counts if count]


def _layer(model: Model, tensor: int) -> list[int]:
    """Return the number of elements of each array of a transformer layer, divided among `tensor` ranks: norm,
    attention (queries, keys and values), its output, norm, and both parts of the feed-forward network. Norms are not
    divided.
    """
    keys_and_values = 2 * (model.hidden // model.heads) * model.kv_heads
    return [
        model.hidden,
        model.hidden * (model.hidden + keys_and_values) // tensor,
        model.hidden * model.hidden // tensor,
        model.hidden,
        model.hidden * 2 * model.feed_forward // tensor,
        model.hidden * model.feed_forward // tensor,
    ]


def _optimizer(state: ModelState) -> tuple[int, ...]:
    """Return the bytes of the arrays of the optimizer's state that a rank stores: weights in full precision and two
    moments, each with a small array beside it.
    """
    split, item = state.parallelism, ITEM_BYTES[state.optimizer]
    share = split.tensor * split.pipeline * (split.data if state.zero else 1)
    return (parameters(state.model) // share * item, 5 * state.model.hidden * item) * 3
