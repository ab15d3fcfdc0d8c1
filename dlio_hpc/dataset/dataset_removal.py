"""Removal of a dataset. Only files that dlio-hpc generated are removed. Links are not followed."""

import os
from contextlib import suppress
from pathlib import Path

from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.dataset import dataset_folder
from dlio_hpc.dataset.dataset_folder import FINGERPRINT_FILE, Fingerprint
from dlio_hpc.files import rundir, safe_folders

# Maximum number of foreign files that a message names.
_SHOWN = 5


def check(folder: Path) -> None:
    """Raise ConfigError if the folder must not be removed: if it is a link, if it is not a dataset folder, if it has
    files that dlio-hpc did not generate, or if a job is generating the dataset.
    """
    if folder.is_symlink():
        raise ConfigError(f"{folder} is a link to {os.readlink(folder)}; to remove the dataset, give that path")
    known = dataset_folder.begun(folder)
    if dataset_folder.is_owned(folder):
        raise _owned(folder)
    _check_strangers(folder, known)


def content(folder: Path) -> tuple[int, int]:
    """Return the number of files in the folder, and their total size in bytes."""
    with os.scandir(folder) as entries:
        sizes = [entry.stat(follow_symlinks=False).st_size for entry in entries]
    return len(sizes), sum(sizes)


def remove(folder: Path) -> tuple[int, int]:
    """Remove the files, the folder and the lock file of a dataset. Return the number of files and their total size in
    bytes. Before anything is removed, raise ConfigError in the same cases as check().
    """
    try:
        check(folder)
        return _removed(folder, dataset_folder.lock_file(folder))
    except OSError as fault:
        where = of_system(fault, folder)
        raise InfrastructureError(f"cannot remove {where}; fix the cause and try again") from fault


def _removed(folder: Path, lock: Path) -> tuple[int, int]:
    with suppress(OSError):
        dataset_folder.make_lock(lock)
    with rundir.locked_now(lock) as is_mine, safe_folders.opened(folder) as descriptor:
        if not is_mine:
            raise _owned(folder)
        removed = _emptied(folder, descriptor)
        folder.rmdir()
        lock.unlink(missing_ok=True)
    return removed


def _owned(folder: Path) -> ConfigError:
    return ConfigError(f"a job is generating the dataset in {folder}; cancel the job, or wait for its end")


def _check_strangers(folder: Path, known: Fingerprint | None, inside: Path | None = None) -> None:
    """Raise ConfigError if the folder has files that are not part of its dataset. inside: path of the same folder
    through its open descriptor; None if the folder is not open.
    """
    try:
        foreign = sorted(dataset_folder.strangers(inside or folder, known.dataset if known else None))
    except OSError as fault:
        raise InfrastructureError(f"cannot list {of_system(fault, folder)}") from fault
    if foreign:
        more = f" and {len(foreign) - _SHOWN} more" if len(foreign) > _SHOWN else ""
        listing = ", ".join(foreign[:_SHOWN]) + more
        raise ConfigError(
            f"nothing was removed: {folder} contains files that are not part of the dataset. Move these files away: "
            f"{listing}"
        )


def _emptied(folder: Path, descriptor: int) -> tuple[int, int]:
    """Remove all files of the open folder. Return their number and their total size in bytes. The dataset is marked as
    unfinished before the first file is removed, and the fingerprint file is removed last. All access is through the
    descriptor, because the path may meanwhile refer to another folder. The names of the files are read from the folder
    and not computed from the fingerprint file, because a damaged fingerprint file may claim any number of files.
    """
    inside = safe_folders.held(descriptor)
    known = dataset_folder.begun(folder, inside)
    _check_strangers(folder, known, inside)
    sizes: list[int | None] = []
    if known is not None and known.complete:
        sizes.append(_marked_unfinished(inside, known, descriptor))
    names = sorted(
        os.listdir(descriptor), key=lambda name: (name == FINGERPRINT_FILE, dataset_folder.is_note(name), name)
    )
    sizes.extend(_unlinked(name, descriptor) for name in names)
    gone = [size for size in sizes if size is not None]
    return len(gone), sum(gone)


def _marked_unfinished(folder: Path, known: Fingerprint, descriptor: int) -> int | None:
    """Mark the dataset as unfinished, so that no job uses it. Return None if this works at the first attempt. If the
    disk is too full for the mark, remove the first sample file, try again, and return the size of this file in bytes.
    If the mark fails again, no job uses the dataset either, because every job checks whether the first sample file
    exists.
    """
    mark = Fingerprint(known.fingerprint, known.dataset, complete=False)
    try:
        dataset_folder.write(folder, mark)
    except OSError:
        freed = _unlinked(next(dataset_folder.names(known.dataset)), descriptor)
        dataset_folder.write(folder, mark)
        return freed
    return None


def _unlinked(name: str, descriptor: int) -> int | None:
    """Remove a file from the open folder. Return its size in bytes, or None if the file does not exist."""
    try:
        size = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
        os.unlink(name, dir_fd=descriptor)
    except FileNotFoundError:
        return None
    return size
