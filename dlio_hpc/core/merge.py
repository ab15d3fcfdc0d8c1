"""Merge the recordings of all ranks on rank 0. Memory and time grow with ranks x steps, not with the number
of samples.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from msgspec import structs

from dlio_hpc.config.workload import Workload
from dlio_hpc.core import (
    cache_accounting,
    checkpoint,
    clock,
    distributions,
    evaluation,
    kv_record,
    kv_summary,
    node_activity,
    restore,
)
from dlio_hpc.core.distributions import ASKED, BYTES, COMPUTED, READY, SAMPLES, STARTED, SYNCED, Floats
from dlio_hpc.core.read_activity import Activity, TimeBins, common
from dlio_hpc.core.train import BEGAN, ENDED, LONGEST_S, OPERATIONS, TOTAL_S, Recording
from dlio_hpc.plan.plan import Run
from dlio_hpc.results.phases import Phase
from dlio_hpc.results.run_result import (
    AuxiliaryFilesSummary,
    CheckpointSummary,
    Distribution,
    Disturbance,
    Epoch,
    EvaluationSummary,
    PaceSummary,
    PageFaultsSummary,
    PhaseSummary,
    RestoreSummary,
    SlowestRank,
    Summary,
)

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm


class Host(NamedTuple):
    """Node of a rank. name: host name. boot: boot id of the node's kernel; ranks with the same boot id share
    a clock.
    """

    name: str
    boot: str


class Merged(NamedTuple):
    """Recordings of all ranks, on rank 0. Timestamps are on rank 0's clock. Shapes of arrays are in parentheses.

    offsets (ranks, 1): seconds that were added to the clock of each rank. steps (ranks, steps of all epochs, columns):
    distributions.py defines the columns of a step. histograms (ranks, 3, bins) and sums
    (ranks, 3, 2): those of ReadLog. totals (ranks, 8): the
    columns are defined below this class. arrivals (ranks, epochs, columns): cache_accounting.py defines the columns.
    checkpoints (ranks, n, columns): checkpoint.py defines the columns. restored (ranks, checkpoints, columns):
    restore.py defines the columns. verified (ranks, epochs, 2): seconds spent on
    comparing contents, and number of samples compared. auxiliary_files (ranks, 6): the fields of
    auxiliary_files.Counts. sizes (ranks, bins): request sizes. activity (ranks, 5, bins): read_activity.py defines the
    rows. time_bins: the time bins of `activity`. marks (ranks, n, 2): timestamps of the marker reads for Darshan.
    disturbances (ranks, epochs + 1, columns): disturbance.py defines the columns; the last row is for all epochs
    together. phases (ranks, steps, columns), latencies (ranks, steps, bins), served (ranks, epochs, columns) and
    served_times (ranks, epochs, kinds, bins): those of Recording.
    """

    hosts: list[Host]
    time_bins: TimeBins
    offsets: Floats
    steps: Floats
    histograms: distributions.Counts
    sums: Floats
    totals: Floats
    arrivals: Floats
    checkpoints: Floats
    restored: Floats
    evaluated: Floats
    verified: Floats
    auxiliary_files: Floats
    sizes: distributions.Counts
    activity: Floats
    marks: Floats
    disturbances: Floats
    phases: Floats
    latencies: distributions.Counts
    served: Floats
    served_times: distributions.Counts


# Columns of Merged.totals.
OPENS, OVERHEAD, REQUESTS, _PREPROCESS_S, TIMED, IO_S, _HIDDEN_S, _OWN_S, _MAJOR_FAULTS, _MINOR_FAULTS = range(10)
# Phases of a step, each given by the timestamp at which it begins. A phase ends at the next timestamp.
PHASES = WAIT, COMPUTE, SYNC = STARTED, READY, COMPUTED


def gather(comm: "Intracomm", hosts: list[Host], recording: Recording, marks: Floats) -> Merged | None:
    """Gather the recordings of all ranks. Return them on rank 0, and None on other ranks. marks: timestamps before and
    after each marker read of this rank, shape (n, 2).
    """
    offset = clock.offset_to_root(comm, [host.boot for host in hosts])
    time_bins = _common_bins(comm, recording.reads.activity, offset)
    gathered = [_gather(comm, part) for part in _parts(recording, marks, offset, time_bins)]
    return Merged(hosts, time_bins, *gathered) if comm.rank == 0 else None


def of_recordings(hosts: list[Host], recordings: list[Recording]) -> Merged:
    """Merge the recordings of all ranks without MPI. They must have equal numbers of steps, and at least one step.

    Ranks on different nodes have different clocks. All ranks leave the barrier of a step at the same time. The offset
    of a clock is therefore the median of the differences between the recorded times of leaving the barriers.
    """
    first = recordings[0].steps[:, SYNCED]
    offsets = [
        0.0 if host.boot == hosts[0].boot else float(np.median(first - recording.steps[:, SYNCED]))
        for host, recording in zip(hosts, recordings, strict=True)
    ]
    spans = [_span(recording.reads.activity, offset) for recording, offset in zip(recordings, offsets, strict=True)]
    begin, end = min(span[0] for span in spans), max(span[1] for span in spans)
    width = max(recording.reads.activity.time_bins.width for recording in recordings)
    time_bins = common(width, begin, end, len(hosts)) if begin < end else TimeBins(width, 0, 1)
    unmarked = np.empty((0, 2))
    parts = [
        _parts(recording, unmarked, offset, time_bins) for recording, offset in zip(recordings, offsets, strict=True)
    ]
    return Merged(hosts, time_bins, *map(np.stack, zip(*parts, strict=True)))


def _parts(recording: Recording, marks: Floats, offset: float, time_bins: TimeBins) -> tuple[Any, ...]:
    """Return the arrays that a rank contributes to Merged, in the order of the fields of Merged. offset: seconds that
    are added to the clock of the rank.
    """
    steps = recording.steps.copy()
    steps[..., STARTED : SYNCED + 1] += offset
    reads, counts, phases = recording.reads, recording.counts, recording.phases.copy()
    phases[:, BEGAN : ENDED + 1] += offset
    served = recording.served.copy()
    served[:, kv_record.BEGAN : kv_record.ENDED + 1] += offset
    totals = [
        counts.opens, counts.overhead_bytes, counts.requests, counts.preprocess_s,
        reads.histograms[distributions.READ].sum(), reads.io_s, reads.hidden_s, recording.own_s,
        counts.major_faults, counts.minor_faults,
    ]  # fmt: skip
    return (
        np.array([offset]),
        steps,
        reads.histograms,
        reads.sums,
        np.array(totals, float),
        recording.arrivals,
        recording.checkpoints,
        recording.restored,
        recording.evaluated,
        recording.verified,
        np.array(recording.auxiliary_files, float),
        reads.sizes,
        reads.activity.by(offset, time_bins),
        marks + offset,
        recording.disturbances,
        phases,
        recording.latencies,
        served,
        recording.served_times,
    )


def _span(activity: Activity, offset: float) -> tuple[float, float]:
    """Return the time span that the bins of a rank cover, on rank 0's clock. The span is empty if the rank has no
    bins.
    """
    time_bins = activity.time_bins
    return (time_bins.start + offset, time_bins.end + offset) if time_bins.bins else (math.inf, -math.inf)


def _common_bins(comm: "Intracomm", own: Activity, offset: float) -> TimeBins:
    """Return time bins on rank 0's clock that cover the read activity of all ranks. Return a single bin if no rank
    timed a read. All ranks must call this.
    """
    from mpi4py import MPI

    span = _span(own, offset)
    begin, end = comm.allreduce(span[0], MPI.MIN), comm.allreduce(span[1], MPI.MAX)
    width = comm.allreduce(own.time_bins.width, MPI.MAX)
    return common(width, begin, end, comm.size) if begin < end else TimeBins(width, 0, 1)


def _gather(comm: "Intracomm", part: Any) -> Any:
    everything = np.empty((comm.size, *part.shape), part.dtype) if comm.rank == 0 else None
    comm.Gather(np.ascontiguousarray(part), everything)
    return everything


def epochs(merged: Merged, run: Run) -> list[Epoch]:
    """Return the result of each epoch that was started. The last epoch may be incomplete."""
    made = [_epoch(merged, number, steps) for number, steps in enumerate(_by_epoch(merged.steps, run.steps_per_epoch))]
    if not run.workload.reads_samples:  # AU is of reading samples
        return [structs.replace(epoch, au_mlperf=None) for epoch in made]
    return made


def disturbed(merged: Merged, place: int = -1) -> Disturbance:
    """Return the activity of other processes on the nodes during the epoch with index `place`, or, if `place` is -1,
    during all epochs together.
    """
    names, kernels = zip(*merged.hosts, strict=True)
    return node_activity.merged(names, kernels, merged.disturbances[:, place])


def _by_epoch(steps: Floats, per_epoch: int) -> list[Floats]:
    """Split the steps by epoch. Return an array per epoch, each of shape (ranks, steps of the epoch, columns)."""
    return [steps[:, first : first + per_epoch] for first in range(0, steps.shape[1], per_epoch)]


def _epoch(merged: Merged, number: int, steps: Floats) -> Epoch:
    wait, compute, sync = (phase(steps, which).sum(axis=1).mean() for which in PHASES)
    saved = _of_epoch(merged.checkpoints, number)
    is_last = saved[0, :, checkpoint.STEPS] == steps.shape[1]
    after = saved[:, is_last, checkpoint.PAUSE_S]  # a checkpoint after the last step counts too
    own_s = _own_s(saved[:, ~is_last])
    return Epoch(
        epoch=number + 1,
        wall_s=float(steps[..., SYNCED].max() - steps[..., STARTED].min() + after.max(initial=0.0)) - own_s,
        steps=steps.shape[1],
        samples=int(steps[..., SAMPLES].sum()),
        bytes_read=int(steps[..., BYTES].sum()),
        wait_s=float(wait),
        compute_s=float(compute),
        sync_s=float(sync),
        checkpoint_s=float(saved[..., checkpoint.PAUSE_S].sum()) / len(saved),
        verify_s=float(merged.verified[:, number, 0].mean()),
        disturbance=disturbed(merged, number),
        au_mlperf=_au_mlperf([steps], [own_s]),
        **_arrivals(merged.arrivals[:, number]),
    )


def _arrivals(counts: Floats) -> dict[str, Any]:
    """Return the fields of a summary that show where bytes came from. counts: shape (..., columns); cache_accounting.py
    defines the columns.
    """
    looked, resident = (counts[..., column].sum() for column in (cache_accounting.LOOKED, cache_accounting.RESIDENT))
    return {
        "storage_bytes_read": _total(counts[..., cache_accounting.FETCHED]),
        "client_bytes_asked": _total(counts[..., cache_accounting.ASKED]),
        "client_bytes_read": _total(counts[..., cache_accounting.ARRIVED]),
        "client_bytes_kept": _total(counts[..., cache_accounting.KEPT]),
        "page_cache_fraction": float(resident / looked) if looked else None,
    }


def _of_epoch(saved: Floats, epoch: int) -> Floats:
    """Return the checkpoints of the epoch with index `epoch`, shape (ranks, checkpoints of the epoch, columns)."""
    of_epoch: Floats = saved[:, saved[0, :, checkpoint.EPOCH] == epoch]
    return of_epoch


def _own_s(saved: Floats) -> float:
    """Return the seconds that dlio-hpc itself took for these checkpoints, as the mean over ranks. These seconds are not
    part of a pause, and are subtracted from all times that include them.
    """
    return float(saved[..., checkpoint.OWN_S].sum()) / len(saved)


def _total(counts: Floats) -> int | None:
    """Return the sum of `counts`, or None if any count is unknown."""
    return None if np.isnan(counts).any() else int(counts.sum())


def summary(merged: Merged, run: Run) -> Summary:
    """Return the summary of all epochs of the run."""
    steps, totals = merged.steps, merged.totals
    times = _times(steps)
    wall_s = float(steps[..., SYNCED].max() - steps[..., STARTED].min())
    by_epoch = _by_epoch(steps, run.steps_per_epoch)
    wall_s -= _between_epochs(merged.evaluated, len(by_epoch))
    saved = [_of_epoch(merged.checkpoints, number) for number in range(len(by_epoch))]
    within = [
        _own_s(part[:, part[0, :, checkpoint.STEPS] < own.shape[1]]) for part, own in zip(saved, by_epoch, strict=True)
    ]
    wall_s -= sum(map(_own_s, saved[:-1])) + within[-1]  # one after the last step of the run is not in wall_s
    samples, bytes_read = int(steps[..., SAMPLES].sum()), int(steps[..., BYTES].sum())
    busy = times.compute_s + times.wait_s
    io_s = float(totals[:, IO_S].sum())
    reads_samples = run.workload.reads_samples
    is_timed = reads_samples and (totals[:, TIMED].any() or not samples)
    opens = int(totals[:, OPENS].sum())
    return Summary(
        samples=samples,
        samples_left_out=_offered(run.workload, len(steps)) - run.samples,
        steps=steps.shape[1],
        steps_planned=run.steps_per_epoch * run.workload.train.epochs,
        bytes_read=bytes_read,
        overhead_bytes_read=int(totals[:, OVERHEAD].sum()),
        storage_bytes_read=_total(merged.arrivals[..., cache_accounting.FETCHED]),
        wall_s=wall_s,
        samples_per_s=samples / wall_s if reads_samples else None,
        read_MBps=bytes_read / wall_s / 1e6 if reads_samples else None,
        au=times.compute_s / busy if busy and reads_samples else None,
        au_mlperf=_au_mlperf(by_epoch, within) if reads_samples else None,
        io_time_s=io_s / len(steps) if is_timed else None,
        io_hidden_fraction=float(totals[:, _HIDDEN_S].sum()) / io_s if io_s else None,
        opens=opens,
        **_file_operations(merged, opens, wall_s),
        reads=int(totals[:, REQUESTS].sum()) if reads_samples else 0,
        wait_s=times.wait,
        compute_s=times.compute,
        sync_s=times.sync,
        read_latency_s=_latency(merged, distributions.READ) if reads_samples else None,
        compute_asked_s=float(steps[..., ASKED].mean()),
        slowest_rank=_slowest(merged.hosts, times.busy),
        checkpoint=_checkpoint(merged.checkpoints) if merged.checkpoints.size else None,
        restored=_restored(merged.restored) if merged.restored.size else None,
        evaluation=_evaluated(merged.evaluated) if merged.evaluated.size else None,
        preprocess_s=float(totals[:, _PREPROCESS_S].mean()),
        verify_s=float(merged.verified[..., 0].sum(axis=1).mean()),
        overhead_s=float(totals[:, _OWN_S].mean()),
        samples_verified=int(merged.verified[..., 1].sum()),
        page_faults=_page_faults(totals) if run.workload.reader.mapped else None,
        metadata=_metadata(merged, run),
        pace=_pace(steps[..., STARTED].min(axis=0), run.workload.compute.interval),
        inference=kv_summary.of_ranks(merged.served, merged.served_times, run.workload.inference),
        auxiliary_files=_side_files(merged.auxiliary_files) if run.workload.dataset.auxiliary_files else None,
    )


def _pace(starts: Floats, every_s: float | None) -> PaceSummary | None:
    """Return how far steps at fixed times were late. starts: start of each step, shape (steps,)."""
    if every_s is None or len(starts) < 2:
        return None
    late = starts - starts[0] - every_s * np.arange(len(starts))
    per_s = (len(starts) - 1) / (starts[-1] - starts[0])
    return PaceSummary(float(every_s), float(per_s), max(0.0, float(late.max())), max(0.0, float(late[-1])))


def _page_faults(totals: Floats) -> PageFaultsSummary:
    return PageFaultsSummary(int(totals[:, _MAJOR_FAULTS].sum()), int(totals[:, _MINOR_FAULTS].sum()))


def _latency(merged: Merged, kind: int) -> Distribution | None:
    """Return the distribution of the latencies of one kind over all ranks. kind: a row of the histograms."""
    counts, sums = merged.histograms[:, kind].sum(axis=0), merged.sums[:, kind]
    return distributions.of_histogram(counts, float(sums[:, 0].sum()), float(sums[:, 1].max()))


def _file_operations(merged: Merged, opens: int, wall_s: float) -> dict[str, Any]:
    """Return the fields of a summary about openings and closings of files. If a library opens files and does not tell
    how long it takes, the fields on latency are None. opens: number of openings, timed or not.
    """
    per_s = opens / wall_s if opens else None
    is_timed = opens and int(merged.histograms[:, distributions.OPEN].sum()) == opens
    read_s, *handled_s = merged.sums[..., 0].sum(axis=0).tolist()
    return {
        "opens_per_s": per_s,
        "open_latency_s": _latency(merged, distributions.OPEN) if is_timed else None,
        "close_latency_s": _latency(merged, distributions.CLOSE) if is_timed else None,
        "metadata_fraction": sum(handled_s) / (read_s + sum(handled_s)) if is_timed else None,
    }


def _metadata(merged: Merged, run: Run) -> tuple[PhaseSummary, ...]:
    """Return the summaries of the phases of a metadata workload, in their order. A phase that was not reached is left
    out. The tuple is empty for other workloads.
    """
    keys = run.workload.metadata
    names = () if keys is None else keys.order
    summaries = []
    for place, name in enumerate(names):
        records = merged.phases[:, place :: len(names)]
        if records.shape[1]:
            histogram = merged.latencies[:, place :: len(names)].sum(axis=(0, 1))
            summaries.append(_phase_summary(name, records, histogram, merged.hosts))
    return tuple(summaries)


def _phase_summary(name: Phase, records: Floats, histogram: distributions.Counts, hosts: list[Host]) -> PhaseSummary:
    """Return the summary of a phase. records: shape (ranks, repeats, columns)."""
    began, ended, counts = records[..., BEGAN], records[..., ENDED], records[..., OPERATIONS]
    start, first, last = began.min(axis=0), ended.min(axis=0), ended.max(axis=0)
    # Operations of each rank until the first rank ends, if the rank makes them at a steady rate.
    until_first = counts * np.clip((first - began) / (ended - began), 0.0, 1.0)
    rates = counts.sum(axis=0) / (last - start)
    rates_of_first = until_first.sum(axis=0) / (first - start)
    busy = (ended - began).sum(axis=1)
    latency = distributions.of_histogram(
        histogram, float(records[..., TOTAL_S].sum()), float(records[..., LONGEST_S].max())
    )
    return PhaseSummary(
        phase=name,
        operations=int(counts.sum()),
        per_s=float(np.median(rates)),
        per_s_of_first=float(np.median(rates_of_first)),
        rates=tuple(rates.tolist()),
        wall_s=float(np.median(last - start)),
        latency_s=latency,
        slowest_rank=_slowest(hosts, busy),
    )


def _offered(workload: Workload, ranks: int) -> int:
    """Return the number of samples that all ranks together would read in all epochs if they read every sample. In fact,
    samples may be left out because of drop_last or the number of steps.
    """
    return workload.dataset.samples * workload.train.epochs * (1 if workload.reader.shard else ranks)


def _side_files(counts: Floats) -> AuxiliaryFilesSummary:
    opens, reads, writes, bytes_read, bytes_written = map(int, counts[:, :-1].sum(axis=0))
    return AuxiliaryFilesSummary(opens, reads, writes, bytes_read, bytes_written, float(counts[:, -1].mean()))


def _checkpoint(saved: Floats) -> CheckpointSummary:
    writers = saved[saved[:, 0, checkpoint.SIZE] > 0]
    size = int(writers[..., checkpoint.SIZE].sum())
    safe = (writers[..., checkpoint.WRITE_S] + writers[..., checkpoint.FSYNC_S]).max(axis=0)
    slowest_write = safe.sum()
    slowest_read = writers[..., checkpoint.BACK_S].max(axis=0).sum()
    return CheckpointSummary(
        count=saved.shape[1],
        bytes_written=size,
        pause_s=distributions.of_values(saved[..., checkpoint.PAUSE_S]),
        own_s=_own_s(saved),
        write_s=distributions.of_values(writers[..., checkpoint.WRITE_S]),
        fsync_s=distributions.of_values(writers[..., checkpoint.FSYNC_S]),
        read_s=distributions.of_values(writers[..., checkpoint.BACK_S]) if slowest_read else None,
        write_MBps=float(size / slowest_write / 1e6),
        read_MBps=float(size / slowest_read / 1e6) if slowest_read else None,
        safe_s=distributions.of_values(safe),
    )


def _restored(rows: Floats) -> RestoreSummary:
    readers = rows[rows[:, 0, restore.SIZE] > 0]
    size = int(readers[..., restore.SIZE].sum())
    slowest = readers[..., restore.READ_S].max(axis=0)
    return RestoreSummary(
        count=rows.shape[1],
        bytes_read=size,
        read_s=distributions.of_values(readers[..., restore.READ_S]),
        slowest_s=distributions.of_values(slowest),
        read_MBps=float(size / slowest.sum() / 1e6),
        gap_s=float(np.nanmin(rows[:, 0, restore.GAP_S])),  # of the rank that wrote last
        verify_s=float(rows[..., restore.VERIFY_S].sum(axis=1).mean()),
        **_arrivals(rows[..., restore.ARRIVALS :]),
    )


def _between_epochs(rows: Floats, epochs: int) -> float:
    """Return the total time in seconds of the evaluation passes that are followed by another epoch. The time includes
    the preparation of the page cache for these passes. rows: records of the passes, shape (ranks, passes, columns).
    epochs: number of epochs that were started.
    """
    return float(rows[:, rows[0, :, evaluation.EPOCH] < epochs - 1, evaluation.TOOK_S].max(axis=0).sum())


def _evaluated(rows: Floats) -> EvaluationSummary:
    wall_s = float(rows[..., evaluation.WALL_S].max(axis=0).sum())
    samples, size = int(rows[..., evaluation.SAMPLES].sum()), int(rows[..., evaluation.BYTES].sum())
    wait_s, compute_s, sync_s = (
        float(rows[..., column].sum(axis=1).mean())
        for column in (evaluation.WAIT_S, evaluation.COMPUTE_S, evaluation.SYNC_S)
    )
    return EvaluationSummary(
        count=rows.shape[1],
        samples=samples,
        bytes_read=size,
        wall_s=wall_s,
        wait_s=wait_s,
        compute_s=compute_s,
        sync_s=sync_s,
        samples_per_s=samples / wall_s,
        read_MBps=size / wall_s / 1e6,
        **_arrivals(rows[..., evaluation.ARRIVALS :]),
    )


def phase(steps: Floats, which: int) -> Floats:
    """Return the seconds that the phase `which` takes in each step. which: one of WAIT, COMPUTE and SYNC. With many
    ranks, the result is large; callers therefore keep the result of only one phase in memory at a time.
    """
    return steps[..., which + 1] - steps[..., which]


class _Times(NamedTuple):
    """Times of the phases of a step. wait, compute, sync: distributions over all steps and ranks. wait_s, compute_s:
    sums over all steps and ranks. busy: for each rank, the seconds that it spent waiting and computing.
    """

    wait: Distribution
    compute: Distribution
    sync: Distribution
    wait_s: float
    compute_s: float
    busy: Floats


def _times(steps: Floats) -> _Times:
    both = phase(steps, WAIT)
    wait, wait_s = distributions.of_values(both), float(both.sum())
    compute = phase(steps, COMPUTE)
    both += compute
    busy = both.sum(axis=1)
    del both
    computed, compute_s = distributions.of_values(compute), float(compute.sum())
    del compute
    return _Times(wait, computed, distributions.of_values(phase(steps, SYNC)), wait_s, compute_s, busy)


def _au_mlperf(epochs: list[Floats], own_s: list[float]) -> float | None:
    """Return the accelerator utilisation (AU) as MLPerf Storage defines it: requested computation time (mean over
    ranks) divided by running time. Both times leave out the first step of each epoch. Return None if no epoch has a
    second step. own_s: seconds in each epoch, between its first and its last step, in which dlio-hpc itself worked for
    checkpoints.
    """
    counted = [(steps, own) for steps, own in zip(epochs, own_s, strict=True) if steps.shape[1] > 1]
    if not counted:
        return None
    running = sum(steps[:, -1, SYNCED].max() - steps[:, 0, SYNCED].min() - own for steps, own in counted)
    return float(sum(steps[:, 1:, ASKED].sum() / len(steps) for steps, _ in counted) / running)


def _slowest(hosts: list[Host], busy: Floats) -> SlowestRank:
    rank = int(busy.argmax())
    median = float(np.median(busy))
    return SlowestRank(rank, hosts[rank].name, float(busy[rank]), float(busy[rank]) / median if median else 1.0)
