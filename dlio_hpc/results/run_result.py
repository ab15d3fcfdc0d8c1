"""result.json: the measurements of a run, in one file for all ranks (schema 1). Times are in seconds, sizes in bytes,
rates in MB/s (1 MB = 1e6 bytes).
"""

import math
from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from dlio_hpc.base import serialization
from dlio_hpc.base.errors import InvalidRun, shortened
from dlio_hpc.files import rundir
from dlio_hpc.results.phases import Phase


class Distribution(Struct, frozen=True):
    """A distribution of times, in seconds. Times of steps are exact; latencies of reads, opens and closes are accurate
    to within 4.5 %.
    """

    mean: float
    """Mean of the times."""
    p50: float
    """Median of the times."""
    p95: float
    """95th percentile of the times."""
    p99: float
    """99th percentile of the times."""
    max: float
    """Longest of the times."""
    p999: float | None = None
    """99.9th percentile of the times; null: not computed."""


class CheckpointSummary(Struct, frozen=True):
    """The checkpoints that a run wrote."""

    count: int
    """Number of checkpoints. A checkpoint that several ranks write is counted once."""
    bytes_written: int
    """Bytes that all ranks wrote."""
    pause_s: Distribution
    """Time that training waits for a checkpoint; one value per checkpoint and rank. Time in which dlio-hpc makes or
    compares contents is not included.
    """
    write_s: Distribution
    """Time of write requests; one value per checkpoint and writing rank."""
    fsync_s: Distribution
    """Time of fsync; one value per checkpoint and writing rank."""
    read_s: Distribution | None
    """Time of reading a checkpoint back; null: checkpoints are not read back."""
    write_MBps: float
    """Bytes written, divided by the time that the slowest rank spends in write and fsync."""
    read_MBps: float | None
    """Bytes written, divided by the time in which the slowest rank reads them back; null: not read back."""
    safe_s: Distribution | None = None
    """Time until a checkpoint is safe: write and fsync of the slowest rank; one value per checkpoint."""
    own_s: float = 0.0
    """Time in which dlio-hpc generates the contents of checkpoints, and compares the contents that it reads back, as
    the mean over ranks. The summary includes this time in overhead_s only.
    """


class RestoreSummary(Struct, frozen=True):
    """The checkpoints that a run read after its last step."""

    count: int
    """Number of checkpoints that were read."""
    bytes_read: int
    """Bytes that all ranks read."""
    read_s: Distribution
    """Time of opening and reading; one value per checkpoint and reading rank."""
    slowest_s: Distribution
    """Time of opening and reading of the slowest rank; one value per checkpoint."""
    read_MBps: float
    """Bytes read, divided by the time of the slowest rank."""
    gap_s: float
    """Time from the end of the last write to the first read."""
    storage_bytes_read: int | None
    """Bytes that the kernel fetched from storage for the ranks; null: unknown."""
    client_bytes_asked: int | None
    """Bytes that programs on the nodes read, as the clients of the file system count them; null: not counted."""
    client_bytes_read: int | None
    """Bytes that servers sent to the nodes, as the clients of the file system count them; null: not counted."""
    page_cache_fraction: float | None
    """Share of the pages that were in memory before each checkpoint was read; null: not checked."""
    verify_s: float
    """Time of comparing the contents, as the mean over ranks; 0: they were not compared."""
    client_bytes_kept: int | None = None
    """Bytes that the clients returned from their own memory, at most; null: not counted."""


