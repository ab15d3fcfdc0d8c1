"""Wake-word spotting. All recordings lie in one npy file, which is mapped, not loaded.

python -m tests.unseen.wake_words prepare DIR
python -m tests.unseen.wake_words train DIR
"""

import os
import sys
import time

import numpy as np

cfg = {"n": 2310, "samples": 8000, "epochs": 3, "batch": 33, "lr": 0.5, "hidden": 24}


def prepare(d):
    os.makedirs(d, exist_ok=True)
    rng = np.random.default_rng(55)
    y = rng.integers(0, 2, cfg["n"]).astype(np.int8)
    x = np.lib.format.open_memmap(f"{d}/X_train.npy", "w+", np.int16, (cfg["n"], cfg["samples"]))
    tone = 900 * np.sin(np.arange(cfg["samples"]) * 0.21)
    for i in range(cfg["n"]):
        x[i] = rng.normal(0, 2000, cfg["samples"]) + tone * y[i]
    x.flush()
    np.save(f"{d}/y_train.npy", y)


def spectrum(wave):
    frames = wave.astype(np.float32).reshape(len(wave), 80, 100) / 2000
    return np.log(np.abs(np.fft.rfft(frames, axis=2)).mean(1) + 1e-3) - 2.0


def train(d):
    x = np.load(f"{d}/X_train.npy", mmap_mode="r")
    y = np.load(f"{d}/y_train.npy")
    rng = np.random.default_rng(0)
    w1 = rng.normal(0, 0.2, (51, cfg["hidden"]))
    w2 = np.zeros(cfg["hidden"])
    for epoch in range(cfg["epochs"]):
        order = rng.permutation(len(x))
        hits = 0
        for i in range(0, len(order), cfg["batch"]):
            idx = order[i : i + cfg["batch"]]
            features, target = spectrum(x[idx]), y[idx]
            h = np.tanh(features @ w1)
            p = 1 / (1 + np.exp(-(h @ w2)))
            hits += ((p > 0.5) == target).sum()
            delta = (p - target) / len(idx)
            back = np.outer(delta, w2) * (1 - h * h)
            w2 -= cfg["lr"] * h.T @ delta
            w1 -= cfg["lr"] * features.T @ back
            time.sleep(0.022)
        np.savez(f"{d}/weights_{epoch}.npz", w1=w1, w2=w2)
        print(f"[{epoch}] accuracy {hits / len(x):.3f}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    locals()[sys.argv[1]](sys.argv[2])
