"""A workload: the I/O of an application, as described in a YAML file."""

import copy
import math
import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple

import msgspec
from msgspec import Struct, structs

from dlio_hpc.base import key_faults, serialization, units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config import shipped, workload_rules
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.config.dataset_keys import Column, Dataset
from dlio_hpc.config.dlio_benchmark import hydra_settings, workload_files
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.config.metadata_keys import MetadataKeys
from dlio_hpc.config.reader_keys import BLOCK, LARGEST_REQUEST, Reader, fits_blocks
from dlio_hpc.config.site import Site

# Default size in bytes of the reads of tf.data.
TENSORFLOW_BUFFER = 256 << 10

# Suggestions for names that are options and not keys.
_OPTIONS = {
    **{
        name: f"did you mean the option --{name.replace('_', '-')}? "
        for name in (
            "nodes", "ppn", "repeat", "warmup", "nights", "dataset_size", "site", "study", "suite", "runs", "data",
        )
    },
    "time": "did you mean the option --time, or 'compute.time'? ",
}  # fmt: skip

# Keys that accept a plain value instead of a mapping, and the type of that value; see _spell_out().
SHORT_FORMS: dict[str, type] = {
    "dataset.subfolders": int, "dataset.chunk": units.Size, "dataset.existing": str, "compute.time": units.Seconds,
}  # fmt: skip


# Sections that replace the dataset, and the workloads that have them.
OWN_SECTIONS = {"metadata": "a metadata workload", "inference": "an inference workload"}


class ComputeTime(Struct, frozen=True, forbid_unknown_fields=True):
    """Emulated computation time of a step. Each rank draws the times of its steps at random from a distribution.
    Negative times, which the normal distribution can give, are replaced by 0.
    """

    mean: units.Seconds = units.Seconds(0)
    """Mean time of a step. Example: 20 ms"""
    distribution: Literal["constant", "normal", "gamma", "exponential"] = "constant"
    """Distribution from which each rank draws the times of its steps."""
    stdev: units.Seconds | None = None
    """Standard deviation of the times; required for normal and gamma. Example: 2 ms"""
    seed: units.Natural = 0
    """Seed of the random times."""

    def __post_init__(self) -> None:
        if (self.distribution in {"normal", "gamma"}) != (self.stdev is not None):
            raise ValueError("stdev is required for distribution=normal or gamma, and not allowed for others")
        if self.distribution == "gamma" and not self.mean / 1000 <= (self.stdev or 0) <= self.mean * 1000 > 0:
            raise ValueError("a gamma distribution needs a mean above 0 and a stdev of 1/1000 to 1000 times the mean")


class Compute(Struct, frozen=True, forbid_unknown_fields=True):
    """Computation that each step emulates."""

    time: ComputeTime = ComputeTime()
    """Time of a step. A time alone, such as 20 ms, stands for {mean: 20 ms}. Example: {mean: 20 ms}"""
    mode: Literal["sleep", "spin"] = "sleep"
    """sleep: the rank sleeps and leaves its core to the readers; spin: the rank keeps its core busy."""
    interval: units.Seconds | None = None
    """Time from the start of a step to the start of the next one; replaces `time`. Steps start at fixed times, although
    storage may be slow: after a late step, the next steps follow without a pause until the run has caught up. A run
    that is late at its end, by more than two steps and 5 % of its time, is invalid, because storage did not hold the
    rate. null: steps take `time`. Example: 50 ms
    """

    def __post_init__(self) -> None:
        serialization.refuse(
            (self.interval is not None and self.interval <= 0, "interval: use a time above 0, such as 50 ms, or null"),
            (self.interval is not None and self.time.mean > 0, "interval and time exclude each other: set time to 0"),
        )


class Train(Struct, frozen=True, forbid_unknown_fields=True):
    """Length of the training."""

    epochs: units.Positive = 1
    """Number of epochs, that is, passes over the dataset."""
    steps: units.Positive | None = None
    """Maximum number of steps per epoch; null: as many as the dataset allows. Example: 500"""


class Evaluation(Struct, frozen=True, forbid_unknown_fields=True):
    """Evaluation passes between epochs. A pass reads a second dataset, with the same layout as `dataset`, and writes no
    checkpoints.
    """

    files: units.Positive
    """Number of files of the second dataset. Example: 16"""
    every_epochs: units.Positive = 1
    """Number of epochs between two passes. The first pass also comes after this number of epochs."""
    batch_size: units.Positive | None = None
    """Number of samples that a rank consumes in a step of a pass; null: the value of reader.batch_size. Example: 4"""
    time: ComputeTime | None = None
    """Time of a step of a pass; null: the value of compute.time. Example: {mean: 5 ms}"""


