"""Memory that Darshan needs to record a run, reasons why Darshan cannot record a run, and a note if its record will be
incomplete. Comments on Darshan's settings refer to the documentation and source of darshan-runtime, versions 3.4 to
3.5.
"""

import math
import os
from typing import NamedTuple

from dlio_hpc.base.units import format_size
from dlio_hpc.config.dataset_keys import Dataset
from dlio_hpc.config.site import Site
from dlio_hpc.config.workload import Workload
from dlio_hpc.dataset import checkpoint_files, stored_parts
from dlio_hpc.dataset.rank_shares import largest_share, share, steps_per_epoch
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan, Run

# Sizes in bytes: a trace segment (the longer version), the header before a file's segments, and a counter record.
_SEGMENT, _HEAD, _RECORD = 40, 104, 704
_LEAST_SEGMENTS = 64
# Number of requests per open that do not read samples: for headers, ends of files, and lookups of libraries.
_PER_OPENING = 24
# Typical size in bytes of the smallest requests of libraries that choose request sizes themselves.
_LIBRARYS_REQUEST = 1 << 17
# Largest number of requests that a framework makes for the headers of a tensor in a checkpoint.
_HEADERS = 16
# Limits of traces. At its end, each rank allocates and clears as much memory as its trace may take, even for a short
# trace. The traces of all ranks together must fit into the memory of the process that reads the log.
MOST_TRACE_MIB, _ALL_TRACES_MIB, _LEAST_TRACE_KIB = 256, 2048, 128
# With a pool of 4096 MiB or more, Darshan miscounts the bytes of the pool and loses the log.
_MOST_POOL_MIB = 2047
_SPARE_FILES = 64
# This string occurs in libdarshan 3.4 and later, which read a configuration file.
_CONFIGURED_BY = b"DARSHAN_CONFIG_PATH"
# Limits compiled into versions before 3.4: MiB of trace per rank, and files per module.
_EARLY_TRACE_MIB, _EARLY_FILES = 4, 1024
# Maximum number of logs of worker processes in a run. Reports load all of them; 4096 logs take a few seconds.
_MOST_WORKER_LOGS = 4096


class Memory(NamedTuple):
    """Memory that Darshan may use in a rank. records: maximum number of files that Darshan keeps counters for.
    trace_kib: KiB for the DXT trace. wanted_kib: KiB that a trace of all planned requests needs. If this is more than
    `trace_kib`, the trace will be truncated. pool_mib: MiB for compression and for all modules except DXT. names_mib:
    MiB for the paths of files.
    """

    records: int
    trace_kib: int
    wanted_kib: int
    pool_mib: int
    names_mib: int


def memory(plan: Plan, run: Run) -> Memory:
    """Return the memory that Darshan needs for the run. The numbers are estimates, because libraries choose some
    requests themselves.
    """
    files, requests = _load(plan, run)
    # DXT doubles its buffer as it grows
    segments = max(_LEAST_SEGMENTS, 1 << math.ceil(math.log2(max(2 * requests / max(files, 1), 1))))
    wanted = math.ceil(files * (_HEAD + _SEGMENT * segments) * 1.1 / 1024) + 1024
    trace = min(wanted, _most_trace_kib(plan, run))
    records = files + _SPARE_FILES
    path_bytes = len(os.fsencode(run.dataset)) + len(os.fsencode(run.outputs)) + 64
    pool = max(4, math.ceil(2 * _RECORD * records / 2**20), math.ceil(trace / 1024)) + 1
    names = math.ceil(records * path_bytes / 2**20) + 1
    return Memory(records, trace, wanted, min(pool, _MOST_POOL_MIB), min(names, _MOST_POOL_MIB))


def hidden(site: Site, workload: Workload, ranks: int) -> tuple[str, str] | None:
    """Return the reason why Darshan cannot record the reads of a run, and a setting that makes the recording possible.
    Return None if Darshan can record the reads.
    """
    reader = workload.reader
    if reader.worker_processes:
        return _hidden_workers(site, workload, ranks)
    if reader.engine == "io_uring":
        return "Darshan does not record reads through io_uring", "reader.engine: preadv"
    return None


