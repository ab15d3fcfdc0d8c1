"""Estimate fatigue loads of wind turbines from ten-minute records. A file holds the records of a day, in three arrays.

python -m tests.strangers.turbine_loads prepare DIR
mpiexec -n 2 python -m tests.strangers.turbine_loads train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np

DAYS, RECORDS, STEPS = 40, 48, 598
EPOCHS, BATCH = 3, 12


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2024)
    for day in range(DAYS):
        wind = rng.weibull(2, (RECORDS, STEPS)).astype(np.float32) * 9
        strain = rng.normal(size=(RECORDS, STEPS, 6)).astype(np.float32) * wind[..., None]
        damage = np.abs(strain).max(1).sum(1).astype(np.float64) / 100
        np.savez(folder / f"day{day:03d}.npz", strain=strain, wind=wind, damage=damage)


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    rng = np.random.default_rng(comm.rank)
    days = sorted(folder.glob("day*.npz"))[comm.rank :: comm.size]
    hidden = np.random.default_rng(0).normal(size=(13, 700)) / 4
    weights = np.zeros(700)
    for epoch in range(EPOCHS):
        errors = []
        for path in days:
            with np.load(path) as archive:
                strain, wind, damage = archive["strain"], archive["wind"], archive["damage"]
            features = np.concatenate([strain.std(1) / 10, np.abs(strain).max(1) / 40, wind.mean(1)[:, None] / 9], 1)
            order = rng.permutation(RECORDS)
            for start in range(0, RECORDS, BATCH):
                rows = order[start : start + BATCH]
                active = np.tanh(features[rows] @ hidden)
                error = active @ weights - damage[rows]
                weights -= 1e-3 * comm.allreduce(active.T @ error / BATCH) / comm.size
                errors.append(float(np.square(error).mean()))
                time.sleep(max(0.0, rng.normal(0.012, 0.001)))
        if comm.rank == 0:
            np.savez(folder / "loads_model.npz", hidden=hidden, weights=weights, epoch=epoch)
            print(f"epoch {epoch}: mean square error {np.mean(errors):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
