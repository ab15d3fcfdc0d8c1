"""Large language models with a state that is written as a checkpoint, and their division among ranks.

The models are from MLPerf Storage v2.0 (mlcommons/storage, revision caa90c9c, Submission_guidelines.md, table 2, and
configs/dlio/workload/llama3_*.yaml).
"""

from typing import Literal, NamedTuple

from msgspec import Struct

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
    """Number of tokens in the vocabulary. Example: 128256"""


class Parallelism(Struct, frozen=True, forbid_unknown_fields=True):
    """Division of a model among ranks. The number of ranks is `tensor` x `pipeline` x `data`; all of them write
    checkpoints.
    """

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
    """A model, and how training divides and stores it. parallelism: division of the model among ranks. zero: stage of
    ZeRO. 0: replicas share nothing; 1: they share the optimizer's state; 3: they share the weights, too.
    """

    model: Model
    parallelism: Parallelism
    zero: Zero
    weights: Precision = "fp16"
    optimizer: Precision = "fp32"


# MLPerf Storage v2.0: 8, 64, 512 and 1024 ranks; 105 GB, 912 GB, 5.29 TB and 18 TB, in units of 1024.
MODELS: dict[ModelName, ModelState] = {
    "llama3_8b": ModelState(Model(32, 4096, 14336, 32, 8, 128256), Parallelism(1, 1, 8), 3),
    "llama3_70b": ModelState(Model(80, 8192, 28672, 128, 8, 128256), Parallelism(8, 1, 8), 3),
    "llama3_405b": ModelState(Model(126, 16384, 53248, 128, 8, 128256), Parallelism(8, 32, 2), 1),
    "llama3_1t": ModelState(Model(128, 25872, 98304, 192, 32, 128256), Parallelism(8, 64, 2), 1),
}
