"""The folder with the files that the runs of a job write (outputs-JOB): which entries runs make, and their removal.

Another user may replace the folder, and anybody with access may put files into it. Therefore, only entries with names
that runs use are removed, and the removal works on open folders and not on paths.
"""

import os
import re
import stat
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError
from dlio_hpc.base.units import listed
from dlio_hpc.files import filesystem, safe_folders

# Names of the files of KV caches: blocks, conversations, a pool, and those of LMCache's local disk backend and of its
# file system adapter (core/kv_blocks.py).
BLOCKS = r"[bs]\d+|pool|[\w.-]+@1@0@[0-9a-f]+@\w+\.pt|[\w.-]+@0x01000100@0@[0-9a-f]{64}\.(data|tmp)"
# Paths that runs make in the folder, with a / at the end of folders. A metadata workload makes a folder for each epoch,
# in it a tree for each rank or a shared one, and in the trees files and empty folders (core/loaders/metadata.py). A
# checkpoint consists of files of ranks or of parts of a model (dataset/checkpoint_files.py), or of a folder of PyTorch
# (core/checkpoint_modes/). Auxiliary files have the number of their rank. An inference workload makes a folder for each
# epoch and rank, with the files of KV caches.
_PATHS = re.compile(
    r"\d+/((\d+|shared)/(\d+/)*(f\d+\.\d+(\.r)?|d\d+\.\d+/)?)?"
    rf"|kv/(\d+/(\d+/({BLOCKS})?)?)?"
    r"|rank\d{5,}-[\w.-]+"
    r"|(checkpoint\d{3,}-)?(rank\d{5,}-\d+|(layer_\d+-)?model_\d+_model_states|zero_pp_rank_\d+_mp_rank_\d+_\w+_states)"
    r"\.(ckpt|pt|weights\.h5)"
    r"|checkpoint(\d{3,})?/(__\d+_\d+\.distcp|\.metadata(\.tmp)?)?",
    re.ASCII,
)


class _Entry(NamedTuple):
    """An entry of an open folder. path: path relative to the folder of outputs, with a / at the end of folders."""

    name: str
    path: str
    is_ours: bool

    @property
    def is_folder(self) -> bool:
        return self.path.endswith("/")


def foreign(folder: Path) -> list[str]:
    """Return the sorted paths of entries that no run made, relative to the folder: entries of another user, mount
    points, entries that are neither files nor folders, and entries with names that runs do not use.
    """
    with safe_folders.opened(folder) as top:
        return sorted(_foreign(top, "", set(filesystem.mounts_in(folder))))


def _foreign(folder: int, inner: str, mounts: Collection[str]) -> Iterator[str]:
    for entry in _entries(folder, inner, mounts):
        if not entry.is_ours:
            yield entry.path.rstrip("/")
        elif entry.is_folder:
            with _opened(entry.name, folder) as below:
                yield from _foreign(below, entry.path, mounts)


@contextmanager
def _opened(name: str, above: int) -> Iterator[int]:
    """Open a folder in an open folder, and yield its descriptor. Links are not followed."""
    descriptor = safe_folders.entered(name, above)
    try:
        yield descriptor
    finally:
        safe_folders.close(descriptor)


def _entries(folder: int, inner: str, mounts: Collection[str]) -> Iterator[_Entry]:
    """Yield the entries of an open folder. inner: its path, with a / at the end. mounts: paths of mount points."""
    owner = os.fstat(folder).st_uid
    with os.scandir(folder) as entries:
        for entry in entries:
            status, path = entry.stat(follow_symlinks=False), inner + entry.name
            is_folder = stat.S_ISDIR(status.st_mode)
            is_usual = (is_folder or stat.S_ISREG(status.st_mode)) and status.st_uid == owner and path not in mounts
            path += "/" * is_folder
            yield _Entry(entry.name, path, is_usual and _PATHS.fullmatch(path) is not None)


def remove(folder: Path) -> None:
    """Remove the entries that runs made, and the folder if it is then empty. Raise ConfigError if the folder is a link
    or belongs to another user, and if it has entries that no run made. Raise OSError if an entry cannot be removed.
    """
    with safe_folders.opened(folder) as top:
        if not safe_folders.is_mine(top):
            raise ConfigError(f"{folder} belongs to user {safe_folders.owner(top)}, so nothing in it is removed")
        if left := _emptied(top, "", set(filesystem.mounts_in(folder))):
            raise ConfigError(f"{folder} contains files that no run made; move them away: {listed(sorted(left))}")
    folder.rmdir()


def discard(folder: str) -> None:
    """Remove the folder as remove() does, as far as possible. Print a message if it has entries that no run made."""
    with suppress(OSError):
        try:
            remove(Path(folder))
        except ConfigError as fault:
            print(f"dlio-hpc: {fault}", file=sys.stderr, flush=True)


def _emptied(folder: int, inner: str, mounts: Collection[str]) -> set[str]:
    """Remove the entries of an open folder that runs made. Return the paths of the other entries. The folder is read
    until it has no entry of a run, because some file systems leave out names while files are removed.
    """
    while True:
        left, is_unchanged = set[str](), True
        for entry in _entries(folder, inner, mounts):
            below = _removed(entry, folder, mounts)
            left |= below
            is_unchanged = is_unchanged and bool(below)
        if is_unchanged:
            return left


def _removed(entry: _Entry, folder: int, mounts: Collection[str]) -> set[str]:
    """Remove an entry of an open folder if a run made it. Return the paths of entries that were left."""
    if not entry.is_ours:
        return {entry.path.rstrip("/")}
    with suppress(FileNotFoundError):
        if not entry.is_folder:
            os.unlink(entry.name, dir_fd=folder)
            return set()
        with _opened(entry.name, folder) as below:
            left = _emptied(below, entry.path, mounts)
        if left:
            return left
        os.rmdir(entry.name, dir_fd=folder)
    return set()
