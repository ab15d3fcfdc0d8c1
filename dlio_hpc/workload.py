"""A workload: one application's I/O, as its YAML file says it."""

import math
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, structs

from dlio_hpc import document, shipped, units
from dlio_hpc.errors import ConfigError

# No count is larger than what a double holds exactly; timelines and JSON readers count on that.
Positive = Annotated[int, Meta(ge=1, le=2**53)]
Natural = Annotated[int, Meta(ge=0, le=2**53)]

# Letters of an override that an error message repeats.
_SHOWN = 100

ITEM_BYTES = {"uint8": 1, "int16": 2, "float16": 2, "int32": 4, "float32": 4, "int64": 8, "float64": 8}


class Sample(Struct, frozen=True, forbid_unknown_fields=True):
    """One sample's payload: an array (`shape` of `dtype`) or so many `bytes`."""

    shape: tuple[Positive, ...] | None = None
    dtype: Literal["uint8", "int16", "float16", "int32", "float32", "int64", "float64"] | None = None
    bytes: units.Size | None = None

    def __post_init__(self) -> None:
        if (self.shape is None) == (self.bytes is None):
            raise ValueError("give either shape (with dtype) or bytes, and null for the other")
        if self.bytes is not None and (self.bytes < 1 or self.dtype is not None):
            raise ValueError("bytes must be at least 1 and goes without dtype")

    @property
    def array_shape(self) -> tuple[int, ...]:
        return self.shape if self.shape is not None else (int(self.bytes or 0),)

    @property
    def array_dtype(self) -> str:
        return "uint8" if self.shape is None else self.dtype or "float32"

    @property
    def size(self) -> int:
        """Payload bytes of one sample."""
        return math.prod(self.array_shape) * ITEM_BYTES[self.array_dtype]


class Dataset(Struct, frozen=True, forbid_unknown_fields=True):
    """What lies on the storage. Two datasets that are equal here are interchangeable."""

    format: Literal["npz", "null"]
    files: Positive
    samples_per_file: Positive
    sample: Sample
    layout: Literal["multi", "shared"] = "multi"

    def __post_init__(self) -> None:
        if self.layout == "shared" and self.files != 1:
            raise ValueError(f"layout: shared means one file, found files: {self.files}")
        if self.samples > 2**53 or self.size >= 2**63:
            raise ValueError("no storage holds so much: at most 2^53 samples, less than 2^63 bytes")

    @property
    def samples(self) -> int:
        return self.files * self.samples_per_file

    @property
    def size(self) -> int:
        """Payload bytes of the whole dataset; the formats' own headers come on top."""
        return self.samples * self.sample.size


class Shuffle(Struct, frozen=True, forbid_unknown_fields=True):
    """`files`: files in random order. `samples`: samples of a file in random order. Both: any sample next."""

    files: bool = False
    samples: bool = False
    seed: Natural = 0


class Reader(Struct, frozen=True, forbid_unknown_fields=True):
    """How each rank reads. `transfer_size` null: a request a sample. `prefetch` null: twice the read threads;
    0: the training loop reads its batch itself.
    """

    loader: Literal["native"] = "native"
    mode: Literal["floor", "framework"] = "floor"
    access: Literal["independent"] = "independent"
    load: Literal["on_demand"] = "on_demand"
    batch_size: Positive = 1
    transfer_size: units.Size | None = None
    read_threads: Positive = 1
    prefetch: Natural | None = None
    shuffle: Shuffle = Shuffle()
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.transfer_size is not None and self.transfer_size < 1:
            raise ValueError("transfer_size must be at least 1 byte")
        if self.batch_size * (self.batches_ahead + 1) > 2**31:
            raise ValueError("batch_size x (prefetch + 1) samples do not fit in any node's memory")
        if self.transfer_size is not None and self.mode == "framework":
            raise ValueError("transfer_size goes with mode: floor; in mode: framework NumPy chooses its requests")
        if self.prefetch == 0 and self.read_threads > 1:
            raise ValueError("prefetch: 0 leaves reading to the training loop; set read_threads: 1 or prefetch: null")
        if self.prefetch and self.prefetch < self.read_threads:
            raise ValueError(
                f"prefetch: {self.prefetch} batches would leave some of {self.read_threads} read_threads idle; "
                f"set prefetch to at least {self.read_threads}, or to null"
            )

    @property
    def batches_ahead(self) -> int:
        return 2 * self.read_threads if self.prefetch is None else self.prefetch


class ComputeTime(Struct, frozen=True, forbid_unknown_fields=True):
    """How long steps compute: `mean` seconds, spread by a `distribution`; each rank draws for itself.

    normal and gamma need `stdev` (a normal draw below 0 counts as 0), constant and exponential have none.
    """

    mean: units.Seconds = units.Seconds(0)
    distribution: Literal["constant", "normal", "gamma", "exponential"] = "constant"
    stdev: units.Seconds | None = None
    seed: Natural = 0

    def __post_init__(self) -> None:
        if (self.distribution in {"normal", "gamma"}) != (self.stdev is not None):
            raise ValueError("stdev goes with distribution: normal or gamma, which need it")
        if self.distribution == "gamma" and not self.mean / 1000 <= (self.stdev or 0) <= self.mean * 1000 > 0:
            raise ValueError("a gamma distribution needs a mean above 0 and a stdev of 1/1000 to 1000 times that")


