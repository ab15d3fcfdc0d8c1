"""result.json: what one run measured, one file however many ranks (schema 1). Seconds, bytes, MB = 1e6 bytes."""

from pathlib import Path
from typing import Literal

from msgspec import Struct, structs

from dlio_hpc import document
from dlio_hpc.errors import InvalidRun, shortened
from dlio_hpc.files import rundir


class Distribution(Struct, frozen=True):
    """Seconds. Steps are told exactly; read latencies from a histogram of 8 bins an octave (within 4.5 %)."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float


class CheckpointSummary(Struct, frozen=True):
    """`count` checkpoints of all ranks together. pause_s: training stands still, a checkpoint and rank each.

    write_s, fsync_s, read_s: of the ranks that wrote, a checkpoint each. Rates are all bytes over the slowest rank's
    write and fsync, or reading back; None when nothing was read back.
    """

    count: int
    bytes_written: int
    pause_s: Distribution
    write_s: Distribution
    fsync_s: Distribution
    read_s: Distribution | None
    write_MBps: float
    read_MBps: float | None


class SideFilesSummary(Struct, frozen=True):
    """Requests beside the samples, of all ranks; time_s: in them, mean over ranks. None of it is in bytes_read, but
    what is due in a step or an epoch's begin is part of that step's wait.
    """

    opens: int
    reads: int
    writes: int
    bytes_read: int
    bytes_written: int
    time_s: float


class Level(Struct, frozen=True):
    """A figure over the nodes that report it: mean, maximum, and the host with the maximum."""

    mean: float
    max: float
    host: str


class Disturbance(Struct, frozen=True):
    """Other activity on the nodes. seconds: length of the interval. cores: CPUs of a node. others: CPUs that processes
    other than the job's ranks and their children kept busy. load: load average of the last minute at the end. steal:
    share of CPU time that a hypervisor gave to other guests. cpu_pressure, io_pressure, memory_pressure: share of the
    time in which some task of the node, including the ranks, waited for that resource. None where no kernel reports it.
    """

    seconds: float
    cores: int | None
    others: Level | None
    load: Level | None
    steal: Level | None
    cpu_pressure: Level | None
    io_pressure: Level | None
    memory_pressure: Level | None


class Epoch(Struct, frozen=True):
    """wait_s, compute_s, sync_s, checkpoint_s and verify_s (comparing contents) are means over ranks of the epoch's
    total; they add up to wall_s, except for comparing after the last step. storage_bytes_read is what the kernel
    fetched from storage for the ranks; None where it does not tell. client_bytes_asked, client_bytes_read: what was
    read through the file system's clients on all nodes, by whomever, and what servers sent for it (Lustre, NFS).
    page_cache_fraction: share of the inspected pages that lay in the nodes' memory before the epoch; None: unknown.
    disturbance: None where it was not recorded.
    """

    epoch: int
    wall_s: float
    steps: int
    samples: int
    bytes_read: int
    wait_s: float
    compute_s: float
    sync_s: float
    checkpoint_s: float = 0.0
    verify_s: float = 0.0
    storage_bytes_read: int | None = None
    client_bytes_asked: int | None = None
    client_bytes_read: int | None = None
    page_cache_fraction: float | None = None
    disturbance: Disturbance | None = None


class SlowestRank(Struct, frozen=True):
    """The rank that waited and computed longest; `ratio` is its time over the median rank's."""

    rank: int
    host: str
    busy_s: float
    ratio: float


class Summary(Struct, frozen=True):
    """All epochs and ranks of a warm-up or measured run; the first step is in every figure but au_mlperf.

    samples_left_out: of the dataset, in all epochs: dropped by drop_last or beyond train.steps. steps: done, fewer than
    steps_planned when the job's time was over. bytes_read: sample bytes where they arrived. overhead_bytes_read: what
    formats read beside them (headers). compute_asked_s: mean asked of a step. read_latency_s, io_time_s: None when no
    read was timed (TensorFlow's own). reads: requests to the system. preprocess_s: of threads, in all, mean over ranks.
    au = compute / (compute + wait). au_mlperf = asked compute / running time, without each epoch's first step; None
    when an epoch has one step only. verify_s: seconds of comparing `samples_verified` samples with the generated
    contents, between steps, mean over ranks; with verify_content: first only the beginning of a sample is compared. The
    time is part of wall_s and of no other time.
    """

    samples: int
    samples_left_out: int
    steps: int
    steps_planned: int
    bytes_read: int
    overhead_bytes_read: int
    storage_bytes_read: int | None
    wall_s: float
    samples_per_s: float
    read_MBps: float
    au: float | None
    au_mlperf: float | None
    io_time_s: float | None
    io_hidden_fraction: float | None
    opens: int
    reads: int
    wait_s: Distribution
    compute_s: Distribution
    sync_s: Distribution
    read_latency_s: Distribution | None
    compute_asked_s: float
    slowest_rank: SlowestRank
    checkpoint: CheckpointSummary | None = None
    preprocess_s: float = 0.0
    auxiliary_files: SideFilesSummary | None = None
    verify_s: float = 0.0
    samples_verified: int = 0


class DatasetFacts(Struct, frozen=True):
    """What was read or generated. bytes: the samples' payload before compression, of the whole dataset."""

    path: str
    fingerprint: str
    format: str
    files: int
    samples: int
    bytes: int


class Generated(Struct, frozen=True):
    """What a generate run did. `reused`: a complete dataset of this fingerprint lay there, nothing was written."""

    reused: bool
    dataset: str
    files: int
    bytes_written: int
    wall_s: float
    write_MBps: float | None


class Result(Struct, frozen=True):
    """One run. hints: what MPI-IO worked with. gap_s: from the end of the job's run before; None for its first.
    file_system: kind of the dataset's, by its magic number. memory_bytes: of all nodes together, as far as the job may
    use it; None where it was not asked for. disturbance: from the begin of the first epoch to the end of the last one,
    including the time between epochs; None where it was not recorded.
    """

    run: str
    kind: Literal["generate", "warmup", "measure"]
    plan_sha256: str
    started: str
    ended: str
    ranks: int
    nodes: int
    ranks_per_node: int
    dataset: DatasetFacts
    hosts: list[str]
    versions: dict[str, str]
    epochs: list[Epoch]
    summary: Summary | None
    generated: Generated | None = None
    hints: dict[str, str] = {}
    faults: list[str] = []
    gap_s: float | None = None
    file_system: str = ""
    memory_bytes: int | None = None
    disturbance: Disturbance | None = None
    schema: Literal[1] = 1


class RunError(Struct, frozen=True):
    """error.json: the first fault that ended a run, with the exit code of its class."""

    rank: int
    host: str
    kind: str
    message: str
    exit_code: int


def decode(content: bytes, source: str) -> Result:
    """A result.json; InvalidRun when it is none."""
    result = document.decode(content, Result, source, InvalidRun)
    document.check_moments([result], ("started", "ended"), source)
    return result


def decode_error(content: bytes, source: str) -> RunError:
    """An error.json; InvalidRun when it is none."""
    error = document.decode(content, RunError, source, InvalidRun)
    return structs.replace(error, message=shortened(error.message), host=shortened(error.host))


def write(path: Path, result: Result) -> None:
    rundir.write(path, document.encode(result))
