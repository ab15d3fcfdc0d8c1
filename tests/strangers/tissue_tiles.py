"""Tell tumours from healthy tissue on tiles of microscope slides. The tiles are PNG files in a folder per class.

python -m tests.strangers.tissue_tiles prepare DIR
python -m tests.strangers.tissue_tiles train DIR
"""

import random
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

KINDS = ("benign", "tumour")
TILES = {"train": 160, "val": 24}  # per class
PIXELS = 188


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(12)
    for split, count in TILES.items():
        for label, kind in enumerate(KINDS):
            (folder / split / kind).mkdir(parents=True, exist_ok=True)
            for number in range(count):
                contrast = rng.uniform(5, 30)
                tile = rng.normal((190, 120 + 20 * label, 170), contrast, (PIXELS, PIXELS, 3))
                Image.fromarray(tile.clip(0, 255).astype(np.uint8)).save(folder / split / kind / f"{number:05d}.png")


class Tiles(Dataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*/*.png"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        with Image.open(self.paths[number]) as image:
            pixels = np.asarray(image.convert("RGB"), np.float32) / 255
        return torch.from_numpy(pixels).permute(2, 0, 1), KINDS.index(self.paths[number].parent.name)


def train(folder: Path) -> None:
    torch.manual_seed(5)
    held_out = Tiles(folder / "val")
    loader = DataLoader(Tiles(folder / "train"), batch_size=16, shuffle=True, num_workers=3, persistent_workers=True)
    val_loader = DataLoader(held_out, batch_size=16, num_workers=1, persistent_workers=True)
    net = torch.nn.Sequential(torch.nn.AvgPool2d(47), torch.nn.Flatten(), torch.nn.Linear(48, len(KINDS)))
    optimizer = torch.optim.Adam(net.parameters(), 0.01)
    for epoch in range(3):
        for images, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(net(images), labels).backward()
            optimizer.step()
            time.sleep(random.gauss(0.045, 0.004))
        right = 0
        with torch.no_grad():
            for images, labels in val_loader:
                right += int((net(images).argmax(1) == labels).sum())
                time.sleep(0.015)
        print(f"epoch {epoch}: {right / len(held_out):.1%} of the held-out tiles")
        torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, folder / f"epoch{epoch}.pt")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
