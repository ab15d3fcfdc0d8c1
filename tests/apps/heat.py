"""A simulation of heat that spreads over a plate. It learns nothing and writes its state with MPI-IO every few steps.

mpiexec -n 2 python -m tests.apps.heat train DIR
"""

import sys
from pathlib import Path

import numpy as np

SIDE, STEPS, EVERY = 512, 200, 20


def prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.savetxt(folder / "input.txt", [[SIDE, STEPS, EVERY]])


def train(folder: Path) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    side, steps, every = map(int, np.loadtxt(folder / "input.txt"))
    rows = side // world.size
    plate = np.zeros((rows + 2, side))
    plate[1:-1, side // 3 : side // 2] = 100.0
    up, down = (world.rank - 1) % world.size, (world.rank + 1) % world.size
    for step in range(1, steps + 1):
        world.Sendrecv(plate[1], up, recvbuf=plate[-1], source=down)
        world.Sendrecv(plate[-2], down, recvbuf=plate[0], source=up)
        around = plate[:-2] + plate[2:] + np.roll(plate[1:-1], 1, axis=1) + np.roll(plate[1:-1], -1, axis=1)
        plate[1:-1] += 0.2 * (around - 4 * plate[1:-1])
        if step % every == 0:
            file = MPI.File.Open(world, str(folder / f"state_{step:05}.dat"), MPI.MODE_CREATE | MPI.MODE_WRONLY)
            file.Write_at_all(world.rank * rows * side * 8, np.ascontiguousarray(plate[1:-1]))
            file.Close()
    if world.rank == 0:
        print(f"hottest: {plate.max():.1f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
