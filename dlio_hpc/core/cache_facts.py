"""Facts about the file system of a run that void evidence of reading storage (files/storage_proofs.py)."""

import fcntl
import os
import struct
from collections.abc import Iterable
from pathlib import Path

from dlio_hpc.files import block_devices, filesystem, storage_proofs

# ioctl(2) FS_IOC_FIEMAP of linux/fiemap.h: header, extents that are asked for, and the flag of a compressed or
# encrypted extent.
_FIEMAP = 0xC020660B
_HEADER, _EXTENT = struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL")
_EXTENTS, _ENCODED = 32, 0x8


def of(folder: Path, files: Iterable[str] = ()) -> list[str]:
    """Return the facts about the file system of a folder. files: some files that are read, to be checked for
    compression.
    """
    file_system = filesystem.of(folder)
    facts = {*file_system.options, *block_devices.below(file_system).facts}
    if file_system.kind in storage_proofs.COUNTED and any(map(_is_encoded, files)):
        facts.add(storage_proofs.COMPRESSED)
    return sorted(facts)


def _is_encoded(path: str) -> bool:
    """Return whether any of the first extents of a file is compressed."""
    request = bytearray(_HEADER.pack(0, 2**64 - 1, 0, 0, _EXTENTS, 0)) + bytes(_EXTENT.size * _EXTENTS)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.ioctl(descriptor, _FIEMAP, request)
        finally:
            os.close(descriptor)
    except OSError:
        return False  # a missing file, or a file system without this request
    count = _HEADER.unpack_from(request)[3]
    return any(
        _EXTENT.unpack_from(request, _HEADER.size + place * _EXTENT.size)[5] & _ENCODED for place in range(count)
    )
