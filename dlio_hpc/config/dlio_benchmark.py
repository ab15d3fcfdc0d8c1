"""Conversion of a workload of dlio_benchmark to a workload of dlio-hpc that makes the same requests."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from dlio_hpc import document
from dlio_hpc.config import dlio_benchmark_source
from dlio_hpc.config.dlio_benchmark_keys import ELEMENT_BYTES, KEYS, REVISION, SWITCHES
from dlio_hpc.config.dlio_benchmark_source import Source
from dlio_hpc.errors import name_hint

# mapped: a key of dlio-hpc has the same effect. approximated: a key of dlio-hpc has nearly the same effect. ignored: no
# effect on the requests of a run. left out: requests of dlio_benchmark that the workload does not make.
Fate = Literal["mapped", "approximated", "ignored", "left out"]


class Fact(NamedTuple):
    """Outcome of the import for a key of dlio_benchmark. target, value: key of dlio-hpc that is set, and its value; ""
    for none. text: explanation, which may be empty.
    """

    key: str
    fate: Fate
    text: str = ""
    target: str = ""
    value: Any = None


class Imported(NamedTuple):
    """A workload that was converted, with the facts about its keys."""

    source: Source
    facts: tuple[Fact, ...]

    @property
    def data(self) -> dict[str, Any]:
        """The workload as plain data, as read from a YAML file."""
        data: dict[str, Any] = {"name": self.source.name, "description": self.description, "source": self.source.command}
        for fact in self.facts:
            if fact.target:
                document.put(data, fact.target, fact.value, self.source.origin)
        return data

    @property
    def description(self) -> str:
        loader = next(fact.value for fact in self.facts if fact.target == "reader.loader")
        return f"imported from dlio_benchmark: {self.source['dataset.format']}, read by loader {loader}"

    @property
    def lines(self) -> tuple[str, ...]:
        """Lines about the keys that the file sets, and about other keys without a counterpart of the same effect."""
        return tuple(line(self.source, fact) for fact in self.facts if self.is_reported(fact))

    def is_reported(self, fact: Fact) -> bool:
        return fact.key in self.source.values or fact.fate not in _QUIET

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a plan: the keys without a counterpart of the same effect."""
        return tuple(line(self.source, fact) for fact in self.facts if fact.fate not in _QUIET)


_QUIET = ("mapped", "ignored")


def line(source: Source, fact: Fact) -> str:
    """Return the outcome for a key as a line of text."""
    key = source.old.get(fact.key, fact.key)
    given = f"{key}: {source.values[fact.key]}" if fact.key in source.values else key
    to = f" to {fact.target}={_plain(fact.value)}" if fact.target else ""
    return f"{given}: {fact.fate}{to}{f' ({fact.text})' if fact.text else ''}"


def _plain(value: Any) -> str:
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def load(path: Path, overrides: tuple[str, ...] = ()) -> Imported:
    """Read and convert a workload file of dlio_benchmark. overrides: in the form of Hydra, such as
    ++workload.reader.batch_size=4. Raise ConfigError if dlio-hpc cannot make the same requests.
    """
    return converted(dlio_benchmark_source.load(path, overrides))


def converted(source: Source) -> Imported:
    """Convert a workload. Raise ConfigError if dlio-hpc cannot make the same requests."""
    _refuse(source)
    parts = (_dataset, _reader, _order, _times, _train, _checkpoint, _evaluation)
    facts = [fact for part in parts for fact in part(source)]
    keys = {fact.key for fact in facts}
    facts += [_without_effect(source, key) for key in source.values if key not in keys]
    return Imported(source, tuple(facts))


def _without_effect(source: Source, key: str) -> Fact:
    """Return the fact about a key that no part of the workload depends on."""
    if key in KEYS:
        switch = next((on for section, on in SWITCHES.items() if key.startswith(section)), "")
        if switch and not source[switch]:
            return Fact(key, "ignored", f"{switch} is False")
        return Fact(key, "ignored", KEYS[key].without_effect or "no effect in this workload")
    hint = name_hint(key, KEYS)
    return Fact(key, "ignored", f"{hint}dlio_benchmark {REVISION} has no such key")


# What is read.

