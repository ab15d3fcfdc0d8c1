"""Segment density maps of polymers. Two processes read slabs of two compressed arrays, and their labels.

python -m tests.newcomers.polymer_maps prepare DIR
mpiexec -n 2 python -m tests.newcomers.polymer_maps train DIR
"""

import random
import sys
import time
from pathlib import Path

import h5py
import numpy as np

BATHS, MAPS, SIDE = 10, 72, 96
EPOCHS, BATCH, CHUNK = 3, 12, 6


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(145)
    for bath in range(BATHS):
        with h5py.File(folder / f"bath_{bath:02d}.h5", "w") as file:
            chain = rng.integers(0, 64, (MAPS, SIDE, SIDE)).astype(np.float32)
            storage = {"chunks": (CHUNK, SIDE, SIDE), "compression": "gzip", "compression_opts": 1}
            file.create_dataset("density", data=chain / 64, **storage)
            file.create_dataset("gradient", data=np.diff(chain, axis=1, append=0), **storage)
            file.create_dataset("kind", data=rng.integers(0, 5, MAPS))


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    paths = sorted(folder.glob("bath_*.h5"))
    weights = np.zeros((2 * SIDE, 5), np.float32)
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(len(paths))
        for number in order[comm.rank :: comm.size]:
            with h5py.File(paths[number], "r") as file:
                for start in range(0, MAPS, BATCH):
                    density = file["density"][start : start + BATCH]
                    gradient = file["gradient"][start : start + BATCH]
                    kind = file["kind"][start : start + BATCH]
                    features = np.concatenate([density.mean(1), gradient.mean(1)], 1)
                    wrong = 1 / (1 + np.exp(-features @ weights)) - np.eye(5)[kind]
                    weights -= 0.01 * comm.allreduce((features.T @ wrong).astype(np.float32))
                    time.sleep(max(0.0, random.gauss(0.05, 0.004)))
        with h5py.File(folder / f"segment{epoch}.rank{comm.rank}.h5", "w") as file:
            file["weights"] = weights
            file["momentum"] = np.zeros((512, 2 * SIDE), np.float32)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
