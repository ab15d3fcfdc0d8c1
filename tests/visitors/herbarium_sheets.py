#!/usr/bin/env python
"""Plant families from small crops of herbarium sheets, kept in two LMDB environments (train and val).

A record: label (uint16, little endian) followed by 96*96*3 bytes of pixels. Key: eight digits.
Usage: herbarium_sheets.py (prepare|train) DIR
"""

import os
import struct
import sys
import time

import lmdb
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import data

CFG = {
    "n_train": 720,
    "n_val": 96,
    "side": 96,
    "families": 8,
    "batch": 32,
    "workers": 2,
    "prefetch": 3,
    "epochs": 5,
    "lr": 0.02,
    "compute_s": 0.04,  # the ResNet-50 that this stands for: 40 ms a batch of training
    "eval_compute_s": 0.02,  # and 20 ms a batch of evaluation
}


def prepare(d):
    os.makedirs(d, exist_ok=True)
    rs = np.random.RandomState(5)
    for name, n in (("train", CFG["n_train"]), ("val", CFG["n_val"])):
        env = lmdb.open(os.path.join(d, name + ".lmdb"), map_size=1 << 28)
        with env.begin(write=True) as txn:
            for i in range(n):
                fam = rs.randint(CFG["families"])
                img = rs.randint(0, 200, (CFG["side"], CFG["side"], 3)).astype(np.uint8)
                img[:, :, fam % 3] += np.uint8(6 * fam)
                txn.put(b"%08d" % i, struct.pack("<H", fam) + img.tobytes())
            txn.put(b"__len__", b"%d" % n)
        env.sync()
        env.close()


class Sheets(data.Dataset):
    def __init__(self, path):
        self.path = path
        self.env = None
        env = self._connect()
        with env.begin() as txn:
            self.n = int(txn.get(b"__len__"))
        env.close()

    def _connect(self):
        return lmdb.open(self.path, readonly=True, lock=False, readahead=False, meminit=False, max_readers=64)

    def __len__(self):
        return self.n

    def __getitem__(self, idx):
        if self.env is None:  # each worker has its own
            self.env = self._connect()
        with self.env.begin(buffers=True) as txn:
            rec = txn.get(b"%08d" % idx)
            (fam,) = struct.unpack_from("<H", rec)
            img = np.frombuffer(rec, np.uint8, offset=2).reshape(CFG["side"], CFG["side"], 3).copy()
        return torch.from_numpy(img).permute(2, 0, 1).float().div_(255), fam


def net():
    return nn.Sequential(
        nn.AvgPool2d(4),
        nn.Conv2d(3, 12, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(192, CFG["families"]),
    )


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    hit = n = 0
    for x, y in loader:
        hit += (model(x).argmax(1) == y).sum().item()
        n += len(y)
        time.sleep(CFG["eval_compute_s"])
    model.train()
    return hit / n


def train(d):
    torch.manual_seed(1753)
    torch.set_num_threads(1)
    kw = {"batch_size": CFG["batch"], "num_workers": CFG["workers"], "prefetch_factor": CFG["prefetch"]}
    tr = data.DataLoader(Sheets(os.path.join(d, "train.lmdb")), shuffle=True, drop_last=True, **kw)
    va = data.DataLoader(Sheets(os.path.join(d, "val.lmdb")), **kw)
    model = net()
    sgd = torch.optim.SGD(model.parameters(), lr=CFG["lr"], momentum=0.9)
    sched = torch.optim.lr_scheduler.StepLR(sgd, 2, 0.5)
    for ep in range(CFG["epochs"]):
        for x, y in tr:
            loss = F.cross_entropy(model(x), y)
            sgd.zero_grad()
            loss.backward()
            sgd.step()
            time.sleep(CFG["compute_s"])
        sched.step()
        acc = accuracy(model, va)
        tmp = os.path.join(d, "checkpoint.pth.tmp")
        torch.save(
            {"epoch": ep + 1, "net": model.state_dict(), "sgd": sgd.state_dict(), "sched": sched.state_dict()}, tmp
        )
        os.replace(tmp, os.path.join(d, "checkpoint.pth"))
        print("[%d] loss=%.3f acc=%.3f" % (ep, loss.item(), acc), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    globals()[{"prepare": "prepare", "train": "train"}[sys.argv[1]]](sys.argv[2])
