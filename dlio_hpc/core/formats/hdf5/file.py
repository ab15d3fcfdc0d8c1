"""An HDF5 file of ours: its one dataset, and whether it is the expected one."""

import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.core import darshan_fd_gate, procfs
from dlio_hpc.core.clock import now
from dlio_hpc.core.files import ABSENT
from dlio_hpc.core.formats.format import damaged
from dlio_hpc.core.io_counters import Tally
from dlio_hpc.core.sample_layout import Places
from dlio_hpc.errors import DlioError, InvalidRun, unreadable

NAME = "x"
# Bytes at the front that tell where the file ends, and where among them, by version; addresses have eight bytes.
SUPERBLOCK = 64
_ENDS_AT = {0: 40, 1: 44, 2: 28, 3: 28}
# What h5py, and our own look at what it says, raise over bytes that make no sense.
DAMAGE = (
    OSError, ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError, zlib.error,
)  # fmt: skip


@contextmanager
def looking_up(tally: Tally) -> Iterator[None]:
    """HDF5 reads its own structures in the block; the kernel's count for the thread says how much of them."""
    before, started = procfs.thread_io(), now()
    yield
    after = procfs.thread_io()
    tally.timed(started)
    if before is not None and after is not None:
        came = after.since(before)
        tally.overhead_bytes += came.requested
        tally.requests += came.calls


class File:
    """An open file and its dataset; InvalidRun when there is none of the expected kind."""

    def __init__(self, path: str, dataset: Dataset, number: int, **driver: Any) -> None:
        import h5py

        try:
            with darshan_fd_gate.opening():
                self._file = h5py.File(path, "r", **driver)
            self.dataset = self._file[NAME]
            found = (self.dataset.shape, self.dataset.dtype, self.dataset.chunks, self.dataset.compression or "none")
        except DAMAGE as fault:
            raise unusable(path, fault) from fault
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
        with darshan_fd_gate.closing(), suppress(OSError, RuntimeError):  # nothing was written
            self._file.close()


def _spelled(shape: tuple[int, ...], dtype: Any, chunk: tuple[int, ...] | None, compression: str) -> str:
    return f"{dtype} of shape {shape} in chunks of {chunk}, compression {compression}"


def chunk_of(dataset: Dataset, places: Places, number: int) -> tuple[int, ...] | None:
    """The chunk of a file, which HDF5 does not want larger than the array."""
    chunk = dataset.chunk_shape
    return None if chunk is None else tuple(map(min, chunk, places.array_shape(number)))


def end_of_file(superblock: bytes) -> int | None:
    """Where the file ends by what its first bytes say (HDF5 File Format Specification, II.A); None: no HDF5 file."""
    if len(superblock) < SUPERBLOCK or superblock[:8] != b"\x89HDF\r\n\x1a\n" or superblock[8] not in _ENDS_AT:
        return None
    return int.from_bytes(superblock[_ENDS_AT[superblock[8]] :][:8], "little")


def unusable(path: str, fault: Exception, part: str = "") -> DlioError:
    """The error for a file that HDF5 cannot read: the system's, where HDF5 quotes that, else the file is damaged. part:
    of the file, for the message.
    """
    code = re.search(r"errno = (\d+)", str(fault))
    number = int(code[1]) if code else getattr(fault, "errno", None)
    if number:
        return unreadable(OSError(number, os.strerror(number)), path, InvalidRun, ABSENT)
    return damaged(path, part + reason(fault))


def reason(fault: Exception) -> str:
    """What the system said, out of HDF5's many words, or those in one line."""
    said = re.search(r"error message = '([^']+)'", str(fault))
    return said[1] if said else " ".join(str(fault).split())
