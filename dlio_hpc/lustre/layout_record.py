"""Files layout/before.yaml and layout/after.yaml: file system of the dataset, requested layout, and actual layout."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dlio_hpc.base import serialization, units
from dlio_hpc.config.lustre_layout import Layout
from dlio_hpc.files import rundir
from dlio_hpc.files.filesystem import FileSystem
from dlio_hpc.lustre.lfs import DirectoryLayout, LayoutComponents

# Largest number of targets of a file that are listed. If a file has more targets, its read time says little about each
# of them.
_MOST_TARGETS = 8


class Kind(Struct, frozen=True):
    """A layout, and the number of files that have this layout. parts: components of the layout, without the target
    numbers.
    """

    files: int
    parts: LayoutComponents


class FolderKind(Struct, frozen=True):
    """A layout of directories, and the number of subfolders that have this layout."""

    folders: int
    layout: DirectoryLayout


class Record(Struct, frozen=True):
    """Record of the layout of a dataset. path: the dataset's folder. asked: the requested layout; None if none was
    requested. lfs: version of the Lustre client. directory: layout that new files get in the folder. files: number of
    files of the dataset. looked_at: number of files whose layout was read back. layouts: layouts of these files.
    stripes: number of stripes of these files on each target. targets: targets of each of these files; empty if any of
    these files is on more than eight targets. folder, new_subfolders, subfolders: if a layout of directories is
    requested, layout of the dataset's folder, default layout of its new subfolders, and layouts of the subfolders of
    these files. faults: differences from the requested layout.
    """

    time: str
    host: str
    path: str
    file_system: FileSystem
    asked: Layout | None
    lfs: str | None = None
    directory: LayoutComponents | None = None
    files: int = 0
    looked_at: int = 0
    layouts: tuple[Kind, ...] = ()
    stripes: dict[int, int] = {}
    targets: dict[str, tuple[int, ...]] = {}
    folder: DirectoryLayout | None = None
    new_subfolders: DirectoryLayout | None = None
    subfolders: tuple[FolderKind, ...] = ()
    faults: tuple[str, ...] = ()
    schema: int = 1


def kinds(layouts: list[LayoutComponents]) -> tuple[Kind, ...]:
    """Return the different layouts, each with the number of files that have it. The most frequent layout is first."""
    bare = [tuple(msgspec.structs.replace(part, targets=(), first=-1) for part in parts) for parts in layouts]
    return tuple(Kind(count, parts) for parts, count in Counter(bare).most_common())


def folder_kinds(layouts: list[DirectoryLayout]) -> tuple[FolderKind, ...]:
    """Return the different layouts of directories, without the numbers of their first targets. The most frequent layout
    is first.
    """
    bare = [msgspec.structs.replace(layout, index=-1) for layout in layouts]
    return tuple(FolderKind(count, layout) for layout, count in Counter(bare).most_common())


def stripes(layouts: list[LayoutComponents]) -> dict[int, int]:
    """Return, for each target, the number of stripes that all these files together have on it."""
    counts = Counter(target for parts in layouts for part in parts for target in part.targets)
    return dict(sorted(counts.items()))


def targets(layouts: dict[str, LayoutComponents]) -> dict[str, tuple[int, ...]]:
    """Return the targets of each file by file name. Return {} if any of the files is on more than eight targets."""
    listed = {
        os.path.basename(path): tuple(sorted({target for part in parts for target in part.targets}))
        for path, parts in layouts.items()
    }
    return listed if all(len(numbers) <= _MOST_TARGETS for numbers in listed.values()) else {}


def write(directory: Path, name: str, record: Record) -> None:
    """Write a record to the file `name` in the folder layout/ of the job."""
    import yaml

    (directory / rundir.LAYOUT).mkdir(exist_ok=True)
    content: Any = msgspec.to_builtins(record, enc_hook=int)
    rundir.write(directory / rundir.LAYOUT / name, yaml.safe_dump(content, sort_keys=False).encode())


def read(content: bytes, source: str) -> Record:
    """Parse the content of a record file. source: file name for messages. Raise ConfigError if the content is not a
    record.
    """
    return serialization.convert(serialization.parse_yaml(content.decode(errors="replace"), source), Record, source)


def describe(record: Record) -> str:
    """Return a line of text with the requested layout and the layouts that were read back."""
    from dlio_hpc.config import lustre_layout

    if not record.file_system.is_lustre:
        return f"{record.file_system.kind}, not Lustre: the requested layout was not set"
    asked = "no layout requested" if record.asked is None else f"requested: {lustre_layout.describe(record.asked)}"
    actual = (
        "; ".join(f"{units.counted(kind.files, 'file')} with {_parts(kind.parts)}" for kind in record.layouts)
        or "no files yet"
    )
    folders = [] if record.folder is None else [f"folder {lustre_layout.mdts(record.folder.count)}"]
    folders += [
        f"{units.counted(kind.folders, 'subfolder')} {lustre_layout.mdts(kind.layout.count)}"
        for kind in record.subfolders
    ]
    return "; ".join((f"Lustre, {asked}; read back: {actual}", *folders))


def striping(record: Record) -> str:
    """Return a description of the striping of the files whose layout was read back. The most frequent striping is
    first. Return "" if no layout of a file was read back.
    """
    return "; ".join(_parts(kind.parts) for kind in record.layouts)


def _parts(parts: LayoutComponents) -> str:
    return ", then ".join(
        f"{units.counted(part.stripe_count, 'stripe')} of {units.format_size(part.stripe_size)}"
        + (f" in pool {part.pool}" if part.pool else "")
        for part in parts
    )
