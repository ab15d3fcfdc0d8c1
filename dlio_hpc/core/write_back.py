"""Write-back of files during writing: storage receives the first bytes while the next bytes are computed."""

import ctypes
import os
import re
from collections.abc import Iterable, Iterator
from typing import Any

# SYNC_FILE_RANGE_WRITE of sync_file_range(2), and the number of bytes after which this function is called.
_WRITE, _STEP = 2, 4 << 20


def written_early(descriptor: int, pieces: Iterable[Any]) -> Iterator[Any]:
    """Yield `pieces` (bytes or arrays), which the caller writes to an open file one by one. After every few MiB, start
    to write the file from the page cache to storage. A later fsync(2) then takes less time.
    """
    size = 0
    for piece in pieces:
        yield piece
        size += memoryview(piece).nbytes
        if size >= _STEP:
            _start(descriptor)
            size = 0


# First Linux whose syncfs(2) reports that a write to storage failed.
_REPORTING = 5, 8


def reports_faults_of_file_system() -> bool:
    """Return whether sync_file_system() raises OSError if a write to storage failed."""
    major, _, rest = os.uname().release.partition(".")
    minor = re.match(r"\d*", rest)
    return (int(major or 0), int((minor and minor[0]) or 0)) >= _REPORTING


def sync_file_system(descriptor: int) -> None:
    """Write everything in the page cache of a file system to storage, as syncfs(2) does. descriptor: descriptor of any
    file or folder in the file system.
    """
    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _start(descriptor: int) -> None:
    """Ask the kernel to write the dirty pages of an open file, without waiting. Errors are ignored, because some file
    systems do not support this call, and fsync(2) reports faults of storage.
    """
    ctypes.CDLL(None).sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(0), _WRITE)
