"""Table of the evidence, for each kind of file system, that bytes came from storage and not from memory.

On a kind that is not listed, O_DIRECT and an empty page cache prove nothing: a client in user space may keep data in
its own memory or on a local disk, and the kernel does not know about these caches.
"""

from collections.abc import Collection

from msgspec import Struct, structs


class Proofs(Struct, frozen=True):
    """Valid evidence on a kind of file system.

    count: name of the counter of bytes that arrived from storage; empty if there is none. direct: whether bytes that
    are read with O_DIRECT come from storage. pages: whether bytes that are not in the page cache come from storage.
    size: whether bytes come from storage if they exceed the memory of all nodes. fsync: whether bytes are on storage
    after fsync(2). source: document or measurement on which the row is based. drops: whether reads reach storage after
    pages have been dropped from the page cache. remedy: another way to read from storage.
    """

    count: str = ""
    direct: bool = False
    pages: bool = False
    size: bool = False
    fsync: bool = False
    source: str = ""
    drops: bool = False
    remedy: str = ""


MEMORY = frozenset({"tmpfs", "ramfs", "hugetlbfs"})
# Kinds whose reads become block requests of the reading process. Only for these kinds, read_bytes of proc(5) is
# correct. On FUSE, GPFS, BeeGFS and, since Linux 5.18, NFS it stays 0. On ZFS it includes reads from memory.
COUNTED = frozenset({"ext4", "xfs", "btrfs", "overlay"})
_BLOCKS = Proofs(
    count="kernel's count", direct=True, pages=True, size=True, fsync=True, drops=True,
    source="proc(5), read_bytes; measured against the disk's counters",
)  # fmt: skip
_KERNEL_CLIENT = Proofs(direct=True, pages=True, size=True, fsync=True, drops=True)
_UNLISTED = Proofs(fsync=True, source="it is not known where this file system caches, and whether it compresses")
_UNLISTED_FUSE = Proofs(source="the process that serves the mount may cache in memory or on a local disk")

TABLE: dict[str, Proofs] = {
    **dict.fromkeys(sorted(COUNTED), _BLOCKS),
    "overlay": structs.replace(_BLOCKS, direct=False, source="the kernel's count, if it is valid for each layer"),
    "btrfs": structs.replace(
        _BLOCKS, direct=False, source="Linux 6.15 and later: O_DIRECT uses the page cache for data with checksums"
    ),
    "lustre": structs.replace(
        _KERNEL_CLIENT, count="lustre clients' count", source="Lustre manual, llite.*.stats and osc.*.stats"
    ),
    "nfs": structs.replace(
        _KERNEL_CLIENT, count="nfs clients' count", source="nfs(5); fields of bytes: in /proc/self/mountstats"
    ),
    "ceph": structs.replace(_KERNEL_CLIENT, source="Linux, Documentation/filesystems/ceph.rst: page cache only"),
    "smb": structs.replace(_KERNEL_CLIENT, source="mount.cifs(8), cache=: page cache only"),
    "9p": structs.replace(_KERNEL_CLIENT, source="Linux, Documentation/filesystems/9p.rst, cache="),
    "gpfs": Proofs(direct=True, size=True, fsync=True, source="IBM Storage Scale, direct I/O bypasses the page pool"),
    "beegfs": Proofs(direct=True, size=True, fsync=True, source="BeeGFS, client tuning: O_DIRECT bypasses the buffers"),
    "zfs": Proofs(size=True, fsync=True, source="OpenZFS before 2.3 caches what O_DIRECT reads (ARC)"),
    "fuse.ceph-fuse": Proofs(
        count="ceph-fuse's count", direct=True, size=True, fsync=True,
        source="measured against op_out_bytes of the OSDs, Ceph 16.2: the object cacher ignores dropped pages",
    ),
    "fuse.glusterfs": Proofs(
        count="GlusterFS client's count", size=True, fsync=True, drops=True,
        remedy="for files of up to 64 KiB, by the administrator: gluster volume set VOLUME performance.quick-read off",
        source="measured against the bricks' profile, GlusterFS 10.3: quick-read ignores O_DIRECT",
    ),
    "fuse.sshfs": Proofs(
        direct=True, pages=True, size=True, drops=True,
        source="measured against sftp-server's reads, SSHFS 3.7; fsync needs an extension of the server",
    ),
}  # fmt: skip


class Voided(Struct, frozen=True):
    """Evidence that a fact about a mounted file system invalidates. proofs: the invalid evidence, as names of fields of
    Proofs. why: reason, for reports.
    """

    proofs: frozenset[str]
    why: str


