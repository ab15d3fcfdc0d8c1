"""Was it the storage? Of each epoch, what the benchmark asked for against what reached this side of the file system."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from dlio_hpc.plan import Run
from dlio_hpc.results import Epoch, Result
from dlio_hpc.units import format_size

Outcome = Literal["storage", "cached", "unknown", "nothing read"]
# Share of an epoch's bytes that may come from memory before a run is called CACHED.
LIMIT = 0.10
# So many times the memory a dataset has to be, by MLPerf Storage's rules, before nobody need ask.
ENOUGH = 5
# File systems whose reads become block requests of the process that reads: there alone its read_bytes is the truth.
# FUSE, GPFS, BeeGFS and, since Linux 5.18, NFS leave it at 0; ZFS counts what it has in memory as well.
_COUNTED = frozenset({"ext4", "xfs", "btrfs"})
_MEMORY = frozenset({"tmpfs", "ramfs"})


class EpochStorage(Struct, frozen=True):
    """asked: bytes of samples. arrived: of these, from the file system; None: nobody counted. cached: the share that
    came from memory, None where that is not known. source: how that is known.
    """

    epoch: int
    asked: int
    arrived: int | None
    cached: float | None
    source: str


class Storage(Struct, frozen=True):
    """Of one run. cached: the worst epoch's share from memory, None where no epoch's is known, or none read anything.
    darshan_bytes: what Darshan saw the ranks ask for in all epochs, beside the core's own count; None without it.
    advice: what would defeat the cache, as options of dlio-submit.
    """

    epochs: tuple[EpochStorage, ...]
    cached: float | None
    file_system: str
    dataset_bytes: int
    memory_bytes: int | None
    darshan_bytes: int | None = None
    advice: tuple[str, ...] = ()

    def outcome(self, limit: float = LIMIT) -> Outcome:
        """Unknown counts as little as cached: it proves nothing of the storage."""
        if not self.epochs:
            return "nothing read"
        if self.cached is not None and self.cached > limit:
            return "cached"
        return "unknown" if any(epoch.cached is None for epoch in self.epochs) else "storage"

    def words(self, limit: float = LIMIT) -> str:
        """One line for people."""
        found = self.outcome(limit)
        if found == "nothing read":
            return "nothing was read from storage"
        if found == "unknown":
            return f"UNKNOWN: nothing tells on {self.file_system or 'this file system'} whether storage was read"
        worst = max(self.epochs, key=lambda epoch: epoch.cached or 0.0)
        share, which = f"{100 * (1 - (worst.cached or 0)):.1f} % from storage", f"epoch {worst.epoch}"
        source = worst.source
        if self.darshan_bytes is not None:
            source += f"; Darshan saw {format_size(self.darshan_bytes)} asked for"
        if found == "cached":
            return f"CACHED: {share} in {which} ({source})"
        return f"{share}{f', in {which} the least' if len(self.epochs) > 1 else ''} ({source})"


def judge(run: Run, result: Result, darshan_bytes: int | None = None) -> Storage:
    """Of a run that has a result."""
    epochs = tuple(_epoch(run, result, epoch) for epoch in result.epochs if epoch.bytes_read)
    shares = [epoch.cached for epoch in epochs if epoch.cached is not None]
    worst = max(shares, default=None)
    is_fine = bool(epochs) and len(shares) == len(epochs) and (worst or 0) <= LIMIT
    advice = () if is_fine or not epochs else tuple(_advice(run, result))
    return Storage(epochs, worst, result.file_system, result.dataset.bytes, result.memory_bytes, darshan_bytes, advice)


def _epoch(run: Run, result: Result, epoch: Epoch) -> EpochStorage:
    """By the first of these that can tell."""
    kind, asked = result.file_system, epoch.bytes_read
    arrived: int | None = None
    cached: float | None = None
    if kind in _MEMORY:
        arrived, cached, source = 0, 1.0, f"{kind} is memory"
    elif epoch.client_bytes_read is not None:
        # Others on the nodes may have read as well: their share of what was read is one of what arrived.
        asked = max(asked, epoch.client_bytes_asked or 0)
        arrived, source = epoch.client_bytes_read, f"{kind} clients' count"
    elif epoch.storage_bytes_read is not None and kind in _COUNTED:
        arrived, source = epoch.storage_bytes_read, f"kernel's count on {kind}"
    elif run.workload.reader.direct:
        arrived, source = asked, "O_DIRECT goes past the page cache"
    elif epoch.resident is not None:
        cached, source = epoch.resident, "pages in memory before the epoch"
    elif result.memory_bytes and asked >= result.memory_bytes / LIMIT:
        cached, source = result.memory_bytes / asked, "more is not in all nodes' memory"
    else:
        source = "nobody counted"
    if arrived is not None:
        cached = max(0.0, 1 - arrived / asked)
    return EpochStorage(epoch.epoch, asked, arrived, cached, source)


def _advice(run: Run, result: Result) -> Iterator[str]:
    """What would defeat the cache, the surest first."""
    reader, dataset = run.workload.reader, run.workload.dataset
    if result.file_system in _MEMORY:
        yield f"--data on a file system other than {result.file_system}"
        return
    plain = not dataset.is_chunked and dataset.compression == "none" and dataset.format != "csv"
    if not reader.direct and reader.mode == "floor" and reader.access == "independent" and plain:
        yield "-S reader.direct=true (O_DIRECT)"
    if not reader.drop_cache:
        yield "-S reader.drop_cache=true"
    if not reader.shift and result.nodes > 1:
        yield "-S reader.shift=true (each node reads what another one wrote)"
    memory = result.memory_bytes
    if memory and result.dataset.bytes < ENOUGH * memory:
        files = -(-ENOUGH * memory * dataset.files // max(result.dataset.bytes, 1))
        yield (
            f"-S dataset.files={files} without --dataset-size: {ENOUGH} times the nodes' {format_size(memory)} of "
            f"memory, now {format_size(result.dataset.bytes)}"
        )