class Compute(Struct, frozen=True, forbid_unknown_fields=True):
    """Emulated computation of a step. `time`: seconds, or how they are spread.

    sleep leaves the cores to the readers, as a host does that waits for its accelerator; spin burns the rank's core.
    """

    time: ComputeTime = ComputeTime()
    mode: Literal["sleep", "spin"] = "sleep"


# Section IV.B of the DLIO paper: two files of 1 KB, one of 4 KB, one of 64 KB, one of 4 MB.
_PAPER_FILES = tuple(map(units.Size, (1024, 1024, 4096, 65536, 4194304)))


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Model state written while training stands still, over the checkpoint before.

    `every_steps` null: after each epoch. `files`: their sizes, or `model_bytes` for one file of that size; null: the
    five files of the DLIO paper. `by` all: every rank writes them. `read_back`: read again what was written.
    """

    every_steps: Positive | None = None
    files: tuple[units.Size, ...] | None = None
    model_bytes: units.Size | None = None
    by: Literal["root", "all"] = "root"
    fsync: bool = True
    read_back: bool = False

    def __post_init__(self) -> None:
        if self.files is not None and self.model_bytes is not None:
            raise ValueError("give either files or model_bytes")
        if min(self.sizes, default=0) < 1:
            raise ValueError("a checkpoint has at least one file, and no empty one")

    @property
    def sizes(self) -> tuple[units.Size, ...]:
        """Bytes of each file."""
        if self.model_bytes is not None:
            return (self.model_bytes,)
        return _PAPER_FILES if self.files is None else self.files


class Train(Struct, frozen=True, forbid_unknown_fields=True):
    """`steps` an epoch; null: the whole dataset."""

    epochs: Positive = 1
    steps: Positive | None = None


class Workload(Struct, frozen=True, forbid_unknown_fields=True):
    """One application's I/O."""

    name: str
    dataset: Dataset
    description: str = ""
    source: str = ""
    reader: Reader = Reader()
    compute: Compute = Compute()
    checkpoint: Checkpoint | None = None
    train: Train = Train()

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("name must not be empty")
        if self.dataset.format == "null" and self.reader.transfer_size is not None:
            raise ValueError("reader.transfer_size: the null format makes no requests; leave it null")


def load(name: str, overrides: tuple[str, ...] = ()) -> Workload:
    """The workload `name` with `key=value` overrides (values read as YAML) laid over it."""
    path = shipped.find(shipped.WORKLOADS, name)
    data = document.read_yaml(path)
    if not isinstance(data, dict):
        raise ConfigError(f"{path}: a mapping of keys is needed")
    for override in ("", *overrides):
        if override:
            _override(data, override)
        _spell_out(data)
    return document.convert(data, Workload, f"{path} with -S" if overrides else str(path))


def _spell_out(data: dict[str, Any]) -> None:
    """The short forms that a person may write: `format: null` and `time: 0.1`."""
    dataset, compute = data.get("dataset"), data.get("compute")
    if isinstance(dataset, dict) and "format" in dataset and dataset["format"] is None:
        dataset["format"] = "null"  # the unquoted word null is YAML's own
    if isinstance(compute, dict) and "time" in compute and not isinstance(compute["time"], dict):
        compute["time"] = {"mean": compute["time"]}


def _override(data: Any, override: str) -> None:
    key, equals, text = override.partition("=")
    source = f"-S {override}" if len(override) <= _SHOWN else f"-S {override[:_SHOWN]}..."
    if not equals or not key.strip(".") or not text.strip():
        raise ConfigError(f"{source}: write key=value, such as dataset.files=8")
    *parents, last = key.strip().split(".")
    for parent in parents:
        if not isinstance(data, dict):
            break
        child = data.get(parent)
        if child is None:
            child = data[parent] = {}
        data = child
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: {'.'.join(parents)} holds a value, not keys")
    data[last] = document.parse_yaml(text, source)


def shrunk(workload: Workload, size: int, ranks: int) -> Workload:
    """The workload on a dataset of about `size` bytes: fewer files, and only where files would be fewer than
    `ranks` also fewer samples in each; samples keep their size and shape.
    """
    dataset = workload.dataset
    wanted = size // dataset.sample.size
    if wanted < 1:
        least = units.format_size(dataset.sample.size)
        raise ConfigError(f"--dataset-size {units.format_size(size)} holds no sample; one sample is {least}")
    files = min(dataset.files, max(wanted // dataset.samples_per_file, min(ranks, wanted)))
    samples_per_file = min(dataset.samples_per_file, wanted // files)
    smaller = structs.replace(dataset, files=files, samples_per_file=samples_per_file)
    return structs.replace(workload, dataset=smaller)
