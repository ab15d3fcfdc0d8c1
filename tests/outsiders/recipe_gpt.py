"""A tiny language model of recipes. Tokens are kept as Megatron-LM keeps them: PREFIX.idx and PREFIX.bin.

A sequence is a recipe. Reads go to the file, without a memory map (Megatron's --no-mmap-bin-files).

python -m tests.outsiders.recipe_gpt prepare DIR
python -m tests.outsiders.recipe_gpt train DIR
"""

import argparse
import os
import struct
import time

import numpy as np
import torch
from torch import nn

_HEADER = b"MMIDIDX\x00\x00"
DTYPES = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 6: np.float64, 7: np.float32, 8: np.uint16}
VOCAB = 8000
N_RECIPES = 3000


class IndexedDatasetBuilder:
    def __init__(self, prefix):
        self.prefix, self.lengths, self.bin = prefix, [], open(prefix + ".bin", "wb")

    def add(self, tokens):
        self.bin.write(tokens.astype(np.uint16).tobytes())
        self.lengths.append(len(tokens))

    def finalize(self):
        self.bin.close()
        lengths = np.array(self.lengths, np.int32)
        pointers = np.zeros(len(lengths), np.int64)
        pointers[1:] = np.cumsum(lengths[:-1].astype(np.int64) * 2)
        documents = np.arange(len(lengths) + 1, dtype=np.int64)
        with open(self.prefix + ".idx", "wb") as f:
            f.write(_HEADER + struct.pack("<QB", 1, 8) + struct.pack("<QQ", len(lengths), len(documents)))
            f.write(lengths.tobytes() + pointers.tobytes() + documents.tobytes())


class IndexedDataset(torch.utils.data.Dataset):
    def __init__(self, prefix):
        self.bin_path = prefix + ".bin"
        with open(prefix + ".idx", "rb") as f:
            assert f.read(9) == _HEADER
            version, code = struct.unpack("<QB", f.read(9))
            assert version == 1
            self.dtype = np.dtype(DTYPES[code])
            n, _ = struct.unpack("<QQ", f.read(16))
            self.lengths = np.frombuffer(f.read(4 * n), np.int32)
            self.pointers = np.frombuffer(f.read(8 * n), np.int64)

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        seq = np.empty(self.lengths[i], self.dtype)
        with open(self.bin_path, "rb", buffering=0) as f:
            f.seek(int(self.pointers[i]))
            f.readinto(seq)
        return torch.from_numpy(seq.astype(np.int64))


def pad(batch):
    return nn.utils.rnn.pad_sequence([s[:256] for s in batch], batch_first=True)


def prepare(d):
    os.makedirs(d, exist_ok=True)
    rng = np.random.default_rng(12)
    b = IndexedDatasetBuilder(os.path.join(d, "recipes_text_document"))
    for _ in range(N_RECIPES):
        b.add(rng.zipf(1.3, int(rng.integers(900, 3100))) % VOCAB)
    b.finalize()


def train(d, batch=12, epochs=2, save_interval=100):
    torch.manual_seed(1234)
    torch.set_num_threads(1)
    ds = IndexedDataset(os.path.join(d, "recipes_text_document"))
    dl = torch.utils.data.DataLoader(ds, batch, shuffle=True, num_workers=2, persistent_workers=True, collate_fn=pad)
    lm = nn.ModuleDict(
        {"emb": nn.Embedding(VOCAB, 24), "rnn": nn.GRU(24, 24, batch_first=True), "out": nn.Linear(24, 64)}
    )
    opt = torch.optim.AdamW(lm.parameters(), 1e-3)
    it = 0
    for _ in range(epochs):
        for tok in dl:
            h, _ = lm["rnn"](lm["emb"](tok[:, :48]))
            loss = nn.functional.cross_entropy(lm["out"](h[:, :-1]).flatten(0, 1), (tok[:, 1:48] % 64).flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            time.sleep(0.015)
            it += 1
            if it % save_interval == 0:
                where = os.path.join(d, "checkpoints", "iter_%07d" % it)
                os.makedirs(where, exist_ok=True)
                torch.save(
                    {"iteration": it, "model": lm.state_dict(), "optimizer": opt.state_dict()}, where + "/model.pt"
                )
                print(f"iteration {it} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("what", choices=("prepare", "train"))
    p.add_argument("dir")
    a = p.parse_args()
    {"prepare": prepare, "train": train}[a.what](a.dir)