_FORMATS = {"npz": "npz", "npy": "raw", "hdf5": "hdf5", "csv": "csv", "tfrecord": "tfrecord", "jpeg": "raw", "png": "raw",
            "indexed_binary": "raw", "synthetic": "null"}  # fmt: skip
_NO_FORMATS = {
    "mmap_indexed_binary": "dlio_benchmark maps these files into memory and does not touch the samples, so it makes no "
    "requests; set ++workload.dataset.format=indexed_binary to read the samples",
    "hdf5_opt": f"dlio_benchmark {REVISION} has no reader for it; set ++workload.dataset.format=hdf5",
}
_FORMAT_TEXTS = {
    "npy": "a file is its bytes, without the header of NumPy",
    "jpeg": "a file is its bytes, read in requests of 64 KiB as Pillow does",
    "png": "a file is its bytes, read in requests of 64 KiB as Pillow does",
    "indexed_binary": "samples at their offsets; the index, 16 bytes per sample, is not read",
}
_IMAGES = ("jpeg", "png")
# Bytes of a file per pixel, for the random images that dlio_benchmark generates (measured with Pillow 13, 1000 x 1000).
_IMAGE_BYTES = {"jpeg": 0.5554, "png": 1.0024}
# Request of Pillow for the data of an image.
_PILLOW_REQUEST = 64 << 10
# Formats of which dlio_benchmark loads the whole file, and again for each sample with an index.
_WHOLE = ("npz", "npy", "csv", *_IMAGES)
_LOADERS = {"pytorch": "pytorch", "tensorflow": "tensorflow", "dali": "native", "synthetic": "native"}


def _refuse(source: Source) -> None:
    """Raise ConfigError for a workload that makes requests which dlio-hpc cannot make."""
    kind, loader = source["dataset.format"], _loader(source)
    indexed = loader in {"pytorch", "dali"}
    rules: tuple[tuple[bool, str, str], ...] = (
        (
            not source["workflow.train"] and source["workflow.checkpoint"],
            "workflow.train",
            "the workload only writes and reads checkpoints; dlio-hpc measures checkpoints as a part of training",
        ),
        (
            not source["workflow.train"] and not source["workflow.generate_data"],
            "workflow.train",
            "the workload reads no training data; set ++workload.workflow.train=True",
        ),
        (
            source["storage.storage_type"] not in {"local_fs", "parallel_fs"},
            "storage.storage_type",
            "dlio-hpc reads files of a mounted file system, not objects; set ++workload.storage.storage_type=local_fs",
        ),
        *(
            (bool(source[key]), key, "the requests of a class of one's own are unknown; remove the key")
            for key in ("reader.data_loader_classname", "reader.reader_classname")
        ),
        (kind in _NO_FORMATS, "dataset.format", _NO_FORMATS.get(kind, "")),
        (
            kind not in {*_FORMATS, *_NO_FORMATS},
            "dataset.format",
            f"not a format of dlio_benchmark {REVISION}; use one of: {', '.join(_FORMATS)}",
        ),
        (
            loader not in _LOADERS,
            "reader.data_loader",
            f"the requests of this loader are its own; use one of: {', '.join(_LOADERS)}",
        ),
        (
            {source["framework"], loader} == {"tensorflow", "pytorch"} or (kind == "tfrecord" and loader == "pytorch"),
            "reader.data_loader",
            f"dlio_benchmark refuses it with framework {source['framework']} and format {kind}; set "
            "++workload.framework and ++workload.reader.data_loader to values that fit together",
        ),
        (
            kind in _WHOLE and indexed and source["dataset.num_samples_per_file"] > 1,
            "dataset.num_samples_per_file",
            f"dlio_benchmark loads the whole {kind} file again for each of its samples; dlio-hpc loads it once; set "
            "++workload.dataset.num_samples_per_file=1",
        ),
        (
            kind in _IMAGES and source["dataset.num_samples_per_file"] > 1,
            "dataset.num_samples_per_file",
            "an image file holds one image; set ++workload.dataset.num_samples_per_file=1",
        ),
        (
            kind == "csv" and source["dataset.compression"] != "none",
            "dataset.compression",
            "dlio_benchmark does not find the compressed files; set ++workload.dataset.compression=none",
        ),
        (
            kind == "csv" and source["dataset.record_element_type"] not in {"int8", "uint8"},
            "dataset.record_element_type",
            "the length of these numbers as text varies; set ++workload.dataset.record_element_type=uint8",
        ),
        (
            source["dataset.record_element_type"] not in ELEMENT_BYTES,
            "dataset.record_element_type",
            f"use one of: {', '.join(ELEMENT_BYTES)}",
        ),
        (
            source["dataset.hdf5.num_dset_per_record"] > 1,
            "dataset.hdf5.num_dset_per_record",
            "dlio-hpc reads a sample from a single dataset; set ++workload.dataset.hdf5.num_dset_per_record=1",
        ),
        (
            bool(source["dataset.record_dims"]) and source["dataset.record_length_bytes_stdev"] > 0,
            "dataset.record_length_bytes_stdev",
            "dlio_benchmark refuses it with record_dims; remove one of the two keys",
        ),
        (
            source["reader.odirect"] and kind not in {"npz", "npy"},
            "reader.odirect",
            f"dlio_benchmark has O_DIRECT for npz and npy only, not {kind}; set ++workload.reader.odirect=False",
        ),
    )
    for is_refused, key, reason in rules:
        if is_refused:
            raise source.refused(key, reason)


