"""What was asked for against what is there: a layout that is not as asked makes every figure of the job invalid."""

from collections.abc import Iterator

from dlio_hpc.config.lustre_layout import Component, Layout
from dlio_hpc.lustre.lfs import Found, Part
from dlio_hpc.units import format_size


def differences(asked: Layout, found: Found, available: int | None, is_file: bool) -> list[str]:
    """What is not as asked; `available`: storage targets of the file system, or of the pool asked for, if known."""
    wanted: tuple[Layout | Component, ...] = asked.components or (asked,)
    if len(wanted) != len(found):
        return [f"{_parts(len(found))}, asked for {_parts(len(wanted))}"]
    told = []
    for number, (part, there) in enumerate(zip(wanted, found, strict=True), 1):
        where = f"component {number}: " if asked.components else ""
        told += [where + words for words in _differences(part, there, available, is_file)]
    return told


def _parts(count: int) -> str:
    return "no components" if count == 1 else f"{count} components"


def _differences(asked: Layout | Component, found: Part, available: int | None, is_file: bool) -> Iterator[str]:
    if isinstance(asked, Component):
        if asked.end != found.end:
            yield f"it ends at {found.end or 'the end'}, asked for {asked.end or 'the end'}"
        if asked.mdt != (found.pattern == "mdt"):
            yield f"pattern {found.pattern}, asked for {'the metadata server' if asked.mdt else 'storage targets'}"
    else:
        yield from _of_plain(asked, found, available, is_file)
    if asked.stripe_count is not None:
        yield from _count(asked.stripe_count, found.stripe_count, available, is_file and bool(found.targets))
    if asked.stripe_size is not None and asked.stripe_size != found.stripe_size:
        yield f"stripes of {format_size(found.stripe_size)}, asked for {format_size(asked.stripe_size)}"
    if asked.pool is not None and asked.pool != found.pool:
        yield f"{f'pool {found.pool}' if found.pool else 'no pool'}, asked for pool {asked.pool}"


def _of_plain(asked: Layout, found: Part, available: int | None, is_file: bool) -> Iterator[str]:
    """Where there are targets enough, Lustre does without overstriping."""
    if asked.stripe_index is not None and asked.stripe_index != found.first:
        yield f"the first stripe on target {found.first}, asked for {asked.stripe_index}"
    crowded = available is not None and available < (asked.stripe_count or 0)
    if asked.overstripe and crowded and is_file and "overstriped" not in found.pattern:
        yield f"pattern {found.pattern}, asked for overstriped"


def _count(asked: int, found: int, available: int | None, written: bool) -> Iterator[str]:
    """A file that asked for all targets has as many stripes as there are."""
    if asked == -1 and written:
        if available is not None and found != available:
            yield f"{found} stripe(s), asked for all {available} targets"
    elif asked != found:
        few = f" ({available} targets are there)" if available is not None and available < asked else ""
        yield f"{found} stripe(s), asked for {'all targets' if asked == -1 else asked}{few}"