def _check_without_dataset(workload: "Workload") -> None:
    """Raise ValueError if a metadata or an inference workload has keys of other workloads."""
    is_metadata = workload.metadata is not None
    section, step, instead = (
        ("metadata", "phase", "metadata.phases selects the phases")
        if is_metadata
        else ("inference", "epoch", "inference.time is the length of an epoch")
    )
    serialization.refuse(
        (
            is_metadata and workload.inference is not None,
            "metadata and inference exclude each other; use two workloads",
        ),
        (
            workload.dataset.facts.holds_data,
            f"{section} is for workloads without a dataset; remove dataset",
        ),
        (workload.checkpoint is not None, f"{section} and checkpoint exclude each other; use two workloads"),
        (workload.evaluation is not None, f"{section} and evaluation exclude each other; leave evaluation out"),
        (
            workload.reader.batch_size != 1,
            f"{section}: each step is a{'n' * (not is_metadata)} {step}; leave reader.batch_size at 1",
        ),
        (workload.train.steps is not None, f"{section}: leave train.steps out; {instead}"),
        (
            workload.inference is not None and workload.inference.search is not None and workload.train.epochs < 2,
            "inference.search: each epoch tries one number of users; set train.epochs, such as 8",
        ),
        (
            not is_metadata and bool(workload.compute.time.mean),
            "compute.time has no effect on inference; set inference.prefill and inference.decode",
        ),
    )


