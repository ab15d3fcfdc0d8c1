"""Workers of PyTorch stream tar shards, each its own, through a shuffle buffer. Each epoch starts new workers.

python -m tests.apps.torch_iterable prepare DIR
DARSHAN_ENABLE_NONMPI=1 python -m tests.apps.torch_iterable train DIR
"""

import io
import random
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

SHARDS, SHARD_SIZE, RES, BUFFER, BATCH, WORKERS, EPOCHS, STEP_S = 12, 40, 128, 32, 8, 4, 2, 0.02


def prepare(root: Path) -> None:
    """Write shards of images of noise (.bin) with their labels (.cls): one colour is stronger."""
    root.mkdir(parents=True, exist_ok=True)
    for s in range(SHARDS):
        with tarfile.open(root / f"shard-{s:06d}.tar", "w") as tar:
            for k in range(SHARD_SIZE):
                img = torch.randint(0, 200, (3, RES, RES), dtype=torch.uint8)
                img[k % 3] += 20
                for ext, payload in ("bin", img.numpy().tobytes()), ("cls", str(k % 3).encode()):
                    info = tarfile.TarInfo(f"{s * SHARD_SIZE + k:08d}.{ext}")
                    info.size = len(payload)
                    tar.addfile(info, io.BytesIO(payload))


def samples(shard: Path) -> Iterator[tuple[torch.Tensor, int]]:
    with tarfile.open(shard, "r|") as tar:
        payloads = (tar.extractfile(member).read() for member in tar)  # type: ignore[union-attr]
        for img, label in zip(payloads, payloads, strict=True):
            yield torch.frombuffer(bytearray(img), dtype=torch.uint8).view(3, RES, RES) / 255 - 0.4, int(label)


class TarShards(IterableDataset):  # type: ignore[misc]
    def __init__(self, root: Path) -> None:
        self.shards, self.epoch = sorted(root.glob("*.tar")), 0

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int]]:
        info, rng, buf = get_worker_info(), random.Random(self.epoch), []
        for shard in rng.sample(self.shards, len(self.shards))[info.id :: info.num_workers]:
            for sample in samples(shard):
                buf.append(sample)
                if len(buf) >= BUFFER:
                    yield buf.pop(rng.randrange(len(buf)))
        yield from rng.sample(buf, len(buf))


def train(root: Path) -> None:
    dataset, net = TarShards(root), nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.Linear(48, 3))
    opt = torch.optim.Adam(net.parameters(), lr=0.02)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=WORKERS)
    for dataset.epoch in range(EPOCHS):
        losses = []
        for img, y in loader:
            loss = nn.functional.cross_entropy(net(img), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses += [loss.item()]
            time.sleep(STEP_S)
        torch.save([net.state_dict(), opt.state_dict(), torch.zeros(100_000)], root / f"epoch_{dataset.epoch}.pt")
        print(f"epoch {dataset.epoch}: loss {sum(losses) / len(losses):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
