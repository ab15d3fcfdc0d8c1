"""Snow depth -> snow water equivalent, on patches of a Zarr cube (time, y, x).

Patches are 2 x 2 chunks in space and one chunk in time; neighbouring patches overlap by a chunk.

python -m tests.outsiders.snow_zarr prepare DIR
python -m tests.outsiders.snow_zarr train DIR
"""

import sys
import time

import numpy as np
import torch
import zarr
from torch.utils.data import DataLoader, Dataset

NT, NY, NX = 48, 384, 384
CT, CY, CX = 8, 96, 96


def prepare(d):
    g = zarr.open_group(f"{d}/snow.zarr", mode="w")
    a = g.create_array(
        "depth", shape=(NT, NY, NX), chunks=(CT, CY, CX), dtype="float32", compressors=zarr.codecs.ZstdCodec(level=3)
    )
    rng = np.random.default_rng(66)
    y, x = np.mgrid[:NY, :NX]
    for t in range(0, NT, CT):
        base = 1.5 + np.sin(x / 60 + t) * np.cos(y / 45)
        block = base + rng.normal(0, 0.2, (CT, NY, NX))
        a[t : t + CT] = np.round(block, 2).clip(0).astype("float32")
    g.attrs["units"] = "m"


class Patches(Dataset):
    def __init__(self, store):
        self.depth = zarr.open_group(store, mode="r")["depth"]
        nt, ny, nx = (s // c for s, c in zip(self.depth.shape, self.depth.chunks, strict=True))
        self.origins = [(t * CT, y * CY, x * CX) for t in range(nt) for y in range(ny - 1) for x in range(nx - 1)]

    def __len__(self):
        return len(self.origins)

    def __getitem__(self, i):
        t, y, x = self.origins[i]
        return torch.from_numpy(self.depth[t : t + CT, y : y + 2 * CY, x : x + 2 * CX])


def train(d):
    torch.manual_seed(2)
    torch.set_num_threads(1)
    loader = DataLoader(Patches(f"{d}/snow.zarr"), batch_size=3, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Conv2d(CT, 8, 5, stride=4), torch.nn.ReLU(), torch.nn.Conv2d(8, 1, 1))
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(4):
        for depth in loader:
            swe = 0.3 * depth.mean(1, keepdim=True)[:, :, 2:-2:4, 2:-2:4]
            out = net(depth)
            loss = (out - swe[:, :, : out.shape[2], : out.shape[3]]).abs().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.04)
        torch.save(net.state_dict(), f"{d}/snow_epoch{epoch + 1}.pt")
        print("epoch", epoch + 1, loss.item())


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](sys.argv[2])
