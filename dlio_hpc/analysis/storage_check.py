"""Check whether a run measured storage or caches of the nodes, by comparing the bytes requested in each epoch with the
bytes received from storage. files/storage_proofs.py lists the evidence that is accepted on each kind of file system.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, structs

from dlio_hpc.base.units import counted, format_size, rounded_up
from dlio_hpc.config.inference_keys import InferenceKeys
from dlio_hpc.config.metadata_keys import MetadataKeys
from dlio_hpc.dataset import minimum_size
from dlio_hpc.files import storage_proofs
from dlio_hpc.files.filesystem import LOCAL
from dlio_hpc.files.storage_proofs import COUNTED, MEMORY, Proofs
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.probe_result import StorageProbe
from dlio_hpc.results.run_result import Epoch, EvaluationSummary, RestoreSummary, Result

Outcome = Literal["storage", "cached", "unknown", "nothing read"]
# Largest share of an epoch's bytes from memory with which a run still counts as a measurement of storage.
LIMIT = 0.10
# Bytes of a page of memory, and the largest share by which whole pages may be larger than a block that they hold.
_PAGE, _ROUNDED = 4096, 0.02
# Smallest size of a dataset that MLPerf Storage allows, as a multiple of the memory of all nodes together.
ENOUGH = minimum_size.TIMES_MEMORY
# A run that is faster than the probe's loop with O_DIRECT by more than this factor is in doubt, unless its bytes were
# counted. The factor covers the noise between the probe and the run.
FASTER = 1.25
# Kinds of file systems whose servers make the operations on files. On others, the node may make them: the nodes of GPFS
# do so under tokens.
_WITH_SERVERS = frozenset({"lustre", "nfs", "ceph", "smb", "beegfs", "fuse.ceph-fuse"})
# Kinds of file systems whose clients ask a server whenever a file is opened. Clients of NFS 4, SMB and CephFS may
# answer by themselves while they hold a delegation, a lease or capabilities.
_OPENED_BY_SERVERS = frozenset({"lustre", "beegfs"})
# Number of opens of a file from which on a Lustre client may keep it open (llite.*.opencache_threshold_count).
_KEPT_OPEN = 5
# What is said of a metadata workload whose operations the servers answered.
SERVED = "the servers of the file system answered: no node used a file in two phases"
# Fields of an epoch, and of the evaluation passes, that show where their bytes came from.
_COUNTS = (
    "storage_bytes_read", "client_bytes_asked", "client_bytes_read", "client_bytes_kept", "page_cache_fraction",
)  # fmt: skip


class EpochStorage(Struct, frozen=True):
    """Whether the bytes of an epoch came from storage or from memory. epoch: its number; 0 for the checkpoints that are
    read after the last step, -1 for all evaluation passes together. asked: requested bytes of samples or checkpoints.
    arrived: bytes received from the file system; None if they were not counted. cached: share of `asked` that came from
    memory; None if it is unknown. source: name of the counter or fact on which `cached` is based, or the reason why it
    is unknown. is_counted: whether `cached` is based on a count of the bytes that arrived.
    """

    epoch: int
    asked: int
    arrived: int | None
    cached: float | None
    source: str
    is_counted: bool = False

    @property
    def name(self) -> str:
        return {0: "the checkpoints that were read", -1: "the evaluation passes"}.get(self.epoch, f"epoch {self.epoch}")

    @property
    def doubt(self) -> str:
        """Reason why some bytes may not come from storage, in one line; empty if there is none."""
        if self.cached is None:
            return f"whether {self.name} read storage is unknown ({self.source})"
        return (
            f"{100 * self.cached:.1f} % of {self.name} came from memory ({self.source})" if self.cached > LIMIT else ""
        )


class Storage(Struct, frozen=True):
    """Whether the bytes of a run came from storage or from memory. epochs: the epochs that read anything. cached: the
    largest share of bytes from memory among these epochs; None if it is unknown for all of them. memory_bytes: memory
    of all nodes together; None if it is unknown. idle: number of epochs that read nothing, because all data were in the
    ranks' memory (reader.load=memory). darshan_bytes: bytes that the ranks requested in all epochs according to
    Darshan; None without Darshan. advice: options of dlio-submit that avoid the cache. is_written: whether the run has
    only checkpoints, which it writes and may also read. unwritten: reason why these checkpoints may be in memory; None
    if they reached storage. remarks: a sentence if evaluation passes may not have read storage, and a sentence if the
    checkpoints of a run that reads samples, or the blocks of a KV cache, may not have reached storage. The remarks do
    not change the outcome, which depends on what was read. is_metadata: whether the run made operations of a metadata
    workload. opens_doubt: reason why the node may have answered the opens of sample files; empty if there is none, or
    if the run opens no such file.
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
    remarks: tuple[str, ...] = ()
    is_metadata: bool = False
    opens_doubt: str = ""

    def outcome(self, limit: float = LIMIT) -> Outcome:
        """Return what the run measured: storage, cached, unknown or nothing read. It is "cached" if the share of bytes
        from memory exceeds `limit` in at least one epoch, or if the checkpoints may be in memory. Otherwise it is
        "unknown" if this share is unknown for at least one epoch.
        """
        if self.cached is not None and self.cached > limit:
            return "cached"
        if self.unwritten is not None:
            return "unknown" if self.unwritten.startswith((_MAYBE, _MAYBE_SERVED)) else "cached"
        if not self.epochs:
            return "storage" if self.is_written else "nothing read"
        return "unknown" if any(epoch.cached is None for epoch in self.epochs) else "storage"

    def text(self, limit: float = LIMIT) -> str:
        """Return the outcome in one line of text."""
        outcome = self.outcome(limit)
        if self.is_metadata:
            doubt = self.unwritten or SERVED
            return f"{outcome}: {doubt}" if outcome == "cached" else doubt
        if self.unwritten is not None:
            read = structs.replace(self, unwritten=None)
            return f"{read.text(limit) if self.epochs else outcome}; {self.unwritten}"
        if self.is_written and not self.epochs:
            return "the checkpoints reached storage (fsync)"
        if outcome == "nothing read":
            return "nothing was read from storage"
        return self._unknown() if outcome == "unknown" else self._share(outcome)

    def _unknown(self) -> str:
        reasons = [epoch.source for epoch in self.epochs if epoch.cached is None and epoch.source != _NOT_COUNTED]
        reason = f": {reasons[0]}" if reasons else ""
        return (
            f"UNKNOWN: on {self.file_system or 'this file system'}, no counter shows whether storage was read{reason}"
        )

    def _share(self, outcome: Outcome) -> str:
        """Return the share of bytes from storage in one line of text."""
        worst = max(self.epochs, key=lambda epoch: epoch.cached or 0.0)
        share, which = f"{100 * (1 - (worst.cached or 0)):.1f} % from storage", worst.name
        source = worst.source
        if self.idle:
            source += f"; {counted(self.idle, 'epoch')} read nothing, because all data were in the ranks' memory"
        if self.darshan_bytes is not None:
            source += f"; Darshan recorded requests of {format_size(self.darshan_bytes)}"
        if outcome == "cached":
            return f"cached: {share} in {which} ({source})"
        return f"{share}{f' (lowest: {which})' if len(self.epochs) > 1 else ''} ({source})"


