"""Data for the figures of a run, from a trace, from Darshan's counters, or from the run's timeline.h5."""

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis import timeline_reader as records
from dlio_hpc.analysis.log import heatmap
from dlio_hpc.analysis.log.findings import LAST_SIZES, SIZE_BINS, Analysis
from dlio_hpc.analysis.log.requests import Requests, over_time
from dlio_hpc.analysis.log.view import AccessOrder, CallCost, Histogram, Lane, Ranks, Series, View
from dlio_hpc.analysis.timeline_reader import Recorded
from dlio_hpc.darshan.log import Heat
from dlio_hpc.results import intervals

Floats = npt.NDArray[np.float64]

_BINS, _LANES, _FINEST = 500, 8, 1500
# Sizes: four bins per octave, up to 1 TiB. Durations: eight bins per octave, from 100 ns to half an hour.
_SIZE_EDGES = 2.0 ** (np.arange(4 * 40 + 1) / 4)
_LATENCY_EDGES = 1e-7 * 2.0 ** (np.arange(8 * 34 + 1) / 8)


def of_trace(
    title: str, source: str, notes: list[str], analysis: Analysis, requests: Requests, recorded: Recorded | None
) -> View:
    """Return the view of the trace of a run or of another program. recorded: the run's timeline.h5, on the same clock
    as `requests`; None for another program, whose steps are unknown.
    """
    end = max(float(requests.end.max(initial=0.0)), records.ends(recorded) if recorded else analysis.job_s)
    empty = int((requests.length == 0).sum())
    if empty:
        notes = [*notes, _of_empty(empty)]
    return View(
        title,
        source,
        end,
        notes,
        _series(requests, end),
        _histogram(requests.length, requests.write, _SIZE_EDGES),
        _histogram(requests.end - requests.start, requests.write, _LATENCY_EDGES, clipped=True),
        _ranks(analysis, recorded),
        _lanes(analysis, requests, recorded, end),
        records.steps(recorded) if recorded else None,
        heatmap.of_requests(requests, max(analysis.ranks, 1), end),
        _costs_of_counters(analysis),
        analysis.job_s,
        _calls(analysis),
        _orders(analysis),
    )


def _of_empty(count: int) -> str:
    """Return a note on requests without bytes. The tables include them as requests of 0 bytes. They are missing in
    pictures with a logarithmic axis.
    """
    requests = "1 request" if count == 1 else f"{count} requests"
    return (
        f"{requests} moved no bytes, such as a read at the end of a file: the tables include them with a size of 0; "
        "the picture of request sizes does not"
    )


def of_core(title: str, notes: list[str], recorded: Recorded) -> View:
    """Return the view of a run without a trace, from its timeline.h5."""
    ranks, series = records.ranks(recorded), records.series(recorded)
    hosts, end = recorded.hosts, max(float(series.edges[-1]), records.ends(recorded))
    lanes = [
        Lane(_label(rank, hosts[rank]), _shares(records.computing(recorded, rank), end), records.busy(recorded, rank))
        for rank in _chosen(ranks.io_s)
    ]
    if not recorded.is_timed:
        notes = [
            *notes,
            "TensorFlow itself reads the files, so reads were not timed; bytes are shown at the steps that received "
            "them",
        ]
    return View(
        title,
        "the benchmark's own timeline",
        end,
        notes,
        series,
        records.sizes(recorded),
        records.latency(recorded),
        ranks,
        lanes,
        records.steps(recorded),
        heatmap.of_recorded(recorded),
        _costs_of_timeline(recorded),
        records.ends(recorded),
        opens=records.opens(recorded),
    )


def of_counters(title: str, notes: list[str], analysis: Analysis, heat: list[Heat]) -> View:
    """Return the view of a log without a trace: request sizes in Darshan's bins, metrics per rank, and bytes over time
    if the log has heat maps.
    """
    reads, writes = (
        np.array([kind.histogram.get(name, 0) if kind else 0 for name in SIZE_BINS], np.int64)
        for kind in (analysis.read, analysis.write)
    )
    return View(
        title,
        "Darshan's counters (no trace)" + (" and heat maps" if heat else ""),
        analysis.job_s,
        notes,
        _of_heat(heat, max(analysis.job_s, 1e-9)),
        Histogram(np.array([1.0, *LAST_SIZES[:-1], 2.0**40]), reads, writes),
        None,
        _ranks(analysis, None),
        [],
        None,
        heatmap.of_darshan(heat, analysis.ranks),
        _costs_of_counters(analysis),
        analysis.job_s,
        _calls(analysis),
        _orders(analysis),
    )