class EvaluationSummary(Struct, frozen=True):
    """The evaluation passes of a run. No other value of the summary includes them."""

    count: int
    """Number of passes."""
    samples: int
    """Number of samples that all ranks read."""
    bytes_read: int
    """Bytes of the samples that all ranks read."""
    wall_s: float
    """Duration of all passes, each from its first step to the end of its last step."""
    wait_s: float
    """Time that ranks wait for batches, as the mean over ranks."""
    compute_s: float
    """Time of emulated computation, as the mean over ranks."""
    sync_s: float
    """Time in barriers, as the mean over ranks."""
    samples_per_s: float
    """Samples divided by wall_s."""
    read_MBps: float
    """Bytes read divided by wall_s."""
    storage_bytes_read: int | None
    """Bytes that the kernel fetched from storage for the ranks; null: unknown."""
    client_bytes_asked: int | None
    """Bytes that programs on the nodes read, as the clients of the file system count them; null: not counted."""
    client_bytes_read: int | None
    """Bytes that servers sent to the nodes, as the clients of the file system count them; null: not counted."""
    page_cache_fraction: float | None
    """Share of the pages that were in memory before each pass; null: not checked."""
    client_bytes_kept: int | None = None
    """Bytes that the clients returned from their own memory, at most; null: not counted."""


class AuxiliaryFilesSummary(Struct, frozen=True):
    """Requests to auxiliary files. The time of requests made before a step is part of the wait of that step. The time
    of requests made at the start of an epoch is part of the wait of its first step.
    """

    opens: int
    """Number of opens by all ranks."""
    reads: int
    """Number of read requests by all ranks."""
    writes: int
    """Number of write requests by all ranks."""
    bytes_read: int
    """Bytes that all ranks read; not included in the summary's bytes_read."""
    bytes_written: int
    """Bytes that all ranks wrote."""
    time_s: float
    """Time that a rank spends in requests to auxiliary files, as the mean over ranks."""


class Level(Struct, frozen=True):
    """Mean and maximum of a value over the nodes that report it."""

    mean: float
    """Mean over the nodes that report the value."""
    max: float
    """Maximum over the nodes that report the value."""
    host: str
    """Name of the node with the maximum."""


class Disturbance(Struct, frozen=True):
    """Activity of other processes on the job's nodes, from kernel counters. A value is null if no node's kernel reports
    it.
    """

    seconds: float
    """Length of the observed interval."""
    cores: int | None
    """Number of CPUs of a node."""
    others: Level | None
    """Number of CPUs kept busy by processes other than the job's ranks and their children."""
    load: Level | None
    """Load average over the last minute of the interval."""
    steal: Level | None
    """Share of CPU time that the hypervisor gave to other guests (steal time)."""
    cpu_pressure: Level | None
    """Share of the interval in which at least one task of the node, the ranks included, waited for a CPU."""
    io_pressure: Level | None
    """Share of the interval in which at least one task of the node waited for I/O."""
    memory_pressure: Level | None
    """Share of the interval in which at least one task of the node waited for memory."""
    throttled: Level | None = None
    """Share of the periods of the ranks' CPU quota (cgroups(7)) in which they used up the quota and were stopped."""


class Epoch(Struct, frozen=True):
    """Results of an epoch. The times of an epoch add up to wall_s. The only exception is the comparison of contents
    after the last step, which is not part of wall_s.
    """

    epoch: int
    """Number of the epoch, counted from 1."""
    wall_s: float
    """Duration of the epoch."""
    steps: int
    """Number of steps done."""
    samples: int
    """Number of samples that all ranks read."""
    bytes_read: int
    """Bytes of the samples that all ranks read."""
    wait_s: float
    """Time that the training loop waits for batches, as the mean over ranks."""
    compute_s: float
    """Time of emulated computation, as the mean over ranks."""
    sync_s: float
    """Time in barriers, as the mean over ranks."""
    checkpoint_s: float = 0.0
    """Time that training waits for checkpoints, as the mean over ranks."""
    verify_s: float = 0.0
    """Time spent comparing samples with the generated contents, as the mean over ranks."""
    storage_bytes_read: int | None = None
    """Bytes that the kernel fetched from storage for the ranks; null: unknown."""
    client_bytes_asked: int | None = None
    """Bytes that programs on all nodes requested from the clients of the file system (Lustre, NFS, GlusterFS); null:
    unknown.
    """
    client_bytes_read: int | None = None
    """Bytes that servers sent to the clients of the file system on all nodes. If the file system is in a loop device:
    bytes that the disks below the loop device delivered. null: unknown.
    """
    client_bytes_kept: int | None = None
    """Bytes that the clients of the file system returned from their own memory, at most; null: unknown."""
    page_cache_fraction: float | None = None
    """Share of the dataset's pages that are in the page cache of the nodes before the epoch, estimated from a sample of
    the pages; null: unknown.
    """
    disturbance: Disturbance | None = None
    """Activity of other processes on the job's nodes during the epoch; null: not recorded."""
    au_mlperf: float | None = None
    """AU by MLPerf's formula, that is, without the first step; null: the epoch has one step, or the value was not
    recorded.
    """


