"""Recognise typists by the rhythm of their keystrokes. Sessions of several arrays are loaded before the first step.

python -m tests.newcomers.keystroke_rhythms prepare DIR
python -m tests.newcomers.keystroke_rhythms train DIR
"""

import pickle
import random
import sys
import time
from pathlib import Path

import numpy as np

FILES, PHRASES, KEYS, TYPISTS = 24, 64, 500, 6
EPOCHS, BATCH, SAVE_EVERY = 5, 32, 80


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(3)
    for number in range(FILES):
        holds, gaps = rng.gamma(3, 0.03, (2, PHRASES, KEYS))
        np.savez(folder / f"sitting{number:03d}.npz", holds=holds, gaps=gaps.astype(np.float32),
                 typist=rng.integers(TYPISTS, size=PHRASES))  # fmt: skip


def train(folder: Path) -> None:
    holds, gaps, typists = [], [], []
    for path in sorted(folder.glob("sitting*.npz")):
        with np.load(path) as sitting:
            holds.append(sitting["holds"])
            gaps.append(sitting["gaps"])
            typists.append(sitting["typist"])
    rhythms = np.concatenate([np.concatenate(holds), np.concatenate(gaps)], 1).astype(np.float32)
    typist = np.concatenate(typists)
    rng = np.random.default_rng(10)
    weights = rng.normal(0, 0.01, (2 * KEYS, TYPISTS)).astype(np.float32)
    velocity, step = np.zeros_like(weights), 0
    for _ in range(EPOCHS):
        for batch in rng.permutation(len(rhythms)).reshape(-1, BATCH):
            chances = np.exp(rhythms[batch] @ weights)
            chances /= chances.sum(1, keepdims=True)
            velocity = 0.9 * velocity - 0.01 * rhythms[batch].T @ (chances - np.eye(TYPISTS)[typist[batch]])
            weights += velocity.astype(np.float32)
            time.sleep(max(0.0, random.gauss(0.02, 0.002)))
            step += 1
            if step % SAVE_EVERY == 0:
                with open(folder / f"typist{step}.pickle", "wb") as file:
                    pickle.dump({"weights": weights, "velocity": velocity}, file)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
