"""Space and inodes that the generation of datasets takes, compared with what a file system has free."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.base import units
from dlio_hpc.base.errors import ConfigError, InfrastructureError
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.dataset import dataset_folder, dataset_tree, stored_parts
from dlio_hpc.dataset.dataset_folder import StoredDataset
from dlio_hpc.files import filesystem, safe_folders

# Ratio of required space to payload: headers and directories of the formats, and file system metadata.
_SPARE = 1.02
# The dataset's folder, its lock file, the fingerprint file, and the temporary file that replaces it.
_FIXED_INODES = 4
# A rank creates the next record of written files before it removes the last one.
_RECORDS_OF_RANK = 2


class Needs(NamedTuple):
    """What the generation of datasets takes. size: bytes. files: inodes of files and folders. is_known: whether the
    files that exist already could be counted in all unfinished datasets; those where they could not are left out.
    """

    size: float
    files: int
    is_known: bool = True


def needs(stored: StoredDataset, block: int = 1, ranks: int = 0) -> Needs:
    """Return what is needed to generate the dataset, or the files that are missing if its generation was interrupted.
    Files that exist count as whole. block: bytes of which each file takes a multiple; see filesystem.block_size().
    ranks: number of ranks that record what they write; 0 to count only what stays.
    """
    dataset = stored.descriptor
    if not dataset.is_generated or not dataset_folder.is_unwritten(stored):
        return Needs(0, 0)
    size = _sample_bytes(dataset, block)
    sides = sum(_rounded(side.file_size, block) for side in dataset_folder.sides(dataset))
    inodes = _inodes(dataset) + _RECORDS_OF_RANK * ranks
    try:
        entries, folders = _present(stored)
    except (OSError, InfrastructureError):
        return Needs(0, 0, is_known=False)
    files = dataset_folder.file_count(dataset)
    missing = max(0, files - max(0, entries - folders))
    lacking = size * missing / files if files else 0
    return Needs((lacking + sides) * _SPARE, max(0, inodes - entries))


def needs_of_all(all_stored: Sequence[StoredDataset], block: int = 1, ranks: int = 0) -> Needs:
    """Return what is needed to generate all these datasets. block, ranks: as for needs()."""
    parts = [needs(stored, block, ranks) for stored in all_stored]
    return Needs(sum(part.size for part in parts), sum(part.files for part in parts), all(p.is_known for p in parts))


def _sample_bytes(dataset: Dataset, block: int) -> int:
    """Return the bytes that all sample files take."""
    files = dataset_folder.file_count(dataset)
    if not files:
        return 0
    indexes = dataset.index_bytes if dataset.facts.holds_columns else 0
    size = dataset.size + indexes + dataset.framing_bytes
    return size if block == 1 else _rounded(-(-size // files), block) * files


def _rounded(size: int, block: int) -> int:
    return -(-size // block) * block


def _inodes(dataset: Dataset) -> int:
    """Return the number of files and folders of a dataset."""
    folders, count = 0, 1
    for inner in dataset.subfolders or ():
        count *= inner
        folders += count
    if stored_parts.of(dataset).folder:
        folders += dataset.files
    return dataset_folder.file_count(dataset) + len(dataset_folder.sides(dataset)) + folders + _FIXED_INODES


def _present(stored: StoredDataset) -> tuple[int, int]:
    """Return the number of files and folders of an unfinished dataset that exist, and how many of them are not files in
    its folders.
    """
    entries = folders = 0
    if not os.path.lexists(stored.folder):
        return entries, folders
    with safe_folders.opened(stored.folder) as root:
        for folder in dataset_tree.folders(root, stored.descriptor):
            folders += len(folder.inner)
            with os.scandir(folder.descriptor) as names:
                entries += sum(1 for _ in names)
    is_locked = dataset_folder.lock_file(Path(stored.folder)).exists()
    return entries + 1 + is_locked, folders + 1 + is_locked  # the dataset's folder, and its lock file


def check_space(all_stored: Sequence[StoredDataset], folder: Path, ranks: int = 0) -> str:
    """Check whether the file system of `folder` has enough free space and inodes for these datasets. Return a message
    that states how much space is needed and how much is free. Raise ConfigError if there is not enough space or not
    enough inodes. ranks: number of ranks that generate a dataset.
    """
    block = filesystem.block_size(folder)
    wanted = needs_of_all(all_stored, block, ranks)
    free, left = filesystem.free(folder), filesystem.free_inodes(folder)
    summary = f"{units.format_size(wanted.size)} needed, {units.format_size(free)} free"
    if free < wanted.size:
        is_rounded = wanted.size > 1.1 * needs_of_all(all_stored, ranks=ranks).size
        per_file = f" (each file takes whole blocks of {units.format_size(block)})" if is_rounded else ""
        raise ConfigError(
            f"the dataset needs {units.format_size(wanted.size)}{per_file}, but {folder} has "
            f"{units.format_size(free)} free; choose another --data or a smaller --dataset-size"
        )
    if left is not None:
        if left < wanted.files:
            raise ConfigError(
                f"the dataset needs {wanted.files:,} inodes for files and folders, but {folder} has {left:,} left; "
                "choose another --data or a smaller --dataset-size"
            )
        summary += f"; {wanted.files} inodes needed, {left} free"
    unknown = "; unknown how much the unfinished datasets lack, because their folders cannot be read"
    return summary + ("" if wanted.is_known else unknown)


def begin(stored: StoredDataset, ranks: int) -> None:
    """Write a fingerprint file that marks the dataset as incomplete, before the dataset is generated. Raise ConfigError
    if there is not enough space. The space is not checked again if an interrupted generation continues. ranks: number
    of ranks that generate the dataset.
    """
    folder = Path(stored.folder)
    is_new = dataset_folder.read(folder) is None
    try:
        if is_new:
            check_space([stored], folder, ranks)
        dataset_folder.mark(stored, complete=False)
    except OSError as fault:
        where = filesystem.named(fault, stored.folder)
        raise InfrastructureError(f"cannot write {where}; choose another --data") from fault