def _hidden_workers(site: Site, workload: Workload, ranks: int) -> tuple[str, str] | None:
    """Return the reason why Darshan cannot record the reads of worker processes, and a setting that makes the recording
    possible. Return None if Darshan can record these reads. A spawned worker process has its own log. A forked worker
    process and its rank share the memory of Darshan's counters, so both would write to the same counters.
    """
    alone = "reader.prefetch: 0"
    if workload.reader.multiprocessing_context == "fork":
        why = "under MPI, fork() corrupts Darshan's counts of PyTorch's worker processes"
        return why, "reader.multiprocessing_context: spawn"
    if site.darshan is not None and reads_configuration(site.darshan) is False:
        return "a Darshan older than 3.4 does not record worker processes", alone
    if (logs := worker_logs(workload, ranks, workload.train.epochs)) > _MOST_WORKER_LOGS:
        why = f"each worker process has a log of its own, and {logs} logs are more than {_MOST_WORKER_LOGS}"
        return why, f"a smaller reader.read_threads or train.epochs, or {alone}"
    return None


def worker_logs(workload: Workload, ranks: int, epochs: int) -> int:
    """Return the number of worker processes that all ranks start in `epochs` epochs. Each of these processes leaves a
    log.
    """
    if workload.reader.load == "memory":
        epochs = min(epochs, 1)
    return ranks * epochs * workload.reader.worker_processes


