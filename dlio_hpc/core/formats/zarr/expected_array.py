"""Check that the metadata of a store are those of the dataset."""

import functools

import numpy as np

from dlio_hpc.base.errors import DlioError
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core.dataset_faults import damaged, unplanned
from dlio_hpc.core.formats.zarr.generated import metadata_of
from dlio_hpc.dataset import zarr_metadata
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.zarr_metadata import ZarrMetadata


class ExpectedArrays:
    """Expected arrays of the stores of a dataset."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._places = SampleLayout(dataset)
        self._dtype = np.dtype(dataset.sample.array_dtype)

    @functools.cached_property
    def _generated(self) -> ZarrMetadata | None:
        return None if self._dataset.existing is not None else metadata_of(self._dataset)

    def parsed(self, path: str, content: bytes, number: int, by_library: bool = False) -> ZarrMetadata:
        """Return the metadata of store `number`. path, content: of the file of metadata. by_library: whether the
        library of the format decodes the chunks. Raise InvalidRun if the metadata are damaged, or are not those of the
        dataset.
        """
        try:
            metadata = zarr_metadata.parsed(content, path.rpartition("/")[2])
        except zarr_metadata.UnreadableMetadata as reason:
            raise damaged(path, reason) from reason
        if self._generated is not None:
            if metadata != self._generated:
                raise unplanned(f"{path} describes {_described(metadata)}, expected {_described(self._generated)}")
            return metadata
        self.check(path, number, metadata.shape, metadata.dtype)
        if metadata.obstacle and not by_library:
            raise unplanned(f"{path}: chunks cannot be decoded, because {metadata.obstacle}")
        return metadata

    def check(self, path: str, number: int, shape: tuple[int, ...], dtype: "np.dtype[np.generic]") -> None:
        """Raise InvalidRun if store `number` holds another array than the dataset says."""
        expected = self._places.array_shape(number)
        if shape != expected or dtype != self._dtype:
            raise self._other(path, shape, dtype, expected)

    def _other(
        self, path: str, shape: tuple[int, ...], dtype: "np.dtype[np.generic]", expected: tuple[int, ...]
    ) -> DlioError:
        return unplanned(f"{path} holds {dtype} of shape {shape}, expected {self._dtype} of shape {expected}")


def _described(metadata: ZarrMetadata) -> str:
    shards = "" if metadata.shards is None else f" in shards of {metadata.stored}"
    packing = " and ".join(metadata.compressors) or "none"
    return f"{metadata.dtype} of shape {metadata.shape} in chunks of {metadata.chunk}{shards}, compression {packing}"
