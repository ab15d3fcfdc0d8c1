"""Reader for the files of TensorFlow's profiler. A file is a protobuf of planes (devices), lines (threads)
and events.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Marks = dict[str, tuple[float, float]]

# Modules that have the protobuf classes: since TensorFlow 2.12, and before that.
_CLASSES = ("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tensorflow.core.profiler.protobuf.xplane_pb2")
_HOST = "/host:CPU"
# Maximum number of events that are kept per rank; a figure cannot show more.
MOST = 20_000
# Columns of events: index of the thread, index of the name, start in nanoseconds on the profiler's clock, duration in
# picoseconds.
_THREAD, _NAME, _START_NS, _DURATION_PS = range(4)


class XPlane(NamedTuple):
    """Events of a rank in order of time. If there are many events, only the longest are kept. thread, name: for each
    event, the index of its thread in `threads` and the index of its name in `names`. start: for each event, seconds on
    the rank's clock, with an error of at most clock_error. duration: for each event, seconds. left_out: number of
    events that are not kept. until: time on the rank's clock at which the profiler was stopped.
    """

    threads: list[str]
    names: list[str]
    thread: Numbers
    name: Numbers
    start: Floats
    duration: Floats
    left_out: int
    clock_error: float
    until: float


def read(content: bytes, marks: Marks, until: float) -> XPlane:
    """Return the host events in the content of a profiler file. marks: for each marker event, timestamps on the rank's
    clock before and after the event. until: time on the rank's clock at which the profiler was stopped.
    """
    space = _classes().XSpace.FromString(content)
    threads: list[str] = []
    names: dict[str, int] = {}
    parts: list[Numbers] = [np.empty((0, 4), np.int64)]
    for plane in space.planes:
        if plane.name.startswith(_HOST):
            metadata = plane.event_metadata.items()
            indices = {number: names.setdefault(event.name, len(names)) for number, event in metadata}
            for line in plane.lines:
                parts.append(_events(line, len(threads), indices))
                threads.append(line.name.partition("/")[0])
    events = np.concatenate(parts)
    is_mark = np.isin(events[:, _NAME], [names[name] for name in marks if name in names])
    all_names = list(names)
    origin, shift, error = _clock([(marks[all_names[row[_NAME]]], row) for row in events[is_mark]])
    kept = _longest(events[~is_mark])
    used_threads, thread = np.unique(kept[:, _THREAD], return_inverse=True)
    used_names, name = np.unique(kept[:, _NAME], return_inverse=True)
    return XPlane(
        threads=[threads[number] for number in used_threads],
        names=[all_names[number] for number in used_names],
        thread=thread,
        name=name,
        start=(kept[:, _START_NS] - origin) / 1e9 + shift,
        duration=kept[:, _DURATION_PS] / 1e12,
        left_out=int((~is_mark).sum()) - len(kept),
        clock_error=error,
        until=until,
    )


def _classes() -> Any:
    for name in _CLASSES[:-1]:
        try:
            return import_module(name)
        except ImportError:
            continue
    return import_module(_CLASSES[-1])


def _events(line: Any, thread: int, names: dict[int, int]) -> Numbers:
    """Return the events of a line, shape (n, 4). The columns are: index of the thread, index of the name, start in
    nanoseconds, duration in picoseconds. thread: index of the thread. names: maps the metadata id of an event to the
    index of its name.
    """
    flat = (value for event in line.events for value in (names[event.metadata_id], event.offset_ps, event.duration_ps))
    name, offset, duration = np.fromiter(flat, np.int64, 3 * len(line.events)).reshape(-1, 3).T
    return np.stack((np.full(len(name), thread), name, line.timestamp_ns + offset // 1000, duration), axis=1)


def _clock(marks: list[tuple[tuple[float, float], Numbers]]) -> tuple[int, float, float]:
    """Align the profiler's clock with the rank's clock. Return three values: a time in nanoseconds on the profiler's
    clock, the same moment in seconds on the rank's clock, and the largest possible error of the time on the rank's
    clock. marks: for each marker event, the timestamps on the rank's clock before and after the event, and the event.
    Each marker event is between its two timestamps, which gives a lower and an upper bound on the offset between the
    clocks. The offset used is midway between the highest lower bound and the lowest upper bound.
    """
    if not marks:
        raise ValueError("the profile has no marker events to align the profiler's clock")
    origin = int(marks[0][1][_START_NS])
    starts = [(row[_START_NS] - origin) / 1e9 for _, row in marks]
    earliest = max(began - start for ((began, _), _), start in zip(marks, starts, strict=True))
    latest = min(
        ended - start - row[_DURATION_PS] / 1e12 for ((_, ended), row), start in zip(marks, starts, strict=True)
    )
    return origin, float(earliest + latest) / 2, float(abs(latest - earliest)) / 2


def _longest(events: Numbers) -> Numbers:
    """Return the events in order of their start. If there are more than `MOST`, return only the longest `MOST`."""
    if len(events) > MOST:
        events = events[np.argpartition(events[:, _DURATION_PS], -MOST)[-MOST:]]
    return events[np.argsort(events[:, _START_NS], kind="stable")]
