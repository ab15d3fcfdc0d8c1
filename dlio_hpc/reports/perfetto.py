"""Export of requests, steps and TensorFlow's events to a JSON file that Perfetto and chrome://tracing can open.

The file is in the Trace Event Format, with a process per rank and a track per thread. All events are complete events
("X"), with times in microseconds.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.analysis import timeline_reader
from dlio_hpc.analysis.log.analyze import Examined
from dlio_hpc.files import rundir

Floats = npt.NDArray[np.float64]
_STEPS, _FIRST_ROW = 1, 10


class TraceTrack(NamedTuple):
    """Events of one thread of one rank. start, duration: arrays of shape (events,), in seconds. names, arguments: one
    item per event; `arguments` is None if the events have no arguments.
    """

    rank: int
    thread: int
    title: str
    start: Floats
    duration: Floats
    names: Sequence[str]
    arguments: Sequence[dict[str, Any]] | None


def write(path: Path, examined: Iterable[Examined]) -> int:
    """Write the trace of these runs to the file `path`, and return the number of events. The file is compressed if its
    name ends with .gz.
    """
    count = 0
    with rundir.replacing(path) as temporary:
        opened: Any = gzip.open if path.name.endswith(".gz") else open
        with opened(temporary, "wt", encoding="utf-8") as file:
            file.write('{"displayTimeUnit":"ms","traceEvents":[')
            separator = "\n"
            for number, run in enumerate(examined):
                for line in _lines(run, number):
                    file.write(separator + line)
                    separator = ",\n"
                    count += line.startswith('{"ph":"X"')
            file.write("\n]}\n")
    return count


def _lines(examined: Examined, number: int) -> Iterator[str]:
    """Yield the JSON lines of a run. number: index of the run. The index is part of the process number of each rank, so
    that no two runs use the same process numbers.
    """
    named: set[int] = set()
    for row in _rows(examined):
        process = number * 1_000_000 + row.rank
        if process not in named:
            named.add(process)
            yield _dump(_name("process_name", process, 0, f"{examined.title} rank {row.rank}"))
            yield _dump({"ph": "M", "name": "process_sort_index", "pid": process, "args": {"sort_index": process}})
        yield _dump(_name("thread_name", process, row.thread, row.title))
        starts, durations = row.start * 1e6, np.maximum(row.duration, 0) * 1e6
        for at, name in enumerate(row.names):
            event: dict[str, Any] = {"ph": "X", "name": name, "pid": process, "tid": row.thread}
            event["ts"], event["dur"] = round(float(starts[at]), 3), round(float(durations[at]), 3)
            if row.arguments is not None:
                event["args"] = row.arguments[at]
            yield _dump(event)


def _rows(examined: Examined) -> Iterator[TraceTrack]:
    if examined.timeline is not None:
        with timeline_reader.opened(examined.timeline) as record:
            for rank in range(len(record.hosts)):
                yield _steps(record, rank)
            yield from _tensorflow(record)
    if examined.requests is not None:
        yield from _requests(examined)


def _steps(record: timeline_reader.Recorded, rank: int) -> TraceTrack:
    group = record.file["steps"]
    start, *phases = (group[name][rank].reshape(-1) for name in ("start", "wait", "compute", "sync"))
    done = ~np.isnan(start)
    durations = np.stack([phase[done] for phase in phases], axis=1)
    begins = start[done][:, None] + np.cumsum(durations, axis=1) - durations
    kinds = ["wait", "compute", "sync"] * len(durations)
    return TraceTrack(rank, _STEPS, "steps", begins.reshape(-1), durations.reshape(-1), kinds, None)


def _tensorflow(record: timeline_reader.Recorded) -> Iterator[TraceTrack]:
    if "tf_profile" not in record.file:
        return
    group = record.file["tf_profile"]
    names = [_text(name) for name in group["names"][:]]
    threads = [_text(name) for name in group["threads"][:]]
    ranks, rows, which = group["rank"][:], group["thread"][:], group["name"][:]
    for thread, title in enumerate(threads):
        chosen = rows == thread
        if chosen.any():
            called = [names[number] for number in which[chosen].tolist()]
            rank = int(ranks[chosen][0])
            row = 1000 + thread
            yield TraceTrack(
                rank, row, f"TensorFlow {title}", group["start"][chosen], group["duration"][chosen], called, None
            )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _requests(examined: Examined) -> Iterator[TraceTrack]:
    """Yield tracks of requests for each rank. If Darshan recorded threads, there is one track per thread. Otherwise, a
    rank has as many tracks as it had requests in flight at the same time.
    """
    requests = examined.requests
    assert requests is not None
    for rank in np.unique(requests.rank).tolist():
        part = requests.of_rank(rank)
        start, end = requests.start[part], requests.end[part]
        order = np.argsort(start, kind="stable")
        threads, lanes = np.unique(requests.thread[part][order], return_inverse=True)
        if not threads.any():
            lanes = _lanes(start[order], end[order])
        by_lane = np.argsort(lanes, kind="stable")
        bounds = np.searchsorted(lanes[by_lane], np.arange(int(lanes.max(initial=-1)) + 2))
        for lane, (first, last) in enumerate(pairwise(bounds)):
            chosen = part.start + order[by_lane[first:last]]
            kinds = np.where(requests.write[chosen], "write", "read").tolist()
            arguments = [
                {"file": requests.paths[file], "bytes": size}
                for file, size in zip(requests.file[chosen].tolist(), requests.length[chosen].tolist(), strict=True)
            ]
            duration = requests.end[chosen] - requests.start[chosen]
            title = f"I/O of thread {threads[lane]}" if threads.any() else f"I/O {lane + 1}"
            yield TraceTrack(rank, _FIRST_ROW + lane, title, requests.start[chosen], duration, kinds, arguments)


def _lanes(start: Floats, end: Floats) -> npt.NDArray[np.int64]:
    """Return, for each request, the lowest-numbered track that is free when the request starts. start, end: times of
    the requests, sorted by start.
    """
    lanes = np.zeros(len(start), np.int64)
    if (start[1:] >= end[:-1]).all():
        return lanes
    busy: list[tuple[float, int]] = []
    free: list[int] = []
    for number, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while busy and busy[0][0] <= begin:
            heappush(free, heappop(busy)[1])
        lane = heappop(free) if free else len(busy)
        heappush(busy, (stop, lane))
        lanes[number] = lane
    return lanes


def _name(kind: str, process: int, thread: int, text: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": text}}


def _dump(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))
