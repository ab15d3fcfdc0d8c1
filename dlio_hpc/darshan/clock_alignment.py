"""One clock for the core and Darshan: both saw the same reads of one small file.

Darshan's instants count from when it began on that rank (per rank; up to tens of milliseconds apart). A marker's read
lies between two instants of the core, before and after; so what has to be added to Darshan's clock lies between
`before - start` and `after - end` of every marker. Markers at the run's begin and end bound the drift, too.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_hpc.darshan import setup
from dlio_hpc.darshan.log import Log

GROUP = "darshan_clock"
Floats = npt.NDArray[np.float64]


class Marks(NamedTuple):
    """instants: (ranks, markers, 2), before and after each read, in the timeline's seconds. path: of the file read."""

    instants: Floats
    path: str


class Alignment(NamedTuple):
    """offset_s: (ranks), to be added to Darshan's times to get the timeline's; error_s: how far off it may be."""

    offset_s: Floats
    error_s: Floats


def read(file: Any) -> Marks | None:
    """From timeline.h5."""
    if GROUP not in file:
        return None
    group = file[GROUP]
    return Marks(group["instants"][:], str(group.attrs["path"]))


def align(log: Log, marks: Marks | None) -> Alignment | None:
    """None where there are no markers, or some rank's were not traced."""
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
