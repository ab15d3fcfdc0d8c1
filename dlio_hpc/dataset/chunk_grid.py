"""Grid of the chunks of an array. Chunks divide the array from its first value on. The last chunks of an axis may reach
beyond the array.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

Shape = tuple[int, ...]
# Half-open range of indices on each axis.
Region = Sequence[tuple[int, int]]


class Overlap(NamedTuple):
    """Part of a region that a chunk holds. at: index of the chunk on each axis of the grid. inside, outside: location
    of the part in the chunk, and in the region.
    """

    at: Shape
    inside: tuple[slice, ...]
    outside: tuple[slice, ...]


def of(shape: Sequence[int], chunk: Sequence[int]) -> Shape:
    """Return the number of chunks on each axis. shape, chunk: shapes of the array and of a chunk."""
    return tuple(-(-extent // part) for extent, part in zip(shape, chunk, strict=True))


def region(at: Sequence[int], shape: Sequence[int], chunk: Sequence[int]) -> list[tuple[int, int]]:
    """Return the region of a chunk, without what reaches beyond the array. at: index of the chunk on each axis."""
    return [
        (number * part, min((number + 1) * part, extent)) for number, part, extent in zip(at, chunk, shape, strict=True)
    ]


def overlaps(wanted: Region, chunk: Sequence[int]) -> Iterator[Overlap]:
    """Yield the chunks that hold a part of a region, in the order of the grid. chunk: shape of a chunk."""
    spans = [range(first // part, (end - 1) // part + 1) for (first, end), part in zip(wanted, chunk, strict=True)]
    for at in itertools.product(*spans):
        inside, outside = [], []
        for number, (first, end), part in zip(at, wanted, chunk, strict=True):
            low, high = max(first, number * part), min(end, (number + 1) * part)
            inside.append(slice(low - number * part, high - number * part))
            outside.append(slice(low - first, high - first))
        yield Overlap(at, tuple(inside), tuple(outside))
