"""A Lustre layout: the striping of a dataset's files and directories, which a site profile or a user sets. See
lfs-setstripe(1) and lfs-setdirstripe(1).
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dlio_hpc.base import units

_UNIT = 64 * 1024
_MOST_STRIPES, _LONGEST_POOL = 2000, 15
_MOST_LEVELS = 250

Count = Annotated[int, Meta(ge=-1)]
Index = Annotated[int, Meta(ge=0)]
Levels = Annotated[int, Meta(ge=-1, le=_MOST_LEVELS)]
Hash = Literal["crush", "fnv_1a_64", "all_char"]
Version = tuple[int, ...]


class Component(Struct, frozen=True, forbid_unknown_fields=True):
    """A component of a progressive file layout: a range of bytes in every file. If a key is null, the value of the
    previous component applies; for the first component, the default of the file system.
    """

    end: units.Size | None = None
    """Offset in the file at which the component ends; null: the end of the file. Example: 1 GiB"""
    stripe_count: Count | None = None
    """Number of stripes; -1: one on every storage target; null: as in the previous component. Example: 8"""
    stripe_size: units.Size | None = None
    """Size of a stripe. Example: 1 MiB"""
    pool: str | None = None
    """Name of a pool of storage targets. Example: flash"""
    mdt: bool = False
    """Store the component on the metadata server (Data-on-MDT); allowed for the first component only."""

    def __post_init__(self) -> None:
        check_stripes(self.stripe_count, self.stripe_size, self.pool)
        if self.end is not None and (self.end < _UNIT or self.end % _UNIT):
            raise ValueError(f"end must be a multiple of 64 KiB, not {self.end}")
        if self.end is not None and self.stripe_size is not None and self.end % self.stripe_size:
            raise ValueError(f"end {self.end} is not a multiple of stripe_size {self.stripe_size}")
        stripes = (self.stripe_count, self.stripe_size, self.pool)
        if self.mdt and any(value is not None for value in stripes):
            raise ValueError("a component on the metadata server has no stripes and no pool")


class Directories(Struct, frozen=True, forbid_unknown_fields=True):
    """Layout of the folder of a generated dataset on the metadata targets (MDTs) of the file system. For users other
    than root, Lustre needs the permission mdt.*.enable_remote_dir_gid on its servers.
    """

    count: Count = 1
    """Number of MDTs that hold the entries of the folder; -1: all. Example: 4"""
    index: Index | None = None
    """Index of the first MDT; null: Lustre chooses it. Example: 0"""
    hash: Hash | None = None
    """Hash function that assigns names of entries to MDTs; null: the default of the file system. Example: crush"""
    inherit: Levels = 0
    """Levels of subfolders that get the same layout; -1: all levels. 0: Lustre chooses the layout of subfolders.
    Example: 2"""

    def __post_init__(self) -> None:
        if self.count == 0 or self.count > _MOST_STRIPES:
            raise ValueError(f"count must be 1 to {_MOST_STRIPES}, or -1 for all MDTs, not {self.count}")
        if self.count == 1 and self.hash is not None:
            raise ValueError("hash needs a count of 2 or more, or -1")


class Layout(Struct, frozen=True, forbid_unknown_fields=True):
    """Layout of a generated dataset. For its files: plain striping, or components of a progressive file layout (PFL).
    For its folder: `directories`.
    """

    stripe_count: Count | None = None
    """Number of stripes; -1: one on every storage target. Example: 8"""
    stripe_size: units.Size | None = None
    """Size of a stripe. Example: 1 MiB"""
    stripe_index: Index | None = None
    """Index of the storage target of the first stripe. Example: 0"""
    pool: str | None = None
    """Name of a pool of storage targets. Example: flash"""
    overstripe: bool = False
    """Allow several stripes on one target."""
    components: tuple[Component, ...] = ()
    """Components of a progressive file layout; replaces the keys of plain striping."""
    directories: Directories | None = None
    """Layout of the dataset's folder on metadata targets; null: not set. Example: {count: 4, inherit: 2}"""

    @property
    def is_of_files(self) -> bool:
        """Whether the layout sets the striping of files."""
        return bool(self.components) or self._is_plain

    @property
    def _is_plain(self) -> bool:
        stripes = (self.stripe_count, self.stripe_size, self.stripe_index, self.pool)
        return any(value is not None for value in stripes) or self.overstripe

    def __post_init__(self) -> None:
        if self.components and self._is_plain:
            raise ValueError("components replace plain striping; remove the other keys of the layout")
        if not self.is_of_files and self.directories is None:
            raise ValueError("the layout is empty; write layout: null for the file system's default")
        check_stripes(self.stripe_count, self.stripe_size, self.pool)
        if self.overstripe and (self.stripe_count is None or self.stripe_count < 1):
            raise ValueError("overstripe needs a stripe_count of 1 or more")
        _check_ends(self.components)


def check_stripes(count: int | None, size: int | None, pool: str | None) -> None:
    """Raise ValueError for striping that all versions of Lustre reject."""
    if count is not None and (count == 0 or count > _MOST_STRIPES):
        raise ValueError(f"stripe_count must be 1 to {_MOST_STRIPES}, or -1 for all storage targets, not {count}")
    if size is not None and (size < _UNIT or size % _UNIT or size >= 1 << 32):
        raise ValueError(f"stripe_size must be a multiple of 64 KiB below 4 GiB, not {size}")
    if pool is not None and not (0 < len(pool) <= _LONGEST_POOL and pool.replace("_", "").replace("-", "").isalnum()):
        raise ValueError(f"pool must be a name of at most {_LONGEST_POOL} letters, digits, - and _, not {pool!r}")