class Interruption(Struct, frozen=True):
    """An interval in which ranks did not work as planned. The times of the step include this interval."""

    kind: Literal["stopped", "suspended", "compute"]
    """stopped: ranks were stopped and continued (SIGCONT), or all ranks computed far longer than requested in the same
    step; suspended: a node was suspended; compute: some ranks computed far longer than requested.
    """
    epoch: int
    """Number of the epoch, counted from 1; 0: unknown."""
    step: int
    """Number of the step in the epoch, counted from 1; 0: unknown."""
    seconds: float
    """Actual minus expected time of the step, or time for which the node was suspended."""
    ranks: int
    """Number of ranks concerned."""
    asked_s: float | None = None
    """Computation time that was requested for the step; null: the computation did not take longer."""


class SlowestRank(Struct, frozen=True):
    """The rank that spent the longest time waiting and computing."""

    rank: int
    """Number of the rank."""
    host: str
    """Name of the rank's node."""
    busy_s: float
    """Time in seconds that the rank spent waiting and computing."""
    ratio: float
    """busy_s of this rank, divided by busy_s of the median rank."""


class PageFaultsSummary(Struct, frozen=True):
    """Page faults of all ranks while they copied samples from files that are mapped into memory."""

    major: int
    """Page faults that waited for storage. A fault may bring several pages."""
    minor: int
    """Page faults whose page was in memory, of the file or of the batch."""


class PhaseSummary(Struct, frozen=True):
    """A phase of a metadata workload. If the phase was repeated, rates and times are medians over the repeats."""

    phase: Phase
    """Name of the phase, such as create."""
    operations: int
    """Number of operations of all ranks in all repeats."""
    per_s: float
    """Operations of all ranks per second, from the start of the first rank to the end of the last rank."""
    per_s_of_first: float
    """Operations of all ranks per second until the first rank has ended, if each rank makes them at a steady rate."""
    rates: tuple[float, ...]
    """per_s of each repeat."""
    wall_s: float
    """Seconds from the start of the first rank to the end of the last rank."""
    latency_s: Distribution | None
    """Latency of the operations, from a histogram with eight bins per octave; null: there were none."""
    slowest_rank: SlowestRank
    """The rank that took longest for its operations, over all repeats."""


class MixSummary(Struct, frozen=True):
    """Facts about a run that is a load of a mix. The common time is the time in which all loads of the launch run: from
    the latest start of a first step to the earliest end of a load.
    """

    load: str
    """Name of the load."""
    others: tuple[str, ...]
    """Names of the other loads that ran at the same time."""
    began_s: float
    """Start of the first step, in seconds after the launch began."""
    ended_s: float
    """End of the last step and its checkpoint, in seconds after the launch began."""
    common_s: tuple[float, float]
    """Begin and end of the common time, in seconds after the launch began."""
    overlap: float
    """Common time, as a share of the time in which this load ran."""
    samples_per_s: float | None
    """Samples/s of the whole epochs in the common time, without the time between epochs. Without a whole epoch, of the
    steps in the common time. null: the run reads no samples, or made fewer than 20 steps and no whole epoch.
    """


