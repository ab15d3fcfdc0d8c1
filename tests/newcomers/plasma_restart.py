"""Continue a simulation of plasma from its state, which all processes read and write together through MPI-IO.

python -m tests.newcomers.plasma_restart prepare DIR
mpiexec -n 4 python -m tests.newcomers.plasma_restart train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np

FIELDS, ROWS, COLUMNS = 6, 320, 512
STEPS, SAVE_EVERY = 120, 30


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.random.default_rng(51).normal(0, 1, (FIELDS, ROWS, COLUMNS)).tofile(folder / "state-0000.dat")


def train(folder: Path) -> None:
    """Simulate the plasma. The name of the command is that of the other programs."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rows = ROWS // comm.size
    state = np.empty((FIELDS, rows, COLUMNS))

    def offset(field: int) -> int:
        return 8 * COLUMNS * (field * ROWS + comm.rank * rows)

    source = MPI.File.Open(comm, str(folder / "state-0000.dat"), MPI.MODE_RDONLY)
    for field in range(FIELDS):
        source.Read_at_all(offset(field), state[field])
    source.Close()
    for step in range(1, STEPS + 1):
        above, below = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
        edge = np.empty((FIELDS, COLUMNS))
        comm.Sendrecv(np.ascontiguousarray(state[:, -1]), below, 0, edge, above, 0)
        state[:, 0] += 0.1 * (edge - state[:, 0])
        state += 0.01 * (np.roll(state, 1, 2) - state)
        time.sleep(0.05)
        if step % SAVE_EVERY == 0:
            target = MPI.File.Open(comm, str(folder / f"state-{step:04d}.dat"), MPI.MODE_CREATE | MPI.MODE_WRONLY)
            for field in range(FIELDS):
                target.Write_at_all(offset(field), state[field])
            target.Close()


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
