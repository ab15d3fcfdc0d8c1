"""Removing a dataset: exactly the files that were generated, by their computed names, and no link is followed."""

import os
from contextlib import suppress
from pathlib import Path

from dlio_hpc import dataset, rundir
from dlio_hpc.dataset import FINGERPRINT_FILE, Fingerprint
from dlio_hpc.errors import ConfigError, InfrastructureError, of_system

# Strangers that a message names.
_SHOWN = 5


def check(folder: Path) -> Fingerprint:
    """What lies there; ConfigError where anything would be lost that was not generated, or a job writes."""
    if folder.is_symlink():
        raise ConfigError(f"{folder} is a link to {os.readlink(folder)}; remove the dataset there by its path")
    known = dataset.existing(folder)
    if dataset.is_owned(folder):
        raise _owned(folder)
    _check_strangers(folder, known)
    return known


def content(folder: Path) -> tuple[int, int]:
    """Number and bytes of the files in it."""
    with os.scandir(folder) as entries:
        sizes = [entry.stat(follow_symlinks=False).st_size for entry in entries]
    return len(sizes), sum(sizes)


def remove(folder: Path) -> tuple[int, int]:
    """The files, the folder, its lock; number and bytes of the files. ConfigError as check(), with nothing removed."""
    check(folder)
    lock = dataset.lock_file(folder)
    with suppress(OSError):
        lock.touch()
    with rundir.locked_now(lock) as is_mine:
        if not is_mine:
            raise _owned(folder)
        known = dataset.existing(folder)
        _check_strangers(folder, known)
        try:
            removed = _emptied(folder, known)
            folder.rmdir()
            lock.unlink(missing_ok=True)
        except OSError as fault:
            where = of_system(fault, folder)
            raise InfrastructureError(f"cannot remove {where}; once it can be, try again") from fault
    return removed


def _owned(folder: Path) -> ConfigError:
    return ConfigError(f"{folder}: a job generates it just now; cancel that, or wait for its end")


def _check_strangers(folder: Path, known: Fingerprint) -> None:
    try:
        others = sorted(dataset.strangers(folder, known.dataset))
    except OSError as fault:
        raise InfrastructureError(f"cannot look into {of_system(fault, folder)}") from fault
    if others:
        named = ", ".join(others[:_SHOWN]) + (f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else "")
        raise ConfigError(f"{folder} holds what is no file of the dataset: {named}; move it away; nothing was removed")


def _emptied(folder: Path, known: Fingerprint) -> tuple[int, int]:
    """Marked as unfinished before the first file goes; the mark itself goes last."""
    sizes: list[int | None] = []
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if known.complete:
            sizes.append(_marked_unfinished(folder, known, descriptor))
        sizes.extend(_unlinked(name, descriptor) for name in dataset.names(known.dataset))
        notes = [name for name in os.listdir(descriptor) if dataset.is_note(name)]
        sizes.extend(_unlinked(name, descriptor) for name in sorted(notes, key=FINGERPRINT_FILE.__eq__))
    finally:
        with suppress(OSError):
            os.close(descriptor)
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
