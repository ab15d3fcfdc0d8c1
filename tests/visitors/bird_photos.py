import os
import sys
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset


class Folder(Dataset):
    def __init__(self, root):
        self.items = [
            (p, c) for c, k in enumerate(sorted(os.listdir(root))) for p in sorted(Path(root, k).glob("*.jpg"))
        ]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        p, c = self.items[i]
        with Image.open(p) as im:
            x = np.asarray(im.convert("RGB").resize((32, 32)), np.float32) / 255
        return torch.from_numpy(x).flatten(), c


def prepare(d):
    rng = np.random.default_rng(8)
    for part, n in (("train", 60), ("val", 10)):
        for k in ("jay", "tit", "wren", "owl"):
            f = Path(d, part, k)
            f.mkdir(parents=True, exist_ok=True)
            for i in range(n):
                h, w = rng.integers(120, 260, 2)
                base = rng.integers(0, 255, (h // 8 + 1, w // 8 + 1, 3), dtype=np.uint8)
                Image.fromarray(base).resize((int(w), int(h)), Image.BICUBIC).save(f / f"{i:03d}.jpg", quality=90)


def train(d):
    torch.set_num_threads(1)
    tr = DataLoader(Folder(d + "/train"), 12, shuffle=True, num_workers=2, persistent_workers=True)
    va = DataLoader(Folder(d + "/val"), 20)
    net = torch.nn.Sequential(torch.nn.Linear(3072, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    opt = torch.optim.SGD(net.parameters(), 0.01)
    for e in range(3):
        for x, y in tr:
            opt.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            opt.step()
            time.sleep(0.05)
        with torch.no_grad():
            acc = np.mean([(net(x).argmax(1) == y).float().mean().item() for x, y in va])
        torch.save(net.state_dict(), d + "/birds.pth")
        print(e, acc)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](sys.argv[2])
