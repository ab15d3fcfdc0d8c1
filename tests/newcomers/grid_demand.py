"""Predict the demand of a power grid. Each of two processes reads half of the tables with pandas before it trains.

python -m tests.newcomers.grid_demand prepare DIR
mpiexec -n 2 python -m tests.newcomers.grid_demand train DIR
"""

import random
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

REGIONS, DAYS, QUARTERS = 16, 365, 193
EPOCHS, BATCH = 4, 40


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(240)
    names = ",".join(f"q{quarter:07d}" for quarter in range(QUARTERS - 1)) + ",tomorrow_"
    for region in range(REGIONS):
        demand = rng.random((DAYS, QUARTERS)) * 9
        np.savetxt(folder / f"region_{region:02d}.csv", demand, "%.7f", ",", header=names, comments="")


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    paths = sorted(folder.glob("region_*.csv"))[comm.rank :: comm.size]
    table = pd.concat([pd.read_csv(path, dtype=np.float32) for path in paths]).to_numpy()
    comm.Barrier()
    rng = np.random.default_rng(comm.rank)
    weights = np.zeros(QUARTERS - 1, np.float32)
    for epoch in range(EPOCHS):
        for batch in np.array_split(rng.permutation(len(table)), len(table) // BATCH):
            quarters, tomorrow = table[batch, :-1], table[batch, -1]
            gradient = quarters.T @ (quarters @ weights - tomorrow) / len(batch)
            weights -= 1e-5 * comm.allreduce(gradient) / comm.size
            time.sleep(max(0.0, random.gauss(0.02, 0.002)))
        if comm.rank == 0:
            np.savez(folder / f"demand{epoch}.npz", weights=weights, hessian=np.outer(weights, weights))


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
