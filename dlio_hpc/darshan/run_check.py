"""A run's log against the run: is it the right one and whole, and does it say the same as the core and the plan?"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dlio_hpc import results, units
from dlio_hpc.darshan import clock_alignment, log_reader, log_trust, setup
from dlio_hpc.darshan.log import Log
from dlio_hpc.darshan.log_verdict import Bytes, Reason, Verdict, decode_probe
from dlio_hpc.errors import DlioError
from dlio_hpc.files import rundir
from dlio_hpc.plan import dataset
from dlio_hpc.plan.plan import Plan, Run, positions
from dlio_hpc.plan.sample_order import Order
from dlio_hpc.results import Result

Counts = npt.NDArray[np.int64]
# Samples whose places are worked out to say which file is to blame: 6 ns each.
_MOST_SAMPLES = 50_000_000
_NAMED = 3
_A_PAGE = 4096


class Core(NamedTuple):
    """What the ranks counted of the dataset's files: bytes of each rank; markers, see clocks."""

    bytes: Counts
    marks: clock_alignment.Marks | None


def judge(directory: Path, plan: Plan, run: Run) -> Verdict:
    """The verdict on the run's log; a run that left no result has nothing to be compared with."""
    folder = rundir.run_directory(directory, run.number, run.name)
    logs = sorted((folder / rundir.DARSHAN).glob("*.darshan*"))
    if not logs:
        return Verdict(None, _no_log(directory, folder))
    path = logs[-1]
    try:
        found = log_reader.load(path)
    except DlioError as fault:
        return Verdict(path.name, faults=(Reason("unreadable", str(fault)),))
    result = _result(folder)
    faults = log_trust.judge(found, expected(plan, result))
    reasons = tuple(Reason(*fault) for fault in faults)
    verdict = Verdict(path.name, None, found.job.library, reasons)
    if result is None or not log_trust.has_whole_counters(faults):
        return verdict
    return _compared(verdict, found, plan, run, result, folder)


def _no_log(directory: Path, folder: Path) -> str:
    probe = directory / rundir.DARSHAN / setup.PROBE
    if probe.exists() and (why := decode_probe(probe.read_bytes(), str(probe)).why_not):
        return why
    if left := list((folder / rundir.DARSHAN / rundir.LIVE).glob("*")):
        return f"the ranks ended without MPI_Finalize; {len(left)} of their live records are kept, without traces"
    errors = directory / rundir.STDERR
    said = errors.exists() and errors.stat().st_size > 0
    return "the ranks left none" + (f"; see {rundir.STDERR}" if said else "")


def _result(folder: Path) -> Result | None:
    path = folder / rundir.RESULT
    return results.decode(path.read_bytes(), str(path)) if path.exists() else None


def expected(plan: Plan, result: Result | None) -> log_trust.Expected:
    """What a log of the run has to agree with."""
    if result is None:
        return log_trust.Expected(plan.ranks)
    return log_trust.Expected(plan.ranks, units.timestamp(result.started), units.timestamp(result.ended))


def _compared(verdict: Verdict, found: Log, plan: Plan, run: Run, result: Result, folder: Path) -> Verdict:
    if result.generated is not None:
        return replace(verdict, **_generated(found, run, result))
    core = _core(folder, run)
    if core is None or result.summary is None:
        return verdict
    seen = _seen(found, run, "READ")
    whole = result.summary.steps == result.summary.steps_planned
    differences = list(_differences(seen, core.bytes, plan, run, whole))
    if differences and _loses_sight(run):
        why = "TensorFlow's threads open and close files at once, of which Darshan loses some"
        lost = tuple(Reason("counters disagree", f"{text} ({why})") for text in differences)
        return replace(verdict, faults=(*verdict.faults, *lost))
    planned = run.bytes if whole and run.workload.dataset.compression == "none" else None
    aligned = clock_alignment.align(found, core.marks)
    return replace(
        verdict,
        bytes=Bytes(int(sum(map(int, seen.values()))), int(core.bytes.sum()), planned),
        differences=tuple(differences),
        clock_error_s=None if aligned is None else float(aligned.error_s.max()),
    )


def _generated(found: Log, run: Run, result: Result) -> dict[str, object]:
    """Every byte of a sample was written; beside those, HDF5 leaves holes and writes some of its own twice."""
    assert result.generated is not None
    if result.generated.reused:
        return {}
    seen = sum(_seen(found, run, "WRITTEN").values())
    planned = run.bytes if run.workload.dataset.compression == "none" else None
    short = planned is not None and seen < planned
    words = [f"Darshan saw {seen} bytes written, {planned} were planned"] if short else []
    return {"bytes": Bytes(seen, result.generated.bytes_written, planned), "differences": tuple(words)}


def _core(folder: Path, run: Run) -> Core | None:
    import h5py

    path = folder / rundir.TIMELINE
    if not path.exists():
        return None
    with h5py.File(path) as file:
        counted = file["ranks/bytes_read"][:]
        if run.workload.reader.access == "independent":  # else what is looked up goes past MPI-IO
            counted = counted + file["ranks/overhead_bytes"][:]
        return Core(counted.astype(np.int64), clock_alignment.read(file))


