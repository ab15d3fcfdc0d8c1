"""The `posix` mode for chunked HDF5 datasets: HDF5 returns the locations of the chunks, and preadv(2) reads them."""

import math
import threading
import zlib
from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.content import Rows
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.files import OpenFile as RawFile
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.hdf5.file import DAMAGE, Hdf5File, unusable
from dlio_hpc.core.handle_cache import HandleCache
from dlio_hpc.core.io_counters import Tally, looking_up
from dlio_hpc.dataset.sample_layout import Place, Places


class _Chunks(NamedTuple):
    """An open file and the locations of its chunks. shape: shape of a chunk. Each of the following arrays has the shape
    of the grid of chunks and describes each chunk. offsets: offset of the chunk in the file. sizes: size of the chunk
    in bytes. plain: whether the chunk is stored without the filter.
    """

    file: Hdf5File
    shape: tuple[int, ...]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    plain: npt.NDArray[np.bool_]

    def close(self) -> None:
        self.file.close()


class Chunked:
    """Reader that makes one request per chunk. If the file is uncompressed and the values of a chunk are contiguous in
    the array, the reader reads only the bytes of the sample, directly into the row. Otherwise the reader reads whole
    chunks, and each thread keeps the chunk that it read last.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._dataset = workload.dataset
        self._transfer_size = workload.request_size or workload.dataset.largest
        self._paths = paths
        self._files = HandleCache(self._opened, by_library=True)
        self._last = threading.local()
        self._is_plain = workload.dataset.compression == "none" and _is_run(workload.dataset)

    def _opened(self, number: int, tally: Tally) -> _Chunks:
        """Open a file and read its complete chunk index. Raise InvalidRun if chunks are missing."""
        with looking_up(tally):
            return self._indexed(number)

    def _indexed(self, number: int) -> _Chunks:
        path = self._paths(number)
        file = Hdf5File(path, self._dataset, number)
        chunk = file.dataset.chunks
        grid = tuple(-(-extent // part) for extent, part in zip(file.dataset.shape, chunk, strict=True))
        chunks = _Chunks(file, chunk, np.zeros(grid, np.int64), np.zeros(grid, np.int64), np.zeros(grid, np.bool_))

        def note(info: Any) -> None:
            at = tuple(offset // part for offset, part in zip(info.chunk_offset, chunk, strict=True))
            chunks.offsets[at], chunks.sizes[at], chunks.plain[at] = info.byte_offset, info.size, info.filter_mask != 0

        try:
            file.dataset.id.chunk_iter(note)
        except DAMAGE as fault:
            file.close()
            raise unusable(path, fault, "its chunk index: ") from fault
        if not chunks.sizes.all():
            file.close()
            raise damaged(path, f"{np.count_nonzero(chunks.sizes == 0)} of its {chunks.sizes.size} chunks are missing")
        return chunks

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        read = self._read_runs if self._is_plain else self._read_whole
        for place, row in zip(places, buffer.rows, strict=False):
            chunks = self._files.get(place.file, tally)
            file = RawFile(self._paths(place.file), chunks.file.descriptor)
            read(file, chunks, place, row[: place.size], tally)

    def _region(self, place: Place) -> list[tuple[int, int]]:
        """Return the region in which the sample is in the file's array: a half-open range for each axis."""
        if self._dataset.sample.stdev is not None:
            return [(place.offset, place.offset + place.size)]
        return [(place.within, place.within + 1), *((0, extent) for extent in self._dataset.array_shape[1:])]

    def _read_runs(self, file: RawFile, chunks: _Chunks, place: Place, row: Rows, tally: Tally) -> None:
        item = self._dataset.sample.item_bytes
        memory, done = row.data, 0
        for at, inside, _ in self._overlaps(chunks.shape, place):
            size = math.prod(last - first for first, last in inside) * item
            skipped = 0
            for (first, _), part in zip(inside, chunks.shape, strict=True):
                skipped = skipped * part + first
            file.read(
                [memory[done : done + size]], int(chunks.offsets[at]) + skipped * item, self._transfer_size, tally
            )
            done += size

    def _read_whole(self, file: RawFile, chunks: _Chunks, place: Place, row: Rows, tally: Tally) -> None:
        dataset = self._dataset
        shape = (place.size,) if dataset.sample.stdev is not None else (1, *dataset.sample.array_shape)
        target = row.view(dataset.sample.array_dtype).reshape(shape)
        for at, inside, outside in self._overlaps(chunks.shape, place):
            chunk = self._unpacked(file, chunks, place.file, at, tally)
            target[tuple(slice(*span) for span in outside)] = chunk[tuple(slice(*span) for span in inside)]

    def _overlaps(self, chunk: tuple[int, ...], place: Place) -> Iterator[tuple[tuple[int, ...], list[Any], list[Any]]]:
        """Yield three values for each chunk that holds a part of the sample: the index of the chunk in the grid of
        chunks, the region of this part in the chunk, and the region of this part in the sample. A region is a half-open
        range for each axis. chunk: shape of a chunk. place: location of the sample.
        """
        region = self._region(place)
        spans = [
            range(first // part, (last - 1) // part + 1) for (first, last), part in zip(region, chunk, strict=True)
        ]
        for at in product(*spans):
            inside, outside = [], []
            for number, (first, last), part in zip(at, region, chunk, strict=True):
                low, high = max(first, number * part), min(last, (number + 1) * part)
                inside.append((low - number * part, high - number * part))
                outside.append((low - first, high - first))
            yield at, inside, outside

    def _unpacked(self, file: RawFile, chunks: _Chunks, number: int, at: tuple[int, ...], tally: Tally) -> Any:
        if getattr(self._last, "key", None) != (number, at):
            try:
                packed = np.empty(int(chunks.sizes[at]), np.uint8)
                file.read([packed.data], int(chunks.offsets[at]), self._transfer_size, tally)
                is_plain = self._dataset.compression == "none" or chunks.plain[at]
                data = packed if is_plain else zlib.decompress(packed.data)
                self._last.chunk = np.frombuffer(data, self._dataset.sample.array_dtype).reshape(chunks.shape)
            except DAMAGE as fault:
                raise damaged(file.path, f"the chunk at byte {chunks.offsets[at]}: {fault}") from fault
            self._last.key = (number, at)
        return self._last.chunk

    def close(self) -> None:
        self._files.close()
        self._last = threading.local()


def _is_run(dataset: Dataset) -> bool:
    """Return whether the values of a chunk are contiguous in the array. Consider the first axis on which the chunk is
    longer than 1. The values are contiguous if, on every later axis, the chunk is as long as the array.
    """
    chunk, array = dataset.chunk_shape or (), dataset.array_shape
    split = next((axis for axis, part in enumerate(chunk) if part > 1), len(chunk))
    return all(part == whole for part, whole in zip(chunk[split + 1 :], array[split + 1 :], strict=True))
