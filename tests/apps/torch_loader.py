"""PyTorch's DataLoader with two workers reads one file of plain bytes per image. Without MPI, each process has a log.

python -m tests.apps.torch_loader prepare DIR
DARSHAN_ENABLE_NONMPI=1 python -m tests.apps.torch_loader train DIR
"""

import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

IMAGES, SIDE, BATCH, WORKERS, EPOCHS = 256, 160, 8, 2, 2
STEP_S = 0.03


def prepare(folder: Path) -> None:
    """Write images of noise that are brighter on the left or on the right."""
    torch.manual_seed(0)
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number in range(IMAGES):
        image = torch.randint(0, 200, (3, SIDE, SIDE), dtype=torch.uint8)
        half = slice(0, SIDE // 2) if number % 2 else slice(SIDE // 2, SIDE)
        image[:, :, half] += 40
        (folder / f"images/{number:05}_{number % 2}.bin").write_bytes(image.numpy().tobytes())


class Images(Dataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths = sorted((folder / "images").iterdir())

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path = self.paths[index]
        image = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8).reshape(3, SIDE, SIDE)
        return image.float() / 255 - 0.45, int(path.stem[-1])


def train(folder: Path) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.AvgPool2d(8), torch.nn.Flatten(), torch.nn.Linear(1200, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loader = DataLoader(Images(folder), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)
    for epoch in range(EPOCHS):
        losses = []
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            time.sleep(STEP_S)
        with (folder / "last.pt").open("wb") as file:  # by a path, Darshan sees PyTorch open it and not close it
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
