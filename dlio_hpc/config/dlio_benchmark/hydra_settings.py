"""Settings in the form of Hydra, the command line of dlio_benchmark, such as ++workload.reader.read_threads=4, and how
they are given to dlio-submit.
"""

import re
import shlex
from collections.abc import Callable

from dlio_hpc.base.errors import ConfigError

# A key with a mark of Hydra, with the section of dlio_benchmark's workloads, or with both; and a value.
_FORM = re.compile(r"(?P<mark>\+{0,2}|~)(?P<section>workload[./@])?(?P<key>\w[\w.]*)(?:=(?P<value>.*))?", re.DOTALL)
# Keys of dlio_benchmark that dlio-submit has by another name and with the same values.
_KEYS = {
    "dataset.num_files_train": "dataset.files", "dataset.num_samples_per_file": "dataset.samples_per_file",
    "dataset.record_length_bytes": "dataset.sample.bytes", "dataset.num_subfolders_train": "dataset.subfolders",
    "dataset.compression_level": "dataset.level", "dataset.num_files_eval": "evaluation.files",
    "reader.odirect": "reader.direct", "reader.prefetch_size": "reader.prefetch",
    "reader.computation_threads": "reader.preprocess_threads", "reader.batch_size_eval": "evaluation.batch_size",
    "train.computation_time": "compute.time", "train.computation_time_stdev": "compute.time.stdev",
    "train.total_training_steps": "train.steps", "train.seed": "reader.shuffle.seed",
    "evaluation.eval_time": "evaluation.time", "evaluation.epochs_between_evals": "evaluation.every_epochs",
    "checkpoint.steps_between_checkpoints": "checkpoint.every_steps",
    "model.model_size_bytes": "checkpoint.model_bytes",
    "checkpoint.num_checkpoints_write": "checkpoint.writes", "checkpoint.num_checkpoints_read": "checkpoint.reads",
}  # fmt: skip
# Keys of dlio_benchmark for which dlio-submit has an option. VALUE: the value of the key.
_OPTIONS = {
    "workflow.generate_data": "--generate auto (the default), or --generate only", "workflow.profiling": "--darshan",
    "dataset.data_folder": "--data VALUE", "storage.storage_root": "--data VALUE", "output.folder": "--runs VALUE",
    "hydra.run.dir": "--runs VALUE",
}  # fmt: skip


def is_of_hydra(text: str) -> bool:
    """Return whether a setting has a form that only Hydra has: a mark before its key, or the section workload."""
    form = _FORM.fullmatch(text)
    return form is not None and bool(form["mark"] or form["section"])


def advice(text: str, is_key: Callable[[str], bool], option: str = "-S") -> str:
    """Return what to give to dlio-submit instead of a setting in the form of Hydra, or of a key of dlio_benchmark.
    is_key: function that returns whether workloads have a key. option: option that sets keys.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        return f"{option} {shlex.quote(text)}"
    name, value = form["key"], form["value"] or "VALUE"
    key = _KEYS.get(name, name)
    if name == "workload":
        return f"a workload is given by its name alone, {value} or, with the file of dlio_benchmark, dlio:{value}"
    if name in _OPTIONS:
        return f"instead of {name}: {_OPTIONS[name].replace('VALUE', shlex.quote(value))}"
    if is_of_hydra(text) and not is_key(key):
        return f"no setting, because workloads have no key {name}; dlio-hpc schema workload --text lists the keys"
    if form["mark"] == "~":
        return f"a key cannot be removed; leave {key} out of a copy of the workload, or set it: {option} {key}={value}"
    return f"{option} {shlex.quote(f'{key}={value}')}"


def refuse(text: str, is_key: Callable[[str], bool], option: str = "-S") -> None:
    """Raise ConfigError if the value of an option that sets keys is in the form of Hydra. is_key, option: as in
    advice().
    """
    if is_of_hydra(text):
        raise ConfigError(f"{option} {text}: this is the form of dlio_benchmark; use: {advice(text, is_key, option)}")
