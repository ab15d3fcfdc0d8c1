"""Learn a closure for a flame solver from its snapshots, in the order of time. A step takes one snapshot per process.

python -m tests.strangers.flame_snapshots prepare DIR
mpiexec -n 4 python -m tests.strangers.flame_snapshots train DIR
"""

import sys
import time
from pathlib import Path

import h5py
import numpy as np

TIMES, SHAPE = 64, (28, 36, 44)
FIELDS = ("velocity", "temperature", "mixture", "progress")
EPOCHS = 3


def prepare(folder: Path) -> None:
    (folder / "snapshots").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1700)
    for when in range(TIMES):
        with h5py.File(folder / "snapshots" / f"flame_{when * 25:06d}.h5", "w") as file:
            for field in FIELDS:
                file[field] = rng.normal(np.sin(when / 9), 0.4, SHAPE).astype(np.float32)


def read(path: Path) -> dict[str, np.ndarray]:
    with h5py.File(path, "r") as file:
        return {field: file[field][...] for field in FIELDS}


def save(path: Path, weights: np.ndarray, moments: np.ndarray) -> None:
    with h5py.File(path, "w") as file:
        file["weights"] = weights
        file["moments"] = moments


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    jitter = np.random.default_rng(comm.rank)
    paths = sorted((folder / "snapshots").glob("flame_*.h5"))
    weights, moments = np.zeros((44, 44)), np.zeros((2, 44, 44))
    for epoch in range(EPOCHS):
        total = 0.0
        for path in paths[comm.rank :: comm.size]:
            state = read(path)
            columns = [state[field].reshape(-1, 44) for field in FIELDS]
            inputs = (columns[0] * columns[2] + columns[1]) / 2
            error = inputs @ weights - columns[3]
            slope = comm.allreduce(inputs.T @ error / len(error)) / comm.size
            moments[0] = 0.9 * moments[0] + 0.1 * slope
            moments[1] = 0.99 * moments[1] + 0.01 * slope**2
            weights -= 1e-3 * moments[0] / (np.sqrt(moments[1]) + 1e-6)
            total += float(np.square(error).mean())
            time.sleep(max(0.0, jitter.normal(0.04, 0.004)))
        total = comm.allreduce(total)
        if comm.rank == 0:
            save(folder / f"closure_{epoch}.h5", weights, moments)
            print(f"epoch {epoch}: {total / TIMES:.4f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
