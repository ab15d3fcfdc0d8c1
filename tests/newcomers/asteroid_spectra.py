"""Estimate the minerals of asteroids from spectra. A thread of each process reads two batches ahead, from any file.

python -m tests.newcomers.asteroid_spectra prepare DIR
mpiexec -n 2 python -m tests.newcomers.asteroid_spectra train DIR
"""

import os
import queue
import random
import sys
import threading
import time
from pathlib import Path

import numpy as np

FILES, SPECTRA, BANDS, MINERALS = 6, 400, 3072, 8
SPECTRUM_BYTES = 4 * BANDS
EPOCHS, BATCH, AHEAD, SAVE_EVERY = 2, 24, 2, 25


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)
    for number in range(FILES):
        rng.normal(1, 0.3, (SPECTRA, BANDS)).astype(np.float32).tofile(folder / f"night{number}.spec")


def read(descriptors: list[int], numbers: np.ndarray, batches: queue.Queue[np.ndarray]) -> None:
    """Read batches into the queue, which holds few."""
    for batch in numbers.reshape(-1, BATCH):
        raw = [
            os.pread(descriptors[number // SPECTRA], SPECTRUM_BYTES, number % SPECTRA * SPECTRUM_BYTES)
            for number in batch.tolist()
        ]
        batches.put(np.frombuffer(b"".join(raw), np.float32).reshape(BATCH, BANDS))


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    descriptors = [os.open(path, os.O_RDONLY) for path in sorted(folder.glob("night*.spec"))]
    weights = np.random.default_rng(1).normal(0, 0.01, (BANDS, MINERALS)).astype(np.float32)
    step = 0
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(FILES * SPECTRA)
        batches: queue.Queue[np.ndarray] = queue.Queue(AHEAD)
        share = order[comm.rank :: comm.size]
        threading.Thread(target=read, args=(descriptors, share, batches)).start()
        for _ in range(len(share) // BATCH):
            spectra = batches.get()
            gradient = spectra.T @ (spectra @ weights - 1 / MINERALS) / BATCH
            weights -= 1e-5 * comm.allreduce(gradient) / comm.size
            time.sleep(max(0.0, random.gauss(0.035, 0.003)))
            step += 1
            if step % SAVE_EVERY == 0 and comm.rank == 0:
                np.savez(folder / f"minerals{step:04d}.npz", weights=weights, step=step)
    for descriptor in descriptors:
        os.close(descriptor)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
