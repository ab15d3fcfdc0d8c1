"""Memory that Darshan needs for a run, and what is lost where it gets less.

What Darshan does with its settings (darshan-runtime's documentation and source, 3.4 to 3.5) is said where it matters.
"""

import math
import os
from typing import NamedTuple

from dlio_hpc.config.dataset_keys import ITEM_BYTES, Dataset
from dlio_hpc.config.workload import Workload
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan, Run, largest_share, share, steps_per_epoch
from dlio_hpc.units import format_size

# Bytes of a segment (of the longer version), of what stands before a file's segments, of a record that counts.
_SEGMENT, _HEAD, _RECORD = 40, 104, 704
_LEAST_SEGMENTS = 64
# Requests beside those for samples at every opening of a file: headers, ends, what libraries look up.
_PER_OPENING = 24
# Libraries that choose their requests themselves ask for no less at once, on the whole.
_LIBRARYS_REQUEST = 1 << 17
# Each rank sets aside and clears its trace's whole limit when it ends, however little there is to write.
# What is left when they end has to fit into the memory of whoever judges it: so much for all ranks together.
MOST_TRACE_MIB, _ALL_TRACES_MIB, _LEAST_TRACE_KIB = 256, 2048, 128
# From 4096 on Darshan counts the bytes of its pool wrongly, and loses the log.
_MOST_POOL_MIB = 2047
_SPARE_FILES = 64
# The name of a setting that a libdarshan holds from 3.4 on: it reads a configuration file then.
_CONFIGURED_BY = b"DARSHAN_CONFIG_PATH"
# Limits that are compiled into earlier ones: MiB of trace a rank, and files of a module.
_EARLY_TRACE_MIB, _EARLY_FILES = 4, 1024


class Memory(NamedTuple):
    """What a rank's Darshan may use. trace_kib: of DXT; wanted_kib: what the plan needs, more where that is too much.
    records: files a rank can have. pool_mib: for all modules but DXT, and for compressing; names_mib: for paths.
    """

    records: int
    trace_kib: int
    wanted_kib: int
    pool_mib: int
    names_mib: int


def memory(plan: Plan, run: Run) -> Memory:
    """Enough for the run, as far as its requests are known before."""
    files, requests = _load(plan, run)
    each = max(_LEAST_SEGMENTS, 1 << math.ceil(math.log2(max(2 * requests / max(files, 1), 1))))  # it doubles
    wanted = math.ceil(files * (_HEAD + _SEGMENT * each) * 1.1 / 1024) + 1024
    trace = min(wanted, most_trace_kib(plan))
    records = files + _SPARE_FILES
    path_bytes = len(os.fsencode(run.dataset)) + len(os.fsencode(run.outputs)) + 64
    pool = max(4, math.ceil(2 * _RECORD * records / 2**20), math.ceil(trace / 1024)) + 1
    names = math.ceil(records * path_bytes / 2**20) + 1
    return Memory(records, trace, wanted, min(pool, _MOST_POOL_MIB), min(names, _MOST_POOL_MIB))


def most_trace_kib(plan: Plan) -> int:
    """Of a rank."""
    return max(_LEAST_TRACE_KIB, min(MOST_TRACE_MIB << 10, (_ALL_TRACES_MIB << 10) // plan.ranks))


def note(plan: Plan, run: Run) -> str | None:
    """The note of a submission whose trace will be cut while its counters stay whole, or whose libdarshan is older than
    3.4, as far as the library can be read here; None where neither applies.
    """
    if plan.site.darshan is not None and reads_configuration(plan.site.darshan) is False:
        return EARLY
    need = memory(plan, run)
    if need.wanted_kib <= need.trace_kib:
        return None
    return (
        f"Darshan's trace of {rundir.run_name(run.number, run.name)} would need {format_size(need.wanted_kib << 10)} a "
        f"rank and gets {format_size(need.trace_kib << 10)}: it will be cut, its counters stay whole"
    )


EARLY = (
    "this Darshan is older than 3.4 and reads no configuration file: it records all files outside of the system's and "
    f"Python's folders, at most {_EARLY_FILES} files a rank, and at most {_EARLY_TRACE_MIB} MiB of trace a rank"
)


def reads_configuration(library: str) -> bool | None:
    """Return whether this libdarshan reads a configuration file (3.4 and later); None where the library is not
    readable.
    """
    try:
        with open(library, "rb") as file:
            return _CONFIGURED_BY in file.read()
    except OSError:
        return None


def _load(plan: Plan, run: Run) -> tuple[int, int]:
    """Files that a rank touches, and its requests to them, at most; of all kinds together."""
    workload = run.workload
    extra_files, extra_requests = _beside(run)
    if run.kind == "generate":
        files = share(workload.dataset.files, plan.ranks, plan.ranks - 1)
        count = files[1] - files[0]
        each = workload.dataset.samples_per_file * _per_sample(workload.dataset, 1 << 20) + _PER_OPENING
        return count + extra_files, count * each + extra_requests
    files_read, openings = _files_read(plan, run)
    samples = min(
        steps_per_epoch(workload, plan.ranks) * workload.reader.batch_size * workload.train.epochs,
        workload.dataset.samples * workload.train.epochs,
    )
    if workload.reader.load == "memory":
        samples = largest_share(workload, plan.ranks)
    requests = samples * _per_sample(workload.dataset, workload.request_size or _LIBRARYS_REQUEST)
    return files_read + extra_files, requests + openings * _per_opening(workload) + extra_requests


def _per_opening(workload: Workload) -> int:
    """Where samples lie in the others nobody has to look up."""
    looks = workload.reader.mode == "framework" or workload.dataset.format == "hdf5"
    return _PER_OPENING if looks or workload.dataset.compression != "none" else 1


def _per_sample(dataset: Dataset, request: int) -> int:
    """Requests for one sample; a chunk each where it lies in chunks."""
    if dataset.is_chunked:
        chunk = math.prod(dataset.chunk_shape or ()) * ITEM_BYTES[dataset.sample.array_dtype]
        request = min(request, chunk)
    return -(-dataset.largest // max(request, 1)) + 1


def _files_read(plan: Plan, run: Run) -> tuple[int, int]:
    """By a rank: files in all epochs, and how often one is opened."""
    workload = run.workload
    dataset, reader, epochs = workload.dataset, workload.reader, workload.train.epochs
    per_rank = largest_share(workload, plan.ranks)
    if reader.shuffle.files and reader.shuffle.samples:
        an_epoch = min(dataset.files, per_rank)
    else:
        an_epoch = min(dataset.files, -(-per_rank // dataset.samples_per_file) + reader.files_in_turn(dataset))
    epochs = 1 if reader.load == "memory" else epochs
    changing = reader.shuffle.files and reader.shuffle.reseed
    opened = per_rank if reader.shuffle.files and reader.shuffle.samples else an_epoch
    return min(dataset.files, an_epoch * (epochs if changing else 1)), opened * epochs


def _beside(run: Run) -> tuple[int, int]:
    """Files and requests of checkpoints and auxiliary files."""
    workload = run.workload
    steps = run.steps_per_epoch * workload.train.epochs
    files = requests = 0
    if (saved := workload.checkpoint) is not None:
        files += len(saved.sizes)
        often = steps // saved.every_steps if saved.every_steps else workload.train.epochs
        requests += often * sum(-(-size // _LIBRARYS_REQUEST) + 2 for size in saved.sizes)
    times = {"start": 1, "end": 1, "epoch": workload.train.epochs, "step": max(steps, 1)}
    for side in workload.dataset.auxiliary_files:
        files += 1
        requests += times[side.when] * (side.count + 3)
    return files, requests
