"""Diatom species from microscope crops. Crops have very different sizes (PNG).

python -m tests.outsiders.diatom_png prepare DIR
python -m tests.outsiders.diatom_png train DIR
"""

import io
import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

SPECIES = 5
N = 260
BS = 8
EPOCHS = 2


def prepare(d):
    os.makedirs(d + "/crops", exist_ok=True)
    rs = np.random.RandomState(99)
    lines = []
    for i in range(N):
        s = int(rs.lognormal(4.9, 0.45))
        s = min(max(s, 48), 420)
        sp = rs.randint(SPECIES)
        a = rs.randint(0, 100 + 20 * sp, (s, int(s * rs.uniform(0.7, 1.4)))).astype(np.uint8)
        Image.fromarray(a).save("%s/crops/d%05d.png" % (d, i))
        lines.append("d%05d.png,%d" % (i, sp))
    with open(d + "/labels.csv", "w") as f:
        f.write("\n".join(lines) + "\n")


def load(path):
    with open(path, "rb") as f:
        raw = f.read()
    img = Image.open(io.BytesIO(raw)).convert("L").resize((64, 64), Image.BILINEAR)
    return np.asarray(img, np.float32)[None] / 255


def batches(d, table):
    random.shuffle(table)
    for k in range(0, len(table), BS):
        part = table[k : k + BS]
        x = np.stack([load(os.path.join(d, "crops", n)) for n, _ in part])
        yield torch.from_numpy(x), torch.tensor([s for _, s in part])


def train(d):
    random.seed(11)
    torch.manual_seed(11)
    torch.set_num_threads(1)
    with open(d + "/labels.csv") as f:
        table = [(n, int(s)) for n, s in (line.strip().split(",") for line in f)]
    w = torch.nn.Sequential(
        torch.nn.Conv2d(1, 12, 7, 3),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(3),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(SPECIES),
    )
    w(torch.zeros(1, 1, 64, 64))
    sgd = torch.optim.SGD(w.parameters(), 0.01, momentum=0.9)
    step = 0
    for e in range(EPOCHS):
        for x, y in batches(d, table):
            loss = F.cross_entropy(w(x), y)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            time.sleep(0.025)
            step += 1
        print("epoch", e, "step", step, "loss", loss.item())
    torch.save(w.state_dict(), d + "/diatoms_final.pt")


if __name__ == "__main__":
    (prepare if sys.argv[1] == "prepare" else train)(sys.argv[2])
