"""timeline.h5 of a run: what the core itself recorded, as pictures and figures need it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis.log.view import Counts, Histogram, Ranks, Series, Steps
from dlio_hpc.darshan import clock_alignment

Floats = npt.NDArray[np.float64]


class Recorded(NamedTuple):
    """The open file."""

    file: Any

    @property
    def hosts(self) -> list[str]:
        return [host.decode() if isinstance(host, bytes) else str(host) for host in self.file["ranks/host"][:]]

    @property
    def marks(self) -> clock_alignment.Marks | None:
        return clock_alignment.read(self.file)

    @property
    def is_timed(self) -> bool:
        """Were single reads timed? Not where TensorFlow reads by itself."""
        return bool(self.file["activity"].attrs.get("timed", True)) if "activity" in self.file else False


@contextmanager
def opened(content: bytes) -> Iterator[Recorded]:
    """timeline.h5 from its bytes. As an image: h5py crashes over damaged bytes in a file object of Python's."""
    import h5py

    with h5py.File(h5py.h5f.open_file_image(content), "r") as file:
        yield Recorded(file)


def steps(recorded: Recorded) -> Steps:
    """Means over ranks; steps that there was no time for are left out."""
    group = recorded.file["steps"]
    start, wait, compute, sync = (group[name][:].mean(axis=0) for name in ("start", "wait", "compute", "sync"))
    per_epoch = start.shape[1]
    done = ~np.isnan(start.reshape(-1))
    start, wait, compute, sync = (part.reshape(-1)[done] for part in (start, wait, compute, sync))
    return Steps(start, wait, compute, sync, list(range(0, len(start), per_epoch)))


def computing(recorded: Recorded, rank: int) -> Floats:
    """(n, 2): when the rank computed, seconds since the run's first step."""
    group = recorded.file["steps"]
    return _computing(*(group[name][rank].reshape(-1) for name in ("start", "wait", "compute")))


def computing_of_all(recorded: Recorded) -> dict[int, Floats]:
    """The same by rank: each column is unpacked once, not once a rank."""
    group = recorded.file["steps"]
    columns = [group[name][:] for name in ("start", "wait", "compute")]
    return {rank: _computing(*(column[rank].reshape(-1) for column in columns)) for rank in range(len(columns[0]))}


def _computing(start: Floats, wait: Floats, compute: Floats) -> Floats:
    done = ~np.isnan(start)
    begin = (start + wait)[done]
    return np.stack([begin, begin + compute[done]], axis=1)


def ends(recorded: Recorded) -> float:
    """When the last step ended, seconds since the first began."""
    group = recorded.file["steps"]
    return float(np.nanmax(sum(group[name][:, -1] for name in ("start", "wait", "compute", "sync"))))


def phases(recorded: Recorded) -> tuple[Floats, Floats, Floats]:
    """Seconds of wait, compute and sync of each rank."""
    group = recorded.file["steps"]
    wait, compute, sync = (np.nansum(group[name][:], axis=(1, 2)) for name in ("wait", "compute", "sync"))
    return wait, compute, sync


def ranks(recorded: Recorded) -> Ranks:
    """What the core counted; auxiliary files and checkpoints are in the bytes and not in io_s."""
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
    """All ranks together, to the end of the last step: from the record of reads over time, or, where single reads were
    not timed, by the steps whose samples came.
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


def _of_steps(group: Any, end: float) -> tuple[Floats, Floats, Floats]:
    start, size = group["start"][:].mean(axis=0).reshape(-1), group["bytes"][:].sum(axis=0).reshape(-1)
    edges = np.linspace(0, max(end, 1e-9), min(len(start), 500) + 1)
    done = ~np.isnan(start)
    total, _ = np.histogram(start[done], edges, weights=size[done].astype(float))
    return edges, total, np.zeros(len(total))


def busy(recorded: Recorded, rank: int) -> Floats:
    """(n, 3): when the rank had a read in flight, and for which share of that time."""
    if not recorded.is_timed:
        return np.empty((0, 3))
    group = recorded.file["activity"]
    width, spent = float(group.attrs["width"]), group["busy"][rank]
    at = np.flatnonzero(spent)
    begin = float(group.attrs["start"]) + width * at
    return np.stack([begin, begin + width, np.minimum(spent[at] / width, 1)], axis=1)


def sizes(recorded: Recorded) -> Histogram:
    file = recorded.file
    if "request_sizes" not in file:
        return Histogram(np.array([1.0, 2.0]), np.zeros(1, np.int64), np.zeros(1, np.int64))
    return _histogram(file["request_sizes"])


def latency(recorded: Recorded) -> Histogram | None:
    """None where single reads were not timed."""
    found = _histogram(recorded.file["read_latency"])
    return found if found.reads.any() else None


def _histogram(group: Any) -> Histogram:
    counts = group["counts"][:].sum(axis=0).astype(np.int64)
    return Histogram(group["edges"][:], counts, np.zeros_like(counts))
