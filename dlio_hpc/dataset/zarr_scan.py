"""Scan of existing Zarr stores: the arrays in them, and their samples. In the index of an existing dataset, the file of
an array is that of its metadata: .zarray or zarr.json.
"""

import itertools
import math
import os
from collections.abc import Iterator, Sequence

from dlio_hpc.base.errors import ConfigError, InfrastructureError, of_system
from dlio_hpc.dataset import array_scans, chunk_grid, zarr_metadata
from dlio_hpc.dataset.sample_index import Array, ScannedFile
from dlio_hpc.dataset.zarr_metadata import ZarrMetadata
from dlio_hpc.dataset.zarr_store import GROUP, METADATA

# Name of the file with the metadata of all arrays in a group of version 2.
_CONSOLIDATED = ".zmetadata"
# Names of files of arrays and groups that are no chunks.
_NO_CHUNKS = frozenset((*METADATA.values(), GROUP, _CONSOLIDATED, ".zattrs"))
# Largest number of files of chunks that hold parts of a sample.
_MOST_PIECES = 100_000
# Number of folders that are looked at to find the arrays of a group without consolidated metadata.
_MOST_FOLDERS = 10_000


def is_store(folder: str) -> bool:
    """Return whether a folder is an array or a group."""
    return zarr_metadata.find(folder) is not None or os.path.isfile(os.path.join(folder, GROUP))


def located(folder: str, array: str | None) -> str:
    """Return the path of the metadata of an array in a store. folder: path of the store. array: name of the array in
    the group; None if the folder is the array, or holds only one. Raise ConfigError if there is no such array.
    """
    path = zarr_metadata.find(folder)
    is_array = path is not None and _is_array(path)
    if is_array:
        if array is not None:
            raise ConfigError(f"{folder} is an array itself, and no group; leave dataset.existing.array null")
        return str(path)
    return _inner(folder, _only(folder, _arrays(folder)) if array is None else array)


def _inner(folder: str, array: str) -> str:
    """Return the path of the metadata of the array in a group. Links that leave the group are not followed."""
    inner = os.path.join(folder, array.strip("/"))
    inside = os.path.realpath(inner)
    if not inside.startswith(os.path.realpath(folder) + os.sep):
        raise ConfigError(f"{inner} is outside of the store {folder}; set dataset.existing.array to an array in it")
    path = zarr_metadata.find(inner)
    if path is None or not _is_array(path):
        raise ConfigError(
            f"{folder} has no array {array} (it has: {_listing(_arrays(folder))}); set dataset.existing.array"
        )
    return path


def _is_array(path: str) -> bool:
    """Return whether a file of metadata is that of an array and not of a group."""
    if path.endswith(METADATA[2]):
        return True
    return _fields(path).get("node_type") != "group"


def _fields(path: str) -> dict[str, object]:
    """Return the fields of a file of metadata. Raise ConfigError if it is damaged."""
    try:
        return zarr_metadata.decoded(zarr_metadata.content_of(path))
    except zarr_metadata.UnreadableMetadata as reason:
        raise _damaged(path, reason) from reason
    except OSError as fault:
        raise InfrastructureError(f"cannot read {of_system(fault, path)}") from fault


def _damaged(path: str, reason: Exception) -> ConfigError:
    return ConfigError(
        f"{path} is no metadata of a Zarr array that can be read: {reason}; repair it, or choose a pattern that leaves "
        "it out"
    )


def _arrays(folder: str) -> list[str]:
    """Return the names of the arrays in a group, sorted."""
    known = _consolidated(folder)
    return sorted(_walked(folder)) if known is None else sorted(known)


def _consolidated(folder: str) -> list[str] | None:
    """Return the names of the arrays in a group with consolidated metadata; None if it has none."""
    path, suffix = os.path.join(folder, _CONSOLIDATED), f"/{METADATA[2]}"
    if os.path.isfile(path):
        known = _entries(_fields(path))
        return None if known is None else [name.removesuffix(suffix) for name in known if name.endswith(suffix)]
    path = os.path.join(folder, METADATA[3])
    known = _entries(_fields(path).get("consolidated_metadata")) if os.path.isfile(path) else None
    return None if known is None else [name for name, entry in known.items() if entry.get("node_type") == "array"]


def _entries(fields: object) -> dict[str, dict[str, object]] | None:
    """Return the metadata of all nodes of a group, by their names; None if the fields have none that are valid."""
    entries = fields.get("metadata") if isinstance(fields, dict) else None
    is_valid = isinstance(entries, dict) and all(isinstance(entry, dict) for entry in entries.values())
    return entries if is_valid else None


def _walked(folder: str) -> Iterator[str]:
    """Yield the names of the arrays in a group, for which its folders are listed. Links are not followed."""
    for path, folders, _ in itertools.islice(os.walk(folder), _MOST_FOLDERS):
        metadata = zarr_metadata.find(path) if path != folder else None
        if metadata is not None and _is_array(metadata):
            folders.clear()
            yield os.path.relpath(path, folder)


def _only(folder: str, names: Sequence[str]) -> str:
    if len(names) != 1:
        raise ConfigError(
            f"{folder} does not hold exactly one array (it holds: {_listing(names)}); name the one to read with -S "
            "dataset.existing.array=NAME"
        )
    return names[0]


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "") if names else "none"


def scan(path: str) -> ScannedFile:
    """Scan an array. path: path of its metadata. Chunks are not looked at: those that are missing hold fill values."""
    try:
        metadata = zarr_metadata.read(path)
    except zarr_metadata.UnreadableMetadata as reason:
        raise _damaged(path, reason) from reason
    array_scans.check_array(path, metadata.shape, metadata.dtype)
    sample = metadata.shape[1:]
    pieces = math.prod(chunk_grid.of(sample, metadata.chunk[1:]))
    if pieces > _MOST_PIECES:
        raise ConfigError(
            f"{path}: a sample is in {pieces} chunks, but at most {_MOST_PIECES} can be read; choose an array with "
            "larger chunks"
        )
    chunk = (metadata.chunk[0], *map(min, metadata.chunk[1:], sample))
    form = Array(sample, array_scans.type_name(metadata.dtype), chunk, _compression(metadata), metadata.obstacle)
    return ScannedFile(array_scans.samples(path, None, 0, metadata.shape, metadata.dtype), form)


def gaps(path: str) -> int:
    """Return how many files of chunks an array lacks. path: path of its metadata. Files are counted, and their names
    are not compared: with files that are no chunks, the result may be too small, and a run then ends at a gap.
    """
    try:
        metadata = zarr_metadata.read(path)
    except zarr_metadata.UnreadableMetadata as reason:
        raise _damaged(path, reason) from reason
    present = 0
    for _, _, names in os.walk(os.path.dirname(path)):
        present += sum(name not in _NO_CHUNKS for name in names)
    return max(0, math.prod(chunk_grid.of(metadata.shape, metadata.stored)) - present)


def _compression(metadata: ZarrMetadata) -> str:
    """Return the compression of the chunks, a value of the key dataset.compression."""
    return next((name for name in metadata.compressors if name in zarr_metadata.COMPRESSORS), "none")
