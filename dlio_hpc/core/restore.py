"""Reading of checkpoints after the last step of a run, as a restart reads them."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dlio_hpc.core import cache_accounting, clock
from dlio_hpc.core.cache_accounting import Arrivals
from dlio_hpc.core.checkpoint import Checkpoints
from dlio_hpc.core.distributions import Floats
from dlio_hpc.core.early_stop import Stop
from dlio_hpc.files import filesystem
from dlio_hpc.plan.plan import Run

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

# Columns of the record of a restored checkpoint. GAP_S: seconds since this rank's last write ended (NaN: it wrote
# nothing) or, after the first checkpoint, since the previous one was read. READ_S, SIZE, VERIFY_S: the fields of
# Restored (checkpoint_modes/parts.py). The columns after them are those of cache_accounting.py.
GAP_S, READ_S, SIZE, VERIFY_S, ARRIVALS = range(5)
COLUMNS = ARRIVALS + cache_accounting.COLUMNS


def restore(
    comm: "Intracomm", node: "Intracomm", run: Run, checkpoints: Checkpoints, stop: Stop
) -> tuple[Floats, bool]:
    """Read the checkpoints that are on storage, one after the other and repeatedly, until checkpoint.reads checkpoints
    have been read or time runs out. Before that, drop from the page cache of this node all files that its ranks have
    written. Return a row for each checkpoint that was read, shape (checkpoints, COLUMNS), and whether time ran out
    before the last checkpoint.
    """
    checkpoint = run.workload.checkpoint
    assert checkpoint is not None
    checkpoints.finish()
    clock.barrier(comm)
    before = checkpoints.write_ended
    rows: list[tuple[float, ...]] = []
    numbers = checkpoints.restorable()
    if not checkpoint.reads or not numbers:
        return np.empty((0, COLUMNS)), False
    checkpoints.forget()
    arrivals = Arrivals(node, filesystem.of(Path(run.outputs)), lambda _: not checkpoint.direct)
    for turn in range(checkpoint.reads):
        number = numbers[turn % len(numbers)]
        arrivals.look(lambda number=number: checkpoints.paths(number))  # type: ignore[misc]
        arrivals.begin()
        if stop.barrier():  # no rank reads before the node's counters have been read
            break
        started = clock.now()
        restored = checkpoints.restore(number)
        clock.barrier(comm)
        rows.append((started - before, *restored, *arrivals.end(0)))
        before = clock.now()
    return np.array(rows).reshape(-1, COLUMNS), len(rows) < checkpoint.reads