class PaceSummary(Struct, frozen=True):
    """Steps that start at fixed times (compute.interval)."""

    every_s: float
    """Planned time from the start of a step to the start of the next one, in seconds."""
    per_s: float
    """Steps per second from the start of the first step to the start of the last one."""
    latest_s: float
    """Largest delay of the start of a step, in seconds."""
    behind_s: float
    """Delay of the start of the last step, in seconds."""


# Largest share of requests that are late or not served if a number of users is served in time.
_LATE = 0.01


class UserTry(Struct, frozen=True):
    """A number of users that a search has tried in an epoch."""

    users: int
    """Number of users of the whole job."""
    ttft_p99_s: float | None
    """99th percentile of the time to the first token; null: no request arrived, or more than 1 % were not served."""
    is_in_time: bool
    """True if there were requests, 99 % of them were served with a first token within inference.target, and no queue
    grew.
    """
    requests: int = 0
    """Number of requests that arrived."""
    not_in_time: int = 0
    """Number of requests that were late or not served."""
    computation_share: float | None = None
    """Share of emulated computation in the time for which requests held their slots; null: unknown."""
    queue_share: float | None = None
    """Share of the wait in the queue in the times to the first token; null: unknown."""


class InferenceSummary(Struct, frozen=True):
    """Requests of an inference workload, over all ranks and epochs. Times of requests count from their intended
    arrival. After a search (inference.search), only the epochs with users_in_time users are counted or, if that is 0,
    those with the smallest number that was tried.
    """

    users: int
    """Number of users of the whole job."""
    requests: int
    """Number of requests that arrived."""
    served: int
    """Number of requests that were served. The others had not begun when inference.time was over."""
    late: int
    """Number of served requests whose time to the first token is above inference.target."""
    is_sustained: bool
    """False if the queue of a rank grows: at the end of inference.time, more requests wait than the rank has slots, and
    more than at half of the time.
    """
    wall_s: float
    """Seconds from the start of the first rank to the end of the last request, summed over epochs. The blocks that are
    written before the first request are not part of it.
    """
    blocks_prepared: int
    """Number of blocks that were written before the first request arrived, and are not measured."""
    blocks_read: int
    """Number of blocks that were read from storage."""
    blocks_written: int
    """Number of blocks that were written to storage."""
    block_bytes: int
    """Bytes of a block."""
    read_MBps: float | None
    """Bytes that a rank reads, divided by the seconds with at least one of its reads in flight, as the mean over ranks
    weighted by these seconds; null: nothing was read.
    """
    write_MBps: float | None
    """The same for writes; null: nothing was written."""
    read_rates: tuple[float | None, ...]
    """read_MBps of each epoch."""
    tokens_per_s: float | None
    """Tokens that a rank reads from storage, divided by the seconds with at least one of its reads in flight; null:
    nothing was read.
    """
    ttft_s: Distribution | None
    """Time to the first token, from a histogram with eight bins per octave; null: no request was served. The mean and
    the maximum are those of served requests. Quantiles are over all requests, and requests that were not served count
    as the longest: a quantile that falls among them is too low.
    """
    queue_s: Distribution | None
    """Part of ttft_s in which a request waits for a slot, for the request before it in its conversation, or for a block
    that another request writes.
    """
    load_s: Distribution | None
    """Part of ttft_s in the system calls that read blocks."""
    prefill_s: Distribution | None
    """Part of ttft_s in emulated computation."""
    read_s: Distribution | None
    """Latency of reading a block: open, read and close, or a read of the pool; null: nothing was read."""
    write_s: Distribution | None
    """Latency of writing a block: open, write, fsync if asked, and close, or a write to the pool; null: nothing was
    written.
    """
    memory_tokens: int
    """Tokens of histories and prompts that were found in memory."""
    storage_tokens: int
    """Tokens of histories and prompts that were read from storage."""
    computed_tokens: int
    """Tokens of histories and prompts that were computed."""
    dropped_blocks: int
    """Number of blocks that memory forgot, because it was full."""
    removed_blocks: int
    """Number of blocks that were removed from storage, because it was full."""
    users_in_time: int | None = None
    """Largest number of users in time that a search has tried; 0: all numbers were too large; null: no search."""
    tries: tuple[UserTry, ...] = ()
    """The numbers of users that a search has tried, in their order; empty: no search."""
    held_s: float | None = None
    """Seconds for which requests held their slots, over all slots: from their start to the end of their answer."""
    held_by_reads_s: float | None = None
    """Part of held_s in the system calls that read blocks."""
    held_by_writes_s: float | None = None
    """Part of held_s by which writing and removing blocks delays the end of answers."""
    held_by_computation_s: float | None = None
    """Part of held_s in emulated computation. What is left of held_s are waits for blocks of other requests, and the
    cost of dlio-hpc.
    """

    @property
    def not_in_time(self) -> int:
        """Number of requests that were late or not served."""
        return self.late + self.requests - self.served

    @property
    def is_in_time(self) -> bool:
        """True if there were requests, 99 % of them were served with a first token within inference.target, and no
        queue grew.
        """
        return self.requests > 0 and self.is_sustained and self.not_in_time <= _LATE * self.requests

    @property
    def has_enough(self) -> bool:
        """True if there were so many requests that one of them is a hundredth or less."""
        return self.requests * _LATE >= 1

    @property
    def computation_share(self) -> float | None:
        """Share of emulated computation in the time for which requests held their slots."""
        if not self.held_s or self.held_by_computation_s is None:
            return None
        return min(1.0, self.held_by_computation_s / self.held_s)

    @property
    def queue_share(self) -> float | None:
        """Share of the wait in the queue in the times to the first token of served requests."""
        return self.queue_s.mean / self.ttft_s.mean if self.queue_s and self.ttft_s and self.ttft_s.mean else None

    def first_token(self, quantile: Literal["p50", "p95", "p99"]) -> float | None:
        """Return a quantile of the time to the first token over all requests; None if so many of them were not served
        that the quantile is the time of one of these.
        """
        share = {"p50": 0.50, "p95": 0.95, "p99": 0.99}[quantile]
        if self.ttft_s is None or self.served < math.ceil(share * self.requests):
            return None
        return float(getattr(self.ttft_s, quantile))

    @property
    def tokens(self) -> int:
        """Tokens of histories and prompts of served requests."""
        return self.memory_tokens + self.storage_tokens + self.computed_tokens

    @property
    def bytes_read(self) -> int:
        """Bytes of the blocks that were read."""
        return self.blocks_read * self.block_bytes

    @property
    def bytes_written(self) -> int:
        """Bytes of the blocks that were written."""
        return self.blocks_written * self.block_bytes


