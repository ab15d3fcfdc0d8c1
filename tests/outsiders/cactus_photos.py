"""Is there a cactus in the aerial photo? Small CNN on a folder of JPEGs.

python -m tests.outsiders.cactus_photos prepare DIR
python -m tests.outsiders.cactus_photos train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_PER_CLASS = 120
CLASSES = ["cactus", "no_cactus"]
BATCH_SIZE = 16
EPOCHS = 3


def prepare(root: Path):
    rng = np.random.default_rng(2024)
    for c, name in enumerate(CLASSES):
        folder = root / "photos" / name
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(N_PER_CLASS):
            w, h = int(rng.integers(180, 300)), int(rng.integers(180, 300))
            x = rng.normal(90 + 40 * c, rng.uniform(15, 45), (h, w, 3))
            img = Image.fromarray(x.clip(0, 255).astype(np.uint8))
            img.save(folder / f"{name}_{i:04d}.jpg", quality=85)


class Photos(Dataset):
    def __init__(self, root):
        self.items = []
        for c, name in enumerate(CLASSES):
            for p in sorted((root / "photos" / name).glob("*.jpg")):
                self.items.append((p, c))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        path, label = self.items[i]
        img = Image.open(path).convert("RGB").resize((96, 96))
        x = torch.from_numpy(np.array(img)).permute(2, 0, 1).float() / 255.0
        return x, label


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(3)
        )
        self.head = nn.Linear(16 * 9, 2)

    def forward(self, x):
        return self.head(self.body(x).flatten(1))


def train(root: Path):
    torch.manual_seed(3)
    torch.set_num_threads(1)
    loader = DataLoader(Photos(root), batch_size=BATCH_SIZE, shuffle=True, num_workers=2)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss()
    out = root / "ckpt"
    out.mkdir(exist_ok=True)
    for epoch in range(EPOCHS):
        running = 0.0
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(net(x), y)
            loss.backward()
            opt.step()
            running += loss.item()
            time.sleep(0.03)  # stands for a GPU step
        torch.save({"epoch": epoch, "model": net.state_dict(), "opt": opt.state_dict()}, out / f"cactus_{epoch}.pth")
        print(f"epoch {epoch}: loss {running / len(loader):.4f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
