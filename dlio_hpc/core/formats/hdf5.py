"""HDF5: one dataset `x` of shape (samples, *sample shape) in each file, contiguous or in chunks, with a filter or
none; samples that differ in size lie end to end in a row of bytes.

*framework* is h5py: a sample a call, or with a transfer_size slabs of so many bytes. *floor* asks HDF5 where the data
lie and reads them with preadv: contiguous samples straight away, chunked ones a request a chunk.
"""

import contextlib
import errno
import math
import os
import re
import threading
import zlib
from collections.abc import Iterator
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.core import content, kernel
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.files import File
from dlio_hpc.core.formats.flat import FlatReader
from dlio_hpc.core.formats.format import Paths, Reader, check, damaged
from dlio_hpc.core.kept import Kept
from dlio_hpc.core.places import Place, Places, Samples
from dlio_hpc.core.tally import Tally
from dlio_hpc.errors import ConfigError, InvalidRun
from dlio_hpc.workload import ITEM_BYTES, LEVEL, Dataset, Workload

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

NAME = "x"
_SLAB = 4 << 20

Slices = slice | tuple[slice | int, ...]


def write(path: str, dataset: Dataset, number: int) -> None:
    import h5py

    places = Places(dataset)
    shape, chunk = places.array_shape(number), chunk_of(dataset, places, number)
    begin = places.of(np.array([number * dataset.samples_per_file], np.uint64))[0].position
    row = math.prod(shape[1:]) * ITEM_BYTES[dataset.sample.array_dtype]
    unit = chunk[0] if chunk else 1
    rows = max(unit, _SLAB // row // unit * unit)
    level = LEVEL if dataset.level is None else dataset.level
    options: dict[str, Any] = {} if chunk is None else {"chunks": chunk}
    if dataset.compression != "none":
        options |= {"compression": dataset.compression}
        options |= {"compression_opts": level} if dataset.compression == "gzip" else {}
    try:
        with h5py.File(path, "w") as file:
            target = file.create_dataset(NAME, shape, dataset.sample.array_dtype, **options)
            for first in range(0, shape[0], rows):
                slab = np.empty((min(rows, shape[0] - first), *shape[1:]), dataset.sample.array_dtype)
                content.fill(slab.reshape(-1).view(np.uint8), begin + first * row, dataset.random_bits)
                target[first : first + len(slab)] = slab
    except OSError as fault:
        raise OSError(fault.errno or errno.EIO, _reason(fault)) from fault
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _reason(fault: Exception) -> str:
    """What the system said, out of HDF5's many words, or those in one line."""
    said = re.search(r"error message = '([^']+)'", str(fault))
    return said[1] if said else " ".join(str(fault).split())


def chunk_of(dataset: Dataset, places: Places, number: int) -> tuple[int, ...] | None:
    """The chunk of a file, which HDF5 does not want larger than the array."""
    chunk = dataset.chunk_shape
    return None if chunk is None else tuple(map(min, chunk, places.array_shape(number)))


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> Reader:
    if workload.reader.mode == "framework":
        return Library(workload, paths, comm if workload.reader.access == "collective" else None)
    if workload.dataset.is_chunked:
        return Chunked(workload, paths)
    return FlatReader(workload, paths, comm, lambda number: _contiguous_at(paths(number), workload.dataset, number))


def _contiguous_at(path: str, dataset: Dataset, number: int) -> int:
    with contextlib.closing(_File(path, dataset, number)) as file:
        offset: int | None = file.dataset.id.get_offset()
    if offset is None:
        raise damaged(path, "its dataset has no place in the file")
    return offset


class _File:
    """An open file and its dataset; InvalidRun when there is none of the expected kind."""

    def __init__(self, path: str, dataset: Dataset, number: int, **driver: Any) -> None:
        import h5py

        try:
            self._file = h5py.File(path, "r", **driver)
            self.dataset = self._file[NAME]
        except FileNotFoundError as fault:
            raise InvalidRun(
                f"cannot open {path}: no such file; was the dataset removed or never generated?"
            ) from fault
        except (OSError, KeyError) as fault:
            raise damaged(path, _reason(fault)) from fault
        found = (self.dataset.shape, self.dataset.dtype, self.dataset.chunks, self.dataset.compression or "none")
        places = Places(dataset)
        shape, chunk = places.array_shape(number), chunk_of(dataset, places, number)
        wanted = (shape, np.dtype(dataset.sample.array_dtype), chunk, dataset.compression)
        if found != wanted:
            raise InvalidRun(
                f"{path} holds {_spelled(*found)}, expected {_spelled(*wanted)}; remove the dataset's folder and "
                "generate it again"
            )

    @property
    def descriptor(self) -> int:
        """Of the file as HDF5 has it open (its POSIX driver)."""
        descriptor: int = self._file.id.get_vfd_handle()
        return descriptor

    def close(self) -> None:
        self._file.close()


def _spelled(shape: tuple[int, ...], dtype: Any, chunk: tuple[int, ...] | None, compression: str) -> str:
    return f"{dtype} of shape {shape} in chunks of {chunk}, compression {compression}"


class Library:
    """h5py reads. HDF5 makes its requests by itself: the kernel's count for the thread says how many and how large.

    With a communicator through HDF5's MPI-IO driver, a call a sample; each rank makes as many, empty ones at last.
    """

    def __init__(self, workload: Workload, paths: Paths, comm: "Intracomm | None") -> None:
        self._dataset = workload.dataset
        self._slab = workload.reader.transfer_size
        self._places = Places(workload.dataset)
        self._paths = paths
        driver = _mpio(comm) if comm is not None else {}
        self._calls_a_batch = workload.reader.batch_size if comm is not None else 0
        self._files = Kept(lambda number: _File(paths(number), workload.dataset, number, **driver))

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        places = self._places.of(samples)
        before = kernel.thread_io()
        calls = len(tally.starts)
        for place, selection, target in self._calls(places, rows):
            with self._files.use(place.file, tally) as file:
                self._read(file.dataset, selection, target, place, tally)
        for _ in range(self._calls_a_batch - len(places)):
            with self._files.use(0, tally) as file:
                _read_nothing(file.dataset)
        after = kernel.thread_io()
        if before is None or after is None:
            tally.bytes_read += sum(place.size for place in places)
            tally.requests += len(tally.starts) - calls
        else:
            came = after.since(before)
            tally.bytes_read += came.requested
            tally.requests += came.calls
        if places:
            check(self._dataset, places[0], rows[0], self._paths)

    def _read(self, source: Any, selection: Slices, target: Any, place: Place, tally: Tally) -> None:
        started = now()
        try:
            with source.collective if self._calls_a_batch else contextlib.nullcontext():
                source.read_direct(target, selection)
        except OSError as fault:
            raise damaged(self._paths(place.file), f"sample {place.sample}: {_reason(fault)}") from fault
        tally.timed(started)

    def _calls(self, places: list[Place], rows: Rows) -> Iterator[tuple[Place, Slices, Any]]:
        """What to ask HDF5 for: its selection and where that goes. Slabs of whole samples are neighbours in a batch;
        those of less than a sample end at a row of its first axis.
        """
        sample, dtype = self._dataset.sample, self._dataset.sample.array_dtype
        if sample.stdev is not None:
            for place, row in zip(places, rows, strict=False):
                for first, last in _cut(place.size, self._slab or place.size):
                    yield place, slice(place.offset + first, place.offset + last), row[first:last]
            return
        if self._slab is None or self._slab >= sample.size:
            most = 1 if self._slab is None else self._slab // sample.size
            arrays = rows.view(dtype).reshape(len(rows), *sample.array_shape)
            for first, last in _neighbours(places, most):
                within = places[first].within
                yield places[first], slice(within, within + last - first), arrays[first:last]
            return
        axis = sample.array_shape[0]
        for place, row in zip(places, rows, strict=False):
            array = row.view(dtype).reshape(sample.array_shape)
            for first, last in _cut(axis, max(1, self._slab * axis // sample.size)):
                yield place, (place.within, slice(first, last)), array[first:last]

    def close(self) -> None:
        self._files.close()


def _mpio(comm: "Intracomm") -> dict[str, Any]:
    """What h5py needs to open a file for all ranks; ConfigError when it was built without MPI."""
    import h5py

    if not h5py.get_config().mpi:
        raise ConfigError(
            "access: collective in mode: framework needs an h5py built with parallel HDF5, which this one "
            f"({h5py.__version__}) is not; build it (CC=mpicc HDF5_MPI=ON pip install --no-binary=h5py h5py) or set "
            "reader.mode: floor, which reads contiguous data through MPI-IO itself"
        )
    return {"driver": "mpio", "comm": comm.Dup()}


def _read_nothing(source: Any) -> None:
    """Take part in other ranks' collective read."""
    from h5py import h5fd, h5p, h5s

    space, memory = source.id.get_space(), h5s.create_simple((1,))
    space.select_none()
    memory.select_none()
    transfer = h5p.create(h5p.DATASET_XFER)
    transfer.set_dxpl_mpio(h5fd.MPIO_COLLECTIVE)
    source.id.read(memory, space, np.empty(1, source.dtype), dxpl=transfer)


def _cut(size: int, part: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of `part` up to `size`."""
    for first in range(0, size, part):
        yield first, min(first + part, size)


def _neighbours(places: list[Place], most: int) -> Iterator[tuple[int, int]]:
    """Half-open ranges of `places`, `most` at once, that lie one after the other in a file."""
    first = 0
    for last in range(1, len(places) + 1):
        if last == len(places) or last - first == most or not _adjoin(places[last - 1], places[last]):
            yield first, last
            first = last


def _adjoin(one: Place, other: Place) -> bool:
    return other.file == one.file and other.within == one.within + 1


class _Chunks(NamedTuple):
    """Where a file's chunks of a `shape` lie: arrays over their grid. `plain`: stored without the filter."""

    file: _File
    shape: tuple[int, ...]
    offsets: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    plain: npt.NDArray[np.bool_]

    def close(self) -> None:
        self.file.close()


class Chunked:
    """A request a chunk. Chunks that hold a run of a sample's bytes are read in part, straight into its row; others
    whole, and each thread keeps the one that it read last.
    """

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._dataset = workload.dataset
        self._transfer_size = workload.reader.transfer_size or workload.dataset.sample_bytes
        self._places = Places(workload.dataset)
        self._paths = paths
        self._files = Kept(self._opened)
        self._last = threading.local()
        self._is_plain = workload.dataset.compression == "none" and _is_run(workload.dataset)

    def _opened(self, number: int) -> _Chunks:
        """One pass over the file's index of chunks; InvalidRun when some were never written."""
        path = self._paths(number)
        file = _File(path, self._dataset, number)
        chunk = file.dataset.chunks
        grid = tuple(-(-extent // part) for extent, part in zip(file.dataset.shape, chunk, strict=True))
        chunks = _Chunks(file, chunk, np.zeros(grid, np.int64), np.zeros(grid, np.int64), np.zeros(grid, np.bool_))

        def note(info: Any) -> None:
            at = tuple(offset // part for offset, part in zip(info.chunk_offset, chunk, strict=True))
            chunks.offsets[at], chunks.sizes[at], chunks.plain[at] = info.byte_offset, info.size, info.filter_mask != 0

        file.dataset.id.chunk_iter(note)
        if not chunks.sizes.all():
            file.close()
            raise damaged(path, f"{np.count_nonzero(chunks.sizes == 0)} of its {chunks.sizes.size} chunks are missing")
        return chunks

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        places = self._places.of(samples)
        for place, row in zip(places, rows, strict=False):
            with self._files.use(place.file, tally) as chunks:
                file = File(self._paths(place.file), chunks.file.descriptor)
                (self._read_runs if self._is_plain else self._read_whole)(file, chunks, place, row[: place.size], tally)
        if places:
            check(self._dataset, places[0], rows[0], self._paths)

    def _region(self, place: Place) -> list[tuple[int, int]]:
        """The sample's part of the file's array, a half-open range an axis."""
        if self._dataset.sample.stdev is not None:
            return [(place.offset, place.offset + place.size)]
        return [(place.within, place.within + 1), *((0, extent) for extent in self._dataset.array_shape[1:])]

    def _read_runs(self, file: File, chunks: _Chunks, place: Place, row: Rows, tally: Tally) -> None:
        item = ITEM_BYTES[self._dataset.sample.array_dtype]
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

    def _read_whole(self, file: File, chunks: _Chunks, place: Place, row: Rows, tally: Tally) -> None:
        dataset = self._dataset
        shape = (place.size,) if dataset.sample.stdev is not None else (1, *dataset.sample.array_shape)
        target = row.view(dataset.sample.array_dtype).reshape(shape)
        for at, inside, outside in self._overlaps(chunks.shape, place):
            chunk = self._unpacked(file, chunks, place.file, at, tally)
            target[tuple(slice(*each) for each in outside)] = chunk[tuple(slice(*each) for each in inside)]

    def _overlaps(self, chunk: tuple[int, ...], place: Place) -> Iterator[tuple[tuple[int, ...], list[Any], list[Any]]]:
        """The chunks that hold a part of the sample: place in the grid, and the part's ranges in chunk and sample."""
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

    def _unpacked(self, file: File, chunks: _Chunks, number: int, at: tuple[int, ...], tally: Tally) -> Any:
        if getattr(self._last, "key", None) != (number, at):
            packed = np.empty(int(chunks.sizes[at]), np.uint8)
            file.read([packed.data], int(chunks.offsets[at]), self._transfer_size, tally)
            data: Any = packed
            if self._dataset.compression == "gzip" and not chunks.plain[at]:
                try:
                    data = zlib.decompress(packed.data)
                except zlib.error as fault:
                    raise damaged(file.path, f"the chunk at byte {chunks.offsets[at]}: {fault}") from fault
            self._last.chunk = np.frombuffer(data, self._dataset.sample.array_dtype).reshape(chunks.shape)
            self._last.key = (number, at)
        return self._last.chunk

    def close(self) -> None:
        self._files.close()
        self._last = threading.local()


def _is_run(dataset: Dataset) -> bool:
    """Are a chunk's values neighbours in the array: single along the first axes, whole along the last?"""
    chunk, array = dataset.chunk_shape or (), dataset.array_shape
    split = next((axis for axis, part in enumerate(chunk) if part > 1), len(chunk))
    return all(part == whole for part, whole in zip(chunk[split + 1 :], array[split + 1 :], strict=True))
