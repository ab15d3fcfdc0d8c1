import pathlib
import random
import sys
import time

import numpy as np

A = "abcdefghijklmnopqrstuvwxyz .,"


def prepare(d):
    d.mkdir(parents=True, exist_ok=True)
    r = random.Random(4)
    for i in range(30):
        (d / f"story{i:02d}.txt").write_text("".join(r.choices(A, k=r.randint(15000, 45000))))


def train(d):
    idx = {c: i for i, c in enumerate(A)}
    W = np.zeros((len(A), len(A)))
    paths = sorted(d.glob("story*.txt"))
    rnd = random.Random(7)
    for epoch in range(4):
        rnd.shuffle(paths)
        steps = 0
        for p in paths:
            t = np.array([idx[c] for c in p.read_text()])
            n = len(t) // 129
            win = t[: n * 129].reshape(n, 129)
            np.random.shuffle(win)
            for s in range(0, n - 31, 32):
                b = win[s : s + 32]
                a, c = b[:, :-1].ravel(), b[:, 1:].ravel()
                z = np.exp(W[a])
                z /= z.sum(1, keepdims=True)
                z[np.arange(len(c)), c] -= 1
                np.add.at(W, a, -0.1 * z / len(c))
                time.sleep(0.03)
                steps += 1
        np.savez(d / "letters_model.npz", W=W, epoch=epoch)
        print(epoch, steps)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](pathlib.Path(sys.argv[2]))
