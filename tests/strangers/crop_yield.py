"""Forecast crop yields from a year of satellite reflectances. Each region is a CSV file, read anew in every epoch.

python -m tests.strangers.crop_yield prepare DIR
python -m tests.strangers.crop_yield train DIR
"""

import pickle
import random
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

REGIONS, FIELDS, FEATURES = 14, 560, 300
EPOCHS, BATCH = 4, 56


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(66)
    names = [f"r{week:02d}_{band}" for week in range(50) for band in ("b02", "b03", "b04", "b08", "b11", "b12")]
    for region in range(REGIONS):
        reflectance = rng.uniform(0, 0.9, (FIELDS, FEATURES))
        table = pd.DataFrame(reflectance, columns=names)
        table["yield"] = reflectance[:, 90:120].mean(1) + 0.05 * rng.random(FIELDS)
        table.to_csv(folder / f"region-{region:02d}.csv", index=False, float_format="%.7f")


def train(folder: Path) -> None:
    regions = sorted(folder.glob("region-*.csv"))
    weights, bias = np.zeros(FEATURES), 0.4
    shuffler = random.Random(9)
    history = []
    for epoch in range(EPOCHS):
        shuffler.shuffle(regions)
        for region in regions:
            table = pd.read_csv(region)
            target = table.pop("yield").to_numpy()
            inputs = table.to_numpy() - 0.45
            for start in range(0, FIELDS, BATCH):
                x, y = inputs[start : start + BATCH], target[start : start + BATCH]
                error = x @ weights + bias - y
                weights -= 0.05 * x.T @ error / BATCH
                bias -= 0.05 * error.mean()
                history.append((epoch, region.stem, float(np.abs(error).mean())))
                time.sleep(shuffler.uniform(0.011, 0.017))
        with open(folder / f"forecast-{epoch}.pickle", "wb") as file:
            pickle.dump({"weights": weights, "bias": bias, "ensemble": np.tile(weights, (30, 1))}, file)
        print(f"epoch {epoch}: error {np.mean([error for when, _, error in history if when == epoch]):.4f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
