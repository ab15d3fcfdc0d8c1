"""Existing files that a pattern selects: their paths relative to the data directory, their sizes, and the times of
their last changes.
"""

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.dataset.zarr_store import GROUP, METADATA

Numbers = npt.NDArray[np.int64]

S = TypeVar("S")
T = TypeVar("T")

# Number of threads, and number of files that a thread takes at a time.
_AT_ONCE, _PART = 16, 32
_WILDCARDS = set("*?[")
_ANY_FOLDERS = "**"
# Files that show that a folder is a Zarr store.
_OF_STORES = (*METADATA.values(), GROUP)


class FileStatus(NamedTuple):
    """Size of a file in bytes, and the time of its last change in nanoseconds. The time is ctime, because programs can
    set mtime.
    """

    size: int
    changed: int


class Listing(NamedTuple):
    """Files in a folder, sorted by name. names: paths relative to the folder. sizes: bytes. changes: times of the last
    change in nanoseconds.
    """

    folder: str
    names: list[str]
    sizes: Numbers
    changes: Numbers


class Stores(NamedTuple):
    """How folders are taken for files. is_store: returns whether a folder, given by its path, is a store. file: returns
    the path of the file that stands for a store. kind: kind of the stores, for messages.
    """

    is_store: Callable[[str], bool]
    file: Callable[[str], str]
    kind: str


def listed(
    folder: str, pattern: str, on_progress: Callable[[int], None] = lambda _: None, stores: Stores | None = None
) -> Listing:
    """List the files that match `pattern`, a pattern relative to `folder`. Raise ConfigError if no file matches, or if
    a match is not a regular file. Raise InfrastructureError if a folder cannot be read. on_progress: function that is
    called with the number of files listed so far. stores: None if files are listed; otherwise the folders are listed
    that are stores.
    """
    if not os.path.lexists(folder):
        raise ConfigError(f"--data {folder}: the folder does not exist")
    if stores is None:
        names = sorted(set(_matching(folder, "", pattern.split("/"))))
    else:
        names = _of_stores(folder, pattern, stores)
    if not names:
        if os.path.isdir(os.path.join(folder, pattern)):
            below = pattern.rstrip("/")
            if any(os.path.isfile(os.path.join(folder, pattern, name)) for name in _OF_STORES):
                raise ConfigError(f"--existing {pattern}: this is a Zarr store; set -S dataset.format=zarr")
            raise ConfigError(
                f"--existing {pattern}: this is a folder; write '{below}/*' for the files in it, or '{below}/**/*' for "
                "the files in its subfolders as well"
            )
        raise ConfigError(
            f"--existing {pattern}: no file in {folder} matches; the pattern is relative to --data, and ** matches "
            "any number of folders"
        )
    statuses = in_parallel(lambda name: status(os.path.join(folder, name)), names, on_progress)
    table = np.array(statuses, np.int64)
    return Listing(folder, names, table[:, 0].copy(), table[:, 1].copy())


def _of_stores(folder: str, pattern: str, stores: Stores) -> list[str]:
    """Return the paths of the files that stand for the stores that match `pattern`, relative to `folder`."""
    matches = sorted(set(_matching(folder, "", pattern.split("/"), takes_folders=True)))
    paths = [os.path.join(folder, name) for name in matches]
    names = [os.path.relpath(stores.file(path), folder) for path in paths if stores.is_store(path)]
    if not names:
        hint = f", such as {matches[0]}, is one" if matches else " in this place"
        parts = matches[0].split("/") if matches else []
        above = ("/".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
        inside = next((name for name in above if stores.is_store(os.path.join(folder, name))), None)
        hint += f"; it is inside of {inside}: give --existing {inside}" if inside else ""
        raise ConfigError(
            f"--existing {pattern}: no {stores.kind} in {folder} matches: {'nothing' if not matches else 'no match'}"
            f"{hint}; the pattern is relative to --data"
        )
    return names


def in_parallel(action: Callable[[S], T], items: Sequence[S], on_progress: Callable[[int], None]) -> list[T]:
    """Return the results of `action` for all items. Several threads call `action` at the same time, because each call
    waits for the storage. on_progress: function that is called with the number of results so far.
    """
    results: list[T] = []
    parts = [items[first : first + _PART] for first in range(0, len(items), _PART)]
    with ThreadPoolExecutor(_AT_ONCE, "files") as threads:
        try:
            for done in threads.map(lambda part: [action(item) for item in part], parts):
                results += done
                on_progress(len(results))
        except BaseException:
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return results


def status(path: str) -> FileStatus:
    """Return the size and the time of the last change of a file. Raise ConfigError if the file is missing or is not a
    regular file.
    """
    try:
        known = os.stat(path)
    except FileNotFoundError as fault:
        raise ConfigError(f"{path} is missing, or is a link to a missing file") from fault
    except OSError as fault:
        if fault.errno == errno.ELOOP:
            raise ConfigError(f"{path} is a link that leads to itself; remove it, or choose another pattern") from fault
        raise InfrastructureError(f"cannot read {of_system(fault, path)}") from fault
    if not stat.S_ISREG(known.st_mode):
        raise ConfigError(f"{path} is not a regular file; choose a pattern that matches only the files of the dataset")
    return FileStatus(known.st_size, known.st_ctime_ns)


def _matching(root: str, below: str, parts: list[str], takes_folders: bool = False) -> Iterator[str]:
    """Yield the paths, relative to `root`, of entries in the folder `below` that match the parts of a pattern. As in a
    shell, wildcards match no names that begin with a dot, and ** follows no links. takes_folders: whether folders that
    match the last part are yielded, and not files.
    """
    first, *rest = parts
    if first == _ANY_FOLDERS:
        yield from _matching(root, below, rest or ["*"], takes_folders)
        for entry in _entries(root, below):
            if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."):
                yield from _matching(root, os.path.join(below, entry.name), parts, takes_folders)
        return
    for name, is_folder in _named(root, below, first):
        path = os.path.join(below, name)
        if rest and is_folder:
            yield from _matching(root, path, rest, takes_folders)
        elif not rest and is_folder == takes_folders:
            yield path


def _named(root: str, below: str, pattern: str) -> Iterator[tuple[str, bool]]:
    """Yield each name in the folder `below` that matches a pattern without slashes, and whether it is the name of a
    folder.
    """
    if not _WILDCARDS & set(pattern):
        path = os.path.join(root, below, pattern)
        if os.path.lexists(path):
            yield pattern, os.path.isdir(path)
        return
    shows_hidden = pattern.startswith(".")
    matches = re.compile(fnmatch.translate(pattern)).match
    for entry in _entries(root, below):
        if matches(entry.name) and (shows_hidden or not entry.name.startswith(".")):
            yield entry.name, entry.is_dir()


def _entries(root: str, below: str) -> list["os.DirEntry[str]"]:
    folder = os.path.join(root, below)
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError as fault:
        raise ConfigError(f"--data {folder.rstrip('/')}: the folder does not exist") from fault
    except NotADirectoryError as fault:
        raise ConfigError(f"--data {folder.rstrip('/')} is not a folder") from fault
    except OSError as fault:
        raise InfrastructureError(f"cannot list {of_system(fault, folder)}") from fault
