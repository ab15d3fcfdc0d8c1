"""Tell neutrino events from noise. Four processes draw single events from one file of contiguous arrays.

python -m tests.newcomers.neutrino_events prepare DIR
mpiexec -n 4 python -m tests.newcomers.neutrino_events train DIR
"""

import random
import sys
import time
from pathlib import Path

import h5py
import numpy as np

EVENTS, SENSORS, TICKS = 2304, 40, 90
EPOCHS, BATCH = 3, 16


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(29)
    with h5py.File(folder / "events.h5", "w") as file:
        hits = file.create_dataset("hits", (EVENTS, SENSORS, TICKS), np.float32)
        for start in range(0, EVENTS, 256):
            hits[start : start + 256] = rng.exponential(1, (256, SENSORS, TICKS))


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    weights = np.zeros((SENSORS, TICKS), np.float32)
    with h5py.File(folder / "events.h5", "r") as file:
        hits = file["hits"]
        for epoch in range(EPOCHS):
            order = np.random.default_rng(80 + epoch).permutation(EVENTS)[comm.rank :: comm.size]
            for first in range(0, len(order), BATCH):
                events = np.stack([hits[event] for event in order[first : first + BATCH]])
                score = np.tanh((events * weights).sum((1, 2)))
                gradient = ((score - 0.5)[:, None, None] * events).mean(0)
                weights -= 1e-4 * comm.allreduce(gradient) / comm.size
                time.sleep(max(0.0, random.gauss(0.04, 0.003)))
            if comm.rank == 0:
                with h5py.File(folder / f"trigger-{epoch:02d}.h5", "w") as saved:
                    saved["weights"] = weights
                    saved["moments"] = np.zeros((2, 300, SENSORS, 9), np.float32)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
