"""What the file system's client on this node has counted: bytes that programs read, bytes that servers sent."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.files.filesystem import FileSystem

# Where Lustre's statistics have been over the years; since 2.13 mostly in debugfs, which only root may read.
_LUSTRE = ("/proc/fs/lustre", "/sys/fs/lustre", "/sys/kernel/debug/lustre")
_MOUNTSTATS = "/proc/self/mountstats"


class Traffic(NamedTuple):
    """Bytes since the mount, of all processes on the node: what read calls brought, and what came from servers."""

    asked: int
    arrived: int


def counter(file_system: FileSystem) -> Callable[[], Traffic | None] | None:
    """What tells the traffic so far; None where nobody counts, or we may not read it."""
    ask: Callable[[], Traffic | None] | None = None
    if file_system.is_lustre and file_system.fsname:
        ask = partial(_lustre, file_system.fsname)
    elif file_system.kind == "nfs":
        ask = partial(_nfs, file_system.mount)
    return ask if ask is not None and ask() is not None else None


def _lustre(fsname: str) -> Traffic | None:
    """Llite counts what programs read, osc what storage targets sent, mdc what was on a metadata server (DoM)."""
    for root in map(Path, _LUSTRE):
        asked = list(_read_bytes(root, f"llite/{fsname}-*/stats"))
        sent = list(_read_bytes(root, f"osc/{fsname}-OST*/stats"))
        if asked and sent:
            return Traffic(sum(asked), sum(sent) + sum(_read_bytes(root, f"mdc/{fsname}-MDT*/stats")))
    return None


def _read_bytes(root: Path, pattern: str) -> Iterator[int]:
    """Of each file: `read_bytes 500 samples [bytes] 4096 1048576 209715200`, the sum being the seventh word."""
    try:
        texts = [path.read_text(encoding="ascii", errors="replace") for path in root.glob(pattern)]
    except OSError:
        return
    for text in texts:
        words = next((line.split() for line in text.splitlines() if line.startswith("read_bytes ")), [])
        yield int(words[6]) if len(words) > 6 and words[6].isdigit() else 0


def _nfs(mount: str) -> Traffic | None:
    """`bytes:` of the mount: read by programs, written by them, the same two with O_DIRECT, read from the server."""
    try:
        lines = Path(_MOUNTSTATS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    is_mine = False
    found = None
    for line in lines:
        if line.startswith("device "):
            is_mine = f" mounted on {mount} with fstype nfs" in line
        elif is_mine and line.strip().startswith("bytes:"):
            words = line.split()[1:]
            if len(words) >= 5 and all(map(str.isdigit, words[:5])):
                found = Traffic(int(words[0]) + int(words[2]), int(words[4]))
    return found
