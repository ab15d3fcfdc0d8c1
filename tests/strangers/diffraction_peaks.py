"""Detect diffraction patterns of crystals at a beam line. Each process trains a member of an ensemble on all patterns.

python -m tests.strangers.diffraction_peaks prepare DIR
mpiexec -n 2 python -m tests.strangers.diffraction_peaks train DIR
"""

import random
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

PATTERNS, SIZE, CHUNK = 2400, 74, 25
EPOCHS, BATCH = 4, 48


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1912)
    hits = rng.integers(0, 2, PATTERNS)
    with h5py.File(folder / "run0142.h5", "w") as file:
        shape = (PATTERNS, SIZE, SIZE)
        data = file.create_dataset("data", shape, np.uint16, chunks=(CHUNK, SIZE, SIZE), compression="lzf")
        for start in range(0, PATTERNS, CHUNK):
            photons = rng.poisson(60, (CHUNK, SIZE, SIZE)).astype(np.uint16)
            photons[:, 20:60:10, 15:65:10] *= (1 + 3 * hits[start : start + CHUNK, None, None]).astype(np.uint16)
            data[start : start + CHUNK] = photons
        file["hit"] = hits


def train(folder: Path) -> None:
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.manual_seed(comm.rank)
    torch.set_num_threads(1)
    with h5py.File(folder / "run0142.h5", "r") as file:
        patterns, hits = torch.from_numpy(file["data"][:].astype(np.float32)), torch.from_numpy(file["hit"][:])
    patterns = torch.nn.functional.max_pool2d(patterns[:, None] / 100, 5)
    loader = DataLoader(TensorDataset(patterns, hits), batch_size=BATCH, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(196, 400), torch.nn.ReLU(), torch.nn.Linear(400, 2))
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    for epoch in range(EPOCHS):
        right = 0
        for images, labels in loader:
            logits = net(images)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            right += int((logits.argmax(1) == labels).sum())
            time.sleep(random.uniform(0.008, 0.012))
        torch.save(net.state_dict(), folder / f"member{comm.rank}.pt")
        rights = comm.gather(right)
        if rights is not None:
            print(f"epoch {epoch}: members with {[f'{count / PATTERNS:.1%}' for count in rights]}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
