"""Stored files of a dataset's containers. A container is a numbered unit that holds samples, such as a TFRecord file.
In most formats it is one file. In other formats it is several files, its parts: an array of tokens and its index, or
metadata and chunks.

Stored files have numbers of their own: file number n is part n % count of container n // count. Generation,
verification and removal go over stored files. Locations of samples and `dataset.files` count containers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.format_facts import FormatName
from dlio_hpc.dataset import zarr_store


class Parts(NamedTuple):
    """Parts of each container of a dataset. names: what follows the number of the container in the name of each part,
    such as .bin; or if `folder` is set, the names of the files in the container's folder, which have no slash. A
    sequence that computes names must be fast in `index` and must be picklable. folder: what follows the number of the
    container in the name of its folder, such as .zarr; empty if parts of all containers are in one folder.
    """

    names: Sequence[str]
    folder: str = ""

    @property
    def number(self) -> int:
        """Number of parts of a container."""
        return len(self.names)

    def place(self, name: str) -> int | None:
        """Return the number of the part with a name, as `names` has it; None if there is no such part."""
        try:
            return self.names.index(name)
        except ValueError:
            return None


def _of_store(dataset: Dataset) -> Parts:
    """Return the parts of a Zarr store. An existing store has one part, its metadata, from which its files follow."""
    return Parts((".zarr",)) if dataset.existing is not None else Parts(zarr_store.part_names(dataset), ".zarr")


# Formats whose parts depend on the dataset, and not only on the format.
_OF_DATASET: dict[FormatName, Callable[[Dataset], Parts]] = {"zarr": _of_store}


def of(dataset: Dataset) -> Parts:
    """Return the parts of each container of the dataset."""
    made = _OF_DATASET.get(dataset.format)
    return Parts(dataset.facts.suffixes or (f".{dataset.format}",)) if made is None else made(dataset)


def names_beside(dataset: Dataset, first: str) -> tuple[str, ...]:
    """Return the names of all parts of an existing container whose parts are next to each other. first: name of its
    first part. Raise ConfigError if it does not end like one.
    """
    parts = of(dataset)
    if parts.number == 1:
        return (first,)
    if not first.endswith(parts.names[0]):
        raise ConfigError(
            f"{first} does not end with {parts.names[0]}, as files of format={dataset.format} do; choose a pattern "
            f"such as *{parts.names[0]}; {' and '.join(parts.names[1:])} files beside them are read with them"
        )
    return tuple(first.removesuffix(parts.names[0]) + name for name in parts.names)


def total(dataset: Dataset) -> int:
    """Return the number of parts of all containers. The null format has parts, too, but stores none of them."""
    return dataset.files * of(dataset).number


def of_containers(dataset: Dataset, containers: Iterable[int]) -> Iterator[int]:
    """Yield the numbers of the stored files of some containers."""
    number = of(dataset).number
    for container in containers:
        yield from range(container * number, (container + 1) * number)
