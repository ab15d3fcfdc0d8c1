"""Tree species from airborne LiDAR. Each tree crown is a point cloud, with its own number of points.

A tile (an HDF5 file) keeps all its points in one long table and an array of offsets, one more than there are trees.

    python -m tests.visitors.lidar_crowns prepare DIR
    python -m tests.visitors.lidar_crowns train DIR
"""

import argparse
import itertools
import logging
import pathlib
import time

import h5py
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("crowns")

N_TILES = 6
TREES_PER_TILE = 200
SPECIES = 5
GPU_TIME = 0.03  # what the real PointNet takes for a batch on our cluster


def make_tiles(root: pathlib.Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2207)
    for tile in range(N_TILES):
        counts = rng.integers(200, 1500, TREES_PER_TILE)
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        species = rng.integers(0, SPECIES, TREES_PER_TILE)
        points = rng.normal(size=(offsets[-1], 4)).astype(np.float32)  # x, y, z, intensity
        for i, kind in enumerate(species):
            points[offsets[i] : offsets[i + 1], 2] *= 1 + 0.4 * kind
        with h5py.File(root / f"tile_{tile:02d}.h5", "w") as f:
            f["points"] = points
            f["offsets"] = offsets
            f["species"] = species.astype(np.int64)
        log.info("tile %d: %d points", tile, offsets[-1])


class CrownDataset(Dataset):
    """Opens a tile when a worker first needs it, and keeps it open."""

    def __init__(self, root: pathlib.Path):
        self.paths = sorted(root.glob("tile_*.h5"))
        self.index = []
        self.labels = []
        for t, path in enumerate(self.paths):
            with h5py.File(path, "r") as f:
                offsets, species = f["offsets"][:], f["species"][:]
            self.index += [(t, int(a), int(b)) for a, b in itertools.pairwise(offsets)]
            self.labels += species.tolist()
        self._open = {}

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        tile, begin, end = self.index[i]
        if tile not in self._open:
            self._open[tile] = h5py.File(self.paths[tile], "r")
        cloud = self._open[tile]["points"][begin:end]
        return torch.from_numpy(cloud), self.labels[i]


def pad(batch):
    clouds, labels = zip(*batch, strict=False)
    longest = max(len(c) for c in clouds)
    out = torch.zeros(len(clouds), longest, 4)
    mask = torch.zeros(len(clouds), longest, dtype=torch.bool)
    for row, cloud in enumerate(clouds):
        out[row, : len(cloud)] = cloud
        mask[row, : len(cloud)] = True
    return out, mask, torch.tensor(labels)


class TinyPointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 24))
        self.head = nn.Linear(24, SPECIES)

    def forward(self, points, mask):
        h = self.point(points).masked_fill(~mask[..., None], -1e9)
        return self.head(h.amax(1))


def fit(root: pathlib.Path, epochs: int, batch_size: int, workers: int) -> None:
    torch.manual_seed(11)
    torch.set_num_threads(1)
    loader = DataLoader(CrownDataset(root), batch_size=batch_size, shuffle=True, num_workers=workers, collate_fn=pad)
    model = TinyPointNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(1, epochs + 1):
        seen, total = 0, 0.0
        for points, mask, labels in loader:
            opt.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(model(points, mask), labels)
            loss.backward()
            opt.step()
            total += loss.item() * len(labels)
            seen += len(labels)
            time.sleep(GPU_TIME)
        torch.save({"epoch": epoch, "model": model.state_dict(), "opt": opt.state_dict()}, root / "crowns_last.pt")
        log.info("epoch %d/%d  loss %.4f  trees %d", epoch, epochs, total / seen, seen)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["prepare", "train"])
    parser.add_argument("root", type=pathlib.Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    if args.command == "prepare":
        make_tiles(args.root)
    else:
        fit(args.root, args.epochs, args.batch_size, args.workers)
