"""Detect worn bearings from vibrations of engines. Workers stream windows of one engine after the other, well mixed.

python -m tests.strangers.engine_vibration prepare DIR
python -m tests.strangers.engine_vibration train DIR
"""

import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

ENGINES, WINDOWS, LENGTH, AXES = 8, 300, 2700, 3
WINDOW_BYTES = 2 * LENGTH * AXES
EPOCHS, BATCH = 3, 60


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(50)
    for engine in range(ENGINES):
        windows = rng.normal(0, 800, (WINDOWS, LENGTH, AXES)) * (1 + rng.integers(0, 2, (WINDOWS, 1, 1)))
        windows.astype(np.int16).tofile(folder / f"engine_{engine}.i16")


class Windows(IterableDataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("engine_*.i16"))
        self.random = random.Random(2)

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        worker = get_worker_info()
        for path in self.paths[worker.id :: worker.num_workers]:
            order = list(range(WINDOWS))
            self.random.shuffle(order)
            descriptor = os.open(path, os.O_RDONLY)
            for number in order:
                raw = os.pread(descriptor, WINDOW_BYTES, number * WINDOW_BYTES)
                window = np.frombuffer(raw, np.int16).reshape(LENGTH, AXES) / 1600
                yield torch.from_numpy(window.astype(np.float32)), int(window.std() > 0.75)
            os.close(descriptor)


def train(folder: Path) -> None:
    torch.manual_seed(3)
    loader = DataLoader(Windows(folder), batch_size=BATCH, num_workers=2, persistent_workers=True)
    net = torch.nn.Sequential(torch.nn.Linear(30, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.RMSprop(net.parameters(), 0.003)
    for epoch in range(EPOCHS):
        losses = []
        for windows, worn in loader:
            power = windows.reshape(len(windows), 10, 270, AXES).square().mean(2).flatten(1)
            loss = torch.nn.functional.cross_entropy(net(power), worn)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            time.sleep(max(0.0, random.gauss(0.05, 0.005)))
        torch.save({"net": net.state_dict(), "rms": optimizer.state_dict()}, folder / f"bearing-{epoch}.pt")
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
