"""Workloads of dlio_benchmark that only write and read the checkpoints of a large language model."""

from collections.abc import Iterator
from typing import Any

from dlio_hpc.config.dlio_benchmark.fact import Fact, Fate
from dlio_hpc.config.dlio_benchmark.keys import KEYS, REVISION
from dlio_hpc.config.dlio_benchmark.source import SourceWorkload
from dlio_hpc.config.model_states import MODELS, Model, ModelState

# Keys of the architecture, and their counterparts below checkpoint.model.
ARCHITECTURE = {
    "model.num_layers": "layers", "model.transformer.hidden_size": "hidden",
    "model.transformer.ffn_hidden_size": "feed_forward", "model.transformer.num_attention_heads": "heads",
    "model.transformer.num_kv_heads": "kv_heads", "model.transformer.vocab_size": "vocabulary",
}  # fmt: skip
_PRECISIONS = ("fp32", "bf16", "fp16")
_MOST_WRITES = 1 << 20
_RANKS = "dlio_benchmark divides the number of ranks by tensor x pipeline"


def is_alone(source: SourceWorkload) -> bool:
    """Return whether the workload does nothing but write and read checkpoints."""
    return bool(source["workflow.checkpoint"] and not source["workflow.train"])


def checkpoints(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about checkpoints. Raise ConfigError for checkpoints that dlio-hpc cannot write."""
    _check(source)
    yield Fact("workflow.train", "mapped", "no samples are read")
    yield Fact("workflow.checkpoint", "mapped", "a workload of checkpoints")
    model = Model(**{name: int(source[key]) for key, name in ARCHITECTURE.items()})
    for key, name in ARCHITECTURE.items():
        yield Fact(key, "mapped", "", f"checkpoint.model.{name}", int(source[key]))
    yield from _division(source, model)
    for key, name in (("model.model_datatype", "weights"), ("model.optimizer_datatype", "optimizer")):
        yield Fact(key, "mapped", "", f"checkpoint.precision.{name}", source[key])
    yield from _phases(source)


def _check(source: SourceWorkload) -> None:
    predefined = ("model.layer_parameters", "model.optimization_groups")
    custom = "checkpoint.checkpoint_mechanism_classname"
    rules: tuple[tuple[bool, str, str], ...] = (
        *((bool(source[key]), key, "dlio-hpc has no key for the sizes of individual layers") for key in predefined),
        (bool(source[custom]), custom, "the requests of a custom class are unknown; remove the key"),
        (int(source["model.num_layers"]) < 1, "model.num_layers", "expected the number of layers of a transformer"),
        (source["framework"] != "pytorch", "framework", "only PyTorch writes the files of each rank"),
        (source["checkpoint.mode"] not in {"default", "subset"}, "checkpoint.mode", "use one of: default, subset"),
        (
            source["model.parallelism.zero_stage"] not in {0, 1, 3},
            "model.parallelism.zero_stage",
            "dlio-hpc knows the stages 0, 1 and 3",
        ),
        *(
            (source[key] not in _PRECISIONS, key, f"use one of: {', '.join(_PRECISIONS)}")
            for key in ("model.model_datatype", "model.optimizer_datatype")
        ),
        (
            not 1 <= source["checkpoint.num_checkpoints_write"] <= _MOST_WRITES,
            "checkpoint.num_checkpoints_write",
            "dlio-hpc reads checkpoints that the same run has written; set it to a number from 1",
        ),
        (
            not 0 <= max(0, source["checkpoint.num_checkpoints_read"]) <= _MOST_WRITES,
            "checkpoint.num_checkpoints_read",
            "expected a number of checkpoints",
        ),
    )
    for is_refused, key, reason in rules:
        if is_refused:
            raise source.refused(key, reason)


def _division(source: SourceWorkload, model: Model) -> Iterator[Fact]:
    """Yield the facts about the division of the model among ranks."""
    tensor, pipeline, zero = (source[f"model.parallelism.{name}"] for name in ("tensor", "pipeline", "zero_stage"))
    yield Fact("model.parallelism.tensor", "mapped", "", "checkpoint.parallelism.tensor", tensor)
    yield Fact("model.parallelism.pipeline", "mapped", "", "checkpoint.parallelism.pipeline", pipeline)
    yield Fact("model.parallelism.zero_stage", "mapped", "", "checkpoint.zero", zero)
    key, data = "model.parallelism.data", int(source["model.parallelism.data"])
    if data > 0:
        yield Fact(key, "mapped", "", "checkpoint.parallelism.data", data)
        return
    known = _known(model, tensor, pipeline)
    if known is None:
        raise source.refused(key, f"{_RANKS}; set ++workload.model.parallelism.data to the number of replicas")
    text = f"{_RANKS}; the number of ranks of MLPerf Storage is assumed: {known.parallelism.ranks}"
    yield Fact(key, "approximated", text, "checkpoint.parallelism.data", known.parallelism.data)


def _known(model: Model, tensor: int, pipeline: int) -> ModelState | None:
    """Return the model of MLPerf Storage with this architecture and division, or None."""
    split = (tensor, pipeline)
    return next(
        (
            state
            for state in MODELS.values()
            if state.model == model and (state.parallelism.tensor, state.parallelism.pipeline) == split
        ),
        None,
    )


def _phases(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about writing and reading."""
    writes, reads = (int(source[f"checkpoint.num_checkpoints_{name}"]) for name in ("write", "read"))
    yield Fact("checkpoint.num_checkpoints_write", "mapped", "", "checkpoint.writes", writes)
    yield Fact("checkpoint.num_checkpoints_read", "mapped", "", "checkpoint.reads", max(0, reads))
    folder = "checkpoint.checkpoint_folder"
    yield Fact(folder, "mapped", "each checkpoint has its own files", "checkpoint.keep", writes)
    pause = max(0.0, float(source["checkpoint.time_between_checkpoints"]))
    yield Fact("checkpoint.time_between_checkpoints", "mapped", "", "compute.time.mean", pause)
    if reads > 0:
        shift = source["checkpoint.recovery_rank_shift"]
        yield Fact("checkpoint.recovery_rank_shift", "mapped", "", "checkpoint.reorder", int(shift))
    fate: Fate = "approximated" if source["checkpoint.fsync"] else "mapped"
    text = f"dlio_benchmark {REVISION} reads this key but never calls fsync" if source["checkpoint.fsync"] else ""
    yield Fact("checkpoint.fsync", fate, text, "checkpoint.fsync", source["checkpoint.fsync"])
    yield Fact("framework", "mapped", "torch.save and torch.load", "checkpoint.mode", "torch")


def without_effect(key: str) -> str:
    """Return the reason why another key has no effect on a workload that only writes and reads checkpoints."""
    reason: Any = KEYS[key].without_effect if key in KEYS else ""
    return str(reason) if reason and not reason.startswith("only for") else "no samples are read"
