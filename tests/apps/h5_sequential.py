"""Every rank reads its own HDF5 files from beginning to end, one slab of images per step. Nothing is shuffled.

python -m tests.apps.h5_sequential prepare DIR
mpiexec -n 2 python -m tests.apps.h5_sequential train DIR
"""

import sys
import time
from pathlib import Path

import h5py
import numpy as np

N_FILES, N_IMAGES, H, W = 8, 96, 96, 96
B, EPOCHS, LR, STEP_S = 16, 3, 0.2, 0.025


def prepare(folder: Path) -> None:
    """Write noise; the upper half of the images of class 1 is brighter."""
    rng = np.random.default_rng(3)
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(N_FILES):
        labels = rng.integers(0, 2, N_IMAGES)
        images = rng.normal(0, 1, (N_IMAGES, H, W)).astype("f4")
        images[labels == 1, : H // 2] += 0.15
        with h5py.File(folder / f"run{n:03}.h5", "w") as f:
            f.create_dataset("images", data=images, chunks=(4, H, W))
            f.create_dataset("labels", data=labels.astype("i4"))


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    my_files = sorted(folder.glob("run*.h5"))[comm.rank :: comm.size]
    w = np.zeros(36)
    for epoch in range(EPOCHS):
        total, count = 0.0, 0
        for path in my_files:
            with h5py.File(path, "r") as f:
                images, labels = f["images"], f["labels"][:]
                for i in range(0, len(labels), B):
                    x = images[i : i + B].reshape(-1, 6, 16, 6, 16).mean(axis=(2, 4)).reshape(-1, 36)
                    y = labels[i : i + B]
                    p = 1 / (1 + np.exp(-(x - 0.04) @ w))
                    total += -np.log(np.where(y == 1, p, 1 - p) + 1e-9).sum()
                    count += len(y)
                    grad = comm.allreduce((x - 0.04).T @ (p - y)) / comm.size
                    w -= LR * grad
                    time.sleep(STEP_S)
        if comm.rank == 0:
            print(f"epoch {epoch}: loss {total / count:.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