class Summary(Struct, frozen=True):
    """Summary of all epochs and ranks of a warm-up or measurement. Fields without a description are metrics;
    results.metrics defines them. Every metric except au_mlperf includes the first step of each epoch. If the workload
    only writes checkpoints, no samples are read, and the fields on reading them are null.
    """

    samples: int
    """Number of samples that all ranks read in all epochs. Without a dataset, the samples of each batch are counted as
    read.
    """
    samples_left_out: int
    """Number of samples that are not read because of reader.drop_last or train.steps."""
    steps: int
    """Number of steps done; fewer than planned if time ran out."""
    steps_planned: int
    """Number of steps planned."""
    bytes_read: int
    """Bytes of the samples read, counted as samples arrive."""
    overhead_bytes_read: int
    """Bytes that were read in addition to samples, such as headers."""
    storage_bytes_read: int | None
    """Bytes that the kernel fetched from storage for the ranks; null: unknown."""
    wall_s: float
    samples_per_s: float | None
    read_MBps: float | None
    au: float | None
    au_mlperf: float | None
    io_time_s: float | None
    io_hidden_fraction: float | None
    """Share of io_time_s that overlaps with computation."""
    opens: int
    """Number of opens of sample files by all ranks."""
    reads: int
    """Number of read requests to the operating system."""
    wait_s: Distribution
    """Wait for a batch; one value per step and rank."""
    compute_s: Distribution
    """Emulated computation; one value per step and rank."""
    sync_s: Distribution
    """Time in the barrier; one value per step and rank."""
    read_latency_s: Distribution | None
    """Latency of reads; one value per request or library call, from a histogram with eight bins per octave; null: reads
    are not timed.
    """
    compute_asked_s: float
    """Computation time that the workload requests for a step, as the mean over steps and ranks."""
    slowest_rank: SlowestRank
    """The rank that spent the longest time waiting and computing."""
    checkpoint: CheckpointSummary | None = None
    """The checkpoints that were written; null: the run wrote none."""
    restored: RestoreSummary | None = None
    """The checkpoints that were read after the last step; null: the run read none."""
    evaluation: EvaluationSummary | None = None
    """The evaluation passes; null: the run had none."""
    metadata: tuple[PhaseSummary, ...] = ()
    """The phases of a metadata workload, in their order; empty for other workloads."""
    inference: InferenceSummary | None = None
    """The requests of an inference workload; null: other workloads."""
    preprocess_s: float = 0.0
    """Time that the preprocessing threads of a rank spend, summed over the threads, as the mean over ranks."""
    auxiliary_files: AuxiliaryFilesSummary | None = None
    """The requests to auxiliary files; null: the run made none."""
    verify_s: float = 0.0
    """Time spent comparing samples with the generated contents, as the mean over ranks. wall_s includes this time,
    except after the last step of the run. No other time includes it.
    """
    samples_verified: int = 0
    """Number of samples that were compared with the generated contents."""
    opens_per_s: float | None = None
    open_latency_s: Distribution | None = None
    """Latency of the opens of sample files, from a histogram with eight bins per octave; null: no file was opened, or a
    library opened them and does not tell how long it took.
    """
    close_latency_s: Distribution | None = None
    """Latency of the closes of sample files; null: as for open_latency_s, or no file was closed before the end."""
    metadata_fraction: float | None = None
    cut_short: str | None = None
    """Parts that are incomplete because the job's time ran out, such as "4 of 10 checkpoints read"; null: nothing."""
    pace: PaceSummary | None = None
    """Steps at fixed times; null: compute.interval is not set, or there is only one step."""
    mix: MixSummary | None = None
    """Facts about the other loads that ran at the same time; null: the run is not a load of a mix."""
    page_faults: PageFaultsSummary | None = None
    """Page faults while samples were copied from mapped files; null: files were not mapped."""
    overhead_s: float | None = None
    """Time that dlio-hpc itself takes, as the mean over ranks; null: not measured. It includes: bookkeeping after each
    step; between epochs, dropping the page cache and determining what it holds; and own_s of the checkpoints. If the
    native loader reads in posix mode, it also includes the part of wait_s in which no file is read, opened or closed.
    """
    interruptions: list[Interruption] = []
    """Times in which ranks were stopped or computed far longer than requested, the longest first; 20 at most."""


