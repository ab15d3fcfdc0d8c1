"""The keys of a workload's `checkpoint`, as frozen structs."""

from typing import Literal

from msgspec import Struct, structs

from dlio_hpc.base import units
from dlio_hpc.base.serialization import refuse
from dlio_hpc.config.model_states import (
    MODELS,
    Model,
    ModelName,
    ModelState,
    Parallelism,
    Precision,
    Zero,
)
from dlio_hpc.config.reader_keys import BLOCK, LARGEST_REQUEST

# Checkpoint of section IV.B of the DLIO paper: two files of 1 KB, one of 4 KB, one of 64 KB, one of 4 MB.
_PAPER_FILES = tuple(map(units.Size, (1024, 1024, 4096, 65536, 4194304)))
# Largest file of a checkpoint, in bytes.
_LARGEST_FILE = 1 << 50
# Maximum number of ranks that divide a model.
_MOST_RANKS = 10**5
# Largest tensor of a file whose tensors do not follow from a model. 64 MiB is the size of a matrix of 4096 x 4096 in
# single precision.
TENSOR = 64 << 20

Mode = Literal["posix", "torch", "torch_distributed", "keras"]


class StatePrecision(Struct, frozen=True, forbid_unknown_fields=True):
    """Number formats of a model's state."""

    weights: Precision = "fp16"
    """Number format of the weights."""
    optimizer: Precision = "fp32"
    """Number format of the optimizer's state."""


# Size of a request that no workload has set.
USUAL_REQUEST = units.Size(1 << 20)


