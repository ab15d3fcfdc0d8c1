"""Removal of a dataset. Only files that dlio-hpc generated are removed. Links are not followed."""

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from dlio_hpc.base import worker_processes
from dlio_hpc.base.counted_progress import CountedProgress
from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.base.units import listed
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.dataset import dataset_folder, dataset_tree, written_files
from dlio_hpc.dataset.dataset_folder import FINGERPRINT_FILE, Fingerprint
from dlio_hpc.dataset.dataset_tree import NameBatch
from dlio_hpc.files import filesystem, rundir, safe_folders

R = TypeVar("R")

# Maximum number of foreign files that a message names.
_SHOWN = 5
# Number of files that a process handles at a time.
_BATCH = 10_000


class Look(NamedTuple):
    """Files of a dataset. files: their number. size: their total size in bytes. foreign: paths of foreign entries,
    relative to the dataset's folder, with a reason in parentheses if the name is a name of the dataset.
    """

    files: int
    size: int
    foreign: tuple[str, ...]


def check(folder: Path) -> Look:
    """Return the number and the size of the files of a dataset. Raise ConfigError if the folder must not be removed: if
    it is a link, if it is not a dataset folder, if it has files that dlio-hpc did not generate, or if a job is
    generating the dataset.
    """
    known = _check_kind(folder)
    if dataset_folder.is_owned(folder):
        raise _owned(folder)
    with safe_folders.opened(folder) as descriptor:
        return _checked(folder, known, descriptor)


def _check_kind(folder: Path) -> Fingerprint | None:
    """Raise ConfigError if the folder is a link or not a dataset folder. Otherwise, return its fingerprint file."""
    if folder.is_symlink():
        raise ConfigError(f"{folder} is a link to {os.readlink(folder)}; to remove the dataset, give that path")
    return dataset_folder.begun(folder)


def remove(folder: Path, force: bool = False) -> tuple[int, int]:
    """Remove the files, the folders and the lock file of a dataset. Return the number of files and their total size in
    bytes. Before anything is removed, raise ConfigError in the same cases as check(), and if a job is reading the
    dataset. force: whether a dataset that a job is reading is removed nevertheless.
    """
    try:
        _check_kind(folder)
        return _removed(folder, dataset_folder.lock_file(folder), force)
    except OSError as fault:
        where = of_system(fault, folder)
        raise InfrastructureError(f"cannot remove {where}; fix the cause and try again") from fault


def _removed(folder: Path, lock: Path, force: bool) -> tuple[int, int]:
    with suppress(OSError):
        dataset_folder.make_lock(lock)
    with rundir.locked_now(lock) as is_mine, safe_folders.opened(folder) as descriptor:
        if not is_mine:
            raise _owned(folder)
        removed = _emptied(folder, descriptor, force)
        folder.rmdir()
        lock.unlink(missing_ok=True)
    return removed


def being_read(folder: Path) -> ConfigError:
    """Return the error for a dataset that a job is reading."""
    return ConfigError(
        f"a job is reading the dataset {folder}; wait for the end of the job; --force removes the dataset nevertheless"
    )


def _owned(folder: Path) -> ConfigError:
    return ConfigError(f"a job is generating the dataset in {folder}; cancel the job, or wait for its end")


def _checked(folder: Path, known: Fingerprint | None, descriptor: int) -> Look:
    """Return the number and the size of the files in an open folder of a dataset. Raise ConfigError if the folder has
    files that are not part of the dataset.
    """
    try:
        look = _looked(_dataset(known), descriptor)
    except OSError as fault:
        raise InfrastructureError(f"cannot list {of_system(fault, folder)}") from fault
    if foreign := {*look.foreign, *filesystem.mounts_in(folder)}:
        raise ConfigError(
            f"nothing was removed: {folder} contains files that are not part of the dataset. Move these files away: "
            f"{listed(sorted(foreign))}"
        )
    return look


def _dataset(known: Fingerprint | None) -> Dataset | None:
    """Return the dataset that a fingerprint file describes; None if there is no such file."""
    return known.dataset if known else None


def _looked(dataset: Dataset | None, root: int) -> Look:
    """Look at all files in an open folder of a dataset."""
    files = size = 0
    foreign: list[str] = []
    is_shared = safe_folders.is_shared(root, safe_folders.held(root) / "..")
    for part in _mapped(partial(_look_at, is_shared), root, dataset):
        files, size = files + part.files, size + part.size
        foreign += part.foreign
    return Look(files, size, tuple(foreign))


def _look_at(is_shared: bool, root: int, dataset: Dataset | None, batch: NameBatch) -> Look:
    """Look at some files and their folder. A file or a subfolder of another user is foreign, unless the dataset is
    shared with a group. is_shared: whether it is; see safe_folders.is_shared().
    """
    whole = os.fstat(root)
    files = size = 0
    foreign = []
    with dataset_tree.opened(root, batch.path) as folder:
        if not is_shared and os.fstat(folder).st_uid != whole.st_uid:
            foreign.append(_of_other(batch.path, os.fstat(folder), whole))
        names = batch.listed(folder)
        misnamed = batch.foreign(dataset, names)
        for name in names:
            try:
                status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                continue
            if name in misnamed or not stat.S_ISREG(status.st_mode):
                foreign.append(os.path.join(batch.path, name))
            elif status.st_uid != whole.st_uid and not is_shared:
                foreign.append(_of_other(os.path.join(batch.path, name), status, whole))
            else:
                files, size = files + 1, size + status.st_size
    return Look(files, size, tuple(foreign))