def unfinished(summary: Summary) -> str | None:
    """Return what a run has not finished because time ran out, or None if it has finished."""
    if summary.cut_short is None and summary.steps < summary.steps_planned:
        return f"{summary.steps} of {summary.steps_planned} steps"  # the result is of a version without cut_short
    return summary.cut_short


class DatasetFacts(Struct, frozen=True):
    """The dataset that was read or generated."""

    path: str
    """Directory of the dataset."""
    fingerprint: str
    """Fingerprint of the dataset."""
    format: str
    """Format of the files."""
    files: int
    """Number of files."""
    samples: int
    """Number of samples."""
    bytes: int
    """Bytes of the samples before compression."""
    is_existing: bool = False
    """True if the dataset existed before and was not generated; its contents are then not verified."""


class Generated(Struct, frozen=True):
    """Outcome of a run that generates a dataset."""

    reused: bool
    """True if a complete dataset existed and nothing was written."""
    dataset: str
    """Directory of the dataset."""
    files: int
    """Number of sample files written. It is less than the number of files of the dataset if the run continued an
    interrupted generation.
    """
    bytes_written: int
    """Bytes written."""
    wall_s: float
    """Duration of writing, including the sync to storage."""
    write_MBps: float | None
    """Bytes written divided by wall_s; null: nothing was written."""


