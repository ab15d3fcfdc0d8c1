"""Change of the size of a workload's dataset or model."""

import bisect

from msgspec import structs

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.checkpoint_keys import Checkpoint
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import checkpoint_files


def resized(workload: Workload, size: int, ranks: int) -> Workload:
    """Return the workload with its dataset resized to at most `size` bytes. Samples keep their size and shape.

    The number of files changes, and the dataset is smaller than `size` by less than one file. The number of samples per
    file is reduced only if there would otherwise be fewer files than `ranks`. In a single shared file, the number of
    samples changes, and the dataset is smaller than `size` by less than one sample.

    If a workload only writes checkpoints of a model, the model is made narrower instead. A checkpoint then has at most
    `size` bytes. Its numbers of files and arrays do not change.

    Raise ConfigError if `size` is less than a sample, or if the format cannot hold the resulting dataset.
    """
    dataset, checkpoint = workload.dataset, workload.checkpoint
    if checkpoint is not None and checkpoint.writes is not None and checkpoint.model is not None:
        return structs.replace(workload, checkpoint=_narrowed(checkpoint, size, ranks))
    wanted = size // dataset.sample_bytes
    asked = f"--dataset-size {units.format_size(size)}"
    if workload.metadata is not None:
        raise ConfigError(f"{asked}: a metadata workload has no dataset; set -S metadata.files=N")
    if workload.inference is not None:
        raise ConfigError(
            f"{asked}: an inference workload has no dataset; set -S inference.users=N or inference.capacity=SIZE"
        )
    if workload.only_writes_checkpoints:
        raise ConfigError(
            f"{asked}: {workload.name} only writes checkpoints, and has neither a dataset nor a model; set "
            "-S checkpoint.model_bytes=SIZE"
        )
    if dataset.existing is not None:
        raise ConfigError(
            f"{asked}: an existing dataset keeps its size; select fewer files with --existing, or read fewer samples "
            "with -S train.steps=N"
        )
    if wanted < 1:
        raise ConfigError(f"{asked} is less than one sample, which has {units.format_size(dataset.sample_bytes)}")
    files, samples_per_file = _geometry(dataset, wanted, ranks)
    try:
        made = dataset.of_files(files, samples_per_file)
    except ValueError as fault:
        change = f"with {'more' if wanted > dataset.samples else 'fewer'} samples in a file, "
        change = change if samples_per_file != dataset.samples_per_file else ""
        raise ConfigError(f"{asked}: {change}{fault}") from fault
    return structs.replace(workload, dataset=made)


def _narrowed(checkpoint: Checkpoint, size: int, ranks: int) -> Checkpoint:
    """Return the checkpoint with a narrower model, so that `ranks` ranks write at most `size` bytes per checkpoint. The
    widest such model is chosen; it is never wider than the given model.
    """
    state = checkpoint.state
    assert state is not None

    def made(hidden: int) -> Checkpoint:
        model = checkpoint_files.narrowed(state.model, hidden)
        return structs.replace(checkpoint, model=model, parallelism=state.parallelism, zero=state.zero)

    width = bisect.bisect_right(
        range(1, state.model.hidden + 1), size, key=lambda hidden: checkpoint_files.size(made(hidden), ranks)
    )
    if width == 0:
        raise ConfigError(f"--dataset-size {units.format_size(size)} is too small for a checkpoint of this model")
    return made(width)


def _geometry(dataset: Dataset, wanted: int, ranks: int) -> tuple[int, int]:
    """Return the number of files and the number of samples per file for a dataset of at most `wanted` samples."""
    if dataset.file_access == "shared":
        return 1, wanted
    if wanted >= dataset.samples:
        return wanted // dataset.samples_per_file, dataset.samples_per_file
    fewest = max(ranks, len(dataset.blend or ()))
    files = min(dataset.files, max(wanted // dataset.samples_per_file, min(fewest, wanted)))
    samples_per_file = min(dataset.samples_per_file, wanted // files)
    return min(dataset.files, wanted // samples_per_file), samples_per_file
