"""Fit a force field to frames of molecular dynamics. A batch mixes frames of all trajectories.

python -m tests.strangers.molecular_frames prepare DIR
python -m tests.strangers.molecular_frames train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

RUNS, FRAMES, ATOMS = 12, 50, 2440
EPOCHS = 2


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(310)
    for run in range(RUNS):
        start = rng.normal(size=(ATOMS, 3))
        with h5py.File(folder / f"trajectory{run:02d}.h5", "w") as file:
            shape, storage = (FRAMES, ATOMS, 3), {"chunks": (1, ATOMS, 3), "compression": "gzip"}
            position = file.create_dataset("position", shape, np.float32, **storage)
            force = file.create_dataset("force", shape, np.float32, **storage)
            energy = file.create_dataset("energy", (FRAMES,), np.float64)
            for frame in range(FRAMES):
                moved = start + 0.1 * rng.normal(size=(ATOMS, 3))
                position[frame], force[frame] = moved, -2.5 * moved + 0.2 * rng.normal(size=(ATOMS, 3))
                energy[frame] = 1.25 * np.square(moved).sum()


class Frames(Dataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("trajectory*.h5"))
        self.files: dict[Path, Any] = {}

    def __len__(self) -> int:
        return RUNS * FRAMES

    def __getitem__(self, number: int) -> tuple[Any, Any, float]:
        path, frame = self.paths[number // FRAMES], number % FRAMES
        file = self.files[path] if path in self.files else self.files.setdefault(path, h5py.File(path, "r"))
        return torch.from_numpy(file["position"][frame]), torch.from_numpy(file["force"][frame]), file["energy"][frame]


def train(folder: Path) -> None:
    torch.manual_seed(8)
    loader = DataLoader(Frames(folder), batch_size=10, shuffle=True, num_workers=1)
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for epoch in range(EPOCHS):
        for position, force, energy in loader:
            work = -0.5 * (net(position) * position).sum((1, 2))
            loss = (net(position) - force).square().mean() + 1e-9 * (work - energy).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(max(0.0, random.gauss(0.032, 0.003)))
        torch.save({"epoch": epoch, "net": net.state_dict(), "adam": optimizer.state_dict()}, folder / f"ff{epoch}.pt")
        print(f"epoch {epoch}: loss {loss.item():.4f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