class Result(Struct, frozen=True):
    """Result of a run. A run is one start of the ranks by the launcher."""

    run: str
    """Name of the run, such as 01-measure."""
    kind: Literal["generate", "warmup", "measure"]
    """Kind of the run: generate, warmup or measure."""
    plan_sha256: str
    """SHA-256 of the job's plan.json."""
    started: str
    """Start time, UTC."""
    ended: str
    """End time, UTC."""
    ranks: int
    """Number of ranks."""
    nodes: int
    """Number of nodes."""
    ranks_per_node: int
    """Ranks per node."""
    dataset: DatasetFacts
    """The dataset that was read or generated."""
    hosts: list[str]
    """Names of the nodes."""
    versions: dict[str, str]
    """Versions of dlio-hpc, Python, MPI and libraries."""
    epochs: list[Epoch]
    """Results of each epoch; empty for a generate run."""
    summary: Summary | None
    """Summary of all epochs; null for a generate run."""
    generated: Generated | None = None
    """Outcome of generating the dataset; null for other runs."""
    hints: dict[str, str] = {}
    """MPI-IO hints in effect."""
    faults: list[str] = []
    """Differences from the plan; a run with faults is invalid."""
    gap_s: float | None = None
    """Time from the end of the job's previous run to the start of this run; null for the first run."""
    file_system: str = ""
    """Kind of the dataset's file system, such as lustre or fuse.glusterfs."""
    cache_facts: list[str] = []
    """Facts about the dataset's file system that invalidate evidence of reading storage: mount options (fsc), a loop
    device, a block device in memory, compressed files.
    """
    outputs_cache_facts: list[str] = []
    """The same facts about the file system of the checkpoints."""
    evaluation_file_system: str = ""
    """Kind of the file system of the evaluation's dataset; empty: there is no evaluation."""
    evaluation_cache_facts: list[str] = []
    """The same facts about the file system of the evaluation's dataset."""
    outputs_on: str = ""
    """Type and mount point of the file system of the checkpoints and auxiliary files that the run writes; empty: the
    run writes none. Example: lustre /scratch
    """
    memory_bytes: int | None = None
    """Memory that the job may use on all nodes together; null: unknown."""
    physical_memory_bytes: int | None = None
    """Memory that all nodes have together; null: unknown."""
    disturbance: Disturbance | None = None
    """Activity of other processes on the job's nodes, from the start of the first epoch to the end of the last; null:
    not recorded.
    """
    schema: Literal[1] = 1
    """Schema version of this document."""


class RunError(Struct, frozen=True):
    """error.json: the first fault that ended a run. rank, host: the rank and the node on which the fault was raised.
    kind: name of the error class. exit_code: exit code of that class.
    """

    rank: int
    host: str
    kind: str
    message: str
    exit_code: int


def decode(content: bytes, source: str) -> Result:
    """Decode the content of a result.json. Raise InvalidRun if the content is not valid. source: name of the file, for
    messages.
    """
    result = serialization.decode(content, Result, source, InvalidRun)
    serialization.check_moments([result], ("started", "ended"), source)
    return result


def decode_error(content: bytes, source: str) -> RunError:
    """Decode the content of an error.json, and shorten long strings in it. Raise InvalidRun if the content is not
    valid. source: name of the file, for messages.
    """
    error = serialization.decode(content, RunError, source, InvalidRun)
    return structs.replace(error, message=shortened(error.message), host=shortened(error.host))


def write(path: Path, result: Result) -> None:
    rundir.write(path, serialization.encode(result))
