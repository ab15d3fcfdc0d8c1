"""Post-processing of a weather model: means and extremes of every output file, in the order of time.

python -m tests.unseen.daily_means prepare DIR
python -m tests.unseen.daily_means train DIR
"""

import glob
import json
import os
import sys
import time

import h5py
import numpy as np

HOURS, NLAT, NLON = 84, 90, 180


def prepare(d):
    os.makedirs(d, exist_ok=True)
    rng = np.random.default_rng(12)
    for hour in range(HOURS):
        with h5py.File(f"{d}/out_{hour:04d}.h5", "w") as f:
            f["T"] = 288 + rng.normal(size=(3, NLAT, NLON)).astype("f4")
            f["U"] = rng.normal(size=(3, NLAT, NLON)).astype("f4")
            f.attrs["hour"] = hour


def train(d):
    """Compute the climatology. The name of the command is that of the other programs."""
    weights = np.cos(np.linspace(-np.pi / 2, np.pi / 2, NLAT))[:, None] * np.ones(NLON)
    mean, series = np.zeros((3, NLAT, NLON)), []
    for k, name in enumerate(sorted(glob.glob(f"{d}/out_*.h5"))):
        with h5py.File(name, "r") as f:
            temperature, wind = f["T"][:], f["U"][:]
        mean += (temperature - mean) / (k + 1)
        series.append(float(np.average(temperature[0], weights=weights)))
        gust = float(np.abs(wind).max())
        time.sleep(0.03)  # the regridding
        if k % 24 == 23:
            with open(f"{d}/day_{k // 24}.json", "w") as out:
                json.dump({"mean": np.mean(series[-24:]), "gust": gust}, out)
    with h5py.File(f"{d}/climatology.h5", "w") as f:
        f["T_mean"] = mean
        f["T_global"] = series


if __name__ == "__main__":
    prepare(sys.argv[2]) if sys.argv[1] == "prepare" else train(sys.argv[2])
