"""How libdarshan is set up for a run: its configuration file, the ranks' variables, memory for what the plan will do.

What Darshan does with its settings (darshan-runtime's documentation and source, 3.4 to 3.5) is said where it matters.
"""

import math
import os
import re
import sys
from collections.abc import Iterable
from typing import NamedTuple

from dlio_hpc.config.workload import ITEM_BYTES, Dataset, Workload
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Plan, Run, largest_share, share, steps_per_epoch
from dlio_hpc.units import format_size

# Of each read of the markers' file; no other has so many.
MARKER_BYTES = 1777
CONFIG, PROBE, VERDICT = "darshan.conf", "probe.json", "verdict.json"
# Which modules are filtered by name; HEATMAP has names of its own.
_MODULES = "POSIX,STDIO,MPI-IO,DXT_POSIX,DXT_MPIIO"
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
# A libdarshan before 3.4 reads no configuration file. DARSHAN_EXCLUDE_DIRS names the folders that it does not record
# and replaces its built-in list, which is _SYSTEM.
_CONFIGURED_BY = b"DARSHAN_CONFIG_PATH"
_SYSTEM = ("/etc/", "/dev/", "/usr/", "/bin/", "/boot/", "/lib/", "/opt/", "/sbin/", "/sys/", "/proc/", "/var/")
# Limits that are compiled in: MiB of trace a rank, and files of a module. The pool must hold both, the trace
# compressed.
_EARLY_TRACE_MIB, _EARLY_FILES, _EARLY_POOL_MIB = 4, 1024, 8


def marker_path(directory: str, run: Run) -> str:
    """Of the small file that core and Darshan both see read (see clocks): with the log, since data may be read-only."""
    return os.path.join(directory, rundir.RUNS, rundir.run_name(run.number, run.name), rundir.DARSHAN, "clock")


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


def early_variables() -> dict[str, str]:
    """Environment variables of ranks under a libdarshan before 3.4. $excluded: the folders of excluded()."""
    return {"DARSHAN_MODMEM": str(_EARLY_POOL_MIB), "DARSHAN_EXCLUDE_DIRS": "$excluded"}


def excluded(plan: Plan, python: Iterable[str]) -> str:
    """Value of DARSHAN_EXCLUDE_DIRS: folders of the system and of Python's modules (`python`), except those that
    contain paths to be recorded. Folders with a comma are left out, because the comma separates folders.
    """
    wanted = [run_path for run in plan.runs for run_path in (run.dataset, run.outputs)] + [plan.directory]
    folders = [
        *_SYSTEM,
        *(os.path.join(folder, "") for folder in python if folder.startswith("/") and "," not in folder),
    ]
    left_out = [folder for folder in folders if not any(f"{path}/".startswith(folder) for path in wanted)]
    return ",".join(dict.fromkeys(left_out))


def python_folders() -> list[str]:
    """Folders of the running interpreter, and those that it imports from."""
    return [sys.prefix, sys.base_prefix, *sys.path]


def config(plan: Plan, run: Run) -> str:
    """darshan.conf: one setting a line, the modules last; what is not the run's own data leaves no record.

    MODMEM must hold each module compressed: less than the trace has, and the whole log may be lost. NAME_INCLUDE is
    stronger than NAME_EXCLUDE.
    """
    need = memory(plan, run)
    wanted = [f"{expression(folder)}/" for folder in (run.dataset, run.outputs)] + [
        f"{expression(marker_path(plan.directory, run))}$"
    ]
    included = [f"NAME_INCLUDE ^{path} {_MODULES}" for path in wanted]
    lines = [
        "MOD_ENABLE DXT_POSIX,DXT_MPIIO",
        f"MAX_RECORDS {need.records} POSIX,MPI-IO,STDIO",
        f"MAX_RECORDS {need.trace_kib} DXT_POSIX,DXT_MPIIO  # KiB of trace",
        f"MODMEM {need.pool_mib}",
        f"NAMEMEM {need.names_mib}",
        f"NAME_EXCLUDE . {_MODULES}",
        *included,
    ]
    return "\n".join(lines) + "\n"


def variables() -> dict[str, str]:
    """Of the ranks, as double-quoted words of the job script's function that knows $1, the run's Darshan folder, and
    $2, its log. A log that is there already is not replaced, so its name is new at every attempt.

    DXT_ENABLE_IO_TRACE is how libraries before 3.4 are asked for traces, which read no configuration file.
    """
    return {
        "DARSHAN_LOGFILE": "$1/$2",
        "DARSHAN_CONFIG_PATH": f"$1/{CONFIG}",
        "DARSHAN_MMAP_LOGPATH": f"$1/{rundir.LIVE}",
        "DARSHAN_DISABLE_SHARED_REDUCTION": "1",
        "DXT_ENABLE_IO_TRACE": "1",
    }


def expression(path: str) -> str:
    """A POSIX extended regular expression for `path`, as Darshan's configuration file takes it: no blank ends the word,
    no comma the expression, and backslash means something else before letters.
    """
    return "".join(map(_letter, path))


def _letter(letter: str) -> str:
    if re.fullmatch(r"[A-Za-z0-9_/-]", letter) or ord(letter) > 127:
        return letter
    if letter in "\\^":
        return "\\" + letter
    return "." if letter.isspace() or letter == "," else f"[{letter}]"


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
    """Files and requests of checkpoints and side files."""
    workload = run.workload
    steps = run.steps_per_epoch * workload.train.epochs
    files = requests = 0
    if (saved := workload.checkpoint) is not None:
        files += len(saved.sizes)
        often = steps // saved.every_steps if saved.every_steps else workload.train.epochs
        requests += often * sum(-(-size // _LIBRARYS_REQUEST) + 2 for size in saved.sizes)
    times = {"start": 1, "end": 1, "epoch": workload.train.epochs, "step": max(steps, 1)}
    for side in workload.dataset.side_files:
        files += 1
        requests += times[side.when] * (side.count + 3)
    return files, requests
