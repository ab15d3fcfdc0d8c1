"""Reader of timeline.h5 for figures and metrics. A run records its own steps and reads in this file."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.view import Counts, Histogram, Opens, Ranks, Series, Steps
from dlio_hpc.darshan import clock_alignment

Floats = npt.NDArray[np.float64]


class Recorded(NamedTuple):
    """An open timeline.h5. file: the open HDF5 file."""

    file: Any

    @property
    def hosts(self) -> list[str]:
        return [host.decode() if isinstance(host, bytes) else str(host) for host in self.file["ranks/host"][:]]

    @property
    def marks(self) -> clock_alignment.Marks | None:
        return clock_alignment.read(self.file)

    @property
    def is_timed(self) -> bool:
        """Whether reads were timed individually. They are not if TensorFlow itself reads the files."""
        return bool(self.file["activity"].attrs.get("timed", True)) if "activity" in self.file else False


@contextmanager
def opened(content: bytes) -> Iterator[Recorded]:
    """Open a timeline.h5 with the given content for a `with` block. It is opened as an HDF5 file image, because h5py
    crashes on corrupted bytes in a Python file object.
    """
    import h5py

    with h5py.File(h5py.h5f.open_file_image(content), "r") as file:
        yield Recorded(file)


def steps(recorded: Recorded) -> Steps:
    """Return the times of the steps that were reached, as means over the ranks."""
    group = recorded.file["steps"]
    start, wait, compute, sync = (group[name][:].mean(axis=0) for name in ("start", "wait", "compute", "sync"))
    per_epoch = start.shape[1]
    done = ~np.isnan(start.reshape(-1))
    start, wait, compute, sync = (part.reshape(-1)[done] for part in (start, wait, compute, sync))
    return Steps(start, wait, compute, sync, list(range(0, len(start), per_epoch)))


def computing(recorded: Recorded, rank: int) -> Floats:
    """Return the intervals in which the rank computed, shape (n, 2), in seconds since the start of the run's first
    step.
    """
    group = recorded.file["steps"]
    return _computing(*(group[name][rank].reshape(-1) for name in ("start", "wait", "compute")))


def computing_of_all(recorded: Recorded) -> dict[int, Floats]:
    """Return for each rank the intervals in which the rank computed, in the form that computing() returns. Each column
    is decompressed only once.
    """
    group = recorded.file["steps"]
    columns = [group[name][:] for name in ("start", "wait", "compute")]
    return {rank: _computing(*(column[rank].reshape(-1) for column in columns)) for rank in range(len(columns[0]))}


def _computing(start: Floats, wait: Floats, compute: Floats) -> Floats:
    done = ~np.isnan(start)
    begin = (start + wait)[done]
    return np.stack([begin, begin + compute[done]], axis=1)


def ends(recorded: Recorded) -> float:
    """Return the end of the last step in seconds since the first step began."""
    group = recorded.file["steps"]
    return float(np.nanmax(sum(group[name][:, -1] for name in ("start", "wait", "compute", "sync"))))


def phases(recorded: Recorded) -> tuple[Floats, Floats, Floats]:
    """Return the seconds that each rank spent in wait, compute and sync: three arrays of shape (ranks,), summed over
    all steps.
    """
    group = recorded.file["steps"]
    wait, compute, sync = (np.nansum(group[name][:], axis=(1, 2)) for name in ("wait", "compute", "sync"))
    return wait, compute, sync


def ranks(recorded: Recorded) -> Ranks:
    """Return the metrics of each rank. Bytes and requests to auxiliary files and checkpoints are included. The time of
    these requests is not included in io_s.
    """
    group = recorded.file["ranks"]

    def column(name: str) -> Counts:
        return group[name][:].astype(np.int64) if name in group else np.zeros(len(group["host"]), np.int64)

    return Ranks(
        recorded.hosts,
        column("bytes_read") + column("overhead_bytes") + column("side_bytes_read"),
        column("side_bytes_written") + column("checkpoint_bytes"),
        column("requests") + column("side_reads"),
        np.zeros(len(group["host"]), np.int64),
        group["io_time"][:],
        *phases(recorded),
    )


def series(recorded: Recorded) -> Series:
    """Return bytes and reads over time, summed over ranks, until the end of the last step. If reads were not timed
    individually, the bytes of a sample are counted at the start of the step that received the sample.
    """
    file = recorded.file
    if recorded.is_timed:
        group = file["activity"]
        start, width, count = float(group.attrs["start"]), float(group.attrs["width"]), group["bytes"].shape[1]
        more = max(0, int(np.ceil((ends(recorded) - start) / width)) - count)
        edges = start + width * np.arange(count + more + 1)
        bytes_read, reads = (np.pad(group[name][:].sum(axis=0), (0, more)) for name in ("bytes", "requests"))
    else:
        edges, bytes_read, reads = _of_steps(file["steps"], ends(recorded))
    nothing = np.zeros(len(edges) - 1)
    return Series(edges, bytes_read, nothing, reads, nothing)


def opens(recorded: Recorded) -> Opens | None:
    """Return the opens of sample files over time, summed over ranks. Return None if they were not timed."""
    if "activity/opens" not in recorded.file:
        return None
    group = recorded.file["activity"]
    opened, seconds = (np.asarray(group[name][:].sum(axis=0), np.float64) for name in ("opens", "opening"))
    if not opened.any():
        return None
    edges = np.asarray(
        float(group.attrs["start"]) + float(group.attrs["width"]) * np.arange(len(opened) + 1), np.float64
    )
    return Opens(edges, opened, seconds)


def _of_steps(group: Any, end: float) -> tuple[Floats, Floats, Floats]:
    start, size = group["start"][:].mean(axis=0).reshape(-1), group["bytes"][:].sum(axis=0).reshape(-1)
    edges = np.linspace(0, max(end, 1e-9), min(len(start), 500) + 1)
    done = ~np.isnan(start)
    total, _ = np.histogram(start[done], edges, weights=size[done].astype(float))
    return edges, total, np.zeros(len(total))


def busy(recorded: Recorded, rank: int) -> Floats:
    """Return the time bins in which the rank had a read in flight, shape (n, 3). The columns are the start and the end
    of a bin in seconds since the first step began, and the share of the bin with a read in flight. Return an empty
    array if reads were not timed individually.
    """
    if not recorded.is_timed:
        return np.empty((0, 3))
    group = recorded.file["activity"]
    width, spent = float(group.attrs["width"]), group["busy"][rank]
    at = np.flatnonzero(spent)
    begin = float(group.attrs["start"]) + width * at
    return np.stack([begin, begin + width, np.minimum(spent[at] / width, 1)], axis=1)


def sizes(recorded: Recorded) -> Histogram:
    """Return the histogram of request sizes. It has no requests if sizes were not recorded."""
    file = recorded.file
    if "request_sizes" not in file:
        return Histogram(np.array([1.0, 2.0]), np.zeros(1, np.int64), np.zeros(1, np.int64))
    return _histogram(file["request_sizes"])


def latency(recorded: Recorded) -> Histogram | None:
    """Return the histogram of read durations, or None if reads were not timed individually."""
    histogram = _histogram(recorded.file["read_latency"])
    return histogram if histogram.reads.any() else None


def _histogram(group: Any) -> Histogram:
    counts = group["counts"][:].sum(axis=0).astype(np.int64)
    return Histogram(group["edges"][:], counts, np.zeros_like(counts))
