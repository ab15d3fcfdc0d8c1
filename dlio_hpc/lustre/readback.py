"""Comparison of the actual layout with the requested one. A difference makes all measurements of the job invalid."""

from collections.abc import Iterator

from dlio_hpc.base.units import counted, format_size
from dlio_hpc.config.lustre_layout import Component, Directories, Layout, mdts
from dlio_hpc.lustre.lfs import DirectoryLayout, LayoutComponent, LayoutComponents


def differences(asked: Layout, actual: LayoutComponents, available: int | None, is_file: bool) -> list[str]:
    """Return the differences between the requested and the actual layout. available: number of storage targets in the
    file system or in the requested pool; None if it is unknown. is_file: whether `actual` is the layout of a file and
    not of a folder.
    """
    if not asked.is_of_files:
        return []
    wanted: tuple[Layout | Component, ...] = asked.components or (asked,)
    if len(wanted) != len(actual):
        return [f"{_parts(len(actual))}, requested: {_parts(len(wanted))}"]
    messages = []
    for number, (part, actual_part) in enumerate(zip(wanted, actual, strict=True), 1):
        where = f"component {number}: " if asked.components else ""
        messages += [where + message for message in _differences(part, actual_part, available, is_file)]
    return messages


def directory_differences(asked: Directories, actual: DirectoryLayout, available: int | None) -> list[str]:
    """Return the differences between the requested and the actual layout of a directory, or of the default for its new
    subfolders. available: number of metadata targets in the file system; None if it is unknown.
    """
    is_default = actual.inherit is not None
    messages = []
    # A folder on one MDT may have one stripe or none. Its default may name all MDTs as -1; a folder has their number.
    count = available or actual.count if asked.count == -1 and not is_default else asked.count
    if mdts(count) != mdts(actual.count):
        few = (
            f" ({counted(available, 'MDT')} exist{'s' if available == 1 else ''})"
            if available is not None and available < asked.count
            else ""
        )
        messages.append(f"{mdts(actual.count)}, requested: {mdts(asked.count)}{few}")
    if asked.index is not None and asked.index != actual.index:
        messages.append(f"first stripe on MDT {actual.index}, requested: MDT {asked.index}")
    if asked.hash is not None and asked.hash != actual.hash:
        messages.append(f"hash {actual.hash}, requested: {asked.hash}")
    if is_default and asked.inherit != actual.inherit:
        messages.append(f"inherited by {actual.inherit} levels of subfolders, requested: {asked.inherit}")
    return [f"new subfolders: {message}" if is_default else message for message in messages]


def _parts(count: int) -> str:
    return "no components" if count == 1 else f"{count} components"


def _differences(
    asked: Layout | Component, actual: LayoutComponent, available: int | None, is_file: bool
) -> Iterator[str]:
    if isinstance(asked, Component):
        if asked.end != actual.end:
            yield f"it ends at {actual.end or 'end of file'}, requested: {asked.end or 'end of file'}"
        if asked.mdt != (actual.pattern == "mdt"):
            yield f"pattern {actual.pattern}, requested: {'the metadata server' if asked.mdt else 'storage targets'}"
    else:
        yield from _of_plain(asked, actual, available, is_file)
    if asked.stripe_count is not None:
        yield from _count(asked.stripe_count, actual.stripe_count, available, is_file and bool(actual.targets))
    if asked.stripe_size is not None and asked.stripe_size != actual.stripe_size:
        yield f"stripes of {format_size(actual.stripe_size)}, requested: {format_size(asked.stripe_size)}"
    if asked.pool is not None and asked.pool != actual.pool:
        yield f"{f'pool {actual.pool}' if actual.pool else 'no pool'}, requested: pool {asked.pool}"


def _of_plain(asked: Layout, actual: LayoutComponent, available: int | None, is_file: bool) -> Iterator[str]:
    """Yield the differences between the requested and the actual plain layout, except for stripe count, stripe size and
    pool, which are not compared here. Lustre overstripes a file only if there are fewer targets than requested stripes.
    A file that is not overstriped although overstriping was requested is therefore reported only if there are fewer
    targets than requested stripes.
    """
    if asked.stripe_index is not None and asked.stripe_index != actual.first:
        yield f"first stripe on target {actual.first}, requested: {asked.stripe_index}"
    crowded = available is not None and available < (asked.stripe_count or 0)
    if asked.overstripe and crowded and is_file and "overstriped" not in actual.pattern:
        yield f"pattern {actual.pattern}, requested: overstriped"


def _count(asked: int, actual: int, available: int | None, written: bool) -> Iterator[str]:
    """Yield a difference if the actual stripe count is not the requested one. If `asked` is -1, one stripe on every
    target is requested. A file to which data have been written must then have as many stripes as there are targets.
    written: whether data have been written to the file.
    """
    if asked == -1 and written:
        if available is not None and actual != available:
            yield f"{counted(actual, 'stripe')}, requested: all {available} targets"
    elif asked != actual:
        few = f" ({available} targets exist)" if available is not None and available < asked else ""
        yield f"{counted(actual, 'stripe')}, requested: {'all targets' if asked == -1 else asked}{few}"
