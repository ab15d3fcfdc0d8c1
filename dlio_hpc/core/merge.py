"""The ranks' recordings put together: memory and time grow with ranks x steps, not with samples."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dlio_hpc import rundir
from dlio_hpc.core import clock, measures
from dlio_hpc.core.measures import ASKED, BYTES, COMPUTED, READY, SAMPLES, STARTED, SYNCED, Floats
from dlio_hpc.core.train import Recording
from dlio_hpc.darshan import clocks
from dlio_hpc.plan import Run
from dlio_hpc.results import CheckpointSummary, Epoch, SideFilesSummary, SlowestRank, Summary
from dlio_hpc.workload import Workload

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Host(NamedTuple):
    """Where a rank runs; ranks with one boot id share a clock."""

    name: str
    boot: str


class Merged(NamedTuple):
    """All ranks, on rank 0. steps: (ranks, steps of all epochs, columns) in rank 0's clock. histogram: (ranks, bins).
    totals: (ranks, 9), columns below. storage_bytes: (ranks, epochs). checkpoints: (ranks, n, 7), columns below.
    side_files: (ranks, 6), the fields of sidefiles.Counts. marks: (ranks, n, 2), in rank 0's clock.
    """

    hosts: list[Host]
    offsets: Floats
    steps: Floats
    histogram: measures.Counts
    totals: Floats
    storage_bytes: Floats
    checkpoints: Floats
    side_files: Floats
    marks: Floats


# Columns of Merged.totals.
_OPENS, _OVERHEAD, _REQUESTS, _PREPROCESS_S, _TIMED, _IO_S, _HIDDEN_S, _READ_S, _LONGEST_S = range(9)
# Columns of Merged.checkpoints.
_EPOCH, _STEPS, _PAUSE_S, _WRITE_S, _FSYNC_S, _BACK_S, _SIZE = range(7)


def gather(comm: "Intracomm", hosts: list[Host], recording: Recording, marks: Floats) -> Merged | None:
    """Everything on rank 0, None elsewhere. marks: (n, 2) instants of this rank."""
    offset = clock.offset_to_root(comm, [other.boot for other in hosts])
    steps = recording.steps.copy()
    steps[..., STARTED : SYNCED + 1] += offset
    reads, counts = recording.reads, recording.counts
    totals = [
        counts.opens, counts.overhead_bytes, counts.requests, counts.preprocess_s, reads.histogram.sum(),
        reads.io_s, reads.hidden_s, reads.total_s, reads.longest_s,
    ]  # fmt: skip
    parts = (
        np.array([offset]),
        steps,
        reads.histogram,
        np.array(totals, float),
        recording.storage_bytes,
        recording.checkpoints,
        np.array(recording.side_files, float),
        marks + offset,
    )
    gathered = [_gather(comm, part) for part in parts]
    return Merged(hosts, *gathered) if comm.rank == 0 else None


def _gather(comm: "Intracomm", part: Any) -> Any:
    everything = np.empty((comm.size, *part.shape), part.dtype) if comm.rank == 0 else None
    comm.Gather(np.ascontiguousarray(part), everything)
    return everything


def epochs(merged: Merged, run: Run) -> list[Epoch]:
    """One record an epoch; the last may have been cut short."""
    return [_epoch(merged, number, steps) for number, steps in enumerate(_by_epoch(merged.steps, run.steps_per_epoch))]


def _by_epoch(steps: Floats, per_epoch: int) -> list[Floats]:
    """(ranks, steps of one epoch, columns) each."""
    return [steps[:, first : first + per_epoch] for first in range(0, steps.shape[1], per_epoch)]


def _epoch(merged: Merged, number: int, steps: Floats) -> Epoch:
    wait, compute, sync = (part.sum(axis=1).mean() for part in _phases(steps))
    fetched = merged.storage_bytes[:, number]
    saved = merged.checkpoints[:, merged.checkpoints[0, :, _EPOCH] == number]
    after = saved[:, saved[0, :, _STEPS] == steps.shape[1], _PAUSE_S]  # the last step's checkpoint is the epoch's too
    return Epoch(
        epoch=number + 1,
        wall_s=float(steps[..., SYNCED].max() - steps[..., STARTED].min() + after.max(initial=0.0)),
        steps=steps.shape[1],
        samples=int(steps[..., SAMPLES].sum()),
        bytes_read=int(steps[..., BYTES].sum()),
        wait_s=float(wait),
        compute_s=float(compute),
        sync_s=float(sync),
        checkpoint_s=float(saved[..., _PAUSE_S].sum()) / len(saved),
        storage_bytes_read=int(fetched.sum()) if (fetched >= 0).all() else None,
    )


def summary(merged: Merged, run: Run) -> Summary:
    """The figures of the whole run."""
    steps, totals = merged.steps, merged.totals
    wait, compute, sync = _phases(steps)
    wall_s = float(steps[..., SYNCED].max() - steps[..., STARTED].min())
    samples, bytes_read = int(steps[..., SAMPLES].sum()), int(steps[..., BYTES].sum())
    busy = float(compute.sum() + wait.sum())
    io_s = float(totals[:, _IO_S].sum())
    counts = merged.histogram.sum(axis=0)
    known = bool((merged.storage_bytes >= 0).all())
    return Summary(
        samples=samples,
        samples_left_out=_offered(run.workload, len(steps)) - run.samples,
        steps=steps.shape[1],
        steps_planned=run.steps_per_epoch * run.workload.train.epochs,
        bytes_read=bytes_read,
        overhead_bytes_read=int(totals[:, _OVERHEAD].sum()),
        storage_bytes_read=int(merged.storage_bytes.sum()) if known else None,
        wall_s=wall_s,
        samples_per_s=samples / wall_s,
        read_MBps=bytes_read / wall_s / 1e6,
        au=float(compute.sum()) / busy if busy else None,
        au_mlperf=_au_mlperf(_by_epoch(steps, run.steps_per_epoch)),
        io_time_s=io_s / len(steps) if totals[:, _TIMED].any() or not samples else None,
        io_hidden_fraction=float(totals[:, _HIDDEN_S].sum()) / io_s if io_s else None,
        opens=int(totals[:, _OPENS].sum()),
        reads=int(totals[:, _REQUESTS].sum()),
        wait_s=measures.of_values(wait),
        compute_s=measures.of_values(compute),
        sync_s=measures.of_values(sync),
        read_latency_s=measures.of_histogram(
            counts, float(totals[:, _READ_S].sum()), float(totals[:, _LONGEST_S].max())
        ),
        compute_asked_s=float(steps[..., ASKED].mean()),
        slowest_rank=_slowest(merged.hosts, (wait + compute).sum(axis=1)),
        checkpoint=_checkpoint(merged.checkpoints) if merged.checkpoints.size else None,
        preprocess_s=float(totals[:, _PREPROCESS_S].mean()),
        side_files=_side_files(merged.side_files) if run.workload.dataset.side_files else None,
    )


def _offered(workload: Workload, ranks: int) -> int:
    """Samples that all ranks together could have taken in all epochs."""
    return workload.dataset.samples * workload.train.epochs * (1 if workload.reader.shard else ranks)


def _side_files(counts: Floats) -> SideFilesSummary:
    opens, reads, writes, bytes_read, bytes_written = map(int, counts[:, :-1].sum(axis=0))
    return SideFilesSummary(opens, reads, writes, bytes_read, bytes_written, float(counts[:, -1].mean()))


def _checkpoint(saved: Floats) -> CheckpointSummary:
    writers = saved[saved[:, 0, _SIZE] > 0]
    size = int(writers[..., _SIZE].sum())
    slowest_write = (writers[..., _WRITE_S] + writers[..., _FSYNC_S]).max(axis=0).sum()
    slowest_read = writers[..., _BACK_S].max(axis=0).sum()
    return CheckpointSummary(
        count=saved.shape[1],
        bytes_written=size,
        pause_s=measures.of_values(saved[..., _PAUSE_S]),
        write_s=measures.of_values(writers[..., _WRITE_S]),
        fsync_s=measures.of_values(writers[..., _FSYNC_S]),
        read_s=measures.of_values(writers[..., _BACK_S]) if slowest_read else None,
        write_MBps=float(size / slowest_write / 1e6),
        read_MBps=float(size / slowest_read / 1e6) if slowest_read else None,
    )


def _phases(steps: Floats) -> tuple[Floats, Floats, Floats]:
    """wait, compute and sync of every step."""
    return (
        steps[..., READY] - steps[..., STARTED],
        steps[..., COMPUTED] - steps[..., READY],
        steps[..., SYNCED] - steps[..., COMPUTED],
    )


def _au_mlperf(epochs: list[Floats]) -> float | None:
    """MLPerf Storage: asked compute (mean of the ranks) over running time, each epoch's first step left out."""
    counted = [steps for steps in epochs if steps.shape[1] > 1]
    if not counted:
        return None
    running = sum(steps[:, -1, SYNCED].max() - steps[:, 0, SYNCED].min() for steps in counted)
    return float(sum(steps[:, 1:, ASKED].sum() / len(steps) for steps in counted) / running)


