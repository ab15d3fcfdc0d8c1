"""Index of a shard: the offset and the size of each chunk in it (Zarr codec sharding_indexed, version 1.0)."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dlio_hpc.dataset.zarr_metadata import CHECKSUM, ENTRY, ZarrMetadata

# Offset and size of a chunk that is not stored: it has the fill value.
MISSING = 2**64 - 1

Index = npt.NDArray[np.uint64]


def packed(entries: Sequence[tuple[int, int]]) -> bytes:
    """Return an index with its checksum. entries: offset and size of each chunk, in the order of the grid."""
    import google_crc32c

    index = np.array(entries, "<u8").tobytes()
    checksum: int = google_crc32c.value(index)
    return index + checksum.to_bytes(CHECKSUM, "little")


def parsed(data: bytes, metadata: ZarrMetadata, size: int) -> Index:
    """Return the index of a shard, of shape (*chunks of the shard, 2). data: its bytes. size: bytes of the shard. Raise
    ValueError if it is damaged, or points outside of the shard.
    """
    import google_crc32c

    assert metadata.shards is not None
    if metadata.shards.has_checksum:
        data, stored = data[:-CHECKSUM], int.from_bytes(data[-CHECKSUM:], "little")
        if google_crc32c.value(data) != stored:
            raise ValueError("its index has a wrong CRC32C")
    index = np.frombuffer(data, "<u8").reshape(-1, ENTRY // 8)
    offsets, sizes = index[:, 0], index[:, 1]
    is_stored = (offsets != MISSING) | (sizes != MISSING)
    is_outside = is_stored & ((offsets > size) | (sizes > np.uint64(size) - np.minimum(offsets, size)))
    if (is_stored & (sizes == 0)).any():
        raise ValueError(f"its index says that chunk {int((is_stored & (sizes == 0)).argmax())} has no bytes")
    if is_outside.any():
        at = int(is_outside.argmax())
        raise ValueError(f"its index says that chunk {at} has {sizes[at]} bytes at byte {offsets[at]}, outside of it")
    return index.reshape(*metadata.chunks_of_shard, ENTRY // 8).astype(np.uint64)
