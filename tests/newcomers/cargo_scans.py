"""Search X-ray images of containers. Two workers stream tar archives, in another order in each epoch.

python -m tests.newcomers.cargo_scans prepare DIR
python -m tests.newcomers.cargo_scans train DIR
"""

import io
import random
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

ARCHIVES, SCANS, SIDE = 10, 48, 200
EPOCHS, BATCH = 3, 16


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(64)
    for number in range(ARCHIVES):
        with tarfile.open(folder / f"scans-{number:04d}.tar", "w") as archive:
            for scan in range(SCANS):
                hidden = int(rng.integers(2))
                pixels = rng.normal(120 + 20 * hidden, rng.uniform(10, 40), (SIDE, SIDE)).clip(0, 255)
                buffer = io.BytesIO()
                Image.fromarray(pixels.astype(np.uint8)).save(buffer, "JPEG", quality=92)
                for suffix, content in (("jpg", buffer.getvalue()), ("cls", b"%d" % hidden)):
                    member = tarfile.TarInfo(f"{number:04d}{scan:04d}.{suffix}")
                    member.size = len(content)
                    archive.addfile(member, io.BytesIO(content))


class Scans(IterableDataset):  # type: ignore[misc]
    def __init__(self, folder: Path) -> None:
        self.paths, self.epoch = sorted(folder.glob("scans-*.tar")), 0

    def __iter__(self) -> Iterator[tuple[Any, int]]:
        worker = get_worker_info()
        paths = random.Random(self.epoch).sample(self.paths, len(self.paths))
        for path in paths[worker.id :: worker.num_workers]:
            with tarfile.open(path, "r|") as archive:
                pixels = None
                for member in archive:
                    content = archive.extractfile(member)
                    assert content is not None
                    if member.name.endswith(".jpg"):
                        pixels = np.array(Image.open(io.BytesIO(content.read())))
                    elif pixels is not None:
                        yield torch.from_numpy(pixels)[None].float() / 255, int(content.read())


def train(folder: Path) -> None:
    torch.manual_seed(2)
    scans = Scans(folder)
    loader = DataLoader(scans, batch_size=BATCH, num_workers=2, prefetch_factor=3)
    net = torch.nn.Sequential(torch.nn.AvgPool2d(10), torch.nn.Flatten(), torch.nn.Linear(400, 128), torch.nn.ReLU(),
                              torch.nn.Linear(128, 2))  # fmt: skip
    optimizer = torch.optim.Adam(net.parameters(), 0.001)
    for scans.epoch in range(EPOCHS):
        for pixels, hidden in loader:
            loss = torch.nn.functional.cross_entropy(net(pixels), hidden)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            time.sleep(max(0.0, random.gauss(0.045, 0.004)))
        torch.save({"net": net.state_dict(), "adam": optimizer.state_dict()}, folder / f"cargo-{scans.epoch}.pt")
        print(f"epoch {scans.epoch}: loss {loss.item():.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
