"""Sea surface temperature: downscaling of patches that lie in a Zarr store, a chunk at a time.

Run with ``python -m tests.visitors.sst_patches prepare DIR``, and then with ``train DIR``.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import zarr
from torch.utils.data import DataLoader, Dataset

PATCHES = 480
CHUNK = 4  # patches in a chunk of the store; a chunk is a file
CHUNKS_PER_BATCH = 4
SHAPE = (3, 64, 64)  # sst, salinity, wind
EPOCHS = 6
SAVE_EVERY = 2  # epochs
SLEEP = 0.03  # per batch, for the U-Net


def prepare(root):
    rng = np.random.default_rng(1492)
    group = zarr.open_group(root / "ocean.zarr", mode="w")
    patches = group.create_array(
        "patches", shape=(PATCHES, *SHAPE), chunks=(CHUNK, *SHAPE), dtype="float32", compressors=None
    )
    for i in range(0, PATCHES, CHUNK):
        base = rng.normal(15, 4, (CHUNK, 3, 1, 1))
        patches[i : i + CHUNK] = (base + rng.normal(0, 1, (CHUNK, *SHAPE))).astype("float32")
    group.attrs["mean"] = 15.0
    group.attrs["std"] = 4.1


class Chunks(Dataset):
    """Item i is chunk i: CHUNK consecutive patches."""

    def __init__(self, path):
        self.path = path
        self.array = None

    def __len__(self):
        return PATCHES // CHUNK

    def __getitem__(self, i):
        if self.array is None:
            group = zarr.open_group(self.path, mode="r")
            self.array, self.mean, self.std = group["patches"], group.attrs["mean"], group.attrs["std"]
        return (self.array[i * CHUNK : (i + 1) * CHUNK] - self.mean) / self.std


def stack(chunks):
    return torch.from_numpy(np.concatenate(chunks).astype("float32"))


def train(root):
    torch.manual_seed(8)
    torch.set_num_threads(1)
    loader = DataLoader(
        Chunks(str(root / "ocean.zarr")),
        batch_size=CHUNKS_PER_BATCH,
        shuffle=True,
        num_workers=2,
        collate_fn=stack,
        persistent_workers=True,
    )
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.GELU(),
        torch.nn.Conv2d(8, 3 * 16, 3, padding=1),
        torch.nn.PixelShuffle(4),
    )
    optim = torch.optim.Adam(net.parameters(), 2e-3)
    for epoch in range(EPOCHS):
        losses = []
        for fine in loader:
            coarse = F.avg_pool2d(fine, 4)
            loss = F.l1_loss(net(coarse), fine)
            optim.zero_grad()
            loss.backward()
            optim.step()
            losses.append(loss.detach())
            time.sleep(SLEEP)
        print(f"epoch {epoch + 1:2d} | L1 {torch.stack(losses).mean():.4f} | {len(losses)} batches")
        if (epoch + 1) % SAVE_EVERY == 0:
            torch.save([epoch + 1, net.state_dict(), optim.state_dict()], root / f"unet_{epoch + 1:03d}.pt")


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "prepare":
        where.mkdir(parents=True, exist_ok=True)
        prepare(where)
    elif what == "train":
        train(where)
    else:
        print(__doc__)
        sys.exit(2)
