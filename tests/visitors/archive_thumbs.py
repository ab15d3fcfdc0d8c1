"""Thumbnails of a photo archive, with two processes.

python -m tests.visitors.archive_thumbs prepare DIR
python -m tests.visitors.archive_thumbs train DIR     ("run" is a synonym; no model is involved)
"""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

PHOTOS = 180
PROCESSES = 2
REST = 0.04  # seconds per photo, for the colour management that this lacks


def prepare(where: Path) -> None:
    (where / "photos").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1826)
    for i in range(PHOTOS):
        small = Image.fromarray(rng.integers(0, 256, (100, 150, 3), dtype=np.uint8))
        photo = small.resize((900, 600), Image.Resampling.BILINEAR)
        photo.save(where / "photos" / f"IMG_{i:04d}.jpg", quality=90)


def thumbnail(source: Path, target: Path) -> int:
    with Image.open(source) as photo:
        small = ImageOps.fit(photo.convert("RGB"), (160, 160), Image.Resampling.LANCZOS)
    out = target / (source.stem + ".png")
    small.save(out)
    time.sleep(REST)
    return out.stat().st_size


def run(where: Path) -> None:
    target = where / "thumbs"
    target.mkdir(exist_ok=True)
    photos = sorted((where / "photos").glob("*.jpg"))
    total = 0
    with ProcessPoolExecutor(PROCESSES) as pool:
        for n, size in enumerate(pool.map(partial(thumbnail, target=target), photos, chunksize=8), 1):
            total += size
            if n % 60 == 0:
                print(f"{n} thumbnails, {total} bytes", flush=True)


if __name__ == "__main__":
    {"prepare": prepare, "train": run, "run": run}[sys.argv[1]](Path(sys.argv[2]))
