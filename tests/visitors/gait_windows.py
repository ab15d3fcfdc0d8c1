"""Recognise horses' gaits in video. Clips are raw grey frames; a sample is a window of 16 frames.

Usage:
    python -m tests.visitors.gait_windows prepare DIR
    python -m tests.visitors.gait_windows train DIR
"""

import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

HEIGHT, WIDTH = 64, 96
FRAME_BYTES = HEIGHT * WIDTH
CLIP_FRAMES = 96
WINDOW = 16
GAITS = ("walk", "trot", "canter", "gallop")


class Window(NamedTuple):
    clip: Path
    first: int
    gait: int


def prepare(base: Path) -> None:
    rng = np.random.default_rng(1878)  # Muybridge
    for split, clips in (("train", 30), ("val", 6)):
        folder = base / split
        folder.mkdir(parents=True, exist_ok=True)
        for c in range(clips):
            gait = c % len(GAITS)
            phase = np.sin(np.arange(CLIP_FRAMES) * (gait + 1) / 3)[:, None, None]
            frames = rng.normal(110 + 30 * phase, 20, (CLIP_FRAMES, HEIGHT, WIDTH)).clip(0, 255)
            (folder / f"clip{c:03d}_{GAITS[gait]}.gray").write_bytes(frames.astype(np.uint8).tobytes())


class Clips(Dataset):
    def __init__(self, folder: Path) -> None:
        self.windows = []
        for clip in sorted(folder.glob("*.gray")):
            gait = GAITS.index(clip.stem.split("_")[1])
            frames = clip.stat().st_size // FRAME_BYTES
            self.windows += [Window(clip, first, gait) for first in range(0, frames - WINDOW + 1, WINDOW)]

    def __len__(self) -> int:
        return len(self.windows)

    def __getitem__(self, index: int):
        window = self.windows[index]
        with open(window.clip, "rb", buffering=0) as f:
            f.seek(window.first * FRAME_BYTES)
            content = f.read(WINDOW * FRAME_BYTES)
        frames = torch.frombuffer(bytearray(content), dtype=torch.uint8).view(1, WINDOW, HEIGHT, WIDTH)
        return frames, window.gait


class Trainer:
    epochs = 6
    batch = 6
    workers = 2
    ahead = 4
    evaluate_every = 2  # epochs; a checkpoint follows each evaluation
    train_compute = 0.03  # seconds per batch
    eval_compute = 0.012  # seconds per batch

    def __init__(self, base: Path) -> None:
        torch.manual_seed(6)
        torch.set_num_threads(1)
        self.base = base
        self.loader = self._loader("train", True)
        self.val_loader = self._loader("val", False)
        self.model = torch.nn.Sequential(
            torch.nn.AvgPool3d((1, 4, 4)),
            torch.nn.Conv3d(1, 6, (5, 3, 3), stride=(2, 2, 2)),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool3d((4, 2, 2)),
            torch.nn.Flatten(),
            torch.nn.Linear(96, len(GAITS)),
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=4e-3)

    def _loader(self, split: str, shuffle: bool) -> DataLoader:
        return DataLoader(Clips(self.base / split), self.batch, shuffle, num_workers=self.workers,
                          prefetch_factor=self.ahead)  # fmt: skip

    def run(self) -> None:
        for epoch in range(1, self.epochs + 1):
            loss = self.one_epoch()
            line = f"epoch {epoch}: loss {loss:.3f}"
            if epoch % self.evaluate_every == 0:
                line += f", right {self.evaluate():.0%}"
                torch.save({"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()},
                           self.base / f"gait-{epoch}.ckpt")  # fmt: skip
            print(line, flush=True)

    def one_epoch(self) -> float:
        self.model.train()
        total = 0.0
        for frames, gait in self.loader:
            loss = torch.nn.functional.cross_entropy(self.model(frames / 255), gait)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total += loss.item()
            time.sleep(self.train_compute)
        return total / len(self.loader)

    def evaluate(self) -> float:
        self.model.eval()
        right = 0
        with torch.inference_mode():
            for frames, gait in self.val_loader:
                right += int((self.model(frames / 255).argmax(1) == gait).sum())
                time.sleep(self.eval_compute)
        return right / len(self.val_loader.dataset)


if __name__ == "__main__":
    if sys.argv[1:2] == ["prepare"]:
        prepare(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["train"]:
        Trainer(Path(sys.argv[2])).run()
    else:
        sys.exit(__doc__)
