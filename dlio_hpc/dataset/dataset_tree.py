"""The folder of a dataset and its subfolders, opened one after another without following links."""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from dlio_hpc.base.errors import ConfigError, DlioError, InfrastructureError
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.dataset import dataset_folder, stored_parts
from dlio_hpc.files import filesystem, safe_folders

# Seconds before a subfolder that is missing or stale is created again.
_PAUSES_S = (0.01, 0.1, 1.0)


class Folder(NamedTuple):
    """An open folder of a dataset. path: its path relative to the dataset's folder; empty for the dataset's folder
    itself. descriptor: its open descriptor. inner: names of its subfolders that belong to the dataset.
    """

    path: str
    descriptor: int
    inner: frozenset[str]


def folders(root: int, dataset: Dataset | None) -> Iterator[Folder]:
    """Yield the existing subfolders of a dataset, inner folders first, and at the end the dataset's folder. A folder is
    closed when the next one is yielded. Links and mount points are left out. root: descriptor of the dataset's folder.
    dataset: None if it is not known.
    """
    yield from _folders(root, "", dataset, os.fstat(root).st_dev)


def _folders(folder: int, path: str, dataset: Dataset | None, device: int) -> Iterator[Folder]:
    """Yield the folders in an open folder, and then this folder. path: path of this folder, relative to the dataset's
    folder. device: device number of the dataset's folder.
    """
    inner = set()
    for name in [] if dataset is None else _named(folder, path, dataset):
        with _opened(folder, name, device) as descriptor:
            if descriptor is not None:
                inner.add(name)
                yield from _folders(descriptor, f"{path}/{name}" if path else name, dataset, device)
    yield Folder(path, folder, frozenset(inner))


def _named(folder: int, path: str, dataset: Dataset) -> list[str]:
    """Return the names in an open folder that are names of its subfolders, sorted. path: as for _folders()."""
    depth, counts = path.count("/") + 1 if path else 0, dataset.subfolders or ()
    if depth < len(counts):
        return [
            name
            for name in _folder_names(folder)
            if name.isdecimal() and int(name) < counts[depth] and dataset_folder.subfolder_name(int(name)) == name
        ]
    if depth == len(counts) and stored_parts.of(dataset).folder:
        return [name for name in _folder_names(folder) if dataset_folder.is_container_folder(dataset, path, name)]
    return []


def _folder_names(folder: int) -> list[str]:
    """Return the names of the folders in an open folder that begin with a number, sorted."""
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name.partition(".")[0].isdecimal() and entry.is_dir(follow_symlinks=False)
        )


@contextmanager
def _opened(folder: int, name: str, device: int) -> Iterator[int | None]:
    """Open a subfolder and yield its descriptor. Yield None if it is a mount point, a link, or missing."""
    try:
        descriptor = safe_folders.entered(name, folder)
    except (FileNotFoundError, NotADirectoryError):
        yield None
        return
    try:
        yield descriptor if os.fstat(descriptor).st_dev == device else None
    finally:
        safe_folders.close(descriptor)


def strangers(root: int, dataset: Dataset | None) -> Iterator[str]:
    """Yield the paths of foreign entries of the dataset's folder and its subfolders, relative to the dataset's folder:
    names that the generator does not write, and entries that are not regular files. dataset: None if the generator was
    stopped before it wrote a file.
    """
    is_named = dataset_folder.names_of(dataset)
    for folder in folders(root, dataset):
        with os.scandir(folder.descriptor) as entries:
            for entry in entries:
                if entry.name not in folder.inner and not (
                    is_named(folder.path, entry.name) and entry.is_file(follow_symlinks=False)
                ):
                    yield os.path.join(folder.path, entry.name)


