"""result.json: the measurements of a run, in a single file for all ranks (schema 1). Units: seconds, bytes, MB = 1e6
bytes.
"""

from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from dlio_hpc import document
from dlio_hpc.errors import InvalidRun, shortened
from dlio_hpc.files import rundir


class Distribution(Struct, frozen=True):
    """A distribution of times. Those of steps are exact; read latencies are within 4.5 %."""

    mean: float
    """Mean, in seconds."""
    p50: float
    """Median."""
    p95: float
    """95th percentile."""
    p99: float
    """99th percentile."""
    max: float
    """Maximum."""


class CheckpointSummary(Struct, frozen=True):
    """Checkpoints of a run."""

    count: int
    """Checkpoints, of all ranks together."""
    bytes_written: int
    """Bytes written, by all ranks."""
    pause_s: Distribution
    """Time in which training waits for a checkpoint, per checkpoint and rank."""
    write_s: Distribution
    """Time of writing, per checkpoint of the ranks that write."""
    fsync_s: Distribution
    """Time of fsync."""
    read_s: Distribution | None
    """Time of reading back; null: not read back."""
    write_MBps: float
    """Bytes divided by the slowest rank's time of write and fsync."""
    read_MBps: float | None
    """Bytes divided by the slowest rank's time of reading back."""


class AuxiliaryFilesSummary(Struct, frozen=True):
    """Requests to auxiliary files. Requests in a step or at the start of an epoch are part of that step's wait."""

    opens: int
    """Files opened, by all ranks."""
    reads: int
    """Read requests."""
    writes: int
    """Write requests."""
    bytes_read: int
    """Bytes read; not included in the summary's bytes_read."""
    bytes_written: int
    """Bytes written."""
    time_s: float
    """Time in these requests, mean over ranks."""


class Level(Struct, frozen=True):
    """A value over the nodes that report it."""

    mean: float
    """Mean over the nodes that report it."""
    max: float
    """Maximum over nodes."""
    host: str
    """Host with the maximum."""


class Disturbance(Struct, frozen=True):
    """Other activity on the nodes, from kernel counters; null if no node's kernel reports it."""

    seconds: float
    """Length of the interval."""
    cores: int | None
    """CPUs of a node."""
    others: Level | None
    """CPUs that processes other than the job's ranks and their children kept busy."""
    load: Level | None
    """Load average of the last minute, at the end of the interval."""
    steal: Level | None
    """Share of CPU time that a hypervisor gave to other guests."""
    cpu_pressure: Level | None
    """Share of the time in which a task of the node, the ranks included, waited for a CPU."""
    io_pressure: Level | None
    """Share of the time in which a task waited for I/O."""
    memory_pressure: Level | None
    """Share of the time in which a task waited for memory."""


class Epoch(Struct, frozen=True):
    """An epoch. Its times add up to wall_s, except for comparing after the last step."""

    epoch: int
    """Number of the epoch, from 1."""
    wall_s: float
    """Time of the epoch."""
    steps: int
    """Steps done."""
    samples: int
    """Samples read."""
    bytes_read: int
    """Bytes of samples."""
    wait_s: float
    """Time in which the training loop waits for batches, mean over ranks."""
    compute_s: float
    """Time of emulated computation, mean over ranks."""
    sync_s: float
    """Time in barriers, mean over ranks."""
    checkpoint_s: float = 0.0
    """Time in which training waits for checkpoints, mean over ranks."""
    verify_s: float = 0.0
    """Time of comparing contents, mean over ranks."""
    storage_bytes_read: int | None = None
    """Bytes that the kernel fetched from storage for the ranks; null: unknown."""
    client_bytes_asked: int | None = None
    """Bytes read through the file system's clients of all nodes (Lustre, NFS)."""
    client_bytes_read: int | None = None
    """Bytes that servers sent to these clients."""
    page_cache_fraction: float | None = None
    """Share of the inspected pages that were in the nodes' page cache before the epoch."""
    disturbance: Disturbance | None = None
    """Other activity on the nodes; null: not recorded."""


class SlowestRank(Struct, frozen=True):
    """The rank with the longest time of waiting and computing."""

    rank: int
    """Number of the rank."""
    host: str
    """Its host."""
    busy_s: float
    """Its time of waiting and computing."""
    ratio: float
    """busy_s divided by the median rank's time."""


