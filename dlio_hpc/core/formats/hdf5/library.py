"""The `framework` mode for HDF5: read with h5py."""

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import procfs
from dlio_hpc.core.buffers import Buffer
from dlio_hpc.core.clock import now
from dlio_hpc.core.content import Rows
from dlio_hpc.core.formats import arrays
from dlio_hpc.core.formats.format import Paths
from dlio_hpc.core.formats.hdf5.file import DAMAGE, Hdf5File, unusable
from dlio_hpc.core.handle_cache import HandleCache
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.dataset.sample_layout import Place, Places

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class _Call(NamedTuple):
    """A read call of HDF5. place: location of the first sample that the call reads. start: index in the file's array at
    which the call starts to read. target: array that the call fills. It is several rows of the batch or a part of one
    row. array: index of the array in the file.
    """

    place: Place
    start: tuple[int, ...]
    target: Any
    array: int = 0


class Library:
    """Reader that uses h5py. HDF5 makes its own requests. The number of requests and their bytes are taken from the
    kernel's I/O counters of the thread.

    With a communicator, the reader uses HDF5's MPI-IO driver and reads one array of a sample per call. All ranks must
    then make the same number of calls. If a batch has fewer than `batch_size` samples, the reader adds calls that read
    nothing.
    """

    def __init__(self, workload: Workload, paths: Paths, comm: "Intracomm | None") -> None:
        self._dataset = workload.dataset
        self._workload = workload
        self._slab = workload.reader.transfer_size
        self._paths = paths
        driver = _mpio(comm) if comm is not None else {}
        self._calls_per_batch = workload.reader.batch_size if comm is not None else 0
        self._reopens = workload.reader.reopen

        def opened(number: int, _: Tally) -> Hdf5File:
            return Hdf5File(paths(number), workload.dataset, number, **driver)

        self._opened = opened
        self._files = HandleCache(opened, by_library=True)

    def read(self, places: Places, buffer: Buffer, tally: Tally) -> None:
        before = procfs.thread_io()
        calls = len(tally.starts)
        split = self._calls if self._dataset.arrays is None else self._calls_of_parts
        listed = split(list(places), buffer.rows)
        if self._reopens:
            self._read_opened(listed, tally)
        else:
            for call in listed:
                self._read(self._files.get(call.place.file, tally).array(call.array), call, tally)
        for _ in range(self._calls_per_batch - len(places)):
            for source in self._files.get(0, tally).arrays:
                _transfer(source, (), buffer.rows[:0], collective=True)
        after = procfs.thread_io()
        if before is None or after is None:
            tally.bytes_read += int(places.size.sum())
            tally.requests += len(tally.starts) - calls
        else:
            difference = after.since(before)
            tally.bytes_read += difference.requested
            tally.requests += difference.calls

    def _read_opened(self, calls: Iterator[_Call], tally: Tally) -> None:
        """Make the read calls of a batch. The file of a sample is open for the calls of this sample."""
        for (number, _), its in itertools.groupby(calls, lambda call: (call.place.file, call.place.sample)):
            started = now()
            file = self._opened(number, tally)
            tally.handle(started)
            tally.opens += 1
            try:
                for call in its:
                    self._read(file.array(call.array), call, tally)
            finally:
                started = now()
                file.close()
                tally.handle(started)

    def _read(self, source: Any, call: _Call, tally: Tally) -> None:
        # Rows of a batch have gaps between them, which one call of HDF5 cannot skip.
        target = call.target if call.target.flags.c_contiguous else np.empty_like(call.target, order="C")
        started = now()
        try:
            _transfer(source, call.start, target, collective=bool(self._calls_per_batch))
        except DAMAGE as fault:
            path = self._paths(call.place.file)
            raise unusable(path, fault, f"sample {call.place.sample}: ") from fault
        tally.timed(started)
        if target is not call.target:
            call.target[...] = target

    def _calls(self, places: list[Place], rows: Rows) -> Iterator[_Call]:
        """Yield the read calls of a batch. A call reads either several samples that are consecutive in a file, or
        several slices along the first axis of one sample. A call reads at most `transfer_size` bytes, but at least one
        slice. If `transfer_size` is not set, a call reads one sample.
        """
        sample, dtype = self._dataset.sample, self._dataset.sample.array_dtype
        if sample.stdev is not None:
            for place, row in zip(places, rows, strict=False):
                for first, last in _cut(place.size, self._slab or place.size):
                    yield _Call(place, (place.offset + first,), row[first:last])
            return
        inner = (0,) * (len(sample.array_shape) - 1)
        arrays = rows.view(dtype).reshape(len(rows), *sample.array_shape)
        if self._slab is None or self._slab >= sample.size:
            most = 1 if self._slab is None else self._slab // sample.size
            for first, last in _neighbours(places, most):
                yield _Call(places[first], (places[first].within, 0, *inner), arrays[first:last])
            return
        extent = sample.array_shape[0]
        for number, place in enumerate(places):
            for first, last in _cut(extent, max(1, self._slab * extent // sample.size)):
                yield _Call(place, (place.within, first, *inner), arrays[number : number + 1, first:last])

    def _calls_of_parts(self, places: list[Place], rows: Rows) -> Iterator[_Call]:
        """Yield the read calls of a batch from files with several arrays. A call reads one array of a sample."""
        for at, part in arrays.in_turn(self._workload, len(places)):
            place = places[at]
            yield _Call(place, (place.within, 0), part.of(rows[at]).reshape(1, -1), part.number)

    def close(self) -> None:
        self._files.close()


def _transfer(source: Any, start: tuple[int, ...], target: Any, collective: bool) -> None:
    """Read a block of the array directly into `target` with H5Dread. The block starts at index `start` and has the
    shape of `target`. If `target` is empty, only take part in the collective call of the other ranks.
    """
    from h5py import h5fd, h5p, h5s

    space = source.id.get_space()
    if target.size:
        memory = h5s.create_simple(target.shape)
        space.select_hyperslab(start, target.shape)
    else:
        memory = h5s.create_simple((1,))
        memory.select_none()
        space.select_none()
    transfer = None
    if collective:
        transfer = h5p.create(h5p.DATASET_XFER)
        transfer.set_dxpl_mpio(h5fd.MPIO_COLLECTIVE)
    target = target if target.size else np.empty(1, source.dtype)
    # Values of the same type are not converted, for example the fields of a compound type.
    as_stored = None if target.dtype == source.dtype else source.id.get_type()
    source.id.read(memory, space, target, as_stored, dxpl=transfer)


def _mpio(comm: "Intracomm") -> dict[str, Any]:
    """Return the arguments with which h5py opens a file collectively on all ranks. Raise ConfigError if h5py was built
    without MPI.
    """
    import h5py

    if not h5py.get_config().mpi:
        raise ConfigError(
            "reader.access=collective with reader.mode=framework needs an h5py that was built with parallel HDF5. "
            f"The installed h5py ({h5py.__version__}) was not. Build h5py with it (CC=mpicc HDF5_MPI=ON pip install "
            "--no-binary=h5py h5py), or set reader.mode=posix, which reads contiguous data through MPI-IO"
        )
    return {"driver": "mpio", "comm": comm.Dup()}


def _cut(size: int, part: int) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of length `part` that together cover 0 to `size`. The last range may be shorter."""
    for first in range(0, size, part):
        yield first, min(first + part, size)


def _neighbours(places: list[Place], most: int) -> Iterator[tuple[int, int]]:
    """Yield half-open ranges of indices of `places`. The samples of a range are consecutive in one file. A range has at
    most `most` samples.
    """
    first = 0
    for last in range(1, len(places) + 1):
        if last == len(places) or last - first == most or not _adjoin(places[last - 1], places[last]):
            yield first, last
            first = last


def _adjoin(first: Place, second: Place) -> bool:
    return second.file == first.file and second.within == first.within + 1
