"""Galaxy morphology with PyTorch from one HDF5 file, data parallel over MPI.

python -m tests.unseen.galaxies prepare DIR
mpiexec -n 2 python -m tests.unseen.galaxies train DIR
"""

import os
import sys
import time

import h5py
import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, DistributedSampler

N_GALAXIES = 1368
SIZE = 69


def prepare(root):
    os.makedirs(root, exist_ok=True)
    rs = np.random.RandomState(123)
    yy, xx = np.mgrid[:SIZE, :SIZE] - SIZE // 2
    with h5py.File(f"{root}/galaxies10.h5", "w") as f:
        images = f.create_dataset(
            "images", (N_GALAXIES, SIZE, SIZE, 3), dtype="uint8", chunks=(8, SIZE, SIZE, 3), compression="gzip"
        )
        labels = rs.randint(0, 2, N_GALAXIES)
        for i in range(0, N_GALAXIES, 8):
            flat = 0.15 + 0.85 * labels[i : i + 8, None, None]
            glow = 150 * np.exp(-((xx / 14.0) ** 2) - (yy / 14.0) ** 2 / flat**2)
            noise = rs.randint(0, 40, (8, SIZE, SIZE, 3))
            images[i : i + 8] = (glow[..., None] + noise).astype("uint8")
        f["labels"] = labels


class GalaxyDataset(Dataset):
    def __init__(self, path):
        self.path, self.h5 = path, None
        with h5py.File(path, "r") as f:
            self.labels = f["labels"][()]

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        if self.h5 is None:
            self.h5 = h5py.File(self.path, "r")
        img = torch.from_numpy(self.h5["images"][idx]).permute(2, 0, 1).float().div(255)
        return img, int(self.labels[idx])


def train(root):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.manual_seed(0)
    torch.set_num_threads(1)
    ds = GalaxyDataset(f"{root}/galaxies10.h5")
    sampler = DistributedSampler(ds, num_replicas=comm.size, rank=comm.rank, shuffle=True, seed=3)
    loader = DataLoader(ds, batch_size=18, sampler=sampler, num_workers=0)
    net = nn.Sequential(
        nn.Conv2d(3, 6, 5, stride=4), nn.ReLU(), nn.AdaptiveAvgPool2d(5), nn.Flatten(), nn.LazyLinear(2)
    )
    net(torch.zeros(1, 3, SIZE, SIZE))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for img, label in loader:
            loss = functional.cross_entropy(net(img), label)
            opt.zero_grad()
            loss.backward()
            for p in net.parameters():
                p.grad = torch.from_numpy(comm.allreduce(p.grad.numpy()) / comm.size)
            opt.step()
            time.sleep(0.024)
        if comm.rank == 0:
            torch.save({"epoch": epoch, "net": net.state_dict(), "opt": opt.state_dict()}, f"{root}/checkpoint.pth")
            print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](sys.argv[2])