class Summary(Struct, frozen=True):
    """All epochs and ranks of a warm-up or measured run. results.metrics defines the fields without a text here. Every
    metric except au_mlperf includes the first step.
    """

    samples: int
    """Samples read in all epochs by all ranks."""
    samples_left_out: int
    """Samples that drop_last or train.steps leave unread."""
    steps: int
    """Steps done; fewer than planned if the job's time ran out."""
    steps_planned: int
    """Steps planned."""
    bytes_read: int
    """Bytes of samples, counted on arrival."""
    overhead_bytes_read: int
    """Bytes that formats read in addition, such as headers."""
    storage_bytes_read: int | None
    """Bytes that the kernel fetched from storage for the ranks; null: unknown."""
    wall_s: float
    samples_per_s: float
    read_MBps: float
    au: float | None
    au_mlperf: float | None
    io_time_s: float | None
    io_hidden_fraction: float | None
    """Part of io_time_s within compute."""
    opens: int
    """Files opened."""
    reads: int
    """Read requests to the system."""
    wait_s: Distribution
    """Wait per step."""
    compute_s: Distribution
    """Computation per step."""
    sync_s: Distribution
    """Barrier per step."""
    read_latency_s: Distribution | None
    """Latency per request, or per library call, from a histogram with eight bins per octave."""
    compute_asked_s: float
    """Mean requested computation time."""
    slowest_rank: SlowestRank
    """The slowest rank."""
    checkpoint: CheckpointSummary | None = None
    """Checkpoints; null: none."""
    preprocess_s: float = 0.0
    """Time of preprocessing threads, mean over ranks."""
    auxiliary_files: AuxiliaryFilesSummary | None = None
    """Requests to auxiliary files; null: none."""
    verify_s: float = 0.0
    """Time of comparing samples with the generated contents, mean over ranks; included only in wall_s."""
    samples_verified: int = 0
    """Samples that were compared."""


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


class Generated(Struct, frozen=True):
    """Outcome of a generate run."""

    reused: bool
    """True if a complete dataset existed and nothing was written."""
    dataset: str
    """Directory of the dataset."""
    files: int
    """Files written."""
    bytes_written: int
    """Bytes written."""
    wall_s: float
    """Time of writing, fsync included."""
    write_MBps: float | None
    """Bytes divided by time; null: nothing was written."""


class Result(Struct, frozen=True):
    """A run of the ranks."""

    run: str
    """Name of the run, such as 01-measure."""
    kind: Literal["generate", "warmup", "measure"]
    """Kind of the run."""
    plan_sha256: str
    """SHA-256 of plan.json."""
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
    """Host names."""
    versions: dict[str, str]
    """Versions of dlio-hpc, Python, MPI and libraries."""
    epochs: list[Epoch]
    """Results by epoch."""
    summary: Summary | None
    """Summary of all epochs; null for a generate run."""
    generated: Generated | None = None
    """Outcome of a generate run; null for other runs."""
    hints: dict[str, str] = {}
    """MPI-IO hints in effect."""
    faults: list[str] = []
    """Differences from the plan; a run with faults is invalid."""
    gap_s: float | None = None
    """Time since the end of the job's previous run; null for the first run."""
    file_system: str = ""
    """Type of the dataset's file system, by its magic number."""
    memory_bytes: int | None = None
    """Memory of all nodes that the job may use; null: unknown."""
    disturbance: Disturbance | None = None
    """Other activity on the nodes, from the first epoch to the last."""
    schema: Literal[1] = 1
    """Schema version of this document."""


class RunError(Struct, frozen=True):
    """error.json: the first fault that ended a run, with the exit code of its class."""

    rank: int
    host: str
    kind: str
    message: str
    exit_code: int


def decode(content: bytes, source: str) -> Result:
    """Decode a result.json; InvalidRun if it is not valid."""
    result = document.decode(content, Result, source, InvalidRun)
    document.check_moments([result], ("started", "ended"), source)
    return result


def decode_error(content: bytes, source: str) -> RunError:
    """Decode an error.json; InvalidRun if it is not valid."""
    error = document.decode(content, RunError, source, InvalidRun)
    return structs.replace(error, message=shortened(error.message), host=shortened(error.host))


def write(path: Path, result: Result) -> None:
    rundir.write(path, document.encode(result))
