"""Files of a checkpoint: the names of the files that each rank writes, and the tensors in them.

The rules for large language models are taken from dlio_benchmark (argonne-lcf/dlio_benchmark, revision e1919d7b,
checkpointing/base_checkpointing.py), which follows Megatron-DeepSpeed.
"""

import functools
from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from dlio_hpc.config.checkpoint_keys import TENSOR, Checkpoint
from dlio_hpc.config.model_states import ITEM_BYTES, Model, ModelState

# Upper limits of the bytes that frameworks add to a file, and to a tensor. HDF5's groups and DCP's .metadata add most.
_FILE_HEADERS, _TENSOR_HEADERS = 16 << 10, 6 << 10


class StateFile(NamedTuple):
    """A file of a checkpoint. arrays: size of each array in bytes, in the order in which the file holds the arrays."""

    name: str
    arrays: tuple[int, ...]

    @property
    def size(self) -> int:
        return sum(self.arrays)


def of_rank(checkpoint: Checkpoint, rank: int) -> list[StateFile]:
    """Return the files that `rank` writes of a checkpoint. If the checkpoint has no model, a file has tensors of 64
    MiB, and one tensor with the remaining bytes.
    """
    if (state := checkpoint.state) is not None:
        return of_model(state, rank)
    if rank and checkpoint.by == "root":
        return []
    return [StateFile(f"rank{rank:05}-{number}", _tensors(size)) for number, size in enumerate(checkpoint.sizes)]


def _tensors(size: int) -> tuple[int, ...]:
    """Divide a file of `size` bytes into tensors. Return the size of each tensor in bytes."""
    whole, rest = divmod(size, TENSOR)
    return (TENSOR,) * whole + (rest,) * bool(rest)


@functools.lru_cache(maxsize=64)
def size(checkpoint: Checkpoint, ranks: int) -> int:
    """Return the size in bytes of a checkpoint that is written by `ranks` ranks."""
    return sum(file.size for rank in range(ranks) for file in of_rank(checkpoint, rank))


@functools.lru_cache(maxsize=64)
def space(checkpoint: Checkpoint, ranks: int) -> int:
    """Return the maximum number of bytes that a checkpoint of `ranks` ranks takes on storage. The headers of a
    framework are included.
    """
    if checkpoint.mode == "posix":
        return size(checkpoint, ranks)
    files = [file for rank in range(ranks) for file in of_rank(checkpoint, rank)]
    return size(checkpoint, ranks) + sum(_FILE_HEADERS + _TENSOR_HEADERS * len(file.arrays) for file in files)


def narrowed(model: Model, hidden: int) -> Model:
    """Return the model with the width `hidden`. The other dimensions and the vocabulary change in proportion."""
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


def of_model(state: ModelState, rank: int) -> list[StateFile]:
    """Return the files that a rank writes, in order. Ranks are numbered by tensor part first, then by pipeline stage,
    then by replica. If the job has more ranks than the parallelism needs, the last ranks write nothing.
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
    """Yield the files with the weights of a rank. With ZeRO 1, only ranks of the first replica write weights. Such a
    rank writes a file per layer if there are several pipeline stages, otherwise one file.
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
    """Return the number of elements of each array that a rank stores of a layer. Arrays without elements are left
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
    """Return the number of elements of each array of a transformer layer, after the layer is divided among `tensor`
    ranks. The arrays are: norm, attention (queries, keys and values), output of the attention, norm, and both parts of
    the feed-forward network. Norms are not divided.
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
    """Return the size in bytes of each array that a rank stores of the optimizer's state. The state consists of the
    weights in full precision and two moments. Each of these three has a large array and a small array.
    """
    split, item = state.parallelism, ITEM_BYTES[state.optimizer]
    share = split.tensor * split.pipeline * (split.data if state.zero else 1)
    return (parameters(state.model) // share * item, 5 * state.model.hidden * item) * 3
