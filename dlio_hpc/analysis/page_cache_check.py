"""Check whether a run measured storage or the page cache, by comparing the bytes requested in each epoch with the bytes
received from storage.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from dlio_hpc.files.filesystem import COUNTED, MEMORY, OWN_CACHE
from dlio_hpc.plan import dataset_size
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.run_result import Epoch, RestoreSummary, Result
from dlio_hpc.units import format_size

Outcome = Literal["storage", "cached", "unknown", "nothing read"]
# Largest share of an epoch's bytes from memory with which a run still counts as a measurement of storage.
LIMIT = 0.10
# Smallest size of a dataset that MLPerf Storage allows, as a multiple of the memory of all nodes together.
ENOUGH = dataset_size.TIMES_MEMORY


class EpochStorage(Struct, frozen=True):
    """Whether the bytes of an epoch came from storage or from memory. epoch: its number; 0 for the checkpoints that are
    read after the last step. asked: bytes of samples or checkpoints that were requested. arrived: bytes received from
    the file system; None if they were not counted. cached: share of `asked` that came from memory; None if it is
    unknown. source: name of the counter, or the fact, from which `cached` follows.
    """

    epoch: int
    asked: int
    arrived: int | None
    cached: float | None
    source: str

    @property
    def name(self) -> str:
        return f"epoch {self.epoch}" if self.epoch else "the checkpoints that were read"


class Storage(Struct, frozen=True):
    """Whether the bytes of a run came from storage or from memory. epochs: the epochs that read anything. cached: the
    largest share of bytes from memory among these epochs; None if it is unknown for all of them. memory_bytes: memory
    of all nodes together; None if it is unknown. idle: number of epochs that read nothing, because all data were in the
    ranks' memory (reader.load: memory). darshan_bytes: bytes that the ranks requested in all epochs according to
    Darshan; None without Darshan. advice: options of dlio-submit that avoid the cache. is_written: whether the run only
    writes checkpoints, which it may also read. unwritten: reason why these checkpoints may be in memory; None if they
    reached storage.
    """

    epochs: tuple[EpochStorage, ...]
    cached: float | None
    file_system: str
    dataset_bytes: int
    memory_bytes: int | None
    idle: int = 0
    darshan_bytes: int | None = None
    advice: tuple[str, ...] = ()
    is_written: bool = False
    unwritten: str | None = None

    def outcome(self, limit: float = LIMIT) -> Outcome:
        """Return what the run measured: storage, cached, unknown or nothing read. It is "cached" if the share of bytes
        from memory exceeds `limit` in at least one epoch, or if the checkpoints may be in memory. Otherwise it is
        "unknown" if this share is unknown for at least one epoch.
        """
        if self.unwritten is not None or (self.cached is not None and self.cached > limit):
            return "cached"
        if not self.epochs:
            return "storage" if self.is_written else "nothing read"
        return "unknown" if any(epoch.cached is None for epoch in self.epochs) else "storage"

    def text(self, limit: float = LIMIT) -> str:
        """Return the outcome in one line of text."""
        outcome = self.outcome(limit)
        if self.unwritten is not None:
            read = structs.replace(self, unwritten=None)
            return f"{read.text(limit) if self.epochs else 'cached'}; {self.unwritten}"
        if self.is_written and not self.epochs:
            return "the checkpoints reached storage (fsync)"
        if outcome == "nothing read":
            return "nothing was read from storage"
        if outcome == "unknown":
            return f"UNKNOWN: on {self.file_system or 'this file system'}, no counter shows whether storage was read"
        worst = max(self.epochs, key=lambda epoch: epoch.cached or 0.0)
        share, which = f"{100 * (1 - (worst.cached or 0)):.1f} % from storage", worst.name
        source = worst.source
        if self.idle:
            source += f"; {self.idle} epoch(s) read nothing, because all data were in the ranks' memory"
        if self.darshan_bytes is not None:
            source += f"; Darshan recorded requests of {format_size(self.darshan_bytes)}"
        if outcome == "cached":
            return f"cached: {share} in {which} ({source})"
        return f"{share}{f' (lowest: {which})' if len(self.epochs) > 1 else ''} ({source})"


def judge(run: Run, result: Result, darshan_bytes: int | None = None) -> Storage:
    """Return whether the bytes of a run came from storage or from memory. darshan_bytes: bytes that the ranks requested
    according to Darshan; None without Darshan.
    """
    epochs = tuple(_epoch(run, result, epoch) for epoch in result.epochs if epoch.bytes_read)
    idle = len(result.epochs) - len(epochs) if epochs else 0
    if result.summary is not None and result.summary.restored is not None:
        epochs = (*epochs, _restored(run, result, result.summary.restored))
    shares = [epoch.cached for epoch in epochs if epoch.cached is not None]
    worst = max(shares, default=None)
    is_fine = bool(epochs) and len(shares) == len(epochs) and (worst or 0) <= LIMIT
    advice = () if is_fine or not epochs else tuple(_advice(run, result, epochs))
    dataset, memory = result.dataset.bytes, result.memory_bytes
    is_written = bool(result.summary and result.summary.checkpoint) and _only_writes(run)
    unwritten = _unwritten(run, result) if is_written else None
    if unwritten is not None and run.workload.checkpoint is not None and not run.workload.checkpoint.fsync:
        advice = ("-S checkpoint.fsync=true", *advice)
    return Storage(
        epochs, worst, result.file_system, dataset, memory, idle, darshan_bytes, advice, is_written, unwritten
    )


def _only_writes(run: Run) -> bool:
    """Return whether the workload has checkpoints and no samples."""
    return run.workload.checkpoint is not None and run.workload.checkpoint.writes is not None


def _unwritten(run: Run, result: Result) -> str | None:
    """Return the reason why checkpoints may be in memory instead of storage, or None if there is none."""
    kind = result.outputs_on.partition(" ")[0] or result.file_system
    if kind in MEMORY:
        return f"the checkpoints were written to memory: {kind}"
    if run.workload.checkpoint is not None and not run.workload.checkpoint.fsync:
        return "the checkpoints may still be in memory: set checkpoint.fsync"
    return None


def _epoch(run: Run, result: Result, epoch: Epoch) -> EpochStorage:
    """Return whether the bytes of an epoch came from storage or from memory. There are two measures of the share from
    memory. The first is computed from a counter of the bytes received, and is normally used. The second is the share of
    the dataset's pages that were in memory before the epoch. It is used if there is no counter, or if the counter may
    include other reads and the first share is smaller than the second. If both shares are unknown, the upper limit from
    _outgrown() is used.
    """
    traffic = _Traffic(epoch.bytes_read, epoch.storage_bytes_read, epoch.client_bytes_asked, epoch.client_bytes_read)
    arrived, cached, source = _counted(result.file_system, traffic, run.workload.reader.direct)
    resident = _resident(run, result, epoch)
    if cached is None and resident is not None:
        cached, source = resident, "pages in memory before the epoch"
    elif cached is not None and resident is not None and resident > cached and _is_doubtful(run, result):
        cached, source = resident, f"pages in memory before the epoch; {source} includes other reads"
    if cached is None:
        cached, source = _outgrown(run, result, epoch)
    return EpochStorage(epoch.epoch, epoch.bytes_read, arrived, cached, source)


def _restored(run: Run, result: Result, restored: RestoreSummary) -> EpochStorage:
    """Return whether the checkpoints that were read after the last step came from storage or from memory. If there is
    no counter, or if it shows less, the share of pages in memory before each of them counts.
    """
    checkpoint = run.workload.checkpoint
    is_direct = checkpoint is not None and checkpoint.direct
    traffic = _Traffic(
        restored.bytes_read, restored.storage_bytes_read, restored.client_bytes_asked, restored.client_bytes_read
    )
    arrived, cached, source = _counted(result.file_system, traffic, is_direct)
    resident = None if is_direct else restored.page_cache_fraction
    if resident is not None and (cached is None or resident > cached):
        cached, source = resident, "pages in memory before the checkpoints were read"
    return EpochStorage(0, restored.bytes_read, arrived, cached, source)


class _Traffic(NamedTuple):
    """Counts of bytes. asked: bytes that the ranks read. fetched: bytes that the kernel fetched from storage for the
    ranks. client_asked, client_received: bytes that programs on the nodes read, and that servers sent to them. They are
    None if they were not counted.
    """

    asked: int
    fetched: int | None
    client_asked: int | None
    client_received: int | None


def _counted(kind: str, traffic: _Traffic, is_direct: bool) -> tuple[int | None, float | None, str]:
    """Return the bytes received from the file system, the share of the requested bytes that came from memory, and the
    name of the counter. The bytes and the share are None if there is no counter. kind: file system. is_direct: whether
    O_DIRECT was used.
    """
    asked = traffic.asked
    if kind in MEMORY:
        return 0, 1.0, f"{kind} is memory"
    if traffic.client_received is not None:
        # Other processes on the nodes may have read too. All bytes from memory are attributed to the run.
        missing = max(asked, traffic.client_asked or 0) - traffic.client_received
        return traffic.client_received, min(1.0, max(0.0, missing / asked)), f"{kind} clients' count"
    if traffic.fetched is not None and kind in COUNTED:
        return traffic.fetched, max(0.0, 1 - traffic.fetched / asked), f"kernel's count on {kind}"
    if is_direct and kind not in OWN_CACHE:
        return asked, 0.0, "O_DIRECT bypasses the page cache"
    return None, None, "not counted"


def _is_doubtful(run: Run, result: Result) -> bool:
    """Return whether the count of bytes received from storage may hide cache hits, because it includes bytes that the
    run did not request. Read-ahead always adds such bytes. Program files add such bytes, too, but matter only if the
    dataset fits into memory. If the dataset does not fit, its pages are evicted before they are read again, and there
    are no cache hits to hide.
    """
    return run.workload.brings_neighbours or result.dataset.bytes < (result.memory_bytes or 0)


def _resident(run: Run, result: Result, epoch: Epoch) -> float | None:
    """Return the share of the requested bytes that the page cache holds. Return None if this share is unknown, or if
    O_DIRECT bypasses the cache. The result is the share of the dataset's pages that were in the cache before the epoch.
    If every rank reads all samples, only the first rank of a node that reads a sample gets it from storage; the node's
    other ranks find it in the cache. For n ranks per node, the result is then never less than (n - 1) / n.
    """
    if epoch.page_cache_fraction is None or run.workload.reader.direct:
        return None
    if run.workload.reader.shard:
        return epoch.page_cache_fraction
    return max(epoch.page_cache_fraction, 1 - 1 / result.ranks_per_node)


def _outgrown(run: Run, result: Result, epoch: Epoch) -> tuple[float | None, str]:
    """Return an upper limit on the share of bytes from memory, and the reason as text. The limit is None unless the
    epoch reads far more distinct bytes than the memory of all nodes can hold.
    """
    memory, different = result.memory_bytes, min(epoch.bytes_read, result.dataset.bytes)
    if memory and run.workload.reader.shard and different >= memory / LIMIT:
        return memory / different, "larger than the memory of all nodes"
    return None, "not counted"


def _advice(run: Run, result: Result, epochs: Sequence[EpochStorage]) -> Iterator[str]:
    """Yield options of dlio-submit that avoid the cache, the most effective first. epochs: storage of all epochs."""
    reader, dataset, checkpoint = run.workload.reader, run.workload.dataset, run.workload.checkpoint
    if result.file_system in MEMORY:
        yield f"--data on a file system other than {result.file_system}"
        return
    at_fault = [epoch for epoch in epochs if epoch.cached is None or epoch.cached > LIMIT]
    if checkpoint is not None and not any(epoch.epoch for epoch in at_fault):
        if not checkpoint.direct and checkpoint.mode == "posix":
            yield "-S checkpoint.direct=true (O_DIRECT)"
        if not checkpoint.reorder and result.nodes > 1:
            yield "-S checkpoint.reorder=1 (each node reads what another node wrote)"
        return
    plain = not dataset.is_chunked and dataset.compression == "none" and dataset.format != "csv"
    if not reader.direct and reader.mode == "posix" and reader.access == "independent" and plain:
        yield "-S reader.direct=true (O_DIRECT)"
    if not reader.drop_cache:
        yield "-S reader.drop_cache=true"
    if not reader.reorder_tasks and result.nodes > 1:
        yield "-S reader.reorder_tasks=true (each node reads what another node wrote)"
    memory = result.memory_bytes
    if memory and result.dataset.bytes < ENOUGH * memory and dataset.existing is None:
        unit = dataset.sample_bytes * (1 if dataset.file_access == "shared" else dataset.samples_per_file)
        mebibytes = -(-(ENOUGH * memory + unit) // 2**20)  # the resized dataset may be one file smaller
        yield (
            f"--dataset-size {mebibytes}MiB: {ENOUGH} times the nodes' {format_size(memory)} of memory, now "
            f"{format_size(result.dataset.bytes)}"
        )
