"""Arrhythmia from 12-lead ECGs. Spawned workers stream recordings out of memory-mapped .npy files.

python -m tests.visitors.ecg_stream prepare DIR
python -m tests.visitors.ecg_stream train DIR
"""

import os
import random
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

HOSPITALS = 8
RECORDINGS = 160
LEADS, LENGTH = 12, 500
MAX_EPOCHS = 3
BATCH_SIZE = 32
NUM_WORKERS = 2
CKPT_STEPS = 50
FAKE_COMPUTE = 0.04


def prepare(path):
    os.makedirs(path, exist_ok=True)
    gen = np.random.default_rng(12)
    for h in range(HOSPITALS):
        y = gen.integers(0, 2, RECORDINGS)
        x = gen.standard_normal((RECORDINGS, LEADS, LENGTH), dtype=np.float32)
        x[:, 0] += y[:, None] * np.sin(np.arange(LENGTH) / 9).astype(np.float32)
        np.save(os.path.join(path, f"ecg_{h}.x.npy"), x)
        np.save(os.path.join(path, f"ecg_{h}.y.npy"), y.astype(np.int8))


class EcgStream(IterableDataset):
    """The workers share out the hospitals, in a new order for each epoch; a hospital's recordings come in order."""

    def __init__(self, path, seed):
        super().__init__()
        self.path = path
        self.seed = seed
        self.epoch = -1  # each persistent worker counts for itself

    def __iter__(self):
        self.epoch += 1
        info = get_worker_info()
        wid, n = (info.id, info.num_workers) if info else (0, 1)
        hospitals = list(range(HOSPITALS))
        random.Random(1000 * self.seed + self.epoch).shuffle(hospitals)
        for h in hospitals[wid::n]:
            x = np.load(os.path.join(self.path, f"ecg_{h}.x.npy"), mmap_mode="r")
            y = np.load(os.path.join(self.path, f"ecg_{h}.y.npy"))
            for i in range(len(x)):
                yield np.array(x[i]), int(y[i])
            del x


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(LEADS, 16, 11, stride=5)
        self.fc = torch.nn.Linear(16, 2)

    def forward(self, x):
        return self.fc(torch.relu(self.conv(x)).mean(-1))


def train(path):
    torch.manual_seed(21)
    torch.set_num_threads(1)
    loader = DataLoader(
        EcgStream(path, seed=21),
        batch_size=BATCH_SIZE,
        num_workers=NUM_WORKERS,
        multiprocessing_context="spawn",
        persistent_workers=True,
    )
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()
    global_step = 0
    for epoch in range(MAX_EPOCHS):
        for x, y in loader:
            optimizer.zero_grad()
            loss = criterion(net(x), y)
            loss.backward()
            optimizer.step()
            time.sleep(FAKE_COMPUTE)
            global_step += 1
            if global_step % CKPT_STEPS == 0:
                ckpt = {"step": global_step, "net": net.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save(ckpt, os.path.join(path, f"step={global_step}.ckpt"))
        print(f"[epoch {epoch}] step {global_step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    action = sys.argv[1]
    if action == "prepare":
        prepare(sys.argv[2])
    elif action == "train":
        train(sys.argv[2])
    else:
        raise ValueError(action)
