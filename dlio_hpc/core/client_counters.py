"""Counters of the file system client on this node: bytes that programs read, and bytes that servers sent."""

import json
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from dlio_hpc.core import procfs
from dlio_hpc.files import block_devices, storage_proofs
from dlio_hpc.files.filesystem import FileSystem

# Locations of the statistics in different versions of Lustre. Since 2.13 most are in debugfs, which only root may read.
_LUSTRE = ("/proc/fs/lustre", "/sys/fs/lustre", "/sys/kernel/debug/lustre")
_MOUNTSTATS = "/proc/self/mountstats"
# Seconds to wait for an answer of a daemon.
_PATIENCE = 5.0


class Traffic(NamedTuple):
    """Read traffic of all processes on the node since the file system was mounted. asked: bytes that the read calls of
    these processes returned, from the cache or from servers; None if the client does not count them. arrived: bytes
    that servers sent to the node. kept: upper limit of the bytes that the client returned from its own memory; servers
    may have sent some of them.
    """

    asked: int | None
    arrived: int
    kept: int = 0


def counter(file_system: FileSystem) -> Callable[[], Traffic | None] | None:
    """Return a function that reads the client's counters for this file system. Return None if there are no counters, or
    if they cannot be read.
    """
    ask: Callable[[], Traffic | None] | None = None
    if file_system.is_lustre and file_system.fsname:
        ask = partial(_lustre, file_system.fsname)
    elif file_system.kind == "nfs":
        ask = partial(_nfs, file_system.mount)
    elif file_system.kind == "fuse.glusterfs":
        ask = partial(_gluster, Path(file_system.mount, ".meta/graphs/active"))
    elif file_system.kind == "fuse.ceph-fuse":
        ask = _ceph_fuse(file_system.mount)
    elif file_system.kind in storage_proofs.COUNTED:
        ask = _disks(file_system)
    return ask if ask is not None and ask() is not None else None


def _lustre(fsname: str) -> Traffic | None:
    """Read the counters of the Lustre client, or return None if they cannot be read. llite counts the bytes that
    programs read. osc counts the bytes from storage targets, and mdc counts the bytes from metadata targets (DoM).
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


def _disks(file_system: FileSystem) -> Callable[[], Traffic | None] | None:
    """Return a function that reads the counters of the disks on which a file system is stored, or None if there are
    none. The counters of the disks are used because the kernel counts a block request for a process even if no disk is
    read, for example if a loop device answers the request from memory. If the counter of a disk is still 0, the disk is
    assumed to have no counter.
    """
    stack = block_devices.below(file_system)
    if not stack.disks:
        return None

    def ask() -> Traffic | None:
        try:
            counts = stack.bytes_read
        except (OSError, ValueError, IndexError):
            return None
        return Traffic(None, sum(counts)) if all(counts) else None

    return ask


def _gluster(graph: Path) -> Traffic | None:
    """Read the counters of a GlusterFS mount, or return None if they cannot be read. The translators of the mount show
    their state in the folder .meta. protocol/client counts the bytes that arrived from a brick. debug/io-stats counts
    the bytes that the kernel requested. quick-read serves small files from memory, and counts each request that it
    serves. io-cache also serves files from memory, but has no counter. If it is used, all bytes may have come from
    memory.
    """
    try:
        folders = [path for path in graph.iterdir() if (path / "type").is_file() and not path.is_symlink()]
        kinds = {path: (path / "type").read_text(encoding="ascii").strip() for path in folders}
        clients, tops, readers = (
            [_state(path) for path, kind in kinds.items() if kind == wanted]
            for wanted in ("protocol/client", "debug/io-stats", "performance/quick-read")
        )
        asked = sum(top["cumulative.data_read"] for top in tops)
        arrived = sum(client["total_bytes_read"] for client in clients)
        kept = sum(reader["cache-hit"] * reader["max_file_size"] for reader in readers)
    except (OSError, KeyError):
        return None
    kept = asked if "performance/io-cache" in kinds.values() else kept
    return Traffic(asked, arrived, kept) if clients and tops else None


def _state(translator: Path) -> dict[str, int]:
    """Return the numbers in the state of a translator of GlusterFS, by name. The state has lines such as `cache-hit =
    300`.
    """
    lines = (translator / "private").read_text(encoding="utf-8", errors="replace").splitlines()
    pairs = (line.partition(" = ") for line in lines)
    return {key.strip(): int(value) for key, _, value in pairs if value.strip().isdigit()}


def _ceph_fuse(mount: str) -> Callable[[], Traffic | None] | None:
    """Return a function that reads the counters of the ceph-fuse process that serves a mount. Return None if the admin
    socket of the process is not found, or if this user may not use it because it belongs to root.
    """
    for line in procfs.text("/proc/net/unix").splitlines():
        path = line.rpartition(" ")[2]
        if path.endswith(".asok") and "client" in path:
            status = _asked(path, "status") or {}
            if status.get("metadata", {}).get("mount_point") == mount:
                return partial(_ceph_traffic, path)
    return None


def _ceph_traffic(socket: str) -> Traffic | None:
    """Read the counters of ceph-fuse. The messengers count all bytes that arrived, which include answers of metadata
    servers. The throttle of the objecter counts an upper limit of the bytes in requests to OSDs. The smaller of the two
    numbers is used.
    """
    counters = _asked(socket, "perf dump")
    if counters is None:
        return None
    try:
        messengers = [group for name, group in counters.items() if name.startswith("AsyncMessenger::Worker")]
        received = sum(messenger["msgr_recv_bytes"] for messenger in messengers)
        return Traffic(None, min(received, counters["throttle-objecter_bytes"]["take_sum"]))
    except (KeyError, TypeError):
        return None


def _asked(path: str, command: str) -> dict[str, Any] | None:
    """Send a command to the admin socket of a Ceph daemon. Return the answer, or None if there is no answer. A request
    is a JSON document that ends with a zero byte; the answer begins with its length in four bytes.
    """
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(_PATIENCE)
            connection.connect(path)
            connection.sendall(json.dumps({"prefix": command}).encode() + b"\0")
            with connection.makefile("rb") as stream:
                answer = json.loads(stream.read(int.from_bytes(stream.read(4), "big")))
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None