def _of_other(path: str, status: os.stat_result, whole: os.stat_result) -> str:
    """Return the text for a file or a subfolder of another user. whole: status of the dataset's folder."""
    return f"{path} (of user {status.st_uid}, the dataset is of user {whole.st_uid})"


def _mapped(function: Callable[[int, Dataset | None, NameBatch], R], root: int, dataset: Dataset | None) -> Iterator[R]:
    """Yield the result of the function for all names in the folders of a dataset, some names at a time. Several
    processes call the function if the dataset has many files.
    """
    processes = worker_processes.count(dataset_folder.file_count(dataset) if dataset else 0)
    batches = dataset_tree.batches(root, dataset, _BATCH)
    yield from worker_processes.mapped(partial(function, root, dataset), batches, processes)


def _emptied(folder: Path, root: int, force: bool) -> tuple[int, int]:
    """Remove all files of the open folder and its subfolders. Return their number and their total size in bytes. The
    dataset is marked as unfinished before the first file is removed, and the fingerprint file is removed last. All
    access is through the descriptor, because the path may meanwhile refer to another folder. The names of the files are
    read from the folder and not computed from the fingerprint file, because a damaged fingerprint file may claim any
    number of files.
    """
    inside = safe_folders.held(root)
    known = dataset_folder.begun(folder, inside)
    look = _checked(folder, known, root)
    removed = 0
    written_files.clear(root)  # first: a job that continues the generation trusts the records
    if known is not None and known.complete:
        with rundir.locked_now(inside / FINGERPRINT_FILE) as is_unread:
            if not is_unread and not force:
                raise being_read(folder)
            removed += _marked_unfinished(inside, known, root)
    progress = CountedProgress(partial(print, file=sys.stderr, flush=True), folder.name, "files removed", look.files)
    removed += _remove_files(root, _dataset(known), progress)
    added = _remove_subfolders(root, _dataset(known))
    names = os.listdir(root)
    rest = (name for name in names if not dataset_folder.is_note(name))
    if foreign := added or sorted(rest):
        raise ConfigError(
            f"{folder} contains files that were added while the dataset was removed: {', '.join(foreign[:_SHOWN])}. "
            "Move them away, and remove the dataset again"
        )
    for name in sorted(names, key=lambda name: (name == FINGERPRINT_FILE, name)):
        removed += _unlinked(name, root)
    return removed, look.size


def _remove_files(root: int, dataset: Dataset | None, progress: CountedProgress) -> int:
    """Remove the sample files and the auxiliary files of a dataset. Return their number. The folders are read until
    they have no such file, because some file systems leave out names while files are removed.
    """
    removed, before = 0, -1
    while before < removed:
        before = removed
        for count in _mapped(_remove_batch, root, dataset):
            removed += count
            progress(removed)
    return removed


def _remove_batch(root: int, dataset: Dataset | None, batch: NameBatch) -> int:
    """Remove some sample files and auxiliary files. Return their number."""
    removed = 0
    with dataset_tree.opened(root, batch.path) as folder:
        names = batch.listed(folder)
        misnamed = batch.foreign(dataset, names)
        for name in names:
            if name not in misnamed and (batch.path or not dataset_folder.is_note(name)):
                removed += _unlinked(name, folder)
    return removed


def _remove_subfolders(root: int, dataset: Dataset | None) -> list[str]:
    """Remove the subfolders that are empty. Return the paths of what is in the others, relative to the dataset's
    folder.
    """
    added: list[str] = []
    for folder in dataset_tree.folders(root, dataset):
        for name in sorted(folder.inner):
            try:
                os.rmdir(name, dir_fd=folder.descriptor)
            except OSError as fault:
                if fault.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                path = os.path.join(folder.path, name)
                if not any(file.startswith(f"{path}/") for file in added):
                    added += _paths_in(root, path)
    return added


def _paths_in(root: int, path: str) -> list[str]:
    """Return the paths of the entries of a subfolder, sorted. path: path of the subfolder; as the result, relative to
    the dataset's folder.
    """
    with dataset_tree.opened(root, path) as folder:
        return sorted(os.path.join(path, name) for name in os.listdir(folder))


def _marked_unfinished(folder: Path, known: Fingerprint, descriptor: int) -> int:
    """Mark the dataset as unfinished, so that no job uses it. If the disk is too full for the mark, remove the first
    file, and try again. Return the number of removed files: 0 or 1. If the mark fails again, no job uses the dataset
    either, because every job checks whether the first sample file and the auxiliary files exist.
    """
    mark = Fingerprint(known.fingerprint, known.dataset, complete=False)
    try:
        dataset_folder.write(folder, mark)
    except OSError:
        name = next(dataset_folder.names(known.dataset))
        with dataset_tree.opened(descriptor, os.path.dirname(name)) as inner:
            freed = _unlinked(os.path.basename(name), inner)
        dataset_folder.write(folder, mark)
        return freed
    return 0


def _unlinked(name: str, folder: int) -> int:
    """Remove a file from an open folder. Return 1, or 0 if the file does not exist."""
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return 0
    return 1
