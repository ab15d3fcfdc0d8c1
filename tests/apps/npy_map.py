"""A map-style dataset of PyTorch: numpy.load of one .npy file per sample, by three worker processes.

python -m tests.apps.npy_map prepare DIR
DARSHAN_ENABLE_NONMPI=1 python -m tests.apps.npy_map train DIR
"""

import csv
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

STEP_S = 0.03
CONFIG = {"batch_size": 8, "num_workers": 3, "prefetch_factor": 3, "epochs": 3, "lr": 0.02}


def prepare(folder: Path) -> None:
    """Write spectra with three channels; the last channel of the positive ones has an offset."""
    rng = np.random.default_rng(5)
    (folder / "spectra").mkdir(parents=True, exist_ok=True)
    with (folder / "labels.csv").open("w", newline="") as f:
        writer = csv.writer(f)
        writer.writerow(["file", "label"])
        for i in range(192):
            label = int(rng.integers(0, 2))
            x = rng.standard_normal((3, 96, 96)).astype(np.float32)
            x[2] += 0.08 * label
            np.save(folder / "spectra" / f"s{i:04d}.npy", x)
            writer.writerow([f"s{i:04d}.npy", label])


class SpectraDataset(Dataset):  # type: ignore[misc]
    def __init__(self, root: Path) -> None:
        self.root = root / "spectra"
        with (root / "labels.csv").open(newline="") as f:
            self.items = [(row["file"], int(row["label"])) for row in csv.DictReader(f)]

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, idx: int) -> tuple[torch.Tensor, int]:
        name, label = self.items[idx]
        return torch.from_numpy(np.load(self.root / name)), label


def train(folder: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(SpectraDataset(folder), batch_size=CONFIG["batch_size"], shuffle=True, persistent_workers=True,
                        num_workers=CONFIG["num_workers"], prefetch_factor=CONFIG["prefetch_factor"])  # fmt: skip
    model = nn.Sequential(nn.AvgPool2d(32), nn.Flatten(), nn.BatchNorm1d(27), nn.Linear(27, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=CONFIG["lr"], momentum=0.9)
    criterion = nn.BCEWithLogitsLoss()
    for epoch in range(int(CONFIG["epochs"])):
        running = 0.0
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs).squeeze(1), targets.float())
            loss.backward()
            optimizer.step()
            running += loss.item()
            time.sleep(STEP_S)
        print(f"epoch {epoch}: loss {running / len(loader):.3f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
