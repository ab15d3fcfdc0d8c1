"""Scan of the parameters of a beam line. Each setting tracks the same bunches, read anew from their files.

python -m tests.unseen.beam_scan prepare DIR
mpiexec -n 2 python -m tests.unseen.beam_scan train DIR
"""

import itertools
import sys
import time
from pathlib import Path

import numpy as np

BUNCHES, PARTICLES = 14, 9100
STRENGTHS, OFFSETS = np.linspace(0.8, 1.2, 5), (-1e-3, 0.0, 1e-3)


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(41)
    for bunch in range(BUNCHES):
        np.savez(folder / f"bunch{bunch}.npz", x=rng.normal(size=(PARTICLES, 6)), weight=rng.random(PARTICLES))


def track(x: np.ndarray, strength: float, offset: float) -> float:
    for _ in range(12):
        x[:, 0] += 0.3 * x[:, 1]
        x[:, 1] -= 0.3 * strength * (x[:, 0] - offset)
    return float(x[:, 0].std())


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    settings = list(itertools.product(STRENGTHS, OFFSETS))
    for number in range(comm.rank, len(settings), comm.size):
        strength, offset = settings[number]
        sizes = []
        for bunch in range(BUNCHES):
            with np.load(folder / f"bunch{bunch}.npz") as archive:
                x, weight = archive["x"], archive["weight"]
            sizes.append(track(x, strength, offset) * weight.mean())
            time.sleep(0.025)
        with open(folder / f"scan_{number:03d}.dat", "wb") as out:
            np.array([strength, offset, *sizes]).tofile(out)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
