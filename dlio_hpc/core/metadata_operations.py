"""The operations of a metadata workload, each timed. The loops have as few statements as possible, because an operation
on a file system in memory takes only one or two microseconds.
"""

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from dlio_hpc.config.metadata_keys import MetadataKeys
from dlio_hpc.core.clock import now
from dlio_hpc.results.phases import Phase

# Function that makes the operations on some paths, and appends the seconds that each took to the array.
Operations = Callable[[Sequence[str], "array[float]"], None]
_CREATE, _NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
# Addition to the name of a file that was renamed.
RENAMED = ".r"


def of(phase: Phase, keys: MetadataKeys) -> Operations:
    """Return the operations of a phase."""
    operations: dict[Phase, Operations] = {
        "mkdir": partial(_made, os.mkdir),
        "create": _created,
        "write": partial(_written, bytes(keys.bytes), keys.fsync),
        "stat": partial(_made, os.stat),
        "readdir": partial(_made, _listed),
        "open_read_close": partial(_read, keys.bytes),
        "rename": _renamed,
        "unlink": partial(_made, os.unlink),
        "rmdir": partial(_made, os.rmdir),
    }
    return operations[phase]


def _made(operation: Callable[[str], object], paths: Iterable[str], took: "array[float]") -> None:
    add = took.append
    for path in paths:
        began = now()
        operation(path)
        add(now() - began)


def _created(paths: Iterable[str], took: "array[float]") -> None:
    add, opened, close = took.append, os.open, os.close
    for path in paths:
        began = now()
        close(opened(path, _CREATE, _NEW))
        add(now() - began)


def _written(data: bytes, is_synced: bool, paths: Iterable[str], took: "array[float]") -> None:
    add, opened, write, close, flags = took.append, os.open, os.write, os.close, os.O_WRONLY | os.O_CLOEXEC
    for path in paths:
        began = now()
        file = opened(path, flags)
        if write(file, data) != len(data):
            raise OSError(f"only a part of the {len(data)} bytes was written")
        if is_synced:
            os.fsync(file)
        close(file)
        add(now() - began)


def _read(size: int, paths: Iterable[str], took: "array[float]") -> None:
    add, opened, read, close, flags = took.append, os.open, os.read, os.close, os.O_RDONLY | os.O_CLOEXEC
    for path in paths:
        began = now()
        file = opened(path, flags)
        if size and len(read(file, size)) != size:
            raise OSError(f"the file has fewer than the {size} bytes that were written")
        close(file)
        add(now() - began)


def _renamed(paths: Iterable[str], took: "array[float]") -> None:
    add, rename = took.append, os.rename
    for path in paths:
        target = path + RENAMED
        began = now()
        rename(path, target)
        add(now() - began)


def _listed(path: str) -> None:
    with os.scandir(path) as entries:
        for _ in entries:
            pass