def _seen(found: Log, run: Run, what: str) -> dict[tuple[int, int], int]:
    """Bytes of (rank, number of the dataset's file), by the interface that the ranks themselves used."""
    module = "MPI-IO" if run.workload.reader.access == "collective" and what == "READ" else "POSIX"
    records = found.counted.get(module)
    if records is None:
        return {}
    seen: dict[tuple[int, int], int] = {}
    numbers = {os.path.basename(dataset.file_path(run, number)): number for number in range(run.workload.dataset.files)}
    files = {
        number: numbers[os.path.basename(path)]
        for number, path in found.names.items()
        if os.path.dirname(path) == run.dataset and os.path.basename(path) in numbers
    }
    for record, rank, count in zip(
        records["id"].tolist(), records["rank"].tolist(), records[f"BYTES_{what}"].tolist(), strict=True
    ):
        if record in files and count > 0:
            seen[rank, files[record]] = count
    return seen


def _differences(seen: dict[tuple[int, int], int], core: Counts, plan: Plan, run: Run, whole: bool) -> Iterator[str]:
    """What rank and file saw something else than the core, or less than was planned."""
    by_rank = np.zeros(len(core), np.int64)
    for (rank, _), count in seen.items():
        by_rank[rank] += count
    unseen = core - by_rank  # a run that was stopped had read ahead, more than it took
    odd = np.flatnonzero((abs(unseen) if whole else unseen) > _tolerance(run, core))
    missing = list(_short_files(seen, plan, run)) if whole else []
    for rank in odd[:_NAMED].tolist():
        words = f"rank {rank}: Darshan saw {by_rank[rank]} bytes, the core {core[rank]}"
        files = [text for short_rank, text in missing if short_rank == rank]
        yield words + (f"; {files[0]}" if files else "")
    if len(odd) > _NAMED:
        yield f"so did {len(odd) - _NAMED} more ranks"
    rest = [f"rank {rank}: {text}" for rank, text in missing if rank not in set(odd.tolist())]
    yield from rest[:_NAMED]
    if len(rest) > _NAMED:
        yield f"so did {len(rest) - _NAMED} more"


def _loses_sight(run: Run) -> bool:
    """Do threads that we cannot hold back open files while others close some? See core.descriptors."""
    reader = run.workload.reader
    return reader.loader == "tensorflow" and reader.read_threads > 1


def _tolerance(run: Run, core: Counts) -> Counts:
    """None where the core counts at the very calls that Darshan sees, a page where it asks the kernel what a library's
    calls read. Where TensorFlow reads by itself, the kernel's count for the whole process stands for it, and what else
    the process reads is in that; where HDF5 reads through MPI-IO, the kernel does not see what comes from other ranks.
    """
    reader = run.workload.reader
    if reader.access == "collective":
        return np.full_like(core, np.iinfo(np.int64).max if reader.mode == "framework" else 0)
    if reader.mode == "framework" and reader.loader == "tensorflow":
        return core // 100 + (1 << 20)
    asked = reader.mode == "framework" or run.workload.dataset.format == "hdf5"
    return np.full_like(core, _A_PAGE if asked else 0)


def _short_files(seen: dict[tuple[int, int], int], plan: Plan, run: Run) -> Iterator[tuple[int, str]]:
    """Files of which a rank read less than the plan says."""
    workload = run.workload
    layout, epochs = workload.dataset, workload.train.epochs
    unknown = layout.compression != "none" or layout.sample.stdev is not None or layout.format == "null"
    if unknown or workload.reader.access == "collective":
        return
    if layout.samples * epochs * (1 if workload.reader.shard else plan.ranks) > _MOST_SAMPLES:
        return
    for rank in range(plan.ranks):
        wanted = samples_of_files(plan, run, rank) * layout.sample_bytes
        for number in np.flatnonzero(wanted).tolist():
            count = seen.get((rank, number), 0)
            if count < wanted[number]:
                name = os.path.basename(dataset.file_path(run, number))
                yield rank, f"Darshan saw {count} bytes of {name}, {wanted[number]} were planned"


def samples_of_files(plan: Plan, run: Run, rank: int) -> Counts:
    """How many samples of each file the rank takes from storage in the whole run."""
    workload = run.workload
    reader, per_file = workload.reader, np.uint64(workload.dataset.samples_per_file)
    first, last = positions(workload, plan.ranks, rank, plan.ranks_per_node)
    taken = last - first
    in_memory = reader.load == "memory"
    if not in_memory:
        taken = min(taken, run.steps_per_epoch * reader.batch_size)
    counts = np.zeros(workload.dataset.files, np.int64)
    for epoch in range(1 if in_memory else workload.train.epochs):
        samples = Order(workload.dataset, reader, epoch, rank, plan.ranks).samples(first, first + taken)
        counts += np.bincount((samples // per_file).astype(np.int64), minlength=len(counts))
    return counts