def _slowest(hosts: list[Host], busy: Floats) -> SlowestRank:
    rank = int(busy.argmax())
    median = float(np.median(busy))
    return SlowestRank(rank, hosts[rank].name, float(busy[rank]), float(busy[rank]) / median if median else 1.0)


def write_timeline(directory: Path, merged: Merged, run: Run, marker: str) -> None:
    """timeline.h5: every step of every rank, and each rank's histogram of read latencies. marker: path of Darshan's."""
    import h5py

    table = _table(merged.steps, run.steps_per_epoch)
    wait, compute, sync = _phases(table)
    columns = {
        "start": table[..., STARTED] - merged.steps[..., STARTED].min(),
        "wait": wait,
        "compute": compute,
        "sync": sync,
        "asked": table[..., ASKED],
        "samples": np.nan_to_num(table[..., SAMPLES]).astype(np.uint32),
        "bytes": np.nan_to_num(table[..., BYTES]).astype(np.uint64),
    }
    with rundir.replacing(directory / rundir.TIMELINE) as path, h5py.File(path, "w") as file:
        file.attrs["schema"] = 1
        steps = file.create_group("steps")
        steps.attrs["about"] = "axes: rank, epoch, step; seconds, start counts from the run's first step; NaN: no time"
        for name, column in columns.items():
            steps.create_dataset(name, data=column, compression="gzip", compression_opts=1, shuffle=True)
        ranks = file.create_group("ranks")
        ranks.attrs["about"] = "a row a rank; clock_offset: seconds added to the rank's clock to get rank 0's"
        ranks["host"] = np.array([host.name for host in merged.hosts], dtype=h5py.string_dtype())
        ranks["clock_offset"] = merged.offsets[:, 0]
        ranks["opens"] = merged.totals[:, _OPENS].astype(np.uint64)
        ranks["io_time"] = merged.totals[:, _IO_S]
        ranks["bytes_read"] = merged.steps[..., BYTES].sum(axis=1).astype(np.uint64)
        ranks["overhead_bytes"] = merged.totals[:, _OVERHEAD].astype(np.uint64)
        latency = file.create_group("read_latency")
        latency.attrs["about"] = "reads of each rank (axis 0) by duration; edges in seconds"
        latency["edges"] = measures.bin_edges()
        latency.create_dataset("counts", data=merged.histogram, compression="gzip", compression_opts=1)
        if merged.marks.size:
            marks = file.create_group(clocks.GROUP)
            marks.attrs["about"] = "axes: rank, read, before and after; seconds, as steps/start"
            marks.attrs["path"] = marker
            marks["instants"] = merged.marks - merged.steps[..., STARTED].min()


def _table(steps: Floats, per_epoch: int) -> Floats:
    """(ranks, epochs, steps, columns), with NaN for the steps of the last epoch that there was no time for."""
    ranks, done, columns = steps.shape
    epochs = -(-done // per_epoch)
    padded = np.full((ranks, epochs * per_epoch, columns), np.nan)
    padded[:, :done] = steps
    return padded.reshape(ranks, epochs, per_epoch, columns)
