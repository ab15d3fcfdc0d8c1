"""Conversion of the training of a workload of dlio_benchmark: times, length, checkpoints, evaluation."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from dlio_hpc.config.checkpoint_keys import TENSOR
from dlio_hpc.config.dlio_benchmark.fact import Fact, Fate
from dlio_hpc.config.dlio_benchmark.formats import format_of
from dlio_hpc.config.dlio_benchmark.keys import KEYS, REVISION
from dlio_hpc.config.dlio_benchmark.refusals import check_checkpoint
from dlio_hpc.config.dlio_benchmark.source import SourceWorkload, is_number


class RandomTime(NamedTuple):
    """A random time: its distribution in dlio-hpc, its mean and its standard deviation. text: difference from
    dlio_benchmark; empty if there is none.
    """

    distribution: str
    mean: float
    stdev: float | None = None
    text: str = ""


_DISTRIBUTIONS: dict[str, tuple[tuple[str, ...], Callable[..., RandomTime]]] = {
    "": (("mean",), lambda mean: RandomTime("constant", mean)),
    "normal": (("mean", "stdev"), lambda mean, stdev: RandomTime("normal", mean, stdev)),
    "uniform": (
        ("min", "max"),
        lambda low, high: RandomTime("normal", (low + high) / 2, (high - low) / 12**0.5, "a uniform distribution"),
    ),
    "gamma": (
        ("shape", "scale"), lambda shape, scale: RandomTime("gamma", shape * scale, math.sqrt(shape) * scale)
    ),
    "exponential": (("scale",), lambda scale: RandomTime("exponential", scale)),
    "poisson": (("lam",), lambda mean: RandomTime("normal", mean, math.sqrt(mean), "a Poisson distribution")),
}  # fmt: skip


def _random_time(source: SourceWorkload, key: str) -> RandomTime:
    """Return the distribution of a time. In dlio_benchmark, the time is a number or a mapping."""
    value, stdev = source[key], source[f"{key}_stdev"]
    given = dict(value) if isinstance(value, dict) else {"mean": value}
    if stdev is not None:
        given["stdev"] = stdev
    kind = str(given.get("type", "normal" if "stdev" in given else ""))
    if kind not in _DISTRIBUTIONS:
        raise source.refused(key, f"type: use one of: {', '.join(filter(None, _DISTRIBUTIONS))}")
    names, make = _DISTRIBUTIONS[kind]
    numbers = [given.get(name) for name in names]
    if not all(is_number(number) and number >= 0 for number in numbers):
        raise source.refused(key, f"expected numbers from 0: {', '.join(names)}")
    made = make(*numbers)
    return made if made.stdev or made.stdev is None else RandomTime("constant", made.mean, None, made.text)


def times(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the times of computation and preprocessing."""
    key = "train.computation_time"
    time = _random_time(source, key)
    fate: Fate = "approximated" if time.text else "mapped"
    yield Fact(key, fate, f"normal instead of {time.text}" if time.text else "", "compute.time.mean", time.mean)
    if time.distribution != "constant":
        yield Fact(key, fate, "", "compute.time.distribution", time.distribution)
    if time.stdev is not None:
        own = "train.computation_time_stdev"
        yield Fact(own if own in source.values else key, fate, "", "compute.time.stdev", time.stdev)
    yield from _preprocessing(source)


def _preprocessing(source: SourceWorkload) -> Iterator[Fact]:
    key = "reader.preprocess_time"
    time = _random_time(source, key)
    if format_of(source) in {"tfrecord", "null"}:
        yield Fact(key, "ignored", f"dlio_benchmark does not preprocess {source['dataset.format']}")
    elif time.mean:
        is_constant = time.distribution == "constant"
        text = "" if is_constant else "preprocessing each sample takes the mean time"
        yield Fact(key, "mapped" if is_constant else "approximated", text, "reader.preprocess_time", time.mean)


