"""layout/before.yaml and layout/after.yaml: where the dataset lies, what was asked for, what is there."""

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

# Of a file; on more, its time says little of any.
_MOST_TARGETS = 8


class Kind(Struct, frozen=True):
    """Files that lie alike; `parts` without their targets."""

    files: int
    parts: Found


class Record(Struct, frozen=True):
    """`asked` null: the layout was left alone. `lfs`: the client's version. `looked_at` of `files` were read back;
    `stripes`: how many of theirs lie on each target. `targets`: those of each of these files, unless they are too
    many to tell one from the other. `faults`: what is not as asked.
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


def kinds(found: list[Found]) -> tuple[Kind, ...]:
    """Layouts of files, the most frequent first."""
    bare = [tuple(msgspec.structs.replace(part, targets=(), first=-1) for part in parts) for parts in found]
    return tuple(Kind(count, parts) for parts, count in Counter(bare).most_common())


def stripes(found: list[Found]) -> dict[int, int]:
    """Stripes of all files on each target."""
    counts = Counter(target for parts in found for part in parts for target in part.targets)
    return dict(sorted(counts.items()))


def targets(found: dict[str, Found]) -> dict[str, tuple[int, ...]]:
    """Of each file, by its name; nothing where files are spread over so many that they tell nothing of one."""
    listed = {
        os.path.basename(path): tuple(sorted({target for part in parts for target in part.targets}))
        for path, parts in found.items()
    }
    return listed if all(len(each) <= _MOST_TARGETS for each in listed.values()) else {}


def write(directory: Path, name: str, record: Record) -> None:
    """Into the job's folder layout/."""
    import yaml

    (directory / rundir.LAYOUT).mkdir(exist_ok=True)
    content: Any = msgspec.to_builtins(record, enc_hook=int)
    rundir.write(directory / rundir.LAYOUT / name, yaml.safe_dump(content, sort_keys=False).encode())


def read(content: bytes, source: str) -> Record:
    """A record as it was written; ConfigError when it is none."""
    return document.convert(document.parse_yaml(content.decode(errors="replace"), source), Record, source)


def describe(record: Record) -> str:
    """One line for people."""
    from dlio_hpc.config import lustre_layout

    if not record.file_system.is_lustre:
        return f"{record.file_system.kind}, not Lustre: the layout asked for was not set"
    asked = "left alone" if record.asked is None else f"asked for {lustre_layout.describe(record.asked)}"
    found = "; ".join(f"{kind.files} file(s) with {_parts(kind.parts)}" for kind in record.layouts) or "no files yet"
    return f"Lustre, {asked}; read back: {found}"


def found(record: Record) -> str:
    """How the files that were looked at are striped, the most frequent first; empty where none was."""
    return "; ".join(_parts(kind.parts) for kind in record.layouts)


def _parts(parts: Found) -> str:
    return ", then ".join(
        f"{part.stripe_count} stripe(s) of {units.format_size(part.stripe_size)}"
        + (f" in pool {part.pool}" if part.pool else "")
        for part in parts
    )
