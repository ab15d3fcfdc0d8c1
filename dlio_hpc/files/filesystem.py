"""Kind of the file system that holds a path. The kind is determined by the magic number of statfs(2), because the names
of mount points can be misleading, and the output of commands differs between systems. File systems in user space share
one magic number; their kind is the type in /proc/self/mountinfo, such as fuse.glusterfs.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from msgspec import Struct

from dlio_hpc.base.errors import ABSENT, InfrastructureError, of_system
from dlio_hpc.files import storage_proofs

T = TypeVar("T")
LUSTRE = 0x0BD00BD0
_KINDS = {
    LUSTRE: "lustre", 0xEF53: "ext4", 0x58465342: "xfs", 0x9123683E: "btrfs", 0x01021994: "tmpfs", 0x6969: "nfs",
    0x794C7630: "overlay", 0x47504653: "gpfs", 0x19830326: "beegfs", 0x00C36400: "ceph",
    0x2FC12FC1: "zfs", 0xFE534D42: "smb", 0x5346414F: "afs", 0x01021997: "9p", 0x858458F6: "ramfs",
    0x958458F6: "hugetlbfs", 0x9FA0: "proc",
}  # fmt: skip

# Free inodes as statvfs(3) has them where their number is unlimited: -1, as CephFS says, in each of its sizes.
_UNLIMITED = {-1, 2**32 - 1, 2**64 - 1}
# Kinds of file systems that belong to one computer.
LOCAL = frozenset({"ext4", "xfs", "btrfs", "tmpfs", "ramfs", "zfs", "overlay"})
# Kinds of file systems that are known to allocate whole blocks of f_frsize bytes for each file. Others may store small
# files in another way, or report another size, such as the largest request of NFS.
_WITH_BLOCKS = {"ext4", "xfs", "tmpfs", "overlay"}
# Options of an overlay that name layers.
_LAYERS = ("lowerdir", "lowerdir+", "datadir+", "upperdir")
# Magic number of all file systems in user space, and of virtiofs.
_FUSE = 0x65735546


class FileSystem(Struct, frozen=True, omit_defaults=True):
    """A mounted file system. kind: kind of the file system. mount, source: mount point and source from
    /proc/self/mountinfo; empty if the file system is not listed there. options: options of the mount that determine
    where its client caches data. device: number of its block device, such as 8:1. layers: folders of the layers of an
    overlay.
    """

    kind: str
    mount: str = ""
    source: str = ""
    options: tuple[str, ...] = ()
    device: str = ""
    layers: tuple[str, ...] = ()

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
    mount = _mount(nearest)
    kind = (mount.type or "fuse") if number == _FUSE else _KINDS.get(number, f"0x{number:X}")
    options = tuple(option for option in mount.options if storage_proofs.is_fact(option))
    return FileSystem(kind, mount.point, mount.source, options, _device(nearest), _layers(mount))


def _device(path: Path) -> str:
    number = os.stat(path).st_dev
    return f"{os.major(number)}:{os.minor(number)}"


def _layers(mount: "Mount") -> tuple[str, ...]:
    """Return the folders of the layers of an overlay, including data-only layers, from the options of its mount."""
    if mount.type != "overlay":
        return ()
    values = [value for name, _, value in (option.partition("=") for option in mount.options) if name in _LAYERS]
    return tuple(layer for value in values for layer in value.split(":") if layer)


def unexpected(folder: Path, kind: str | None) -> str | None:
    """Return the reason why a folder is not on the kind of file system that the site expects (site.file_system). Return
    None if the folder is on this kind, or if the site expects no kind. If the file system is not mounted, the folder is
    on the disk below the mount point.
    """
    actual = of(folder)
    if kind is None or actual.kind == kind:
        return None
    return f"{folder} is on {actual.text}, but the site expects {kind} (site.file_system); is it mounted here?"


def unwritable(folder: str) -> str | None:
    """Try to create a temporary file in a folder, or in its nearest existing parent. Return the reason if that fails,
    or None if it works.
    """
    import tempfile

    nearest = Path(folder)
    try:
        nearest = existing(nearest)
        with tempfile.TemporaryFile(dir=nearest):
            return None
    except OSError as fault:
        return f"cannot create files in {nearest}: {fault.strerror}"


def is_there(path: str | Path) -> bool:
    """Return whether the path exists. If the system does not answer this, raise InfrastructureError, whereas
    os.path.exists() would return False.
    """
    try:
        os.stat(path)
    except OSError as fault:
        if fault.errno in ABSENT:
            return False
        raise InfrastructureError(f"cannot access {of_system(fault, path)}") from fault
    return True


def reason(fault: OSError, folder: int | str) -> str:
    """Return the reason of an error. The system has one error for a file system without free space and for one without
    free inodes. folder: path or descriptor of a folder on the file system.
    """
    text = fault.strerror or str(fault)
    if fault.errno != errno.ENOSPC:
        return text
    free = os.fstatvfs(folder) if isinstance(folder, int) else os.statvfs(folder)
    if free.f_files and not free.f_favail:
        return f"{text}: the file system has no inodes left (df -i); remove files, or choose another --data"
    return text


def named(fault: OSError, folder: str) -> str:
    """Return the path that an error concerns, and its reason; see reason(). folder: path of a folder on the file
    system, to which the path of the error may be relative.
    """
    return of_system(OSError(fault.errno, reason(fault, folder), fault.filename), folder)


def block_size(path: Path) -> int:
    """Return the bytes of which each file takes a multiple on the file system of an existing path; 1 if unknown."""
    return os.statvfs(path).f_frsize if _KINDS.get(magic(path)) in _WITH_BLOCKS else 1


def free_inodes(path: Path) -> int | None:
    """Return the number of inodes that this user may still use on the file system of an existing path. Return None if
    the file system has no fixed number of inodes.
    """
    status = os.statvfs(path)
    return None if not status.f_files or status.f_favail in _UNLIMITED else status.f_favail


def free(path: Path) -> int:
    """Return the bytes that this user may still write to the file system of `path`."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def request_block(path: Path) -> int:
    """Return the block size in bytes that the file system of `path` recommends for requests."""
    return os.statvfs(path).f_bsize