_ALL: frozenset[str] = frozenset({"count", "direct", "pages", "size", "fsync", "drops"})
LOOP, DIRECT_LOOP = "loop device", "loop device with direct I/O"
MEMORY_DEVICE, UNKNOWN_DEVICE = "memory device", "unknown device"
COMPRESSED, SPARSE, ELSEWHERE, MOVED = "compressed", "sparse", "files elsewhere", "mounted anew"
FOREIGN, NO_FSYNC, REPLACED = "files of other users", "fsync replaced", "reads replaced"
WSYNC = "wsync"
# Facts about a mounted file system, by the name that result.json has for them. The others are mount options, whose
# values may follow: compress=zstd:3.
VOIDED: dict[str, Voided] = {
    "fsc": Voided(frozenset({"pages", "size"}), "the client caches on a local disk (mount option fsc)"),
    "cache=fscache": Voided(frozenset({"pages", "size"}), "the client caches on a local disk (cache=fscache)"),
    "trans=virtio": Voided(_ALL, "the host of this virtual machine serves the files and caches them"),
    LOOP: Voided(
        frozenset({"direct", "pages", "size", "drops"}),
        "a loop device without direct I/O (losetup --direct-io=on) reads its file through the page cache of the node",
    ),
    DIRECT_LOOP: Voided(
        frozenset({"direct", "pages", "size"}), "no counter shows what the disks below the loop device delivered"
    ),
    MEMORY_DEVICE: Voided(_ALL, "the file system is on a block device in memory"),
    UNKNOWN_DEVICE: Voided(_ALL, "the block devices of the file system are unknown"),
    ELSEWHERE: Voided(_ALL, "some files are on another file system than their folder"),
    MOVED: Voided(_ALL, "during the run, another file system was mounted, or this one was mounted in another way"),
    FOREIGN: Voided(frozenset(), "the kernel does not say which pages of other users' files are in memory"),
    WSYNC: Voided(frozenset(), "the CephFS client waits until the server has made an operation (wsync)"),
    SPARSE: Voided(frozenset({"size"}), "files take less space than their size"),
    NO_FSYNC: Voided(frozenset({"fsync"}), "a preloaded library or a filter of system calls replaces fsync"),
    REPLACED: Voided(
        frozenset({"direct", "pages", "size", "drops"}), "a preloaded library replaces open or read (LD_PRELOAD)"
    ),
    "volatile": Voided(frozenset({"fsync"}), "the overlay ignores fsync (volatile)"),
    "fsync=volatile": Voided(frozenset({"fsync"}), "the overlay ignores fsync (volatile)"),
    **dict.fromkeys(
        (COMPRESSED, "compress", "compress-force"),
        Voided(frozenset({"direct"}), "the kernel reads compressed files through the page cache"),
    ),
}  # fmt: skip


def is_fact(option: str) -> bool:
    """Return whether a mount option is a fact that invalidates evidence."""
    return _voided(option) is not None


def has_pages(kind: str) -> bool:
    """Return whether the kernel keeps pages of files in its page cache on a file system of this kind."""
    return kind.startswith("fuse") or (kind in TABLE and TABLE[kind].drops)


def bypasses_pages(kind: str, facts: Collection[str] = ()) -> bool:
    """Return whether O_DIRECT bypasses the page cache of the node on a file system of this kind with these facts."""
    return kind != "btrfs" and not is_compressed(facts)


def is_compressed(facts: Collection[str]) -> bool:
    """Return whether files may be compressed, so that fewer bytes arrive from storage than programs read."""
    return any(_voided(fact) is VOIDED[COMPRESSED] for fact in facts)


def of(kind: str, facts: Collection[str] = ()) -> Proofs:
    """Return which evidence that bytes came from storage is valid on a file system of this kind, with these facts."""
    is_user_space = kind.startswith("fuse") or kind == "virtiofs"
    proofs = TABLE.get(kind, _UNLISTED_FUSE if is_user_space else _UNLISTED)
    void = {proof for row in map(_voided, facts) if row is not None for proof in row.proofs}
    return Proofs(**{name: value for name, value in structs.asdict(proofs).items() if name not in void})


def why_not(kind: str, facts: Collection[str] = ()) -> str:
    """Return the reason why, on such a file system, neither O_DIRECT nor an empty page cache proves that bytes came
    from storage. Return an empty string if the table has no reason.
    """
    rows = [row for row in map(_voided, facts) if row is not None and row.proofs & {"direct", "pages"}]
    return "; ".join(dict.fromkeys(row.why for row in rows)) or ("" if kind in TABLE else of(kind).source)


def _voided(fact: str) -> Voided | None:
    return VOIDED.get(fact) or VOIDED.get(fact.partition("=")[0])
