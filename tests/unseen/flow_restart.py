"""A flow solver continues from restart files of an earlier run and writes frames of its own.

python -m tests.unseen.flow_restart prepare DIR
mpiexec -n 2 python -m tests.unseen.flow_restart train DIR
"""

import sys
import time
from pathlib import Path

import h5py
import numpy as np

BLOCKS, N = 16, 56
FIELDS = ("rho", "u", "v", "p")


def prepare(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(64)
    for block in range(BLOCKS):
        with h5py.File(folder / f"restart.b{block:03}.h5", "w") as f:
            for field in FIELDS:
                f.create_dataset(field, data=1 + 0.1 * rng.normal(size=(N, N, N // 2)), chunks=(14, N, N // 2))


def read_restart(folder, blocks):
    state = {}
    for block in blocks:
        with h5py.File(folder / f"restart.b{block:03}.h5") as f:
            state[block] = {field: np.concatenate([f[field][z : z + 14] for z in range(0, N, 14)]) for field in FIELDS}
    return state


def advance(q):
    for field in FIELDS:
        q[field] += 0.1 * (np.roll(q[field], 1, 0) + np.roll(q[field], -1, 0) - 2 * q[field])


def train(folder):
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    state = read_restart(folder, range(comm.rank, BLOCKS, comm.size))
    for step in range(1, 61):
        for q in state.values():
            advance(q)
        residual = comm.allreduce(sum(float(np.ptp(q["rho"])) for q in state.values()))
        time.sleep(0.01)
        if step % 15 == 0:
            for block, q in state.items():
                with h5py.File(folder / f"frame{step:04}.b{block:03}.h5", "w") as f:
                    f["p"] = q["p"].astype("f4")
                    f["rho"] = q["rho"].astype("f4")
    if comm.rank == 0:
        print("residual", residual / BLOCKS)


if __name__ == "__main__":
    {"prepare": prepare, "train": train}[sys.argv[1]](Path(sys.argv[2]))
