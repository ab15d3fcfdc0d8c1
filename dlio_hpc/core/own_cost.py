"""The time that dlio-hpc itself takes in a run."""

from dlio_hpc.config.workload import Workload
from dlio_hpc.core.distributions import READY, STARTED, Floats


def seconds(workload: Workload, steps: Floats, waited_s: float, auxiliary_s: float, bookkeeping_s: float) -> float:
    """Return the seconds that dlio-hpc itself takes on a rank: the bookkeeping after each step and, if only dlio-hpc
    works while the rank waits for a batch, the part of the wait in which no file is read, opened or closed. In this
    part, the requests of the batch are prepared and counted, and the batch is passed from thread to thread.

    steps: shape (steps, columns). waited_s: seconds of the waits in which files are read, opened or closed.
    auxiliary_s: seconds of requests to auxiliary files, which are part of the waits. bookkeeping_s: seconds between the
    end of a step and the check of its samples.
    """
    if not _only_reads(workload):
        return bookkeeping_s
    wait_s = float((steps[:, READY] - steps[:, STARTED]).sum())
    return bookkeeping_s + max(0.0, wait_s - waited_s - auxiliary_s)


def _only_reads(workload: Workload) -> bool:
    """Return whether reader threads do nothing but read. Return False if they, or a library, also parse, decompress,
    verify or preprocess samples. This is work of the workload, not a cost of dlio-hpc.
    """
    dataset, reader = workload.dataset, workload.reader
    return (
        reader.loader == "native"
        and reader.mode == "posix"
        and reader.access == "independent"
        and reader.load == "on_demand"
        and not reader.verifies
        and not reader.preprocess_time
        and dataset.compression == "none"
        and not dataset.is_chunked
        and dataset.format not in {"csv", "parquet"}
    )