def _loader(source: Source) -> str:
    return str(source["reader.data_loader"] or source["framework"])


def _reads_nothing(source: Source) -> bool:
    return source["dataset.format"] == "synthetic" or _loader(source) == "synthetic"


def _format(source: Source) -> str:
    return "null" if _reads_nothing(source) else _FORMATS[source["dataset.format"]]


def _dataset(source: Source) -> Iterator[Fact]:
    kind, files = source["dataset.format"], source["dataset.num_files_train"]
    samples = source["dataset.num_samples_per_file"]
    if _reads_nothing(source):
        yield Fact("dataset.format", "mapped", "its reader makes no requests", "dataset.format", "null")
    else:
        text = _FORMAT_TEXTS.get(kind, "")
        yield Fact("dataset.format", "approximated" if text else "mapped", text, "dataset.format", _FORMATS[kind])
    yield Fact("dataset.num_files_train", "mapped", "", "dataset.files", files)
    if files == 1:
        yield Fact("dataset.num_files_train", "mapped", "all ranks read the one file", "dataset.file_access", "shared")
    yield Fact("dataset.num_samples_per_file", "mapped", "", "dataset.samples_per_file", samples)
    yield from _sample(source)
    if _format(source) == "hdf5":
        yield from _chunks(source)
    if source["dataset.compression"] not in {"none", "gzip", "lzf"} or _format(source) != "hdf5":
        yield Fact("dataset.compression", "ignored", f"dlio_benchmark {REVISION} writes plain files here")
    if source["dataset.num_subfolders_train"] > 1:
        yield Fact("dataset.num_subfolders_train", "approximated", "all files lie in one folder")
    if not source["workflow.train"]:
        yield Fact("workflow.train", "approximated", "generates only: submit with --generate only")
    yield Fact("workflow.generate_data", "ignored", "dlio-submit generates the dataset if it does not exist")


