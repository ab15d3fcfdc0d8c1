"""Repack an archive of scanned manuscripts: the pages of each ZIP file become one HDF5 file of compressed pages.

python -m tests.newcomers.manuscript_repack prepare DIR
python -m tests.newcomers.manuscript_repack train DIR
"""

import io
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np
from PIL import Image

BOOKS, PAGES, SHAPE = 12, 30, (300, 220)


def prepare(folder: Path) -> None:
    (folder / "zip").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1492)
    for book in range(BOOKS):
        with zipfile.ZipFile(folder / "zip" / f"codex{book:02d}.zip", "w") as archive:
            for page in range(PAGES):
                paper = rng.normal(210, 20, SHAPE).clip(0, 255).astype(np.uint8)
                buffer = io.BytesIO()
                Image.fromarray(paper).save(buffer, "PNG")
                archive.writestr(f"folio{page:03d}.png", buffer.getvalue())


def train(folder: Path) -> None:
    """Convert the archive. The name of the command is that of the other programs."""
    (folder / "h5").mkdir(exist_ok=True)
    for path in sorted((folder / "zip").glob("*.zip")):
        with zipfile.ZipFile(path) as archive, h5py.File(folder / "h5" / f"{path.stem}.h5", "w") as target:
            names = sorted(archive.namelist())
            pages = target.create_dataset(
                "pages", (len(names), *SHAPE), np.uint8, chunks=(1, *SHAPE), compression="gzip"
            )
            for number, name in enumerate(names):
                pages[number] = np.asarray(Image.open(io.BytesIO(archive.read(name))))
        with h5py.File(folder / "h5" / f"{path.stem}.h5", "r") as written:
            print(path.stem, written["pages"][::10].mean())


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
