"""Emulator of an aerosol scheme: columns of an atmosphere model -> tendencies.

All columns are rows of one matrix (columns.npy), which is memory-mapped. One row: 1536 inputs, 512 targets.

python -m tests.outsiders.aerosol_rows prepare DIR
python -m tests.outsiders.aerosol_rows train DIR
"""

import sys
import time
from os.path import join
from pathlib import Path

import numpy as np
import torch

ROWS, INPUTS, TARGETS = 4000, 1536, 512


def prepare(folder):
    Path(folder).mkdir(parents=True, exist_ok=True)
    out = np.lib.format.open_memmap(join(folder, "columns.npy"), "w+", np.float32, (ROWS, INPUTS + TARGETS))
    rng = np.random.default_rng(31)
    w = rng.normal(0, 0.02, (INPUTS, TARGETS))
    for a in range(0, ROWS, 500):
        x = rng.normal(0, 1, (500, INPUTS))
        out[a : a + 500, :INPUTS] = x
        out[a : a + 500, INPUTS:] = x @ w
    out.flush()


class Columns(torch.utils.data.Dataset):
    def __init__(self, path):
        self.data = np.load(path, mmap_mode="r")

    def __len__(self):
        return self.data.shape[0]

    def __getitem__(self, idx):
        row = np.array(self.data[idx])
        return row[:INPUTS], row[INPUTS:]


def train(folder):
    torch.manual_seed(8)
    torch.set_num_threads(1)
    ds = Columns(join(folder, "columns.npy"))
    loader = torch.utils.data.DataLoader(ds, batch_size=40, shuffle=True)
    net = torch.nn.Sequential(torch.nn.Linear(INPUTS, 64), torch.nn.SiLU(), torch.nn.Linear(64, TARGETS))
    adam = torch.optim.Adam(net.parameters(), 1e-3)
    for epoch in range(3):
        for x, y in loader:
            adam.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            adam.step()
            time.sleep(0.015)
        print(f"epoch {epoch}: mse {loss.item():.5f}")
        torch.save(net.state_dict(), join(folder, f"emulator-e{epoch}.pt"))


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2])
