"""All ranks read patches at random places of one HDF5 volume, and their labels from a second dataset of the file.

python -m tests.apps.h5_patches prepare DIR
mpiexec -n 2 python -m tests.apps.h5_patches train DIR
"""

import sys
import time
from pathlib import Path

import h5py
import numpy as np

PATCHES, SIDE, BATCH, EPOCHS, RATE = 1024, 32, 16, 2, 0.05
STEP_S = 0.02


def prepare(folder: Path) -> None:
    """Write cubes of noise around one of two means, one cube per chunk."""
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    labels = random.integers(0, 2, PATCHES)
    with h5py.File(folder / "tissue.h5", "w") as file:
        raw = file.create_dataset("raw", (PATCHES, SIDE, SIDE, SIDE), "u1", chunks=(1, SIDE, SIDE, SIDE))
        for number, label in enumerate(labels):
            raw[number] = np.clip(random.normal(120 + 8 * label, 30, (SIDE,) * 3), 0, 255)
        file.create_dataset("label", data=labels.astype("u1"))


def train(folder: Path) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with h5py.File(folder / "tissue.h5") as file:
        raw, labels = file["raw"], file["label"][:]
        weights, bias = np.zeros(64), 0.0
        for epoch in range(EPOCHS):
            order = np.random.default_rng(epoch).permutation(PATCHES)[world.rank :: world.size]
            losses = []
            for first in range(0, len(order), BATCH):
                chosen = order[first : first + BATCH]
                cubes = np.stack([raw[at] for at in chosen]).astype(np.float32)
                x = cubes.reshape(-1, 4, 8, 4, 8, 4, 8).mean(axis=(2, 4, 6)).reshape(len(chosen), 64) / 10 - 12
                y = labels[chosen]
                guess = 1 / (1 + np.exp(-(x @ weights + bias)))
                losses.append(-np.log(np.where(y == 1, guess, 1 - guess) + 1e-9).mean())
                time.sleep(STEP_S)
                gradient = np.append(x.T @ (guess - y), (guess - y).sum()) / len(y)
                world.Allreduce(MPI.IN_PLACE, gradient)
                weights, bias = weights - RATE * gradient[:-1] / world.size, bias - RATE * gradient[-1] / world.size
            if world.rank == 0:
                print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
