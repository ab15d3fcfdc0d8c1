"""Compute the climate of river gauges: means in a first pass over the years, deviations and extremes in a second.

python -m tests.strangers.gauge_statistics prepare DIR
mpiexec -n 2 python -m tests.strangers.gauge_statistics train DIR
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

YEARS, DAYS, GAUGES = 32, 365, 610


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(1987)
    for year in range(1980, 1980 + YEARS):
        with h5py.File(folder / f"gauges_{year}.h5", "w") as file:
            file.create_dataset("level", data=rng.gamma(4, 30, (DAYS, GAUGES)).astype("f4"), chunks=(73, GAUGES))
            file.create_dataset("discharge", data=rng.gamma(2, 90, (DAYS, GAUGES)).astype("f4"), chunks=(73, GAUGES))


def years(paths: list[Path]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for path in paths:
        with h5py.File(path, "r") as file:
            yield file["level"][:], file["discharge"][:]
        time.sleep(0.02)  # the quality control


def train(folder: Path) -> None:
    """Compute the statistics. The name of the command is that of the other programs."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    paths = sorted(folder.glob("gauges_*.h5"))[comm.rank :: comm.size]
    sums = np.sum([[level.mean(0), discharge.mean(0)] for level, discharge in years(paths)], 0)
    means = comm.allreduce(sums) / YEARS
    squares, highest = np.zeros((2, GAUGES)), np.zeros((2, GAUGES))
    for pair in years(paths):
        squares += [np.square(field - mean).mean(0) for field, mean in zip(pair, means, strict=True)]
        highest = np.maximum(highest, [field.max(0) for field in pair])
    deviations = np.sqrt(comm.allreduce(squares) / YEARS)
    highest = np.max(comm.allgather(highest), axis=0)
    if comm.rank == 0:
        table = {"means": means.tolist(), "deviations": deviations.tolist(), "highest": highest.tolist()}
        (folder / "climate.json").write_text(json.dumps(table))


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
