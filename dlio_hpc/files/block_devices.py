"""Block devices below a file system, from /sys/dev/block (sysfs(5)): disks, and devices that keep data in memory."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.files import filesystem, storage_proofs
from dlio_hpc.files.filesystem import FileSystem
from dlio_hpc.files.storage_proofs import LOOP, MEMORY_DEVICE

_SYSFS = Path("/sys/dev/block")
# Names of devices that keep their data in memory: brd, zram, null_blk.
_IN_MEMORY = ("ram", "zram", "nullb")
_SECTOR = 512


class Stack(NamedTuple):
    """Devices below a file system. facts: facts that void evidence (storage_proofs). disks: folders in sysfs of the
    devices at the bottom, which have the counters of what was read; empty if they are not known.
    """

    facts: frozenset[str]
    disks: tuple[Path, ...]

    @property
    def bytes_read(self) -> int:
        """Bytes that the disks have delivered since the node started. Raise OSError if a counter cannot be read."""
        return sum(int((disk / "stat").read_text(encoding="ascii").split()[2]) * _SECTOR for disk in self.disks)


def below(file_system: FileSystem) -> Stack:
    """Return the devices below a file system. A file system without a block device has none."""
    number = _number(file_system.source)
    if number is None:
        return Stack(frozenset(), ())
    parts = list(_walk((_SYSFS / number).resolve()))
    facts = frozenset(fact for part in parts for fact in part.facts)
    is_known = all(part.disks or MEMORY_DEVICE in part.facts for part in parts)
    return Stack(facts, tuple(disk for part in parts for disk in part.disks) if is_known else ())


def _number(source: str) -> str | None:
    """Return the number of a block device, such as 7:0; None if the source of a file system is not a device."""
    try:
        number = os.stat(source).st_rdev if source.startswith("/dev/") else 0
    except OSError:
        return None
    return f"{os.major(number)}:{os.minor(number)}" if number else None


def _walk(device: Path) -> Iterator[Stack]:
    """Yield the devices at the bottom of a device, which is a folder in sysfs."""
    slaves = [slave.resolve() for slave in (device / "slaves").iterdir()] if (device / "slaves").is_dir() else []
    if device.name.startswith(_IN_MEMORY):
        yield Stack(frozenset({MEMORY_DEVICE}), ())
    elif (device / "loop" / "backing_file").is_file():
        yield _loop(device / "loop")
    elif slaves:
        for slave in slaves:
            yield from _walk(slave)
    else:
        yield Stack(frozenset(), (device,) if (device / "stat").is_file() else ())


def _loop(loop: Path) -> Stack:
    """Return what is below a loop device. With direct I/O, the device bypasses the page cache of its own file."""
    backing = filesystem.of(Path((loop / "backing_file").read_text(encoding="utf-8").rstrip("\n")))
    is_direct = (loop / "dio").is_file() and (loop / "dio").read_text(encoding="ascii").strip() == "1"
    if backing.kind in storage_proofs.MEMORY:
        return Stack(frozenset({MEMORY_DEVICE}), ())
    own: frozenset[str] = frozenset() if is_direct and storage_proofs.of(backing.kind).direct else frozenset({LOOP})
    deeper = below(backing)
    return Stack(own | deeper.facts, deeper.disks)