def judge(run: Run, result: Result, darshan_bytes: int | None = None, probe: StorageProbe | None = None) -> Storage:
    """Return whether the bytes of a run came from storage or from memory. darshan_bytes: bytes that the ranks requested
    according to Darshan; None without Darshan. probe: rates of plain reads before the run; None if there was no probe.
    """
    doubt = _faster_than_probe(result, probe)
    epochs = tuple(_doubted(_epoch(run, result, epoch), doubt) for epoch in result.epochs if epoch.bytes_read)
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
    if run.workload.metadata is not None:
        is_written, unwritten = True, _unserved(run.workload.metadata, result)
        advice = ()
    if unwritten is not None and run.workload.checkpoint is not None and not run.workload.checkpoint.fsync:
        advice = ("-S checkpoint.fsync=true", *advice)
    return Storage(
        epochs, worst, result.file_system, dataset, memory, idle, darshan_bytes, advice, is_written, unwritten,
        tuple(_remarks(run, result)), run.workload.metadata is not None, _unopened(run, result),
    )  # fmt: skip


def _remarks(run: Run, result: Result) -> Iterator[str]:
    """Yield a sentence if evaluation passes may not have read storage, a sentence if the checkpoints of a run that
    reads samples may not have reached storage, and a sentence if the blocks of a KV cache may not have reached it.
    """
    passes = result.summary and result.summary.evaluation
    if passes and run.evaluation is not None and (doubt := _evaluated(run.evaluation, result, passes).doubt):
        yield doubt
    if result.summary and result.summary.checkpoint and not _only_writes(run) and (reason := _unwritten(run, result)):
        yield reason
    keys = run.workload.inference
    served = result.summary and result.summary.inference
    if keys is not None and served and served.blocks_written and not (keys.direct or keys.fsync):
        yield "the blocks that were written may still be in memory: set inference.direct or inference.fsync"


