import json
import pathlib
import sys

import numpy as np
from PIL import Image


def prepare(d):
    d.mkdir(parents=True, exist_ok=True)
    r = np.random.default_rng(6)
    for i in range(150):
        Image.fromarray(r.integers(0, 255, (20, 24, 3), dtype=np.uint8)).resize((320, 240)).save(d / f"im{i:03d}.png")


def train(d):
    ps = sorted(d.glob("im*.png"))
    s = np.zeros(3)
    n = 0
    for p in ps:
        a = np.asarray(Image.open(p), float).reshape(-1, 3)
        s += a.sum(0)
        n += len(a)
    m = s / n
    q = np.zeros(3)
    for p in ps:
        q += ((np.asarray(Image.open(p), float).reshape(-1, 3) - m) ** 2).sum(0)
    (d / "stats.json").write_text(json.dumps({"mean": m.tolist(), "std": np.sqrt(q / n).tolist()}))


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](pathlib.Path(sys.argv[2]))
