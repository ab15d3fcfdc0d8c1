import json
import os
import random
import sys
import time


def prepare(d):
    os.makedirs(d, exist_ok=True)
    r = random.Random(1)
    for m in range(4):
        with open(f"{d}/trips_{m}.csv", "w") as f:
            f.write(",".join(f"c{i}" for i in range(20)) + ",fare\n")
            f.writelines(",".join(f"{r.gauss(0, 1):.5f}" for _ in range(21)) + "\n" for _ in range(3000))


def rows(d):
    for m in range(4):
        with open(f"{d}/trips_{m}.csv") as f:
            next(f)
            for line in f:
                v = [float(x) for x in line.split(",")]
                yield v[:-1], v[-1]


def batches(it, n):
    b = []
    for r in it:
        b.append(r)
        if len(b) == n:
            yield b
            b = []


def train(d):
    w = [0.0] * 20
    for epoch in range(3):
        for b in batches(rows(d), 100):
            g = [0.0] * 20
            for x, y in b:
                e = sum(a * c for a, c in zip(w, x, strict=False)) - y
                for i in range(20):
                    g[i] += e * x[i]
            w = [a - 1e-3 * c / len(b) for a, c in zip(w, g, strict=False)]
            time.sleep(0.025)
        with open(f"{d}/fare_model_{epoch}.json", "w") as f:
            json.dump(w, f)
        print("epoch", epoch)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](sys.argv[2])
