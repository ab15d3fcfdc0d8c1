"""Removing a dataset: exactly the files that were generated, by their computed names, and no link is followed."""

import os
from contextlib import suppress
from pathlib import Path

from dlio_hpc.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.files import rundir, safe_folders
from dlio_hpc.plan import dataset
from dlio_hpc.plan.dataset import FINGERPRINT_FILE, Fingerprint

# Strangers that a message names.
_SHOWN = 5


def check(folder: Path) -> None:
    """ConfigError where anything would be lost that was not generated, or a job writes."""
    if folder.is_symlink():
        raise ConfigError(f"{folder} is a link to {os.readlink(folder)}; remove the dataset there by its path")
    known = dataset.begun(folder)
    if dataset.is_owned(folder):
        raise _owned(folder)
    _check_strangers(folder, known)


def content(folder: Path) -> tuple[int, int]:
    """Number and bytes of the files in it."""
    with os.scandir(folder) as entries:
        sizes = [entry.stat(follow_symlinks=False).st_size for entry in entries]
    return len(sizes), sum(sizes)


def remove(folder: Path) -> tuple[int, int]:
    """The files, the folder, its lock; number and bytes of the files. ConfigError as check(), with nothing removed."""
    try:
        check(folder)
        return _removed(folder, dataset.lock_file(folder))
    except OSError as fault:
        where = of_system(fault, folder)
        raise InfrastructureError(f"cannot remove {where}; once it can be, try again") from fault


def _removed(folder: Path, lock: Path) -> tuple[int, int]:
    with suppress(OSError):
        dataset.make_lock(lock)
    with rundir.locked_now(lock) as is_mine, safe_folders.opened(folder) as descriptor:
        if not is_mine:
            raise _owned(folder)
        removed = _emptied(folder, descriptor)
        folder.rmdir()
        lock.unlink(missing_ok=True)
    return removed


def _owned(folder: Path) -> ConfigError:
    return ConfigError(f"{folder}: a job generates it just now; cancel that, or wait for its end")


def _check_strangers(folder: Path, known: Fingerprint | None, inside: Path | None = None) -> None:
    """inside: the same folder by its descriptor, where it is open."""
    try:
        others = sorted(dataset.strangers(inside or folder, known.dataset if known else None))
    except OSError as fault:
        raise InfrastructureError(f"cannot look into {of_system(fault, folder)}") from fault
    if others:
        named = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        raise ConfigError(f"{folder} holds what is no file of the dataset: {named}; move it away; nothing was removed")


def _emptied(folder: Path, descriptor: int) -> tuple[int, int]:
    """Marked as unfinished before the first file goes; the mark itself goes last. All of it by the folder's descriptor:
    its name may come to mean another one. Names are those that lie there, as many as a mark may speak of.
    """
    inside = safe_folders.held(descriptor)
    known = dataset.begun(folder, inside)
    _check_strangers(folder, known, inside)
    sizes: list[int | None] = []
    if known is not None and known.complete:
        sizes.append(_marked_unfinished(inside, known, descriptor))
    names = sorted(os.listdir(descriptor), key=lambda name: (name == FINGERPRINT_FILE, dataset.is_note(name), name))
    sizes.extend(_unlinked(name, descriptor) for name in names)
    gone = [size for size in sizes if size is not None]
    return len(gone), sum(gone)


def _marked_unfinished(folder: Path, known: Fingerprint, descriptor: int) -> int | None:
    """On a disk so full that there is no room for the mark, the first file goes before it, which every job looks for;
    its bytes.
    """
    mark = Fingerprint(known.fingerprint, known.dataset, complete=False)
    try:
        dataset.write(folder, mark)
    except OSError:
        freed = _unlinked(next(dataset.names(known.dataset)), descriptor)
        dataset.write(folder, mark)
        return freed
    return None


def _unlinked(name: str, descriptor: int) -> int | None:
    """Bytes of a file that was removed from the folder; None where it was not there."""
    try:
        size = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_size
        os.unlink(name, dir_fd=descriptor)
    except FileNotFoundError:
        return None
    return size