def most_trace_kib(plan: Plan) -> int:
    """Return the size in KiB that Darshan's trace of a rank may have in this job."""
    return max(_LEAST_TRACE_KIB, min(MOST_TRACE_MIB << 10, (_ALL_TRACES_MIB << 10) // plan.ranks))


def _most_trace_kib(plan: Plan, run: Run) -> int:
    """Return the size in KiB that Darshan's trace of a process may have. The worker processes of a rank share the size
    of the trace of a rank, but each has at least a minimum size.
    """
    return max(_LEAST_TRACE_KIB, most_trace_kib(plan) // max(_processes(run), 1))


def _processes(run: Run) -> int:
    """Return the number of worker processes that a rank has in all epochs together."""
    return 0 if run.kind == "generate" else worker_logs(run.workload, 1, run.workload.train.epochs)


def note(plan: Plan, run: Run) -> str | None:
    """Return a note if the trace of the run will be truncated, or if libdarshan is known to be older than 3.4.
    Otherwise return None. Counters are complete even if the trace is truncated.
    """
    if plan.site.darshan is not None and reads_configuration(plan.site.darshan) is False:
        return EARLY
    need = memory(plan, run)
    if need.wanted_kib <= need.trace_kib:
        return None
    whose = "process" if _processes(run) else "rank"
    return (
        f"Darshan's trace of {rundir.run_name(run.number, run.name)} needs {format_size(need.wanted_kib << 10)} per "
        f"{whose} but gets {format_size(need.trace_kib << 10)}: the trace will be truncated; the counters stay complete"
    )


EARLY = (
    "this Darshan is older than 3.4 and cannot read a configuration file: it records all files except those in the "
    f"folders of the system and of Python, but at most {_EARLY_FILES} files and {_EARLY_TRACE_MIB} MiB of trace per "
    "rank"
)


def reads_configuration(library: str) -> bool | None:
    """Return whether this libdarshan can read a configuration file. Versions since 3.4 can. Return None if the library
    file cannot be read.
    """
    try:
        with open(library, "rb") as file:
            return _CONFIGURED_BY in file.read()
    except OSError:
        return None


def _load(plan: Plan, run: Run) -> tuple[int, int]:
    """Return the maximum number of files that a rank accesses, and the maximum number of requests that it sends to
    them. If worker processes read for the rank, the numbers are for one worker process, which lives for an epoch, plus
    the checkpoint and auxiliary files of the rank.
    """
    workload = run.workload
    extra_files, extra_requests = _auxiliary_load(run)
    if run.kind == "generate":
        files = share(stored_parts.total(workload.dataset), plan.ranks, plan.ranks - 1)
        count = files[1] - files[0]
        per_file = workload.dataset.samples_per_file * _per_sample(workload.dataset, 1 << 20) + _PER_OPENING
        return count + extra_files, count * per_file + extra_requests
    files_read, openings = _files_read(plan, run)
    samples = min(
        steps_per_epoch(workload, plan.ranks) * workload.reader.batch_size * workload.train.epochs,
        workload.dataset.samples * workload.train.epochs,
    )
    if workload.reader.load == "memory":
        samples = largest_share(workload, plan.ranks)
    if workers := workload.reader.worker_processes:
        batch = workload.reader.batch_size
        samples = -(-largest_share(workload, plan.ranks) // (batch * workers)) * batch
        openings = min(openings, (samples + workload.dataset.files) * stored_parts.of(workload.dataset).number)
    requests = samples * _per_sample(workload.dataset, workload.request_size or _LIBRARYS_REQUEST)
    return files_read + extra_files, requests + openings * _per_opening(workload) + extra_requests


def _per_opening(workload: Workload) -> int:
    """Return the number of requests per open of a file, in addition to the requests that read samples. If the offsets
    of samples are computed and not looked up in the file, one request is counted as a margin. Libraries look up each
    array of a file.
    """
    looks = workload.reader.mode == "framework" or workload.dataset.facts.holds_chunks
    if looks or workload.dataset.compression != "none":
        return _PER_OPENING * len(workload.dataset.arrays or (1,))
    return 1


def _per_sample(dataset: Dataset, request: int) -> int:
    """Return the maximum number of requests for a sample. request: size of a request in bytes. A sample that is stored
    in chunks takes at least one request per chunk, and a sample in several arrays at least one per array.
    """
    if dataset.arrays is not None:
        return sum(-(-size // max(request, 1)) + 1 for size in dataset.arrays)
    if dataset.scan is not None and dataset.scan.columns:
        return len(dataset.scan.columns) + -(-dataset.largest // max(request, 1))
    if dataset.facts.holds_columns:
        return sum(-(-column.bytes // max(request, 1)) + 1 for column in dataset.all_columns)
    if dataset.documents is not None:  # documents may have half of the mean length where the sample is
        documents = 2 * dataset.sample.size // dataset.sample.item_bytes // dataset.documents.tokens + 2
        return documents + -(-dataset.largest // max(request, 1))
    if dataset.is_chunked:
        chunk = math.prod(dataset.chunk_shape or ()) * dataset.sample.item_bytes
        request = min(request, chunk)
    return -(-dataset.largest // max(request, 1)) + 1


def _files_read(plan: Plan, run: Run) -> tuple[int, int]:
    """Return how many different files a rank reads in all epochs, and how many times it opens files in total."""
    workload = run.workload
    dataset, reader, epochs = workload.dataset, workload.reader, workload.train.epochs
    per_rank = largest_share(workload, plan.ranks)
    if (reader.shuffle.files and reader.shuffle.samples) or dataset.counts_vary:
        an_epoch = min(dataset.files, per_rank)
    else:
        an_epoch = min(dataset.files, -(-per_rank // dataset.samples_per_file) + reader.files_in_turn(dataset))
    epochs = 1 if reader.load == "memory" else epochs
    changing = reader.shuffle.files and reader.shuffle.reseed
    opened = per_rank if reader.shuffle.files and reader.shuffle.samples else an_epoch
    parts = stored_parts.of(dataset).number
    return min(dataset.files, an_epoch * (epochs if changing else 1)) * parts, opened * epochs * parts


def _auxiliary_load(run: Run) -> tuple[int, int]:
    """Return the number of checkpoint and auxiliary files that a rank accesses, and the number of requests to them."""
    workload = run.workload
    steps = run.steps_per_epoch * workload.train.epochs
    files = requests = 0
    if (saved := workload.checkpoint) is not None:
        mine = checkpoint_files.of_rank(saved, 0)
        often = (steps // saved.every_steps if saved.every_steps else workload.train.epochs) + saved.reads
        files += len(mine) * saved.keep
        headers = 0 if saved.mode == "posix" else _HEADERS
        of_files = sum(-(-file.size // _LIBRARYS_REQUEST) + 2 + headers * len(file.arrays) for file in mine)
        requests += often * (len(saved.requests) + of_files)
    times = {"start": 1, "end": 1, "epoch": workload.train.epochs, "step": max(steps, 1)}
    for side in workload.dataset.auxiliary_files:
        files += 1
        requests += times[side.when] * (side.count + 3)
    return files, requests
