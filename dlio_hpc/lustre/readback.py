"""Comparison of the actual layout with the layout asked for. A difference makes all figures of the job invalid."""

from collections.abc import Iterator

from dlio_hpc.config.lustre_layout import Component, Layout
from dlio_hpc.lustre.lfs import Found, LayoutComponent
from dlio_hpc.units import format_size


def differences(asked: Layout, actual: Found, available: int | None, is_file: bool) -> list[str]:
    """Return the differences between two layouts. available: storage targets of the file system or of the pool asked
    for, None if unknown.
    """
    wanted: tuple[Layout | Component, ...] = asked.components or (asked,)
    if len(wanted) != len(actual):
        return [f"{_parts(len(actual))}, asked for {_parts(len(wanted))}"]
    messages = []
    for number, (part, actual_part) in enumerate(zip(wanted, actual, strict=True), 1):
        where = f"component {number}: " if asked.components else ""
        messages += [where + message for message in _differences(part, actual_part, available, is_file)]
    return messages


def _parts(count: int) -> str:
    return "no components" if count == 1 else f"{count} components"


def _differences(
    asked: Layout | Component, actual: LayoutComponent, available: int | None, is_file: bool
) -> Iterator[str]:
    if isinstance(asked, Component):
        if asked.end != actual.end:
            yield f"it ends at {actual.end or 'end of file'}, asked for {asked.end or 'end of file'}"
        if asked.mdt != (actual.pattern == "mdt"):
            yield f"pattern {actual.pattern}, asked for {'the metadata server' if asked.mdt else 'storage targets'}"
    else:
        yield from _of_plain(asked, actual, available, is_file)
    if asked.stripe_count is not None:
        yield from _count(asked.stripe_count, actual.stripe_count, available, is_file and bool(actual.targets))
    if asked.stripe_size is not None and asked.stripe_size != actual.stripe_size:
        yield f"stripes of {format_size(actual.stripe_size)}, asked for {format_size(asked.stripe_size)}"
    if asked.pool is not None and asked.pool != actual.pool:
        yield f"{f'pool {actual.pool}' if actual.pool else 'no pool'}, asked for pool {asked.pool}"


def _of_plain(asked: Layout, actual: LayoutComponent, available: int | None, is_file: bool) -> Iterator[str]:
    """Yield the differences of a plain layout. Lustre does not overstripe if there are enough targets."""
    if asked.stripe_index is not None and asked.stripe_index != actual.first:
        yield f"the first stripe on target {actual.first}, asked for {asked.stripe_index}"
    crowded = available is not None and available < (asked.stripe_count or 0)
    if asked.overstripe and crowded and is_file and "overstriped" not in actual.pattern:
        yield f"pattern {actual.pattern}, asked for overstriped"


def _count(asked: int, actual: int, available: int | None, written: bool) -> Iterator[str]:
    """Yield the difference between stripe counts. A written file on all targets has as many stripes as targets."""
    if asked == -1 and written:
        if available is not None and actual != available:
            yield f"{actual} stripe(s), asked for all {available} targets"
    elif asked != actual:
        few = f" ({available} targets exist)" if available is not None and available < asked else ""
        yield f"{actual} stripe(s), asked for {'all targets' if asked == -1 else asked}{few}"
