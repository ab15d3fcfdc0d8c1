"""Energy of molecules from their graphs, an npz file per molecule. Worker processes load the files.

python -m tests.unseen.molecule_graphs prepare DIR
python -m tests.unseen.molecule_graphs train DIR
"""

import pathlib
import sys
import time

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

ATOMS, FEATURES = 138, 22
MOLECULES, EPOCHS, BATCH_SIZE = 204, 3, 6


def make_molecule(rng):
    xyz = rng.normal(size=(ATOMS, 3))
    distance = np.linalg.norm(xyz[:, None] - xyz[None], axis=-1)
    bonds = (distance < 0.7).astype(np.float32) * distance.astype(np.float32)
    feat = rng.normal(size=(ATOMS, FEATURES)).astype(np.float32)
    return {"bonds": bonds, "xyz": xyz, "feat": feat, "energy": np.array([bonds.sum() / ATOMS])}


def main_prepare(where):
    (where / "processed").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(2718)
    for i in range(MOLECULES):
        np.savez(where / "processed" / f"mol{i}.npz", **make_molecule(rng))


class MoleculeFiles(Dataset):
    def __init__(self, where):
        self.files = sorted((where / "processed").glob("mol*.npz"))

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        with np.load(self.files[i]) as z:
            feat = torch.from_numpy(z["feat"])
            bonds, energy = torch.from_numpy(z["bonds"]), torch.from_numpy(z["energy"]).float()
            spread = torch.from_numpy(z["xyz"]).float().std()
        return bonds, feat, spread, energy


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(FEATURES, 32)
        self.out = torch.nn.Linear(33, 1)

    def forward(self, bonds, feat, spread):
        pooled = torch.bmm(bonds, self.embed(feat)).relu().mean(1) + bonds.mean((1, 2))[:, None]
        return self.out(torch.cat([pooled, spread[:, None]], 1))


def main_train(where):
    torch.manual_seed(1)
    loader = DataLoader(MoleculeFiles(where), BATCH_SIZE, shuffle=True, num_workers=8, persistent_workers=True)
    net = Net()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.02)
    for epoch in range(1, EPOCHS + 1):
        total = 0.0
        for bonds, feat, spread, energy in loader:
            loss = (net(bonds, feat, spread) - energy).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
            time.sleep(0.055)
        print(f"{epoch=} mae={total / len(loader):.3f}")
        torch.save(net.state_dict(), where / f"net_{epoch}.pt")


if __name__ == "__main__":
    action, directory = sys.argv[1], pathlib.Path(sys.argv[2])
    main_prepare(directory) if action == "prepare" else main_train(directory)