def _sample(source: Source) -> Iterator[Fact]:
    """Yield the size of a sample. Without record_dims, the generator of dlio_benchmark writes a square array whose side
    is the root of record_length_bytes, rounded down. The deviations of its two sides are independent.
    """
    kind, length = source["dataset.format"], source["dataset.record_length_bytes"]
    dims, element = source["dataset.record_dims"], source["dataset.record_element_type"]
    item, stdev = ELEMENT_BYTES[element], source["dataset.record_length_bytes_stdev"]
    if dims:
        shape, key = _natural_numbers(source, "dataset.record_dims"), "dataset.record_dims"
        text = f"{' x '.join(map(str, shape))} values of {item} byte(s)"
    else:
        shape, key = (max(1, math.isqrt(max(1, int(length)))),) * 2, "dataset.record_length_bytes"
        text = f"{shape[0]} x {shape[1]} values of {item} byte(s), as dlio_benchmark rounds the side"
    size = math.prod(shape) * item
    if kind == "hdf5" and not stdev and _is_type_of_ours(element):
        plain = shape[1:] if shape[0] == 1 and len(shape) > 1 and dims else shape
        yield Fact(key, "mapped", text, "dataset.sample.shape", list(plain))
        yield Fact("dataset.record_element_type", "mapped", "", "dataset.sample.dtype", element)
    elif kind == "csv":
        values = -(-int(math.prod(shape) * _TEXT_BYTES) // 10)
        text = f"as many bytes of text: {math.prod(shape)} values of {_TEXT_BYTES} bytes on average"
        yield Fact(key, "approximated", text, "dataset.sample.shape", [values])
    else:
        factor = _IMAGE_BYTES.get(kind, 1)
        fate: Fate = "approximated" if kind in _IMAGES else "mapped"
        if kind == "tfrecord":
            size, text = _record_bytes(size), f"{text}, and the frame of tf.train.Example"
        if kind in _IMAGES:
            text = f"{text}, compressed by {source['dataset.format'].upper()}"
        yield Fact(key, fate, text, "dataset.sample.bytes", int(size * factor))
    if stdev and kind != "csv":
        yield _stdev(source, shape[0], item * _IMAGE_BYTES.get(kind, 1))
    elif stdev:
        yield Fact("dataset.record_length_bytes_stdev", "approximated", "all samples have the mean size")


# Mean bytes of an 8-bit number from 0 to 254 in a CSV file: its digits, and a comma.
_TEXT_BYTES = 3.57


def _is_type_of_ours(element: str) -> bool:
    return element in {"uint8", "int16", "float16", "int32", "float32", "int64", "float64"}


def _stdev(source: Source, side: int, item: float) -> Fact:
    """Return the standard deviation of the product of two sides, each of which is normally spread around `side`."""
    key = "dataset.record_length_bytes_stdev"
    spread = source[key] / 2 / math.sqrt(source["dataset.record_length_bytes"])
    stdev = max(1, round(math.sqrt(2 * side**2 * spread**2 + spread**4) * item))
    several = source["dataset.num_samples_per_file"] > 1
    text = "two sides vary independently, each with half the relative deviation"
    if several:
        text += "; in dlio_benchmark, all samples of a file have one size"
    return Fact(key, "approximated" if several else "mapped", text, "dataset.sample.stdev", stdev)


def _record_bytes(size: int) -> int:
    """Return the bytes of a tf.train.Example with the features image, of `size` bytes, and size, a number."""

    def field(length: int) -> int:
        return 1 + _varint_bytes(length) + length

    image = field(5) + field(field(field(size)))
    number = field(4) + field(field(field(_varint_bytes(size))))
    return field(field(image) + field(number))


def _varint_bytes(number: int) -> int:
    return max(1, -(-number.bit_length() // 7))


def _chunks(source: Source) -> Iterator[Fact]:
    compression, chunk = source["dataset.compression"], source["dataset.hdf5.chunk_dims"]
    if compression in {"gzip", "lzf"}:
        yield Fact("dataset.compression", "mapped", "", "dataset.compression", compression)
    if compression == "gzip":
        yield Fact("dataset.compression_level", "mapped", "", "dataset.level", source["dataset.compression_level"])
    if chunk:
        shape = list(_natural_numbers(source, "dataset.hdf5.chunk_dims"))
        if source["dataset.record_length_bytes_stdev"]:
            raise source.refused("dataset.hdf5.chunk_dims", "dlio-hpc has no chunks of this form if sizes vary")
        yield Fact("dataset.hdf5.chunk_dims", "mapped", "", "dataset.chunk.shape", shape)
        yield Fact("dataset.hdf5.max_shape", "ignored", "changes the header of the files only")
        return
    text = "h5py chooses the chunks; here a sample is a chunk"
    if source["dataset.hdf5.max_shape"]:
        size = math.prod(_sample_shape(source)) * ELEMENT_BYTES[source["dataset.record_element_type"]]
        yield Fact("dataset.hdf5.max_shape", "approximated", text, "dataset.chunk.bytes", size)
    elif compression in {"gzip", "lzf"}:
        yield Fact("dataset.hdf5.chunk_dims", "approximated", text)


def _sample_shape(source: Source) -> tuple[int, ...]:
    if source["dataset.record_dims"]:
        return _natural_numbers(source, "dataset.record_dims")
    return (math.isqrt(int(source["dataset.record_length_bytes"])),) * 2


def _natural_numbers(source: Source, key: str) -> tuple[int, ...]:
    value = source[key]
    if not isinstance(value, list) or not all(type(number) is int and number > 0 for number in value):
        raise source.refused(key, "expected a list of whole numbers above 0, such as [512, 512]")
    return tuple(value)


# How it is read.


def _reader(source: Source) -> Iterator[Fact]:
    kind, loader = source["dataset.format"], _loader(source)
    threads, ahead = source["reader.read_threads"], source["reader.prefetch_size"]
    given = bool(source["reader.data_loader"])
    text = "" if given else "the loader of the framework"
    if loader == "dali":
        text = "threads of dlio-hpc read as the Python readers under DALI"
    fate: Fate = "approximated" if loader == "dali" else "mapped"
    yield Fact("reader.data_loader" if given else "framework", fate, text, "reader.loader", _LOADERS[loader])
    yield Fact("framework", "mapped", "see reader.loader")
    yield from _mode(source)
    yield Fact("reader.batch_size", "mapped", "", "reader.batch_size", source["reader.batch_size"])
    yield Fact("reader.read_threads", "mapped", "0 is the rank itself" if not threads else "", "reader.read_threads",
               max(1, threads))  # fmt: skip
    yield _prefetch(loader, threads, ahead)
    if _format(source) == "tfrecord":
        yield Fact("reader.computation_threads", "mapped", "calls that parse batches", "reader.preprocess_threads",
                   max(1, source["reader.computation_threads"]))  # fmt: skip
    yield Fact("reader.batch_size", "mapped", "incomplete batches are dropped", "reader.drop_last", True)
    if loader == "pytorch" and source["reader.multiprocessing_context"] != "fork":
        is_spawn = source["reader.multiprocessing_context"] == "spawn"
        yield Fact(
            "reader.multiprocessing_context", "mapped" if is_spawn else "approximated", "",
            "reader.multiprocessing_context", "spawn",
        )  # fmt: skip
    if source["reader.read_type"] == "memory" and kind != "tfrecord" and not _reads_nothing(source):
        yield Fact("reader.read_type", "approximated", "read before the first step, not when first needed",
                   "reader.load", "memory")  # fmt: skip


def _mode(source: Source) -> Iterator[Fact]:
    """Yield the mode of reading, and the size of requests."""
    kind, size = source["dataset.format"], source["reader.transfer_size"]
    if _format(source) == "null":
        return
    if source["reader.odirect"]:
        yield Fact("reader.odirect", "mapped", "", "reader.direct", True)
        return
    if kind in _IMAGES:
        yield Fact("dataset.format", "approximated", "requests of Pillow", "reader.transfer_size", _PILLOW_REQUEST)
        return
    if kind == "indexed_binary":
        return
    yield Fact("dataset.format", "mapped", "the library of the format reads", "reader.mode", "framework")
    if kind == "tfrecord" and size is not None:
        yield Fact("reader.transfer_size", "mapped", "", "reader.transfer_size", size)
    elif kind != "tfrecord":
        yield Fact("reader.transfer_size", "ignored", "dlio_benchmark uses it for tfrecord only")


def _prefetch(loader: str, threads: int, ahead: int) -> Fact:
    """Return the number of batches that are read ahead. Each worker of PyTorch reads at least one, and two if the key
    is 0.
    """
    key = "reader.prefetch_size"
    if loader != "pytorch":
        least = max(ahead, threads) if ahead and loader != "tensorflow" else ahead
        return Fact(key, "mapped", "", "reader.prefetch", least)
    if not threads:
        return Fact(key, "mapped", "nothing is read ahead without workers", "reader.prefetch", 0)
    each_worker = math.ceil(ahead / threads) or 2
    return Fact(key, "mapped", f"{each_worker} for each of {threads} workers", "reader.prefetch", each_worker * threads)


def _order(source: Source) -> Iterator[Fact]:
    """Yield the order of reading. It is the order that the keys ask for, as releases up to 2.0.0 read. The revision
    reads in the order of files, because it shuffles lists that its loaders do not use.
    """
    files, samples = _shuffles(source, "reader.file_shuffle"), _shuffles(source, "reader.sample_shuffle")
    text = f"dlio_benchmark {REVISION} itself reads files in their order"
    if files:
        yield Fact("reader.file_shuffle", "mapped", text, "reader.shuffle.files", True)
    if samples and _format(source) != "tfrecord":
        yield Fact("reader.sample_shuffle", "mapped", text, "reader.shuffle.samples", True)
    elif samples:
        yield Fact("reader.sample_shuffle", "ignored", "shuffles in memory; a file is read from its beginning")
    if files or samples:
        yield Fact("train.seed", "mapped", "", "reader.shuffle.seed", source["train.seed"])
        yield Fact("train.seed_change_epoch", "mapped", "", "reader.shuffle.reseed", source["train.seed_change_epoch"])
    for key in ("reader.file_shuffle", "reader.sample_shuffle"):
        if not _shuffles(source, key):
            yield Fact(key, "mapped", "no shuffling is the default")
    if not (files or samples):
        yield from (Fact(key, "ignored", "nothing is shuffled") for key in ("train.seed", "train.seed_change_epoch"))


def _shuffles(source: Source, key: str) -> bool:
    value = source[key]
    if value not in {"off", "seed", "random"}:
        raise source.refused(key, "use one of: off, seed, random")
    return bool(value != "off")


# Times.


class Spread(NamedTuple):
    """A random time: its distribution in dlio-hpc, mean and standard deviation. text: difference, if there is one."""

    distribution: str
    mean: float
    stdev: float | None = None
    text: str = ""


_SPREADS: dict[str, tuple[tuple[str, ...], Callable[..., Spread]]] = {
    "": (("mean",), lambda mean: Spread("constant", mean)),
    "normal": (("mean", "stdev"), lambda mean, stdev: Spread("normal", mean, stdev)),
    "uniform": (
        ("min", "max"),
        lambda low, high: Spread("normal", (low + high) / 2, (high - low) / math.sqrt(12), "a uniform distribution"),
    ),
    "gamma": (
        ("shape", "scale"), lambda shape, scale: Spread("gamma", shape * scale, math.sqrt(shape) * scale)
    ),
    "exponential": (("scale",), lambda scale: Spread("exponential", scale)),
    "poisson": (("lam",), lambda mean: Spread("normal", mean, math.sqrt(mean), "a Poisson distribution")),
}  # fmt: skip


def _spread(source: Source, key: str) -> Spread:
    """Return the distribution of a time, as dlio_benchmark reads it: a number, or a mapping."""
    value, stdev = source[key], source[f"{key}_stdev"]
    given = dict(value) if isinstance(value, dict) else {"mean": value}
    if stdev is not None:
        given["stdev"] = stdev
    kind = str(given.get("type", "normal" if "stdev" in given else ""))
    if kind not in _SPREADS:
        raise source.refused(key, f"type: use one of: {', '.join(filter(None, _SPREADS))}")
    names, make = _SPREADS[kind]
    numbers = [given.get(name) for name in names]
    if not all(isinstance(number, (int, float)) and number >= 0 for number in numbers):
        raise source.refused(key, f"expected numbers from 0: {', '.join(names)}")
    made = make(*numbers)
    return made if made.stdev or made.stdev is None else Spread("constant", made.mean, None, made.text)


def _times(source: Source) -> Iterator[Fact]:
    key = "train.computation_time"
    time = _spread(source, key)
    fate: Fate = "approximated" if time.text else "mapped"
    yield Fact(key, fate, f"normal instead of {time.text}" if time.text else "", "compute.time.mean", time.mean)
    if time.distribution != "constant":
        yield Fact(key, fate, "", "compute.time.distribution", time.distribution)
    if time.stdev is not None:
        own = "train.computation_time_stdev"
        yield Fact(own if own in source.values else key, fate, "", "compute.time.stdev", time.stdev)
    yield from _preprocessing(source)


def _preprocessing(source: Source) -> Iterator[Fact]:
    key = "reader.preprocess_time"
    time = _spread(source, key)
    if _format(source) in {"tfrecord", "null"}:
        yield Fact(key, "ignored", f"dlio_benchmark does not preprocess {source['dataset.format']}")
    elif time.mean:
        is_constant = time.distribution == "constant"
        text = "" if is_constant else "each sample takes the mean"
        yield Fact(key, "mapped" if is_constant else "approximated", text, "reader.preprocess_time", time.mean)


def _train(source: Source) -> Iterator[Fact]:
    steps = int(source["train.total_training_steps"])
    yield Fact("train.epochs", "mapped", "", "train.epochs", source["train.epochs"])
    if steps > 0:
        text = "dlio_benchmark counts the steps of each epoch anew" if source["train.epochs"] > 1 else ""
        yield Fact("train.total_training_steps", "mapped", text, "train.steps", steps)


# Checkpoints and evaluation.

_RANK_DEPENDENT = (
    "the files of a checkpoint depend on the number of ranks; import the reading without checkpoints: "
    "++workload.workflow.checkpoint=False"
)


def _checkpoint(source: Source) -> Iterator[Fact]:
    yield Fact("workflow.checkpoint", "mapped", "" if source["workflow.checkpoint"] else "no checkpoints")
    if not source["workflow.checkpoint"]:
        return
    _refuse_checkpoint(source)
    steps, epochs = int(source["checkpoint.steps_between_checkpoints"]), source["train.epochs"]
    first, between = source["checkpoint.checkpoint_after_epoch"], source["checkpoint.epochs_between_checkpoints"]
    if steps == 0 or (steps < 0 and first > epochs):
        key = "checkpoint.steps_between_checkpoints" if steps == 0 else "checkpoint.checkpoint_after_epoch"
        yield Fact(key, "mapped", "no checkpoint is written during the run")
        return
    size = int(source["model.model_size_bytes"])
    text = "" if "model.model_size_bytes" in source.values else "the default of dlio_benchmark"
    yield Fact("model.model_size_bytes", "mapped", text, "checkpoint.model_bytes", size)
    yield Fact("model.model_size_bytes", "mapped", "one request", "checkpoint.transfer_size", None)
    yield Fact("checkpoint.fsync", "mapped", f"dlio_benchmark {REVISION} never calls fsync", "checkpoint.fsync", False)
    if steps > 0:
        fate: Fate = "approximated" if epochs > 1 else "mapped"
        text = "steps are counted over all epochs, not from the start of each" if epochs > 1 else ""
        yield Fact("checkpoint.steps_between_checkpoints", fate, text, "checkpoint.every_steps", steps)
        return
    times = len(range(first, epochs + 1, max(1, between)))
    if times != epochs:
        text = f"one after each of {epochs} epochs, instead of {times}"
        yield Fact("checkpoint.checkpoint_after_epoch", "approximated", text)
        yield Fact("checkpoint.epochs_between_checkpoints", "approximated", text)
    else:
        yield Fact("checkpoint.checkpoint_after_epoch", "mapped", "one after each epoch")
        yield Fact("checkpoint.epochs_between_checkpoints", "mapped", "one after each epoch")


def _refuse_checkpoint(source: Source) -> None:
    """Raise ConfigError for checkpoints that dlio-hpc cannot write."""
    if source["checkpoint.checkpoint_mechanism_classname"]:
        raise source.refused(
            "checkpoint.checkpoint_mechanism_classname",
            "the requests of a class of one's own are unknown; import the reading without checkpoints: "
            "++workload.workflow.checkpoint=False",
        )
    if source["checkpoint.mode"] != "default":
        raise source.refused("checkpoint.mode", _RANK_DEPENDENT)
    if source["model.model_size_bytes"] < 1:
        raise source.refused("model.model_size_bytes", "expected a number from 1; or set workflow.checkpoint to False")
    for key in ("model.num_layers", "model.layer_parameters", "model.optimization_groups"):
        value = source[key]
        if value and value != KEYS[key].default:
            raise source.refused(key, _RANK_DEPENDENT)
    for key in ("model.parallelism.tensor", "model.parallelism.pipeline", "model.parallelism.zero_stage"):
        if source[key] > KEYS[key].default:
            raise source.refused(key, _RANK_DEPENDENT)


_EVALUATION = ("dataset.num_files_eval", "dataset.num_subfolders_eval", "reader.batch_size_eval")


def _evaluation(source: Source) -> Iterator[Fact]:
    reads = source["workflow.evaluation"] and source["workflow.train"] and source["dataset.num_files_eval"] > 0
    if reads:
        yield Fact("workflow.evaluation", "left out", "files for evaluation are neither generated nor read")
    else:
        yield Fact("workflow.evaluation", "ignored", "no evaluation")
    for key in (*_EVALUATION, *(key for key in KEYS if key.startswith("evaluation."))):
        if key in source.values:
            yield Fact(key, "ignored", "see workflow.evaluation")