class Checkpoint(Struct, frozen=True, forbid_unknown_fields=True):
    """Checkpoints: the model's state, which ranks write during the training and can read after the last step."""

    mode: Mode = "posix"
    """Library that writes and reads the files. posix: no library, ranks make plain requests; torch: torch.save and
    torch.load; torch_distributed: torch.distributed.checkpoint, with a folder for each checkpoint; keras: Keras's
    save_weights and load_weights. Frameworks choose their own requests, so `transfer_size` has no meaning for them.
    """
    every_steps: units.Positive | None = None
    """Steps between checkpoints; null: write one at the end of each epoch. Example: 100"""
    files: tuple[units.Size, ...] | None = None
    """Sizes of the files of a checkpoint; null: the five files of the DLIO paper. Example: [1 KiB, 4 MiB]"""
    model_bytes: units.Size | None = None
    """Size of a checkpoint in a single file; replaces `files`. Example: 500 MiB"""
    model: ModelName | Model | None = None
    """Large language model, which determines the files of each rank; replaces `files`. If a run has fewer ranks than
    `parallelism`, these ranks write only their part of the checkpoint. Example: llama3_8b
    """
    parallelism: Parallelism | None = None
    """Division of the model among ranks. null: the division that MLPerf Storage uses for the named model; for another
    architecture, a single rank. Example: {tensor: 8, data: 8}
    """
    zero: Zero | None = None
    """Stage of ZeRO. 0: replicas share nothing; 1: they share the optimizer's state; 3: they share weights, too. null:
    the stage that MLPerf Storage uses for the named model; for another architecture, 0.
    """
    precision: StatePrecision = StatePrecision()
    """Number formats of the model's state."""
    writes: units.Positive | None = None
    """Number of checkpoints in a workload without a dataset, where each step computes and writes a checkpoint; null:
    the number that follows from `every_steps`. Example: 10
    """
    reads: units.Natural = 0
    """Number of checkpoints that are read after the last step. Example: 10"""
    reorder: units.Natural = 0
    """Number of nodes between the rank that writes a file and the rank that reads the file. 0: the same rank reads it.
    Example: 1
    """
    keep: units.Positive = 1
    """Number of checkpoints that stay on storage. A later checkpoint overwrites the oldest. Example: 10"""
    asynchronous: bool = False
    """Write while training continues. Training waits only if the previous checkpoint is not yet written."""
    transfer_size: units.Size | None = USUAL_REQUEST
    """Size of a request; null: one request per file."""
    requests: tuple[tuple[units.Natural, units.Size], ...] = ()
    """Requests that write a checkpoint of one file. Each request is a pair of offset and size. The requests replace
    `transfer_size`. They emulate libraries that write headers and arrays separately. Example: [[0, 96], [4096, 1 MiB]]
    """
    by: Literal["root", "all"] = "root"
    """Ranks that write. root: rank 0 only; all: every rank writes its own files. If `model` is set, the model
    determines which ranks write.
    """
    direct: bool = False
    """Write and read with O_DIRECT, which bypasses the page cache."""
    fsync: bool = True
    """Call fsync after each file."""
    read_back: bool = False
    """Read the files again and compare them with the written data."""
    verify: bool = False
    """Compare the files that `reads` reads with the written data."""

    def __post_init__(self) -> None:
        refuse(
            (
                sum(value is not None for value in (self.files, self.model_bytes, self.model)) > 1,
                "files and model_bytes exclude each other: set one of them to null"
                if self.model is None
                else "model replaces files and model_bytes: set files and model_bytes to null, or set model to null",
            ),
            (
                self.model is None and (self.parallelism is not None or self.zero is not None),
                "parallelism and zero divide a model; set model",
            ),
            (
                self.parallelism is not None and self.parallelism.ranks > _MOST_RANKS,
                f"parallelism: tensor x pipeline x data is at most {_MOST_RANKS:,} ranks",
            ),
            (
                self.transfer_size is not None and not 1 <= self.transfer_size <= LARGEST_REQUEST,
                "transfer_size must be at least 1 byte and at most 1 GiB, or null for one write per file",
            ),
            (
                self.direct and (self.transfer_size or 0) % BLOCK > 0,
                f"direct=true needs a transfer_size that is a multiple of {BLOCK} bytes",
            ),
            (
                self.mode != "posix" and self.direct,
                f"direct=true cannot be combined with mode={self.mode}, because the framework opens its files itself",
            ),
            (
                self.mode != "posix" and bool(self.requests),
                f"requests cannot be combined with mode={self.mode}, because the framework chooses its requests",
            ),
            (
                self.asynchronous and self.read_back,
                "asynchronous=true cannot be combined with read_back; set reads, which reads after the last step",
            ),
            (
                not self.reads and (self.reorder > 0 or self.verify),
                "reorder and verify have an effect only if checkpoints are read; set reads",
            ),
            (
                self.model is None and min(self.sizes, default=0) < 1,
                "a checkpoint needs at least one file, and no empty files",
            ),
            (
                self.model is None and max(self.sizes, default=0) > _LARGEST_FILE,
                f"a file of a checkpoint has at most {units.format_size(_LARGEST_FILE)}; lower model_bytes or files",
            ),
        )
        if self.requests:
            self._check_requests()

    def _check_requests(self) -> None:
        sizes = self.sizes
        reads = self.read_back or self.reads > 0 or self.direct
        refuse(
            (
                self.model is not None or len(sizes) != 1 or reads,
                "requests describe a checkpoint of one file that is not read back; set files to one size",
            ),
            (
                not all(1 <= length <= LARGEST_REQUEST for _, length in self.requests),
                "each request in requests must have at least 1 byte and at most 1 GiB",
            ),
        )
        if max(offset + length for offset, length in self.requests) > sizes[0]:
            raise ValueError(f"requests go beyond the end of the file, which has {sizes[0]:,} bytes")

    @property
    def sizes(self) -> tuple[units.Size, ...]:
        """Bytes of each file that a rank writes in a checkpoint without `model`."""
        if self.model_bytes is not None:
            return (self.model_bytes,)
        return _PAPER_FILES if self.files is None else self.files

    @property
    def state(self) -> ModelState | None:
        """The model with its parallelism, ZeRO stage and precision; None if `model` is not set."""
        if self.model is None:
            return None
        known = MODELS[self.model] if isinstance(self.model, str) else ModelState(self.model, Parallelism(), 0)
        return known._replace(
            parallelism=known.parallelism if self.parallelism is None else self.parallelism,
            zero=known.zero if self.zero is None else self.zero,
            weights=self.precision.weights,
            optimizer=self.precision.optimizer,
        )

    @property
    def resolved(self) -> "Checkpoint":
        """The checkpoint with all defaults replaced by their values: the sizes of files, or the architecture of the
        model.
        """
        if (state := self.state) is not None:
            return structs.replace(self, model=state.model, parallelism=state.parallelism, zero=state.zero)
        return self if self.model_bytes is not None else structs.replace(self, files=self.sizes)

    def written(self, size: int) -> int:
        """Return the number of bytes that are written to a file of `size` bytes."""
        return sum(length for _, length in self.requests) or size
