"""Road signs from a moving car: WebDataset shards, with shuffled shards and a shuffle buffer.

python -m tests.visitors.road_signs prepare DIR
python -m tests.visitors.road_signs train DIR
"""

import io
import os
import sys
import time

import numpy as np
import torch
import webdataset as wds
from PIL import Image

SHARDS = 12
PER_SHARD = 80
CLASSES = 6
BATCH = 24
EPOCHS = 3
BUFFER = 200
WORKERS = 2
STEP_SECONDS = 0.04  # stands for the forward and backward of EfficientNet


def prepare(out):
    os.makedirs(out, exist_ok=True)
    rng = np.random.default_rng(77)
    for s in range(SHARDS):
        with wds.TarWriter(os.path.join(out, "signs-%06d.tar" % s)) as sink:
            for i in range(PER_SHARD):
                label = int(rng.integers(CLASSES))
                img = rng.integers(0, 160, (128, 128, 3), dtype=np.uint8)
                img[20:100, 20:100, label % 3] += 15 * (1 + label // 3)
                buf = io.BytesIO()
                Image.fromarray(img).save(buf, format="JPEG", quality=85)
                sink.write({"__key__": "%06d_%04d" % (s, i), "jpg": buf.getvalue(), "cls": str(label).encode()})


def to_tensor(img):
    return torch.from_numpy(np.asarray(img, dtype=np.float32).transpose(2, 0, 1) / 255.0)


def make_loader(where):
    urls = os.path.join(where, "signs-{000000..%06d}.tar" % (SHARDS - 1))
    ds = (
        wds.WebDataset(urls, shardshuffle=SHARDS, detshuffle=True, seed=7, empty_check=False)
        .shuffle(BUFFER, initial=BUFFER, seed=7)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(to_tensor, lambda c: c)
        .batched(BATCH, partial=False)
    )
    return wds.WebLoader(ds, batch_size=None, num_workers=WORKERS, persistent_workers=True)


def main(where):
    torch.manual_seed(7)
    torch.set_num_threads(1)
    loader = make_loader(where)
    model = torch.nn.Sequential(
        torch.nn.AvgPool2d(4),
        torch.nn.Conv2d(3, 10, 5, stride=3),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.LazyLinear(CLASSES),
    )
    model(torch.zeros(1, 3, 128, 128))
    opt = torch.optim.RMSprop(model.parameters(), lr=5e-4)
    crit = torch.nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        n, acc = 0, 0.0
        for images, labels in loader:
            out = model(images)
            loss = crit(out, torch.as_tensor(labels))
            opt.zero_grad()
            loss.backward()
            opt.step()
            acc += (out.argmax(1) == torch.as_tensor(labels)).float().mean().item()
            n += 1
            time.sleep(STEP_SECONDS)
        torch.save(model.state_dict(), os.path.join(where, "signs-epoch%d.pth" % epoch))
        print("epoch %d: %d batches, loss %.3f, acc %.3f" % (epoch, n, loss.item(), acc / n))


if __name__ == "__main__":
    {"prepare": prepare, "train": main}[sys.argv[1]](sys.argv[2])
