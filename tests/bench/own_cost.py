"""The time that the training loop takes for itself: steps of the null format, which reads nothing."""

import statistics
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from dlio_hpc.config import site, workload
from dlio_hpc.core.distributions import STARTED
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.core.progress import Progress
from dlio_hpc.core.train import train
from tests.bench.table import ROUNDS, row
from tests.support import planning

BATCHES, AHEAD = (1, 8, 64, 1024), (0, 2, 8)
GOALS = {(1, 0): "8 us", (1, 2): "12 us"}


class Cost(NamedTuple):
    """Mean seconds of a step: until the next step begins, and CPU time of all threads."""

    wall: float
    cpu: float


def bench(steps: int = 20_000, rounds: int = ROUNDS) -> None:
    for batch in BATCHES:
        for ahead in AHEAD:
            count = max(200, steps // batch)
            costs = [_cost(batch, ahead, count) for _ in range(rounds)]
            wall, cpu = (statistics.median(side) * 1e6 for side in zip(*costs, strict=True))
            what = f"null, batch {batch}, prefetch {ahead}: a step, a sample"
            goal = f", <= {GOALS[batch, ahead]}" if (batch, ahead) in GOALS else ""
            row(what, f"{wall:.1f} us", f"{wall / batch:.2f} us", None, f"CPU {cpu:.1f} us{goal}")


def _cost(batch: int, ahead: int, steps: int) -> Cost:
    from mpi4py import MPI

    keys = (
        f"reader.batch_size={batch}", f"reader.prefetch={ahead}", f"dataset.samples_per_file={batch * steps}",
        "dataset.files=1", "compute.time=0", "train.epochs=1", "reader.read_threads=1",
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder, comm = Path(name), MPI.COMM_SELF
        request = planning.Request(runs=folder, data=folder, nodes=1, ranks_per_node=1, generate="never")
        run = planning.make(workload.load("null", keys), site.load("local"), request).runs[-1]
        stop, progress, clock = Stop(comm, folder), Progress("bench", speaks=False), _CpuClock()
        starts = train(comm, run, 1, progress, stop, clock).steps[:, STARTED]
        return Cost(float(starts[-1] - starts[0]) / (steps - 1), clock.seconds / steps)


def live(looks: int = 200, steps: int = 1000) -> None:
    """Print what the state of a rank costs, which it writes once a second, after `steps` steps a second."""
    from dlio_hpc.core.live_writer import LiveWriter
    from dlio_hpc.core.merge import Host
    from dlio_hpc.core.train import Recorder

    keys = (f"dataset.samples_per_file={looks * steps}", "dataset.files=1", "train.epochs=1", "reader.batch_size=1")
    with tempfile.TemporaryDirectory() as name:
        folder, progress = Path(name), Progress("bench", speaks=False)
        request = planning.Request(runs=folder, data=folder, nodes=1, ranks_per_node=1, generate="never")
        run = planning.make(workload.load("null", keys), site.load("local"), request).runs[-1]
        recorder, writer = Recorder(run, progress), LiveWriter(folder, [Host("bench", "1")], 0, progress)
        writer.watch(recorder)
        spent = []
        for _ in range(looks):
            recorder.done += steps
            writer._due = 0.0
            began = time.thread_time()
            writer.look()
            spent.append(time.thread_time() - began)
        writer.close()
    cost = statistics.median(spent)
    row(f"state of a rank, {steps} steps a second", f"{cost * 1e6:.0f} us", "1 s", None, f"{cost:.3%}, <= 0.2%")


class _CpuClock(AbstractContextManager[None]):
    """Context manager that measures the CPU time of all threads in its `with` block."""

    seconds = 0.0

    def __enter__(self) -> None:
        self.seconds = -time.process_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.process_time()
