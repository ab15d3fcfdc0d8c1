"""HDF5: each file holds an HDF5 dataset `x` of shape (samples, *sample shape), contiguous or chunked, with or without a
filter. Samples of varying size follow each other in a one-dimensional array of bytes. With `dataset.arrays`, a file
holds the contiguous HDF5 datasets `x0`, `x1`, ...

Mode `framework` reads with h5py: one array of a sample per call or, if `transfer_size` is set, a slab of about
`transfer_size` bytes per call. Mode `posix` gets the locations of the data from HDF5 and reads the data with preadv(2):
contiguous samples directly, chunked samples with one request per chunk.
"""

import contextlib
import errno
import math
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import InfrastructureError, InvalidRun
from dlio_hpc.config.dataset_keys import LEVEL, Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.core import content, darshan_fd_gate, file_comparison
from dlio_hpc.core.compression import compressibility
from dlio_hpc.core.dataset_faults import damaged
from dlio_hpc.core.formats import arrays
from dlio_hpc.core.formats.format import Paths, SampleReader, as_bytes
from dlio_hpc.core.formats.hdf5.chunks import Chunked
from dlio_hpc.core.formats.hdf5.file import (
    DAMAGE,
    NAME,
    SUPERBLOCK,
    Hdf5File,
    chunk_of,
    end_of_file,
    reason,
    unusable,
)
from dlio_hpc.core.formats.hdf5.library import Library
from dlio_hpc.core.formats.posix import FlatReader
from dlio_hpc.core.io_counters import Tally, looking_up
from dlio_hpc.core.write_back import written_early
from dlio_hpc.dataset.sample_layout import SampleLayout
from dlio_hpc.files import safe_folders

if TYPE_CHECKING:
    import h5py
    from mpi4py.MPI import Intracomm

Array = npt.NDArray[Any]

# Number of bytes that are written in one call; they fit into the cache of a core.
_SLAB = 1 << 20


class _Array(NamedTuple):
    """Generated array of a file. name, shape: name and shape of its HDF5 dataset. slabs: its contents, as returned by
    _slabs().
    """

    name: str
    shape: tuple[int, ...]
    slabs: Iterator[Array]


def _arrays(dataset: Dataset, places: SampleLayout, number: int) -> Iterator[_Array]:
    """Yield the generated arrays of file `number`."""
    if dataset.arrays is None:
        yield _Array(NAME, places.array_shape(number), _slabs(dataset, places, number))
    for part in arrays.parts(dataset):
        yield _Array(part.name, (dataset.samples_per_file, part.size), arrays.slabs(dataset, number, part))


def write(descriptor: int, dataset: Dataset, number: int) -> None:
    """Write file `number` of the dataset to the open file `descriptor`. HDF5 opens the file by a path that leads
    through this descriptor, so that no other file can take its place. Darshan does not recognise a file by such a path.
    Under Darshan, HDF5 therefore opens the file by its full path.
    """
    import h5py

    places = SampleLayout(dataset)
    chunk = chunk_of(dataset, places, number)
    level = LEVEL if dataset.level is None else dataset.level
    options: dict[str, Any] = {} if chunk is None else {"chunks": chunk}
    if dataset.compression != "none":
        options |= {"compression": dataset.compression}
        options |= {"compression_opts": level} if dataset.compression == "gzip" else {}
    try:
        path = safe_folders.held(descriptor)
        file = h5py.File(os.readlink(path) if darshan_fd_gate.is_watched() else path, "w")
        with _discarding_failed_writes(file):
            for array in _arrays(dataset, places, number):
                target = file.create_dataset(array.name, array.shape, dataset.sample.array_dtype, **options)
                first = 0
                for slab in written_early(descriptor, array.slabs):
                    _put(target, first, slab)
                    first += len(slab)
            file.flush()
            file.close()
    except (OSError, RuntimeError) as fault:  # RuntimeError: close fails on a full disk
        raise OSError(getattr(fault, "errno", None) or errno.EIO, reason(fault)) from fault


@contextlib.contextmanager
def _discarding_failed_writes(file: "h5py.File") -> Iterator[None]:
    """Guard writes to an open HDF5 file in a `with` block. After a failed write, HDF5 would write the same data again
    at the end of the process, and crash. If the block fails, the descriptor of the file is therefore redirected to
    memory, where these writes succeed.
    """
    descriptor: int = file.id.get_vfd_handle()
    try:
        yield
    except (OSError, RuntimeError):
        memory = os.memfd_create("abandoned")
        os.dup2(memory, descriptor)
        os.close(memory)
        with contextlib.suppress(OSError, RuntimeError):
            file.close()
        raise