def _evaluated(run: Run, result: Result, passes: EvaluationSummary) -> EpochStorage:
    """Return whether the bytes of all evaluation passes came from storage. run: the evaluation run."""
    its_own = structs.replace(
        result,
        dataset=structs.replace(result.dataset, bytes=run.workload.dataset.size),
        file_system=result.evaluation_file_system or result.file_system,
        cache_facts=result.evaluation_cache_facts if result.evaluation_file_system else result.cache_facts,
    )
    counts = {name: getattr(passes, name) for name in _COUNTS}
    whole = Epoch(
        -1,
        passes.wall_s,
        0,
        passes.samples,
        passes.bytes_read,
        passes.wait_s,
        passes.compute_s,
        passes.sync_s,
        **counts,
    )
    return _epoch(run, its_own, whole)


def _only_writes(run: Run) -> bool:
    """Return whether the workload has checkpoints and no samples."""
    return run.workload.checkpoint is not None and run.workload.checkpoint.writes is not None


def _faster_than_probe(result: Result, probe: StorageProbe | None) -> str | None:
    """Return the reason why the rate of a run is implausible: its rate while reads were in flight exceeds the rate of
    the probe, which uses O_DIRECT. Return None if the rate of the run is plausible, or if either rate is unknown.
    """
    summary = result.summary
    plain = max((rate.MBps for rate in probe.rates if rate.tool == "loop"), default=0.0) if probe is not None else 0.0
    if summary is None or not summary.io_time_s or not plain:
        return None
    rate = summary.bytes_read / summary.io_time_s / 1e6
    if rate <= FASTER * plain:
        return None
    return f"the run read at {rate:.0f} MB/s, but a plain loop with O_DIRECT got {plain:.0f} MB/s from the same files"


def _doubted(epoch: EpochStorage, doubt: str | None) -> EpochStorage:
    """Return the epoch. If there is a doubt and the bytes were not counted, the share from memory becomes unknown.
    doubt: the reason; None if there is no doubt.
    """
    if doubt is None or epoch.is_counted or epoch.cached is None or epoch.cached > LIMIT:
        return epoch
    return structs.replace(epoch, cached=None, source=f"{doubt} ({epoch.source})")


def _unwritten(run: Run, result: Result) -> str | None:
    """Return the reason why checkpoints may be in memory instead of storage, or None if there is none."""
    kind, facts = _outputs(result)
    if kind in MEMORY or storage_proofs.MEMORY_DEVICE in facts:
        return f"the checkpoints were written to memory: {kind if kind in MEMORY else storage_proofs.MEMORY_DEVICE}"
    if run.workload.checkpoint is not None and not run.workload.checkpoint.fsync:
        return "the checkpoints may still be in memory: set checkpoint.fsync"
    if not storage_proofs.of(kind, facts).fsync:
        return f"{_MAYBE} on {kind} may end before they are on storage"
    return None


