"""Contents of a generated store: its array holds the samples of the container one after the other in C order."""

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core import content
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.content import Compressibility
from dlio_hpc.core.formats.format import as_bytes
from dlio_hpc.core.formats.zarr import codecs, shards
from dlio_hpc.core.formats.zarr.codecs import Bytes
from dlio_hpc.dataset import zarr_metadata, zarr_store
from dlio_hpc.dataset.chunk_grid import Shape
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.dataset.zarr_metadata import ZarrMetadata

Values = npt.NDArray[Any]

# Bytes of the array that are generated at a time and kept for the next chunks. A chunk with short rows is cut from it,
# because generating each row by itself takes longer.
_SLAB = 32 << 20


@functools.lru_cache(8)
def metadata_of(dataset: Dataset) -> ZarrMetadata:
    """Return the metadata of the stores of a generated dataset."""
    return zarr_metadata.parsed(zarr_store.metadata(dataset), zarr_store.metadata_name(dataset))


def place_of(dataset: Dataset, part: int) -> Shape:
    """Return the place of a chunk or shard in the grid. part: number of its file in the store, at least 1."""
    return zarr_store.part_names(dataset).at(part)


class StoreContent:
    """Contents of the files of a store. number: number of the container."""

    def __init__(self, dataset: Dataset, number: int) -> None:
        self._dataset = dataset
        self._metadata = metadata_of(dataset)
        self._position = SampleLayout(dataset).position(number)
        self._kind = compressibility(dataset)

    def region(self, begin: Shape, shape: Shape) -> Values:
        """Return values of the array. begin: index of the first value. shape: shape of the result. It may reach beyond
        the array: the values there are zero.
        """
        whole = self._metadata.shape
        end = tuple(min(first + part, extent) for first, part, extent in zip(begin, shape, whole, strict=True))
        count = tuple(last - first for first, last in zip(begin, end, strict=True))
        axis = self._split(count)
        slab = _slab(self._position, whole, begin[:axis], end[:axis], self._metadata.dtype.str, self._kind)
        inner = tuple(slice(first, last) for first, last in zip(begin[axis:], end[axis:], strict=True))
        values = slab[(slice(None),) * axis + inner]
        if count == shape:
            return np.ascontiguousarray(values)
        full = np.zeros(shape, self._metadata.dtype)
        full[tuple(map(slice, count))] = values
        return full

    def _split(self, count: Shape) -> int:
        """Return the number of axes on which a slab has the extent of a chunk, at least one. On the others, it has the
        extent of the array. count: extent of the chunk.
        """
        whole, size = self._metadata.shape, self._metadata.dtype.itemsize
        for axis in range(1, len(whole)):
            if math.prod((*count[:axis], *whole[axis:])) * size <= _SLAB:
                return axis
        return len(whole)

    def chunks(self, part: int) -> Iterator[tuple[Shape, Values | None]]:
        """Yield the place in its file, and the values, of each chunk in a file. The values are None if the chunk is
        outside of the array. part: number of the file in the store, at least 1.
        """
        metadata = self._metadata
        first = [place * extent for place, extent in zip(place_of(self._dataset, part), metadata.stored, strict=True)]
        for at in itertools.product(*map(range, metadata.chunks_of_shard)):
            begin = tuple(low + place * extent for low, place, extent in zip(first, at, metadata.chunk, strict=True))
            is_inside = all(low < extent for low, extent in zip(begin, metadata.shape, strict=True))
            yield at, self.region(begin, metadata.chunk) if is_inside else None

    def pieces(self, part: int) -> Iterator[Bytes]:
        """Yield all bytes of a file of chunks in pieces. part: as for chunks()."""
        entries, done = [], 0
        for _, values in self.chunks(part):
            if values is None:
                entries.append((shards.MISSING, shards.MISSING))
                continue
            data = codecs.encode(values, self._dataset)
            entries.append((done, len(data)))
            done += len(data)
            yield data
        if self._metadata.shards is not None:
            yield shards.packed(entries)


@functools.lru_cache(1)
def _slab(position: int, shape: Shape, begin: Shape, end: Shape, dtype: str, kind: Compressibility) -> Values:
    """Return a part of an array. position: place of the array in the content stream. shape: of the array. begin, end:
    first index, and index after the last one, on the first axes. The part has the whole extent of the other axes.
    """
    axes = len(begin)
    count = tuple(last - first for first, last in zip(begin, end, strict=True))
    slab = np.empty((*count, *shape[axes:]), dtype)
    strides = [math.prod(shape[axis + 1 :]) * slab.itemsize for axis in range(axes)]
    for at in itertools.product(*map(range, count[:-1])):
        indices = [first + place for first, place in zip(begin, (*at, 0), strict=True)]
        offset = sum(index * stride for index, stride in zip(indices, strides, strict=True))
        content.fill(as_bytes(slab[at]), position + offset, kind)
    slab.flags.writeable = False
    return slab


def largest_file(metadata: ZarrMetadata) -> int:
    """Return the number of bytes that a file of chunks may have."""
    count = math.prod(metadata.chunks_of_shard)
    return codecs.largest(metadata) * count + (metadata.index_bytes if metadata.shards is not None else 0)
