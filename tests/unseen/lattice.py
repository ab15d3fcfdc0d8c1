"""Monte Carlo on a lattice of spins. The start configuration is an input; MPI-IO writes a checkpoint every few sweeps.

python -m tests.unseen.lattice prepare DIR
mpiexec -n 4 python -m tests.unseen.lattice train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np

L, SWEEPS, EVERY = 1248, 90, 9


def prepare(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    rng.uniform(0, 2 * np.pi, (L, L)).tofile(folder / "start.cfg")
    rng.uniform(0.9, 1.1, (SWEEPS // EVERY, 4096)).tofile(folder / "couplings.bin")


def train(folder):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rows = L // comm.size
    spins = np.empty((rows, L))
    start = MPI.File.Open(comm, str(folder / "start.cfg"), MPI.MODE_RDONLY)
    start.Read_at_all(comm.rank * spins.nbytes, spins)
    start.Close()
    rng = np.random.default_rng(comm.rank)
    coupling = np.ones(4096)
    for sweep in range(SWEEPS):
        if sweep % EVERY == 0:
            with open(folder / "couplings.bin", "rb") as table:
                table.seek(sweep // EVERY * coupling.nbytes)
                coupling = np.frombuffer(table.read(coupling.nbytes))
        above = np.empty(L)
        comm.Sendrecv(spins[-1].copy(), (comm.rank + 1) % comm.size, recvbuf=above, source=(comm.rank - 1) % comm.size)
        field = np.vstack([above, spins[:-1]]) - spins
        spins += 0.1 * coupling.mean() * np.sin(field) + 0.01 * rng.normal(size=spins.shape)
        time.sleep(0.02)
        if sweep % EVERY == EVERY - 1:
            out = MPI.File.Open(comm, str(folder / f"conf.{sweep + 1}"), MPI.MODE_CREATE | MPI.MODE_WRONLY)
            out.Write_at_all(comm.rank * spins.nbytes, spins)
            out.Close()
    energy = comm.reduce(float(np.cos(field).sum()))
    if comm.rank == 0:
        print("energy per spin:", -energy / L**2)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
