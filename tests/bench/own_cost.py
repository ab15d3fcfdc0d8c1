"""The time that the training loop takes for itself: steps of the null format, which reads nothing."""

import statistics
import tempfile
from contextlib import nullcontext
from pathlib import Path

from dlio_hpc.config import site, workload
from dlio_hpc.core.distributions import STARTED
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.train import train
from tests import planning
from tests.bench.table import ROUNDS, row

BATCHES = (1, 8, 64, 1024)
GOALS = {(1, 0): "<= 8 us a step", (1, 2): "<= 12 us a step"}


def bench(steps: int = 20_000, rounds: int = ROUNDS) -> None:
    for batch in BATCHES:
        for prefetch in (0, 2):
            count = max(200, steps // batch)
            took = statistics.median(_seconds_per_step(batch, prefetch, count) for _ in range(rounds)) * 1e6
            what = f"null, batch {batch}, prefetch {prefetch}: a step, a sample"
            row(what, f"{took:.1f} us", f"{took / batch:.2f} us", None, GOALS.get((batch, prefetch), ""))


def _seconds_per_step(batch: int, prefetch: int, steps: int) -> float:
    """Return the mean seconds from the start of a step to the start of the next."""
    from mpi4py import MPI

    keys = (
        f"reader.batch_size={batch}", f"reader.prefetch={prefetch}", f"dataset.samples_per_file={batch * steps}",
        "dataset.files=1", "compute.time=0", "train.epochs=1", "reader.read_threads=1",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder, comm = Path(name), MPI.COMM_SELF
        request = planning.Request(runs=folder, data=folder, nodes=1, ranks_per_node=1, generate="never")
        run = planning.make(workload.load("null", keys), site.load("local"), request).runs[-1]
        stop, progress = Stop(comm, folder), Progress("bench", speaks=False)
        starts = train(comm, run, 1, progress, stop, nullcontext()).steps[:, STARTED]
        return float(starts[-1] - starts[0]) / (steps - 1)
