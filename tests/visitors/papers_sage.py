"""GraphSAGE on a citation graph with two hops of random neighbours. Features stay on disk, behind a memory map.

python -m tests.visitors.papers_sage prepare DIR
python -m tests.visitors.papers_sage train DIR
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

FANOUT = (8, 4)
SEEDS = 128  # papers to classify per step
EPOCHS = 3
KERNEL_TIME = 0.03  # s per step; the hidden size of the paper (1024) would need about as long on a V100


def prepare(d: Path):
    d.mkdir(parents=True, exist_ok=True)
    n, dim, classes = 30_000, 128, 10
    rng = np.random.default_rng(1)
    label = rng.integers(classes, size=n)
    feat = np.memmap(d / "feat.f32", dtype=np.float32, mode="w+", shape=(n, dim))
    for a in range(0, n, 5000):
        feat[a : a + 5000] = rng.normal(size=(5000, dim)) + 0.1 * label[a : a + 5000, None]
    feat.flush()
    degree = rng.integers(2, 30, size=n)
    np.save(d / "indptr.npy", np.concatenate([[0], np.cumsum(degree)]))
    np.save(d / "indices.npy", rng.integers(n, size=degree.sum()).astype(np.int32))
    np.save(d / "label.npy", label)
    np.save(d / "train_idx.npy", np.sort(rng.permutation(n)[:6400]))
    (d / "meta.json").write_text(json.dumps({"nodes": n, "dim": dim, "classes": classes}))


class Graph:
    def __init__(self, d: Path):
        self.meta = json.loads((d / "meta.json").read_text())
        self.indptr = np.load(d / "indptr.npy")
        self.indices = np.load(d / "indices.npy")
        self.label = np.load(d / "label.npy")
        self.feat = np.memmap(d / "feat.f32", np.float32, "r", shape=(self.meta["nodes"], self.meta["dim"]))

    def neighbours(self, nodes, k, rng):
        start, stop = self.indptr[nodes], self.indptr[nodes + 1]
        pick = start[:, None] + (rng.random((len(nodes), k)) * (stop - start)[:, None]).astype(np.int64)
        return self.indices[pick]

    def gather(self, nodes):
        # each node once, in order of position in the file
        unique, back = np.unique(nodes, return_inverse=True)
        return torch.from_numpy(self.feat[unique])[torch.from_numpy(back.reshape(nodes.shape))]


class Sage(nn.Module):
    def __init__(self, dim, classes, hidden=32):
        super().__init__()
        self.l1 = nn.Linear(2 * dim, hidden)
        self.l2 = nn.Linear(2 * hidden, classes)

    def forward(self, x0, x1, x2):
        h1 = torch.relu(self.l1(torch.cat([x1, x2.mean(2)], -1)))  # neighbours, from theirs
        h0 = torch.relu(self.l1(torch.cat([x0, x1.mean(1)], -1)))  # seeds, from their neighbours
        return self.l2(torch.cat([h0, h1.mean(1)], -1))


def train(d: Path):
    rng = np.random.default_rng(99)
    torch.manual_seed(99)
    torch.set_num_threads(1)
    g = Graph(d)
    train_idx = np.load(d / "train_idx.npy")
    model = Sage(g.meta["dim"], g.meta["classes"])
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    for ep in range(EPOCHS):
        perm = rng.permutation(train_idx)
        running = 0.0
        for lo in range(0, len(perm), SEEDS):
            seeds = perm[lo : lo + SEEDS]
            hop1 = g.neighbours(seeds, FANOUT[0], rng)
            hop2 = g.neighbours(hop1.ravel(), FANOUT[1], rng).reshape(*hop1.shape, FANOUT[1])
            logits = model(g.gather(seeds), g.gather(hop1), g.gather(hop2))
            loss = nn.functional.cross_entropy(logits, torch.from_numpy(g.label[seeds]))
            opt.zero_grad()
            loss.backward()
            opt.step()
            running += loss.item()
            time.sleep(KERNEL_TIME)
        print(f"ep {ep}  loss {running / (len(perm) / SEEDS):.4f}")
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "epochs": EPOCHS}, d / "sage_final.pt")


if __name__ == "__main__":
    _, verb, path = sys.argv
    {"prepare": prepare, "train": train}[verb](Path(path))
