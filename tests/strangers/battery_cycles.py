"""Predict the fading of battery cells from charging curves. All curves fit into memory and are loaded at the start.

python -m tests.strangers.battery_cycles prepare DIR
mpiexec -n 2 python -m tests.strangers.battery_cycles train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np

PACKS, CELLS, POINTS = 16, 155, 880
EPOCHS, BATCH, SAVE_EVERY = 4, 20, 31


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(37)
    soc = np.linspace(0, 1, POINTS)
    for pack in range(PACKS):
        fading = rng.uniform(0.7, 1, CELLS)
        curves = np.empty((CELLS, POINTS, 3), np.float32)
        curves[..., 0] = 3 + soc + 0.01 * rng.normal(size=(CELLS, POINTS))
        curves[..., 1] = fading[:, None] * (1 - soc) + 0.02 * rng.normal(size=(CELLS, POINTS))
        curves[..., 2] = 25 + 8 * (1 - fading[:, None]) * soc + rng.normal(size=(CELLS, POINTS))
        np.savez(folder / f"pack_{pack:02d}.npz", curves=curves)


def load(paths: list[Path]) -> np.ndarray:
    return np.concatenate([np.load(path)["curves"] for path in paths])


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    curves = load(sorted(folder.glob("pack_*.npz"))[comm.rank :: comm.size])
    fading = curves[:, 0, 1]
    inputs = curves[:, 40:, :].reshape(len(curves), 70, -1).mean(2) / 10
    rng = np.random.default_rng(100 + comm.rank)
    weights, velocity = np.zeros(70), np.zeros(70)
    step = 0
    for epoch in range(EPOCHS):
        order = rng.permutation(len(curves))
        for start in range(0, len(curves), BATCH):
            rows = order[start : start + BATCH]
            error = inputs[rows] @ weights - fading[rows]
            velocity = 0.9 * velocity - 0.01 * comm.allreduce(inputs[rows].T @ error / len(rows)) / comm.size
            weights += velocity
            time.sleep(rng.uniform(0.013, 0.019))
            step += 1
            if step % SAVE_EVERY == 0 and comm.rank == 0:
                np.savez(folder / f"step{step:06d}.npz", weights=weights, velocity=np.tile(velocity, (900, 1)))
        if comm.rank == 0:
            print(f"epoch {epoch}: error {np.abs(inputs @ weights - fading).mean():.4f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
