"""Find loose bolts from the torque of a wrench. The main process loads arrays, and tests on the last ones.

python -m tests.newcomers.bolt_torque prepare DIR
python -m tests.newcomers.bolt_torque train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

CURVES, TESTS, POINTS, CHANNELS = 300, 60, 6000, 5
EPOCHS, BATCH = 4, 6


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(33)
    for split, count in (("learn", CURVES), ("test", TESTS)):
        (folder / split).mkdir(parents=True, exist_ok=True)
        for curve in range(count):
            loose = curve % 2
            torque = np.cumsum(rng.normal(0.1 - 0.05 * loose, 1, (POINTS, CHANNELS)), 0)
            np.save(folder / split / f"bolt{curve:04d}_{'loose' if loose else 'tight'}.npy", torque.astype(np.float32))


class Curves(Dataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        curve = np.load(self.paths[number])
        return torch.from_numpy(curve / (1 + np.abs(curve).max())), int("loose" in self.paths[number].name)


def train(folder: Path) -> None:
    torch.manual_seed(1)
    loader = DataLoader(Curves(folder / "learn"), batch_size=BATCH, shuffle=True)
    tests = DataLoader(Curves(folder / "test"), batch_size=15)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(POINTS * CHANNELS, 16), torch.nn.ReLU(),
                              torch.nn.Linear(16, 2))  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), 0.01, momentum=0.9)
    for epoch in range(EPOCHS):
        for curves, loose in loader:
            loss = torch.nn.functional.cross_entropy(net(curves), loose)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(max(0.0, random.gauss(0.025, 0.002)))
        with torch.no_grad():
            right = 0
            for curves, loose in tests:
                right += int((net(curves).argmax(1) == loose).sum())
                time.sleep(0.01)
        torch.save({"net": net.state_dict(), "sgd": optimizer.state_dict()}, folder / f"bolts{epoch}.pt")
        print(f"epoch {epoch}: {right} of {TESTS} right")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