class NameBatch(NamedTuple):
    """Some of the names in a folder of a dataset. path: path of the folder, relative to the dataset's folder. names:
    None for all names of the folder, which has no subfolders of the dataset.
    """

    path: str
    names: list[str] | None

    def foreign(self, dataset: Dataset | None, names: list[str]) -> frozenset[str]:
        """Return the names, among some names of this folder, that the generator of the dataset does not write."""
        if self.names is None and dataset is not None:
            return dataset_folder.foreign_in(dataset, self.path, names)
        is_named = dataset_folder.names_of(dataset)
        return frozenset(name for name in names if not is_named(self.path, name))

    def listed(self, folder: int) -> list[str]:
        """Return the names, sorted: in the order in which the files were created, their inodes are next to each other.
        In the order of the folder, ext4 takes longer to remove them. folder: descriptor of the open folder.
        """
        return sorted(os.listdir(folder) if self.names is None else self.names)


def batches(root: int, dataset: Dataset | None, most: int) -> Iterator[NameBatch]:
    """Yield all names in the folders of a dataset except the names of its subfolders, about `most` at a time at the
    most, and at least once for each subfolder. A folder that has fewer files is not read, so that the processes that
    work on the batches read it.
    """
    is_small = dataset is not None and stored_parts.total(dataset) <= most * _lowest_folders(dataset)
    for folder in folders(root, dataset):
        if is_small and folder.path and not folder.inner:
            yield NameBatch(folder.path, None)
            continue
        names = []
        with os.scandir(folder.descriptor) as entries:
            for entry in entries:
                if entry.name not in folder.inner:
                    names.append(entry.name)
                if len(names) == most:
                    yield NameBatch(folder.path, names)
                    names = []
        if names or folder.path:
            yield NameBatch(folder.path, names)


def _lowest_folders(dataset: Dataset) -> int:
    """Return the number of folders that hold stored files."""
    return dataset.files if stored_parts.of(dataset).folder else dataset.leaves


@contextmanager
def opened(root: int, path: str) -> Iterator[int]:
    """Open the subfolder of a dataset at a path relative to the dataset's folder, and yield its descriptor. Links are
    not followed.
    """
    descriptor = os.dup(root)
    try:
        for name in filter(None, path.split("/")):
            inner = safe_folders.entered(name, descriptor)
            safe_folders.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        safe_folders.close(descriptor)


def make(root: int, path: str) -> None:
    """Create the subfolder of a dataset at a path relative to the dataset's folder, and the folders above it. Other
    ranks may create the same folders at the same time. On GlusterFS, such a folder may be missing or stale for one of
    them for a moment, and it is then created again. If the dataset's folder is shared with a group, the group may write
    to the subfolder, too.
    """
    try:
        _make_patiently(root, path)
    except OSError as fault:
        raise unusable(root, path, fault) from fault


def _make_patiently(root: int, path: str) -> None:
    for pause_s in _PAUSES_S:
        try:
            _make(root, path)
            with opened(root, path):
                return
        except OSError as fault:
            if fault.errno not in (errno.ENOENT, errno.ESTALE):
                raise
        time.sleep(pause_s)
    _make(root, path)


def _make(root: int, path: str) -> None:
    parts = path.split("/")
    for depth, name in enumerate(parts):
        with opened(root, "/".join(parts[:depth])) as above:
            try:
                os.mkdir(name, dir_fd=above)
            except FileExistsError:
                continue
            safe_folders.let_group_write(safe_folders.held(above) / name)


def unusable(root: int, path: str, fault: OSError) -> DlioError:
    """Return the error for a subfolder of a dataset that cannot be created or opened. If a link or a file is in its
    place, or in the place of a folder above it, the message names that. path: path of the subfolder relative to the
    dataset's folder.
    """
    folder = os.readlink(safe_folders.held(root))
    parts = path.split("/")
    for depth in range(len(parts)):
        part = "/".join(parts[: depth + 1])
        try:
            is_folder = stat.S_ISDIR(os.stat(part, dir_fd=root, follow_symlinks=False).st_mode)
        except OSError:
            break
        if not is_folder:
            return ConfigError(
                f"{os.path.join(folder, part)} is a link or not a folder; nothing was written; remove it"
            )
    return InfrastructureError(f"cannot use {os.path.join(folder, path)}: {filesystem.reason(fault, root)}")