# Size in bytes below which a file has only a few pages. From such a file, the kernel fetches far more than is
# requested.
FEW_PAGES = 128 * 1024


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    """A workload: the I/O of an application."""

    name: str
    """Name of the workload. It is part of the names of jobs. Example: mine"""
    dataset: Dataset
    """Dataset: files that dlio-hpc generates and reads, or existing files that it reads."""
    description: str = ""
    """Short description, shown in lists."""
    source: str = ""
    """Origin of the workload's numbers, such as a paper."""
    reader: Reader = Reader()
    """Settings that control how each rank reads the dataset."""
    compute: Compute = Compute()
    """Computation that each step emulates."""
    metadata: MetadataKeys | None = None
    """Operations on files and directories instead of a dataset; null: none. Example: {files: 10000}"""
    inference: InferenceKeys | None = None
    """Requests to a language model whose KV cache is on storage, instead of a dataset; null: none. Example: {users: 8,
    time: 60 s, interval: 20 s, prompt: {mean: 500}, answer: {mean: 200}}
    """
    checkpoint: Checkpoint | None = None
    """Checkpoints to write. null: no checkpoints. {} (all keys at their defaults): the checkpoints of the DLIO paper.
    """
    train: Train = Train()
    """Length of the training."""
    evaluation: Evaluation | None = None
    """Evaluation passes between epochs; null: no evaluation passes. Example: {files: 16}"""

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        workload_rules.check(self.dataset, self.reader)
        if self.evaluation is not None:
            passes = self.train.epochs // self.evaluation.every_epochs
            workload_rules.check_evaluation(self.dataset, self.reader, passes)
            try:
                self.dataset.of_files(self.evaluation.files, self.dataset.samples_per_file)
            except ValueError as fault:
                raise ValueError(f"evaluation.files: {fault}") from fault
        if self.has_own_loader:
            _check_without_dataset(self)
            number = 1 if self.metadata is None else len(self.metadata.order)
            steps = structs.replace(self.dataset, files=1, samples_per_file=number)
            structs.force_setattr(self, "dataset", steps)  # a step is a phase, or an epoch of requests
        if self.only_writes_checkpoints and self.dataset.facts.holds_data:
            raise ValueError(
                "checkpoint.writes is for workloads without a dataset; set checkpoint.every_steps, or remove dataset"
            )
        forks = self.reader.worker_processes > 0 and self.reader.multiprocessing_context == "fork"
        if self.checkpoint is not None and self.checkpoint.mode == "keras" and forks:
            raise ValueError(
                "checkpoint.mode=keras starts threads of TensorFlow, which do not survive the fork of PyTorch's "
                "workers; set reader.multiprocessing_context=spawn"
            )

    @property
    def of_evaluation(self) -> "Workload | None":
        """The evaluation passes as a workload of its own, with an epoch for each pass; None if there are no passes."""
        keys = self.evaluation
        if keys is None:
            return None
        batch = self.reader.batch_size if keys.batch_size is None else keys.batch_size
        return structs.replace(
            self,
            dataset=structs.replace(
                self.dataset.of_files(keys.files, self.dataset.samples_per_file), auxiliary_files=()
            ),
            reader=structs.replace(self.reader, batch_size=batch),
            compute=self.compute if keys.time is None else structs.replace(self.compute, time=keys.time),
            checkpoint=None,
            train=Train(epochs=self.train.epochs // keys.every_epochs),
            evaluation=None,
        )

    @property
    def writes_outputs(self) -> bool:
        """Whether a run writes checkpoints, auxiliary files, or the files of a metadata or an inference workload."""
        if self.has_own_loader:
            return True
        return self.checkpoint is not None or any(side.access == "write" for side in self.dataset.auxiliary_files)

    @property
    def reads_samples(self) -> bool:
        """Whether steps read samples. If they do not, samples/s and AU have no meaning."""
        return not self.has_own_loader and not self.only_writes_checkpoints

    @property
    def has_own_loader(self) -> bool:
        """Whether steps do something else than read samples or write checkpoints: operations on files, or requests to a
        language model.
        """
        return self.metadata is not None or self.inference is not None

    @property
    def only_writes_checkpoints(self) -> bool:
        """Whether steps write checkpoints and read no samples."""
        return self.checkpoint is not None and self.checkpoint.writes is not None

    @property
    def kind_in_words(self) -> str:
        """What the steps do, as the subject of a sentence."""
        if self.metadata is not None:
            return "a metadata workload"
        if self.inference is not None:
            return "an inference workload"
        return "a workload that only writes checkpoints" if self.only_writes_checkpoints else "a training"

    @property
    def steps_in_words(self) -> str:
        """The steps of this workload, in a sentence with their number."""
        if self.metadata is not None:
            return "phases"
        return "epochs of requests" if self.inference is not None else "steps"

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample in a batch: `reader.resize` if samples are resized, otherwise the size of the largest
        sample.
        """
        keys = self.reader
        return keys.resize if keys.resizes and keys.resize is not None else self.dataset.largest_in_memory

    @property
    def brings_neighbours(self) -> bool:
        """Whether the kernel fetches far more bytes from storage than are requested. This happens if the samples of a
        file are read in random order, if a file is only a few pages long, if files are mapped into memory, or if blocks
        of a KV cache are parts of one file.
        """
        if self.inference is not None:  # the kernel reads ahead, but not beyond the file
            return self.inference.file_layout in ("sequence", "pool") and not self.inference.direct
        dataset = self.dataset
        in_any_order = self.reader.shuffle.samples and dataset.samples_per_file > 1
        is_small = dataset.samples_per_file * dataset.sample_bytes < FEW_PAGES
        return in_any_order or is_small or self.reader.mapped

    @property
    def is_direct(self) -> bool:
        """Whether samples, or blocks of KV caches, are read with O_DIRECT."""
        return self.reader.direct if self.inference is None else self.inference.direct

    @property
    def request_size(self) -> units.Size | None:
        """Bytes per request: `reader.transfer_size` or, if that key is null, its default for the format. None if a
        library chooses the size of requests.
        """
        dataset, reader = self.dataset, self.reader
        if reader.transfer_size is not None or not dataset.facts.holds_data or reader.access == "collective":
            return reader.transfer_size
        if reader.mode == "framework":
            return units.Size(TENSORFLOW_BUFFER) if dataset.facts.holds_records else None
        if dataset.is_packed:
            return units.Size(1 << 20)
        if dataset.facts.holds_columns and dataset.existing is None:
            size = dataset.row_group_samples * max(column.bytes for column in dataset.all_columns)
        else:
            chunk = math.prod(dataset.chunk_shape or ()) * dataset.sample.item_bytes
            size = max(dataset.largest, chunk if dataset.is_chunked else 0)
        if reader.direct and not fits_blocks(dataset):  # includes the blocks at both ends
            size = (-(-size // BLOCK) + 1) * BLOCK
        return units.Size(min(size, LARGEST_REQUEST))


class Draft(NamedTuple):
    """A workload as plain data, whose keys can still be changed. data: values by key. source: file name, for error
    messages. notes: keys of the file without effect; if the workload was imported, its differences from the imported
    workload. overrides: changes of `data` by the option -S. origins: for each key that was changed otherwise, where the
    change was set, for error messages.
    """

    data: dict[str, Any]
    source: str
    notes: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    origins: Mapping[str, str] = types.MappingProxyType({})

    @property
    def name(self) -> str:
        return str(self.data.get("name") or "job")

    def with_settings(self, settings: dict[str, Any]) -> "Workload":
        """Return the workload with `settings` (values by key) applied. Raise ConfigError if the result is not valid."""
        data = copy.deepcopy(self.data)
        for key, value in settings.items():
            serialization.put(data, key, value, f"{key}={value}")
            _spell_out(data)
        origins = {**self.origins, **dict.fromkeys(settings, "")}
        _check_dataset(data, self.source)
        self._check_reader(data, origins)
        _add_dataset(data, self.source)
        _add_sample(data)
        return serialization.convert_changed(data, Workload, self.source, self.overrides, origins=origins)

    def _check_reader(self, data: dict[str, Any], origins: Mapping[str, str]) -> None:
        """Raise ConfigError if a workload that reads no samples sets a key of the reader."""
        own = next((name for name in OWN_SECTIONS if isinstance(data.get(name), dict)), None)
        checkpoint, dataset = data.get("checkpoint"), data.get("dataset")
        only_writes = isinstance(checkpoint, dict) and checkpoint.get("writes") is not None
        has_dataset = dataset is not None and not (isinstance(dataset, dict) and dataset.get("format") == "null")
        if has_dataset or not (own or only_writes):
            return
        if keys := workload_rules.unused_keys(data.get("reader")):
            subject = OWN_SECTIONS[own] if own else "a workload that only writes checkpoints"
            names = ", ".join(f"reader.{key}" for key in keys)
            text = f"{names}: {subject} has no dataset and reads no samples; leave {names} out"
            place = serialization.place_of(self.source, ("reader", keys[0]), self.overrides, origins=origins)
            raise ConfigError(f"{place}: {text}" if place else text)


def load(name: str, overrides: tuple[str, ...] = ()) -> Workload:
    """Read a workload, and apply overrides in the form `key=value`, whose values are read as YAML. name: name of a
    shipped workload, path of a file, or dlio:NAME for a workload of dlio_benchmark.
    """
    return draft(name, overrides).with_settings({})


def draft(
    name: str, overrides: tuple[str, ...] = (), settings: dict[str, Any] | None = None, origin: str = ""
) -> Draft:
    """Read a workload like load(), but return it unchecked, so that more keys can be changed. settings: values by key,
    which are applied before the overrides. origin: file or option that gives the settings, for messages.
    """
    data, path, notes, *_ = _imported(name) if workload_files.is_name(name) else _read(name)
    _spell_out(data)
    left_out: list[str] = []
    for key, value in (settings or {}).items():
        left_out += notes_on_section(data, key, value, origin)
        serialization.put(data, key, value, f"{key}={value}")
        _spell_out(data)
    for override in overrides:
        _check_section(override)
        before = copy.deepcopy(data)
        key = serialization.override(data, override)
        left_out += notes_on_section(before, key, serialization.value_at(data, key), "-S")
        _spell_out(data)
    given = {override.partition("=")[0].strip() for override in overrides}
    origins = {key: origin for key in settings or () if key not in given}
    return Draft(data, path, (*notes, *left_out), overrides, origins)


# Sections that a mapping replaces on purpose, because their keys exclude each other.
_WHOLE = ("dataset.sample",)


def notes_on_section(data: dict[str, Any], key: str, value: object, origin: str) -> Iterator[str]:
    """Yield a note if a mapping replaces a section and leaves out keys that the workload sets. data: the workload as
    plain data, before it is changed. key, value: the change. origin: file or option that makes it, for the note.
    """
    old = serialization.value_at(data, key)
    if not isinstance(old, dict) or not isinstance(value, dict) or key in _WHOLE:
        return
    if left_out := list(_left_out(old, value, key)):
        single = next((serialization.single_key(origin, f"{key}.{name}", value[name]) for name in value), "")
        place = f"{origin} {key}" if origin == "-S" else f"{origin}.{key}"
        advice = f"; to keep them, set single keys: {single}" if single else ""
        yield (
            f"{place}: the mapping replaces the whole section, and keys of the workload that it leaves out go back to "
            f"their defaults: {', '.join(left_out)}{advice}"
        )


def _left_out(old: dict[str, Any], new: dict[str, Any], section: str) -> Iterator[str]:
    """Yield the keys that are set in the mapping `old` of a section and not in the mapping `new`."""
    for name, value in old.items():
        key, other = f"{section}.{name}", new.get(name)
        if name not in new and value is not None:
            yield key
        elif isinstance(value, dict) and isinstance(other, dict) and key not in _WHOLE:
            yield from _left_out(value, other, key)


def _check_section(override: str) -> None:
    """Raise ConfigError if the key of an override is in no section of a workload. The message also suggests keys of the
    site.
    """
    section = override.partition("=")[0].partition(".")[0].strip()
    sections = list(Workload.__struct_fields__)
    if section in sections or "=" not in override:
        return
    hydra_settings.refuse(override, is_key)
    everywhere = [*key_faults.keys_of(Workload), *key_faults.keys_of(Site, "site.")]
    hint = _OPTIONS.get(section) or key_faults.meant_of(section, [*sections, "site"], everywhere)
    raise ConfigError(
        f"{serialization.of_override(override)}: unknown key {section!r}; {hint}"
        f"{key_faults.known_keys([*sections, 'site'], Workload, bool(hint))}"
    )


def is_key(name: str) -> bool:
    """Return whether workloads have a key, which is given with its sections, as in reader.read_threads."""
    return name in key_faults.keys_of(Workload)


def _read(name: str) -> Draft:
    path = shipped.find(shipped.WORKLOADS, name)
    data = serialization.read_yaml(path)
    shipped.check_kind(shipped.WORKLOADS, path, data)
    if not isinstance(data, dict):
        serialization.convert(data, Workload, str(path))  # raises the error that says what to do
    return Draft(data, str(path), tuple(_unused(data, path.name)))


# Keys of a dataset that the scan of existing files sets.
SCANNED_KEYS = (
    "files", "samples_per_file", "sample", "chunk", "zarr", "columns", "row_group", "documents", "compression", "level",
    "random_bits", "compression_ratio",
)  # fmt: skip


def _unused(data: dict[str, Any], source: str) -> Iterator[str]:
    """Yield a note if the file of a workload names existing files and has keys that the scan of these files sets. A
    workload for generated files may have them: the option --existing replaces their values.
    """
    dataset = data.get("dataset")
    if not isinstance(dataset, dict) or dataset.get("existing") is None:
        return
    if keys := [f"dataset.{key}" for key in SCANNED_KEYS if dataset.get(key) is not None]:
        yield (
            f"{source}: {', '.join(keys)}: no effect with dataset.existing, because the scan of the files sets "
            f"{'it' if len(keys) == 1 else 'them'}; leave {'it' if len(keys) == 1 else 'them'} out"
        )


def _imported(name: str) -> Draft:
    """Read a workload of dlio_benchmark."""
    from dlio_hpc.config.dlio_benchmark import importing  # needed only for these names

    imported = importing.load(workload_files.find(name))
    return Draft(imported.data, name, tuple(f"{name}: {note}" for note in imported.notes))


def _spell_out(data: dict[str, Any]) -> None:
    """Replace short forms in `data`, such as `chunk: 64 KiB` and `time: 0.1`, by the full forms. If the dataset
    consists of existing files, fill in the keys that the scan of the files sets. `data` is modified.
    """
    dataset, compute = data.get("dataset"), data.get("compute")
    if isinstance(dataset, dict):
        if "format" in dataset and dataset["format"] is None:
            dataset["format"] = "null"  # YAML reads an unquoted null as None
        chunk = dataset.get("chunk")
        if chunk is not None and not isinstance(chunk, dict):
            dataset["chunk"] = {"shape" if isinstance(chunk, list) else "bytes": chunk}
        if isinstance(dataset.get("subfolders"), int):
            dataset["subfolders"] = [dataset["subfolders"]]
        if isinstance(dataset.get("columns"), list):
            dataset["columns"] = [
                {"dtype": column} if isinstance(column, str) else column for column in dataset["columns"]
            ]
        if isinstance(dataset.get("existing"), str):
            dataset["existing"] = {"glob": dataset["existing"]}
        if dataset.get("existing") is not None:
            dataset.setdefault("files", 1)
            dataset.setdefault("samples_per_file", 1)
            if dataset.get("sample") is None:
                serialization.put(dataset, "sample.bytes", 1, "sample")
    if isinstance(compute, dict) and "time" in compute and not isinstance(compute["time"], dict):
        compute["time"] = {"mean": compute["time"]}


def _check_dataset(data: dict[str, Any], source: str) -> None:
    """Raise ConfigError for faults that the checks of the structs would not explain well: the workload has neither a
    dataset nor checkpoints, --existing is given for a workload without a dataset, or the columns of Parquet files are
    missing.
    """
    dataset, checkpoint = data.get("dataset"), data.get("checkpoint")
    writes = isinstance(checkpoint, dict) and checkpoint.get("writes") is not None
    if isinstance(data.get("inference"), dict):
        if dataset is not None and not (isinstance(dataset, dict) and dataset.get("format") == "null"):
            raise ConfigError(
                f"{source}: an inference workload has blocks of its own and reads no dataset; leave out the keys of "
                "dataset and --existing, or leave inference out. dlio-submit kv_cache_llama3_8b measures KV caches"
            )
        return
    if isinstance(data.get("metadata"), dict):
        if dataset is not None and not (isinstance(dataset, dict) and dataset.get("format") == "null"):
            raise ConfigError(
                f"{source}: a metadata workload makes operations on files of its own and reads no dataset; leave out "
                "the keys of dataset and --existing, or leave metadata out. dlio-submit metadata_own measures the "
                "operations; metadata.depth and metadata.width make subfolders"
            )
        return
    if "dataset" not in data and not writes:
        raise ConfigError(
            f"{source}: key 'dataset' is missing; add it, such as dataset: {{format: npz, files: 64, samples_per_file: "
            "4, sample: {bytes: 1 MiB}}, or set checkpoint.writes, if the workload only writes checkpoints"
        )
    if not isinstance(dataset, dict):
        return
    if isinstance(dataset.get("subfolders"), str):
        raise ConfigError(
            f"{source}: dataset.subfolders: found {dataset['subfolders']!r}; use a number, such as 1000, or a list for "
            "two levels, such as [10, 100]"
        )
    if writes and dataset.get("existing") is not None and "format" not in dataset:
        raise ConfigError(
            f"--existing: workload {data.get('name')} writes checkpoints and reads no dataset; leave --existing out, "
            "or give a workload that reads a dataset"
        )
    has_sample = any(dataset.get(key) is not None for key in ("sample", "columns", "existing"))
    if dataset.get("format") == "parquet" and not has_sample:
        raise ConfigError(
            f"{source}: dataset: key 'columns' is missing; Parquet files need it, such as columns: [{{name: label, "
            "dtype: int8}, {name: features, dtype: float32, size: 13}]"
        )


def _add_dataset(data: dict[str, Any], source: str) -> None:
    """Add a dataset to a workload that reads none. Workload sets the samples of OWN_SECTIONS; otherwise, the
    dataset has a sample for each checkpoint. No sample is stored or read. `data` is modified. source: origin of the
    data, for messages.
    """
    checkpoint = data.get("checkpoint")
    if any(isinstance(data.get(name), dict) for name in OWN_SECTIONS) and "dataset" not in data:
        data["dataset"] = {"format": "null", "files": 1, "samples_per_file": 1, "sample": {"bytes": 1}}
        _set_reader(data)
        return
    if "dataset" in data or not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("writes"), int):
        return
    data["dataset"] = {
        "format": "null", "files": 1, "samples_per_file": checkpoint["writes"], "sample": {"bytes": 1}
    }  # fmt: skip
    _set_reader(data)
    if checkpoint.get("every_steps", 1) != 1:
        raise ConfigError(
            f"{source}: checkpoint.every_steps: this workload only writes checkpoints, one in each step; leave "
            f"every_steps out, and set checkpoint.writes"
        )
    checkpoint["every_steps"] = 1


def _set_reader(data: dict[str, Any]) -> None:
    """Set the keys of the reader in a workload that reads no samples. A reader that is no mapping is left unchanged;
    the check of the keys reports it. `data` is modified.
    """
    reader = data.get("reader", {})
    if isinstance(reader, dict):
        data["reader"] = {"shard": False, "prefetch": 0, **reader}


def _add_sample(data: dict[str, Any]) -> None:
    """Set the size of a sample from its columns, if the workload does not set `sample`. `data` is modified. Invalid
    columns are ignored here; the check of the keys reports them later.
    """
    dataset = data.get("dataset")
    if not isinstance(dataset, dict) or dataset.get("sample") is not None or dataset.get("columns") is None:
        return
    with suppress(msgspec.ValidationError):
        columns = msgspec.convert(dataset["columns"], list[Column])
        serialization.put(dataset, "sample.bytes", sum(column.bytes for column in columns), "sample")
