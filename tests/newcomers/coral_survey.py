"""Recognise corals in photos of a survey. Workers, which live as long as the training, augment each photo.

python -m tests.newcomers.coral_survey prepare DIR
python -m tests.newcomers.coral_survey train DIR
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

KINDS = ("acropora", "porites", "sponge", "sand")
PHOTOS, SIDE = 110, 224
EPOCHS, BATCH = 3, 20


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(12)
    for number, kind in enumerate(KINDS):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        for photo in range(PHOTOS):
            coarse = rng.normal(90 + 25 * number, 40, (28, 28, 3)).clip(0, 255).astype(np.uint8)
            image = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE)), np.float32)
            image += rng.normal(0, rng.uniform(8, 22), image.shape)
            pixels = Image.fromarray(image.clip(0, 255).astype(np.uint8))
            pixels.save(folder / kind / f"{photo:04d}.jpg", quality=90)


class Photos(Dataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*/*.jpg"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[Any, int]:
        path = self.paths[number]
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"))
        if random.random() < 0.5:
            pixels = pixels[:, ::-1].copy()
        time.sleep(max(0.0, random.gauss(0.005, 0.001)))  # colours and distortions
        return torch.from_numpy(pixels).permute(2, 0, 1).float() / 255, KINDS.index(path.parent.name)


def train(folder: Path) -> None:
    torch.manual_seed(6)
    loader = DataLoader(Photos(folder), BATCH, shuffle=True, num_workers=3, prefetch_factor=2, persistent_workers=True)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 12, 9, 8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(),
        torch.nn.Linear(48, len(KINDS)),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(net.parameters(), 0.002)
    for epoch in range(EPOCHS):
        for photos, kind in loader:
            loss = torch.nn.functional.cross_entropy(net(photos), kind)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(max(0.0, random.gauss(0.07, 0.006)))
        torch.save(net.state_dict(), folder / f"coral-{epoch}.pt")
        print(f"epoch {epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
