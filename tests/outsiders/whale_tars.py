"""Whale clicks. The clips of a cruise are in one uncompressed tar; they are read from it where they lie.

python -m tests.outsiders.whale_tars prepare DIR
python -m tests.outsiders.whale_tars train DIR
"""

import io
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler

CRUISES = ["arctic09", "azores11", "biscay14", "crozet17", "ross19"]
CLIPS = 80


def prepare(root):
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1851)
    for cruise in CRUISES:
        with tarfile.open(root / f"{cruise}.tar", "w") as tar:
            for i in range(CLIPS):
                species = int(rng.integers(4))
                n = int(rng.integers(14000, 34000))
                clip = (rng.normal(0, 3000, n) * (1 + np.sin(np.arange(n) / (20 + 30 * species)))).astype("<i2")
                info = tarfile.TarInfo(f"{cruise}/{i:03d}_{species}.pcm")
                info.size = clip.nbytes
                tar.addfile(info, io.BytesIO(clip.tobytes()))


class Clips(Dataset):
    def __init__(self, root):
        self.tars = [tarfile.open(p) for p in sorted(root.glob("*.tar"))]
        self.index = [(t, m) for t, tar in enumerate(self.tars) for m in tar.getmembers() if m.isfile()]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        t, member = self.index[i]
        pcm = np.frombuffer(self.tars[t].extractfile(member).read(), "<i2").astype(np.float32) / 32768
        spectrum = np.abs(np.fft.rfft(pcm, 8192))[:4096].reshape(128, 32).mean(1)
        return torch.from_numpy(np.log(spectrum + 1e-4)), int(member.name[-5])


def train(root):
    torch.manual_seed(4)
    torch.set_num_threads(1)
    clips = Clips(root)
    loader = DataLoader(clips, batch_sampler=BatchSampler(RandomSampler(clips), 16, False))
    model = torch.nn.Sequential(torch.nn.Linear(128, 40), torch.nn.Tanh(), torch.nn.Linear(40, 4))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    for epoch in range(3):
        right = 0
        for x, y in loader:
            z = model(x)
            loss = torch.nn.functional.cross_entropy(z, y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            right += int((z.argmax(1) == y).sum())
            time.sleep(0.02)
        print(f"{epoch=} accuracy={right / len(clips):.3f}")


if __name__ == "__main__":
    command, folder = sys.argv[1:]
    {"prepare": prepare, "train": train}[command](Path(folder))
