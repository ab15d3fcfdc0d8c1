"""Cloud masks of satellite tiles, data parallel under torchrun. Continues the job whose checkpoint `prepare` leaves.

python -m tests.visitors.cloud_masks prepare DIR
torchrun --standalone --nproc-per-node 2 -m tests.visitors.cloud_masks train DIR
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

BANDS, SIDE = 3, 64
TILES = 480
BATCH_PER_RANK = 8
LAST_EPOCH = 4
RESTART_EPOCH = 1
COMPUTE = 0.045  # seconds of sleep per step


def build():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(BANDS, 16, 8, stride=8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(16, 256, 1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(256, 512, 1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(512, 64, 1),
        torch.nn.PixelShuffle(8),
    )
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def prepare(root: Path):
    tiles = root / "tiles"
    tiles.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2015)
    for i in range(TILES):
        tile = rng.normal(0.3, 0.1, (BANDS, SIDE, SIDE)).astype(np.float32)
        row, col = rng.integers(0, SIDE - 20, 2)
        tile[:, row : row + 20, col : col + 20] += 0.5
        tile.tofile(tiles / f"S2_{i:05d}.bin")
    # the state of a job that ended after its first epoch
    model, optimizer = build()
    model(torch.zeros(1, BANDS, SIDE, SIDE)).mean().backward()
    optimizer.step()
    (root / "checkpoints").mkdir(exist_ok=True)
    save(root / "checkpoints" / "restart.pt", RESTART_EPOCH, model, optimizer)


def save(path, epoch, model, optimizer):
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


class Tiles(Dataset):
    def __init__(self, root):
        self.files = sorted((root / "tiles").iterdir())

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        tile = np.fromfile(self.files[i], dtype=np.float32).reshape(BANDS, SIDE, SIDE)
        mask = (tile.mean(0, keepdims=True) > 0.55).astype(np.float32)
        return torch.from_numpy(tile), torch.from_numpy(mask)


def train(root: Path):
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)

    data = Tiles(root)
    sampler = DistributedSampler(data, world, rank, shuffle=True, seed=3)
    loader = DataLoader(data, BATCH_PER_RANK, sampler=sampler, num_workers=2, drop_last=True)

    model, optimizer = build()
    restart = torch.load(root / "checkpoints" / "restart.pt", map_location="cpu", weights_only=True)
    model.load_state_dict(restart["model"])
    optimizer.load_state_dict(restart["optimizer"])
    ddp = DDP(model)
    if rank == 0:
        print(f"{world} ranks continue after epoch {restart['epoch']}", flush=True)

    for epoch in range(restart["epoch"], LAST_EPOCH):
        sampler.set_epoch(epoch)
        total = torch.zeros(1)
        for tile, mask in loader:
            loss = torch.nn.functional.binary_cross_entropy_with_logits(ddp(tile), mask)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            total += loss.detach()
            time.sleep(COMPUTE)
        dist.all_reduce(total)
        if rank == 0:
            save(root / "checkpoints" / f"epoch-{epoch + 1}.pt", epoch + 1, model, optimizer)
            print(f"epoch {epoch + 1}: loss {total.item() / world / len(loader):.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]))
    elif "RANK" not in os.environ:
        sys.exit("start the training with torchrun")
    else:
        train(Path(sys.argv[2]))
