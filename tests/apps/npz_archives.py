"""The dataset has one NumPy archive per patient. A rank loads a batch of whole files, in another order every epoch.

python -m tests.apps.npz_archives prepare DIR
mpiexec -n 2 python -m tests.apps.npz_archives train DIR
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

FILES, SHAPE, BATCH, EPOCHS, RATE = 64, (48, 48, 48), 4, 3, 0.5
# What a larger model would compute.
STEP_S = 0.02


def prepare(folder: Path) -> None:
    """Write volumes of noise, half of them with a bright ball in the middle."""
    random = np.random.default_rng(0)
    (folder / "train").mkdir(parents=True, exist_ok=True)
    away = np.sqrt(sum((axis - 24) ** 2 for axis in np.ogrid[:48, :48, :48]))
    for number in range(FILES):
        label = number % 2
        volume = random.normal(size=SHAPE).astype(np.float32) + label * (away < 10)
        np.savez(folder / f"train/case_{number:04}.npz", volume=volume.astype(np.float32), label=label)
    names = [f"case_{number:04}.npz" for number in range(FILES)]
    (folder / "cases.json").write_text(json.dumps({"train": names, "mean": 0.0, "std": 1.0}))


def features(path: Path) -> tuple[np.ndarray, int]:
    """Return the means of blocks of 8 x 8 x 8 voxels, and the label."""
    with np.load(path) as archive:
        volume, label = archive["volume"], int(archive["label"])
    return volume.reshape(6, 8, 6, 8, 6, 8).mean(axis=(1, 3, 5)).ravel(), label


def train(folder: Path) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    names = json.loads((folder / "cases.json").read_text())["train"]
    weights, bias = np.zeros(216), 0.0
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(names))[world.rank :: world.size]
        losses = []
        for first in range(0, len(order), BATCH):
            batch = [features(folder / "train" / names[at]) for at in order[first : first + BATCH]]
            x, y = np.stack([values for values, _ in batch]), np.array([label for _, label in batch])
            guess = 1 / (1 + np.exp(-(x @ weights + bias)))
            losses.append(-np.log(np.where(y == 1, guess, 1 - guess) + 1e-9).mean())
            time.sleep(STEP_S)
            gradient = np.append(x.T @ (guess - y), (guess - y).sum()) / len(y)
            world.Allreduce(MPI.IN_PLACE, gradient)
            weights, bias = weights - RATE * gradient[:-1] / world.size, bias - RATE * gradient[-1] / world.size
        if world.rank == 0:
            np.savez(folder / f"model_{epoch}.npz", weights=weights, bias=bias, momentum=np.zeros((1000, 216)))
            print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
