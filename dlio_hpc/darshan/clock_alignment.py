"""Alignment of Darshan's clock with the clock of the run's timeline.h5. It uses reads of a marker file. Both the run
and Darshan have recorded the time of each of these reads.

Darshan's timestamps count from the start of Darshan on each rank. This start differs by up to tens of milliseconds
between ranks. The run records the times `before` and `after` each marker read. Darshan records the `start` and the
`end` of the same read. For every marker read, the offset to add to Darshan's times is therefore between `before -
start` and `after - end`. Markers at the start and at the end of the run also bound the drift.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.darshan import setup
from dlio_hpc.darshan.log import Log

GROUP = "darshan_clock"
Floats = npt.NDArray[np.float64]


class Marks(NamedTuple):
    """Marker reads. instants: times before and after each read, in seconds on the clock of the timeline, shape (ranks,
    marker reads, 2). path: path of the marker file.
    """

    instants: Floats
    path: str


class Alignment(NamedTuple):
    """Alignment of the clocks, with one entry per rank. offset_s: seconds to add to Darshan's times to get times of the
    timeline. error_s: largest error of offset_s.
    """

    offset_s: Floats
    error_s: Floats


def read(file: Any) -> Marks | None:
    """Return the marker reads in an open timeline.h5, or None if there are none."""
    if GROUP not in file:
        return None
    group = file[GROUP]
    return Marks(group["instants"][:], str(group.attrs["path"]))


def align(log: Log, marks: Marks | None) -> Alignment | None:
    """Return the alignment of the clocks of all ranks. Return None if `marks` is None, if the log has no trace, if
    marker reads of a rank are missing from the trace, or if the log includes worker processes, which read no marker.
    """
    trace = log.traced.get("DXT_POSIX")
    if marks is None or trace is None or log.workers:
        return None
    numbers = {number for number, path in log.names.items() if path == marks.path}
    offset, error = np.full(len(marks.instants), np.nan), np.full(len(marks.instants), np.nan)
    for file, first in zip(trace.files, trace.first.tolist(), strict=True):
        if int(file["id"]) not in numbers:
            continue
        rank, begin = int(file["rank"]), first + int(file["writes"])
        segments = trace.segments[begin : begin + int(file["reads"])]
        segments = np.sort(segments[segments["length"] == setup.MARKER_BYTES], order="start")
        if len(segments) != marks.instants.shape[1]:
            return None
        least = (marks.instants[rank, :, 0] - segments["start"]).max()
        most = (marks.instants[rank, :, 1] - segments["end"]).min()
        offset[rank], error[rank] = (least + most) / 2, abs(most - least) / 2
    return None if np.isnan(offset).any() else Alignment(offset, error)