def _unserved(keys: MetadataKeys, result: Result) -> str | None:
    """Return the reason why a node, and not the servers of the file system, may have answered operations on files.
    Return None if there is none.
    """
    kind, facts = _outputs(result)
    if kind in MEMORY or storage_proofs.MEMORY_DEVICE in facts:
        return f"the operations were made in memory: {kind if kind in MEMORY else storage_proofs.MEMORY_DEVICE}"
    again, lists = keys.answered_twice(result.nodes), "readdir" in keys.order
    needed = f"{'' if keys.shift_nodes == 1 else '-S metadata.shift_nodes=1 and '}-N {keys.nodes_needed} or more"
    doubts = (
        (kind in LOCAL, f"{kind} belongs to one node, which makes operations in memory and writes them later"),
        (
            kind not in _WITH_SERVERS or not storage_proofs.of(kind, facts).fsync,
            f"it is not known where {kind or 'this file system'} makes the operations",
        ),
        (
            kind == "ceph" and storage_proofs.WSYNC not in facts,
            "a CephFS client may create and remove files before the server does; mount with wsync",
        ),
        (
            lists and keys.shift_nodes > 0 and keys.distance("readdir") == 0,
            "in readdir, each rank listed folders of its own; make readdir a phase after create",
        ),
        (bool(again), f"a node used the same files before {', '.join(again)}; use {needed}"),
        (
            lists and keys.folders == "shared",
            "in readdir, all nodes listed the same folders; use -S metadata.folders=own",
        ),
        (
            "write" in keys.order and not keys.fsync,
            "the bytes of write may still be in memory; use -S metadata.fsync=true",
        ),
    )
    return next((f"{_MAYBE_SERVED}: {reason}" for is_doubtful, reason in doubts if is_doubtful), None)


def _unopened(run: Run, result: Result) -> str:
    """Return the reason why a node, and not the servers of the file system, may have answered the opens of sample
    files. Return an empty string if there is none.
    """
    kind = result.file_system
    if run.workload.metadata is not None or not run.workload.reads_samples or not run.workload.dataset.is_stored:
        return ""
    doubts = (
        (kind in MEMORY or storage_proofs.MEMORY_DEVICE in result.cache_facts, "the files are in memory"),
        (kind in LOCAL, f"{kind} belongs to one node, which knows the files that it used before"),
        (kind not in _OPENED_BY_SERVERS, f"it is not known where {kind or 'this file system'} answers opens"),
        (
            kind == "lustre" and run.workload.train.epochs > _KEPT_OPEN,
            f"a Lustre client may keep files open that it opened {_KEPT_OPEN} times",
        ),
    )
    return next((f"{_MAYBE_SERVED}: {reason}" for is_doubtful, reason in doubts if is_doubtful), "")


def _outputs(result: Result) -> tuple[str, list[str]]:
    """Return the kind of the file system of the checkpoints, and the facts about it."""
    if not result.outputs_on:
        return result.file_system, result.cache_facts
    return result.outputs_on.partition(" ")[0], result.outputs_cache_facts


def _epoch(run: Run, result: Result, epoch: Epoch) -> EpochStorage:
    """Return whether the bytes of an epoch came from storage or from memory. The table of storage_proofs says which
    evidence is accepted. The share from memory is taken from the first known item of this list: a count of the bytes
    received; O_DIRECT; the share of the dataset's pages that were in memory before the epoch; the upper limit of
    _outgrown(). If a count may include other reads, the result is at least the share of pages.
    """
    traffic = _Traffic(
        epoch.bytes_read, epoch.storage_bytes_read, epoch.client_bytes_asked, epoch.client_bytes_read,
        epoch.client_bytes_kept,
    )  # fmt: skip
    kind, facts = result.file_system, result.cache_facts
    counted = _counted(kind, facts, traffic)
    resident, proofs = _resident(run, result, epoch), storage_proofs.of(kind, facts)
    cached, source = counted.cached, counted.source
    if cached is None and run.workload.is_direct and proofs.direct:
        cached, source = 0.0, _BYPASSED
    elif cached is None and resident is not None and (proofs.pages or resident > LIMIT):
        cached, source = resident, "pages in memory before the epoch"
    elif cached is not None and (_is_doubtful(run, result) or not proofs.pages):
        cached, source = _with_pages(run, result, counted, resident, epoch.bytes_read)
    if cached is None and proofs.size:
        cached, source = _outgrown(run, result, epoch, source)
    if cached is not None and cached <= LIMIT and (reason := _shared_pages(run)):
        cached, source = None, reason
    return EpochStorage(epoch.epoch, epoch.bytes_read, counted.arrived, cached, source, counted.cached is not None)