def answered(ask: Callable[[], T], patience_s: float) -> T | None:
    """Return the result of `ask`, a function that queries file systems. Return None if it raises OSError, or if it has
    not returned after `patience_s` seconds because storage does not respond.
    """
    results: list[T] = []

    def run() -> None:
        with suppress(OSError):
            results.append(ask())

    asking = threading.Thread(target=run, daemon=True)
    asking.start()
    asking.join(patience_s)
    return results[0] if results else None


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


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo (proc(5)). point: mount point. type, source: type and source of the file system.
    options: options of the mount and of the file system. device: device number of its files.
    """

    point: str
    type: str
    source: str
    options: tuple[str, ...]
    device: str = ""


def _mount(path: Path) -> Mount:
    """Return the mount of the file system of `path`. Of the mount points above the path, the longest with the device
    number of the path is used, because other mounts may be hidden. If no mount has this number, the longest mount point
    is used. If several file systems are mounted there, the one that mountinfo lists last applies.
    """
    number = _device(path)
    above = [mount for mount in mounts() if path.is_relative_to(mount.point)]
    fitting = [mount for mount in above if mount.device == number] or above
    return max(reversed(fitting), key=lambda mount: len(mount.point), default=Mount("", "", "", ()))


def mounts() -> Iterator[Mount]:
    """Yield every mount in /proc/self/mountinfo."""
    try:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, (kind, source, options) = left.split(), right.split(" ")[:3]
        every = tuple(map(_unescaped, (*fields[5].split(","), *options.split(","))))
        yield Mount(_unescaped(fields[4]), kind, _unescaped(source), every, fields[2])


def mounts_in(folder: Path) -> Iterator[str]:
    """Yield the mount points in a folder, relative to it. A bind mount has the device number of its file system, so
    stat(2) does not show it.
    """
    place = os.path.join(os.path.realpath(folder), "")
    for mount in mounts():
        if str(mount.point).startswith(place):
            yield str(mount.point).removeprefix(place)


def _unescaped(text: str) -> str:
    """Decode the octal escapes of mountinfo: blank, tab, line break and backslash."""
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text
