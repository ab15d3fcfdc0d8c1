"""Single samples of several contiguous HDF5 files, mixed over all files. After each epoch the ranks evaluate the model
on two further files, and rank 0 saves it with h5py.

python -m tests.apps.h5_contiguous_shuffled prepare DIR
mpiexec -n 2 python -m tests.apps.h5_contiguous_shuffled train DIR
"""

import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

SETS = {"train": (6, 112), "valid": (2, 32)}  # files, samples in a file
SIDE, BATCH, EPOCHS, STEP_S = 128, 8, 3, 0.02
Refs = list[tuple[h5py.File, int]]


def prepare(folder: Path) -> None:
    """Write waves of two directions under noise."""
    rng = np.random.default_rng(11)
    wave = np.sin(np.arange(SIDE) / 4).astype("f4") / 2
    for part, (files, samples) in SETS.items():
        (folder / part).mkdir(parents=True, exist_ok=True)
        for number in range(files):
            y = rng.integers(0, 2, samples)
            x = rng.normal(size=(samples, SIDE, SIDE)).astype("f4") + wave
            x[y == 1] += wave[:, None] - wave
            with h5py.File(folder / part / f"{part}_{number}.hdf5", "w") as file:
                file["x"], file["y"] = x, y


def open_all(folder: Path) -> Refs:
    files = [h5py.File(path, "r") for path in sorted(folder.iterdir())]
    return [(file, row) for file in files for row in range(len(file["x"]))]


def batches(refs: Refs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    labels = {file: file["y"][:] for file, _ in refs}
    for first in range(0, len(refs), BATCH):
        part = refs[first : first + BATCH]
        images = np.stack([file["x"][row] for file, row in part])
        spectra = [np.abs(np.fft.rfft(images.mean(axis=axis))) / 8 for axis in (1, 2)]
        yield np.hstack(spectra), np.array([labels[file][row] for file, row in part])


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    refs, held_out = open_all(folder / "train"), open_all(folder / "valid")[comm.rank :: comm.size]
    weights = np.zeros(130)
    for epoch in range(EPOCHS):
        random.Random(epoch).shuffle(refs)
        losses = []
        for x, y in batches(refs[comm.rank :: comm.size]):
            guess = 1 / (1 + np.exp(-x @ weights))
            losses.append(-np.log(np.where(y == 1, guess, 1 - guess) + 1e-9).mean())
            weights -= 0.1 / comm.size * comm.allreduce(x.T @ (guess - y) / len(y))
            time.sleep(STEP_S)
        right = comm.reduce(sum(int((((x @ weights) > 0) == y).sum()) for x, y in batches(held_out)))
        if comm.rank == 0:
            with h5py.File(folder / f"checkpoint_{epoch}.h5", "w") as file:
                file["weights"], file["momentum"] = weights, np.zeros((500, 130))
                file.attrs["right"] = right
            print(f"epoch {epoch}: {right} of the held-out samples are right, loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
