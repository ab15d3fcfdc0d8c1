"""A Lustre layout: how the files of a dataset are striped, as a site or a user asks for it; lfs-setstripe(1)."""

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, Struct

from dlio_hpc import units

_UNIT = 64 * 1024
_MOST_STRIPES, _LONGEST_POOL = 2000, 15

Count = Annotated[int, Meta(ge=-1)]
Index = Annotated[int, Meta(ge=0)]
Version = tuple[int, ...]


class Component(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of every file. What is null is as in the component before, or as the file system has it."""

    end: units.Size | None = None
    """Where the component ends in the file; null: at the end of the file. Example: 1 GiB"""
    stripe_count: Count | None = None
    """Stripes; -1: all storage targets; null: as the component before. Example: 8"""
    stripe_size: units.Size | None = None
    """Bytes of a stripe. Example: 1 MiB"""
    pool: str | None = None
    """Pool of storage targets. Example: flash"""
    mdt: bool = False
    """On the metadata server (DoM); the first component only."""

    def __post_init__(self) -> None:
        check_stripes(self.stripe_count, self.stripe_size, self.pool)
        if self.end is not None and (self.end < _UNIT or self.end % _UNIT):
            raise ValueError(f"end is a multiple of 64 KiB, not {self.end}")
        if self.end is not None and self.stripe_size is not None and self.end % self.stripe_size:
            raise ValueError(f"end {self.end} is no multiple of stripe_size {self.stripe_size}")
        stripes = (self.stripe_count, self.stripe_size, self.pool)
        if self.mdt and any(value is not None for value in stripes):
            raise ValueError("a component on the metadata server has no stripes and no pool")


class Layout(Struct, frozen=True, forbid_unknown_fields=True):
    """Layout of new files of the dataset: stripes, or components of a progressive file layout (PFL)."""

    stripe_count: Count | None = None
    """Stripes; -1: all storage targets. Example: 8"""
    stripe_size: units.Size | None = None
    """Bytes of a stripe. Example: 1 MiB"""
    stripe_index: Index | None = None
    """Storage target of the first stripe. Example: 0"""
    pool: str | None = None
    """Pool of storage targets. Example: flash"""
    overstripe: bool = False
    """Allow several stripes on one target."""
    components: tuple[Component, ...] = ()
    """Components of a progressive file layout, instead of stripes."""

    def __post_init__(self) -> None:
        stripes = (self.stripe_count, self.stripe_size, self.stripe_index, self.pool)
        asked = any(value is not None for value in stripes) or self.overstripe
        if self.components and asked:
            raise ValueError("components say by themselves how they are striped; leave out the other keys")
        if not self.components and not asked:
            raise ValueError("nothing is asked for; write layout: null to leave the layout alone")
        check_stripes(self.stripe_count, self.stripe_size, self.pool)
        if self.overstripe and (self.stripe_count is None or self.stripe_count < 1):
            raise ValueError("overstripe needs a stripe_count of 1 or more")
        _check_ends(self.components)


def check_stripes(count: int | None, size: int | None, pool: str | None) -> None:
    """ValueError for what every Lustre refuses."""
    if count is not None and (count == 0 or count > _MOST_STRIPES):
        raise ValueError(f"stripe_count is 1 to {_MOST_STRIPES}, or -1 for all storage targets, not {count}")
    if size is not None and (size < _UNIT or size % _UNIT or size >= 1 << 32):
        raise ValueError(f"stripe_size is a multiple of 64 KiB below 4 GiB, not {size}")
    if pool is not None and not (0 < len(pool) <= _LONGEST_POOL and pool.replace("_", "").replace("-", "").isalnum()):
        raise ValueError(f"pool is a name of at most {_LONGEST_POOL} letters and digits, not {pool!r}")


def _check_ends(components: tuple[Component, ...]) -> None:
    ends = [component.end for component in components]
    if any(end is None for end in ends[:-1]):
        raise ValueError("only the last component has no end")
    known = [end for end in ends if end is not None]
    if known != sorted(set(known)):
        raise ValueError(f"components end one after the other, not at {known}")
    if any(component.mdt for component in components[1:]):
        raise ValueError("only the first component can lie on the metadata server")
    if components and components[0].mdt and ends[0] is None:
        raise ValueError("a component on the metadata server has an end")


def pools(layout: Layout) -> set[str | None]:
    """The pools of all its parts; None: of no pool in particular."""
    return {part.pool for part in layout.components} if layout.components else {layout.pool}


def arguments(layout: Layout) -> list[str]:
    """The options of `lfs setstripe`. Sizes are in bytes: what a bare small number means has changed with versions."""
    if not layout.components:
        index = [] if layout.stripe_index is None else ["-i", str(layout.stripe_index)]
        return [*_stripes(layout, "-C" if layout.overstripe else "-c"), *index]
    words: list[str] = []
    for component in layout.components:
        words += ["-E", "-1" if component.end is None else str(int(component.end))]
        words += ["-L", "mdt"] if component.mdt else _stripes(component, "-c")
    return words


def _stripes(part: Layout | Component, count: str) -> list[str]:
    words = []
    if part.stripe_count is not None:
        words += [count, str(part.stripe_count)]
    if part.stripe_size is not None:
        words += ["-S", str(int(part.stripe_size))]
    if part.pool is not None:
        words += ["-p", part.pool]
    return words


def needs(layout: Layout) -> Iterator[tuple[str, Version]]:
    """What of the layout a Lustre client must be new enough for."""
    if layout.components:
        yield "components (PFL)", (2, 10)
    if any(component.mdt for component in layout.components):
        yield "mdt (DoM)", (2, 11)
    if layout.overstripe:
        yield "overstripe", (2, 13)


def describe(layout: Layout) -> str:
    """One line for people: "48 stripes of 1 MiB"."""
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
