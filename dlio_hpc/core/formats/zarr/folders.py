"""Paths of the stores of a dataset."""

from collections.abc import Callable

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.dataset import stored_parts


def of(dataset: Dataset, paths: Paths) -> Callable[[int], str]:
    """Return a function from the number of a store to the path of its folder. paths: function from the number of a
    stored file to its path. The first file of a store is its metadata, and the only one in the index of an existing
    dataset.
    """
    parts = stored_parts.of(dataset).number
    return lambda number: paths(number * parts).rpartition("/")[0]
