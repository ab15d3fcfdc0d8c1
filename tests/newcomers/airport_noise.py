"""Summarise the noise around an airport: a pass over all recordings for means, and one for the loudest hours.

python -m tests.newcomers.airport_noise prepare DIR
mpiexec -n 2 python -m tests.newcomers.airport_noise train DIR
"""

import sys
from pathlib import Path

import numpy as np

DAYS, SECONDS, BANDS = 90, 7200, 24
BLOCK = 1800


def prepare(folder: Path) -> None:
    (folder / "days").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(65)
    for day in range(DAYS):
        levels = rng.gamma(6, 10, (SECONDS, BANDS)).astype(np.float32)
        (folder / "days" / f"day{day:03d}.lvl").write_bytes(b"LVL1" + bytes(60) + levels.tobytes())


def blocks(path: Path) -> list[np.ndarray]:
    with open(path, "rb") as file:
        file.seek(64)
        return [
            np.frombuffer(file.read(4 * BLOCK * BANDS), np.float32).reshape(BLOCK, BANDS)
            for _ in range(SECONDS // BLOCK)
        ]


def train(folder: Path) -> None:
    """Compute the statistics. The name of the command is that of the other programs."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    mine = sorted((folder / "days").glob("day*.lvl"))[comm.rank :: comm.size]
    total = np.zeros(BANDS)
    for path in mine:
        for block in blocks(path):
            total += block.sum(0, dtype=np.float64)
    mean = comm.allreduce(total) / (DAYS * SECONDS)
    loudest = []
    for path in mine:
        levels = np.concatenate(blocks(path)) - mean
        loudest.append(np.sort(levels, 0)[-20:])
    gathered = comm.gather(np.concatenate(loudest))
    if gathered is not None:
        np.savetxt(folder / "loudest.txt", np.concatenate(gathered), "%.2f")
        np.savetxt(folder / "means.txt", mean, "%.4f")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
