"""layout/before.yaml and layout/after.yaml: file system of the dataset, layout asked for, and actual layout."""

import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from dlio_hpc import document, units
from dlio_hpc.config.lustre_layout import Layout
from dlio_hpc.files import rundir
from dlio_hpc.files.filesystem import FileSystem
from dlio_hpc.lustre.lfs import Found

# Targets per file up to which they are listed. On more targets, the time of a file says little about a single target.
_MOST_TARGETS = 8


class Kind(Struct, frozen=True):
    """Number of files with the same layout. parts: the layout, without targets."""

    files: int
    parts: Found


class Record(Struct, frozen=True):
    """Record of a layout. asked: null if the layout was left alone. lfs: version of the client. looked_at: number of
    `files` that were read back. stripes: number of their stripes on each target. targets: targets of each of these
    files, unless a file has too many. faults: differences from the layout asked for.
    """

    time: str
    host: str
    path: str
    file_system: FileSystem
    asked: Layout | None
    lfs: str | None = None
    directory: Found | None = None
    files: int = 0
    looked_at: int = 0
    layouts: tuple[Kind, ...] = ()
    stripes: dict[int, int] = {}
    targets: dict[str, tuple[int, ...]] = {}
    faults: tuple[str, ...] = ()
    schema: int = 1


def kinds(layouts: list[Found]) -> tuple[Kind, ...]:
    """Return the layouts of files, the most frequent first."""
    bare = [tuple(msgspec.structs.replace(part, targets=(), first=-1) for part in parts) for parts in layouts]
    return tuple(Kind(count, parts) for parts, count in Counter(bare).most_common())


def stripes(layouts: list[Found]) -> dict[int, int]:
    """Return the number of stripes of all files on each target."""
    counts = Counter(target for parts in layouts for part in parts for target in part.targets)
    return dict(sorted(counts.items()))


def targets(layouts: dict[str, Found]) -> dict[str, tuple[int, ...]]:
    """Return the targets of each file, by its name. Empty if a file is on more than _MOST_TARGETS targets."""
    listed = {
        os.path.basename(path): tuple(sorted({target for part in parts for target in part.targets}))
        for path, parts in layouts.items()
    }
    return listed if all(len(numbers) <= _MOST_TARGETS for numbers in listed.values()) else {}


def write(directory: Path, name: str, record: Record) -> None:
    """Write a record to the folder layout/ of the job."""
    import yaml

    (directory / rundir.LAYOUT).mkdir(exist_ok=True)
    content: Any = msgspec.to_builtins(record, enc_hook=int)
    rundir.write(directory / rundir.LAYOUT / name, yaml.safe_dump(content, sort_keys=False).encode())


def read(content: bytes, source: str) -> Record:
    """Return the record in `content`. Raise ConfigError if it is not a record."""
    return document.convert(document.parse_yaml(content.decode(errors="replace"), source), Record, source)


def describe(record: Record) -> str:
    """Return a record as a line of text."""
    from dlio_hpc.config import lustre_layout

    if not record.file_system.is_lustre:
        return f"{record.file_system.kind}, not Lustre: the layout asked for was not set"
    asked = "left alone" if record.asked is None else f"asked for {lustre_layout.describe(record.asked)}"
    actual = "; ".join(f"{kind.files} file(s) with {_parts(kind.parts)}" for kind in record.layouts) or "no files yet"
    return f"Lustre, {asked}; read back: {actual}"


def found(record: Record) -> str:
    """Return the striping of the files that were read back, the most frequent first. Empty if no file was read back."""
    return "; ".join(_parts(kind.parts) for kind in record.layouts)


def _parts(parts: Found) -> str:
    return ", then ".join(
        f"{part.stripe_count} stripe(s) of {units.format_size(part.stripe_size)}"
        + (f" in pool {part.pool}" if part.pool else "")
        for part in parts
    )
