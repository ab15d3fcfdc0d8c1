"""Satellite patches in tar shards, streamed by the workers of an iterable dataset in the manner of WebDataset.

python -m tests.unseen.tar_patches prepare DIR
python -m tests.unseen.tar_patches train DIR
"""

import io
import random
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, PER_SHARD = 10, 12
BANDS, PX = 7, 256


def prepare(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(9)
    for s in range(SHARDS):
        with tarfile.open(out / f"patches-{s:04d}.tar", "w") as tar:
            for k in range(PER_SHARD):
                cloud = int(rng.integers(2))
                patch = rng.integers(0, 200, (BANDS, PX, PX)).astype(np.uint8) + np.uint8(30 * cloud)
                for ext, blob in (("bin", patch.tobytes()), ("cls", str(cloud).encode())):
                    member = tarfile.TarInfo(f"{s:04d}_{k:05d}.{ext}")
                    member.size = len(blob)
                    tar.addfile(member, io.BytesIO(blob))


class TarStream(IterableDataset):
    def __init__(self, urls: list[Path]) -> None:
        self.urls, self.epoch = urls, 0

    def samples(self, url: Path):
        with tarfile.open(url, "r|") as tar:
            current = {}
            for member in tar:
                _, ext = member.name.split(".")
                current[ext] = tar.extractfile(member).read()
                if ext == "cls":
                    patch = np.frombuffer(current["bin"], np.uint8).reshape(BANDS, PX, PX)
                    yield torch.tensor(patch, dtype=torch.float32) / 255, int(current["cls"])

    def __iter__(self):
        info = get_worker_info()
        urls = list(self.urls)
        random.Random(self.epoch).shuffle(urls)
        for url in urls[info.id :: info.num_workers]:
            yield from self.samples(url)


def train(data: Path) -> None:
    stream = TarStream(sorted(data.glob("patches-*.tar")))
    model = torch.nn.Linear(BANDS, 2)
    optim = torch.optim.Adam(model.parameters(), 0.05)
    for epoch in range(2):
        stream.epoch = epoch
        loader = DataLoader(stream, batch_size=6, num_workers=2)
        for patches, classes in loader:
            loss = torch.nn.functional.cross_entropy(model(patches.mean((2, 3))), classes)
            optim.zero_grad()
            loss.backward()
            optim.step()
            time.sleep(0.04)
        print(epoch, round(loss.item(), 3))


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
