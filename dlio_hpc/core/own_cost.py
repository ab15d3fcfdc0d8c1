"""The time that dlio-hpc itself takes in a run."""

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.distributions import READY, STARTED, Floats


def seconds(workload: Workload, steps: Floats, waited_s: float, auxiliary_s: float, bookkeeping_s: float) -> float:
    """Return the seconds that dlio-hpc itself takes on a rank. They include the bookkeeping after each step. If reader
    threads only read, they also include the part of the waits for batches in which no file is read, opened or closed:
    dlio-hpc then prepares and counts requests, or passes a batch from thread to thread.

    steps: shape (steps, columns). waited_s: seconds in which the rank waits for a batch while a file is read, opened or
    closed. auxiliary_s: seconds of requests to auxiliary files, which are part of the waits. bookkeeping_s: seconds
    between the end of a step and the check of its samples.
    """
    if not _only_reads(workload):
        return bookkeeping_s
    wait_s = float((steps[:, READY] - steps[:, STARTED]).sum())
    return bookkeeping_s + max(0.0, wait_s - waited_s - auxiliary_s)


def _only_reads(workload: Workload) -> bool:
    """Return True if reader threads only read. Return False if reader threads or a library also parse, decompress,
    verify or preprocess samples, or if an engine is emulated, which is work of the workload and not a cost of dlio-hpc.
    """
    dataset, reader = workload.dataset, workload.reader
    return (
        workload.inference is None
        and reader.loader == "native"
        and reader.mode == "posix"
        and reader.access == "independent"
        and reader.load == "on_demand"
        and not reader.verifies
        and not reader.preprocess_time
        and dataset.compression == "none"
        and not dataset.is_chunked
        and not dataset.facts.holds_text
        and not dataset.facts.holds_columns
    )