def _of_heat(heat: list[Heat], job_s: float) -> Series:
    """Return bytes over time from heat maps, summed over all ranks and interfaces. All heat maps of a log have the same
    bin width. If the log has no heat maps, return a single bin of 0 bytes for the whole job.
    """
    bins = max((interface.read.shape[1] for interface in heat), default=1)
    bytes_read, bytes_written = np.zeros(bins), np.zeros(bins)
    for interface in heat:
        bytes_read[: interface.read.shape[1]] += interface.read.sum(axis=0)
        bytes_written[: interface.written.shape[1]] += interface.written.sum(axis=0)
    width = heat[0].width_s if heat else job_s
    return Series(width * np.arange(bins + 1), bytes_read, bytes_written, None, None)


def _series(requests: Requests, end: float) -> Series:
    begin = min(0.0, float(requests.start.min(initial=0.0)))
    edges = np.linspace(begin, max(end, begin + 1e-9), _BINS + 1)
    bytes_read, reads, bytes_written, writes = over_time(requests, edges)
    return Series(edges, bytes_read, bytes_written, reads, writes)


def _histogram(
    values: npt.NDArray[np.generic], write: npt.NDArray[np.bool_], edges: Floats, clipped: bool = False
) -> Histogram:
    if clipped:
        values = np.clip(values, edges[0], edges[-1])
    counts = [np.histogram(values[chosen], edges)[0].astype(np.int64) for chosen in (~write, write)]
    return Histogram(edges, *counts)


def _ranks(analysis: Analysis, recorded: Recorded | None) -> Ranks:
    rows = analysis.by_rank
    bytes_read, bytes_written, reads, writes = (
        np.array([getattr(row, name) for row in rows], np.int64)
        for name in ("bytes_read", "bytes_written", "reads", "writes")
    )
    hosts = recorded.hosts if recorded else [row.host for row in rows]
    wait, compute, sync = records.phases(recorded) if recorded else (None, None, None)
    io_s = np.array([row.io_s for row in rows])
    return Ranks(hosts, bytes_read, bytes_written, reads, writes, io_s, wait, compute, sync)


def _lanes(analysis: Analysis, requests: Requests, recorded: Recorded | None, end: float) -> list[Lane]:
    lanes = []
    for rank in _chosen(np.array([row.io_s for row in analysis.by_rank])):
        part = requests.of_rank(rank)
        busy = intervals.union(requests.times(part))
        compute = np.empty((0, 3))
        if recorded:
            compute = _shares(records.computing(recorded, rank), end)
        host = recorded.hosts[rank] if recorded else analysis.by_rank[rank].host
        lanes.append(Lane(_label(rank, host), compute, intervals.joined(busy, end / _FINEST)))
    return lanes


def _shares(knots: Floats, end: float) -> Floats:
    return intervals.joined(knots.T, end / _FINEST)


def _chosen(io_s: Floats) -> list[int]:
    """Return the ranks that are drawn: all ranks if there are few; otherwise the three with the least I/O time, the
    three with the most, and two in the middle. io_s: I/O time of each rank.
    """
    if len(io_s) <= _LANES:
        return list(range(len(io_s)))
    order = np.argsort(io_s, kind="stable")
    middle = len(order) // 2
    return sorted({*order[:3].tolist(), *order[middle - 1 : middle + 1].tolist(), *order[-3:].tolist()})


def _label(rank: int, host: str) -> str:
    return f"rank {rank}" + (f" on {host}" if host else "")


def _costs_of_counters(analysis: Analysis) -> tuple[CallCost, ...]:
    """Return the I/O costs from Darshan's counters. The seconds in MPI-IO calls include the seconds in the POSIX calls
    that MPI-IO makes.
    """
    return tuple(
        CallCost(name, used.read_s, used.write_s, used.metadata_s) for name, used in analysis.interfaces.items()
    )


def _calls(analysis: Analysis) -> tuple[tuple[str, int], ...]:
    """Return the numbers of calls of a log."""
    meta = analysis.metadata
    reads, writes = (0 if kind is None else kind.requests for kind in (analysis.read, analysis.write))
    return (
        ("read", reads), ("write", writes), ("open", meta.opens), ("stat", meta.stats), ("seek", meta.seeks),
        ("mmap", meta.maps), ("sync", meta.syncs),
    )  # fmt: skip


def _orders(analysis: Analysis) -> tuple[AccessOrder, ...]:
    """Return the order of the reads and the order of the writes. An order that the log does not have is left out."""
    return tuple(
        AccessOrder(name, kind.requests, kind.consecutive, max(0.0, kind.sequential - kind.consecutive))
        for name, kind in (("read", analysis.read), ("write", analysis.write))
        if kind is not None and kind.requests and kind.consecutive is not None and kind.sequential is not None
    )


def _costs_of_timeline(recorded: Recorded) -> tuple[CallCost, ...]:
    """Return the I/O costs from the run's timeline.h5. This file has the times of sample reads and of checkpoint
    writes, but no times of metadata calls.
    """
    group = recorded.file["ranks"]
    read_s = float(group["io_time"][:].mean()) if recorded.is_timed else None
    write_s = float(group["checkpoint_time"][:].mean()) if "checkpoint_time" in group else None
    return (CallCost("dlio-hpc", read_s, write_s, None),)
