"""Forecast tidal currents. A process reads batches of a year's contiguous array, year by year, and saves its state.

python -m tests.newcomers.tidal_currents prepare DIR
mpiexec -n 4 python -m tests.newcomers.tidal_currents train DIR
"""

import random
import sys
import time
from pathlib import Path

import h5py
import numpy as np

YEARS, HOURS, STATIONS = 8, 480, 1500
EPOCHS, BATCH = 3, 20


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(18)
    for year in range(YEARS):
        with h5py.File(folder / f"currents-{1990 + year}.h5", "w") as file:
            file["velocity"] = rng.normal(0, 0.6, (HOURS, STATIONS, 2)).astype(np.float32)


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    mine = sorted(folder.glob("currents-*.h5"))[comm.rank :: comm.size]
    state = {"trend": np.zeros((STATIONS, 2), np.float32), "spread": np.ones((STATIONS, 2), np.float32)}
    for epoch in range(EPOCHS):
        for path in mine:
            with h5py.File(path, "r") as file:
                velocity = file["velocity"]
                for hour in range(0, HOURS, BATCH):
                    batch = velocity[hour : hour + BATCH]
                    error = batch[:-1] * state["spread"] + state["trend"] - batch[1:]
                    state["trend"] -= 0.05 * comm.allreduce(error.mean(0)) / comm.size
                    state["spread"] -= 0.05 * comm.allreduce((error * batch[:-1]).mean(0)) / comm.size
                    time.sleep(max(0.0, random.gauss(0.03, 0.003)))
        np.savez(folder / f"tide{epoch}-{comm.rank}.npz", **state)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
