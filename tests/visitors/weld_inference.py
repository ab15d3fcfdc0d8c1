"""Find faulty welds in ultrasound images with a model that was trained elsewhere. One pass; writes predictions.

python -m tests.visitors.weld_inference prepare DIR    images and weights
python -m tests.visitors.weld_inference train DIR      inference ("run" does the same)
"""

import csv
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

IMAGES, SIDE, BATCH = 800, 96, 10
FORWARD_SECONDS = 0.06  # per batch


def make_model():
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 32, 8, stride=8), torch.nn.BatchNorm2d(32), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(32 * 12 * 12, 128), torch.nn.ReLU(), torch.nn.Dropout(0.3), torch.nn.Linear(128, 3),
    )  # fmt: skip


def prepare(root: Path) -> None:
    (root / "images").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    for i in range(IMAGES):
        np.save(root / "images" / f"weld_{i:05d}.npy", rng.random((1, SIDE, SIDE), dtype=np.float32))
    torch.manual_seed(3)
    torch.save(make_model().state_dict(), root / "weights.pt")


class Images(Dataset):
    def __init__(self, folder: Path) -> None:
        self.files = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, i: int):
        return torch.from_numpy(np.load(self.files[i])), self.files[i].name


@torch.inference_mode()
def predict(root: Path) -> None:
    model = make_model()
    torch.set_num_threads(1)
    model.load_state_dict(torch.load(root / "weights.pt", weights_only=True))
    model.eval()
    loader = DataLoader(Images(root / "images"), batch_size=BATCH, num_workers=2)
    scores = []
    with open(root / "predictions.csv", "w", newline="") as f:
        table = csv.writer(f)
        table.writerow(["image", "class", "probability"])
        for done, (images, names) in enumerate(loader, 1):
            probability = model(images).softmax(1)
            best = probability.max(1)
            table.writerows(zip(names, best.indices.tolist(), best.values.tolist(), strict=False))
            scores.append(probability.numpy())
            time.sleep(FORWARD_SECONDS)
            if done % 20 == 0:
                print(f"{done} of {len(loader)} batches", flush=True)
    np.save(root / "scores.npy", np.concatenate(scores))


if __name__ == "__main__":
    {"prepare": prepare, "train": predict, "run": predict}[sys.argv[1]](Path(sys.argv[2]))