def _shared_pages(run: Run) -> str | None:
    """Return the reason why bytes that arrive do not show whether blocks of a KV cache came from storage; None if they
    do. Blocks that are smaller than pages bring their neighbours into memory.
    """
    keys = run.workload.inference
    if keys is None or keys.direct or -keys.block_bytes % _PAGE <= _ROUNDED * keys.block_bytes:
        return None
    return f"a block has {keys.block_bytes:,} bytes, and the kernel reads pages of {_PAGE:,}"


def _restored(run: Run, result: Result, restored: RestoreSummary) -> EpochStorage:
    """Return whether the checkpoints that were read after the last step came from storage or from memory. The share
    from memory is the larger of two values: the share that the counter shows, if there is a counter, and the share of
    pages that were in memory before each checkpoint was read.
    """
    is_direct = run.workload.checkpoint is not None and run.workload.checkpoint.direct
    traffic = _Traffic(
        restored.bytes_read, restored.storage_bytes_read, restored.client_bytes_asked, restored.client_bytes_read,
        restored.client_bytes_kept,
    )  # fmt: skip
    kind, facts = _outputs(result)
    counted, proofs = _counted(kind, facts, traffic), storage_proofs.of(kind, facts)
    cached, source = counted.cached, counted.source
    if cached is None and is_direct and proofs.direct:
        cached, source = 0.0, _BYPASSED
    resident = None if is_direct and proofs.direct else restored.page_cache_fraction
    if resident is not None and resident > (LIMIT if cached is None and not proofs.pages else (cached or -1.0)):
        cached, source = resident, "pages in memory before the checkpoints were read"
    return EpochStorage(0, restored.bytes_read, counted.arrived, cached, source, counted.cached is not None)


class _Traffic(NamedTuple):
    """Counts of bytes. asked: bytes that the ranks read. fetched: bytes that the kernel fetched from storage for the
    ranks. client_asked: bytes that programs on the nodes read. client_received: bytes that servers sent to the nodes.
    client_kept: upper limit of the bytes that the clients returned from their own memory. Values are None if they were
    not counted.
    """

    asked: int
    fetched: int | None
    client_asked: int | None
    client_received: int | None
    client_kept: int | None = None


class _Counted(NamedTuple):
    """What the counters show. arrived: bytes received from the file system; None if they were not counted. cached:
    share of the requested bytes that came from memory; None if it is unknown. source: name of the counter, or the
    reason why the share is unknown.
    """

    arrived: int | None
    cached: float | None
    source: str


# Beginning of the reason why it is not known whether checkpoints reached storage.
_MAYBE = "the checkpoints may still be in memory: fsync"
_MAYBE_SERVED = "it is unknown whether the file system or the node answered"
_NOT_COUNTED, _BYPASSED = "not counted", "O_DIRECT bypasses the page cache"


def _with_pages(
    run: Run, result: Result, counted: _Counted, resident: float | None, asked: int
) -> tuple[float | None, str]:
    """Return the share from memory and its source, for a count that may include bytes that the run did not request. The
    share is the larger of two values: the share that the count shows, and the share of pages in memory. If it is
    unknown which pages were in memory, the count can only show that bytes came from memory, unless O_DIRECT bypasses
    the pages. If the epoch reads a part of the files, `asked` bytes, the pages in memory may be just those that it
    reads. The count does not show this if neighbouring pages are fetched, too.
    """
    cached, source = counted.cached or 0.0, counted.source
    if resident is not None and run.workload.brings_neighbours:
        possible = min(1.0, resident * max(1.0, result.dataset.bytes / asked))
        if max(cached, resident) <= LIMIT < possible:
            return None, (
                f"{source} includes neighbouring pages, and up to {100 * possible:.0f} % of what the epoch read may "
                "have been in memory before"
            )
    if resident is not None and resident > cached:
        return resident, f"pages in memory before the epoch; {source} includes other reads"
    hidden = storage_proofs.FOREIGN in result.cache_facts or not storage_proofs.of(result.file_system).pages
    if resident is None and hidden and cached <= LIMIT and not _bypasses_pages(run, result):
        return None, f"{source} includes other reads, and it is not known which pages were in memory"
    return cached, source


