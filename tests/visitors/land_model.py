import pathlib
import sys
import time

import numpy as np


def prepare(d):
    d.mkdir(parents=True, exist_ok=True)
    r = np.random.default_rng(1)
    for m in range(12):
        (d / f"forcing_{m + 1:02d}.bin").write_bytes(r.normal(size=(30, 90, 120)).astype(np.float32).tobytes())


def train(d):
    T = np.zeros((90, 120), np.float32)
    for year in range(5):
        for m in range(12):
            with open(d / f"forcing_{m + 1:02d}.bin", "rb") as f:
                for _day in range(30):
                    F = np.frombuffer(f.read(90 * 120 * 4), np.float32).reshape(90, 120)
                    T += 0.1 * (F - T) + 0.05 * (np.roll(T, 1, 0) + np.roll(T, -1, 0) - 2 * T)
                    time.sleep(0.004)
        (d / f"restart_{year}.bin").write_bytes(T.tobytes())


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](pathlib.Path(sys.argv[2]))
