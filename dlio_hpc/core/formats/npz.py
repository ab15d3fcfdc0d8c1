"""NumPy archives: one stored array `x` of shape (samples, *sample shape), as numpy.savez writes it, data at byte 4096.

*floor* reads samples at their offsets into the loader's buffers; *framework* is numpy.load, which reads the whole
array however little of it is wanted.
"""

import io
import os
import threading
import tokenize
import zipfile
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from dlio_hpc.core.clock import now
from dlio_hpc.core.files import OpenFiles
from dlio_hpc.core.formats.format import Paths, Reader, Rows, Samples, check
from dlio_hpc.core.tally import Tally
from dlio_hpc.errors import InvalidRun
from dlio_hpc.workload import Dataset, Workload

_MEMBER = "x.npy"
# ZIP's local header (30 bytes), the member's name and the ZIP64 field; the .npy header is padded up to the data,
# which page-aligned serves direct I/O and stripe boundaries.
_LOCAL_HEADER = 30 + len(_MEMBER) + 20
DATA_OFFSET = 4096
# What numpy.load and zipfile raise over bytes that they do not understand.
_DAMAGE = (ValueError, KeyError, EOFError, SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error)


def write(path: str, dataset: Dataset, pieces: Iterable[memoryview]) -> None:
    """Over an older file of the same geometry the bytes stay the same all the while, so that readers are not harmed."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    with os.fdopen(descriptor, "r+b") as file:
        member = zipfile.ZipInfo(_MEMBER)
        with zipfile.ZipFile(file, "w") as archive, archive.open(member, "w", force_zip64=True) as target:
            target.write(_npy_header(dataset))
            for piece in pieces:
                target.write(piece)
        file.truncate()
        file.flush()
        os.fsync(descriptor)


def reader(workload: Workload, paths: Paths) -> Reader:
    return Floor(workload, paths) if workload.reader.mode == "floor" else Framework(workload, paths)


class Floor:
    """Every sample in requests of transfer_size, straight from its offset."""

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._samples_per_file = workload.dataset.samples_per_file
        self._size = workload.dataset.sample.size
        self._transfer_size = workload.reader.transfer_size or self._size
        self._paths = paths
        self._files = OpenFiles(paths)

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        for sample, row in zip(samples.tolist(), rows, strict=False):
            number, within = divmod(sample, self._samples_per_file)
            with self._files.descriptor(number, tally) as (descriptor, path):
                offset = DATA_OFFSET + within * self._size
                tally.read(descriptor, memoryview(row), offset, self._transfer_size, path)
        check(samples, rows, self._paths, self._samples_per_file)

    def close(self) -> None:
        self._files.close()


class Framework:
    """numpy.load; each thread keeps the array it loaded last, so that neighbours in a file cost one load."""

    def __init__(self, workload: Workload, paths: Paths) -> None:
        self._dataset = workload.dataset
        self._paths = paths
        self._last = threading.local()

    def read(self, samples: Samples, rows: Rows, tally: Tally) -> None:
        for sample, row in zip(samples.tolist(), rows, strict=False):
            number, within = divmod(sample, self._dataset.samples_per_file)
            if getattr(self._last, "number", None) != number:
                self._last.array = self._load(self._paths(number), tally)
                self._last.number = number
            row[:] = self._last.array[within].reshape(-1).view(np.uint8)
        check(samples, rows, self._paths, self._dataset.samples_per_file)

    def _load(self, path: str, tally: Tally) -> Any:
        before = tally.bytes_read
        try:
            with io.BufferedReader(_CountedFile(path, tally)) as file, np.load(file) as archive:
                array = archive["x"]
        except OSError as fault:
            raise InvalidRun(f"cannot read {path}: {fault.strerror or fault}") from fault
        except _DAMAGE as fault:
            raise InvalidRun(
                f"{path} is no archive of ours: {fault}; remove the dataset's folder and generate it"
            ) from fault
        shape = (self._dataset.samples_per_file, *self._dataset.sample.array_shape)
        if array.shape != shape:
            raise InvalidRun(f"{path} holds an array of shape {array.shape}, expected {shape}")
        beside = tally.bytes_read - before - array.nbytes
        tally.bytes_read -= beside
        tally.overhead_bytes += beside
        return array

    def close(self) -> None:
        self._last = threading.local()


class _CountedFile(io.FileIO):
    """A file whose every request to the system is tallied."""

    def __init__(self, path: str, tally: Tally) -> None:
        super().__init__(path)
        tally.opens += 1
        self._tally = tally

    def readinto(self, buffer: Any) -> int:
        started = now()
        count = super().readinto(buffer) or 0
        self._tally.add(started, count)
        return count


def _npy_header(dataset: Dataset) -> bytes:
    """numpy.lib.format version 1.0, padded so that the array begins at DATA_OFFSET of the file."""
    shape = (dataset.samples_per_file, *dataset.sample.array_shape)
    text = repr({"descr": np.dtype(dataset.sample.array_dtype).str, "fortran_order": False, "shape": shape})
    prefix = b"\x93NUMPY\x01\x00"
    length = DATA_OFFSET - _LOCAL_HEADER - len(prefix) - 2
    return prefix + length.to_bytes(2, "little") + text.encode().ljust(length - 1) + b"\n"
