"""Next-day prediction of sea surface height: slabs of consecutive days, and a validation year after each epoch.

python -m tests.unseen.ocean_slabs prepare DIR
mpiexec -n 2 python -m tests.unseen.ocean_slabs train DIR
"""

import sys
import time
from pathlib import Path

import h5py
import numpy as np

LAT, LON = 40, 72
DAYS = {"train": 936, "valid": 216}
SLAB = 18
EPOCHS = 4


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(8)
    mode = rng.normal(size=(LAT, LON))
    for name, days in DAYS.items():
        with h5py.File(folder / f"ssh_{name}.h5", "w") as file:
            field = file.create_dataset("ssh", (days, LAT, LON, 2), np.float32, chunks=(6, LAT, LON, 2))
            amplitude = 0.0
            for day in range(days):
                before, amplitude = amplitude, 0.9 * amplitude + rng.normal()
                field[day, ..., 0] = before * mode + 0.1 * rng.normal(size=(LAT, LON))
                field[day, ..., 1] = amplitude * mode + 0.1 * rng.normal(size=(LAT, LON))


def slabs(dataset, rank: int, size: int):
    days = len(dataset) // size
    for start in range(rank * days, (rank + 1) * days, SLAB):
        pair = dataset[start : start + SLAB]
        yield pair[..., 0].mean(2), pair[..., 1].mean(2)


def save(path: Path, epoch: int, a: np.ndarray, velocity: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file.attrs["epoch"] = epoch
        file["a"] = a
        file["velocity"] = velocity
        file["ensemble"] = np.repeat(a[None], 64, axis=0)


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    a = np.zeros((LAT, LAT))
    velocity = np.zeros_like(a)
    with h5py.File(folder / "ssh_train.h5") as training, h5py.File(folder / "ssh_valid.h5") as validation:
        for epoch in range(EPOCHS):
            for today, tomorrow in slabs(training["ssh"], comm.rank, comm.size):
                time.sleep(0.031)
                gradient = today.T @ (today @ a - tomorrow) / SLAB
                velocity = 0.5 * velocity - 0.02 * comm.allreduce(gradient) / comm.size
                a += velocity
            errors = []
            for today, tomorrow in slabs(validation["ssh"], comm.rank, comm.size):
                time.sleep(0.012)
                errors.append(np.square(today @ a - tomorrow).mean())
            score = comm.allreduce(float(np.mean(errors))) / comm.size
            if comm.rank == 0:
                save(folder / f"model-{epoch:03}.h5", epoch, a, velocity)
                print(f"epoch {epoch}: validation {score:.4f}")


if __name__ == "__main__":
    command, directory = sys.argv[1:]
    {"prepare": prepare, "train": train}[command](Path(directory))
