"""Type of the file system that holds a path. The type is determined by the magic number of statfs(2), because the names
of mount points can be misleading, and the output of commands differs between systems.
"""

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


# Types whose reads become block requests of the reading process. Only for these types, read_bytes of proc(5) is
# correct. On FUSE, GPFS, BeeGFS and, since Linux 5.18, NFS it stays 0. On ZFS it includes reads from memory.
COUNTED = frozenset({"ext4", "xfs", "btrfs", "overlay"})
# Types whose data are cached only in the kernel's page cache on the node.
PAGED = COUNTED | {"lustre", "nfs", "fuse", "ceph", "smb", "9p", "afs"}
MEMORY = frozenset({"tmpfs", "ramfs"})
# Types with a cache of their own that O_DIRECT does not bypass (OpenZFS before 2.3).
OWN_CACHE = frozenset({"zfs"})


class FileSystem(Struct, frozen=True):
    """A mounted file system. kind: type of the file system. mount, source: mount point and source from
    /proc/self/mountinfo; empty if the file system is not listed there.
    """

    kind: str
    mount: str = ""
    source: str = ""

    @property
    def is_lustre(self) -> bool:
        return self.kind == "lustre"

    @property
    def text(self) -> str:
        """Type and mount point, such as "lustre /scratch"."""
        return f"{self.kind} {self.mount}".strip()

    @property
    def fsname(self) -> str:
        """Lustre's name for the file system: NAME in the source mgs@tcp:/NAME or mgs@tcp:/NAME/below."""
        return self.source.rpartition(":/")[2].partition("/")[0]


def of(path: Path) -> FileSystem:
    """Return the file system that holds `path`. If `path` does not exist, return the one that holds its nearest
    existing parent.
    """
    nearest = existing(path)
    number = magic(nearest)
    mount, source = _mount(nearest)
    return FileSystem(_KINDS.get(number, f"0x{number:X}"), mount, source)


def unwritable(folder: str) -> str | None:
    """Try to create a temporary file in a folder, or in its nearest existing parent. Return the reason if that fails,
    or None if it works.
    """
    import tempfile

    nearest = existing(Path(folder))
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as fault:
        return f"cannot create files in {nearest}: {fault.strerror}"


def is_there(path: str | Path) -> bool:
    """Return whether the path exists. Raise InfrastructureError if the system cannot tell, unlike os.path.exists(),
    which returns False.
    """
    try:
        os.stat(path)
    except OSError as fault:
        if fault.errno in ABSENT:
            return False
        raise InfrastructureError(f"cannot access {of_system(fault, path)}") from fault
    return True


def free(path: Path) -> int:
    """Return the bytes that this user may still write to the file system of `path`."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def existing(path: Path) -> Path:
    """Return `path`, or its nearest existing parent, with links resolved."""
    while not path.exists():
        path = path.parent
    return path.resolve()


def magic(path: Path) -> int:
    """Return the magic number of the file system of `path`: f_type of statfs(2), which Python's statvfs() omits. f_type
    is the first member of the structure, a long on 64-bit Linux.
    """
    import ctypes  # takes a millisecond, and a dry run does not need it

    buffer = (ctypes.c_long * 64)()
    if ctypes.CDLL(None, use_errno=True).statfs(os.fsencode(path), buffer):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(path))
    return buffer[0] & 0xFFFFFFFF


def _mount(path: Path) -> tuple[str, str]:
    """Return the mount point and the source of the file system of `path`. Of the mount points above the path, the
    longest applies. If several file systems are mounted there, the one that mountinfo lists last applies.
    """
    best = ("", "")
    for mount, _, source in mounts():
        if path.is_relative_to(mount) and len(mount) >= len(best[0]):
            best = (mount, source)
    return best


def mounts() -> Iterator[tuple[str, str, str]]:
    """Yield the mount point, type and source of every mount, from /proc/self/mountinfo (proc(5))."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        left, _, right = line.partition(" - ")
        kind, source = right.split()[:2]
        yield _unescaped(left.split()[4]), kind, _unescaped(source)


def _unescaped(text: str) -> str:
    """Decode the octal escapes of mountinfo: blank, tab, line break and backslash."""
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text
