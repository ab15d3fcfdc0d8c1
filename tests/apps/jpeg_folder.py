"""JPEG files in one folder per class, of many sizes, decoded by PIL in the training process itself.

python -m tests.apps.jpeg_folder prepare DIR
DARSHAN_ENABLE_NONMPI=1 python -m tests.apps.jpeg_folder train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CLASSES, PER_CLASS, BATCH, EPOCHS = ("cat", "dog", "emu"), 80, 8, 2
AUGMENT_S, STEP_S = 0.003, 0.015


def prepare(folder: Path) -> None:
    """Write images of noise over the colour of their class."""
    random = np.random.default_rng(4)
    for label, name in enumerate(CLASSES):
        (folder / "images" / name).mkdir(parents=True, exist_ok=True)
        for number in range(PER_CLASS):
            height, width = random.integers(160, 400, 2)
            pixels = random.integers(0, 180, (height, width, 3), dtype=np.uint8)
            pixels[:, :, label] += 60
            Image.fromarray(pixels).save(folder / "images" / name / f"{name}_{number:03}.jpg", quality=85)


class ImageFolder(Dataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.samples = [(path, CLASSES.index(path.parent.name)) for path in sorted(folder.glob("images/*/*.jpg"))]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with path.open("rb") as file:
            image = Image.open(file).convert("RGB").resize((64, 64))
        time.sleep(AUGMENT_S)  # random crops, flips and colours
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255 - 0.4, label


def train(folder: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.AvgPool2d(16), torch.nn.Flatten(), torch.nn.Linear(48, len(CLASSES)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    loader = DataLoader(ImageFolder(folder), BATCH, shuffle=True, num_workers=0)
    for epoch in range(EPOCHS):
        losses = []
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            time.sleep(STEP_S)
        print(f"epoch {epoch}: loss {np.mean(losses):.3f}")
    torch.save(model.state_dict(), folder / "final.pth")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