def _counted(kind: str, facts: list[str], traffic: _Traffic) -> _Counted:
    """Return what the counters show on a file system of this kind with these facts."""
    if kind in MEMORY:
        return _Counted(0, 1.0, f"{kind} is memory")
    if storage_proofs.MEMORY_DEVICE in facts:
        return _Counted(0, 1.0, storage_proofs.VOIDED[storage_proofs.MEMORY_DEVICE].why)
    name = storage_proofs.of(kind, facts).count
    if kind in COUNTED:
        return _counted_by_kernel(kind, facts, traffic, name)
    if name and traffic.client_received is not None:
        return _counted_by_client(traffic, traffic.client_received, name, kind)
    return _Counted(None, None, storage_proofs.why_not(kind, facts) or _NOT_COUNTED)


def _counted_by_kernel(kind: str, facts: list[str], traffic: _Traffic, name: str) -> _Counted:
    """Return what the kernel's count of block requests shows. A loop device, or a device in memory that was mounted
    without being noticed, may answer such requests. Therefore, the counters of the disks are used as well. They include
    requests of other programs, so they can only show that bytes came from memory. For compressed files, fewer bytes
    arrive than programs read.
    """
    fetched, source = traffic.fetched, f"{name} on {kind}"
    loops, below = {storage_proofs.LOOP, storage_proofs.DIRECT_LOOP} & set(facts), traffic.client_received
    counted = traffic.asked if loops or fetched is None else min(fetched, traffic.asked)
    if below is not None and below < (1 - LIMIT) * counted:
        fetched, source = below, f"count of the disks below {f'a {min(loops)}' if loops else kind}"
    elif storage_proofs.LOOP in facts or (loops and below is None):
        return _Counted(None, None, storage_proofs.why_not(kind, facts))
    if fetched is None or not (name or loops):
        return _Counted(None, None, storage_proofs.why_not(kind, facts) or _NOT_COUNTED)
    cached = max(0.0, 1 - fetched / traffic.asked)
    if cached > LIMIT and fetched and storage_proofs.is_compressed(facts):
        return _Counted(fetched, None, "the files are compressed, so fewer bytes arrive than are read")
    return _Counted(fetched, cached, source)


def _counted_by_client(traffic: _Traffic, received: int, name: str, kind: str) -> _Counted:
    """Return what the counters of the file system's clients show. Other processes on the nodes may have read, too. All
    bytes from memory are attributed to the run. `client_received` also includes metadata and bytes that the client
    requested twice; these do not offset bytes that the client returned from its own memory.
    """
    asked, programs, kept = traffic.asked, max(traffic.asked, traffic.client_asked or 0), traffic.client_kept or 0
    is_below_pages = not storage_proofs.of(kind).pages
    if is_below_pages and traffic.client_asked is not None:  # it is not asked for pages that the page cache has
        received = min(received, traffic.client_asked)
    missing = programs - received
    most = max(missing, programs - (traffic.client_asked or received) + kept) if kept else missing
    cached, most_cached = (min(1.0, max(0.0, count / asked)) for count in (missing, most))
    if cached <= LIMIT < most_cached:
        return _Counted(received, None, f"{kind} may have kept {format_size(min(kept, asked))} in its own memory")
    if traffic.client_asked is None and cached <= LIMIT:
        return _Counted(received, None, f"{name} includes what other programs read")
    return _Counted(received, most_cached if most_cached <= LIMIT else cached, name)


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
    if epoch.page_cache_fraction is None or _bypasses_pages(run, result):
        return None
    if run.workload.reader.shard:
        return epoch.page_cache_fraction
    return max(epoch.page_cache_fraction, 1 - 1 / result.ranks_per_node)


def _bypasses_pages(run: Run, result: Result) -> bool:
    return run.workload.is_direct and storage_proofs.bypasses_pages(result.file_system, result.cache_facts)


