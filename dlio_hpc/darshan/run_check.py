"""Check of a run's Darshan log. The log must belong to the run, be complete, and agree with the bytes that the ranks
counted and with the plan.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import replace

from dlio_hpc.base import units
from dlio_hpc.base.errors import DlioError
from dlio_hpc.config.reader_keys import keeps_data, sample_bytes_read
from dlio_hpc.darshan import clock_alignment, log_faults, run_logs, setup
from dlio_hpc.darshan.log import Log
from dlio_hpc.darshan.verdict_file import Bytes, LogVerdict, Reason, decode_probe
from dlio_hpc.dataset import dataset_folder, sample_index, stored_parts
from dlio_hpc.dataset.rank_shares import positions
from dlio_hpc.dataset.sample_order import Order
from dlio_hpc.files import rundir
from dlio_hpc.plan import darshan_needs
from dlio_hpc.plan.plan import Plan, Run
from dlio_hpc.results import run_result
from dlio_hpc.results.run_result import Result

Counts = npt.NDArray[np.int64]
# If a run reads more samples than this, the files that differ are not determined. Determining them takes 6 ns per
# sample.
_MOST_SAMPLES = 50_000_000
# Largest number of ranks, and largest number of files, that the differences name.
_NAMED = 3
_A_PAGE = 4096


class Core(NamedTuple):
    """Measurements in timeline.h5. bytes: bytes that each rank counted as read from the dataset's files. marks: reads
    of the marker file; None if there are none.
    """

    bytes: Counts
    marks: clock_alignment.Marks | None


def judge(directory: Path, plan: Plan, run: Run) -> LogVerdict:
    """Return the verdict on the log of a run. If the run has no result, the bytes in the log are not compared
    with other counts.
    """
    folder = rundir.run_directory(directory, run.number, run.name)
    logs = sorted((folder / rundir.DARSHAN).glob("*.darshan*"))
    if not logs:
        return LogVerdict(None, _no_log(directory, folder))
    path = logs[-1]
    try:
        log = run_logs.load(path)
    except DlioError as fault:
        return LogVerdict(path.name, faults=(Reason("unreadable", str(fault)),))
    result = _result(folder)
    faults = log_faults.judge(log, expected(plan, run, result))
    reasons = tuple(Reason(*fault) for fault in faults)
    verdict = LogVerdict(path.name, None, log.job.library, reasons, workers=log.workers)
    if result is None or not log_faults.has_whole_counters(faults):
        return verdict
    return _compared(verdict, log, plan, run, result, folder)


def _no_log(directory: Path, folder: Path) -> str:
    probe = directory / rundir.DARSHAN / setup.PROBE
    if probe.exists() and (why := decode_probe(probe.read_bytes(), str(probe)).why_not):
        return why
    if left := list((folder / rundir.DARSHAN / rundir.LIVE).glob("*")):
        return (
            f"the ranks ended without MPI_Finalize; Darshan's counters of {units.counted(len(left), 'process')} "
            "are kept, "
            "without traces"
        )
    errors = directory / rundir.STDERR
    has_errors = errors.exists() and errors.stat().st_size > 0
    return "the ranks left no log" + (f"; see {rundir.STDERR}" if has_errors else "")


def _result(folder: Path) -> Result | None:
    path = folder / rundir.RESULT
    return run_result.decode(path.read_bytes(), str(path)) if path.exists() else None


def expected(plan: Plan, run: Run, result: Result | None) -> log_faults.Expected:
    """Return the facts that a log of the run must agree with. result: result of the run; None if there is none."""
    if result is None:
        return log_faults.Expected(plan.ranks)
    workers = darshan_needs.worker_logs(run.workload, plan.ranks, len(result.epochs))
    return log_faults.Expected(plan.ranks, units.timestamp(result.started), units.timestamp(result.ended), workers)


def _compared(verdict: LogVerdict, log: Log, plan: Plan, run: Run, result: Result, folder: Path) -> LogVerdict:
    if result.generated is not None:
        return replace(verdict, **_generated(log, run, result))
    core = _core(folder, run)
    if core is None or result.summary is None:
        return verdict
    recorded = _recorded(log, run, "READ")
    whole = result.summary.steps == result.summary.steps_planned
    differences = list(_differences(recorded, core.bytes, plan, run, whole))
    if differences and _may_lose_files(run):
        why = "TensorFlow's threads open and close files concurrently, and Darshan loses track of some files"
        lost = tuple(Reason("counters disagree", f"{text} ({why})") for text in differences)
        return replace(verdict, faults=(*verdict.faults, *lost))
    planned = run.bytes if whole and run.workload.dataset.compression == "none" else None
    aligned = clock_alignment.align(log, core.marks)
    return replace(
        verdict,
        bytes=Bytes(int(sum(map(int, recorded.values()))), int(core.bytes.sum()), planned),
        differences=tuple(differences),
        clock_error_s=None if aligned is None else float(aligned.error_s.max()),
    )


def _generated(log: Log, run: Run, result: Result) -> dict[str, object]:
    """Return the fields `bytes` and `differences` of LogVerdict for a run that generates a dataset. Return an empty
    dict if the run reused a dataset. A difference is reported only if fewer bytes were written than the samples have.
    An exact comparison is not possible, because HDF5 leaves holes in files and writes some of its metadata twice.
    """
    assert result.generated is not None
    if result.generated.reused:
        return {}
    written = sum(_recorded(log, run, "WRITTEN").values())
    is_whole = result.generated.files == stored_parts.total(
        run.workload.dataset
    )  # otherwise an earlier job wrote the rest
    planned = run.bytes if is_whole and run.workload.dataset.compression == "none" else None
    short = planned is not None and written < planned
    differences = (f"Darshan recorded {written} bytes written, but {planned} were planned",) if short else ()
    return {"bytes": Bytes(written, result.generated.bytes_written, planned), "differences": differences}


def _core(folder: Path, run: Run) -> Core | None:
    import h5py

    path = folder / rundir.TIMELINE
    if not path.exists():
        return None
    with h5py.File(path) as file:
        counted = file["ranks/bytes_read"][:]
        if run.workload.reader.access == "independent":  # in collective access, lookups bypass MPI-IO
            counted = counted + file["ranks/overhead_bytes"][:]
        return Core(counted.astype(np.int64), clock_alignment.read(file))


def _recorded(log: Log, run: Run, direction: str) -> dict[tuple[int, int], int]:
    """Return the number of bytes that Darshan recorded, by rank and container. Only files of the dataset are
    included. The number is taken from the records of the interface that the ranks used, POSIX or MPI-IO. direction:
    READ or WRITTEN.
    """
    module = "MPI-IO" if run.workload.reader.access == "collective" and direction == "READ" else "POSIX"
    records = log.counted.get(module)
    if records is None:
        return {}
    recorded: dict[tuple[int, int], int] = {}
    parts = stored_parts.of(run.workload.dataset).number
    numbers = {_name(run, number): number // parts for number in range(stored_parts.total(run.workload.dataset))}
    folders = setup.dataset_folders(run)
    names = {
        number: path.removeprefix(f"{folder}/")
        for number, path in log.names.items()
        for folder in folders
        if path.startswith(f"{folder}/")
    }
    files = {number: numbers[name] for number, name in names.items() if name in numbers}
    for record, rank, count in zip(
        records["id"].tolist(), records["rank"].tolist(), records[f"BYTES_{direction}"].tolist(), strict=True
    ):
        if record in files and count > 0:
            key = rank, files[record]
            recorded[key] = recorded.get(key, 0) + count
    return recorded


def _name(run: Run, number: int) -> str:
    """Return the path of the stored file `number`, relative to the folder of the dataset."""
    return dataset_folder.file_path(run.stored, number).removeprefix(f"{run.dataset}/")


def _differences(
    recorded: dict[tuple[int, int], int], core: Counts, plan: Plan, run: Run, whole: bool
) -> Iterator[str]:
    """Yield messages about ranks and files. A rank is reported if the number of bytes that Darshan recorded differs
    from the number that the rank counted. A file is reported if fewer bytes than planned were read from it. whole:
    whether the run has done all planned steps. If it has not, a rank is reported only if Darshan recorded fewer bytes
    than the rank counted, and no files are reported.
    """
    by_rank = np.zeros(len(core), np.int64)
    for (rank, _), count in recorded.items():
        by_rank[rank] += count
    missing = core - by_rank  # negative for a stopped run that has read more than it used
    odd = np.flatnonzero((abs(missing) if whole else missing) > _tolerance(run, core))
    short_files = list(_short_files(recorded, plan, run)) if whole else []
    for rank in odd[:_NAMED].tolist():
        message = f"rank {rank}: Darshan recorded {by_rank[rank]} bytes, but the rank counted {core[rank]}"
        files = [text for short_rank, text in short_files if short_rank == rank]
        yield message + (f"; {files[0]}" if files else "")
    if len(odd) > _NAMED:
        yield f"{len(odd) - _NAMED} more ranks differ"
    rest = [f"rank {rank}: {text}" for rank, text in short_files if rank not in set(odd.tolist())]
    yield from rest[:_NAMED]
    if len(rest) > _NAMED:
        yield f"{len(rest) - _NAMED} more files differ"


def _may_lose_files(run: Run) -> bool:
    """Return whether TensorFlow's own threads open files while other threads close files. Darshan may then lose track
    of files (see core.darshan_fd_gate). dlio-hpc cannot prevent this.
    """
    reader = run.workload.reader
    return reader.loader == "tensorflow" and reader.read_threads > 1


def _tolerance(run: Run, core: Counts) -> Counts:
    """Return, for each rank, by how many bytes its count may differ from Darshan's count. A larger difference is
    reported.

    The tolerance is 0 if the rank counts the calls that Darshan records. It is one page if the rank takes the bytes of
    library calls from the kernel. It is 1 % of the rank's count plus 1 MiB if TensorFlow itself reads: in this case,
    the rank uses the kernel's counters of its whole process, which include other reads. Any difference is accepted if
    HDF5 reads through MPI-IO, because the kernel does not count bytes that come from other ranks.
    """
    reader = run.workload.reader
    if reader.access == "collective":
        return np.full_like(core, np.iinfo(np.int64).max if reader.mode == "framework" else 0)
    if reader.mode == "framework" and reader.loader == "tensorflow":
        return core // 100 + (1 << 20)
    uses_kernel = reader.mode == "framework" or run.workload.dataset.facts.chunks_in_file
    return np.full_like(core, _A_PAGE if uses_kernel else 0)


def _short_files(recorded: dict[tuple[int, int], int], plan: Plan, run: Run) -> Iterator[tuple[int, str]]:
    """Compare the bytes that each rank read from each file with the plan. For each file from which a rank read fewer
    bytes than planned, yield the rank and a message. Yield nothing if the planned bytes per file are not known, or if
    there are too many samples to compute them.
    """
    workload = run.workload
    layout, epochs = workload.dataset, workload.train.epochs
    unknown = layout.compression != "none" or layout.sizes_vary or not layout.facts.holds_data
    if unknown or workload.reader.access == "collective" or keeps_data(layout, workload.reader):
        return
    if layout.samples * epochs * (1 if workload.reader.shard else plan.ranks) > _MOST_SAMPLES:
        return
    for rank in range(plan.ranks):
        wanted = samples_of_files(plan, run, rank) * sample_bytes_read(layout, workload.reader)
        for number in np.flatnonzero(wanted).tolist():
            count = recorded.get((rank, number), 0)
            if count < wanted[number]:
                name = _name(run, number * stored_parts.of(layout).number)
                yield rank, f"Darshan recorded {count} bytes of {name}, but {wanted[number]} were planned"


def samples_of_files(plan: Plan, run: Run, rank: int) -> Counts:
    """Return how many samples of each file the rank reads from storage in the whole run."""
    workload = run.workload
    reader = workload.reader
    first, last = positions(workload, plan.ranks, rank, plan.ranks_per_node)
    taken = last - first
    in_memory = reader.load == "memory"
    if not in_memory:
        taken = min(taken, run.steps_per_epoch * reader.batch_size)
    counts = np.zeros(workload.dataset.files, np.int64)
    for epoch in range(1 if in_memory else workload.train.epochs):
        samples = Order(workload.dataset, reader, epoch, rank, plan.ranks).samples(first, first + taken)
        files = sample_index.file_numbers(workload.dataset, samples).astype(np.int64)
        counts += np.bincount(files, minlength=len(counts))
    return counts
