"""Mean, deviation, range and histogram of the flux of stars, over all HDF5 files of a survey. One pass, in blocks.

python -m tests.visitors.stellar_stats prepare DIR
python -m tests.visitors.stellar_stats train DIR      ("run" means the same; nothing is trained)
"""

import json
import math
import sys
import time
from pathlib import Path

import h5py
import numpy as np

FILES, STARS, BINS = 8, 500, 1000
BLOCK = 20
ARITHMETIC = 0.025  # seconds of sleep per block, for the fits that the real pipeline makes


def prepare(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1610)
    for n in range(FILES):
        with h5py.File(folder / f"field{n}.h5", "w") as f:
            f.create_dataset("flux", data=rng.lognormal(1, 0.5, (STARS, BINS)).astype("f4"), chunks=(BLOCK, BINS))


class Moments:
    """Chan's parallel update of count, mean and sum of squares."""

    def __init__(self):
        self.n, self.mean, self.m2, self.low, self.high = 0, 0.0, 0.0, math.inf, -math.inf

    def add(self, block):
        n, mean = block.size, float(block.mean(dtype="f8"))
        delta, total = mean - self.mean, self.n + block.size
        self.m2 += float(((block - mean) ** 2).sum(dtype="f8")) + delta**2 * self.n * n / total
        self.mean += delta * n / total
        self.n = total
        self.low, self.high = min(self.low, float(block.min())), max(self.high, float(block.max()))


def run(folder):
    moments, histogram, edges = Moments(), np.zeros(64, np.int64), np.geomspace(0.05, 100, 65)
    for path in sorted(folder.glob("field*.h5")):
        with h5py.File(path, "r") as f:
            flux = f["flux"]
            for start in range(0, len(flux), BLOCK):
                block = flux[start : start + BLOCK]
                moments.add(block)
                histogram += np.histogram(block, edges)[0]
                time.sleep(ARITHMETIC)
        print(f"{path.name}: mean so far {moments.mean:.4f}")
    report = {"mean": moments.mean, "std": math.sqrt(moments.m2 / moments.n), "min": moments.low, "max": moments.high,
              "histogram": histogram.tolist()}  # fmt: skip
    (folder / "statistics.json").write_text(json.dumps(report))


if __name__ == "__main__":
    {"prepare": prepare, "train": run, "run": run}[sys.argv[1]](Path(sys.argv[2]))
