"""Counters of the file system client on this node: bytes that programs read, and bytes that servers sent."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.files.filesystem import FileSystem

# Locations of the statistics in different versions of Lustre. Since 2.13 most are in debugfs, which only root may read.
_LUSTRE = ("/proc/fs/lustre", "/sys/fs/lustre", "/sys/kernel/debug/lustre")
_MOUNTSTATS = "/proc/self/mountstats"


class Traffic(NamedTuple):
    """Read traffic of all processes on the node since the file system was mounted. asked: bytes that the read calls of
    these processes returned, from the cache or from servers. arrived: bytes that servers sent to the node.
    """

    asked: int
    arrived: int


def counter(file_system: FileSystem) -> Callable[[], Traffic | None] | None:
    """Return a function that reads the client's counters for this file system. Return None if there are no counters, or
    if they cannot be read.
    """
    ask: Callable[[], Traffic | None] | None = None
    if file_system.is_lustre and file_system.fsname:
        ask = partial(_lustre, file_system.fsname)
    elif file_system.kind == "nfs":
        ask = partial(_nfs, file_system.mount)
    return ask if ask is not None and ask() is not None else None


def _lustre(fsname: str) -> Traffic | None:
    """Read the counters of the Lustre client, or return None if they cannot be read. llite counts the bytes that
    programs read, osc the bytes from storage targets, and mdc the bytes from metadata targets (DoM).
    """
    for root in map(Path, _LUSTRE):
        asked = list(_read_bytes(root, f"llite/{fsname}-*/stats"))
        sent = list(_read_bytes(root, f"osc/{fsname}-OST*/stats"))
        if asked and sent:
            return Traffic(sum(asked), sum(sent) + sum(_read_bytes(root, f"mdc/{fsname}-MDT*/stats")))
    return None


def _read_bytes(root: Path, pattern: str) -> Iterator[int]:
    """Yield a number for each statistics file that matches `pattern`: the total of read_bytes. This total is the
    seventh field of a line such as `read_bytes 500 samples [bytes] 4096 1048576 209715200`. The total is 0 for a file
    without such a line. If one of the files cannot be read, yield nothing for any file.
    """
    try:
        texts = [path.read_text(encoding="ascii", errors="replace") for path in root.glob(pattern)]
    except OSError:
        return
    for text in texts:
        fields = next((line.split() for line in text.splitlines() if line.startswith("read_bytes ")), [])
        yield int(fields[6]) if len(fields) > 6 and fields[6].isdigit() else 0


def _nfs(mount: str) -> Traffic | None:
    """Read the NFS counters of a mount, or return None if there are none. The first five fields of the line `bytes:` in
    mountstats are: bytes that programs read, bytes that they wrote, the same two numbers for O_DIRECT, and bytes read
    from the server.
    """
    try:
        lines = Path(_MOUNTSTATS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    is_mine = False
    traffic = None
    for line in lines:
        if line.startswith("device "):
            is_mine = f" mounted on {mount} with fstype nfs" in line
        elif is_mine and line.strip().startswith("bytes:"):
            fields = line.split()[1:]
            if len(fields) >= 5 and all(map(str.isdigit, fields[:5])):
                traffic = Traffic(int(fields[0]) + int(fields[2]), int(fields[4]))
    return traffic
