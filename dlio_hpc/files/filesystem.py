"""What kind of file system a path lies on, by its magic number: names of mounts lie, commands differ; statfs(2)."""

import ctypes
import os
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from dlio_hpc.errors import ABSENT, InfrastructureError, of_system

LUSTRE = 0x0BD00BD0
_KINDS = {
    LUSTRE: "lustre", 0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs", 0x6969: "nfs",
    0x794C7630: "overlay", 0x65735546: "fuse", 0x47504653: "gpfs", 0x19830326: "beegfs", 0x00C36400: "ceph",
    0x2FC12FC1: "zfs", 0xFE534D42: "smb", 0x5346414F: "afs", 0x01021997: "9p", 0x9FA0: "proc",
}  # fmt: skip


# Kinds whose reads become block requests of the process that reads: there alone its read_bytes (proc(5)) is the truth.
# FUSE, GPFS, BeeGFS and, since Linux 5.18, NFS leave it at 0; ZFS counts what it has in memory as well.
COUNTED = frozenset({"ext4", "xfs", "btrfs", "overlay"})
# Kinds whose data wait in the kernel's page cache and nowhere else on the node.
PAGED = COUNTED | {"lustre", "nfs", "fuse", "ceph", "smb", "9p", "afs"}
MEMORY = frozenset({"tmpfs", "ramfs"})


class FileSystem(Struct, frozen=True):
    """`source` and `mount`: as /proc/self/mountinfo has them, empty when it does not tell."""

    kind: str
    mount: str = ""
    source: str = ""

    @property
    def is_lustre(self) -> bool:
        return self.kind == "lustre"

    @property
    def words(self) -> str:
        """For people, and to tell one from another: "lustre /scratch"."""
        return f"{self.kind} {self.mount}".strip()

    @property
    def fsname(self) -> str:
        """Lustre's own name of the file system: mgs@tcp:/NAME or mgs@tcp:/NAME/below."""
        return self.source.rpartition(":/")[2].partition("/")[0]


def of(path: Path) -> FileSystem:
    """The file system of `path`, or of the nearest folder above it that exists."""
    there = existing(path)
    number = magic(there)
    mount, source = _mount(there)
    return FileSystem(_KINDS.get(number, f"0x{number:X}"), mount, source)


def unwritable(folder: str) -> str | None:
    """The reason why no file can be created in a folder, or in the nearest one above it that exists; None where one
    can.
    """
    import tempfile

    there = existing(Path(folder))
    try:
        with tempfile.TemporaryFile(dir=there):
            return None
    except OSError as fault:
        return f"nothing can be written to {there}: {fault.strerror}"


def is_there(path: str | Path) -> bool:
    """Is there something at a path? InfrastructureError where the system does not tell, which os.path.exists() takes
    for a no.
    """
    try:
        os.stat(path)
    except OSError as fault:
        if fault.errno in ABSENT:
            return False
        raise InfrastructureError(f"cannot look at {of_system(fault, path)}") from fault
    return True


def existing(path: Path) -> Path:
    """`path`, or the nearest folder above it that exists."""
    while not path.exists():
        path = path.parent
    return path.resolve()


def magic(path: Path) -> int:
    """f_type of statfs(2), which Python's statvfs leaves out; a long, and the first member, on 64-bit Linux."""
    buffer = (ctypes.c_long * 64)()
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), buffer):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return buffer[0] & 0xFFFFFFFF


def _mount(path: Path) -> tuple[str, str]:
    """Mount point and source of `path`: the longest mount point that leads to it, the last of its name."""
    best = ("", "")
    for mount, _, source in mounts():
        if path.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, source)
    return best


def mounts() -> Iterator[tuple[str, str, str]]:
    """Mount point, type and source of all that is mounted here; proc(5), mountinfo."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        left, _, right = line.partition(" - ")
        kind, source = right.split()[:2]
        yield _unescaped(left.split()[4]), kind, _unescaped(source)


def _unescaped(text: str) -> str:
    """Blanks and backslashes are octal escapes there."""
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text
