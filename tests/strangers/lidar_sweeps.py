"""Recognise pedestrians near a car in sweeps of a lidar. A sweep is a file of points, and few have the same number.

python -m tests.strangers.lidar_sweeps prepare DIR
python -m tests.strangers.lidar_sweeps train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

SWEEPS, EPOCHS = 168, 3


def prepare(folder: Path) -> None:
    (folder / "velodyne").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(88)
    labels = rng.integers(0, 2, SWEEPS)
    for sweep in range(SWEEPS):
        points = rng.normal(0, 15, (int(rng.normal(12_000, 1_100)), 4)).astype(np.float32)
        points[: 300 * labels[sweep], :2] = rng.normal(4, 0.3, (300 * labels[sweep], 2))
        (folder / "velodyne" / f"{sweep:06d}.bin").write_bytes(points.tobytes())
    (folder / "labels.txt").write_text("\n".join(map(str, labels)))


class Sweeps(Dataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted((folder / "velodyne").glob("*.bin"))
        self.labels = [int(line) for line in (folder / "labels.txt").read_text().split()]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        points = np.frombuffer(self.paths[number].read_bytes(), np.float32).reshape(-1, 4)
        grid, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=32, range=((-32, 32), (-32, 32)))
        return torch.from_numpy(np.log1p(grid).astype(np.float32))[None], self.labels[number]


def train(folder: Path) -> None:
    torch.manual_seed(21)
    loader = DataLoader(Sweeps(folder), batch_size=4, shuffle=True, num_workers=4)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(1800, 48),
        torch.nn.ReLU(), torch.nn.Linear(48, 2),
    )  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 0.002)
    for epoch in range(EPOCHS):
        right = 0
        for grids, labels in loader:
            logits = net(grids)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            right += int((logits.argmax(1) == labels).sum())
            time.sleep(random.uniform(0.025, 0.035))
        torch.save(net.state_dict(), folder / "last.pt")
        print(f"epoch {epoch}: {right / SWEEPS:.1%}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
