"""Zarr: each container is a store, a folder with the metadata of an array of shape (samples, *sample shape) and a file
for each chunk of it, or for each shard, which holds several chunks. Version 2 and version 3 of the format.

Mode `posix` reads the metadata of a store once, and then each file of chunks that a sample needs: the whole file, or
from a shard its index and the chunks. It decodes the chunks. Mode `framework` reads a sample with zarr-python, which
makes the same requests in threads of its own. Chunks that several samples share are read again for each sample, but
mode `posix` keeps the chunk that a thread read last.
"""

import os
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import file_comparison
from dlio_hpc.core.files import write_file
from dlio_hpc.core.formats.format import Paths, SampleReader, as_bytes
from dlio_hpc.core.formats.zarr import codecs, shards
from dlio_hpc.core.formats.zarr.generated import StoreContent, largest_file, metadata_of, place_of
from dlio_hpc.core.formats.zarr.store_reader import StoreReader
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset import stored_parts, zarr_store
from dlio_hpc.dataset.chunk_grid import Shape
from dlio_hpc.dataset.zarr_metadata import ZarrMetadata

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    container, part = divmod(number, stored_parts.of(dataset).number)
    if not part:
        write_file(descriptor, [zarr_store.metadata(dataset)])
        return
    pieces = StoreContent(dataset, container).pieces(part)
    write_file(descriptor, written_early(descriptor, map(memoryview, pieces)))


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    """Return the fault of a file of a store, or None if it has no fault. If chunks are compressed, their values are
    compared and not their bytes, because versions of the codecs compress differently.
    """
    container, part = divmod(number, stored_parts.of(dataset).number)
    if not part:
        data = zarr_store.metadata(dataset)
        return file_comparison.of_file(path, len(data), None if quick else [data], lambda _: None)
    metadata, contents = metadata_of(dataset), StoreContent(dataset, container)
    if dataset.compression == "none":
        return _fault_of_plain(path, dataset, container, part, quick)
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest_file(metadata):
            return f"has {size} bytes, but at most {largest_file(metadata)} were written"
        data = file.read(size)
    try:
        spans = _spans(data, metadata)
        if quick:
            return _fault_of_size(data, spans, metadata)
        return _fault_of_chunks(data, spans, dataset, contents, container, part)
    except codecs.DAMAGE as reason:
        return f"is corrupted: {reason}"


def _fault_of_plain(path: str, dataset: Dataset, container: int, part: int, quick: bool) -> str | None:
    """Return the fault of a file whose chunks are not compressed."""
    metadata, contents = metadata_of(dataset), StoreContent(dataset, container)
    places = [at for at, is_inside in _stored_places(dataset, part) if is_inside]
    size = len(places) * metadata.chunk_bytes + (metadata.index_bytes if metadata.shards is not None else 0)

    def holder(at: int) -> int | None:
        number, offset = divmod(at, metadata.chunk_bytes)
        return _holder(dataset, container, part, places[number], offset) if number < len(places) else None

    return file_comparison.of_file(path, size, None if quick else contents.pieces(part), holder)


def _stored_places(dataset: Dataset, part: int) -> list[tuple[Shape, bool]]:
    """Return the place in its file of each chunk of a file, and whether the chunk is stored."""
    metadata, place = metadata_of(dataset), place_of(dataset, part)
    places = []
    for at in np.ndindex(metadata.chunks_of_shard):
        begins = (p * s + a * c for p, s, a, c in zip(place, metadata.stored, at, metadata.chunk, strict=True))
        places.append((at, all(begin < extent for begin, extent in zip(begins, metadata.shape, strict=True))))
    return places


def _spans(data: bytes, metadata: ZarrMetadata) -> list[tuple[int, int]]:
    """Return the offset and the size of each chunk in the content of a file."""
    if metadata.shards is None:
        return [(0, len(data))]
    if len(data) < metadata.index_bytes:
        raise ValueError(f"{len(data)} bytes are too few for the index of a shard")
    index = shards.parsed(data[-metadata.index_bytes :], metadata, len(data))
    return [(int(offset), int(size)) for offset, size in index.reshape(-1, 2).tolist()]


def _fault_of_size(data: bytes, spans: list[tuple[int, int]], metadata: ZarrMetadata) -> str | None:
    """Return the fault of a file that is cut. data: its content. A chunk does not say where it ends, so it is
    decoded. A shard has an index.
    """
    if metadata.shards is None:
        codecs.decode(memoryview(data), metadata)
        return None
    total = sum(count for _, count in spans if count != shards.MISSING) + metadata.index_bytes
    return None if total == len(data) else f"has {len(data)} bytes, but its chunks and its index have {total}"


def _fault_of_chunks(
    data: bytes, spans: list[tuple[int, int]], dataset: Dataset, contents: StoreContent, container: int, part: int
) -> str | None:
    metadata = metadata_of(dataset)
    done = 0
    for (offset, size), (at, values) in zip(spans, contents.chunks(part), strict=True):
        if values is None:
            if offset != shards.MISSING:
                return f"byte {offset} begins a chunk that is outside of the array"
            continue
        if offset != done:
            return f"the chunk {at} is at byte {offset}, expected at byte {done}"
        done += size
        try:
            actual = as_bytes(codecs.decode(memoryview(data)[offset : offset + size], metadata))
        except codecs.DAMAGE as reason:
            return f"the chunk at byte {offset} is corrupted: {reason}"
        wrong = file_comparison.difference(actual, as_bytes(values))
        if wrong is not None:
            sample = _holder(dataset, container, part, at, wrong)
            return file_comparison.message(f"byte {wrong} of the chunk at byte {offset}", sample)
    end = done + (metadata.index_bytes if metadata.shards is not None else 0)
    return None if end == len(data) else f"has {len(data)} bytes, expected {end}"


def _holder(dataset: Dataset, container: int, part: int, at: Shape, offset: int) -> int | None:
    """Return the number of the sample with a byte of a chunk; None if the byte is beyond the array. at: place of the
    chunk in its file. offset: place of the byte in the decoded chunk.
    """
    metadata, place = metadata_of(dataset), place_of(dataset, part)
    inside = np.unravel_index(offset // metadata.dtype.itemsize, metadata.chunk)
    index = [
        p * stored + a * chunk + int(i)
        for p, stored, a, chunk, i in zip(place, metadata.stored, at, metadata.chunk, inside, strict=True)
    ]
    if any(value >= extent for value, extent in zip(index, metadata.shape, strict=True)):
        return None
    return container * dataset.samples_per_file + index[0]


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    if workload.reader.mode == "framework":
        from dlio_hpc.core.formats.zarr.library import ArrayReader  # imports zarr

        return ArrayReader(workload, paths)
    return StoreReader(workload, paths)
