"""The settings of a run, expressed in the keys of dlio_benchmark. The tool of MLPerf Storage records and checks these
keys.
"""

import functools
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from dlio_hpc.base import serialization
from dlio_hpc.config import shipped
from dlio_hpc.config import workload as workloads
from dlio_hpc.config.dlio_benchmark.formats import FORMATS, LOADERS
from dlio_hpc.config.dlio_benchmark.large_models import ARCHITECTURE
from dlio_hpc.config.workload import Workload
from dlio_hpc.plan import plan
from dlio_hpc.reports.mlperf_storage.editions import SuiteModel
from dlio_hpc.results.run_result import Result
from dlio_hpc.verdict import history_entry

# Keys of dlio-hpc, and those of dlio_benchmark with the same meaning and the same unit.
_TRAINING = {
    "dataset.files": "dataset.num_files_train",
    "dataset.samples_per_file": "dataset.num_samples_per_file",
    "dataset.sample.bytes": "dataset.record_length_bytes",
    "dataset.sample.stdev": "dataset.record_length_bytes_stdev",
    "reader.batch_size": "reader.batch_size",
    "reader.resize": "dataset.record_length_bytes_resize",
    "reader.read_threads": "reader.read_threads",
    "reader.preprocess_threads": "reader.computation_threads",
    "reader.prefetch": "reader.prefetch_size",
    "reader.transfer_size": "reader.transfer_size",
    "reader.direct": "reader.odirect",
    "train.epochs": "train.epochs",
    "train.steps": "train.total_training_steps",
    "compute.time.mean": "train.computation_time",
    "compute.time.stdev": "train.computation_time_stdev",
    "checkpoint.model_bytes": "model.model_size_bytes",
    "checkpoint.every_steps": "checkpoint.steps_between_checkpoints",
}
_CHECKPOINTING = {
    **{f"checkpoint.model.{name}": key for key, name in ARCHITECTURE.items()},
    "checkpoint.precision.weights": "model.model_datatype",
    "checkpoint.precision.optimizer": "model.optimizer_datatype",
    "checkpoint.parallelism.tensor": "model.parallelism.tensor",
    "checkpoint.parallelism.pipeline": "model.parallelism.pipeline",
    "checkpoint.parallelism.data": "model.parallelism.data",
    "checkpoint.zero": "model.parallelism.zero_stage",
    "checkpoint.writes": "checkpoint.num_checkpoints_write",
    "checkpoint.reads": "checkpoint.num_checkpoints_read",
    "checkpoint.fsync": "checkpoint.fsync",
    "compute.time.mean": "checkpoint.time_between_checkpoints",
}
# Keys of dlio-hpc that are converted one by one.
_CONVERTED = (
    "dataset.format", "reader.loader", "reader.shuffle.files", "reader.shuffle.samples", "checkpoint.reorder",
    "checkpoint.mode",
)  # fmt: skip
# Keys that change neither what is read nor what is written.
_NEUTRAL = ("reader.verify_content", "reader.drop_cache", "reader.verify")


class DlioSettings(NamedTuple):
    """The settings of a run, expressed in the keys of dlio_benchmark. values: all settings, by key. overrides: the
    settings that differ from the shipped workload, and the data folder, which the tool always sets. unmatched: changed
    keys of dlio-hpc without a counterpart, such as "reader.mode: framework / posix".
    """

    values: dict[str, Any]
    overrides: dict[str, Any]
    unmatched: tuple[str, ...]


def settings(run: plan.Run, model: SuiteModel, result: Result, au: float | None) -> DlioSettings:
    """Return the settings of a run. au: AU that the edition requires; None for checkpoints."""
    values = _values(run.workload, model, result)
    original = _shipped(run.workload.name)
    before = _values(original, model, result)
    changed = {
        key: value for key, value in values.items() if before.get(key) != value and not key.startswith("workflow.")
    }
    folder = {"dataset.data_folder": run.dataset}
    if model.family == "checkpointing":
        folder = {"checkpoint.checkpoint_folder": run.outputs}
    if au is not None:
        values["metric.au"] = au
    return DlioSettings({**values, **folder}, {**folder, **changed}, tuple(_unmatched(original, run.workload, model)))


