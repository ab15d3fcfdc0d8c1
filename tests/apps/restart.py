"""A simulation that goes on from a restart file: all ranks read their planes of it, then each rank writes its part of
the state every few steps. It learns nothing.

python -m tests.apps.restart prepare DIR
mpiexec -n 2 python -m tests.apps.restart train DIR
"""

import sys
from pathlib import Path

import numpy as np

PLANES, SIDE, STEPS, EVERY = 64, 192, 40, 10
HEADER = np.dtype([("magic", "S8"), ("step", "i8"), ("planes", "i8"), ("side", "i8")])


def prepare(folder: Path) -> None:
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "restart.0004200").open("wb") as file:
        file.write(np.array([(b"WAVES001", 4200, PLANES, SIDE)], HEADER).tobytes())
        for _ in range(PLANES):
            file.write(random.normal(size=(SIDE, SIDE)).tobytes())


def train(folder: Path) -> None:
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    with (folder / "restart.0004200").open("rb", buffering=0) as file:
        (header,) = np.frombuffer(file.read(HEADER.itemsize), HEADER)
        planes, side, start = int(header["planes"]), int(header["side"]), int(header["step"])
        share = planes // world.size
        state = np.empty((share, side, side))
        file.seek(HEADER.itemsize + world.rank * share * side * side * 8)
        for plane in state:
            file.readinto(plane.data)
    for step in range(start + 1, start + STEPS + 1):
        state += 0.05 * (np.roll(state, 1, 1) + np.roll(state, -1, 1) - 2 * state)
        energy = world.allreduce(float((state**2).sum()))
        if step % EVERY == 0:
            with (folder / f"fields.{step:07}.{world.rank}").open("wb", buffering=0) as out:
                for plane in state:
                    out.write(plane.data)
    if world.rank == 0:
        print(f"energy: {energy:.1f}")


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
