"""Answers requests from a table on disk."""

import pathlib
import random
import sys
import time


def prepare(d):
    d.mkdir(parents=True, exist_ok=True)
    r = random.Random(3)
    for s in range(4):
        with open(d / f"shard{s}.tab", "wb") as f:
            f.writelines(r.randbytes(4096) for _ in range(1000))


def train(d):
    fs = [open(d / f"shard{s}.tab", "rb", buffering=0) for s in range(4)]
    r = random.Random(8)
    with open(d / "answers.log", "w") as out:
        for q in range(300):
            for _ in range(r.randint(8, 40)):
                f = r.choice(fs)
                f.seek(4096 * r.randrange(1000))
                b = f.read(4096)
            out.write(f"{q} {b[:8].hex()}\n")
            out.flush()
            time.sleep(0.02)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](pathlib.Path(sys.argv[2]))
