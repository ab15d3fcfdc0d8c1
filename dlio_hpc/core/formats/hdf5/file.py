"""Open an HDF5 file of a dlio-hpc dataset, and check the HDF5 dataset in the file."""

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from dlio_hpc.base.errors import DlioError
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core import darshan_fd_gate
from dlio_hpc.core.dataset_faults import damaged, unopened, unplanned
from dlio_hpc.core.formats import arrays
from dlio_hpc.dataset.sample_layout import SampleLayout

NAME = "x"
# Size of the superblock in bytes, and the position of the end-of-file address in the superblock, by its version.
# Addresses have eight bytes.
SUPERBLOCK = 64
_ENDS_AT = {0: 40, 1: 44, 2: 28, 3: 28}
# Errors that a corrupted file causes in h5py, and in code that uses its results.
DAMAGE = (
    OSError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError, zlib.error,
)  # fmt: skip


class Hdf5File:
    """An open HDF5 file and the HDF5 datasets in it, one per array. The constructor opens the first HDF5 dataset. The
    others are opened when they are needed, as in applications. If an HDF5 dataset is missing or is not as expected,
    opening it raises InvalidRun.
    """

    def __init__(self, path: str, dataset: Dataset, number: int, **driver: Any) -> None:
        import h5py

        self._path, self._layout, self._number = path, dataset, number
        try:
            with darshan_fd_gate.opening():
                self._file = h5py.File(path, "r", **driver)
            self._names = _names(dataset, self._file)
        except DAMAGE as fault:
            raise unusable(path, fault) from fault
        self._arrays: dict[int, Any] = {}
        self.dataset = self.array(0)

    def array(self, index: int) -> Any:
        """Return the HDF5 dataset that holds the array `index` of the file."""
        array = self._arrays.get(index)
        if array is None:
            array = self._arrays[index] = self._opened(index)
        return array

    @property
    def arrays(self) -> Iterator[Any]:
        """All HDF5 datasets of the file."""
        return map(self.array, range(len(self._names)))

    def _opened(self, index: int) -> Any:
        """Open an HDF5 dataset, and check that it is as expected."""
        dataset, number = self._layout, self._number
        try:
            array = self._file[self._names[index]]
            actual = (array.shape, array.dtype.str, array.chunks, array.compression or "none")
        except DAMAGE as fault:
            raise unusable(self._path, fault) from fault
        places = SampleLayout(dataset)
        shape, chunk = arrays.shapes(dataset, places, number)[index], chunk_of(dataset, places, number)
        if dataset.existing is not None:
            chunk, compression = actual[2:]  # the scan has checked them
        else:
            compression = dataset.compression
        expected = (shape, np.dtype(dataset.sample.array_dtype).str, chunk, compression)
        if actual != expected:
            raise unplanned(f"{self._path} holds {_described(*actual)}, expected {_described(*expected)}")
        return array

    @property
    def descriptor(self) -> int:
        """Descriptor with which HDF5's POSIX driver has opened the file."""
        descriptor: int = self._file.id.get_vfd_handle()
        return descriptor

    def close(self) -> None:
        """Close the file. Errors are ignored, because nothing was written."""
        with darshan_fd_gate.closing(), suppress(OSError, RuntimeError):
            self._file.close()


def _names(dataset: Dataset, file: Any) -> list[str]:
    """Return the names of the HDF5 datasets that are read."""
    if dataset.existing is not None:
        return [_existing_name(dataset, file)]
    return [part.name for part in arrays.parts(dataset)] or [NAME]


def _existing_name(dataset: Dataset, file: Any) -> str:
    """Return the name of the HDF5 dataset to read in an existing file. If the workload sets no name, it is the only
    HDF5 dataset of the file.
    """
    assert dataset.existing is not None
    if dataset.existing.array is not None:
        return dataset.existing.array
    import h5py

    name: str = file.visititems(lambda name, item: name if isinstance(item, h5py.Dataset) else None)
    return name


def _described(shape: tuple[int, ...], dtype: str, chunk: tuple[int, ...] | None, compression: str) -> str:
    return f"{np.dtype(dtype)} of shape {shape} in chunks of {chunk}, compression {compression}"


def chunk_of(dataset: Dataset, places: SampleLayout, number: int) -> tuple[int, ...] | None:
    """Return the shape of the chunks in file `number`, or None if the array is contiguous. On each axis, a chunk is at
    most as long as the array, because HDF5 does not accept larger chunks.
    """
    chunk = dataset.chunk_shape
    return None if chunk is None else tuple(map(min, chunk, places.array_shape(number)))


def end_of_file(superblock: bytes) -> int | None:
    """Return the end-of-file address in a superblock (HDF5 File Format Specification, II.A), or None if the bytes are
    not an HDF5 superblock.
    """
    if len(superblock) < SUPERBLOCK or superblock[:8] != b"\x89HDF\r\n\x1a\n" or superblock[8] not in _ENDS_AT:
        return None
    return int.from_bytes(superblock[_ENDS_AT[superblock[8]] :][:8], "little")


def unusable(path: str, fault: Exception, part: str = "") -> DlioError:
    """Return the error for a file that HDF5 cannot read. If HDF5 quotes a system error, return the error for this
    system error. Otherwise return the error for a corrupted file. part: beginning of the message, which names the
    unreadable part of the file.
    """
    code = re.search(r"errno = (\d+)", str(fault))
    number = int(code[1]) if code else getattr(fault, "errno", None)
    if number:
        return unopened(path, OSError(number, os.strerror(number)))
    return damaged(path, part + reason(fault))


def reason(fault: Exception) -> str:
    """Return the text of the system error that HDF5 quotes. If HDF5 quotes none, return its own message on one line."""
    quoted = re.search(r"error message = '([^']+)'", str(fault))
    return quoted[1] if quoted else " ".join(str(fault).split())
