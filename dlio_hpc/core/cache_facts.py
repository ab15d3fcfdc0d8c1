"""Facts that can invalidate the evidence that data of a run came from storage, or were written to storage. The table
VOIDED in files/storage_proofs.py states which evidence each fact invalidates.
"""

import fcntl
import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path

from dlio_hpc.core import page_cache, preloads, procfs
from dlio_hpc.files import block_devices, filesystem, storage_proofs

# ioctl(2) FS_IOC_FIEMAP of linux/fiemap.h: header, extents that are asked for, and the flag of a compressed or
# encrypted extent.
_FIEMAP = 0xC020660B
_HEADER, _EXTENT = struct.Struct("=QQLLLL"), struct.Struct("=QQQQQLLLL")
_EXTENTS, _ENCODED = 32, 0x8
# Number of files that are checked for compressed extents. Smallest allocated share of the size of a file without holes.
_ENCODED_FILES, _DENSE = 8, 0.9


def of(folder: Path, files: Sequence[str] = ()) -> list[str]:
    """Return the facts about the file system of a folder. files: files that are read; each is checked for compression,
    for holes, and for being on another file system.
    """
    file_system = filesystem.of(folder)
    facts = {*file_system.options, *block_devices.below(file_system).facts}
    if not preloads.syncs():
        facts.add(storage_proofs.NO_FSYNC)
    if preloads.replacing(preloads.READS):
        facts.add(storage_proofs.REPLACED)
    statuses = {path: status for path in files if (status := _status(path)) is not None}
    if any(status.st_blocks * 512 < _DENSE * status.st_size for status in statuses.values()):
        facts.add(storage_proofs.SPARSE)
    sample = list(statuses)[:: max(1, len(statuses) // _ENCODED_FILES)]
    if any(not page_cache.is_shown(path, statuses[path]) for path in sample):
        facts.add(storage_proofs.FOREIGN)
    nearest = filesystem.existing(folder)
    if file_system.kind in ("overlay", "btrfs"):  # their files have other device numbers than their folders
        is_elsewhere = len({_mount_id(str(nearest)), *map(_mount_id, statuses)}) > 1
    else:
        is_elsewhere = len({os.stat(nearest).st_dev, *(status.st_dev for status in statuses.values())}) > 1
    if is_elsewhere:
        facts.add(storage_proofs.ELSEWHERE)
    if file_system.kind in storage_proofs.COUNTED and any(map(_is_encoded, sample)):
        facts.add(storage_proofs.COMPRESSED)
    return sorted(facts)


def _status(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except OSError:
        return None  # a missing file, which reading it reports


def _mount_id(path: str) -> str:
    """Return the number of the mount that holds a file, or an empty text if it cannot be determined."""
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return next(iter(re.findall(r"(?m)^mnt_id:\s*(\d+)", procfs.text(f"/proc/self/fdinfo/{descriptor}"))), "")
    finally:
        os.close(descriptor)


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
