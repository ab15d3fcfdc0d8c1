"""Was it the storage? Of each epoch, what the benchmark asked for against what reached this side of the file system."""

from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from dlio_hpc.files.filesystem import COUNTED, MEMORY
from dlio_hpc.plan.plan import Run
from dlio_hpc.results import Epoch, Result
from dlio_hpc.units import format_size

Outcome = Literal["storage", "cached", "unknown", "nothing read"]
# Share of an epoch's bytes that may come from memory before a run is called cached.
LIMIT = 0.10
# So many times the memory a dataset has to be, by MLPerf Storage's rules, before nobody need ask.
ENOUGH = 5
# Has a cache of its own that O_DIRECT does not pass, before OpenZFS 2.3.
_OWN_CACHE = frozenset({"zfs"})


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
    idle: epochs that read nothing, since all was in the ranks' memory by then (reader.load: memory). darshan_bytes:
    what Darshan saw the ranks ask for in all epochs, beside the core's own count; None without it. advice: what would
    defeat the cache, as options of dlio-submit.
    """

    epochs: tuple[EpochStorage, ...]
    cached: float | None
    file_system: str
    dataset_bytes: int
    memory_bytes: int | None
    idle: int = 0
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
        if self.idle:
            source += f"; {self.idle} epoch(s) read nothing, all was in memory"
        if self.darshan_bytes is not None:
            source += f"; Darshan saw {format_size(self.darshan_bytes)} asked for"
        if found == "cached":
            return f"cached: {share} in {which} ({source})"
        return f"{share}{f' (lowest: {which})' if len(self.epochs) > 1 else ''} ({source})"


def judge(run: Run, result: Result, darshan_bytes: int | None = None) -> Storage:
    """Of a run that has a result."""
    epochs = tuple(_epoch(run, result, epoch) for epoch in result.epochs if epoch.bytes_read)
    shares = [epoch.cached for epoch in epochs if epoch.cached is not None]
    worst = max(shares, default=None)
    is_fine = bool(epochs) and len(shares) == len(epochs) and (worst or 0) <= LIMIT
    advice = () if is_fine or not epochs else tuple(_advice(run, result))
    idle = len(result.epochs) - len(epochs) if epochs else 0
    dataset, memory = result.dataset.bytes, result.memory_bytes
    return Storage(epochs, worst, result.file_system, dataset, memory, idle, darshan_bytes, advice)


def _epoch(run: Run, result: Result, epoch: Epoch) -> EpochStorage:
    """By the first source that can tell; by pages in memory besides, where a count may hide them."""
    arrived, cached, source = _counted(run, result, epoch)
    seen = _resident(run, result, epoch)
    if cached is None and seen is not None:
        cached, source = seen, "pages in memory before the epoch"
    elif cached is not None and seen is not None and seen > cached and _is_doubtful(run, result):
        cached, source = seen, f"pages in memory before the epoch; {source} has what was read besides, too"
    if cached is None:
        cached, source = _outgrown(run, result, epoch)
    return EpochStorage(epoch.epoch, epoch.bytes_read, arrived, cached, source)


def _counted(run: Run, result: Result, epoch: Epoch) -> tuple[int | None, float | None, str]:
    """What arrived, what of it did not come from storage, and who counted; None where nobody did."""
    kind, asked = result.file_system, epoch.bytes_read
    if kind in MEMORY:
        return 0, 1.0, f"{kind} is memory"
    if epoch.client_bytes_read is not None:
        # Others on the nodes may have read as well: what came from memory may all have been ours.
        missing = max(asked, epoch.client_bytes_asked or 0) - epoch.client_bytes_read
        return epoch.client_bytes_read, min(1.0, max(0.0, missing / asked)), f"{kind} clients' count"
    if epoch.storage_bytes_read is not None and kind in COUNTED:
        return epoch.storage_bytes_read, max(0.0, 1 - epoch.storage_bytes_read / asked), f"kernel's count on {kind}"
    if run.workload.reader.direct and kind not in _OWN_CACHE:
        return asked, 0.0, "O_DIRECT goes past the page cache"
    return None, None, "nobody counted"


def _is_doubtful(run: Run, result: Result) -> bool:
    """Can a count of what arrived hide what was in memory: behind neighbours of what was asked for, or, of a dataset
    that fits into memory, behind programs? Of a larger one, what lies there before the epoch is gone before it is read.
    """
    return run.workload.brings_neighbours or result.dataset.bytes < (result.memory_bytes or 0)


def _resident(run: Run, result: Result, epoch: Epoch) -> float | None:
    """What O_DIRECT passes does not matter. Where all ranks read everything, those of a node share what one fetched."""
    if epoch.page_cache_fraction is None or run.workload.reader.direct:
        return None
    if run.workload.reader.shard:
        return epoch.page_cache_fraction
    return max(epoch.page_cache_fraction, 1 - 1 / result.ranks_per_node)


def _outgrown(run: Run, result: Result, epoch: Epoch) -> tuple[float | None, str]:
    """More than all nodes' memory must have come from somewhere else, unless it was the same again and again."""
    memory, different = result.memory_bytes, min(epoch.bytes_read, result.dataset.bytes)
    if memory and run.workload.reader.shard and different >= memory / LIMIT:
        return memory / different, "more than is in all nodes' memory"
    return None, "nobody counted"


def _advice(run: Run, result: Result) -> Iterator[str]:
    """What would defeat the cache, the surest first."""
    reader, dataset = run.workload.reader, run.workload.dataset
    if result.file_system in MEMORY:
        yield f"--data on a file system other than {result.file_system}"
        return
    plain = not dataset.is_chunked and dataset.compression == "none" and dataset.format != "csv"
    if not reader.direct and reader.mode == "posix" and reader.access == "independent" and plain:
        yield "-S reader.direct=true (O_DIRECT)"
    if not reader.drop_cache:
        yield "-S reader.drop_cache=true"
    if not reader.reorder_tasks and result.nodes > 1:
        yield "-S reader.reorder_tasks=true (each node reads what another one wrote)"
    memory = result.memory_bytes
    if memory and result.dataset.bytes < ENOUGH * memory:
        unit = dataset.sample_bytes * (1 if dataset.file_access == "shared" else dataset.samples_per_file)
        mebibytes = -(-(ENOUGH * memory + unit) // 2**20)  # the resized dataset may be one file smaller
        yield (
            f"--dataset-size {mebibytes}MiB: {ENOUGH} times the nodes' {format_size(memory)} of memory, now "
            f"{format_size(result.dataset.bytes)}"
        )