def _unmatched(original: Workload, measured: Workload, model: SuiteModel) -> Iterator[str]:
    """Yield the changed keys that have no counterpart in dlio_benchmark. The dataset and the reader of a workload of
    checkpoints are ignored: they exist only because dlio-hpc treats checkpoints as samples.
    """
    before, after = (dict(history_entry.flat(_plain(workload))) for workload in (original, measured))
    matched = {*_table(model), *_CONVERTED, *_NEUTRAL}
    derived = ("dataset.", "reader.") if model.family == "checkpointing" else ()
    for key in dict.fromkeys([*before, *after]):
        if before.get(key) != after.get(key) and key not in matched and not key.startswith(derived):
            yield f"{key}: {before.get(key)} / {after.get(key)}"


def nested(values: dict[str, Any]) -> dict[str, Any]:
    """Return values by dotted keys as nested mappings."""
    data: dict[str, Any] = {}
    for key, value in values.items():
        serialization.put(data, key, value, key)
    return data


def _table(model: SuiteModel) -> dict[str, str]:
    return _TRAINING if model.family == "training" else _CHECKPOINTING


def _values(workload: Workload, model: SuiteModel, result: Result) -> dict[str, Any]:
    known = dict(history_entry.flat(_plain(workload)))
    values = {theirs: known[ours] for ours, theirs in _table(model).items() if known.get(ours) is not None}
    own = _of_training(workload, model) if model.family == "training" else _of_checkpoints(workload, result)
    return {"model.name": model.name, **own, **values}


def _of_training(workload: Workload, model: SuiteModel) -> dict[str, Any]:
    """Return the keys whose values need a conversion. The loader `native`, and formats that dlio_benchmark does not
    have, are left out.
    """
    dataset, reader, checkpoint = workload.dataset, workload.reader, workload.checkpoint
    values: dict[str, Any] = {"workflow.generate_data": False, "workflow.train": True}
    values["workflow.checkpoint"] = checkpoint is not None
    if checkpoint is not None and checkpoint.every_steps is None:
        values |= {"checkpoint.checkpoint_after_epoch": 1, "checkpoint.epochs_between_checkpoints": 1}
    if (kind := _format(dataset.format, model)) is not None:
        values["dataset.format"] = kind
    if dataset.sample.bytes is None:
        values["dataset.record_length_bytes"] = dataset.sample_bytes
    if reader.loader in LOADERS:
        values |= {"framework": reader.loader, "reader.data_loader": reader.loader}
    values["reader.file_shuffle"] = "seed" if reader.shuffle.files else "off"
    values["reader.sample_shuffle"] = "seed" if reader.shuffle.samples else "off"
    return values


def _format(name: str, model: SuiteModel) -> str | None:
    """Return the format of dlio_benchmark. Several formats of dlio_benchmark are plain bytes; the model determines
    which of them is returned.
    """
    if model.format is not None and FORMATS[model.format] == name:
        return model.format
    names = [theirs for theirs, ours in FORMATS.items() if ours == name]
    return names[0] if len(names) == 1 else None


def _of_checkpoints(workload: Workload, result: Result) -> dict[str, Any]:
    checkpoint = workload.checkpoint
    assert checkpoint is not None
    values: dict[str, Any] = {"workflow.generate_data": False, "workflow.train": False, "workflow.checkpoint": True}
    if checkpoint.mode == "torch":
        values["framework"] = "pytorch"
    if checkpoint.reorder and result.nodes > 1:
        values["checkpoint.recovery_rank_shift"] = True
    state = checkpoint.state
    is_part = state is not None and result.ranks < state.parallelism.ranks
    return {**values, "checkpoint.mode": "subset" if is_part else "default"}


def _plain(workload: Workload) -> Any:
    return json.loads(serialization.encode(workload))


@functools.lru_cache(maxsize=32)
def _shipped(name: str) -> Workload:
    """Return the shipped workload of this name. A workload of the facility with the same name is ignored."""
    return plan.resolved(workloads.load(str(shipped.root() / shipped.WORKLOADS / f"{name}.yaml")))
