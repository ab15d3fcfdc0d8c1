import os
import sys
import time

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Jets(Dataset):
    def __init__(self, path):
        self.f = h5py.File(path, "r")
        self.x = self.f["images"]
        self.y = self.f["label"][:]

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def prepare(d):
    os.makedirs(d, exist_ok=True)
    r = np.random.default_rng(3)
    with h5py.File(d + "/jets.h5", "w") as f:
        f.create_dataset("images", data=r.normal(size=(800, 64, 64)).astype(np.float32))
        f.create_dataset("label", data=r.integers(0, 2, 800))


def train(d):
    torch.set_num_threads(1)
    loader = DataLoader(Jets(d + "/jets.h5"), batch_size=20, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4096, 2))
    opt = torch.optim.Adam(net.parameters())
    n = 0
    for e in range(3):
        for x, y in loader:
            opt.zero_grad()
            torch.nn.functional.cross_entropy(net(x), y).backward()
            opt.step()
            time.sleep(0.03)
            n += 1
            if n % 40 == 0:
                torch.save({"n": n, "net": net.state_dict(), "opt": opt.state_dict()}, f"{d}/jet_{n}.pt")
        print(e)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](sys.argv[2])
