"""Twenty cases of one calculation, shared out to the ranks. Each case reads the same deck and the same tables again,
and writes a result of its own. It learns nothing.

python -m tests.apps.parameter_sweep prepare DIR
mpiexec -n 2 python -m tests.apps.parameter_sweep train DIR
"""

import configparser
import sys
from pathlib import Path

import h5py
import numpy as np

CASES, BINS, LAYERS = 20, 1024, 256


def prepare(folder: Path) -> None:
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "deck.ini").write_text("[run]\nlow = 0.1\nhigh = 2.5\nsources = 3\n")
    with h5py.File(folder / "opacity.h5", "w") as tables:
        tables["opacity"] = random.exponential(0.01, (BINS, LAYERS))
        tables["emission"] = random.random((BINS, LAYERS))


def solve(folder: Path, case: int) -> float:
    deck = configparser.ConfigParser()
    deck.read(folder / "deck.ini")
    scale = np.linspace(deck.getfloat("run", "low"), deck.getfloat("run", "high"), CASES)[case]
    with h5py.File(folder / "opacity.h5", "r") as tables:
        opacity, emission = tables["opacity"][:] * scale, tables["emission"][:]
    flux = np.zeros((deck.getint("run", "sources"), BINS))
    for source in range(len(flux)):
        flux[source] = 10.0**source
        for layer in range(LAYERS):
            through = np.exp(-opacity[:, layer])
            flux[source] = flux[source] * through + emission[:, layer] * (1 - through)
    np.savez(folder / f"results/case_{case:02}.npz", flux=flux, scale=scale)
    return float(flux.sum())


def train(folder: Path) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    (folder / "results").mkdir(exist_ok=True)
    totals = {case: solve(folder, case) for case in range(world.rank, CASES, world.size)}
    everything = world.gather(totals)
    if everything is not None:
        brightest = max((total, case) for part in everything for case, total in part.items())
        print(f"brightest: case {brightest[1]}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
