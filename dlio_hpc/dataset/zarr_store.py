"""Files of a generated Zarr store: the metadata of its array, and the chunks or shards."""

import functools
import json
import math
from collections.abc import Sequence
from typing import Any

from dlio_hpc.config.dataset_keys import ITEM_BYTES, LEVEL, Dataset
from dlio_hpc.dataset import chunk_grid
from dlio_hpc.dataset.chunk_grid import Shape

# Names of the files that hold the metadata of an array, by the version of the format.
METADATA = {2: ".zarray", 3: "zarr.json"}
# Name of the file that shows that a folder is a group of version 2.
GROUP = ".zgroup"
# Settings of blosc: those that numcodecs has as defaults.
BLOSC_LEVEL, BLOSC_CODEC = 5, "lz4"
# Level of zstd: its own default, as in zarr-python.
_ZSTD_LEVEL = 0
# Separator of the numbers in the name of a file. With a dot, all files of a store are in one folder.
_SEPARATOR = "."
# Largest number of digits of a number in the name of a file.
_MOST_DIGITS = 20


class PartNames(Sequence[str]):
    """Names of the files of a store: the metadata, and then the chunks or shards in the order of the grid. Names are
    computed, because a store may have millions of files. version: of the format. grid: number of files on each axis.
    """

    __slots__ = ("_grid", "_metadata", "_prefix", "_total")

    def __init__(self, version: int, grid: Shape) -> None:
        self._metadata = METADATA[version]
        self._prefix = "" if version == 2 else f"c{_SEPARATOR}"
        self._grid = grid
        self._total = math.prod(grid) + 1

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, number: Any) -> Any:
        """Return the name of a file. number: 0 for the metadata, and from 1 on for chunks."""
        if isinstance(number, slice):
            return [self[at] for at in range(*number.indices(self._total))]
        number = number + self._total if number < 0 else number
        if not 0 <= number < self._total:
            raise IndexError(number)
        return self._prefix + _SEPARATOR.join(map(str, self.at(number))) if number else self._metadata

    def at(self, number: int) -> Shape:
        """Return the place of a chunk in the grid. number: as for a name, at least 1."""
        number, reversed_place = number - 1, []
        for extent in reversed(self._grid):
            number, place = divmod(number, extent)
            reversed_place.append(place)
        return tuple(reversed(reversed_place))

    def index(self, value: str, *_: int) -> int:
        """Return the number of the file with a name. Raise ValueError if there is none."""
        if value == self._metadata:
            return 0
        texts = value.removeprefix(self._prefix).split(_SEPARATOR)
        if len(texts) != len(self._grid) or not all(text.isdecimal() and len(text) < _MOST_DIGITS for text in texts):
            raise ValueError(value)
        at = tuple(min(int(text), extent - 1) for text, extent in zip(texts, self._grid, strict=True))
        if self[self.part(at)] != value:
            raise ValueError(value)
        return self.part(at)

    def part(self, at: Shape) -> int:
        """Return the number of the file with a chunk or shard. at: its place in the grid."""
        number = 0
        for place, extent in zip(at, self._grid, strict=True):
            number = number * extent + place
        return number + 1


def stored_shape(dataset: Dataset) -> Shape:
    """Return the shape of the part of the array that a file holds: a shard or a chunk."""
    return dataset.zarr_keys.shard or _chunk(dataset)


def part_names(dataset: Dataset) -> PartNames:
    """Return the names of the files of each store of a dataset."""
    return PartNames(dataset.zarr_keys.version, chunk_grid.of(dataset.array_shape, stored_shape(dataset)))


def metadata_name(dataset: Dataset) -> str:
    """Return the name of the file of metadata in each store of a dataset."""
    return METADATA[dataset.zarr_keys.version]


@functools.lru_cache(8)
def metadata(dataset: Dataset) -> bytes:
    """Return the content of the file of metadata in each store of a dataset."""
    fields = _of_version_2(dataset) if dataset.zarr_keys.version == 2 else _of_version_3(dataset)
    return json.dumps(fields, indent=2).encode() + b"\n"


def _chunk(dataset: Dataset) -> Shape:
    assert dataset.chunk_shape is not None
    return dataset.chunk_shape


def _level(dataset: Dataset) -> int:
    return LEVEL if dataset.level is None else dataset.level


def _blosc(dataset: Dataset) -> dict[str, Any]:
    return {"cname": BLOSC_CODEC, "clevel": BLOSC_LEVEL, "blocksize": 0}


def _of_version_2(dataset: Dataset) -> dict[str, Any]:
    name = dataset.sample.array_dtype
    kind = "f" if name.startswith("float") else "u" if name.startswith("u") else "i"
    width, compression = ITEM_BYTES[name], dataset.compression
    settings = {
        "none": None,
        "gzip": {"level": _level(dataset)},
        "zlib": {"level": _level(dataset)},
        "zstd": {"level": _ZSTD_LEVEL},
        "blosc": {**_blosc(dataset), "shuffle": 1},
    }[compression]
    return {
        "zarr_format": 2,
        "shape": dataset.array_shape,
        "chunks": _chunk(dataset),
        "dtype": f"{'<' if width > 1 else '|'}{kind}{width}",
        "compressor": None if settings is None else {"id": compression, **settings},
        "fill_value": 0,
        "order": "C",
        "filters": None,
        "dimension_separator": _SEPARATOR,
    }


def _of_version_3(dataset: Dataset) -> dict[str, Any]:
    codecs: list[dict[str, Any]] = [{"name": "bytes", "configuration": {"endian": "little"}}]
    width, compression = dataset.sample.item_bytes, dataset.compression
    settings: dict[str, dict[str, Any]] = {
        "gzip": {"level": _level(dataset)},
        "zstd": {"level": _ZSTD_LEVEL, "checksum": False},
        "blosc": {**_blosc(dataset), "typesize": width, "shuffle": "shuffle"},
    }
    if compression != "none":
        codecs.append({"name": compression, "configuration": settings[compression]})
    if dataset.zarr_keys.shard is not None:
        sharding = {
            "chunk_shape": _chunk(dataset),
            "codecs": codecs,
            "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
            "index_location": "end",
        }
        codecs = [{"name": "sharding_indexed", "configuration": sharding}]
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": dataset.array_shape,
        "data_type": dataset.sample.array_dtype,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": stored_shape(dataset)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": _SEPARATOR}},
        "fill_value": 0,
        "codecs": codecs,
        "attributes": {},
    }
