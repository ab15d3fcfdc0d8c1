#!/usr/bin/env python3
"""COUGH: mel spectrograms, one .npy per recording; binary classification with a GRU.

python -m tests.outsiders.cough_spectra prepare DIR
python -m tests.outsiders.cough_spectra train DIR
"""

import argparse
import glob
import os
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

N_REC, N_MELS, N_FRAMES = 300, 64, 200


def make(args):
    os.makedirs(os.path.join(args.root, "mels"), exist_ok=True)
    g = np.random.default_rng(5)
    for k in range(N_REC):
        ill = k % 3 == 0
        spec = g.gamma(2.0 + ill, 1.0, size=(N_MELS, N_FRAMES)).astype(np.float32)
        np.save(os.path.join(args.root, "mels", f"rec{k:04d}_{'pos' if ill else 'neg'}.npy"), spec)


class Mels(Dataset):
    def __init__(self, root):
        self.paths = sorted(glob.glob(os.path.join(root, "mels", "*.npy")))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        spec = np.log1p(np.load(self.paths[i]))
        return torch.from_numpy(spec.T), float("_pos" in self.paths[i])


class Cough(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(N_MELS, 16, batch_first=True)
        self.fc = nn.Linear(16, 1)

    def forward(self, x):
        _, h = self.gru(x[:, ::8])
        return self.fc(h[-1]).squeeze(1)


def train(args):
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    dl = DataLoader(
        Mels(args.root),
        batch_size=args.batch_size,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        drop_last=False,
    )
    net = Cough()
    opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
    crit = nn.BCEWithLogitsLoss()
    for epoch in range(1, args.epochs + 1):
        tot = 0.0
        for x, y in dl:
            loss = crit(net(x), y.float())
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            tot += loss.item() * len(y)
            time.sleep(0.02)
        torch.save(
            {"epoch": epoch, "state": net.state_dict(), "optim": opt.state_dict()}, os.path.join(args.root, "last.pt")
        )
        print(f"[{epoch:02d}/{args.epochs}] loss={tot / N_REC:.4f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("cmd", choices=["prepare", "train"])
    ap.add_argument("root")
    ap.add_argument("--batch-size", type=int, default=10)
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--seed", type=int, default=0)
    a = ap.parse_args()
    make(a) if a.cmd == "prepare" else train(a)
