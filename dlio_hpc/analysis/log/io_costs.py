"""I/O costs: seconds that ranks spend in read, write and metadata calls of each interface."""

from dlio_hpc.analysis.log.findings import Analysis
from dlio_hpc.analysis.log.view import CallCost
from dlio_hpc.analysis.timeline_reader import Recorded


def of_log(analysis: Analysis) -> tuple[CallCost, ...]:
    """Return the I/O costs from Darshan's counters. The seconds in MPI-IO calls include those in the POSIX calls that
    MPI-IO makes.
    """
    return tuple(
        CallCost(name, used.read_s, used.write_s, used.metadata_s) for name, used in analysis.interfaces.items()
    )


def of_recorded(recorded: Recorded) -> tuple[CallCost, ...]:
    """Return the I/O costs from the run's timeline.h5. This file has the times of sample reads and of checkpoint
    writes, but not those of metadata calls.
    """
    group = recorded.file["ranks"]
    read_s = float(group["io_time"][:].mean()) if recorded.is_timed else None
    write_s = float(group["checkpoint_time"][:].mean()) if "checkpoint_time" in group else None
    return (CallCost("dlio-hpc", read_s, write_s, None),)
