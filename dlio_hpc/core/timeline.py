"""timeline.h5: the steps and the read activity of all ranks. The size of this file depends on ranks x steps, and not on
the number of reads.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_hpc.core import checkpoint, distributions, kv_record, merge
from dlio_hpc.core.distributions import ASKED, BYTES, SAMPLES, STARTED
from dlio_hpc.core.hdf5_output import Outlet
from dlio_hpc.core.merge import Merged
from dlio_hpc.darshan import clock_alignment
from dlio_hpc.files import rundir
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    import h5py

    from dlio_hpc.core.loaders.tensorflow.xplane import XPlane


Column = npt.NDArray[Any]

_PACKED: dict[str, Any] = {"compression": "gzip", "compression_opts": 1, "shuffle": True}


def write(directory: Path, merged: Merged, run: Run, profiles: "list[XPlane | None]", marker: str) -> None:
    """Write timeline.h5 into the run's folder. Each group has an attribute `about` that describes its contents.
    profiles: TensorFlow profile of each rank, or None for a rank without a profile; empty if no rank was profiled.
    marker: path of the marker file for Darshan.
    """
    import h5py

    with rundir.replacing(directory / rundir.TIMELINE) as path, Outlet(path) as outlet:
        with h5py.File(outlet, "w") as file:
            _fill(file, merged, run, profiles, marker)
        outlet.check()


def _fill(file: "h5py.File", merged: Merged, run: Run, profiles: "list[XPlane | None]", marker: str) -> None:
    file.attrs["schema"] = 1
    _steps(file.create_group("steps"), merged, run)
    _ranks(file.create_group("ranks"), merged, run)
    latency = file.create_group("read_latency")
    latency.attrs["about"] = (
        "number of reads of each rank (axis 0) in each duration bin (axis 1); edges: limits of the bins in seconds"
    )
    latency["edges"] = distributions.bin_edges()
    latency.create_dataset("counts", data=merged.histograms[:, distributions.READ], **_PACKED)
    opening = file.create_group("open_latency")
    opening.attrs["about"] = "the same as read_latency, for the openings of files that were timed"
    opening["edges"] = distributions.bin_edges()
    opening.create_dataset("counts", data=merged.histograms[:, distributions.OPEN], **_PACKED)
    sizes = file.create_group("request_sizes")
    sizes.attrs["about"] = (
        "number of requests of each rank (axis 0) in each size bin (axis 1). The size of a request is the number "
        "of bytes that it returned. edges: limits of the bins in bytes; a bin includes its lower limit. Requests that "
        "returned no bytes and requests made by a library are left out"
    )
    sizes["edges"] = distributions.size_edges()
    sizes.create_dataset("counts", data=merged.sizes, **_PACKED)
    _activity(file.create_group("activity"), merged)
    if merged.marks.size:
        marks = file.create_group(clock_alignment.GROUP)
        marks.attrs["about"] = "axes: rank, read, (start, end); values are seconds since the run's first step"
        marks.attrs["path"] = marker
        marks["instants"] = merged.marks - first_step(merged)
    by_rank = {rank: profile for rank, profile in enumerate(profiles) if profile is not None}
    if by_rank:
        _tf_profile(file.create_group("tf_profile"), merged, by_rank)


def first_step(merged: Merged) -> float:
    """Return the time on rank 0's clock at which the first step of the run started."""
    return float(merged.steps[..., STARTED].min())


def _steps(group: "h5py.Group", merged: Merged, run: Run) -> None:
    group.attrs["about"] = (
        "axes: rank, epoch, step. Times are in seconds; start is the time since the run's first step. NaN, or 0 in "
        "samples and bytes, means that the step was not run because time ran out"
    )
    for name, column in _columns(merged):
        group.create_dataset(name, data=_table(column, run.steps_per_epoch), **_PACKED)


def _columns(merged: Merged) -> Iterator[tuple[str, Column]]:
    """Yield the name and the values of each column of the steps; values have shape (ranks, steps of all epochs). Only
    one column is in memory at a time.
    """
    steps = merged.steps
    yield "start", steps[..., STARTED] - first_step(merged)
    yield "wait", merge.phase(steps, merge.WAIT)
    yield "compute", merge.phase(steps, merge.COMPUTE)
    yield "sync", merge.phase(steps, merge.SYNC)
    yield "asked", steps[..., ASKED]
    yield "samples", steps[..., SAMPLES].astype(np.uint32)
    yield "bytes", steps[..., BYTES].astype(np.uint64)


