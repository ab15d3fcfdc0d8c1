"""Block devices below a file system, from /sys/dev/block (sysfs(5)): disks, and devices that keep data in memory.

The devices are found from the device number of the files, not from names: a name may be missing in a container, or have
been given to another device. A device that cannot be found is recorded as a fact that invalidates evidence.
"""

import fcntl
import os
import struct
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.files.filesystem import FileSystem
from dlio_hpc.files.storage_proofs import DIRECT_LOOP, LOOP, MEMORY_DEVICE, UNKNOWN_DEVICE

_SYSFS, _BTRFS, _DEVICES = Path("/sys/dev/block"), Path("/sys/fs/btrfs"), Path("/dev")
# Names of devices that keep their data in memory: brd, zram, null_blk.
_IN_MEMORY = ("ram", "zram", "nullb")
_SECTOR = 512
# ioctl(2) LOOP_GET_STATUS64 of linux/loop.h: a structure that begins with the device and the inode of the file.
_GET_STATUS, _LOOP_STATUS = 0x4C05, struct.Struct("=QQ216x")
# File systems on which direct I/O of a loop device bypasses the page cache.
_DIRECT = ("ext4", "xfs", "nfs", "lustre")


class Stack(NamedTuple):
    """Devices below a file system. facts: facts that invalidate evidence (storage_proofs). disks: folders in sysfs of
    the devices at the bottom, which have the counters of what was read.
    """

    facts: frozenset[str]
    disks: tuple[Path, ...] = ()

    @property
    def bytes_read(self) -> list[int]:
        """Bytes that each disk has delivered since the node started, or 0 for a disk that does not count them. Raise
        OSError if a counter cannot be read.
        """
        return [
            0 if _is_off(disk) else int((disk / "stat").read_text(encoding="ascii").split()[2]) * _SECTOR
            for disk in self.disks
        ]


_UNKNOWN = Stack(frozenset({UNKNOWN_DEVICE}))


def _is_off(disk: Path) -> bool:
    """Return whether the counters of a disk are switched off. A partition has the counters of its disk."""
    switches = (disk / "queue/iostats", disk.parent / "queue/iostats")
    return any(switch.is_file() and switch.read_text(encoding="ascii").strip() == "0" for switch in switches)


def below(file_system: FileSystem) -> Stack:
    """Return the block devices below a file system. A file system whose reads do not become block requests has none."""
    if file_system.kind in storage_proofs.MEMORY:
        return Stack(frozenset({MEMORY_DEVICE}))
    if file_system.kind not in storage_proofs.COUNTED:
        return Stack(frozenset())
    if file_system.kind == "overlay":
        return _joined(map(_of_layer, file_system.layers)) if file_system.layers else _UNKNOWN
    if file_system.kind == "btrfs":
        return _of_btrfs(file_system.source)
    return _walked(_SYSFS / file_system.device)


def _joined(stacks: Iterable[Stack]) -> Stack:
    return reduce(lambda one, other: Stack(one.facts | other.facts, (*one.disks, *other.disks)), stacks)


def _of_layer(layer: str) -> Stack:
    """Return the devices below a layer of an overlay. The devices are unknown in two cases. If the file system of a
    layer makes no block requests, the kernel does not count its reads. If the path of a layer is relative, it belongs
    to another process.
    """
    if not os.path.isabs(layer) or not os.path.isdir(layer):
        return _UNKNOWN
    kind = filesystem.of(Path(layer))
    return below(kind) if kind.kind in storage_proofs.COUNTED | storage_proofs.MEMORY else _UNKNOWN


def _of_btrfs(source: str) -> Stack:
    """Return the devices of the btrfs on the device `source`. They are found from the device, because files of btrfs
    have other device numbers.
    """
    name = os.path.basename(os.path.realpath(source))
    for folder in _BTRFS.glob("*/devices"):
        devices = {device.name: device for device in folder.iterdir()}
        if name in devices:
            return _joined(_walked(device) for device in devices.values())
    return _UNKNOWN


def _walked(device: Path) -> Stack:
    """Return the devices at the bottom of a device, which is a folder in sysfs or a link to one."""
    device = device.resolve()
    slaves = list((device / "slaves").iterdir()) if (device / "slaves").is_dir() else []
    if device.name.startswith(_IN_MEMORY):
        return Stack(frozenset({MEMORY_DEVICE}))
    if (device / "loop" / "backing_file").is_file():
        return _loop(device / "loop")
    if slaves:
        return _joined(map(_walked, slaves))
    return Stack(frozenset(), (device,)) if (device / "stat").is_file() else _UNKNOWN


def _loop(loop: Path) -> Stack:
    """Return the devices below a loop device. With direct I/O, the device bypasses the page cache of its own file, but
    reads of holes in this file do not reach the disks. Another file system may also have been mounted over the path of
    the file.
    """
    path = Path((loop / "backing_file").read_text(encoding="utf-8").rstrip("\n"))
    if not path.exists() or _is_another(path, loop.parent.name):  # deleted, hidden, or in another mount namespace
        return Stack(frozenset({LOOP, UNKNOWN_DEVICE}))
    backing = filesystem.of(path)
    is_direct = (loop / "dio").is_file() and (loop / "dio").read_text(encoding="ascii").strip() == "1"
    own = frozenset({DIRECT_LOOP if is_direct and backing.kind in _DIRECT else LOOP})
    deeper = below(backing)
    return Stack(own | deeper.facts, deeper.disks)


def _is_another(path: Path, loop: str) -> bool:
    """Return whether a path leads to another file than the file of a loop device. Only root can determine this."""
    status = bytearray(_LOOP_STATUS.size)
    try:
        descriptor = os.open(_DEVICES / loop, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            fcntl.ioctl(descriptor, _GET_STATUS, status)
        finally:
            os.close(descriptor)
    except OSError:
        return False
    device, inode = _LOOP_STATUS.unpack(status)[:2]
    actual = path.stat()
    return bool((device, inode) != (actual.st_dev, actual.st_ino))
