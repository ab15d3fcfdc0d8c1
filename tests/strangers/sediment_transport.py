"""Simulate the sediment of a river under daily forcing. It writes time steps, breaks off half-way and restarts itself.

python -m tests.strangers.sediment_transport prepare DIR
mpiexec -n 4 python -m tests.strangers.sediment_transport train DIR
"""

import sys
import time
from pathlib import Path

import numpy as np

ROWS, COLUMNS = 400, 620
DAYS, FRAME_EVERY, RESTART_EVERY, BREAK = 160, 10, 40, 80


def prepare(folder: Path) -> None:
    (folder / "forcing").mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(23)
    rng.random((ROWS, COLUMNS)).tofile(folder / "bed.bin")
    for day in range(DAYS):
        rng.normal(1, 0.2, (2, 90, COLUMNS)).astype(np.float32).tofile(folder / "forcing" / f"day{day:03d}.bin")


def read_array(path: Path, kind: type, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    with open(path, "rb", buffering=0) as file:
        file.seek(offset)
        return np.frombuffer(file.read(int(np.prod(shape)) * np.dtype(kind).itemsize), kind).reshape(shape).copy()


def simulate(folder: Path, rank: int, size: int, first: int, last: int) -> None:
    shape = (ROWS // size, COLUMNS)
    if first:
        bed = read_array(folder / f"restart.{rank}", np.float64, 0, shape)
    else:
        bed = read_array(folder / "bed.bin", np.float64, rank * ROWS // size * COLUMNS * 8, shape)
    for day in range(first, last):
        forcing = read_array(folder / "forcing" / f"day{day:03d}.bin", np.float32, 0, (2, 90, COLUMNS))
        flow = forcing.mean((0, 1))
        bed += 0.01 * flow * (np.roll(bed, 1, 1) - bed)
        time.sleep(0.012)
        if day % FRAME_EVERY == FRAME_EVERY - 1:
            with open(folder / f"bed.{rank}.frames", "ab") as frames:
                frames.write(bed.astype(np.float32).tobytes())
        if day % RESTART_EVERY == RESTART_EVERY - 1:
            (folder / f"restart.{rank}").write_bytes(bed.tobytes())


def train(folder: Path) -> None:
    """Simulate the river. The name of the command is that of the other programs."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    for first, last in ((0, BREAK), (BREAK, DAYS)):
        simulate(folder, comm.rank, comm.size, first, last)
        comm.Barrier()


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
