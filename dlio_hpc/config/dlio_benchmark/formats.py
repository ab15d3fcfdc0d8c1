"""Formats and loaders of dlio_benchmark, with the formats and loaders of dlio-hpc that make the same requests."""

from dlio_hpc.config.dlio_benchmark.keys import REVISION
from dlio_hpc.config.dlio_benchmark.source import SourceWorkload

# Formats, and those of dlio-hpc in which the same bytes are read.
FORMATS = {"npz": "npz", "npy": "npy", "hdf5": "hdf5", "csv": "csv", "tfrecord": "tfrecord", "jpeg": "jpeg",
           "png": "png", "indexed_binary": "raw", "mmap_indexed_binary": "indexed",
           "parquet": "parquet", "synthetic": "null"}  # fmt: skip
# Formats that are refused, and why.
UNREADABLE = {
    "hdf5_opt": f"dlio_benchmark {REVISION} has no reader for it; set ++workload.dataset.format=hdf5",
}
IMAGES = ("jpeg", "png")
LOADERS = {"pytorch": "pytorch", "tensorflow": "tensorflow", "dali": "native", "synthetic": "native"}


def loader_of(source: SourceWorkload) -> str:
    """Return the loader of dlio_benchmark. Workload files that only generate a dataset name no loader."""
    return str(source["reader.data_loader"] or source["framework"])


def reads_nothing(source: SourceWorkload) -> bool:
    return source["dataset.format"] == "synthetic" or loader_of(source) == "synthetic"


def format_of(source: SourceWorkload) -> str:
    """Return the format of dlio-hpc."""
    return "null" if reads_nothing(source) else FORMATS[source["dataset.format"]]


def natural_numbers(source: SourceWorkload, key: str) -> tuple[int, ...]:
    """Return the value of a key that is a list, such as a shape. Raise ConfigError for other values."""
    value = source[key]
    if not isinstance(value, list) or not all(type(number) is int and number > 0 for number in value):
        raise source.refused(key, "expected a list of whole numbers above 0, such as [512, 512]")
    return tuple(value)