def _outgrown(run: Run, result: Result, epoch: Epoch, reason: str) -> tuple[float | None, str]:
    """Return an upper limit on the share of bytes from memory, and the fact on which it is based. The limit is None
    unless the epoch reads far more distinct bytes than the memory of all nodes can hold. reason: reason why the share
    is unknown, returned if the limit is None.
    """
    memory = result.physical_memory_bytes or result.memory_bytes  # other jobs' limits count the pages that they read
    different = min(epoch.bytes_read, result.dataset.bytes)
    if memory and run.workload.reader.shard and different >= memory / LIMIT:
        return memory / different, "larger than the memory of all nodes"
    return None, reason


def _advice(run: Run, result: Result, epochs: Sequence[EpochStorage]) -> Iterator[str]:
    """Yield options of dlio-submit that prove that bytes come from storage, the most effective first. Options that
    prove nothing on this file system are left out. epochs: storage of all epochs.
    """
    checkpoint = run.workload.checkpoint
    if result.file_system in MEMORY:
        yield f"--data on a file system other than {result.file_system}"
        return
    at_fault = [epoch for epoch in epochs if epoch.cached is None or epoch.cached > LIMIT]
    if checkpoint is not None and not any(epoch.epoch for epoch in at_fault):
        if not checkpoint.direct and checkpoint.mode == "posix" and _reaches_storage(*_outputs(result)):
            yield "-S checkpoint.direct=true (O_DIRECT)"
        if not checkpoint.reorder and result.nodes > 1:
            yield "-S checkpoint.reorder=1 (each node reads what another node wrote)"
        return
    if run.workload.inference is not None:
        yield from _advice_on_blocks(run.workload.inference, result)
        return
    yield from _advice_on_samples(run, result)


def _advice_on_blocks(keys: InferenceKeys, result: Result) -> Iterator[str]:
    kind, facts = result.file_system, result.cache_facts
    proofs: Proofs = storage_proofs.of(kind, facts)
    if not keys.direct and _reaches_storage(kind, facts):
        yield "-S inference.direct=true (O_DIRECT)"
    if proofs.remedy:
        yield proofs.remedy
    if not proofs.count and not proofs.direct:
        yield f"--data on a file system other than {kind}: nothing on this one shows whether storage was read"


def _advice_on_samples(run: Run, result: Result) -> Iterator[str]:
    reader, dataset = run.workload.reader, run.workload.dataset
    kind, facts, memory = result.file_system, result.cache_facts, result.memory_bytes
    proofs: Proofs = storage_proofs.of(kind, facts)
    plain = not dataset.is_chunked and dataset.compression == "none" and not dataset.facts.holds_text
    can_be_direct = reader.mode == "posix" and reader.access == "independent" and plain
    if not reader.direct and can_be_direct and _reaches_storage(kind, facts):
        yield "-S reader.direct=true (O_DIRECT)"
    if not reader.drop_cache and proofs.drops:
        yield "-S reader.drop_cache=true"
    if proofs.remedy:
        yield proofs.remedy
    if not reader.reorder_tasks and result.nodes > 1:
        yield "-S reader.reorder_tasks=true (each node reads what another node wrote)"
    if not proofs.size and not proofs.count:
        yield f"--data on a file system other than {kind}: nothing on this one shows whether storage was read"
    elif not memory:
        yield f"a dataset of {ENOUGH} times the nodes' memory"
    elif result.dataset.bytes < ENOUGH * memory and dataset.existing is None:
        unit = dataset.sample_bytes * (1 if dataset.file_access == "shared" else dataset.samples_per_file)
        size = rounded_up(ENOUGH * memory + unit)  # the resized dataset may be one file smaller
        yield (
            f"--dataset-size {size}: {ENOUGH} times the nodes' {format_size(memory)} of memory, now "
            f"{format_size(result.dataset.bytes)}"
        )


def _reaches_storage(kind: str, facts: list[str]) -> bool:
    """Return whether O_DIRECT makes reads reach storage, and whether this can be proved."""
    proofs = storage_proofs.of(kind, facts)
    return proofs.direct or bool(proofs.count and proofs.drops and not proofs.pages)