def _table(column: Column, per_epoch: int) -> Column:
    """Return a column in the shape (ranks, epochs, steps). For steps that were not run because time ran out, the values
    are NaN, or 0 in a column of counts.
    """
    ranks, done = column.shape
    epochs = -(-done // per_epoch)
    if done == epochs * per_epoch:
        return column.reshape(ranks, epochs, per_epoch)
    padded = np.full((ranks, epochs * per_epoch), np.nan if column.dtype.kind == "f" else 0, column.dtype)
    padded[:, :done] = column
    return padded.reshape(ranks, epochs, per_epoch)


def _ranks(group: "h5py.Group", merged: Merged, run: Run) -> None:
    import h5py

    group.attrs["about"] = (
        "one row per rank. clock_offset: seconds added to the rank's clock to get the clock of rank 0. bytes_read: "
        "bytes of samples. overhead_bytes: other bytes that were read with the samples. side_*: requests and bytes of "
        "auxiliary files, which the other columns leave out. checkpoint_time: seconds of writing and fsync of "
        "checkpoints, or with at least one block of a KV cache being written. checkpoint_bytes: bytes of the same"
    )
    group["host"] = np.array([host.name for host in merged.hosts], dtype=h5py.string_dtype())
    group["clock_offset"] = merged.offsets[:, 0]
    group["io_time"] = merged.totals[:, merge.IO_S]
    writing_s = merged.checkpoints[..., [checkpoint.WRITE_S, checkpoint.FSYNC_S]].sum(axis=(1, 2))
    group["checkpoint_time"] = writing_s + merged.served[..., kv_record.WRITING_S].sum(axis=1)
    block = 0 if run.workload.inference is None else run.workload.inference.block_bytes
    _, side_reads, _, side_bytes_read, side_bytes_written, _ = merged.auxiliary_files.T
    counts = {
        "opens": merged.totals[:, merge.OPENS],
        "bytes_read": merged.steps[..., BYTES].sum(axis=1),
        "overhead_bytes": merged.totals[:, merge.OVERHEAD],
        "requests": merged.totals[:, merge.REQUESTS],
        "side_reads": side_reads,
        "side_bytes_read": side_bytes_read,
        "side_bytes_written": side_bytes_written,
        "checkpoint_bytes": merged.checkpoints[..., checkpoint.SIZE].sum(axis=1)
        + block * merged.served[..., kv_record.BLOCKS_WRITTEN].sum(axis=1),
    }
    for name, column in counts.items():
        group[name] = column.astype(np.uint64)


def _activity(group: "h5py.Group", merged: Merged) -> None:
    group.attrs["about"] = (
        "axes: rank, bin. bytes: bytes of samples and overhead. busy: seconds with at least one read in flight. "
        "opens, opening: openings of files that were timed, and seconds in them, summed over threads. A bin "
        "has `width` seconds; a read that spans several bins is divided among them. Bin 0 begins at `start`, in "
        "seconds since the run's first step. timed: false if the times of reads are unknown; all values are then "
        "zero. Auxiliary files and checkpoints are left out"
    )
    timed = bool(merged.totals[:, merge.TIMED].any())
    group.attrs["timed"] = timed
    group.attrs["width"] = merged.time_bins.width
    group.attrs["start"] = merged.time_bins.start - first_step(merged) if timed else 0.0
    arrived, requests, busy, opens, opening = merged.activity.transpose(1, 0, 2)
    group.create_dataset("bytes", data=arrived, **_PACKED)
    group.create_dataset("requests", data=requests, **_PACKED)
    for name, amounts in (("busy", busy), ("opens", opens), ("opening", opening)):
        group.create_dataset(name, data=amounts.astype(np.float32), **_PACKED)


def _tf_profile(group: "h5py.Group", merged: Merged, profiles: "dict[int, XPlane]") -> None:
    import h5py

    group.attrs["about"] = (
        "events of threads of the profiled ranks, from TensorFlow's profiler. name and thread are indices into `names` "
        "and `threads`. start: seconds since the run's first step. duration: seconds. The attributes left_out, "
        "clock_error and until have one value per rank of `ranks`. left_out: number of shorter events that are not "
        "recorded. clock_error: largest error of start in seconds. until: time at which the profiler was stopped, in "
        "seconds since the run's first step"
    )
    names = sorted({name for profile in profiles.values() for name in profile.names})
    columns: dict[str, list[Any]] = {"rank": [], "thread": [], "name": [], "start": [], "duration": []}
    threads: list[tuple[int, str]] = []
    first = first_step(merged)
    for rank, profile in profiles.items():
        columns["rank"].append(np.full(len(profile.start), rank, np.uint32))
        columns["thread"].append((profile.thread + len(threads)).astype(np.uint32))
        columns["name"].append(np.searchsorted(names, profile.names)[profile.name].astype(np.uint32))
        columns["start"].append(profile.start + merged.offsets[rank, 0] - first)
        columns["duration"].append(profile.duration)
        threads += [(rank, name) for name in profile.threads]
    for column, parts in columns.items():
        group.create_dataset(column, data=np.concatenate(parts), **_PACKED)
    group["names"] = np.array(names, dtype=h5py.string_dtype())
    group["threads"] = np.array([name for _, name in threads], dtype=h5py.string_dtype())
    group["thread_ranks"] = np.array([rank for rank, _ in threads], np.uint32)
    ranks = list(profiles)
    group.attrs["ranks"] = np.array(ranks, np.uint32)
    group.attrs["left_out"] = np.array([profile.left_out for profile in profiles.values()], np.uint64)
    group.attrs["clock_error"] = np.array([profile.clock_error for profile in profiles.values()])
    group.attrs["until"] = np.array([profiles[rank].until for rank in ranks]) + merged.offsets[ranks, 0] - first
