"""Verify the checksums of an archive. Every file is read once, in blocks, and compared with the manifest.

python -m tests.strangers.archive_fixity prepare DIR
python -m tests.strangers.archive_fixity train DIR
"""

import hashlib
import sys
import time
from pathlib import Path

import numpy as np

RECORDS, BLOCK = 36, 1 << 18


def prepare(folder: Path) -> None:
    rng = np.random.default_rng(1)
    lines = []
    for record in range(RECORDS):
        path = folder / "records" / f"{1960 + record // 4}" / f"item{record:03d}.{('tif', 'wav', 'xml')[record % 3]}"
        path.parent.mkdir(parents=True, exist_ok=True)
        content = rng.bytes(int(rng.integers(100_000, 4_000_000)))
        path.write_bytes(content)
        lines.append(f"{hashlib.sha256(content).hexdigest()}  {path.relative_to(folder)}")
    (folder / "manifest-sha256.txt").write_text("\n".join(lines) + "\n")


def digest(path: Path) -> str:
    state = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            state.update(block)
            time.sleep(0.004)
    return state.hexdigest()


def train(folder: Path) -> None:
    """Verify the archive. The name of the command is that of the other programs."""
    with open(folder / "manifest-sha256.txt") as manifest, open(folder / "fixity.log", "w") as log:
        for line in manifest:
            expected, name = line.split()
            verdict = "ok" if digest(folder / name) == expected else "FAILED"
            log.write(f"{name}: {verdict}\n")
            log.flush()


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