def train(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about the length of the training."""
    steps = int(source["train.total_training_steps"])
    yield Fact("train.epochs", "mapped", "", "train.epochs", source["train.epochs"])
    if steps > 0:
        text = "dlio_benchmark counts the steps of each epoch separately" if source["train.epochs"] > 1 else ""
        yield Fact("train.total_training_steps", "mapped", text, "train.steps", steps)


# Size of the requests in which TensorFlow 2.21 writes a checkpoint.
_TENSORFLOW_WRITE = 8 << 20


def checkpoint(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about checkpoints. Raise ConfigError for checkpoints that dlio-hpc cannot write."""
    yield Fact("workflow.checkpoint", "mapped", "" if source["workflow.checkpoint"] else "no checkpoints")
    if not source["workflow.checkpoint"]:
        return
    check_checkpoint(source)
    steps, epochs = int(source["checkpoint.steps_between_checkpoints"]), source["train.epochs"]
    first, between = source["checkpoint.checkpoint_after_epoch"], source["checkpoint.epochs_between_checkpoints"]
    if steps == 0 or (steps < 0 and first > epochs):
        key = "checkpoint.steps_between_checkpoints" if steps == 0 else "checkpoint.checkpoint_after_epoch"
        yield Fact(key, "mapped", "no checkpoint is written during the run")
        return
    size = int(source["model.model_size_bytes"])
    yield Fact("model.model_size_bytes", "mapped", "", "checkpoint.model_bytes", size)
    yield from _mode(source, size)
    yield Fact("checkpoint.fsync", "mapped", f"dlio_benchmark {REVISION} never calls fsync", "checkpoint.fsync", False)
    if steps > 0:
        fate: Fate = "approximated" if epochs > 1 else "mapped"
        text = "steps are counted over all epochs, not from the start of each" if epochs > 1 else ""
        yield Fact("checkpoint.steps_between_checkpoints", fate, text, "checkpoint.every_steps", steps)
        return
    times = (epochs - first) // max(1, between) + 1
    if times != epochs:
        text = f"a checkpoint after each of {epochs} epochs; dlio_benchmark writes {times} checkpoints"
        yield Fact("checkpoint.checkpoint_after_epoch", "approximated", text)
        yield Fact("checkpoint.epochs_between_checkpoints", "ignored", "see checkpoint_after_epoch")
    else:
        yield Fact("checkpoint.checkpoint_after_epoch", "mapped", "one after each epoch")
        yield Fact("checkpoint.epochs_between_checkpoints", "mapped", "one after each epoch")


def _mode(source: SourceWorkload, size: int) -> Iterator[Fact]:
    """Yield the facts about the library that writes a checkpoint. size: bytes of its only tensor."""
    if source["framework"] == "tensorflow":
        text = "tf.train.Checkpoint writes 8 MiB at a time"
        yield Fact("framework", "mapped", text, "checkpoint.transfer_size", _TENSORFLOW_WRITE)
        return
    is_one = size <= TENSOR
    text = "torch.save" if is_one else "torch.save, with tensors of at most 64 MiB; dlio_benchmark has one"
    yield Fact("framework", "mapped" if is_one else "approximated", text, "checkpoint.mode", "torch")


_EVALUATION = ("dataset.num_files_eval", "dataset.num_subfolders_eval", "reader.batch_size_eval")


def _passes(source: SourceWorkload, files: int, between: int) -> Iterator[Fact]:
    """Yield the facts about evaluation passes. files: number of files that a pass reads. between: number of epochs
    between two passes.
    """
    yield Fact("workflow.evaluation", "mapped", "a second dataset is read between epochs")
    yield Fact("dataset.num_files_eval", "mapped", "", "evaluation.files", files)
    if "dataset.num_subfolders_eval" in source.values:
        yield Fact("dataset.num_subfolders_eval", "ignored", "a subfolder has as many files as in the training dataset")
    yield Fact("reader.batch_size_eval", "mapped", "", "evaluation.batch_size", source["reader.batch_size_eval"])
    time = _random_time(source, "evaluation.eval_time")
    fate: Fate = "approximated" if time.text else "mapped"
    text = f"normal instead of {time.text}" if time.text else ""
    yield Fact("evaluation.eval_time", fate, text, "evaluation.time.mean", time.mean)
    yield Fact("evaluation.eval_time", fate, "", "evaluation.time.distribution", time.distribution)
    if time.stdev is not None:
        yield Fact("evaluation.eval_time_stdev", fate, "", "evaluation.time.stdev", time.stdev)
    yield Fact("evaluation.epochs_between_evals", "mapped", "", "evaluation.every_epochs", max(1, between))
    if (after := source["evaluation.eval_after_epoch"]) == between:
        yield Fact("evaluation.eval_after_epoch", "mapped", "the first pass is after the same number of epochs")
    else:
        text = f"the first pass follows epoch {max(1, between)}, not {after}"
        yield Fact("evaluation.eval_after_epoch", "approximated", text)


def evaluation(source: SourceWorkload) -> Iterator[Fact]:
    """Yield the facts about evaluation."""
    files, between = source["dataset.num_files_eval"], source["evaluation.epochs_between_evals"]
    if source["workflow.evaluation"] and source["workflow.train"] and files > 0 and source["train.epochs"] >= between:
        yield from _passes(source, files, between)
        return
    yield Fact("workflow.evaluation", "ignored", "no evaluation")
    for key in (*_EVALUATION, *(key for key in KEYS if key.startswith("evaluation."))):
        if key in source.values:
            yield Fact(key, "ignored", "see workflow.evaluation")