def _put(target: "h5py.Dataset", first: int, slab: Array) -> None:
    """Write `slab` to `target` from index `first` on. This is the same as `target[first : first + len(slab)] = slab`,
    but 100 microseconds faster.
    """
    import h5py

    space = target.id.get_space()
    space.select_hyperslab((first, *(0,) * (slab.ndim - 1)), slab.shape)
    target.id.write(h5py.h5s.create_simple(slab.shape), space, slab)


def _slabs(dataset: Dataset, places: SampleLayout, number: int) -> Iterator[Array]:
    """Yield the generated array of file `number` in slabs. A slab consists of whole chunks. It is valid only
    until the next slab is requested.
    """
    shape, chunk = places.array_shape(number), chunk_of(dataset, places, number)
    begin = places.position(number)
    row = math.prod(shape[1:]) * dataset.sample.item_bytes
    unit = chunk[0] if chunk else 1
    rows = max(unit, _SLAB // row // unit * unit)
    memory = np.empty((min(rows, shape[0]), *shape[1:]), dataset.sample.array_dtype)
    for first in range(0, shape[0], rows):
        slab = memory[: shape[0] - first]
        content.fill(as_bytes(slab), begin + first * row, compressibility(dataset))
        yield slab


def fault(path: str, dataset: Dataset, number: int, quick: bool) -> str | None:
    """Return the fault of a file, or None if the file has no fault. The values of the array are compared with the
    generated values. The bytes of the file are not compared, because versions of HDF5 may lay out the file differently.
    quick: check only the size of the file.
    """
    with open(path, "rb") as plain:
        size, recorded = os.fstat(plain.fileno()).st_size, end_of_file(plain.read(SUPERBLOCK))
    if recorded != size:
        return f"has {size} bytes, " + ("not an HDF5 file" if recorded is None else f"its superblock says {recorded}")
    if quick:
        return None
    try:
        with contextlib.closing(Hdf5File(path, dataset, number)) as file:
            for index, array in enumerate(_arrays(dataset, SampleLayout(dataset), number)):
                if content_fault := _content_fault(path, file, dataset, number, index, array):
                    return content_fault
    except InvalidRun as fault:
        return str(fault)
    return None


def _content_fault(path: str, file: Hdf5File, dataset: Dataset, number: int, index: int, array: _Array) -> str | None:
    """Compare an HDF5 dataset of file `number` with the generated array. Return the fault of the HDF5 dataset, or None
    if it has no fault. index: index of the array in the file.
    """
    called = "array" if dataset.arrays is None else f"array {array.name}"
    at = first = 0
    try:
        for slab in array.slabs:
            actual, expected = as_bytes(file.array(index)[first : first + len(slab)]), as_bytes(slab)
            first += len(slab)
            wrong = file_comparison.difference(actual, expected)
            if wrong is not None:
                at += wrong
                sample = arrays.holder(dataset, SampleLayout(dataset), number, index, at)
                return file_comparison.message(f"byte {at} of its {called}", sample)
            at += len(expected)
    except DAMAGE as fault:
        if isinstance(unusable(path, fault), InfrastructureError):
            raise unusable(path, fault) from fault
        return f"its {called} cannot be read from byte {at} on: {reason(fault)}"
    return None


def reader(workload: Workload, paths: Paths, comm: "Intracomm | None" = None) -> SampleReader:
    import h5py  # noqa: F401 - imported here, so that its reads are not counted for a reader thread

    darshan_fd_gate.is_watched()  # the first call reads /proc/self/maps
    if workload.reader.mode == "framework":
        return Library(workload, paths, comm if workload.reader.access == "collective" else None)
    if workload.dataset.is_chunked:
        return Chunked(workload, paths)

    def starts(number: int, tally: Tally) -> list[int]:
        return _starts(paths(number), workload.dataset, number, tally)

    if workload.dataset.arrays is not None:
        return arrays.PartsReader(workload, paths, comm, starts)
    return FlatReader(workload, paths, comm, lambda number, tally: starts(number, tally)[0])


def _starts(path: str, dataset: Dataset, number: int, tally: Tally) -> list[int]:
    """Return the offset of each contiguous array in a file."""
    with looking_up(tally), contextlib.closing(Hdf5File(path, dataset, number)) as file:
        tally.opens += 1
        offsets: list[int | None] = [array.id.get_offset() for array in file.arrays]
    if None in offsets:
        raise damaged(path, "its dataset has no storage in the file")
    return [offset for offset in offsets if offset is not None]
