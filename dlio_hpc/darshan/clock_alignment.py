"""Alignment of Darshan's clock with the core's, from reads of a marker file that both have timed.

Darshan's timestamps count from its start on each rank; ranks differ by up to tens of milliseconds. A marker read lies
between two timestamps of the core. So the offset to add to Darshan's clock lies between `before - start` and
`after - end` of every marker. Markers at the start and end of the run also bound the drift.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.darshan import setup
from dlio_hpc.darshan.log import Log

GROUP = "darshan_clock"
Floats = npt.NDArray[np.float64]


class Marks(NamedTuple):
    """Marker reads. instants: (ranks, markers, 2), before and after each read, in seconds of the timeline. path: path
    of the marker file.
    """

    instants: Floats
    path: str


class Alignment(NamedTuple):
    """Alignment of the clocks, per rank. offset_s: seconds to add to Darshan's times to get times of the timeline.
    error_s: largest error of offset_s.
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
    """Align the clocks of all ranks. None if there are no markers, or if the trace lacks markers of a rank."""
    trace = log.traced.get("DXT_POSIX")
    if marks is None or trace is None:
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