def _check_ends(components: tuple[Component, ...]) -> None:
    ends = [component.end for component in components]
    if any(end is None for end in ends[:-1]):
        raise ValueError("all components except the last need an end")
    known = [end for end in ends if end is not None]
    if known != sorted(set(known)):
        raise ValueError(f"the ends of components must increase; found {known}")
    if any(component.mdt for component in components[1:]):
        raise ValueError("only the first component can be on the metadata server")
    if components and components[0].mdt and ends[0] is None:
        raise ValueError("a component on the metadata server needs an end")


def unfinished(layout: Layout | None) -> str | None:
    """Return why files that are longer than the last component cannot be written; None if all files can. Layouts of
    earlier jobs may be so.
    """
    end = layout.components[-1].end if layout is not None and layout.components else None
    if end is None:
        return None
    return (
        f"the last component ends at {units.format_size(end)}, and files cannot be written beyond it; leave its end "
        "null, which is the end of the file, or add a component after it"
    )


def pools(layout: Layout) -> set[str | None]:
    """Return the names of the storage pools that the layout uses. If the layout or one of its components names no pool,
    the set also contains None.
    """
    return {part.pool for part in layout.components} if layout.components else {layout.pool}


def commands(layout: Layout, folder: str) -> list[list[str]]:
    """Return the commands that create `folder` with the layout."""
    made: list[list[str]] = []
    if (directories := layout.directories) is not None:
        made.append(["lfs", "mkdir", *_on_mdts(directories), folder])
        if directories.inherit:
            levels = ["--max-inherit", str(directories.inherit)]
            made.append(["lfs", "setdirstripe", "-D", *_on_mdts(directories), *levels, folder])
    if layout.is_of_files:
        made.append(["lfs", "setstripe", *arguments(layout), folder])
    return made


def _on_mdts(directories: Directories) -> list[str]:
    index = [] if directories.index is None else ["-i", str(directories.index)]
    return ["-c", str(directories.count), *index, *([] if directories.hash is None else ["-H", directories.hash])]


def arguments(layout: Layout) -> list[str]:
    """Return the options of `lfs setstripe` for the layout. Sizes are written in bytes, because the meaning of small
    numbers without a unit differs between versions.
    """
    if not layout.components:
        index = [] if layout.stripe_index is None else ["-i", str(layout.stripe_index)]
        return [*_stripes(layout, "-C" if layout.overstripe else "-c"), *index]
    options: list[str] = []
    for component in layout.components:
        options += ["-E", "-1" if component.end is None else str(int(component.end))]
        options += ["-L", "mdt"] if component.mdt else _stripes(component, "-c")
    return options


def _stripes(part: Layout | Component, count: str) -> list[str]:
    options = []
    if part.stripe_count is not None:
        options += [count, str(part.stripe_count)]
    if part.stripe_size is not None:
        options += ["-S", str(int(part.stripe_size))]
    if part.pool is not None:
        options += ["-p", part.pool]
    return options


def needs(layout: Layout) -> Iterator[tuple[str, Version]]:
    """Yield pairs for the features of the layout that some Lustre clients do not support: the feature, and the oldest
    client version that supports it.
    """
    if layout.components:
        yield "components (PFL)", (2, 10)
    if any(component.mdt for component in layout.components):
        yield "mdt (DoM)", (2, 11)
    if layout.overstripe:
        yield "overstripe", (2, 13)
    if (directories := layout.directories) is not None:
        yield "directories", (2, 12)
        if directories.hash == "crush":
            yield "directories.hash: crush", (2, 14)
        if directories.inherit:
            yield "directories.inherit", (2, 15)


def describe(layout: Layout) -> str:
    """Return a description of the layout in one line, such as "48 stripes of 1 MiB"."""
    folder = "" if layout.directories is None else f"folder {_describe_folder(layout.directories)}"
    return ", ".join(filter(None, (_describe_files(layout) if layout.is_of_files else "", folder)))


def _describe_folder(directories: Directories) -> str:
    extras = [
        "" if directories.index is None else f"from MDT {directories.index}",
        "" if directories.hash is None else f"hash {directories.hash}",
        {0: "", -1: "inherited by all subfolders"}.get(
            directories.inherit, f"inherited by {units.counted(directories.inherit, 'level')} of subfolders"
        ),
    ]
    return ", ".join(filter(None, (mdts(directories.count), *extras)))


def mdts(count: int) -> str:
    """Return a phrase for the number of MDTs of a directory. count: -1 for all MDTs; 0 for a directory without
    stripes, which is on one MDT.
    """
    return "on all MDTs" if count == -1 else f"on {units.counted(max(count, 1), 'MDT')}"


def _describe_files(layout: Layout) -> str:
    if layout.components:
        return ", then ".join(f"{_describe(part)} {_until(part)}" for part in layout.components)
    extras = [
        "overstriped" if layout.overstripe else "",
        "" if layout.stripe_index is None else f"from target {layout.stripe_index}",
    ]
    return ", ".join(filter(None, (_describe(layout), *extras)))


def _describe(part: Layout | Component) -> str:
    if isinstance(part, Component) and part.mdt:
        return "on the metadata server"
    count = {None: "stripes", -1: "a stripe on every target", 1: "1 stripe"}.get(
        part.stripe_count, f"{part.stripe_count} stripes"
    )
    size = "" if part.stripe_size is None else f" of {units.format_size(part.stripe_size)}"
    return count + size + ("" if part.pool is None else f" in pool {part.pool}")


def _until(part: Component) -> str:
    return "to the end" if part.end is None else f"up to {units.format_size(part.end)}"
