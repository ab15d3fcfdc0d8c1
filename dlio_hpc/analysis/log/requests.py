"""Requests in the trace of a log, as columns."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.darshan.log import Log, Records, Trace
from dlio_hpc.results import intervals

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Requests(NamedTuple):
    """Requests of a trace, as columns with one entry per request, sorted by rank. file: index into `paths`. offset,
    length: in bytes. start, end: in seconds. thread: number of the thread; 0 if it was not recorded. hosts: host of
    each rank; "" if nothing of the rank was traced. process: number of the process within the rank; None if each rank
    is one process.
    """

    rank: npt.NDArray[np.int32]
    file: npt.NDArray[np.int32]
    write: npt.NDArray[np.bool_]
    offset: Integers
    length: Integers
    start: Floats
    end: Floats
    thread: npt.NDArray[np.uint64]
    paths: list[str]
    hosts: list[str]
    process: Integers | None = None

    def of_rank(self, rank: int) -> slice:
        """Return the slice of the columns that holds the requests of a rank."""
        first, last = np.searchsorted(self.rank, np.array([rank, rank + 1], self.rank.dtype))
        return slice(int(first), int(last))

    def on(self, paths: Collection[str]) -> npt.NDArray[np.bool_]:
        """Return a mask that selects the requests to files with these paths."""
        wanted = np.array([path in paths for path in self.paths], bool)
        return wanted[self.file] if len(wanted) else np.zeros(len(self.file), bool)

    def chosen(self, mask: npt.NDArray[np.bool_]) -> "Requests":
        """Return the requests for which `mask` is True."""
        process = None if self.process is None else self.process[mask]
        return Requests(
            self.rank[mask], self.file[mask], self.write[mask], self.offset[mask], self.length[mask], self.start[mask],
            self.end[mask], self.thread[mask], self.paths, self.hosts, process,
        )  # fmt: skip

    def times(self, chosen: Any = slice(None)) -> Floats:
        """Return the start and end times of the chosen requests, shape (2, n)."""
        return np.stack([self.start[chosen], self.end[chosen]])


def over_time(requests: Requests, edges: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return bytes read, reads, bytes written and writes in each bin between `edges`. The bytes of a request are spread
    over its duration. The request itself is counted in the bin in which it starts.
    """
    columns = []
    for writes in (False, True):
        chosen = requests.write == writes
        times = requests.times(chosen)
        columns.append(intervals.binned(times, requests.length[chosen], edges))
        columns.append(intervals.binned(times[[0, 0]], 1, edges))
    bytes_read, reads, bytes_written, writes_ = columns
    return bytes_read, reads, bytes_written, writes_


def of_log(log: Log, module: str, wanted: Callable[[str], bool], offset_s: Floats | None) -> Requests:
    """Return the traced requests of a module to the files for whose paths `wanted` returns True. offset_s: seconds that
    are added to Darshan's times, for each rank; None to add nothing.
    """
    trace = log.traced[module]
    paths = sorted({log.names.get(int(number), str(number)) for number in trace.files["id"]})
    index = {path: number for number, path in enumerate(paths) if wanted(path)}
    chosen = np.array([log.names.get(number, str(number)) in index for number in trace.files["id"].tolist()], bool)
    order = np.argsort(trace.files["rank"], kind="stable")
    order = order[chosen[order]]
    files, counts, first = trace.files[order], trace.counts[order], trace.first[order]
    segments = _rows(trace, first, counts)
    rank = np.repeat(files["rank"].astype(np.int32), counts)
    start, end = segments["start"], segments["end"]
    if offset_s is not None:
        start, end = start + offset_s[rank], end + offset_s[rank]
    number = [index[log.names.get(record, str(record))] for record in files["id"].tolist()]
    return Requests(
        rank,
        np.repeat(np.array(number, np.int32), counts),
        _is_write(files, counts),
        segments["offset"],
        segments["length"],
        start,
        end,
        _threads(segments),
        paths,
        _hosts(log, trace),
        segments["process"] if "process" in (segments.dtype.names or ()) else None,
    )


def _rows(trace: Trace, first: Integers, counts: Integers) -> Records:
    """Return the segments (traced requests) of the chosen files. first, counts: index of the first segment and number
    of segments of each chosen file, in the order of the result. If all files are chosen in the order of the trace, the
    segments are not copied.
    """
    if len(first) == len(trace.files) and (np.diff(first) >= 0).all():
        return trace.segments
    total = int(counts.sum())
    rows = np.repeat(first - np.concatenate(([0], np.cumsum(counts)[:-1])), counts) + np.arange(total)
    picked: Records = trace.segments[rows]
    return picked


def _threads(segments: Records) -> npt.NDArray[np.uint64]:
    if "thread" not in (segments.dtype.names or ()):
        return np.broadcast_to(np.uint64(0), len(segments))
    numbers: npt.NDArray[np.uint64] = segments["thread"]
    return numbers


def _is_write(files: Records, counts: Integers) -> npt.NDArray[np.bool_]:
    """Return a mask of the segments that are writes. In the trace, the writes of each file precede the reads of this
    file.
    """
    kinds = np.array([True, False] * len(files), bool)
    flags = np.repeat(kinds, np.stack([files["writes"], files["reads"]], axis=1).reshape(-1))
    assert len(flags) == counts.sum()
    return flags


def _hosts(log: Log, trace: Trace) -> list[str]:
    hosts = [""] * max(log.job.ranks, int(trace.files["rank"].max(initial=-1)) + 1)
    for rank, host in zip(trace.files["rank"].tolist(), trace.files["host"].tolist(), strict=True):
        hosts[rank] = host.split(b"\0", 1)[0].decode("ascii", "replace")
    return hosts
