"""Free parking lots: webdataset shards (jpg + json).

python -m tests.outsiders.parking_wds prepare DIR
python -m tests.outsiders.parking_wds train DIR
"""

import io
import os
import sys
import time

import numpy as np
import torch
import webdataset as wds
from PIL import Image
from torch import nn

NSHARDS, SHARDLEN = 8, 50


def prepare(where):
    os.makedirs(where, exist_ok=True)
    rng = np.random.default_rng(42)
    with wds.ShardWriter(os.path.join(where, "parking-%04d.tar"), maxcount=SHARDLEN) as sink:
        for i in range(NSHARDS * SHARDLEN):
            free = int(rng.integers(2))
            px = rng.normal(110 + 30 * free, 20 + 15 * rng.random(), (224, 224, 3)).clip(0, 255)
            buf = io.BytesIO()
            Image.fromarray(px.astype("uint8")).save(buf, "JPEG", quality=88)
            sink.write({"__key__": f"lot{i:06d}", "jpg": buf.getvalue(), "json": {"free": free, "camera": i % 7}})


def to_pair(sample):
    img, meta = sample
    return img[:, ::2, ::2], meta["free"]


def main(where):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    url = os.path.join(where, "parking-{0000..%04d}.tar" % (NSHARDS - 1))
    dataset = (
        wds.WebDataset(url, shardshuffle=100)
        .shuffle(60)
        .decode("torchrgb")
        .to_tuple("jpg", "json")
        .map(to_pair)
        .batched(20)
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=2)
    model = nn.Sequential(nn.Conv2d(3, 6, 9, 4), nn.ReLU(), nn.AdaptiveMaxPool2d(4), nn.Flatten(), nn.Linear(96, 2))
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        n = 0
        for img, target in loader:
            loss = nn.functional.cross_entropy(model(img), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
            n += len(target)
            time.sleep(0.04)
        torch.save(
            {"model": model.state_dict(), "opt": opt.state_dict(), "epoch": epoch}, os.path.join(where, f"ep{epoch}.pt")
        )
        print("epoch", epoch, "samples", n, "loss", float(loss))


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(sys.argv[2])
    else:
        main(sys.argv[2])
